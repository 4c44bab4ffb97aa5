"""plimsoll.signposts and plimsoll.device_budget: what is counted, what the termination message says, and wrong usage."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest
import unittest.mock

from needs_torch import TRAINER, torch
from torch import nn

from plimsoll import device_budget, signposts
from plimsoll.device_budget import DeviceBudget, OutOfMemoryError, format_size, out_of_memory_text

MIB = 1 << 20

TRAINING = """
import sys
import torch
from torch import nn

width = int(sys.argv[1])
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(64, width)).pow(2).mean().backward()
    optimizer.step()
    schedule.step()
print("trained")
"""


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.message = os.path.join(self.folder.name, "termination-log")

    def tearDown(self):
        self.folder.cleanup()

    def said(self):
        with open(self.message, encoding="utf-8") as file:
            return file.read()

    def stages(self):
        return {line["stage"]: line for line in map(json.loads, self.said().splitlines())}


class Budget(unittest.TestCase):
    def test_counts_storages_once_and_until_they_go(self):
        with DeviceBudget() as budget:
            before = budget.allocated_bytes
            a = torch.zeros(1024)
            view = a[10:].reshape(2, -1)
            self.assertEqual(budget.allocated_bytes - before, 4096)
            b = torch.ones(3)  # the CUDA allocator's least block
            self.assertEqual(budget.allocated_bytes - before, 4096 + 512)
            a.add_(1)
            del a
            self.assertEqual(budget.allocated_bytes - before, 4096 + 512)  # the view holds it
            del view, b
            self.assertEqual(budget.allocated_bytes, before)
            self.assertEqual(budget.peak_bytes - before, 4096 + 512)

    def test_counts_what_was_there_before(self):
        held = torch.zeros(MIB)
        with DeviceBudget() as budget:
            self.assertGreaterEqual(budget.allocated_bytes, 4 * MIB)
            before = budget.allocated_bytes
            del held
            self.assertEqual(budget.allocated_bytes, before - 4 * MIB)

    def test_counts_gradients_and_optimizer_state(self):
        with DeviceBudget() as budget:
            before = budget.allocated_bytes
            layer = nn.Linear(1024, 1024, bias=False)
            optimizer = torch.optim.Adam(layer.parameters(), foreach=False)
            layer(torch.ones(1, 1024)).sum().backward()
            self.assertEqual(budget.allocated_bytes - before, 8 * MIB)
            optimizer.step()
            steps = budget.allocated_bytes - before - 16 * MIB
            self.assertIn(steps, (0, 512))  # Adam's count of steps is a tensor

    def test_counts_sparse_gradients_and_resized_tensors(self):
        with DeviceBudget() as budget:
            table = nn.Embedding(1000, 64, sparse=True)
            before = budget.allocated_bytes
            table(torch.arange(100)).sum().backward()
            gradient = table.weight.grad
            self.assertEqual(budget.allocated_bytes - before, 100 * 64 * 4 + 1024)  # values, and indices in whole granules
            self.assertEqual(gradient._values().shape, (100, 64))
            before = budget.allocated_bytes
            grown = torch.empty(0)
            grown.resize_(MIB)
            self.assertEqual(budget.allocated_bytes - before, 4 * MIB)

    def test_runs_out_in_the_words_of_pytorch(self):
        with DeviceBudget() as budget:
            room = budget.allocated_bytes + 6 * MIB
        with self.assertRaisesRegex(OutOfMemoryError, r"CUDA out of memory\. Tried to allocate 4\.00 MiB"):
            with DeviceBudget(room):
                first = torch.zeros(MIB)
                torch.zeros(MIB)
        del first

    def test_runs_out_in_backward_and_goes_on_once_there_is_room(self):
        with DeviceBudget() as budget:
            room = budget.allocated_bytes + 11 * MIB
        with DeviceBudget(room) as budget:
            layer = nn.Linear(1024, 1024, bias=False)
            ballast = torch.zeros(MIB)
            with self.assertRaises(OutOfMemoryError):
                layer(torch.ones(1, 1024)).sum().backward()
            del ballast
            layer(torch.ones(1, 1024)).sum().backward()
            self.assertLessEqual(budget.peak_bytes, room)

    def test_text_has_the_sizes(self):
        self.assertEqual([format_size(size) for size in (1000, 2048, 5 * MIB, 3 << 30)],
                         ["1000 bytes", "2.00 KiB", "5.00 MiB", "3.00 GiB"])
        text = out_of_memory_text(2 << 30, 5 << 30, 8 << 30)
        for size in ("Tried to allocate 2.00 GiB", "8.00 GiB", "3.00 GiB", "5.00 GiB"):
            self.assertIn(size, text)

    def test_refuses_a_budget_that_is_no_size(self):
        for wrong in ("12Mi", "-5", "0", "1e9", " "):
            os.environ["PLIMSOLL_DEVICE_BUDGET_BYTES"] = wrong
            try:
                with self.assertRaisesRegex(ValueError, "PLIMSOLL_DEVICE_BUDGET_BYTES must be a positive whole number"):
                    device_budget.budget_from_environment()
            finally:
                del os.environ["PLIMSOLL_DEVICE_BUDGET_BYTES"]
        self.assertIsNone(device_budget.budget_from_environment())


def line(rank, stage="peak", used=0):
    return json.dumps({"plimsoll": 1, "stage": stage, "rank": rank, "deviceUsedBytes": used}, separators=(",", ":"))


class Message(Files):
    def write(self, rank, lines, text=None, limit=4096):
        signposts.TerminationMessage(self.message, limit).write(rank, lines, text)

    def test_ranks_share_it(self):
        self.write(1, [line(1)])
        self.write(0, [line(0, "ddp"), line(0)])
        self.write(1, [line(1, used=7)])
        self.assertEqual(self.said(), "\n".join([line(0, "ddp"), line(0), line(1, used=7)]) + "\n")

    def test_shrinks_in_place(self):
        self.write(0, [line(0, "sharding"), line(0)], "ValueError: long ago")
        before = os.stat(self.message).st_ino
        self.write(0, [line(0)], "")
        self.assertEqual(self.said(), line(0) + "\n")
        self.assertEqual(os.stat(self.message).st_ino, before)

    def test_words_stay_until_they_are_replaced(self):
        self.write(0, [line(0)], "ValueError: one\n  of two lines")
        self.write(0, [line(0, used=3)])
        self.write(1, [line(1)])
        self.assertEqual(self.said().splitlines(), [line(0, used=3), line(1), "[rank0]: ValueError: one", "[rank0]:   of two lines"])

    def test_full_keeps_out_of_memory_and_the_largest_peaks(self):
        for rank in range(8):
            self.write(rank, [line(rank, stage, 100 + rank) for stage in signposts.STAGES], "RuntimeError: peer %d is gone" % rank,
                       limit=780)
        self.write(5, [line(5, used=105)], "torch.OutOfMemoryError: CUDA out of memory. " + "x" * 200, limit=780)
        said = self.said()
        self.assertLessEqual(len(said.encode()), 780)
        self.assertIn("[rank5]: torch.OutOfMemoryError: CUDA out of memory.", said)
        self.assertIn(line(7, used=107), said)
        self.assertLess(said.index(line(6, used=106)), said.index(line(7, used=107)))
        self.assertNotIn('"stage":"broadcast"', said)

    def test_a_long_text_is_cut_at_a_character(self):
        self.write(0, [line(0)], "ValueError: " + "ä€𝄞" * 2000)
        self.assertLessEqual(len(self.said().encode()), 4096)
        self.assertIn(line(0), self.said())

    def test_what_others_wrote_stays(self):
        with open(self.message, "wb") as file:
            file.write(b'{"plimsoll":1,"rank":"x"}\nold words\xff\n{"plimsoll": broken\n')
        self.write(0, [line(0)])
        self.assertIn("old words", self.said())
        self.assertIn(line(0), self.said())

    def test_a_place_that_cannot_be_written_is_no_error(self):
        signposts.TerminationMessage(os.path.join(self.folder.name, "no", "such", "folder")).write(0, [line(0)])


class FakeCard:
    """torch.cuda of a process that had 700 bytes of context on a card of 80000."""

    allocated, reserved, allocator_peak, initialized = 0, 0, 0, True

    def is_initialized(self):
        return self.initialized

    def mem_get_info(self, index=None):
        return 80000 - 700 - self.reserved, 80000

    def memory_reserved(self, index=None):
        return self.reserved

    def max_memory_reserved(self, index=None):
        return self.allocator_peak

    def max_memory_allocated(self, index=None):
        return self.allocated

    def get_device_name(self, index=None):
        return "NVIDIA A100-SXM4-80GB"


class Cuda(unittest.TestCase):
    def test_reads_the_whole_card(self):
        card = FakeCard()
        with unittest.mock.patch.object(torch, "cuda", card):
            meter = signposts.CudaCard()
            card.allocated, card.reserved, card.allocator_peak = 900, 1000, 1000
            self.assertEqual(meter.read(), {"allocatedBytes": 900, "reservedBytes": 1000, "deviceUsedBytes": 1700,
                                            "capacityBytes": 80000, "contextBytes": 700, "device": "NVIDIA A100-SXM4-80GB"})
            card.allocated, card.reserved, card.allocator_peak = 4900, 2000, 5000  # the cache was emptied before this look
            reading = meter.read()
            self.assertEqual((reading["deviceUsedBytes"], reading["contextBytes"]), (5700, 700))

    def test_makes_no_context(self):
        card = FakeCard()
        card.initialized = False
        with unittest.mock.patch.object(torch, "cuda", card):
            self.assertEqual(signposts.CudaCard().read(), {"device": "cuda"})


class Report(Files):
    def test_a_trainer_with_several_cards_gives_the_figures(self):
        """With a swap plan the budget is that of each of its cards, and what the process holds is in host memory."""
        with unittest.mock.patch.dict(os.environ, PLIMSOLL_SWAP_PLAN="plan.json"):
            with signposts.report(self.message, budget_bytes=1000) as s:
                self.assertIs(signposts.current(), s)
                torch.zeros(MIB)
                s.read_with(lambda: {**signposts.budget_reading(700, 1000), "devicePeakBytes": [300, 700]})
                threads = [threading.Thread(target=s.iteration) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        self.assertIsNone(signposts.current())
        peak = json.loads(self.said().splitlines()[-1])
        self.assertEqual((peak["stage"], peak["iteration"], peak["deviceUsedBytes"]), ("peak", 4, 700))
        self.assertEqual(peak["devicePeakBytes"], [300, 700])

    def test_by_hand(self):
        with signposts.report(self.message, budget_bytes=1 << 40) as s:
            table = torch.zeros(MIB)
            s.stage("sharding")
            with signposts.report() as inner:  # of a library that reports too
                self.assertIs(inner, s)
            more = torch.zeros(MIB)
            s.stage("sharding")
            for _ in range(4):
                s.iteration()
            del table, more
        stages = self.stages()
        self.assertEqual(list(stages), ["sharding", "firstIterations", "peak"])
        self.assertEqual(stages["firstIterations"]["iteration"], 3)
        self.assertEqual(stages["peak"]["iteration"], 4)
        grown = stages["peak"]["allocatedBytes"] - stages["sharding"]["allocatedBytes"]
        self.assertEqual(grown, 4 * MIB)
        self.assertEqual(set(stages["peak"]), {
            "plimsoll", "stage", "rank", "iteration", "training", "torch", "allocatedBytes", "reservedBytes", "deviceUsedBytes",
            "capacityBytes", "contextBytes", "device"})
        self.assertEqual(stages["peak"]["capacityBytes"], 1 << 40)

    def test_start_up_ends_with_the_first_forward_pass(self):
        with signposts.report(self.message, budget_bytes=1 << 40) as s:
            whole = torch.zeros(2 * MIB)  # loaded before it is sharded
            s.stage("sharding")
            del whole
            layer = nn.Linear(4, 4)
            layer(torch.ones(1, 4))
            s.iteration()
        stages = self.stages()
        self.assertEqual(list(stages), ["sharding", "setup", "peak"])
        self.assertEqual([stages[name]["training"] for name in stages], [False, False, True])
        self.assertGreaterEqual(stages["setup"]["allocatedBytes"], 8 * MIB)

    def test_a_failure_before_the_first_forward_pass_is_in_start_up(self):
        with self.assertRaises(RuntimeError), signposts.report(self.message):
            raise RuntimeError("CUDA out of memory")
        self.assertIn('"training":false', self.said())

    def test_without_a_budget_says_how_far_it_came(self):
        with signposts.report(self.message) as s:
            s.iteration()
        self.assertEqual(self.stages()["peak"]["iteration"], 1)
        self.assertNotIn("allocatedBytes", self.stages()["peak"])

    def test_an_exception_is_told_and_goes_on(self):
        with self.assertRaises(ZeroDivisionError):
            with signposts.report(self.message):
                1 / 0  # noqa: B018
        self.assertIn("[rank0]: ZeroDivisionError: division by zero\n", self.said())
        self.assertIn("signposts_test.py", self.said())
        with signposts.report(self.message):  # the same rank, started again
            pass
        self.assertNotIn("ZeroDivisionError", self.said())

    def test_refuses_unknown_stages(self):
        with signposts.report(self.message) as s:
            for wrong in ("peak", "Sharding", ""):
                with self.assertRaisesRegex(ValueError, "stage must be one of broadcast, sharding"):
                    s.stage(wrong)


class Runner(Files):
    def run_script(self, script, *arguments, options=(), **environment):
        path = os.path.join(self.folder.name, "train.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        return self.run_runner(*options, path if not options else "train", *arguments, **environment)

    def run_runner(self, *arguments, **environment):
        """In a child of this process, where PyTorch is loaded already."""
        names = [os.path.join(self.folder.name, name) for name in ("stdout", "stderr")]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for name, stream in zip(names, (1, 2)):
                    os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
                os.environ.update({"PLIMSOLL_TERMINATION_LOG": self.message, **environment})
                os.chdir(self.folder.name)
                code = signposts.main(list(arguments))
            except SystemExit as ended:
                code = ended.code
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with open(names[0], encoding="utf-8") as output, open(names[1], encoding="utf-8") as errors:
            return subprocess.CompletedProcess(arguments, code, output.read(), errors.read())

    def test_as_people_start_it(self):
        script = os.path.join(self.folder.name, "train.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(TRAINING)
        environment = {**os.environ, "PYTHONPATH": TRAINER, "PLIMSOLL_TERMINATION_LOG": self.message, "OMP_NUM_THREADS": "1",
                       "PLIMSOLL_DEVICE_BUDGET_BYTES": str(20 * MIB)}
        done = subprocess.run([sys.executable, "-m", "plimsoll.signposts", script, "1024"], env=environment, capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(self.said(), r"\[rank0\]: torch(\.cuda)?\.OutOfMemoryError: CUDA out of memory\.")

    def test_counts_iterations_of_an_unchanged_script(self):
        done = self.run_script(TRAINING, "64", NODE_RANK="3", PLIMSOLL_DEVICE_BUDGET_BYTES=str(64 * MIB))
        self.assertEqual((done.returncode, done.stdout), (0, "trained\n"), done.stderr)
        stages = self.stages()
        self.assertEqual(list(stages), ["setup", "optimizer", "firstIterations", "peak"])
        self.assertEqual((stages["peak"]["iteration"], stages["peak"]["rank"]), (5, 3))
        self.assertGreater(stages["peak"]["allocatedBytes"], 4 * 2 * 64 * 64 * 4)

    def test_running_out_of_the_budget_ends_it(self):
        done = self.run_script(TRAINING, "1024", PLIMSOLL_DEVICE_BUDGET_BYTES=str(20 * MIB))
        self.assertEqual(done.returncode, 1)
        self.assertIn("OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 MiB", done.stderr)
        self.assertRegex(self.said(), r"\[rank0\]: torch(\.cuda)?\.OutOfMemoryError: CUDA out of memory\. Tried to allocate 4\.00 MiB")
        self.assertIn("train.py", self.said())
        self.assertIn('"stage":"peak"', self.said())

    def test_exit_codes_pass(self):
        self.assertEqual(self.run_script("import sys; sys.exit(0)").returncode, 0)
        self.assertNotIn("SystemExit", self.said())
        self.assertEqual(self.run_script("import sys; sys.exit(3)").returncode, 3)
        self.assertIn("SystemExit: 3", self.said())
        failed = self.run_script("raise KeyError('data')")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("KeyError: 'data'", self.said())

    def test_runs_modules_with_their_arguments(self):
        done = self.run_script("import sys; print(sys.argv[1:], __name__)", "--a", "b", options=["-m"])
        self.assertEqual(done.stdout, "['--a', 'b'] __main__\n", done.stderr)

    def test_an_optimizer_that_steps_by_another_is_counted_once(self):
        script = """
import torch
from plimsoll import signposts

class Twice(torch.optim.SGD):
    def step(self, closure=None):
        super().step()
        super().step()

weight = torch.zeros(1, requires_grad=True)
other = torch.zeros(1, requires_grad=True)
optimizers = [Twice([weight], lr=0.1), torch.optim.SGD([other], lr=0.1)]
with signposts.report() as s:
    for _ in range(4):
        (weight + other).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        s.iteration()
"""
        done = self.run_script(script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.stages()["peak"]["iteration"], 4)

    def test_wrong_usage(self):
        for arguments in ([], ["-m"], ["--nonsense"], ["no-such-script.py"]):
            self.assertEqual(self.run_runner(*arguments).returncode, 2)
        self.assertEqual(self.run_runner("--help").returncode, 0)
        refused = self.run_script("print('ran')", PLIMSOLL_DEVICE_BUDGET_BYTES="12Mi")
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        self.assertIn("PLIMSOLL_DEVICE_BUDGET_BYTES must be a positive whole number of bytes, is '12Mi'", refused.stderr)


if __name__ == "__main__":
    unittest.main()
