"""Signposts: how much device memory each stage of a training took, written where the operator finds it.

    python3 -m plimsoll.signposts train.py --epochs 3          # the script unchanged; -m MODULE as python3's; under torchrun too

    with plimsoll.signposts.report() as signposts:             # or in the script; under the runner both write one report
        shard(model); signposts.stage("sharding")
        for batch in batches:
            step(batch); signposts.iteration()

Each stage is one JSON line in the container's termination message (docs/signposts.md). The message is rewritten during the
training, so that a process that is killed has reported its memory. An exception's text is added, because the message replaces
the log. Reporting never fails a training: when the message cannot be written, one line on standard error says so. A report is
begun and ended by one thread; iterations and stages may be reported by several.
"""

import contextlib
import fcntl
import functools
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

STAGES = ("broadcast", "sharding", "ddp", "setup", "optimizer", "firstIterations", "peak")
_DEFAULT_PATH = "/dev/termination-log"
_MESSAGE_BYTES = 4096  # the kubelet keeps this much of a container's message
_TEXT_BYTES = 1600  # of it, for one rank's exception
_FIRST_ITERATIONS = 3
# Files whose frames say less about an error than the script's own.
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
            self.path = _DEFAULT_PATH  # never created: outside of a container nobody reads it
        self._warned = False

    def write(self, rank, lines, text=None):
        """`text` None leaves the rank's exception text unchanged."""
        if not self.path:
            return
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                before = os.pread(descriptor, 1 << 20, 0).decode("utf-8", "replace")
                message = _merge(before, rank, lines, text, self.limit).encode()
                os.pwrite(descriptor, message, 0)
                os.ftruncate(descriptor, len(message))
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._warned:
                print("plimsoll: cannot write the termination message: %s" % error, file=sys.stderr)
            self._warned = True


def _cut(text, limit):
    """The first `limit` bytes at most, cut between characters."""
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


def _urgency(found):
    if found["stage"] == "peak":
        return (0, -(found.get("deviceUsedBytes") or 0), found["rank"])
    return (1, STAGES.index(found["stage"]), found["rank"])


def _merge(before, rank, lines, text, limit):
    """The message after this rank's lines and text have replaced its earlier ones.

    Where it would be too long, the first of these are kept: an out-of-memory error or else the first exception, the ranks' peaks
    from the largest on, earlier stages, other exceptions.
    """
    signposts, texts = [], {}
    for line in before.splitlines():
        found = _parse(line)
        if found is None:
            owner = line.split("]: ", 1)[0] + "]: " if line.startswith("[rank") and "]: " in line else ""
            texts.setdefault(owner, []).append(line)
        elif found["rank"] != rank:
            signposts.append((found, line))
    signposts += [(_parse(line), line) for line in lines]
    if text is not None:
        prefix = "[rank%d]: " % rank
        texts[prefix] = [prefix + line for line in _cut(text, _TEXT_BYTES).splitlines()]
    blocks = [(None, "\n".join(block)) for block in texts.values() if block]
    blocks.sort(key=lambda block: "out of memory" not in block[1])  # stable: the earliest comes first
    kept = []
    for item in blocks[:1] + sorted(signposts, key=lambda signpost: _urgency(signpost[0])) + blocks[1:]:
        size = len(item[1].encode()) + 1
        if size <= limit:
            kept.append(item)
            limit -= size
    kept.sort(key=lambda item: (1,) if item[0] is None else (0, item[0]["rank"], STAGES.index(item[0]["stage"])))
    return "".join(line + "\n" for _, line in kept)


class CudaCard:
    """A card, without an index that of this process; `deviceUsedBytes` is the whole card's, as nvidia-smi shows it."""

    def __init__(self, index=None):
        self._index = index
        self._used = 0
        self._context = None

    def read(self):
        if not torch.cuda.is_initialized():
            return {"device": "cuda"}  # to query its memory would create a context, on a card that the script may not use
        free, capacity = torch.cuda.mem_get_info(self._index)
        outside = capacity - free - torch.cuda.memory_reserved(self._index)
        if self._context is None:
            self._context = outside
        reserved = torch.cuda.max_memory_reserved(self._index)
        # Between two readings the allocator may have held more than at either.
        self._used = min(max(self._used, capacity - free, outside + reserved), capacity)
        return {"allocatedBytes": torch.cuda.max_memory_allocated(self._index), "reservedBytes": reserved, "deviceUsedBytes": self._used,
                "capacityBytes": capacity, "contextBytes": self._context, "device": torch.cuda.get_device_name(self._index)}


def budget_reading(peak, budget_bytes):
    """Of a budget on the CPU; without a limit there is no card to compare with, and no figure."""
    if budget_bytes is None:
        return {"device": "cpu"}
    return {"allocatedBytes": peak, "reservedBytes": peak, "deviceUsedBytes": peak,
            "capacityBytes": budget_bytes, "contextBytes": 0, "device": "cpu"}


def _locked(method):
    @functools.wraps(method)
    def locked(self, *arguments):
        with self._lock:
            return method(self, *arguments)

    return locked


class Signposts:
    """What `report` gives. `read` returns the memory figures of a line. Thread-safe."""

    def __init__(self, read, message):
        self._lock = threading.RLock()
        self._read = read
        self._message = message
        self._lines = {}
        self._iterations = 0
        self._called = 0
        self._training = False
        self._read_at = 0.0
        self._written_peak = None

    @property
    def lines(self):
        """The lines as last written, in the order of the stages."""
        return [self._lines[stage] for stage in STAGES if stage in self._lines]

    @_locked
    def read_with(self, read):
        """From now on `read` returns the figures: of a trainer that has several cards."""
        self._read = read

    @_locked
    def stage(self, name):
        """A stage is done: reports the memory taken so far. A stage is reported once."""
        if name not in STAGES[:-1]:
            raise ValueError("stage must be one of %s, is %r" % (", ".join(STAGES[:-1]), name))
        if name not in self._lines:
            reading = self._read()
            self._lines[name] = self._line(name, reading)
            self._write_peak(reading)

    @_locked
    def training_begins(self):
        """All is set up: the first forward pass begins. What was taken until then is the stage `setup`."""
        if not self._training:
            self.stage("setup")
            self._training = True

    @_locked
    def iteration(self):
        """One more iteration is done."""
        self._called += 1
        self.iterations_done(self._called)

    @_locked
    def iterations_done(self, count):
        """`count` iterations are done; a count that is not above the last one changes nothing."""
        if count <= self._iterations:
            return
        self._iterations = count
        if self._iterations == _FIRST_ITERATIONS:
            self.stage("firstIterations")
        elif self._iterations < _FIRST_ITERATIONS or time.monotonic() - self._read_at >= _SECONDS_BETWEEN_PEAKS:
            self.peak()

    @_locked
    def peak(self):
        """Reads the memory taken so far, and writes it if it has changed."""
        reading = self._read()
        if reading != self._written_peak:
            self._write_peak(reading)

    @_locked
    def failed(self, error):
        """Adds an exception's last frames and its message."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_OTHERS)]
        frames = traceback.format_list((own or frames)[-3:])
        message = "".join(traceback.format_exception_only(type(error), error))
        begin = "Traceback (most recent call last):\n"
        limit = max(_TEXT_BYTES - len(message.encode()) - len(begin), 0)
        self._write_peak(self._read(), begin + _cut("".join(frames), limit).rstrip() + "\n" + message)

    @_locked
    def close(self):
        self._write_peak(self._read())

    def _line(self, stage, reading):
        return json.dumps({"plimsoll": 1, "stage": stage, "rank": _rank(), "iteration": self._iterations,
                           "training": self._training or self._iterations > 0,
                           "torch": torch.__version__.split("+")[0], **reading}, separators=(",", ":"))

    def _write_peak(self, reading, text=None):
        self._read_at = time.monotonic()
        if self._written_peak is None and text is None:
            text = ""  # removes the text of an earlier process of this rank
        self._written_peak = reading
        self._lines["peak"] = self._line("peak", reading)
        self._message.write(_rank(), self.lines, text)


@contextlib.contextmanager
def _first_forward(action):
    """Calls `action` before the first module's forward."""
    def begins(module, arguments):
        hook.remove()
        action()

    hook = torch.nn.modules.module.register_module_forward_pre_hook(begins)
    try:
        yield
    finally:
        hook.remove()


_current = None  # the Signposts of the report that runs in this process


def current():
    """What the report() that runs has given, or None."""
    return _current


@contextlib.contextmanager
def report(path=None, budget_bytes=None):
    """Reports while the block runs; an exception that leaves the block is reported and raised again. Nested reports are one.

    On CUDA the process's own card is measured. On the CPU, PLIMSOLL_DEVICE_BUDGET_BYTES (or `budget_bytes`) limits the tensors
    to the memory of a card of that size (plimsoll.device_budget); without it, stages are reported without figures. With
    PLIMSOLL_SWAP_PLAN the budget is that of each of plimsoll.harmony's devices: the model is in host memory, which has no limit here.
    """
    global _current
    if _current is not None:
        yield _current
        return
    budget_bytes = budget_bytes or budget_from_environment()
    read, budget = lambda: {"device": "cpu"}, contextlib.nullcontext()
    if budget_bytes is not None and torch.cuda.is_available():
        raise ValueError("PLIMSOLL_DEVICE_BUDGET_BYTES is for processes without a GPU; hide it with CUDA_VISIBLE_DEVICES=''")
    if budget_bytes is not None and not os.environ.get("PLIMSOLL_SWAP_PLAN"):
        budget = DeviceBudget(budget_bytes)
        read = lambda: budget_reading(budget.peak_bytes, budget_bytes)  # noqa: E731
    elif torch.cuda.is_available():
        read = CudaCard().read
    _current = Signposts(read, TerminationMessage(path))
    try:
        with budget, _first_forward(_current.training_begins):
            yield _current
        _current.close()
    except BaseException as error:
        if isinstance(error, Exception) or isinstance(error, SystemExit) and error.code not in (None, 0):
            _current.failed(error)
        else:
            _current.close()
        raise
    finally:
        _current = None


class _Hooks:
    """Counts a script's iterations by its optimizers' steps, and marks its stages."""

    def __init__(self, signposts):
        self._signposts = signposts
        self._steps = weakref.WeakKeyDictionary()  # of each optimizer; the largest number is that of the iterations
        self._depth = threading.local()

    def install(self):
        self._after(torch.optim.Optimizer, "__init__", self._made)
        parallel = torch.nn.parallel.DistributedDataParallel
        self._after(parallel, "__init__", lambda _: self._signposts.stage("ddp"))

    @staticmethod
    def _after(owner, name, action):
        original = getattr(owner, name)

        @functools.wraps(original)
        def hooked(self, *arguments, **options):
            result = original(self, *arguments, **options)
            action(self)
            return result

        setattr(owner, name, hooked)

    def _made(self, optimizer):
        # As PyTorch hooks `step` for its profiler: on the class, since schedulers look for a bound method.
        kind = type(optimizer)
        if not getattr(kind.step, "counted_by_plimsoll", False):
            kind.step = self._counted(kind.step)

    def _counted(self, step):
        @functools.wraps(step)
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

        counted.counted_by_plimsoll = True
        return counted

    def _stepped(self, optimizer):
        steps = self._steps.get(optimizer, 0) + 1
        self._steps[optimizer] = steps
        self._signposts.stage("optimizer")
        self._signposts.iterations_done(steps)


def _complete_environment():
    """Sets RANK and LOCAL_RANK in a pod with one trainer, where no launcher has set them."""
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
    with contextlib.ExitStack() as stack:
        try:
            signposts = stack.enter_context(report())
        except ValueError as error:
            print("plimsoll.signposts: %s" % error, file=sys.stderr)
            return 2
        sys.argv = list(program)
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
