#!/usr/bin/env python3
"""What a convolution takes on a CUDA device beside its results: each block, to the byte, as JSON.

    python3 measure_convolutions.py -o measured_gpu/convolutions_NAME.json      needs torch 2 and a CUDA device that nobody else uses
    python3 measure_convolutions.py --alone -o FILE.json      large ones, and cudnn.benchmark, which takes what the card has free
    python3 measure_convolutions.py --rehearse                runs each kind on the CPU: what can fail fails here

The allocator's history says what a call allocates and frees before it returns. Forward, the input's gradient, the weight's and the
bias's are calls of their own, because cuDNN chooses for each. The convolutions are those of the networks of published_graphs/,
ladders that change one number of a convolution, and others drawn by a seed. Several processes share the card; each keeps to a
few GiB, so that no workspace is refused.

A row is one convolution: `shape` is [batch, channels, results, groups, transposed, size, kernel, stride, padding, dilation], the
last five a number for each dimension. `taken` has for each of the file's `regimes`, dtype and layout (`fp32` is without TF32),
[backend, forward, input's gradient, weight's, bias's]: the bytes of the blocks that come and go, in order; 0 where there is none,
a text where the call fails, null where there is no such layout. With `--alone`, rows of cudnn.benchmark have `first`, of the
first call, and `again`, of the second, for the file's `benchmarkRegimes`, and what the card had free.
"""

import argparse
import gzip
import itertools
import json
import math
import multiprocessing
import pathlib
import queue
import random
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "models")]

import torch  # noqa: E402

import measure_gpu  # noqa: E402

SEED = 33
MIB = 2**20
GIB = 2**30
MARK = 1234577  # bytes of a block that nothing else has: where a call begins in the allocator's history
HISTORY = 400  # events, of which a call makes a few dozen
KEPT_CACHE = 3 * GIB
SHARED_LIMIT = 640 * MIB  # of a convolution's tensors in fp32, where processes share the card
ALONE_LIMIT = 6 * GIB
REGIMES = {
    "tf32": (torch.float32, False, True),
    "fp32": (torch.float32, False, False),
    "fp16": (torch.float16, False, True),
    "bf16": (torch.bfloat16, False, True),
    "tf32_nhwc": (torch.float32, True, True),
    "fp16_nhwc": (torch.float16, True, True),
    "bf16_nhwc": (torch.bfloat16, True, True),
}
BENCHMARK_REGIMES = ("tf32", "bf16", "bf16_nhwc")
CALLS = {"inputGradient": (True, False, False), "weightGradient": (False, True, False), "biasGradient": (False, False, True)}
CHANNELS = (
    3, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 96, 112, 120, 128, 144, 160, 192, 240, 256, 320, 384, 480, 512, 576, 640, 768, 960,
    1024, 1280, 2048,
)
SIZES = (7, 8, 10, 14, 16, 17, 20, 28, 32, 35, 43, 48, 56, 64, 75, 80, 96, 112, 128, 149, 160, 192, 224)
BATCHES = (1, 2, 4, 8, 10, 16, 24, 32, 50, 64, 96, 100, 128, 200, 256)


class History:
    """What functions take from the allocator of this process's CUDA device."""

    def __init__(self, entries=HISTORY):
        torch.cuda.memory._record_memory_history("all", context=None, max_entries=entries)

    def of(self, function):
        """(what it returns, blocks that come and go, the most of those at once, blocks that stay): requested bytes, in order."""
        torch.empty(MARK, dtype=torch.uint8, device="cuda")
        result = function()
        torch.cuda.synchronize()
        trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        events = [(event["action"], event["addr"], event["size"]) for event in trace if event["action"] in ("alloc", "free_completed")]
        began = max((i for i, (action, _, size) in enumerate(events) if action == "alloc" and size == MARK), default=None)
        if began is None:
            raise RuntimeError("the history is too short for this call")
        return (result, *blocks_of(events[began + 1 :]))


class NoHistory:
    """On the CPU: runs the functions."""

    def of(self, function):
        return function(), [], 0, []


def blocks_of(events):
    """(blocks that come and go, the most of those at once, blocks that stay)"""
    sizes, open_at, ends = [], {}, {}
    for when, (action, address, size) in enumerate(events):
        if action == "alloc":
            open_at[address] = (len(sizes), size)
            sizes.append((when, size))
        elif address in open_at:
            ends[open_at.pop(address)[0]] = when
    come_and_go = [(began, ends[i], size) for i, (began, size) in enumerate(sizes) if i in ends]
    most = max((sum(size for began, end, size in come_and_go if began <= at < end) for at, _, _ in come_and_go), default=0)
    return [size for _, _, size in come_and_go], most, [size for i, (_, size) in enumerate(sizes) if i not in ends]


# Convolutions: (batch, channels, results, groups, transposed, size, kernel, stride, padding, dilation)
def result_size(shape):
    _, _, _, _, transposed, size, kernel, stride, padding, dilation = shape
    if transposed:
        return [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in zip(size, kernel, stride, padding, dilation)]
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, kernel, stride, padding, dilation)]


def fp32_bytes(shape):
    batch, channels, results, groups, _, size, kernel, *_ = shape
    return 4 * (
        batch * channels * math.prod(size)
        + batch * results * math.prod(result_size(shape))
        + channels * results // groups * math.prod(kernel)
    )


def square(batch, channels, results, size, kernel, stride=1, padding=None, dilation=1, groups=1, dims=2, transposed=False):
    """A convolution that is the same along each dimension; padding keeps the size by default."""
    padding = dilation * (kernel - 1) // 2 if padding is None else padding
    return (batch, channels, results, groups, transposed, *((n,) * dims for n in (size, kernel, stride, padding, dilation)))


def possible(shape):
    return min(result_size(shape)) > 0 and shape[1] % shape[3] == 0 and shape[2] % shape[3] == 0


def in_networks():
    """Convolutions of published_graphs/, at batch 1."""
    found = {}
    for path in sorted((HERE / "published_graphs").glob("*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))["traces"][0]
        name = trace["operatorNames"].index("aten::convolution") if "aten::convolution" in trace["operatorNames"] else None
        for operator, _, attributes, inputs, _ in trace["operators"]:
            if operator != name:
                continue
            image, weight = (trace["layouts"][trace["tensors"][tensor][1]]["shape"] for tensor in inputs[:2])
            how = trace["attributes"][attributes]
            found[
                (
                    1,
                    image[1],
                    weight[0],
                    how["groups"],
                    how["transposed"],
                    tuple(image[2:]),
                    tuple(weight[2:]),
                    tuple(how["stride"]),
                    tuple(how["padding"]),
                    tuple(how["dilation"]),
                )
            ] = None
    return list(found)


def ladders():
    """One number changes."""
    for kernel in (1, 3, 5, 7):
        for channels in CHANNELS[:-2]:
            yield square(32, channels, 64, 28, kernel)
            yield square(32, 64, channels, 28, kernel)
            yield square(32, channels, channels, 28, kernel)
            yield square(32, channels, channels, 28, kernel, groups=channels)
        for batch in BATCHES:
            yield square(batch, 64, 64, 56, kernel)
            yield square(batch, 256, 256, 14, kernel)
        for size in SIZES:
            yield square(32, 64, 64, size, kernel)
            yield square(16, 32, 128, size, kernel, stride=2)
    for groups in (2, 4, 8, 16, 32, 64):
        for channels, size in ((128, 56), (256, 28), (512, 14)):
            yield square(32, channels, channels, size, 3, groups=groups)
            yield square(32, channels, channels, size, 3, groups=groups, stride=2)
    for dilation, kernel in itertools.product((2, 3, 4), (3, 5)):
        yield square(16, 64, 64, 56, kernel, dilation=dilation)
    for dims, transposed in ((1, False), (3, False), (1, True), (2, True), (3, True)):
        for kernel, stride, channels in itertools.product((1, 2, 3, 4, 5), (1, 2), (16, 64)):
            yield square(8, channels, channels, {1: 1024, 2: 56, 3: 16}[dims], kernel, stride, dims=dims, transposed=transposed)


def drawn(count):
    """As networks have them, and as they do not."""
    draw = random.Random(SEED)
    while count:
        dims = draw.choices((2, 1, 3), (94, 3, 3))[0]
        kernel = draw.choices((1, 2, 3, 4, 5, 7, 11), (24, 5, 42, 5, 12, 10, 2))[0]
        kernels = (kernel,) * dims
        if dims == 2 and draw.random() < 0.08:
            kernels = draw.choice([(1, 3), (3, 1), (1, 7), (7, 1), (1, 5), (5, 1), (3, 5)])
        channels, results = (draw.choice(CHANNELS) if draw.random() < 0.75 else draw.randrange(1, 600) for _ in range(2))
        kind = draw.choices(("one", "depthwise", "few"), (72, 16, 12))[0]
        groups = 1
        if kind == "depthwise":
            groups = channels
            results = channels * draw.choices((1, 2), (9, 1))[0]
        elif kind == "few":
            groups = draw.choice((2, 4, 8, 16, 32))
            channels, results = (-(-n // groups) * groups for n in (channels, results))
        stride = draw.choices((1, 2, 3, 4), (70, 25, 2, 3))[0]
        dilation = draw.choices((1, 2, 3), (92, 6, 2))[0]
        pads = draw.random() < 0.8
        size = [draw.choice(SIZES) if draw.random() < 0.8 else draw.randrange(5, 200)] * dims
        if dims == 2 and draw.random() < 0.1:
            size[1] = draw.choice(SIZES)
        batch = draw.choice(BATCHES) if draw.random() < 0.85 else draw.randrange(1, 200)
        shape = (
            batch,
            channels,
            results,
            groups,
            draw.random() < 0.03,
            tuple(size),
            kernels,
            (stride,) * dims,
            tuple(dilation * (k - 1) // 2 if pads else 0 for k in kernels),
            (dilation,) * dims,
        )
        if possible(shape) and MIB < fp32_bytes(shape) <= SHARED_LIMIT:
            count -= 1
            yield shape


def with_batch(shape, batch):
    return (batch, *shape[1:])


def fitting(shape, limit):
    """The convolution, with its batch halved until its tensors fit."""
    while fp32_bytes(shape) > limit and shape[0] > 1:
        shape = with_batch(shape, shape[0] // 2)
    return shape


def shared_cases():
    """First those that matter most, mixed, so that what a limit of time cuts off is a sample of all."""
    draw = random.Random(SEED + 1)
    rest = list(drawn(6000))
    first = [fitting(with_batch(shape, batch), SHARED_LIMIT) for shape in in_networks() for batch in (32, 128)]
    first += [fitting(shape, SHARED_LIMIT) for shape in ladders() if possible(shape)] + rest[:900]
    first = list(dict.fromkeys(first))
    draw.shuffle(first)
    return list(dict.fromkeys([*first, *rest[900:]]))


def alone_cases():
    """(whether with cudnn.benchmark, convolution)"""
    draw = random.Random(SEED + 2)
    networks = in_networks()
    large = [fitting(with_batch(shape, 512), ALONE_LIMIT) for shape in networks]
    large = draw.sample([shape for shape in large if fp32_bytes(shape) > GIB], 36)
    others = draw.sample([with_batch(shape, 64) for shape in networks], 40) + list(drawn(40))
    mixed = [case for pair in zip(large, others[0::2]) for case in ((False, pair[0]), (True, pair[1]))]
    return mixed + [(True, shape) for shape in others[1::2]]


def reduced(shape):
    """For the rehearsal: of the same kind."""
    batch, channels, results, groups, transposed, size, kernel, stride, padding, dilation = shape
    if groups == channels:
        channels, results, groups = 6, 6 * (results // channels), 6
    else:
        groups = min(groups, 2)
        channels, results = (groups * max(1, min(n // groups, 3)) for n in (channels, results))
    size = tuple(min(n, d * (k - 1) + 1 + s) for n, k, s, d in zip(size, kernel, stride, dilation))
    return (min(batch, 2), channels, results, groups, transposed, size, kernel, stride, padding, dilation)


# One convolution in one regime
def made(shape, dtype, last, device):
    if not last:
        return torch.empty(shape, dtype=dtype, device=device)
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}[len(shape)]
    return torch.empty(shape, dtype=dtype, device=device, memory_format=layout)


def calls_of(shape, dtype, last, device):
    """(backend, forward, function that gives the backward calls for forward's result)"""
    batch, channels, results, groups, transposed, size, kernel, stride, padding, dilation = shape
    image = made((batch, channels, *size), dtype, last, device)
    first, second = (channels, results) if transposed else (results, channels)
    weight = made((first, second // groups, *kernel), dtype, last, device)
    how = (list(stride), list(padding), list(dilation), transposed, [0] * len(size), groups)
    backend = str(torch._C._select_conv_backend(image, weight, None, *how)).rpartition(".")[2]

    def forward():
        return torch.ops.aten.convolution(image, weight, None, *how)

    def backward(result):
        gradient = torch.empty_like(result)
        for name, mask in CALLS.items():
            yield name, lambda mask=mask: torch.ops.aten.convolution_backward(gradient, image, weight, [results], *how, mask)

    return backend, forward, backward


def short(blocks):
    return 0 if not blocks else blocks[0] if len(blocks) == 1 else blocks


def fatal(error):
    """Whether the process's context is lost with it."""
    return "CUDA error" in str(error) and "out of memory" not in str(error)


def taken(history, shape, regime, device):
    dtype, last, tf32 = REGIMES[regime]
    torch.backends.cudnn.allow_tf32 = tf32
    backend, forward, backward = calls_of(shape, dtype, last, device)
    row = [backend]

    def record(function):
        try:
            result, blocks, _, _ = history.of(function)
            row.append(short(blocks))
            return result
        except Exception as error:
            if fatal(error):
                raise
            row.append(f"{type(error).__name__}: {error}".splitlines()[0][:120])
            return None

    result = record(forward)
    if result is not None:
        for _, function in backward(result):
            record(function)
    return row


def measured(history, shape, regimes, device="cuda"):
    """What the four calls take, by regime."""
    row = []
    for regime in regimes:
        if REGIMES[regime][1] and len(shape[5]) == 1:
            row.append(None)  # there is no such layout
            continue
        try:
            row.append(taken(history, shape, regime, device))
        except Exception as error:
            if fatal(error):
                raise
            row.append(f"{type(error).__name__}: {error}".splitlines()[0][:120])
        if device == "cuda" and torch.cuda.memory_reserved() > KEPT_CACHE:
            torch.cuda.empty_cache()
    return row


@torch.no_grad()
def row_shared(history, shape):
    return {"shape": shape, "taken": measured(history, shape, REGIMES)}


@torch.no_grad()
def row_alone(history, benchmark, shape):
    torch.cuda.empty_cache()
    if not benchmark:
        return {"shape": shape, "taken": measured(history, shape, REGIMES)}
    free = torch.cuda.mem_get_info()[0]
    torch.backends.cudnn.benchmark = True
    try:
        row = {key: measured(history, shape, BENCHMARK_REGIMES) for key in ("first", "again")}
    finally:
        torch.backends.cudnn.benchmark = False
    return {"shape": shape, "free": free, **row}


# Processes
def work(function, jobs, following, deadline, rows, entries):
    """Runs jobs until there are none or the time is over; its last row is None. For a process of its own."""
    history = History(entries)
    while time.monotonic() < deadline:
        with following.get_lock():
            at = following.value
            following.value += 1
        if at >= len(jobs):
            break
        try:
            rows.put((at, function(history, *jobs[at])))
        except Exception as error:
            rows.put((at, {"job": jobs[at], "error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}))
            if fatal(error):
                break
    rows.put(None)


class Writer:
    """JSON with a line for each row, written as the rows come."""

    def __init__(self, path, head):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        self._file.write(json.dumps(head, indent=1).removesuffix("\n}") + ',\n "rows": [\n')
        self._separator = ""

    def add(self, row):
        self._file.write(self._separator + json.dumps(row, separators=(",", ":")))
        self._file.flush()
        self._separator = ",\n"

    def close(self):
        self._file.write("\n ]\n}\n")
        self._file.close()


def measure_all(function, jobs, output, head, workers, seconds, entries=HISTORY):
    """Gives the number of rows. A process whose context is lost is replaced."""
    deadline = time.monotonic() + seconds
    context = multiprocessing.get_context("fork")
    following, rows = context.Value("i", 0), context.Queue()
    writer, count = Writer(output, {**head, "jobs": len(jobs)}), 0
    children = []

    def start():
        child = context.Process(target=work, args=(function, jobs, following, deadline, rows, entries), daemon=True)
        child.start()
        children.append(child)

    for _ in range(workers):
        start()
    running = workers
    while running and time.monotonic() < deadline + 15:
        try:
            row = rows.get(timeout=1)
        except queue.Empty:
            running = sum(child.is_alive() for child in children)
            continue
        if row is None:
            running -= 1
            if time.monotonic() < deadline - 5 and following.value < len(jobs):
                start()
                running += 1
            continue
        count += 1
        writer.add(row[1])
        if count % 500 == 0:
            print(f"{count} rows, {deadline - time.monotonic():.0f} s left", flush=True)
    writer.close()
    for child in children:
        child.kill()
    print(f"{count} of {len(jobs)} rows", flush=True)
    return count


def rehearse():
    """Runs each kind of convolution once on the CPU; gives the number of those that fail."""
    failed = 0
    cases = shared_cases()
    alone = alone_cases()
    kinds = list(dict.fromkeys(reduced(shape) for shape in [*cases[:4000], *(shape for _, shape in alone)]))
    print(
        f"{len(cases)} convolutions, {len(alone)} alone, {len(kinds)} kinds; the largest has {max(map(fp32_bytes, cases)) / MIB:.0f} MiB"
    )
    with torch.no_grad():
        for shape in kinds:
            row = measured(NoHistory(), shape, ("fp32", "tf32_nhwc", "bf16"), "cpu")
            wrong = [
                each for each in row if each and (isinstance(each, str) or len(each) != 5 or any(isinstance(n, str) for n in each[1:]))
            ]
            if wrong:
                failed += 1
                print(shape, wrong[0], flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--alone", action="store_true", help="large convolutions and cudnn.benchmark, in one process")
    parser.add_argument("--workers", type=int, default=11, help="processes that share the card; default 11")
    parser.add_argument("--seconds", type=float, default=200, help="no convolution begins after that; default 200")
    parser.add_argument("--rehearse", action="store_true", help="run each kind on the CPU; measure nothing")
    options = parser.parse_args()
    if options.rehearse:
        return 1 if rehearse() else 0
    if not options.output:
        parser.error("-o FILE is needed")
    head = measure_gpu.in_child(measure_gpu.device)
    if head is None or "error" in head:
        print("no CUDA device here: nothing was measured")
        return 0
    head |= {"regimes": list(REGIMES), "benchmarkRegimes": BENCHMARK_REGIMES}
    if options.alone:
        measure_all(row_alone, alone_cases(), options.output, head, 1, options.seconds)
    else:
        measure_all(row_shared, [(shape,) for shape in shared_cases()], options.output, head, options.workers, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
