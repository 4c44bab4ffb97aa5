"""plimsoll.harmony: training by a swap plan on virtual devices with enforced budgets, against plain PyTorch."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest

from needs_torch import torch
from naive_swapping import NaiveSwapping
from plimsoll import harmony
from plimsoll.device_budget import DeviceBudget
from plimsoll.harmony import profile as profiles
from small_gpt import (ACTIVATIONS, LAYERS, SAMPLES, TARGETS, TOKENS, WEIGHTS, WIDTH, adam, batch, example, gpt, loss_fn,
                       losses_of, plain_losses, plan_of)
from torch import nn


class Training(unittest.TestCase):
    def trained(self, plan, steps, model=None, **options):
        torch.manual_seed(1)
        with harmony.Trainer(model or gpt(), loss_fn, adam, plan, **options) as trainer:
            torch.manual_seed(2)
            losses = losses_of(trainer, steps)
        return losses, trainer

    def activations_of_a_batch(self):
        model, (inputs, targets) = gpt(), batch(0)
        with DeviceBudget() as budget:
            held = budget.allocated_bytes
            loss = loss_fn(model(inputs), targets)
            kept = budget.allocated_bytes - held
        loss.backward()
        self.assertGreater(kept, sum(ACTIVATIONS) * SAMPLES)
        return kept

    def assert_close(self, losses, expected, tolerance=2e-5):
        self.assertEqual(len(losses), len(expected))
        for step, (mine, theirs) in enumerate(zip(losses, expected)):
            self.assertLessEqual(abs(mine - theirs), tolerance * theirs, f"step {step}: {mine} {theirs}")

    def test_a_gpt_of_three_times_the_budget_trains_as_without(self):
        """Weights, gradients, Adam's two states and what backward needs of the batch are three times what all devices have together."""
        footprint = 4 * sum(WEIGHTS) + self.activations_of_a_batch()
        plain = {}
        for mode, gpus, forward, backward, steps in (("vPP", 2, 2, 1, 50), ("vPP", 4, 2, 2, 8), ("vDP", 2, 2, 2, 8), ("vDP", 4, 1, 1, 8)):
            with self.subTest(f"{mode} {gpus}"):
                budget = footprint // 3 // gpus
                if backward not in plain:
                    model = gpt()
                    torch.manual_seed(2)
                    plain[backward] = plain_losses(model, steps, backward)
                losses, trainer = self.trained(plan_of(mode, gpus, forward, backward, deviceBytes=budget), steps)
                self.assert_close(losses, plain[backward][:steps])
                if steps == 50:
                    self.assertLess(losses[-1], losses[0] / 2)
                for device in trainer.devices:
                    self.assertLessEqual(device.peak_bytes, budget)

    def test_the_bytes_that_move_are_the_plans(self):
        for mode in ("vPP", "vDP"):
            for gpus in (1, 2, 4):
                for forward, backward in ((1, 1), (2, 1), (2, 2)):
                    if mode == "vDP" and SAMPLES // gpus % forward:
                        continue
                    with self.subTest(f"{mode} {gpus} {forward} {backward}"):
                        _, trainer = self.trained(plan_of(mode, gpus, forward, backward), 1)
                        self.assertEqual(trainer.moved(), harmony.volumes(trainer.plan, WEIGHTS, WEIGHTS, ACTIVATIONS, TARGETS))

    def test_without_p2p_results_go_through_the_host(self):
        losses, trainer = self.trained(plan_of("vPP", 2, 2, 1), 2)
        others, through_host = self.trained(plan_of("vPP", 2, 2, 1, p2p=False), 2)
        self.assertEqual(losses, others)
        self.assertGreater(trainer.moved().p2p, 0)
        self.assertEqual(through_host.moved().p2p, 0)
        self.assertEqual(through_host.moved().hand_over_in, trainer.moved().hand_over_in + trainer.moved().p2p)
        expected = harmony.volumes(through_host.plan, WEIGHTS, WEIGHTS, ACTIVATIONS, TARGETS)
        self.assertEqual(through_host.moved(), harmony.Volumes(*(2 * volume for volume in expected)))

    def test_what_stays_between_two_tasks_does_not_arrive_twice(self):
        packs = {"forward": [0, 5], "backward": [0, 3, 5, 8]}
        # Of two GPUs, the one that has run layers 5 to 7 forward has them backward next; of three, another has.
        for gpus, kept in ((2, sum(WEIGHTS[5:8])), (3, 0)):
            _, trainer = self.trained(dict(plan_of("vPP", gpus), packs=packs), 1)
            self.assertEqual(trainer.moved().weights_in, 2 * sum(WEIGHTS) - sum(WEIGHTS[8:]) - kept)

    def test_prefetched_weights_move_no_more_bytes(self):
        losses, trainer = self.trained(plan_of("vPP", 2), 2)
        ahead, early = self.trained(plan_of("vPP", 2, prefetch=True), 2)
        self.assertEqual(losses, ahead)
        self.assertEqual(trainer.moved(), early.moved())
        self.assertGreater(max(d.peak_bytes for d in early.devices), max(d.peak_bytes for d in trainer.devices))

    def test_naive_swapping_moves_what_the_closed_form_says(self):
        """The paper's table: (4M + 2N)|W|, (2M + 2N)|dW|, 2N|K| and 2M|X| for M microbatches on N GPUs."""
        model, gpus, microbatch = gpt(), 2, 1
        naive = NaiveSwapping(list(model), loss_fn, adam, gpus, SAMPLES, microbatch)
        torch.manual_seed(2)
        losses = [naive.step(*batch(0))]
        before = dict(naive.moved)
        losses.append(naive.step(*batch(1)))
        moved = {kind: naive.moved[kind] - before[kind] for kind in naive.moved}
        model = gpt()
        torch.manual_seed(2)
        self.assert_close(losses, plain_losses(model, 2, microbatch))
        weights, count = sum(WEIGHTS), SAMPLES // microbatch
        stashes = TOKENS * 8 + TOKENS * WIDTH * 4 * (LAYERS - 1)
        self.assertEqual(moved, {"weights": (4 * count + 2 * gpus) * weights, "gradients": (2 * count + 2 * gpus) * weights,
                                 "state": 2 * gpus * 2 * weights, "stash": 2 * count * stashes})
        _, trainer = self.trained(plan_of("vPP", gpus, 1, 1), 1)
        planned = harmony.volumes(trainer.plan, WEIGHTS, WEIGHTS, ACTIVATIONS, TARGETS)
        self.assertEqual(sum(moved.values()) / trainer.moved().swapped(), sum(moved.values()) / planned.swapped())
        self.assertGreater(sum(moved.values()), 10 * planned.swapped())

    def test_a_profile_bounds_the_devices_memory(self):
        profile = profiles.measure(example, [1, 2])
        self.assertEqual(profile["W"], WEIGHTS)
        self.assertEqual(profile["x"]["2"][1:], [2 * TOKENS * WIDTH * 4] * (LAYERS - 1))
        for mode, gpus, forward, backward in (("vPP", 2, 2, 1), ("vPP", 2, 1, 2), ("vPP", 4, 2, 1), ("vDP", 2, 2, 1), ("vDP", 2, 1, 2)):
            for prefetch in (False, True):
                with self.subTest(f"{mode} {gpus} {forward} {backward} {prefetch}"):
                    plan = harmony.Plan.read(plan_of(mode, gpus, forward, backward, prefetch=prefetch))
                    bound = profiles.device_bytes(plan, profile)
                    _, trainer = self.trained(plan, 1)
                    most = max(device.peak_bytes for device in trainer.devices)
                    self.assertLessEqual(most, bound)
                    self.assertGreater(most, bound / 3, "the bound is of use")

    def test_a_budget_that_is_too_small_is_named(self):
        """Before anything is trained where weights and gradients alone exceed it; else as PyTorch says it of a GPU."""
        least = 2 * max(WEIGHTS)
        with self.assertRaisesRegex(harmony.PlanError, f"layers 7 to 7 .* have {least} bytes of weights and gradients: deviceBytes is "):
            self.trained(plan_of("vPP", 2, deviceBytes=least - 1), 1)
        with self.assertRaisesRegex(harmony.DeviceOutOfMemory, r"CUDA out of memory\. Tried to allocate .*GPU [01]"):
            self.trained(plan_of("vPP", 2, deviceBytes=least), 1)

    def test_gradients_are_clipped_in_a_second_phase(self):
        model = gpt()
        torch.manual_seed(2)
        expected = plain_losses(model, 4, 1, max_norm=0.1)
        losses, _ = self.trained(plan_of("vPP", 2), 4, max_norm=0.1)
        self.assert_close(losses, expected)
        unclipped, _ = self.trained(plan_of("vPP", 2), 4)
        self.assertNotEqual(losses, unclipped)

    def test_gradients_values_are_clipped_before_each_update(self):
        model = gpt()
        torch.manual_seed(2)
        expected = plain_losses(model, 4, 1, max_value=1e-3)
        losses, _ = self.trained(plan_of("vPP", 2), 4, max_value=1e-3)
        self.assert_close(losses, expected)
        unclipped, _ = self.trained(plan_of("vPP", 2), 4)
        self.assertNotEqual(losses, unclipped)

    def test_a_second_phase_in_half_precision_trains_the_weights_that_move(self):
        losses, _ = self.trained(plan_of("vPP", 2), 10, precision=torch.bfloat16, max_norm=1e3)
        unclipped, _ = self.trained(plan_of("vPP", 2), 10, precision=torch.bfloat16)
        self.assert_close(losses, unclipped, 0.02)

    def test_a_step_that_is_given_up_leaves_no_gradients_behind(self):
        """They were added to those of the next step."""
        expected, _ = self.trained(plan_of("vPP", 2), 3, max_norm=0.1)
        model, calls = gpt(), []

        def fails_in_backward(layer, inputs):
            calls.append(torch.is_grad_enabled())
            if calls.count(True) == 1 and calls[-1]:
                raise RuntimeError("a disk is full")

        model[3].register_forward_pre_hook(fails_in_backward)
        with harmony.Trainer(model, loss_fn, adam, plan_of("vPP", 2), max_norm=0.1) as trainer:
            with self.assertRaisesRegex(RuntimeError, "a disk is full"):
                trainer.step(*batch(0))
            torch.manual_seed(2)
            self.assert_close(losses_of(trainer, 3), expected)

    def test_half_precision_keeps_fp32_parameters(self):
        model = gpt()
        losses, trainer = self.trained(plan_of("vPP", 2), 10, model, precision=torch.bfloat16)
        full, _ = self.trained(plan_of("vPP", 2), 10)
        self.assert_close(losses, full, 0.02)
        self.assertEqual({p.dtype for p in model.parameters()}, {torch.float32})
        self.assertEqual(trainer.moved().gradients_out, 10 * sum(WEIGHTS) // 2, "gradients leave in 16 bits")
        self.assertEqual(2 * trainer.moved().weights_in, 10 * harmony.volumes(trainer.plan, WEIGHTS, WEIGHTS, ACTIVATIONS).weights_in)
        profile = profiles.measure(example, [1], precision=torch.bfloat16)
        self.assertEqual((profile["W"], profile["K"]), ([size // 2 for size in WEIGHTS], [2 * size for size in WEIGHTS]))

    def test_parameters_that_change_between_iterations_move_as_they_are_in_half_precision(self):
        model = gpt()
        with harmony.Trainer(model, loss_fn, adam, plan_of("vPP", 2), precision=torch.bfloat16) as trainer:
            trainer.step(*batch(0))
            trainer.wait()
            with torch.no_grad():
                model[-1].bias[batch(1)[1].flatten()] -= 100  # the words that follow become unlikely
            self.assertGreater(trainer.step(*batch(1)), 50)

    def test_statistics_of_the_forward_pass_return_to_the_model(self):
        def data(step):
            generator = torch.Generator().manual_seed(step)
            return torch.randn(8, 8, generator=generator), torch.randint(0, 4, (8,), generator=generator)

        def normed():
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))

        def cross_entropy(output, targets):
            return nn.functional.cross_entropy(output, targets)

        plan = {"mode": "vPP", "gpus": 2, "batchSize": 8, "layers": 5, "microbatch": {"forward": 4, "backward": 4},
                "packs": {"forward": [0, 1], "backward": [0, 1, 3]}}

        def sgd(parameters):  # a bias before BatchNorm has a gradient of rounding errors, which Adam would make large
            return torch.optim.SGD(parameters, lr=0.1)

        model, plain = normed(), normed().train()
        with harmony.Trainer(model, cross_entropy, sgd, plan) as trainer:
            losses_of(trainer, 3, data=data)
        optimizer = sgd(plain.parameters())
        for step in range(3):
            inputs, targets = data(step)
            for begin in (0, 4):
                (cross_entropy(plain(inputs[begin:begin + 4]), targets[begin:begin + 4]) / 2).backward()
            optimizer.step()
            optimizer.zero_grad()
        for (name, mine), theirs in zip(model.state_dict().items(), plain.state_dict().values()):
            self.assertTrue(torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6), name)


class Checkpoints(unittest.TestCase):
    def test_a_run_that_is_killed_goes_on_from_its_checkpoint(self):
        torch.manual_seed(2)
        with harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2)) as trainer:
            torch.manual_seed(3)
            whole = losses_of(trainer, 12)
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "checkpoint.pt")
            child = subprocess.Popen([sys.executable, __file__, "--train", file], stdout=subprocess.PIPE, text=True)
            for line in child.stdout:
                if line.strip() == "step 7":
                    child.send_signal(signal.SIGKILL)
                    break
            child.stdout.close()
            self.assertEqual(child.wait(), -signal.SIGKILL)
            state = torch.load(file, weights_only=False)
        self.assertEqual(state["steps"], 5)
        other = gpt()
        with harmony.Trainer(other, loss_fn, adam, plan_of("vDP", 2)) as trainer:  # under another plan, too
            trainer.load_state_dict(state)
            torch.set_rng_state(state["random"])
            resumed = losses_of(trainer, 7, first=5)
        for mine, theirs in zip(resumed, whole[5:]):
            self.assertAlmostEqual(mine, theirs, delta=2e-5 * theirs)

    def test_the_state_dict_is_the_models_own(self):
        model = gpt()
        with harmony.Trainer(model, loss_fn, adam, plan_of("vPP", 2)) as trainer:
            trainer.step(*batch(0))
            state = trainer.state_dict()
        fresh = gpt()
        fresh.load_state_dict(state["model"])
        for mine, theirs in zip(fresh.parameters(), model.parameters()):
            self.assertTrue(torch.equal(mine, theirs))


def train_until_killed(file):
    torch.manual_seed(2)
    with harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2)) as trainer:
        torch.manual_seed(3)
        for step in range(12):
            trainer.step(*batch(step))
            if step == 4:
                torch.save(trainer.state_dict(), file)
            print(f"step {step}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train_until_killed(sys.argv[2])
    else:
        sys.exit(unittest.main())
