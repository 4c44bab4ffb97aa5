#!/usr/bin/env python3
"""Measures what real PyTorch takes, on the CPU, for one steady-state training iteration of DLRM's dense part.

Prints one line a case: the columns of kTruth in tests/estimator/memory_truth_test.cc, which holds the estimator to
them. Debian's python3-torch (1.13) is enough:

    /usr/bin/python3 tests/accuracy/dlrm_truth.py
"""
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


class Sparse(nn.Module):
    """Splits the pooled buffer, projects what a dot interaction needs projected, and puts it together again."""

    def __init__(self, tables, width):
        super().__init__()
        self.tables = tables
        self.trigger = torch.zeros(1, requires_grad=True)
        self.projections = nn.ModuleList(
            [nn.Linear(t, width, bias=False) if width and t != width else nn.Identity() for t in tables])

    def forward(self, batch):
        pooled = Lookup.apply(self.trigger, batch, sum(self.tables))
        return torch.cat([p(t) for p, t in zip(self.projections, pooled.split(self.tables, dim=1))], dim=1)


class Dlrm(nn.Module):
    def __init__(self, name, dense, bottom, tables, interaction, top):
        super().__init__()
        self.interaction, self.features, self.width = interaction, len(tables) + 1, bottom[-1]
        self.bottom = perceptrons(dense, bottom, True)
        self.sparse = Sparse(tables, bottom[-1] if interaction == "Dot" else 0) if tables else None
        width = bottom[-1] + sum(tables)
        if interaction == "Dot":
            width = bottom[-1] + self.features * (self.features - 1) // 2
            self.pairs = torch.triu_indices(self.features, self.features, offset=1)
        if interaction == "DCN":
            self.cross = Cross(width, CROSS_LAYERS, CROSS_RANK[name])
        self.top = perceptrons(width, top, False)

    def interact(self, dense, batch):
        if self.sparse is None:
            return dense
        combined = torch.cat((dense, self.sparse(batch)), dim=1)
        if self.interaction == "Dot":
            matrix = combined.view(-1, self.features, self.width)
            products = torch.bmm(matrix, matrix.transpose(1, 2))
            return torch.cat((dense, products[:, self.pairs[0], self.pairs[1]]), dim=1)
        return self.cross(combined) if self.interaction == "DCN" else combined

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


def measure(name, batch, dense, bottom, tables, interaction, top, optimizer_name):
    """Parameters, optimizer state and the batch, and the highest point of the iteration above them."""
    model = Dlrm(name, dense, bottom, tables, interaction, top)
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
    pairs = size([model.pairs]) if hasattr(model, "pairs") else 0
    return size(model.parameters()) + state + size([x, y]) + pairs + peak


def main():
    torch.set_num_threads(1)
    for case in CASES:
        name, batch, dense, bottom, tables, interaction, top, optimizer = case
        groups = ", ".join("{%d, %d}" % (width, tables.count(width)) for width in sorted(set(tables)))
        braced = lambda widths: "{" + ", ".join(map(str, widths)) + "}"
        print('{"%s", %d, %d, %s, {%s}, Interaction::k%s, %d, %s, Optimizer::k%s, %d},' %
              (name, batch, dense, braced(bottom), groups, interaction, CROSS_RANK.get(name, 0), braced(top), optimizer,
               measure(*case)), flush=True)


if __name__ == "__main__":
    main()
