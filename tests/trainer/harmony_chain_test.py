"""From a model to its training, as a user goes: plimsoll.harmony.profile measures it, `plimsoll swap` plans, a script trains by the plan.

Needs the program: PLIMSOLL_BINARY, which CTest sets.
"""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from needs_torch import TRAINER, torch

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "e2e" / "training"
sys.path.insert(0, str(SCRIPTS))

import harmony_gpt  # noqa: E402
from plimsoll import harmony  # noqa: E402
from plimsoll.device_budget import DeviceBudget  # noqa: E402

BINARY = os.environ.get("PLIMSOLL_BINARY", "")
SAMPLES, STEPS = 8, 6
TARGETS = harmony_gpt.TOKENS * 8  # bytes of a sample's


def run(*command, **environment):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PLIMSOLL_")}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120,
                          env={**inherited, "PYTHONPATH": os.pathsep.join([TRAINER, str(SCRIPTS)]), **environment})
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def losses_in(output):
    return [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", output)]


@unittest.skipUnless(BINARY, "PLIMSOLL_BINARY is not set")
class Chain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.profile = pathlib.Path(cls.folder.name, "profile.json")
        run(sys.executable, "-m", "plimsoll.harmony.profile", "harmony_gpt:example", "--batch-size", "2", "-o", cls.profile)
        with DeviceBudget() as before:
            pass
        held = before.allocated_bytes
        with DeviceBudget() as budget:
            cls.plain(*harmony_gpt.example(SAMPLES)[:3], SAMPLES, 2)
        cls.footprint = budget.peak_bytes - held

    def planned(self, mode, gpus, *options):
        file = pathlib.Path(self.folder.name, f"{mode}{gpus}{len(options)}.json")
        answer = run(BINARY, "swap", "--profile", self.profile, "--gpus", gpus, "--batch-size", SAMPLES, "--mode", mode,
                     "--capacity", self.footprint // 3 // gpus, "-o", "json", *options).stdout
        file.write_text(answer, encoding="utf-8")
        plan = json.loads(answer)
        return file, plan[0] if isinstance(plan, list) else plan

    def test_it_trains_by_the_plan_that_was_found_and_moves_and_holds_what_the_plan_says(self):
        for mode, gpus, options in (("vPP", 2, ()), ("vPP", 2, ("--no-p2p",)), ("vDP", 2, ()), ("vPP", 4, ()), ("vDP", 4, ())):
            with self.subTest(f"{mode} {gpus} {options}"):
                file, plan = self.planned(mode, gpus, *options)
                self.assertEqual(plan["p2p"], not options)
                message = pathlib.Path(self.folder.name, "message")
                message.unlink(missing_ok=True)
                done = run(sys.executable, "-m", "plimsoll.signposts", SCRIPTS / "harmony_gpt.py", "--steps", STEPS,
                           PLIMSOLL_SWAP_PLAN=str(file), PLIMSOLL_TERMINATION_LOG=str(message),
                           PLIMSOLL_DEVICE_BUDGET_BYTES=str(plan["deviceBytes"]))
                self.check_losses(done.stdout, plan)
                moved = ast.literal_eval(re.search(r"^moved: (.*)$", done.stdout, re.MULTILINE).group(1))
                self.check_volumes(moved, plan["volumes"])
                peaks = [int(peak) for peak in re.findall(r"at most (\d+) of", done.stdout)]
                self.assertEqual(len(peaks), gpus)
                self.assertLessEqual(max(peaks), plan["peakDeviceBytes"])
                self.assertLessEqual(plan["peakDeviceBytes"] * gpus * 3, self.footprint)
                self.check_report(message.read_text(encoding="utf-8"), done.stderr, plan, peaks)

    def check_losses(self, output, plan):
        slices = min(plan["microbatch"].values())
        torch.manual_seed(0)
        model, inputs, targets, _ = harmony_gpt.example(SAMPLES)
        torch.manual_seed(0)
        harmony_gpt.example(SAMPLES)  # the script's random numbers go on from the second model it makes
        expected = self.plain(model, inputs, targets, slices, STEPS)
        losses = losses_in(output)
        self.assertEqual(len(losses), STEPS)
        for mine, theirs in zip(losses, expected):
            self.assertAlmostEqual(mine, theirs, delta=5e-5 * theirs)

    @staticmethod
    def plain(model, inputs, targets, slices, steps):
        """PyTorch alone, in microbatches."""
        optimizer = harmony_gpt.adam(model.parameters())
        losses = []
        for _ in range(steps):
            base, total = int(torch.randint(1 << 62, ())), 0.0
            for begin in range(0, SAMPLES, slices):
                value = inputs[begin:begin + slices]
                for index, layer in enumerate(model):
                    with harmony.seeded(torch.device("cpu"), base, index, begin):
                        value = layer(value)
                loss = harmony_gpt.loss_fn(value, targets[begin:begin + slices]) * (slices / SAMPLES)
                loss.backward()
                total += loss.item()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total)
        return losses

    def check_volumes(self, moved, volumes):
        self.assertEqual(moved["weights_in"], STEPS * volumes["weightsIn"])
        self.assertEqual(moved["gradients_out"], STEPS * volumes["gradientsOut"])
        self.assertEqual(moved["stash_in"] + moved["stash_out"], STEPS * volumes["stash"])
        self.assertEqual(moved["hand_over_in"] + moved["hand_over_out"], STEPS * volumes["handOver"])
        self.assertEqual(moved["inputs_in"], STEPS * volumes["inputs"])
        self.assertEqual(moved["targets_in"], STEPS * SAMPLES * TARGETS)
        self.assertEqual(moved["p2p"], STEPS * volumes["p2p"])
        self.assertEqual(moved["reduced"], STEPS * volumes["reduced"])

    def check_report(self, message, log, plan, peaks):
        """What the operator reads, and what is in the pod's log."""
        lines = {line["stage"]: line for line in map(json.loads, message.splitlines())}
        peak = lines["peak"]
        self.assertEqual(peak["devicePeakBytes"], peaks)
        self.assertEqual((peak["deviceUsedBytes"], peak["capacityBytes"]), (max(peaks), plan["deviceBytes"]))
        self.assertEqual((peak["iteration"], peak["training"]), (STEPS, True))
        self.assertEqual(peak["swappedBytes"], plan["volumes"]["swapped"] + SAMPLES * TARGETS)
        self.assertEqual(peak["p2pBytes"], plan["volumes"]["p2p"] + plan["volumes"]["reduced"])
        self.assertGreater(peak["iterationSeconds"], 0)
        self.assertGreater(peak["hostUpdateBytesPerSecond"], 1e6)
        self.assertRegex(log, rf"iteration {STEPS}: [\d.]+ s \(planned [\d.]+ s\), .* between host and GPUs, .* on the GPUs")
        self.assertNotIn("the plan expects", log)

    def test_a_script_that_is_stopped_goes_on_from_its_checkpoint(self):
        file, _ = self.planned("vPP", 2)
        script, checkpoint = SCRIPTS / "harmony_gpt.py", pathlib.Path(self.folder.name, "checkpoint.pt")
        environment = {"PLIMSOLL_SWAP_PLAN": str(file)}
        whole = losses_in(run(sys.executable, script, "--steps", 4, **environment).stdout)
        before = run(sys.executable, script, "--steps", 4, "--checkpoint", checkpoint, "--stop-after", 2, **environment).stdout
        after = run(sys.executable, script, "--steps", 4, "--checkpoint", checkpoint, **environment).stdout
        self.assertIn("goes on after step 2", after)
        self.assertEqual(losses_in(before) + losses_in(after), whole)

    def test_another_model_is_refused(self):
        file, plan = self.planned("vPP", 2)
        plan["weightBytes"][1] += 4
        other = pathlib.Path(self.folder.name, "other.json")
        other.write_text(json.dumps(plan), encoding="utf-8")
        with self.assertRaisesRegex(harmony.PlanError, f"layer 1: the plan's has {plan['weightBytes'][1]} bytes of parameters"):
            harmony.Trainer(harmony_gpt.example(1)[0], harmony_gpt.loss_fn, harmony_gpt.adam, str(other))


if __name__ == "__main__":
    unittest.main()
