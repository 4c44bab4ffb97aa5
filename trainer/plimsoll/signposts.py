"""Signposts: how much device memory each stage of a training took, left where the operator finds it.

    python3 -m plimsoll.signposts train.py --epochs 3          # the script unchanged; -m MODULE as python3's; under torchrun too

    with plimsoll.signposts.report() as signposts:             # or by hand; within a script run as above they are one
        shard(model); signposts.stage("sharding")
        for batch in batches:
            step(batch); signposts.iteration()

Each stage is one JSON line in the container's termination message (docs/signposts.md), rewritten as the training goes on, so
that a process that is killed has said what it took. An exception is added in its own words, as the message takes the log's
place. Reporting never fails a training: what can't be written is said once on standard error. For one thread.
"""

import fcntl
import json
import os
import runpy
import sys
import threading
import time
import traceback
import weakref

import torch

from plimsoll.device_budget import DeviceBudget, budget_from_environment

STAGES = ("broadcast", "sharding", "optimizer", "ddp", "firstIterations", "peak")
_DEFAULT_PATH = "/dev/termination-log"
_MESSAGE_BYTES = 4096  # as much of a container's message as the kubelet keeps
_TEXT_BYTES = 1600  # of it, for one rank's exception
_FIRST_ITERATIONS = 3
# Whose frames say less about an error than the script's own.
_OTHERS = (os.path.dirname(torch.__file__), os.path.dirname(os.path.abspath(__file__)), "<frozen ")
_SECONDS_BETWEEN_PEAKS = 1.0  # after the first iterations; reading CUDA's counters takes a fraction of a millisecond


def _integer(name, default):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def _rank():
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return _integer("RANK", 0)


class TerminationMessage:
    """One file that all ranks of a container share: each replaces its own lines, under a lock.

    It is written in place, because the kubelet mounts it as a file, over which nothing can be renamed.
    """

    def __init__(self, path=None, limit=_MESSAGE_BYTES):
        self.path = path or os.environ.get("PLIMSOLL_TERMINATION_LOG", "")
        self.limit = limit
        if not self.path and os.path.exists(_DEFAULT_PATH):
            self.path = _DEFAULT_PATH  # never made: outside of a container nobody reads it
        self._complained = False

    def write(self, rank, lines, text=None):
        """`text` None leaves what the rank said in words."""
        if not self.path:
            return
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                said = os.pread(descriptor, 1 << 20, 0).decode("utf-8", "replace")
                message = _merge(said, rank, lines, text, self.limit).encode()
                os.pwrite(descriptor, message, 0)
                os.ftruncate(descriptor, len(message))
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._complained:
                print("plimsoll: cannot write the termination message: %s" % error, file=sys.stderr)
            self._complained = True


def _cut(text, limit):
    """At most so many bytes of it, at a whole character."""
    return text.encode()[:limit].decode("utf-8", "ignore")


def _parse(line):
    if not line.startswith('{"plimsoll":'):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(found.get("rank"), int) and found.get("stage") in STAGES
    return found if whole else None


def _merge(said, rank, lines, text, limit):
    """What the message says once this rank's lines and text have taken the place of its earlier ones.

    Where there is too little room, in this order: what ran out of memory, the first exception, the ranks' peaks by how much of
    the card they took, earlier stages, other exceptions.
    """
    prefix = "[rank%d]: " % rank
    signposts, texts = [], {}
    for line in said.splitlines():
        found = _parse(line)
        if found is None:
            owner = line.split("]: ", 1)[0] + "]: " if line.startswith("[rank") and "]: " in line else ""
            texts.setdefault(owner, []).append(line)
        elif found["rank"] != rank:
            signposts.append((found, line))
    signposts += [(_parse(line), line) for line in lines]
    if text is not None:
        texts[prefix] = [prefix + line for line in _cut(text, _TEXT_BYTES).splitlines()]
    blocks = ["\n".join(block) for block in texts.values() if block]
    blocks.sort(key=lambda block: "out of memory" not in block)  # stable: the first said goes first

    def urgency(signpost):
        found = signpost[0]
        if found["stage"] == "peak":
            return (0, -(found.get("deviceUsedBytes") or 0), found["rank"])
        return (1, STAGES.index(found["stage"]), found["rank"])

    room = limit
    kept_blocks, kept_signposts = [], []

    def keep(kept, item, text):
        nonlocal room
        size = len(text.encode()) + 1
        if size <= room:
            kept.append(item)
            room -= size

    for block in blocks[:1]:
        keep(kept_blocks, block, block)
    for signpost in sorted(signposts, key=urgency):
        keep(kept_signposts, signpost, signpost[1])
    for block in blocks[1:]:
        keep(kept_blocks, block, block)
    kept_signposts.sort(key=lambda signpost: (signpost[0]["rank"], STAGES.index(signpost[0]["stage"])))
    return "".join(part + "\n" for part in [line for _, line in kept_signposts] + kept_blocks)


class _Cuda:
    """This process's card; `deviceUsedBytes` is the whole card's, as nvidia-smi has it."""

    def __init__(self):
        self._used = 0
        self._context = None

    def read(self):
        if not torch.cuda.is_initialized():
            return {"device": "cuda"}  # asking for its memory would make a context, on a card the script may not want
        free, capacity = torch.cuda.mem_get_info()
        outside = capacity - free - torch.cuda.memory_reserved()
        if self._context is None:
            self._context = outside
        reserved = torch.cuda.max_memory_reserved()
        # Between two looks the allocator may have held more than at either.
        self._used = min(max(self._used, capacity - free, outside + reserved), capacity)
        return {"allocatedBytes": torch.cuda.max_memory_allocated(), "reservedBytes": reserved, "deviceUsedBytes": self._used,
                "capacityBytes": capacity, "contextBytes": self._context, "device": torch.cuda.get_device_name()}


class _Budgeted:
    def __init__(self, budget):
        self._budget = budget

    def read(self):
        peak = self._budget.peak_bytes
        return {"allocatedBytes": peak, "reservedBytes": peak, "deviceUsedBytes": peak,
                "capacityBytes": self._budget.budget_bytes, "contextBytes": 0, "device": "cpu"}


class _Unmeasured:
    def read(self):
        return {"device": "cpu"}


class Signposts:
    """What `report` gives."""

    def __init__(self, meter, message):
        self._meter = meter
        self._message = message
        self._lines = {}
        self._iterations = 0
        self._called = 0
        self._looked = 0.0
        self._written_peak = None

    @property
    def lines(self):
        """As last written, in the order of the stages."""
        return [self._lines[stage] for stage in STAGES if stage in self._lines]

    def stage(self, name):
        """A stage is done: what has been taken so far. The first word on each stage stays."""
        if name not in STAGES[:-1]:
            raise ValueError("stage must be one of %s, is %r" % (", ".join(STAGES[:-1]), name))
        if name not in self._lines:
            reading = self._meter.read()
            self._lines[name] = self._line(name, reading)
            self._write_peak(reading)

    def iteration(self):
        """One more iteration is done."""
        self._called += 1
        self.iterations_done(self._called)

    def iterations_done(self, count):
        """So many iterations are done; fewer than already said change nothing."""
        if count <= self._iterations:
            return
        self._iterations = count
        if self._iterations == _FIRST_ITERATIONS:
            self.stage("firstIterations")
        elif self._iterations < _FIRST_ITERATIONS or time.monotonic() - self._looked >= _SECONDS_BETWEEN_PEAKS:
            self.peak()

    def peak(self):
        """Looks at what has been taken so far, and writes it where that is more than was written."""
        reading = self._meter.read()
        if reading != self._written_peak:
            self._write_peak(reading)

    def failed(self, error):
        """Adds an exception's own words: its last frames and its text."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_OTHERS)]
        frames = traceback.format_list((own or frames)[-3:])
        words = "".join(traceback.format_exception_only(type(error), error))
        begin = "Traceback (most recent call last):\n"
        room = max(_TEXT_BYTES - len(words.encode()) - len(begin), 0)
        self._write_peak(self._meter.read(), begin + _cut("".join(frames), room).rstrip() + "\n" + words)

    def close(self):
        self._write_peak(self._meter.read())

    def _line(self, stage, reading):
        return json.dumps({"plimsoll": 1, "stage": stage, "rank": _rank(), "iteration": self._iterations,
                           "torch": torch.__version__.split("+")[0], **reading}, separators=(",", ":"))

    def _write_peak(self, reading, text=None):
        self._looked = time.monotonic()
        if self._written_peak is None and text is None:
            text = ""  # what an earlier process of this rank had said
        self._written_peak = reading
        self._lines["peak"] = self._line("peak", reading)
        self._message.write(_rank(), self.lines, text)


class report:
    """Reports for as long as the block runs; an exception that leaves the block is reported and goes on.

    On CUDA the process's own card is measured. On the CPU, PLIMSOLL_DEVICE_BUDGET_BYTES (or `budget_bytes`) makes the process
    one with a card of that size (plimsoll.device_budget); without, stages are reported with no memory in them.
    """

    _current = None  # of the process

    def __init__(self, path=None, budget_bytes=None):
        self._budget = None
        self._within = report._current is not None
        if self._within:
            self.signposts = report._current
            return
        budget_bytes = budget_bytes or budget_from_environment()
        if budget_bytes is not None and torch.cuda.is_available():
            raise ValueError("PLIMSOLL_DEVICE_BUDGET_BYTES is for processes without a GPU; hide it with CUDA_VISIBLE_DEVICES=''")
        if budget_bytes is not None:
            self._budget = DeviceBudget(budget_bytes)
            meter = _Budgeted(self._budget)
        else:
            meter = _Cuda() if torch.cuda.is_available() else _Unmeasured()
        self.signposts = Signposts(meter, TerminationMessage(path))

    def __enter__(self):
        report._current = self.signposts
        if self._budget is not None:
            self._budget.__enter__()
        return self.signposts

    def __exit__(self, kind, error, frames):
        if self._within:
            return False
        report._current = None
        if self._budget is not None:
            self._budget.__exit__(kind, error, frames)
        if isinstance(error, Exception) or isinstance(error, SystemExit) and error.code not in (None, 0):
            self.signposts.failed(error)
        else:
            self.signposts.close()
        return False


class _Hooks:
    """Counts a script's iterations by its optimizers' steps, and marks the stages it goes through."""

    def __init__(self, signposts):
        self._signposts = signposts
        self._steps = weakref.WeakKeyDictionary()  # of each optimizer; the busiest one's are the iterations
        self._depth = threading.local()

    def install(self):
        self._after(torch.optim.Optimizer, "__init__", self._made)
        parallel = torch.nn.parallel.DistributedDataParallel
        self._after(parallel, "__init__", lambda _: self._signposts.stage("ddp"))

    @staticmethod
    def _after(owner, name, action):
        original = getattr(owner, name)

        def hooked(self, *arguments, **options):
            result = original(self, *arguments, **options)
            action(self)
            return result

        hooked.__dict__.update(original.__dict__)
        hooked.__doc__, hooked.__wrapped__ = original.__doc__, original
        setattr(owner, name, hooked)

    def _made(self, optimizer):
        # As PyTorch hooks `step` for its profiler: on the class, since schedulers look for a bound method.
        kind = type(optimizer)
        if not getattr(kind.step, "counted_by_plimsoll", False):
            kind.step = self._counted(kind.step)

    def _counted(self, step):
        def counted(optimizer, *arguments, **options):
            depth = getattr(self._depth, "value", 0)
            self._depth.value = depth + 1
            try:
                result = step(optimizer, *arguments, **options)
            finally:
                self._depth.value = depth
            if depth == 0:  # an optimizer may step by its base class's, or by another optimizer's, step
                self._stepped(optimizer)
            return result

        counted.__dict__.update(step.__dict__)
        counted.__name__, counted.__doc__, counted.__wrapped__ = "step", step.__doc__, step
        counted.counted_by_plimsoll = True
        return counted

    def _stepped(self, optimizer):
        steps = self._steps.get(optimizer, 0) + 1
        self._steps[optimizer] = steps
        self._signposts.stage("optimizer")
        self._signposts.iterations_done(steps)


def _complete_environment():
    """RANK and LOCAL_RANK of a pod with one trainer, where nobody launched this process but Plimsoll's controller."""
    if "RANK" not in os.environ and "NODE_RANK" in os.environ and _integer("NPROC_PER_NODE", 1) == 1:
        os.environ["RANK"] = os.environ["NODE_RANK"]
        os.environ.setdefault("LOCAL_RANK", "0")


_USAGE = """usage: python3 -m plimsoll.signposts [-m] SCRIPT [ARGUMENT...]

Runs a training script (with -m: a module), and reports the device memory it takes in the container's termination message:
PLIMSOLL_TERMINATION_LOG, or /dev/termination-log where that exists. PLIMSOLL_DEVICE_BUDGET_BYTES gives a process without a GPU
so much memory for its tensors.
"""


def main(arguments):
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE, end="")
        return 0
    as_module = arguments[:1] == ["-m"]
    program = arguments[1:] if as_module else arguments
    if not program or program[0].startswith("-"):
        print(_USAGE, end="", file=sys.stderr)
        return 2
    if not as_module and not os.path.exists(program[0]):
        print("plimsoll.signposts: no such script: %s" % program[0], file=sys.stderr)
        return 2
    _complete_environment()
    try:
        reporting = report()
    except ValueError as error:
        print("plimsoll.signposts: %s" % error, file=sys.stderr)
        return 2
    sys.argv = list(program)
    with reporting as signposts:
        _Hooks(signposts).install()
        if as_module:
            sys.path[0] = os.getcwd()
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
            runpy.run_path(program[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    from plimsoll import signposts  # the module that the script will import, not the copy that runs here

    sys.exit(signposts.main(sys.argv[1:]))
