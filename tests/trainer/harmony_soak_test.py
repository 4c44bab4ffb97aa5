"""plimsoll.harmony for longer than continuous integration has time for: hundreds of random plans, and a run of hundreds of steps that is
killed again and again. Random as tests/testing/random_seed.h: PLIMSOLL_RANDOM_SEED."""

import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import unittest

from needs_torch import torch
from plimsoll import harmony
from plimsoll.harmony import profile as profiles
from small_gpt import (ACTIVATIONS, LAYERS, SAMPLES, TARGETS, WEIGHTS, adam, batch, example, gpt, loss_fn, losses_of,
                       plain_losses, plan_of)

FIXED_SEED = 20_231_030
PLANS, STEPS_OF_A_PLAN = 400, 3
STEPS, KILLS = 400, 12


def random_seed():
    given = os.environ.get("PLIMSOLL_RANDOM_SEED", str(FIXED_SEED))
    seed = random.SystemRandom().randrange(1 << 32) if given == "random" else int(given)
    print(f"PLIMSOLL_RANDOM_SEED={seed}", flush=True)
    return seed


def some(draw, choices):
    return sorted(draw.sample(choices, draw.randint(0, len(choices))))


def random_plan(draw):
    """A plan of small_gpt that the executor must take, of any kind: as a dictionary."""
    mode = draw.choice(("vPP", "vDP"))
    gpus = draw.choice((1, 2, 4) if mode == "vDP" else (1, 2, 3, 4, 5))
    samples = SAMPLES // gpus if mode == "vDP" else SAMPLES
    sizes = [size for size in (1, 2, 4) if samples % size == 0]
    backward = [0, *some(draw, range(1, LAYERS))]
    forward = [0, *some(draw, range(1, backward[-1]))] if backward[-1] > 0 else []
    source = plan_of(mode, gpus, draw.choice(sizes), draw.choice(sizes), packs={"forward": forward, "backward": backward},
                     mirrored=mode == "vPP" and draw.random() < 0.5, prefetch=draw.random() < 0.5, p2p=draw.random() < 0.7)
    plan = harmony.Plan.read(source)
    placed = [{layer: task.device for task in plan.tasks() if task.forward == way for layer in task.layers()} for way in (True, False)]
    at_home = [layer for layer in range(LAYERS) if placed[0].get(layer, placed[1][layer]) == placed[1][layer]]
    resident = some(draw, at_home) if mode == "vPP" and draw.random() < 0.6 else []
    stay = [head for head in plan.stashes() if mode == "vDP" or head in at_home] if draw.random() < 0.6 else []
    return {**source, "resident": resident, "residentStashes": some(draw, stay)}


class Soak(unittest.TestCase):
    def assert_close(self, mine, theirs):
        self.assertEqual(len(mine), len(theirs))
        for step, (one, other) in enumerate(zip(mine, theirs)):
            self.assertLessEqual(abs(one - other), 5e-5 * other, f"step {step}: {one} {other}")

    def test_random_plans_train_as_plain_pytorch_within_their_bytes_and_memory(self):
        draw = random.Random(random_seed())
        profile, plain = profiles.measure(example, [1, 2, 4]), {}
        for index in range(PLANS):
            source = random_plan(draw)
            with self.subTest(f"plan {index}: {source}"):
                plan = harmony.Plan.read(source)
                size = min(plan.forward_microbatch, plan.backward_microbatch)
                if size not in plain:
                    model = gpt()
                    torch.manual_seed(2)
                    plain[size] = plain_losses(model, STEPS_OF_A_PLAN, size)
                bound = profiles.device_bytes(plan, profile)
                model = gpt()
                torch.manual_seed(2)
                with harmony.Trainer(model, loss_fn, adam, plan._replace(device_bytes=bound)) as trainer:
                    losses = losses_of(trainer, STEPS_OF_A_PLAN)
                self.assert_close(losses, plain[size])
                planned = harmony.volumes(plan, WEIGHTS, WEIGHTS, ACTIVATIONS, TARGETS)
                self.assertEqual(trainer.moved(), harmony.Volumes(*(STEPS_OF_A_PLAN * volume for volume in planned)))
                self.assertLessEqual(max(device.peak_bytes for device in trainer.devices), bound)

    def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(self):
        """Each time it goes on under another plan with the same microbatches."""
        draw = random.Random(random_seed())
        model = gpt()
        torch.manual_seed(3)
        expected = plain_losses(model, STEPS, 1)
        with tempfile.TemporaryDirectory() as folder:
            file, losses = os.path.join(folder, "checkpoint.pt"), {}
            stops = sorted(draw.sample(range(5, STEPS - 5), KILLS))
            for stop in [*stops, None]:
                mode, gpus = draw.choice((("vPP", 2), ("vPP", 3), ("vPP", 4), ("vDP", 2), ("vDP", 4)))
                child = subprocess.Popen([sys.executable, __file__, "--train", file, mode, str(gpus)], stdout=subprocess.PIPE, text=True)
                with child.stdout:
                    for line in child.stdout:
                        step, loss = line.split()
                        losses[int(step)] = float(loss)
                        if int(step) == stop:
                            child.send_signal(signal.SIGKILL)
                            break
                self.assertEqual(child.wait(), 0 if stop is None else -signal.SIGKILL)
        self.assertEqual(sorted(losses), list(range(STEPS)))
        # Rounding differs with the order of sums, and grows from step to step; the four batches are learned by heart.
        self.assert_close([losses[step] for step in range(50)], expected[:50])
        for step in range(STEPS):
            self.assertTrue(math.isclose(losses[step], expected[step], rel_tol=0.02, abs_tol=1e-4), f"{step}: {losses[step]}")
        self.assertLess(losses[STEPS - 1], losses[0] / 20)


def train_until_killed(file, mode, gpus):
    with harmony.Trainer(gpt(), loss_fn, adam, plan_of(mode, int(gpus))) as trainer:
        first = 0
        torch.manual_seed(3)
        if os.path.exists(file):
            state = torch.load(file, weights_only=False)
            trainer.load_state_dict(state)
            torch.set_rng_state(state["random"])
            first = state["steps"]
        for step in range(first, STEPS):
            loss = trainer.step(*batch(step))
            if step % 5 == 4:
                torch.save(trainer.state_dict(), file + ".new")
                os.replace(file + ".new", file)
            print(step, repr(loss), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train_until_killed(*sys.argv[2:])
    else:
        sys.exit(unittest.main())
