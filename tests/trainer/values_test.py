"""Code that looks at values of tensors without memory: branches, sizes, masks, routing."""

import sys
import unittest
from unittest import mock

from export_test import exporter, torch
from plimsoll import real_run
from torch import nn

BATCH = 8


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        y = self.first(x)
        if y.sum() > -1e9:  # LINE: branch
            return self.second(y)
        return y.exp().exp()


class Number(Branch):
    def forward(self, x):
        y = self.first(x)
        return self.second(y) * y.mean().item()  # LINE: number


class Size(Branch):
    def forward(self, x):
        copies = int(self.first(x).sum().abs().clamp(1, 3).long().item())  # LINE: size
        return self.second(self.first(x)).repeat(copies, 1)


class Listed(Branch):
    def forward(self, x):
        y = self.second(self.first(x))
        return y * sum((y[:, 0] > 0).tolist())  # LINE: listed


class Masked(Branch):
    def forward(self, x):
        y = self.second(self.first(x))
        chosen = y[:, 0] > 0
        kept = y[chosen]  # LINE: masked
        y = y.clone()
        y[~chosen] = 0.0
        return y.sum() + kept.sum() + torch.masked_select(y, y > 0).sum()


class Positions(Branch):
    def forward(self, x):
        y = self.second(self.first(x))
        return y[(y[:, 0] > 0).nonzero()[:, 0]]  # LINE: positions


class Experts(nn.Module):
    """Routing by torch.where, as Mixtral's first implementation has it."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)) for _ in range(4)])

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, choice = torch.where(chosen == number)  # LINE: experts
            result.index_add_(0, token, expert(x[token]) * weights[token, choice, None])
        return result


class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            if torch.isnan(x).any():
                raise ValueError("not finite")
            if x.abs().max() > 1e9:  # LINE: early
                break
        return x


def function(module):
    return lambda batch: (module(), (torch.randn(batch, 16),), lambda output: output.sum())


class KnownLengths(nn.Module):
    """Sizes that follow from inputs alone: known without any guess."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 64)

    def forward(self, x):
        lengths = torch.arange(x.shape[0]) % 3
        rows = x[lengths > 0]
        return self.layer(rows).sum() + self.layer(x)[lengths.nonzero()[:, 0]].sum() + x.split([len(x) - 1, 1])[0].sum()


def line_of(name):
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"# LINE: {name}"))


def exported(module, device="cpu", small=True):
    limit = real_run.MAX_BYTES if small else 0
    with mock.patch.object(real_run, "MAX_BYTES", limit):
        return exporter.export(function(module), BATCH, device)["traces"][0]


class LooksAtValues(unittest.TestCase):
    def test_a_small_model_is_asked_itself(self):
        modules = (Branch, Number, Experts, EarlyExit)
        for module in modules if torch.__version__ < "2" else (*modules, Masked):  # 1.13 fails earlier on masks
            with self.subTest(module.__name__):
                trace = exported(module)
                self.assertEqual(trace["method"], "real")
                self.assertRegex(" ".join(trace["notes"]), r"values_test\.py:\d+ looks at a value that depends on weights")

    def test_a_failure_names_the_line(self):
        class Failing(Branch):
            def forward(self, x):
                return self.second(x)

        with self.assertRaisesRegex(exporter.ExportError, r"values_test\.py:\d+"):
            exported(Failing)


if __name__ == "__main__":
    sys.exit(unittest.main())
