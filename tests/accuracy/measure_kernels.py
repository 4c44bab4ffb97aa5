#!/usr/bin/env python3
"""What CUDA kernels take beside their results, forward and backward, and optimizers in a step: each block, to the byte, as JSON.

    python3 measure_kernels.py -o measured_gpu/kernels_NAME.json      needs torch 2 and a CUDA device
    python3 measure_kernels.py --rehearse                             runs each on the CPU with small tensors

A row is one kernel: `of` and `sizes` say which, and each phase (`forward`, `backward`, `step`) has
[the most at once of what comes and goes, blocks that come and go, blocks that stay], requested bytes in order.
measure_convolutions.py does the same for convolutions.
"""

import argparse
import contextlib
import itertools
import math
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "models")]

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import measure_convolutions  # noqa: E402
import measure_gpu  # noqa: E402

SEED = 34
HISTORY = 3000
SHOWN = 48  # blocks of a phase
REHEARSED = 16  # of a dimension
GIB = 2**30
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NOT_ON_THE_CPU = ("EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
STEPS = 8  # RAdam adapts its rate from the sixth on
MATRICES = [(1000, 1000)] * 3 + [(4000, 1000), (1000, 4000), (500, 700)]
VECTORS = [(1000,)] * 3 + [(700,)]
CASES = []  # (what, sizes, dtype, function that gives the phases)


def case(of, grid, dtypes=("fp32", "bf16")):
    """Decorates a function of (device, dtype, *sizes) that gives phases: (name, function)."""

    def keep(function):
        CASES.extend(
            (of, tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,), dtype, function) for sizes in grid for dtype in dtypes
        )
        return function

    return keep


def floats(device, dtype, *shape, grad=True):
    return torch.randn(*shape, device=device, dtype=dtype, requires_grad=grad)


def whole(device, below, *shape):
    return torch.randint(0, below, shape, device=device)


def there_and_back(function, *tensors):
    """Forward and backward of a function; its gradient is made between the two."""
    result = []

    def forward():
        made = function(*tensors)
        result.append(made[0] if isinstance(made, tuple) else made)
        return made

    yield "forward", forward
    gradient = torch.ones_like(result[0])
    yield (
        "backward",
        lambda: torch.autograd.grad(result.pop(), [each for each in tensors if each.requires_grad], gradient, allow_unused=True),
    )


def alone(function, *tensors):
    with torch.no_grad():
        yield "forward", lambda: function(*tensors)


ROWS = (1, 2, 7, 32, 128, 500, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144)
COLUMNS = (1, 2, 10, 64, 100, 128, 256, 512, 768, 1000, 1024, 2048, 4096, 5120, 8192, 14336, 32000, 50257)
TABLES = [(rows, columns) for rows, columns in itertools.product(ROWS, COLUMNS) if rows * columns <= GIB // 4]


@case("sum of rows", TABLES)
def _(device, dtype, *shape):
    return alone(lambda x: x.sum(0), floats(device, dtype, *shape, grad=False))


@case("sum of columns", random.Random(SEED).sample(TABLES, 90))
def _(device, dtype, *shape):
    return alone(lambda x: x.sum(1), floats(device, dtype, *shape, grad=False))


@case("sum of all", [(10**n,) for n in range(1, 9)] + [(2**n,) for n in range(10, 28)])
def _(device, dtype, *shape):
    return alone(lambda x: x.sum(), floats(device, dtype, *shape, grad=False))


@case("norm of all", [(10**n,) for n in range(1, 9)] + [(2**n,) for n in range(10, 28, 2)])
def _(device, dtype, *shape):
    return alone(torch.linalg.vector_norm, floats(device, dtype, *shape, grad=False))


IMAGES = [
    (n, c, s, s)
    for n, c, s in itertools.product((1, 8, 32, 128), (3, 16, 64, 256, 512, 2048), (7, 14, 28, 56, 112))
    if n * c * s * s <= GIB // 8
]


@case("sum to channels", IMAGES)
def _(device, dtype, *shape):
    return alone(lambda x: x.sum((0, 2, 3)), floats(device, dtype, *shape, grad=False))


@case("sum to channels, NHWC", IMAGES[::2])
def _(device, dtype, *shape):
    return alone(lambda x: x.sum((0, 2, 3)), floats(device, dtype, *shape, grad=False).contiguous(memory_format=torch.channels_last))


@case("mean of pixels", IMAGES[::3])
def _(device, dtype, *shape):
    return there_and_back(lambda x: x.mean((2, 3)), floats(device, dtype, *shape))


@case("largest of columns", TABLES[::7])
def _(device, dtype, *shape):
    return alone(lambda x: x.amax(1), floats(device, dtype, *shape, grad=False))


@case("largest with place", TABLES[::9])
def _(device, dtype, *shape):
    return alone(lambda x: x.max(1), floats(device, dtype, *shape, grad=False))


@case(
    "linear",
    [
        (rows, a, b)
        for rows in (1, 64, 512, 4096, 32768)
        for a, b in ((64, 64), (1000, 10), (768, 3072), (4096, 4096), (4096, 14336), (13, 512), (1023, 1))
    ],
)
def _(device, dtype, rows, inputs, outputs):
    return there_and_back(
        F.linear, floats(device, dtype, rows, inputs), floats(device, dtype, outputs, inputs), floats(device, dtype, outputs)
    )


NORMS = [
    (rows, columns)
    for rows in (1, 32, 256, 2048, 8192, 65536)
    for columns in (64, 100, 512, 768, 1024, 2048, 4096, 8192, 12288)
    if rows * columns <= GIB // 8
]


@case("layer_norm", NORMS, ("fp32", "bf16", "fp16"))
def _(device, dtype, rows, columns):
    return there_and_back(
        lambda x, w, b: F.layer_norm(x, (columns,), w, b),
        floats(device, dtype, rows, columns),
        floats(device, dtype, columns),
        floats(device, dtype, columns),
    )


@case("layer_norm without bias", NORMS[::3])
def _(device, dtype, rows, columns):
    return there_and_back(
        lambda x, w: F.layer_norm(x, (columns,), w), floats(device, dtype, rows, columns), floats(device, dtype, columns)
    )


@case("rms_norm", NORMS)
def _(device, dtype, rows, columns):
    return there_and_back(lambda x, w: F.rms_norm(x, (columns,), w), floats(device, dtype, rows, columns), floats(device, dtype, columns))


def _batch_norm(device, dtype, shape, last):
    image = floats(device, dtype, *shape, grad=False)
    image = (image.contiguous(memory_format=torch.channels_last) if last else image).requires_grad_()
    channels, kind = shape[1], torch.float32
    buffers = torch.zeros(channels, device=device), torch.ones(channels, device=device)
    return there_and_back(
        lambda x, w, b: F.batch_norm(x, *buffers, w, b, training=True),
        image,
        floats(device, kind, channels),
        floats(device, kind, channels),
    )


@case("batch_norm", IMAGES)
def _(device, dtype, *shape):
    return _batch_norm(device, dtype, shape, False)


@case("batch_norm, NHWC", IMAGES[::2])
def _(device, dtype, *shape):
    return _batch_norm(device, dtype, shape, True)


@case("batch_norm of rows", NORMS[::2])
def _(device, dtype, *shape):
    return _batch_norm(device, dtype, shape, False)


@case("batch_norm, evaluated", IMAGES[::9])
def _(device, dtype, *shape):
    statistics = torch.zeros(shape[1], device=device), torch.ones(shape[1], device=device)
    return there_and_back(lambda x: F.batch_norm(x, *statistics), floats(device, dtype, *shape))


@case("group_norm", [(shape, groups) for shape in IMAGES[::2] for groups in (1, 32) if shape[1] % groups == 0])
def _(device, dtype, shape, groups):
    groups = math.gcd(groups, shape[1])
    return there_and_back(
        lambda x, w, b: F.group_norm(x, groups, w, b),
        floats(device, dtype, *shape),
        floats(device, dtype, shape[1]),
        floats(device, dtype, shape[1]),
    )


@case("softmax", NORMS[::2] + [(4096, 50257), (16, 16, 512, 512)])
def _(device, dtype, *shape):
    return there_and_back(lambda x: x.softmax(-1), floats(device, dtype, *shape))


@case("softmax along rows", NORMS[::4])
def _(device, dtype, *shape):
    return there_and_back(lambda x: x.softmax(0), floats(device, dtype, *shape))


LOGITS = [(rows, classes) for rows in (8, 256, 4096, 16384) for classes in (2, 10, 1000, 32000, 50257) if rows * classes <= GIB // 2]


@case("cross_entropy", LOGITS)
def _(device, dtype, rows, classes):
    labels = whole(device, classes, rows)
    return there_and_back(lambda x: F.cross_entropy(x, labels), floats(device, dtype, rows, classes))


@case("cross_entropy of pixels", [(8, 21, 64, 64), (16, 2, 256, 256), (4, 150, 128, 128)])
def _(device, dtype, *shape):
    labels = whole(device, shape[1], shape[0], *shape[2:])
    return there_and_back(lambda x: F.cross_entropy(x, labels), floats(device, dtype, *shape))


@case("cross_entropy, smoothed", LOGITS[::3])
def _(device, dtype, rows, classes):
    labels = whole(device, classes, rows)
    return there_and_back(lambda x: F.cross_entropy(x, labels, label_smoothing=0.1), floats(device, dtype, rows, classes))


@case(
    "losses of two",
    [
        (name, n)
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits", "kl_div", "huber_loss")
        for n in (1000, 10**6, 10**7)
    ],
)
def _(device, dtype, name, count):
    other = torch.rand(count, device=device, dtype=dtype)
    return there_and_back(lambda x: getattr(F, name)(x, other), floats(device, dtype, count))


EMBEDDINGS = [
    (rows, dim, n)
    for rows in (10, 1000, 50257, 1000000)
    for dim in (1, 16, 128, 768)
    for n in (64, 1000, 3000, 4096, 65536, 1000000)
    if rows * dim <= GIB // 8 and n * dim <= GIB // 8
]


@case("embedding", EMBEDDINGS)
def _(device, dtype, rows, dim, count):
    indices = whole(device, rows, count)
    return there_and_back(lambda w: F.embedding(indices, w), floats(device, dtype, rows, dim))


@case("embedding with padding", EMBEDDINGS[::3], ("fp32",))
def _(device, dtype, rows, dim, count):
    indices = whole(device, rows, count)
    return there_and_back(lambda w: F.embedding(indices, w, padding_idx=0), floats(device, dtype, rows, dim))


@case("embedding, scaled by frequency", EMBEDDINGS[::5], ("fp32",))
def _(device, dtype, rows, dim, count):
    indices = whole(device, rows, count)
    return there_and_back(lambda w: F.embedding(indices, w, scale_grad_by_freq=True), floats(device, dtype, rows, dim))


@case("embedding, sparse", EMBEDDINGS[::4], ("fp32",))
def _(device, dtype, rows, dim, count):
    indices = whole(device, rows, count)
    return there_and_back(lambda w: F.embedding(indices, w, sparse=True), floats(device, dtype, rows, dim))


@case(
    "embedding_bag",
    [
        (mode, sparse, *sizes)
        for mode in ("sum", "mean", "max")
        for sparse in (False, True)
        for sizes in EMBEDDINGS[1::4]
        if not (sparse and mode == "max")
    ],
    ("fp32",),
)
def _(device, dtype, mode, sparse, rows, dim, count):
    indices, starts = whole(device, rows, count), torch.arange(0, count, 4, device=device)
    return there_and_back(lambda w: F.embedding_bag(indices, w, starts, mode=mode, sparse=sparse), floats(device, dtype, rows, dim))


PLACES = [(1000, 16, 300), (1000, 16, 4000), (100000, 64, 10000), (100000, 64, 500000), (30, 768, 8192), (1000000, 1, 1000000)]


@case("index_select", PLACES)
def _(device, dtype, rows, dim, count):
    indices = whole(device, rows, count)
    return there_and_back(lambda x: x.index_select(0, indices), floats(device, dtype, rows, dim))


@case("indexed by a tensor", PLACES)
def _(device, dtype, rows, dim, count):
    indices = whole(device, rows, count)
    return there_and_back(lambda x: x[indices], floats(device, dtype, rows, dim))


@case("indexed by two tensors", PLACES)
def _(device, dtype, rows, dim, count):
    first, second = whole(device, rows, count), whole(device, dim, count)
    return there_and_back(lambda x: x[first, second], floats(device, dtype, rows, dim))


@case("indexed by a mask", PLACES)
def _(device, dtype, rows, dim, count):
    mask = torch.arange(rows, device=device) % 2 == 0
    return there_and_back(lambda x: x[mask], floats(device, dtype, rows, dim))


@case("masked_select", PLACES)
def _(device, dtype, rows, dim, count):
    mask = (torch.arange(rows * dim, device=device) % 3 == 0).view(rows, dim)
    return there_and_back(lambda x: x.masked_select(mask), floats(device, dtype, rows, dim))


@case("nonzero", PLACES, ("fp32",))
def _(device, dtype, rows, dim, count):
    return alone(torch.nonzero, (torch.arange(rows * dim, device=device) % 3 == 0).view(rows, dim))


@case("gather", PLACES)
def _(device, dtype, rows, dim, count):
    indices = whole(device, rows, count, dim)
    return there_and_back(lambda x: x.gather(0, indices), floats(device, dtype, rows, dim))


@case("scatter_add", PLACES)
def _(device, dtype, rows, dim, count):
    indices, zeros = whole(device, rows, count, dim), floats(device, dtype, rows, dim, grad=False)
    return there_and_back(lambda x: zeros.scatter_add(0, indices, x), floats(device, dtype, count, dim))


@case("index_add", PLACES)
def _(device, dtype, rows, dim, count):
    indices, zeros = whole(device, rows, count), floats(device, dtype, rows, dim, grad=False)
    return there_and_back(lambda x: zeros.index_add(0, indices, x), floats(device, dtype, count, dim))


@case("index_put, accumulated", PLACES)
def _(device, dtype, rows, dim, count):
    indices, zeros = whole(device, rows, count), floats(device, dtype, rows, dim, grad=False)
    return there_and_back(lambda x: zeros.index_put((indices,), x, accumulate=True), floats(device, dtype, count, dim))


SORTED = [(1, 1000), (1, 100000), (1, 10**7), (64, 1000), (4096, 64), (4096, 2048), (4096, 32000), (100000, 8)]


@case("cumsum", SORTED)
def _(device, dtype, *shape):
    return there_and_back(lambda x: x.cumsum(-1), floats(device, dtype, *shape))


@case("cumsum along rows", SORTED)
def _(device, dtype, *shape):
    return there_and_back(lambda x: x.cumsum(0), floats(device, dtype, *shape))


@case("cumsum of integers", SORTED, ("fp32",))
def _(device, dtype, *shape):
    return alone(lambda x: x.cumsum(-1), whole(device, 2, *shape))


@case("cumprod", SORTED[:5], ("fp32",))
def _(device, dtype, *shape):
    return there_and_back(lambda x: x.cumprod(-1), floats(device, dtype, *shape))


@case("sort", SORTED)
def _(device, dtype, *shape):
    return there_and_back(lambda x: x.sort(-1), floats(device, dtype, *shape))


@case("sort of integers", SORTED, ("fp32",))
def _(device, dtype, *shape):
    return alone(lambda x: x.sort(-1), whole(device, 1000, *shape))


@case("argsort, stable", SORTED, ("fp32",))
def _(device, dtype, *shape):
    return alone(lambda x: torch.argsort(x, dim=-1, stable=True), whole(device, 1000, *shape))


@case("topk", [(*shape, k) for shape in SORTED for k in (1, 8, 50) if k < shape[1]])
def _(device, dtype, rows, columns, k):
    return there_and_back(lambda x: x.topk(min(k, columns), -1), floats(device, dtype, rows, columns))


@case("kthvalue, median and quantile", [(name, *shape) for name in ("kthvalue", "median", "quantile") for shape in SORTED[:6]], ("fp32",))
def _(device, dtype, name, rows, columns):
    what = {"kthvalue": lambda x: x.kthvalue(2, -1), "median": lambda x: x.median(-1), "quantile": lambda x: x.quantile(0.5, -1)}[name]
    return alone(what, floats(device, dtype, rows, columns, grad=False))


@case(
    "of integers",
    [(name, n) for name in ("unique", "unique_consecutive", "bincount", "one_hot", "flip", "argmax") for n in (1000, 10**6)],
    ("fp32",),
)
def _(device, dtype, name, count):
    what = {"one_hot": lambda x: F.one_hot(x, 100), "flip": lambda x: x.flip(0)}.get(name, getattr(torch, name, None))
    return alone(what, whole(device, 100, count))


@case("multinomial", [(8, 1000, 10), (64, 32000, 1)], ("fp32",))
def _(device, dtype, rows, columns, count):
    return alone(lambda x: x.multinomial(count), torch.rand(rows, columns, device=device))


@case("repeat_interleave", [(1000, 16), (100000, 64)], ("fp32",))
def _(device, dtype, rows, dim):
    return there_and_back(lambda x: x.repeat_interleave(torch.full((rows,), 2, device=device), 0), floats(device, dtype, rows, dim))


@case(
    "elementwise",
    [(name, 10**6) for name in ("gelu", "silu", "dropout", "softplus", "prelu", "logsigmoid", "glu", "rrelu", "normalize", "cosine")],
)
def _(device, dtype, name, count):
    x = floats(device, dtype, count // 100, 100)
    what = {
        "dropout": lambda x: F.dropout(x, 0.1, training=True),
        "prelu": lambda x: F.prelu(x, torch.ones(1, device=device, dtype=dtype)),
        "rrelu": lambda x: F.rrelu(x, training=True),
        "cosine": lambda x: F.cosine_similarity(x, x + 1),
    }.get(name, getattr(F, name, None))
    return there_and_back(what, x)


@case("prelu with a weight", [(32, c, 28, 28) for c in (1, 64)] + [(4096, 512)])
def _(device, dtype, *shape):
    return there_and_back(F.prelu, floats(device, dtype, *shape), floats(device, dtype, shape[1]))


@case("broadcast", [(rows, columns) for rows, columns in TABLES[::8]])
def _(device, dtype, rows, columns):
    return there_and_back(lambda x, y: x * y, floats(device, dtype, rows, columns), floats(device, dtype, columns))


@case(
    "pooling and resizing",
    [
        (name, n, 64, 56, 56)
        for name in ("max", "average", "adaptive", "adaptive max", "nearest", "bilinear", "bicubic", "pad")
        for n in (1, 32)
    ],
)
def _(device, dtype, name, *shape):
    what = {
        "max": lambda x: F.max_pool2d(x, 3, 2, 1),
        "average": lambda x: F.avg_pool2d(x, 2),
        "adaptive": lambda x: F.adaptive_avg_pool2d(x, 7),
        "adaptive max": lambda x: F.adaptive_max_pool2d(x, 7),
        "nearest": lambda x: F.interpolate(x, scale_factor=2.0),
        "bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        "bicubic": lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"),
        "pad": lambda x: F.pad(x, (1, 1, 1, 1), "reflect"),
    }[name]
    return there_and_back(what, floats(device, dtype, *shape))


@case("grid_sample", [(8, 16, 64, 64)])
def _(device, dtype, *shape):
    return there_and_back(
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        floats(device, dtype, *shape),
        floats(device, dtype, shape[0], *shape[2:], 2),
    )


@case("ctc_loss", [(100, 16, 40, 20), (400, 32, 60, 50)], ("fp32",))
def _(device, dtype, steps, rows, classes, length):
    length = min(length, steps // 2)
    targets = torch.randint(1, classes, (rows, length), device=device)
    sizes = torch.full((rows,), steps, device=device), torch.full((rows,), length, device=device)
    return there_and_back(
        lambda x: F.ctc_loss(x, targets, *sizes),
        F.log_softmax(floats(device, dtype, steps, rows, classes, grad=False), -1).requires_grad_(),
    )


@case(
    "products",
    [
        (name, *sizes)
        for name in ("mm", "bmm", "einsum", "addmm with gelu")
        for sizes in ((512, 512, 512), (4096, 1024, 4096), (33, 65, 127))
    ],
)
def _(device, dtype, name, a, b, c):
    if name == "bmm":
        return there_and_back(torch.bmm, floats(device, dtype, 8, a, b), floats(device, dtype, 8, b, c))
    if name == "einsum":
        return there_and_back(
            lambda x, y: torch.einsum("zab,zcb->zac", x, y), floats(device, dtype, 8, a, b), floats(device, dtype, 8, c, b)
        )
    if name == "mm":
        return there_and_back(torch.mm, floats(device, dtype, a, b), floats(device, dtype, b, c))
    return alone(
        lambda x, y, z: torch._addmm_activation(z, x, y, use_gelu=True),
        floats(device, dtype, a, b),
        floats(device, dtype, b, c),
        floats(device, dtype, c),
    )


ATTENTION = [
    (batch, heads, keys, queries, dim)
    for batch, heads, keys in ((1, 16, 16), (8, 12, 12), (2, 32, 8))
    for queries in (128, 1000, 2048)
    for dim in (32, 64, 80, 128, 256)
]


@case(
    "attention",
    [
        (backend, causal, *sizes)
        for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
        for causal in (False, True)
        for sizes in (ATTENTION if backend != "MATH" else ATTENTION[::6])
    ],
    ("fp32", "bf16"),
)
def _(device, dtype, backend, causal, batch, heads, keys, queries, dim):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if keys != heads and device == "cpu":
        keys = heads
    tensors = [floats(device, dtype, batch, n, queries, dim) for n in (heads, keys, keys)]

    def attend(*tensors):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=keys != heads)

    return there_and_back(attend, *tensors)


@case(
    "attention with a mask",
    [
        (backend, learned, 8, 12, n, 64)
        for backend in ("EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
        for learned in (False, True)
        for n in (128, 1000, 1024)
    ],
    ("fp32", "bf16"),
)
def _(device, dtype, backend, learned, batch, heads, queries, dim):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    tensors = [floats(device, dtype, batch, heads, queries, dim) for _ in range(3)]
    mask = floats(device, dtype, 1, heads, queries, queries, grad=learned)

    def attend(q, k, v, mask):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1)

    return there_and_back(attend, *tensors, mask)


@case(
    "recurrent",
    [
        (kind, layers, twice, *sizes)
        for kind in ("LSTM", "GRU", "RNN")
        for layers, twice in ((1, False), (2, False), (2, True))
        for sizes in ((32, 8, 64, 64), (128, 64, 256, 512), (50, 256, 300, 1024), (20, 16, 128, 100))
    ],
    ("fp32", "bf16", "fp16"),
)
def _(device, dtype, kind, layers, twice, steps, batch, inputs, hidden):
    module = getattr(torch.nn, kind)(inputs, hidden, layers, bidirectional=twice).to(device, dtype)
    weights = list(module.parameters())
    x = floats(device, dtype, steps, batch, inputs)
    return there_and_back(lambda x, *_: module(x), x, *weights)


@case(
    "recurrent, projected, dropped or packed",
    [(how, 40, 32, 128, 256) for how in ("projected", "dropped", "packed", "evaluated")],
    ("fp32", "fp16"),
)
def _(device, dtype, how, steps, batch, inputs, hidden):
    options = {"projected": {"proj_size": max(1, hidden // 4)}, "dropped": {"dropout": 0.2}}.get(how, {})
    module = torch.nn.LSTM(inputs, hidden, 2, **options).to(device, dtype)
    module.train(how != "evaluated")
    x = floats(device, dtype, steps, batch, inputs)
    lengths = torch.arange(1, batch + 1).clamp(max=steps)

    def run(x, *_):
        if how == "packed":
            return module(torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))[0].data
        return module(x)

    if how == "evaluated":
        return alone(run, x)
    return there_and_back(run, x, *module.parameters())


# Optimizers: blocks of the eighth step
def of_parameters(device, dtype, shapes):
    parameters = [torch.nn.Parameter(torch.randn(*shape, device=device, dtype=dtype)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


OPTIMIZERS = {
    name: {}
    for name in ("Adam", "AdamW", "Adagrad", "RMSprop", "Adafactor", "NAdam", "RAdam", "Adadelta", "Adamax", "ASGD", "Rprop", "SGD")
}
OPTIMIZERS |= {
    "SGD momentum": {"momentum": 0.9},
    "SGD Nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam decay": {"weight_decay": 0.1},
    "Adam amsgrad": {"amsgrad": True},
    "AdamW amsgrad": {"amsgrad": True},
    "Adam capturable": {"capturable": True},
    "RMSprop centered": {"centered": True, "momentum": 0.9},
    "Adagrad decay": {"weight_decay": 0.1},
    "Muon": {},
    "NAdam decoupled": {"decoupled_weight_decay": True, "weight_decay": 0.1},
    "RAdam decoupled": {"decoupled_weight_decay": True, "weight_decay": 0.1},
    "Adam maximized": {"maximize": True},
    "Adamax decay": {"weight_decay": 0.1},
    "Adadelta decay": {"weight_decay": 0.1},
}


@case("optimizer", [(name, how) for name in OPTIMIZERS for how in ("default", "foreach", "loop", "fused")], ("fp32", "bf16"))
def _(device, dtype, name, how):
    parameters = of_parameters(device, dtype, MATRICES if name == "Muon" else MATRICES + VECTORS)
    options = {"foreach": {"foreach": True}, "loop": {"foreach": False}, "fused": {"fused": True}}.get(how, {})
    optimizer = getattr(torch.optim, name.partition(" ")[0])(parameters, lr=1e-3, **OPTIMIZERS[name], **options)
    for _ in range(STEPS - 1):
        optimizer.step()
    yield "step", optimizer.step


@case("clip_grad_norm_", [(how,) for how in ("default", "foreach", "loop", "infinite")], ("fp32", "bf16"))
def _(device, dtype, how):
    parameters = of_parameters(device, dtype, MATRICES + VECTORS)
    options = {"foreach": {"foreach": True}, "loop": {"foreach": False}, "infinite": {"norm_type": math.inf}}.get(how, {})
    yield "step", lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0, **options)


@case("clip_grad_value_", [()], ("fp32",))
def _(device, dtype):
    parameters = of_parameters(device, dtype, MATRICES + VECTORS)
    yield "step", lambda: torch.nn.utils.clip_grad_value_(parameters, 1.0)


@case("zero_grad, kept", [()], ("fp32",))
def _(device, dtype):
    optimizer = torch.optim.SGD(of_parameters(device, dtype, MATRICES + VECTORS), lr=1e-3)
    yield "step", lambda: optimizer.zero_grad(set_to_none=False)


@case("GradScaler", [(name,) for name in ("AdamW", "SGD")], ("fp32",))
def _(device, dtype, name):
    parameters = of_parameters(device, dtype, MATRICES + VECTORS)
    optimizer = getattr(torch.optim, name)(parameters, lr=1e-3)
    scaler = torch.amp.GradScaler(device)
    scaler.scale(torch.ones((), device=device))
    yield "unscale", lambda: scaler.unscale_(optimizer)
    yield "step", lambda: scaler.step(optimizer)
    yield "update", scaler.update


def rehearsed(value):
    """A size, small enough for the CPU."""
    if isinstance(value, tuple):
        return tuple(rehearsed(each) for each in value)
    return min(value, REHEARSED) if isinstance(value, int) and not isinstance(value, bool) else value


def row_of(history, of, sizes, dtype, function, device="cuda"):
    torch.manual_seed(SEED)
    row = {"of": of, "sizes": sizes, "dtype": dtype}
    held = []
    try:
        with contextlib.closing(iter(function(device, DTYPES[dtype], *sizes))) as phases:
            for name, phase in phases:
                result, blocks, most, stay = history.of(phase)
                held.append(result)
                row[name] = [most, blocks[:SHOWN], stay[:SHOWN]]
                if len(blocks) > SHOWN:
                    row[name].append(len(blocks))
    except Exception as error:
        if measure_convolutions.fatal(error):
            raise
        row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    if device == "cuda":
        held.clear()
        if torch.cuda.memory_reserved() > measure_convolutions.KEPT_CACHE:
            torch.cuda.empty_cache()
    return row


def row_at(history, at):
    return row_of(history, *CASES[at])


def rehearse():
    """Runs each kind on the CPU, which lacks two kinds of attention; gives the number of kinds of which all fail."""
    found = {}
    for of, sizes, dtype, function in CASES:
        small = rehearsed(sizes)
        key = (of, dtype, small[:1] if small and isinstance(small[0], str) else ())
        if key[-1] and key[-1][0] in NOT_ON_THE_CPU or key in found and found[key] is None:
            continue
        found[key] = row_of(measure_convolutions.NoHistory(), of, small, dtype, function, "cpu").get("error")
    failed = {key: error for key, error in found.items() if error}
    for key, error in failed.items():
        print(*key, error)
    print(f"{len(CASES)} cases of {len(found)} kinds, of which {len(failed)} fail on the CPU")
    return len(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=200, help="no case begins after that; default 200")
    parser.add_argument("--workers", type=int, default=3, help="processes that share the card; default 3")
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
    jobs = [(at,) for at in range(len(CASES))]
    random.Random(SEED).shuffle(jobs)  # what a limit of time cuts off is a sample of all
    measure_convolutions.measure_all(row_at, jobs, options.output, head, options.workers, options.seconds, HISTORY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
