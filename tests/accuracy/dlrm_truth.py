#!/usr/bin/env python3
"""Measures what real PyTorch takes, on the CPU, for one steady-state training iteration of DLRM's dense part.

Prints tests/estimator/estimate/dlrm_torch1.yaml, to which the estimator is held; --newer prints dlrm_torch2.yaml
there (DCN-v1, sequences, DHEN). Debian's python3-torch (1.13) is enough, except for DHEN's attention, which needs 2.0 or
later:

    /usr/bin/python3 tests/accuracy/dlrm_truth.py
    python3 tests/accuracy/dlrm_truth.py --newer
"""
import json
import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

# name, batch, dense features, bottom, tables (columns of each), interaction, top, optimizer
CASES = [
    ("mlp", 64, 512, [1024, 256], [], "Cat", [128, 1], "SGD"),
    ("mlp", 4096, 512, [1024, 256], [], "Cat", [128, 1], "SGD"),
    ("mlp", 64, 512, [1024, 256], [], "Cat", [128, 1], "Adam"),
    ("cat", 512, 13, [512, 256, 64], [64] * 26, "Cat", [512, 256, 1], "Adagrad"),
    ("cat", 8192, 13, [512, 256, 64], [32, 64, 128] * 6, "Cat", [512, 256, 1], "SGD"),
    ("dot", 128, 13, [512, 256, 128], [128] * 26, "Dot", [1024, 1024, 512, 256, 1], "SGD"),
    ("dot", 2048, 13, [512, 256, 128], [128] * 26, "Dot", [1024, 1024, 512, 256, 1], "SGD"),
    ("dot", 2048, 13, [512, 256, 128], [128] * 26, "Dot", [1024, 1024, 512, 256, 1], "Momentum"),
    ("dot", 128, 13, [512, 256, 128], [128] * 26, "Dot", [1024, 1024, 512, 256, 1], "Adam"),
    ("dot-mixed", 1024, 13, [512, 64], [16] * 8 + [32] * 4 + [64] * 6, "Dot", [512, 256, 1], "SGD"),
    ("dcn", 256, 13, [512, 256, 128], [128] * 26, "DCN", [1024, 1024, 512, 256, 1], "Adagrad"),
    ("dcn", 1024, 13, [512, 256, 128], [128] * 26, "DCN", [1024, 1024, 512, 256, 1], "Adagrad"),
    ("dcn-full", 1024, 13, [128, 32], [32] * 10, "DCN", [256, 1], "RMSprop"),
]
# name, batch, interaction, widths of pooled tables, of sequences (width, length), module lists of DHEN, optimizer;
# 13 dense features, bottom MLP [256, 64], top MLP [256, 1], layers and features of DHEN below
NEWER = [
    ("dcn-v1", 1024, "DCNv1", [64] * 10, [], [], "SGD"),
    ("dcn-v1", 256, "DCNv1", [32, 64, 64] * 4, [], [], "Adagrad"),
    ("sequences", 512, "Cat", [64] * 6, [(64, 50)] * 3, [], "SGD"),
    ("sequences", 512, "DCN", [64] * 6, [(32, 20)] * 2 + [(64, 100)], [], "SGD"),
    ("sequences", 256, "Dot", [64] * 6, [(64, 50)] * 2, [], "SGD"),
    ("dhen-linear", 512, "DHEN", [64] * 15, [], ["Linear"], "SGD"),
    ("dhen-dot", 512, "DHEN", [64] * 15, [], ["Dot"], "SGD"),
    ("dhen-dcn", 512, "DHEN", [64] * 15, [], ["DCN"], "SGD"),
    ("dhen-attn", 512, "DHEN", [64] * 15, [], ["Attention"], "SGD"),
    ("dhen", 512, "DHEN", [64] * 15, [], ["Dot", "Linear"], "SGD"),
    ("dhen", 2048, "DHEN", [64] * 15, [], ["Dot", "Linear", "DCN"], "SGD"),
    ("dhen", 512, "DHEN", [64] * 31, [(64, 50)], ["Dot", "DCN", "Linear", "Attention"], "Adam"),
    ("dhen", 64, "DHEN", [64] * 31, [], ["Attention", "Linear"], "Adam"),
]
DHEN_LAYERS, DHEN_FEATURES, DHEN_HEADS, DHEN_RANK = 3, 8, 4, 128
CROSS_LAYERS = 3
CROSS_RANK = {"dcn": 512, "dcn-full": 0}


class Lookup(torch.autograd.Function):
    """Pooled embeddings from fused kernels: a new buffer forward, and a backward that leaves no gradient tensor."""

    @staticmethod
    def forward(ctx, trigger, batch, columns):
        return torch.empty(batch, columns)

    @staticmethod
    def backward(ctx, grad):
        return None, None, None


def perceptrons(width, widths, last_relu):
    layers = []
    for i, out in enumerate(widths):
        layers.append(nn.Linear(width, out))
        if last_relu or i + 1 < len(widths):
            layers.append(nn.ReLU())
        width = out
    return nn.Sequential(*layers)


class Cross(nn.Module):
    def __init__(self, width, layers, rank):
        super().__init__()
        self.v = nn.ModuleList([nn.Linear(width, rank, bias=False) for _ in range(layers if rank else 0)])
        self.w = nn.ModuleList([nn.Linear(rank or width, width, bias=False) for _ in range(layers)])
        self.bias = nn.ParameterList([nn.Parameter(torch.zeros(width)) for _ in range(layers)])

    def forward(self, x0):
        x = x0
        for i, w in enumerate(self.w):
            x = x0 * (w(self.v[i](x) if len(self.v) else x) + self.bias[i]) + x
        return x


class CrossByVector(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.w = nn.ModuleList([nn.Linear(width, 1, bias=False) for _ in range(layers)])
        self.bias = nn.ParameterList([nn.Parameter(torch.zeros(width)) for _ in range(layers)])

    def forward(self, x0):
        x = x0
        for w, bias in zip(self.w, self.bias):
            x = x0 * w(x) + bias + x
        return x


class ToPadded(torch.autograd.Function):
    """As fbgemm's jagged_to_padded_dense: a new buffer forward, the values' gradient backward."""

    @staticmethod
    def forward(ctx, values, length):
        ctx.rows, ctx.width = values.shape
        return torch.empty(ctx.rows // length, length, ctx.width)

    @staticmethod
    def backward(ctx, grad):
        return torch.empty(ctx.rows, ctx.width), None


class Combine(nn.Linear):
    """A Linear over the features."""

    def forward(self, x):
        return super().forward(x.transpose(1, 2).contiguous()).transpose(1, 2)


class DhenDot(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.pairs, self.width = torch.triu_indices(features, features, offset=1), width
        out = DHEN_FEATURES * width
        self.mlp = nn.Sequential(nn.Linear(self.pairs.shape[1], out), nn.ReLU(), nn.Linear(out, out))

    def forward(self, x):
        products = torch.bmm(x, x.transpose(1, 2))
        return self.mlp(products[:, self.pairs[0], self.pairs[1]]).view(-1, DHEN_FEATURES, self.width)


class DhenCross(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.width, self.cross = width, Cross(features * width, 1, DHEN_RANK)
        self.out = nn.Linear(features * width, DHEN_FEATURES * width)

    def forward(self, x):
        return self.out(self.cross(x.reshape(x.shape[0], -1))).view(-1, DHEN_FEATURES, self.width)


class DhenAttention(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.combine = Combine(features, DHEN_FEATURES)

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], DHEN_HEADS, -1).transpose(1, 2)

    def forward(self, x):
        found = nn.functional.scaled_dot_product_attention(
            self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x)))
        return self.combine(self.out(found.transpose(1, 2).reshape(x.shape)))


class DhenLayer(nn.Module):
    MODULES = {"Dot": DhenDot, "DCN": DhenCross, "Attention": DhenAttention,
               "Linear": lambda features, width: Combine(features, DHEN_FEATURES)}

    def __init__(self, features, width, modules):
        super().__init__()
        given = DHEN_FEATURES * len(modules)
        self.ensemble = nn.ModuleList([self.MODULES[m](features, width) for m in modules])
        self.shortcut = nn.Identity() if given == features else Combine(features, given)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(torch.cat([m(x) for m in self.ensemble], dim=1) + self.shortcut(x))


class Dhen(nn.Sequential):
    def __init__(self, features, width, modules):
        given = [features] + [DHEN_FEATURES * len(modules)] * DHEN_LAYERS
        super().__init__(*(DhenLayer(f, width, modules) for f in given[:-1]))
        self.features, self.width = features, width

    def forward(self, x):
        return super().forward(x.view(-1, self.features, self.width)).reshape(x.shape[0], -1)


class Sparse(nn.Module):
    """Splits the pooled buffer, projects what a dot interaction needs projected, and puts it together again."""

    def __init__(self, tables, width, sequences=()):
        super().__init__()
        self.tables, self.sequences = tables, sorted(sequences)
        self.trigger = torch.zeros(1, requires_grad=True)
        widths = tables + [w for w, _ in self.sequences]
        self.projections = nn.ModuleList(
            [nn.Linear(t, width, bias=False) if width and t != width else nn.Identity() for t in widths])

    def sequence(self, batch):
        """Rows of all sequences of a kind in one buffer; each padded to its length, and summed."""
        for width, length in sorted(set(self.sequences)):
            rows = [batch * length] * self.sequences.count((width, length))
            values = Lookup.apply(self.trigger, sum(rows), width).split(rows)
            padded = [ToPadded.apply(v, length) for v in values]
            yield from [p.sum(dim=1) for p in padded]

    def forward(self, batch):
        pooled = Lookup.apply(self.trigger, batch, sum(self.tables)).split(self.tables, dim=1)
        parts = list(pooled) + list(self.sequence(batch))
        return torch.cat([p(t) for p, t in zip(self.projections, parts)], dim=1)


class Dlrm(nn.Module):
    def __init__(self, name, dense, bottom, tables, interaction, top, sequences=(), modules=()):
        super().__init__()
        self.interaction, self.features, self.width = interaction, len(tables) + len(sequences) + 1, bottom[-1]
        self.bottom = perceptrons(dense, bottom, True)
        projected = bottom[-1] if interaction in ("Dot", "DHEN") else 0
        self.sparse = Sparse(tables, projected, sequences) if tables else None
        width = bottom[-1] + sum(tables) + sum(w for w, _ in sequences)
        if interaction == "Dot":
            width = bottom[-1] + self.features * (self.features - 1) // 2
            self.pairs = torch.triu_indices(self.features, self.features, offset=1)
        if interaction == "DCN":
            self.cross = Cross(width, CROSS_LAYERS, CROSS_RANK.get(name, 0))
        if interaction == "DCNv1":
            self.cross = CrossByVector(width, CROSS_LAYERS)
        if interaction == "DHEN":
            self.cross = Dhen(self.features, bottom[-1], modules)
            width = DHEN_FEATURES * len(modules) * bottom[-1]
        self.top = perceptrons(width, top, False)

    def interact(self, dense, batch):
        if self.sparse is None:
            return dense
        combined = torch.cat((dense, self.sparse(batch)), dim=1)
        if self.interaction == "Dot":
            matrix = combined.view(-1, self.features, self.width)
            products = torch.bmm(matrix, matrix.transpose(1, 2))
            return torch.cat((dense, products[:, self.pairs[0], self.pairs[1]]), dim=1)
        return combined if self.interaction == "Cat" else self.cross(combined)

    def forward(self, dense):
        return self.top(self.interact(self.bottom(dense), dense.shape[0]))


def make_optimizer(name, parameters):
    return {
        "SGD": lambda: torch.optim.SGD(parameters, lr=1e-9),
        "Momentum": lambda: torch.optim.SGD(parameters, lr=1e-9, momentum=0.9),
        "Adam": lambda: torch.optim.Adam(parameters, lr=1e-9),
        "Adagrad": lambda: torch.optim.Adagrad(parameters, lr=1e-9),
        "RMSprop": lambda: torch.optim.RMSprop(parameters, lr=1e-9),
    }[name]()


def size(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def measure(name, batch, dense, bottom, tables, interaction, top, optimizer_name, *more):
    """Parameters, optimizer state and the batch, and the highest point of the iteration above them."""
    model = Dlrm(name, dense, bottom, tables, interaction, top, *more)
    optimizer = make_optimizer(optimizer_name, list(model.parameters()))
    x, y, loss_of = torch.zeros(batch, dense), torch.zeros(batch, top[-1]), nn.BCEWithLogitsLoss()

    def iterate():
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(2):
        iterate()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        iterate()
    live = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    state = size(t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t) and t.dim() > 0)
    pairs = size(m.pairs for m in model.modules() if hasattr(m, "pairs"))
    return size(model.parameters()) + state + size([x, y]) + pairs + peak


def pooled(widths):
    return [{"name": f"t{width}", "count": widths.count(width), "rows": 1000, "dim": width}
            for width in sorted(set(widths))]


def ragged(kinds):
    return [{"name": f"s{width}x{length}", "count": kinds.count((width, length)), "rows": 1000, "dim": width,
             "poolingFactor": str(length), "sequenceLength": length} for width, length in sorted(set(kinds))]


def show(name, dlrm, batch, optimizer, measured):
    print("- " + json.dumps({"case": name, "model": {"dlrm": dlrm},
                             "training": {"batchSizePerTrainer": batch, "optimizer": optimizer}, "bytes": measured}),
          flush=True)


def newer():
    print("# As dlrm_torch1.yaml, for DCN-v1, sequences of embeddings and DHEN: PyPI's torch", torch.__version__ + ".")
    print("# Printed by tests/accuracy/dlrm_truth.py --newer.")
    for name, batch, interaction, tables, sequences, modules, optimizer in NEWER:
        dlrm = {"denseFeatures": 13, "bottomMLP": [256, 64], "topMLP": [256, 1], "interaction": interaction,
                "crossLayers": CROSS_LAYERS}
        if interaction == "DHEN":
            dlrm["crossRank"] = DHEN_RANK
            dlrm["dhen"] = {"layers": DHEN_LAYERS, "features": DHEN_FEATURES, "modules": modules, "heads": DHEN_HEADS}
        dlrm["tables"] = pooled(tables) + ragged(sequences)
        show(name, dlrm, batch, optimizer,
             measure(name, batch, 13, [256, 64], tables, interaction, [256, 1], optimizer, sequences, modules))


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--newer"]:
        newer()
        return
    print("# Bytes at the highest point of one steady-state iteration of DLRM's dense part on the CPU, one thread, Debian's")
    print("# python3-torch", torch.__version__ + ". Printed by tests/accuracy/dlrm_truth.py. `model` and `training` are",
          "those of a TrainingJob.")
    for case in CASES:
        name, batch, dense, bottom, tables, interaction, top, optimizer = case
        dlrm = {"denseFeatures": dense, "bottomMLP": bottom, "topMLP": top, "interaction": interaction,
                "crossLayers": CROSS_LAYERS, "crossRank": CROSS_RANK.get(name, 0), "tables": pooled(tables)}
        show(name, dlrm, batch, optimizer, measure(*case))


if __name__ == "__main__":
    main()
