"""plimsoll.harmony: which models and plans it takes, and what it says of others."""

import contextlib
import io
import json
import os
import tempfile
import unittest
import unittest.mock

from needs_torch import torch
from plimsoll import harmony
from small_gpt import ACTIVATIONS, LAYERS, WEIGHTS, adam, batch, gpt, loss_fn, losses_of, plan_of
from torch import nn


class Models(unittest.TestCase):
    def test_what_is_no_list_of_layers_is_refused(self):
        with self.assertRaisesRegex(harmony.NoLayers, "Linear is not known as a list of layers: give an nn.Sequential"):
            harmony.Trainer(nn.Linear(2, 2), loss_fn, adam, plan_of("vPP", 2))

    def test_the_plan_must_be_of_the_model(self):
        other = [*WEIGHTS[:3], WEIGHTS[3] + 4, *WEIGHTS[4:]]
        with self.assertRaisesRegex(harmony.PlanError, f"layer 3: the plan's has {other[3]} bytes .*, and the model's {WEIGHTS[3]}:"):
            harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2, weightBytes=other))
        with self.assertRaisesRegex(harmony.PlanError, f"layer 0: .*, and the model's {WEIGHTS[0] // 2} computed in torch.bfloat16"):
            harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2, weightBytes=WEIGHTS), precision=torch.bfloat16)
        harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2, weightBytes=WEIGHTS)).stop()
        with self.assertRaisesRegex(harmony.PlanError, "the plan is of 10 layers, and the model has 2"):
            harmony.Trainer([nn.Linear(2, 2), nn.Linear(2, 2)], loss_fn, adam, plan_of("vPP", 2))

    def test_a_batch_of_another_size_is_refused(self):
        with harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2)) as trainer:
            with self.assertRaisesRegex(ValueError, "inputs must be tensors of 4 samples, the plan's batchSize"):
                trainer.step(*(part[:3] for part in batch(0)))

        with harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2)) as trainer:
            with self.assertRaisesRegex(TypeError, "inputs must be a tensor, or a structure of tensors; there is a str"):
                trainer.step({"words": "a text"}, batch(0)[1])

    def test_float16_is_refused_by_name(self):
        with self.assertRaisesRegex(ValueError, r"float16 needs its loss scaled \(GradScaler\).* use torch.bfloat16"):
            harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2), precision=torch.float16)

    def test_a_parameter_without_a_gradient_is_named(self):
        class Unused(nn.Linear):
            def forward(self, x):
                return x + super().forward(x).detach() * 0

        plan = {"mode": "vPP", "gpus": 1, "batchSize": 2, "layers": 2, "microbatch": {"forward": 1, "backward": 1},
                "packs": {"forward": [0], "backward": [0, 1]}}
        with harmony.Trainer([nn.Linear(4, 4), Unused(4, 4)], nn.functional.mse_loss, adam, plan) as trainer:
            with self.assertRaisesRegex(RuntimeError, "layer 1: weight got no gradient; freeze what takes no part in the loss"):
                trainer.step(torch.randn(2, 4), torch.randn(2, 4))


class Deviations(unittest.TestCase):
    def said(self, **expected):
        """What is written on standard error in three iterations."""
        with contextlib.redirect_stderr(io.StringIO()) as written, \
                harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2, **expected)) as trainer:
            losses_of(trainer, 3)
            self.line = trainer._progress.line()
        return written.getvalue().splitlines()

    def test_a_run_as_planned_says_nothing_and_names_the_planned_time(self):
        self.assertEqual(self.said(peakDeviceBytes=1 << 30, inputBytes=ACTIVATIONS, iterationSeconds=1.5), [])
        self.assertRegex(self.line, r"^plimsoll.harmony: iteration 3: \d+\.\d{3} s \(planned 1.500 s\), ")
        self.assertEqual(self.said(), [])
        self.assertNotIn("planned", self.line)

    def test_a_gpu_that_holds_more_is_named_once_with_the_layers(self):
        said = self.said(peakDeviceBytes=1000)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], r"GPU 0 held .* in the forward task of layers 0 to \d+, and the plan expects at most 1000 bytes:")

    def test_a_layer_that_is_given_other_bytes_is_named_once(self):
        borders = {layer for packs in plan_of("vPP", 2)["packs"].values() for layer in packs}
        layer = min(borders - {0})
        wrong = [*ACTIVATIONS]
        wrong[layer] += 4
        said = self.said(inputBytes=wrong)
        self.assertEqual(len(said), 1)
        self.assertIn(f"layer {layer} is given {ACTIVATIONS[layer]} bytes a sample, and the plan expects {wrong[layer]}", said[0])


class Plans(unittest.TestCase):
    def test_each_wrong_member_is_named(self):
        good = plan_of("vPP", 2)
        wrong = {
            "the plan lacks gpus, packs": {k: v for k, v in good.items() if k not in ("packs", "gpus")},
            "mode must be vDP or vPP, is 'DP'": dict(good, mode="DP"),
            "gpus must be a whole number of at least 1, is 0": dict(good, gpus=0),
            "gpus must be a whole number of at least 1, is True": dict(good, gpus=True),
            "batchSize is 4 and must be a multiple of the 3 GPUs of vDP": dict(good, mode="vDP", gpus=3),
            "microbatch.forward is 3 and must divide the 4 samples of a task": dict(good, microbatch={"forward": 3, "backward": 1}),
            "microbatch.backward must be a whole number of at least 1, is None": dict(good, microbatch={"forward": 1}),
            "microbatch must be an object with forward and backward": dict(good, microbatch=1),
            "packs.backward must be a list of the packs' first layers": dict(good, packs={"forward": [0], "backward": "0"}),
            r"packs.backward must be the packs' first layers, rising from 0 to at most 9, is \[0, 10\]":
                dict(good, packs={"forward": [0], "backward": [0, 10]}),
            r"packs.forward must be the packs' first layers, rising from 0 to at most 4, is \[0, 5\]":
                dict(good, packs={"forward": [0, 5], "backward": [0, 5]}),
            "prefetch must be true or false, is 1": dict(good, prefetch=1),
            "p2p must be true or false, is 'no'": dict(good, p2p="no"),
            "weightBytes must be a list of the bytes of each layer's parameters": dict(good, weightBytes=[1]),
            "inputBytes must be a list of the bytes of each layer's input for one sample": dict(good, inputBytes="1"),
            "iterationSeconds must be a number above 0, is 0": dict(good, iterationSeconds=0),
            "iterationSeconds must be a number above 0, is True": dict(good, iterationSeconds=True),
            "peakDeviceBytes must be a whole number of at least 1, is 1.5": dict(good, peakDeviceBytes=1.5),
            "a plan is a JSON object": [],
        }
        for message, plan in wrong.items():
            with self.subTest(message), self.assertRaisesRegex(harmony.PlanError, message):
                if isinstance(plan, dict):
                    harmony.Plan.read(plan)
                else:
                    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                        file.write("[]")
                        file.flush()
                        harmony.Plan.read(file.name)

    def test_a_plan_is_read_from_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write("{")
            file.flush()
            with self.assertRaisesRegex(harmony.PlanError, "is no JSON"):
                harmony.Plan.read(file.name)

    def test_the_operators_plan_is_taken_where_none_is_given(self):
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("PLIMSOLL_SWAP_PLAN", None)
            with self.assertRaisesRegex(harmony.PlanError, "no plan: give harmony.Trainer one, .* or set PLIMSOLL_SWAP_PLAN"):
                harmony.Trainer(gpt(), loss_fn, adam)
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(plan_of("vPP", 2), file)
                file.flush()
                os.environ["PLIMSOLL_SWAP_PLAN"] = file.name
                with harmony.Trainer(gpt(), loss_fn, adam) as trainer:
                    self.assertEqual((trainer.plan.gpus, trainer.plan.layers), (2, LAYERS))

    def test_tasks_go_round_the_gpus(self):
        plan = harmony.Plan.read({"mode": "vPP", "gpus": 2, "batchSize": 4, "layers": 4, "microbatch": {"forward": 2, "backward": 1},
                                  "packs": {"forward": [0, 1], "backward": [0, 2, 3]}, "iterationSeconds": 1.5})
        self.assertEqual([(task.forward, task.first, task.end, task.device) for task in plan.tasks()],
                         [(True, 0, 1, 0), (True, 1, 3, 1), (False, 3, 4, 0), (False, 2, 3, 1), (False, 0, 2, 0)])


if __name__ == "__main__":
    unittest.main()
