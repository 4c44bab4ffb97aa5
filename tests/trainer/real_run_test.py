"""Models that do other things without memory than for real, on purpose: each difference is noted with its place."""

import sys
import unittest

from export_test import exporter, torch
from torch import nn


def is_fake(tensor):
    return type(tensor) not in (torch.Tensor, nn.Parameter)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)


class MoreOperators(Base):
    def forward(self, x):
        y = self.first(x)
        if is_fake(y):
            y = y.sin().cos()  # LINE
        return self.second(y)


class FewerOperators(Base):
    def forward(self, x):
        y = self.first(x)
        if not is_fake(y):
            y = y.exp().relu()  # LINE
        return self.second(y)


class OtherShapes(Base):
    def forward(self, x):
        y = self.first(x)
        wide = torch.ones(3 if is_fake(y) else 5)  # LINE
        return self.second(y) + wide.sum()


class InAModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Base(), MoreOperators(), Base()])
        for block in (self.blocks[0], self.blocks[2]):
            block.forward = block.first.forward

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Swallows(Base):
    """Asks for what only a real tensor can give, and goes on without it."""

    def forward(self, x):
        y = self.first(x)
        try:
            y.detach().numpy()
            y = y.tanh()  # LINE
        except (RuntimeError, TypeError):
            pass
        return self.second(y)


class RealRun(unittest.TestCase):
    def notes(self, module):
        def function(batch):
            return module(), (torch.randn(batch, 16),), lambda output: output.square().mean()

        trace = exporter.export(function, 4, "cpu")["traces"][0]
        self.assertEqual(trace["method"], "fake")
        return trace["notes"]

    def line(self, module):
        with open(__file__) as file:
            lines = list(file)
        begin = next(i for i, text in enumerate(lines) if text.startswith(f"class {module.__name__}("))
        return next(i for i in range(begin, len(lines)) if lines[i].rstrip().endswith("# LINE")) + 1

    def test_each_difference_has_its_place(self):
        expected = ((MoreOperators, "aten::sin"), (FewerOperators, "aten::exp"), (OtherShapes, "aten::ones"))
        if torch.__version__ >= "2":  # PyTorch 1.13 gives a tensor without memory an array
            expected += ((Swallows, "aten::tanh"),)
        for module, operator in expected:
            with self.subTest(module.__name__):
                notes = " ".join(self.notes(module))
                self.assertIn(operator, notes)
                self.assertIn(f"real_run_test.py:{self.line(module)})", notes)

    def test_the_module_is_named(self):
        self.assertRegex(" ".join(self.notes(InAModule)), "in blocks.1 a real run executes")

    def test_numbers_that_autograd_wraps_are_observed(self):  # they ended the real run of torch 1.13, which then ran again
        class Scaled(Base):
            def forward(self, x):
                return self.second(self.first(x) / 8**0.5)

        lines = []
        exporter.export(lambda batch: (Scaled(), (torch.randn(batch, 16),), lambda output: output.square().mean()), 4, "cpu",
                        progress=lines.append)
        self.assertIn("a real run at batch 2 executes the same operators", lines)
        self.assertEqual([line for line in lines if "fails" in line or "batch 12" in line], [])

    def test_no_difference_no_note(self):
        class Honest(Base):
            def forward(self, x):
                return self.second(self.first(x))

        self.assertEqual(self.notes(Honest), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
