"""What a recording reports by name, and what it models: torch.compile, hooks, streams, memory of the host."""

import sys
import unittest

from export_test import exporter, torch
from torch import nn
from torch.autograd import graph


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.head = nn.Linear(256, 8)

    def forward(self, x):
        return self.head(self.encoder(x))


def exported(change, device="cpu", batch=64):
    def function(size):
        model = change(Model())
        return model, (torch.randn(size, 64),), lambda output: output.square().mean()

    return exporter.export(function, batch, device)["traces"][0]


class Hooked(Model):
    def __init__(self, hooks):
        super().__init__()
        self.hooks = hooks

    def forward(self, x):
        with self.hooks():
            return super().forward(x)


class Hooks(unittest.TestCase):
    def test_a_derived_trace_names_the_hooks(self):
        class Sparse(Hooked):
            def __init__(self):
                super().__init__(graph.save_on_cpu)
                self.table = nn.Embedding(100, 64, sparse=True)

            def forward(self, x):
                return super().forward(x + self.table(torch.zeros(len(x), dtype=torch.int64, device=x.device)))

        trace = exported(lambda model: Sparse(), "cuda")
        self.assertEqual(trace["method"], "derived")
        self.assertRegex(" ".join(trace["notes"]), r"saved-tensor hooks .*save_on_cpu in the model.* counts as on the card")


if __name__ == "__main__":
    sys.exit(unittest.main())
