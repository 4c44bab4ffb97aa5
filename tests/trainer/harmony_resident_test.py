"""plimsoll.harmony: layers that stay on their GPU and are updated there, and backward tasks that go round in the reverse order."""

import itertools
import unittest

from needs_torch import torch
from plimsoll import harmony
from plimsoll.harmony import profile as profiles
from small_gpt import (ACTIVATIONS, LAYERS, SAMPLES, TARGETS, WEIGHTS, adam, batch, example, gpt, loss_fn, losses_of, plain_losses,
                       plan_of)
from torch import nn

PACKS = {"forward": [0, 2, 4, 6], "backward": [0, 2, 4, 6, 8]}
SOME, ALL = [1, 2, 5, 9], list(range(LAYERS))
BF16 = torch.bfloat16


def mirrored(gpus, resident, forward=1, backward=1, **more):
    """Each layer has both of its tasks on one GPU."""
    return plan_of("vPP", gpus, forward, backward, **{"packs": PACKS, "resident": resident, "mirrored": True, **more})


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adagrad(parameters):
    return torch.optim.Adagrad(parameters, lr=0.01, initial_accumulator_value=0.1)


def trained(plan, steps, optimizer=adam, **options):
    model = gpt()
    torch.manual_seed(2)
    with harmony.Trainer(model, loss_fn, optimizer, plan, **options) as trainer:
        losses = losses_of(trainer, steps)
    return losses, trainer


def parameters_of(trainer):
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


class Tests(unittest.TestCase):
    def assert_equal(self, mine, theirs):
        self.assertEqual(mine.keys(), theirs.keys())
        for name, tensor in mine.items():
            self.assertTrue(torch.equal(tensor, theirs[name]), name)

    def assert_near(self, mine, theirs):
        """Where the sum of squares of the gradients was in another order."""
        for name, tensor in mine.items():
            self.assertTrue(torch.allclose(tensor, theirs[name], rtol=1e-4, atol=1e-6), name)


class Training(Tests):
    def test_losses_are_plain_pytorchs_bytes_the_plans_and_peaks_within_the_bound(self):
        profile = profiles.measure(example, [1, 2])
        self.assertEqual(profile["tied"], [])
        plain, steps = {}, 4
        for gpus in (1, 2, 4):
            for resident, prefetch, sizes in ((SOME, False, (2, 1)), (SOME, True, (2, 2)), (ALL, False, (1, 1)), (ALL, True, (2, 1))):
                with self.subTest(f"{gpus} {resident} {prefetch} {sizes}"):
                    plan = harmony.Plan.read(mirrored(gpus, resident, *sizes, prefetch=prefetch))
                    bound = profiles.device_bytes(plan, profile)
                    if sizes[1] not in plain:
                        model = gpt()
                        torch.manual_seed(2)
                        plain[sizes[1]] = plain_losses(model, steps, sizes[1])
                    losses, trainer = trained(plan._replace(device_bytes=bound), steps)
                    for mine, theirs in zip(losses, plain[sizes[1]]):
                        self.assertAlmostEqual(mine, theirs, delta=2e-5 * theirs)
                    planned = harmony.volumes(plan, WEIGHTS, WEIGHTS, ACTIVATIONS, TARGETS)
                    self.assertEqual(trainer.moved(), harmony.Volumes(*(steps * volume for volume in planned)))
                    self.assertEqual(planned.gradients_out, sum(WEIGHTS) - sum(WEIGHTS[layer] for layer in resident))
                    self.assertEqual(planned.weights_in == 0, resident == ALL)
                    most = max(device.peak_bytes for device in trainer.devices)
                    self.assertLessEqual(most, bound)
                    self.assertGreater(most, bound / 2, "the bound is of use")
                    placed = sum(device.moved.get("resident_in", 0) for device in trainer.devices)
                    self.assertEqual(placed, sum(WEIGHTS[layer] for layer in resident), "once")

    def test_mirrored_tasks_hand_over_to_the_next_ones_gpu(self):
        handed = []

        class Noting(harmony.VirtualDevice):
            def hand_to(self, other, tensor, kind):
                handed.append((self.index, other.index))
                return super().hand_to(other, tensor, kind)

        for gpus in (2, 3, 4):
            for p2p in (True, False):
                with self.subTest(f"{gpus} {p2p}"):
                    plan = plan_of("vPP", gpus, p2p=p2p)
                    losses, _ = trained(plan, 1)
                    handed.clear()
                    others, trainer = trained({**plan, "mirrored": True}, 1, devices=[Noting(index) for index in range(gpus)])
                    self.assertEqual(losses, others)
                    chain = [task.device for task in trainer.plan.tasks()]
                    self.assertEqual([pair for pair, _ in itertools.groupby(handed)], list(zip(chain, chain[1:])) if p2p else [])
                    self.assertEqual(trainer.moved(), harmony.volumes(trainer.plan, WEIGHTS, WEIGHTS, ACTIVATIONS, TARGETS))

    def test_results_are_those_without_residents(self):
        profile = {None: profiles.measure(example, [1]), BF16: profiles.measure(example, [1], precision=BF16)}
        self.assertNotIn("hostW", profile[None])
        self.assertEqual(profile[BF16]["hostW"], [2 * size for size in profile[BF16]["W"]])
        for precision, optimizer, clipping in ((None, adam, {}), (None, momentum, {}), (BF16, adam, {}), (BF16, momentum, {}),
                                               (None, adam, {"max_norm": 0.1}), (None, adam, {"max_value": 1e-3}),
                                               (BF16, adam, {"max_norm": 0.1}), (BF16, momentum, {"max_value": 1e-3}),
                                               (None, momentum, {"max_norm": 0.1}), (BF16, momentum, {"max_norm": 0.1}),
                                               (BF16, adam, {"max_norm": 0.1, "max_value": 1e-3})):
            expected, without = trained(mirrored(2, []), 3, optimizer, precision=precision, **clipping)
            for resident in (SOME, ALL):
                with self.subTest(f"{precision} {optimizer.__name__} {clipping} {resident}"):
                    plan = harmony.Plan.read(mirrored(2, resident))
                    bound = profiles.device_bytes(plan, profile[precision])
                    losses, trainer = trained(plan._replace(device_bytes=bound), 3, optimizer, precision=precision, **clipping)
                    if "max_norm" not in clipping:
                        self.assertEqual(losses, expected)
                        self.assert_equal(parameters_of(trainer), parameters_of(without))
                    elif precision is None:
                        self.assert_near(parameters_of(trainer), parameters_of(without))
                    for mine, theirs in zip(losses, expected):
                        self.assertAlmostEqual(mine, theirs, delta=1e-3 * theirs)

    def test_stashes_that_stay_change_nothing_but_what_moves(self):
        profile = profiles.measure(example, [1, 2])
        stashes = [2, 4, 6]
        for gpus, mode in ((1, "vPP"), (2, "vPP"), (4, "vPP"), (2, "vDP"), (4, "vDP")):
            for prefetch, resident, stay in ((False, [], stashes), (True, SOME if mode == "vPP" else [], stashes), (True, [], [4])):
                with self.subTest(f"{gpus} {mode} {prefetch} {stay}"):
                    packs = {"forward": [0, 2, 4, 6], "backward": [0, 2, 4, 6, 8]}
                    source = plan_of(mode, gpus, 1, 1, prefetch=prefetch, packs=packs, mirrored=mode == "vPP", resident=resident)
                    plan = harmony.Plan.read({**source, "residentStashes": stay})
                    bound = profiles.device_bytes(plan, profile)
                    expected, without = trained(source, 2)
                    losses, trainer = trained(plan._replace(device_bytes=bound), 2)
                    self.assertEqual(losses, expected)
                    self.assert_equal(parameters_of(trainer), parameters_of(without))
                    planned = harmony.volumes(plan, WEIGHTS, WEIGHTS, ACTIVATIONS, TARGETS)
                    self.assertEqual(trainer.moved(), harmony.Volumes(*(2 * volume for volume in planned)))
                    self.assertEqual(planned.stash_out, SAMPLES * sum(ACTIVATIONS[head] for head in stashes if head not in stay))
                    self.assertEqual(trainer.moved()._replace(stash_in=0, stash_out=0), without.moved()._replace(stash_in=0, stash_out=0))
                    self.assertLessEqual(max(device.peak_bytes for device in trainer.devices), bound)

    def test_a_layer_may_change_the_input_of_which_a_stash_stays(self):
        class Doubles(nn.Module):
            def __init__(self):
                super().__init__()
                self.by = nn.Parameter(torch.tensor(0.1))

            def forward(self, x):
                return (x * 2 if x.requires_grad else x.mul_(2)) * self.by

        def model():
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(4, 4), Doubles(), nn.Linear(4, 4), nn.Linear(4, 1))

        plan = {"mode": "vPP", "gpus": 1, "batchSize": 4, "layers": 4, "microbatch": {"forward": 2, "backward": 2},
                "packs": {"forward": [0], "backward": [0, 1, 2]}}
        losses = []
        for stashes in ([], [1]):
            with harmony.Trainer(model(), nn.functional.mse_loss, adam, {**plan, "residentStashes": stashes}) as trainer:
                torch.manual_seed(3)
                losses.append([trainer.step(torch.ones(4, 4), torch.ones(4, 1)) for _ in range(3)])
        self.assertEqual(*losses)

    def test_clipped_as_plain_pytorch_clips(self):
        for clipping in ({"max_norm": 0.1}, {"max_value": 1e-3}):
            model = gpt()
            torch.manual_seed(2)
            expected = plain_losses(model, 4, 1, **clipping)
            losses, trainer = trained(mirrored(2, SOME), 4, **clipping)
            for mine, theirs in zip(losses, expected):
                self.assertAlmostEqual(mine, theirs, delta=2e-5 * theirs)
            planned = harmony.volumes(trainer.plan, WEIGHTS, WEIGHTS, ACTIVATIONS, TARGETS)
            self.assertEqual(trainer.moved(), harmony.Volumes(*(4 * volume for volume in planned)), "norms are no volume")

    def test_gradients_are_freed_and_states_are_counted(self):
        for optimizer, precision, held, what in ((adam, None, 3, "weights and Adam's two states"),
                                                 (momentum, BF16, 2 + 1 / 2, "masters, momentum, weights"),
                                                 (adagrad, None, 2, "weights and Adagrad's state")):
            with harmony.Trainer(gpt(), loss_fn, optimizer, mirrored(2, ALL), precision=precision) as trainer:
                losses_of(trainer, 2)
                self.assertEqual(sum(device.live_bytes for device in trainer.devices), held * sum(WEIGHTS), what)

    def test_the_module_has_what_is_trained_after_wait_and_after_stop(self):
        for precision in (None, BF16):
            model, other = gpt(), gpt()
            torch.manual_seed(2)
            with harmony.Trainer(model, loss_fn, adam, mirrored(2, SOME), precision=precision) as trainer:
                trainer.step(*batch(0))
                trainer.wait()
                early = parameters_of(trainer)
                trainer.step(*batch(1))
            torch.manual_seed(2)
            with harmony.Trainer(other, loss_fn, adam, mirrored(2, []), precision=precision) as trainer:
                trainer.step(*batch(0))
                trainer.wait()
                self.assert_equal(early, dict(other.state_dict()))
                trainer.step(*batch(1))
            self.assert_equal(dict(model.state_dict()), dict(other.state_dict()))
            self.assertTrue(all(isinstance(parameter, nn.Parameter) for parameter in model.parameters()))

    def test_nothing_is_on_a_device_after_stop_and_the_state_is_that_before(self):
        with harmony.Trainer(gpt(), loss_fn, adam, mirrored(2, ALL)) as trainer:
            losses_of(trainer, 2)
            before = trainer.state_dict()
            self.assertGreater(min(device.live_bytes for device in trainer.devices), sum(WEIGHTS) // 2)
        self.assertEqual([device.live_bytes for device in trainer.devices], [0, 0])
        self.assert_equal(trainer.state_dict()["model"], before["model"])
        for mine, theirs in zip(trainer.state_dict()["optimizers"], before["optimizers"]):
            self.assertEqual(mine["param_groups"], theirs["param_groups"])
            for key, state in theirs["state"].items():
                self.assert_equal(mine["state"][key], state)

    def test_what_changes_on_the_host_between_iterations_is_trained_on(self):
        for precision in (None, BF16):
            model = gpt()
            with harmony.Trainer(model, loss_fn, adam, mirrored(2, ALL), precision=precision) as trainer:
                trainer.step(*batch(0))
                trainer.wait()
                with torch.no_grad():
                    model[-1].bias[batch(1)[1].flatten()] -= 100  # the words that follow become unlikely
                self.assertGreater(trainer.step(*batch(1)), 50)
            self.assertLess(model[-1].bias.min(), -90)

    def test_an_optimizer_may_tell_parameters_apart_by_what_they_are(self):
        def trained_with(resident):
            model = gpt()
            vectors = {parameter for parameter in model.parameters() if parameter.dim() == 1}

            def groups(parameters):
                split = [[p for p in parameters if (p in vectors) == is_vector] for is_vector in (False, True)]
                return torch.optim.AdamW([{"params": part, "weight_decay": decay} for part, decay in zip(split, (0.5, 0.0)) if part])

            torch.manual_seed(2)
            with harmony.Trainer(model, loss_fn, groups, mirrored(2, resident)) as trainer:
                losses_of(trainer, 3)
            return dict(model.state_dict())

        self.assert_equal(trained_with(SOME), trained_with([]))

    def test_an_optimizer_that_begins_with_a_state_takes_it_along(self):
        _, trainer = trained(mirrored(2, ALL), 3, adagrad)
        _, without = trained(mirrored(2, []), 3, adagrad)
        self.assert_equal(parameters_of(trainer), parameters_of(without))

    def test_a_frozen_layer_and_a_learning_rate_that_changes(self):
        results = []
        for resident in (ALL, []):
            model = gpt()
            for parameter in [*model[2].parameters(), model[9].bias]:
                parameter.requires_grad_(False)
            torch.manual_seed(2)
            with harmony.Trainer(model, loss_fn, adam, mirrored(2, resident), precision=BF16) as trainer:
                for step in range(3):
                    trainer.step(*batch(step))
                    trainer.wait()
                    for optimizer in filter(None, trainer.optimizers):
                        optimizer.param_groups[0]["lr"] /= 2
            results.append(dict(model.state_dict()))
        self.assert_equal(*results)

    def test_a_parameter_without_a_gradient_is_named(self):
        class Unused(nn.Linear):
            def forward(self, x):
                return x + super().forward(x).detach() * 0

        plan = {"mode": "vPP", "gpus": 1, "batchSize": 2, "layers": 2, "microbatch": {"forward": 1, "backward": 1},
                "packs": {"forward": [0], "backward": [0, 1]}, "resident": [1]}
        with harmony.Trainer([nn.Linear(4, 4), Unused(4, 4)], nn.functional.mse_loss, adam, plan) as trainer:
            with self.assertRaisesRegex(RuntimeError, "layer 1: weight got no gradient; freeze what takes no part in the loss"):
                trainer.step(torch.randn(2, 4), torch.randn(2, 4))


class Statistics(Tests):
    def trained(self, resident, precision=None):
        """Of layers that have both tasks, and of one in the last pack."""
        class Counting(nn.Module):
            """Its result depends on a buffer that each forward pass changes, and has one that none does."""

            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(1))
                self.register_buffer("third", torch.full((1,), 1 / 3))

            def forward(self, x):
                self.seen += 1 / 8
                return x + self.third * self.seen

        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), Counting(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
        plan = {"mode": "vPP", "gpus": 2, "batchSize": 8, "layers": 6, "microbatch": {"forward": 4, "backward": 4},
                "packs": {"forward": [0, 1], "backward": [0, 1, 3]}, "mirrored": True, "resident": resident}

        def data(step):
            generator = torch.Generator().manual_seed(step)
            return torch.randn(8, 8, generator=generator), torch.randint(0, 4, (8,), generator=generator)

        with harmony.Trainer(model, nn.functional.cross_entropy, lambda parameters: torch.optim.SGD(parameters, lr=0.1), plan,
                             precision=precision) as trainer:
            losses = losses_of(trainer, 3, data=data)
        return losses, dict(model.state_dict()), trainer

    def test_they_are_changed_once_an_iteration_and_reach_the_module_at_stop(self):
        for precision in (None, BF16):
            expected, theirs, without = self.trained([], precision)
            self.assertGreater(without.moved().buffers_out, 0)
            for resident in ([1, 2, 4], list(range(6))):
                losses, mine, trainer = self.trained(resident, precision)
                self.assertEqual(losses, expected)
                self.assert_equal(mine, theirs)
                self.assertEqual(trainer.moved().buffers_out, 0)
            self.assertEqual(mine["2.seen"].item(), 3 * 2 / 8)
            self.assertEqual(mine["2.third"].item(), torch.tensor(1 / 3).item(), "in the host's precision, as none has changed it")


class Checkpoints(Tests):
    def test_one_that_is_saved_under_a_plan_goes_on_under_another(self):
        for precision in (None, BF16):
            whole, reference = trained(mirrored(2, []), 6, precision=precision)
            for before, after in ((SOME, []), ([], SOME), (ALL, SOME)):
                with self.subTest(f"{precision} {before} {after}"):
                    with harmony.Trainer(gpt(), loss_fn, adam, mirrored(2, before), precision=precision) as trainer:
                        torch.manual_seed(2)
                        first = losses_of(trainer, 3)
                        state = trainer.state_dict()
                        for saved in state["optimizers"]:
                            for tensors in saved["state"].values():
                                self.assertTrue(all(tensor.device.type == "cpu" for tensor in tensors.values()))
                    with harmony.Trainer(gpt(), loss_fn, adam, mirrored(4, after, prefetch=True), precision=precision) as trainer:
                        losses_of(trainer, 1)  # what is loaded takes the place of what is there
                        trainer.load_state_dict(state)
                        self.assertEqual(first + losses_of(trainer, 3, first=3), whole)
                    self.assert_equal(parameters_of(trainer), parameters_of(reference))

    def test_what_is_loaded_before_the_first_step_is_placed_by_it(self):
        whole, _ = trained(mirrored(2, []), 4)
        with harmony.Trainer(gpt(), loss_fn, adam, mirrored(2, ALL)) as trainer:
            torch.manual_seed(2)
            losses_of(trainer, 2)
            state = trainer.state_dict()
        with harmony.Trainer(gpt(), loss_fn, adam, mirrored(2, ALL)) as trainer:
            trainer.load_state_dict(state)
            self.assertEqual(trainer.devices[0].live_bytes, 0)
            self.assertEqual(losses_of(trainer, 2, first=2), whole[2:])
            self.assertEqual(sum(device.live_bytes for device in trainer.devices), 3 * sum(WEIGHTS))


class Plans(unittest.TestCase):
    def refused(self, text, plan, model=gpt):
        with self.assertRaisesRegex(harmony.PlanError, text):
            harmony.Trainer(model(), loss_fn, adam, plan)

    def test_those_whose_residents_are_no_rising_layers_are_refused(self):
        for resident in ([1, 1], [2, 1], [-1], [LAYERS], [0.5], [True], ["1"]):
            self.refused(r"resident must be layers, rising from 0 to at most 9, is \[", mirrored(2, resident))
        for resident in (3, {}, "1"):
            self.refused("resident must be a list of layers", mirrored(2, resident))
        harmony.Trainer(gpt(), loss_fn, adam, mirrored(2, None)).stop()  # as in the planner: null is none
        self.refused("mirrored must be true or false, is 1", mirrored(2, [], mirrored=1))

    def test_only_vpp_has_residents_and_a_reverse_order(self):
        self.refused("resident: only vPP's layers can stay on a GPU, and mode is vDP", plan_of("vDP", 2, resident=[0]))
        self.refused("mirrored: only vPP's tasks go round the GPUs, and mode is vDP", plan_of("vDP", 2, mirrored=True))
        harmony.Trainer(gpt(), loss_fn, adam, plan_of("vDP", 2, resident=[], mirrored=False)).stop()

    def test_a_resident_layers_tasks_are_on_one_gpu(self):
        text = "resident: layer 2 has its forward task on GPU 1 and its backward task on GPU 3"
        self.refused(text, mirrored(4, [2], mirrored=False))
        harmony.Trainer(gpt(), loss_fn, adam, mirrored(4, [8, 9], mirrored=False)).stop()  # the last pack has one task
        harmony.Trainer(gpt(), loss_fn, adam, mirrored(1, ALL, mirrored=False)).stop()

    def test_a_resident_stash_is_one_and_its_tasks_are_on_one_gpu(self):
        for stashes in ([0], [8], [3], [4, 2], [2, 2], [11], [True], ["2"], [0.5]):
            self.refused(r"residentStashes must be first layers of backward packs.*: of \[2, 4, 6\], is \[",
                         mirrored(2, [], residentStashes=stashes))
        self.refused("residentStashes must be a list of layers, is 3", mirrored(2, [], residentStashes=3))
        self.refused("residentStashes: layer 1 has its forward task on GPU 0 and its backward task on GPU 1",
                     plan_of("vPP", 2, residentStashes=[1]))

    def test_the_reverse_order(self):
        tasks = harmony.Plan.read(mirrored(4, [])).tasks()
        self.assertEqual([task.device for task in tasks], [0, 1, 2, 3, 0, 3, 2, 1, 0])
        tasks = harmony.Plan.read(mirrored(3, [])).tasks()
        self.assertEqual([task.device for task in tasks], [0, 1, 2, 0, 1, 0, 2, 1, 0])
        tasks = harmony.Plan.read(mirrored(3, [], mirrored=False)).tasks()
        self.assertEqual([task.device for task in tasks], [index % 3 for index in range(9)])

    def test_shared_parameters_stay_on_no_gpu(self):
        def tied():
            model = gpt()
            model[-1].weight = model[0].weight
            return model

        self.refused("layer 0 shares weight with layer 9, and so cannot be resident", mirrored(2, [0]), tied)
        self.refused("layer 9 shares weight with layer 0, and so cannot be resident", mirrored(2, [1, 9]), tied)
        harmony.Trainer(tied(), loss_fn, adam, mirrored(2, [1, 8])).stop()
        profile = profiles.measure(lambda size: (tied(), *(part[:size] for part in batch(0)), loss_fn), [1])
        self.assertEqual(profile["tied"], [0, 9])

    def test_a_budget_counts_what_stays(self):
        """GPU 0 of 2 has the packs from 0, 4 and 8 on; of each the backward task is the larger."""
        stay = [0, 1, 4]
        there = 2 * sum(WEIGHTS[layer] for layer in stay)
        least = there + 2 * sum(WEIGHTS[8:])
        text = f"layers 8 to 9, and the resident layers 0, 1, 4, are on a GPU together and have {least} bytes of weights and gradients: "
        self.refused(text, mirrored(2, stay, deviceBytes=least - 1))
        harmony.Trainer(gpt(), loss_fn, adam, mirrored(2, stay, deviceBytes=least)).stop()
        with self.assertRaisesRegex(harmony.DeviceOutOfMemory, "GPU [01]"):
            trained(mirrored(2, stay, deviceBytes=least), 1)


if __name__ == "__main__":
    unittest.main()
