"""plimsoll.export: traces against the profiler's memory events of real runs, and its errors."""

import gc
import gzip
import json
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

from needs_torch import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from plimsoll import ExportError
from plimsoll import export as exporter
from plimsoll.trace import evaluate


def mlp(batch):
    target = torch.randint(0, 10, (batch,))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(128, 10))
    return model, (torch.randn(batch, 64),), lambda output: F.cross_entropy(output, target)


def cnn(batch):
    target = torch.randint(0, 4, (batch,))
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(16 * 64, 4))
    return model, (torch.randn(batch, 3, 16, 16),), lambda output: F.cross_entropy(output, target)


def lstm(batch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 32)
            self.lstm = nn.LSTM(32, 48, batch_first=True)
            self.head = nn.Linear(48, 50)
            self.head.bias.requires_grad_(False)

        def forward(self, tokens):
            return {"logits": self.head(self.lstm(self.embedding(tokens))[0])}

    target = torch.randint(0, 50, (batch * 12,))
    return Model(), (torch.randint(0, 50, (batch, 12)),), lambda output: F.cross_entropy(output["logits"].flatten(0, 1), target)


def sparse(batch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(1000, 32, sparse=True)
            self.head = nn.Linear(32, 5)

        def forward(self, tokens):
            return self.head(self.embedding(tokens).mean(1))

    return Model(), (torch.randint(0, 1000, (batch, 7)),), lambda output: output.square().mean()


def transformer(batch):
    return nn.Transformer(32, 4, 1, 1, 64, batch_first=True), (torch.randn(batch, 10, 32), torch.randn(batch, 12, 32)), \
        lambda output: output.pow(2).mean()


def residual(batch):
    """Gradients meet at each sum, where the engine of torch 2 adds in place."""
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)
            nn.init.trunc_normal_(self.up.weight, std=0.02)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))

    return nn.Sequential(nn.Linear(64, 64), Block(), Block(), Block()), (torch.randn(batch, 32, 64),), \
        lambda output: output.square().mean()


def shared_gradient(batch):
    """The gradient of the outer sum goes to three branches, which end at different times."""
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.pointwise, self.depthwise = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
            self.inner, self.outer = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

        def forward(self, x):
            return self.outer((self.inner(self.pointwise(x)) + self.depthwise(x)) + x)

    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Block(), Block()), (torch.randn(batch, 3, 16, 16),), \
        lambda output: output.square().mean()


def needs_values(batch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(128, 128)

        def forward(self, x):
            y = self.layer(x)
            return y if y.sum().item() < 1e9 else x

    return Model(), (torch.randn(batch, 128),), lambda output: output.sum()


def looks_at_masks(batch):
    """Branches on lengths, masks and a random number, as Hugging Face's models have them."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.layer = nn.Embedding(50, 128), nn.Linear(128, 128)

        def forward(self, tokens):
            x = self.embedding(tokens)
            mask = (torch.arange(12) < 7).expand(tokens.shape).clone()
            if torch.rand([]) < 0.0 or mask.all() or (tokens < 0).any():
                return x
            x = x[:, :int(mask.sum(1).max())]
            mask.logical_or_(torch.ones_like(mask))
            return self.layer(x) if mask.all() else x

    return Model(), (torch.randint(0, 50, (batch, 12)),), lambda output: output.square().mean()


def overwrites_values(batch):
    """What is written from a tensor without values has none, in all views of it."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(128, 128)

        def forward(self, x):
            y = self.layer(x)
            ends = torch.zeros(4)
            view = ends[1:]
            ends[2] = y.detach().sum()
            return y if view.sum().item() != 0 else x

    return Model(), (torch.randn(batch, 128),), lambda output: output.sum()


def replayed_peak(trace, batch):
    end = len(trace["operators"]) + 1
    until = [end if row[3] < 0 else row[3] for row in trace["storages"]]
    for tensor, _, _, released in trace["saved"]:
        storage = trace["tensors"][tensor][0]
        until[storage] = max(until[storage], end if released < 0 else released)
    change = [0] * (end + 1)
    for row, last in zip(trace["storages"], until):
        if row[2] >= 0:
            change[row[2]] += evaluate(row[0], batch)
            change[max(last, row[2] + 1)] -= evaluate(row[0], batch)
    inside = {operator: evaluate(count, batch) for operator, count in trace.get("temporaries", [])}
    live, peak = 0, 0
    for index in range(end - 1):
        live += change[index]
        peak = max(peak, live + inside.get(index, 0))
    return peak


def real_peak(function, batch):
    model, inputs, loss = function(batch)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = None
        gc.collect()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            loss(model(*inputs)).backward()
    live, peak = 0, 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


class Export(unittest.TestCase):
    def check(self, function, batches=(4, 8), tolerance=0.005):
        graph = exporter.export(function, 4, "cpu")
        for batch in batches:
            real = real_peak(function, batch)
            self.assertLessEqual(abs(replayed_peak(graph["traces"][0], batch) - real), tolerance * real, f"batch {batch}")
        return graph["traces"][0]

    def test_mlp(self):
        trace = self.check(mlp, (4, 8, 33))
        self.assertEqual(trace["batchSizes"], [4, 8, 2], "the real run at batch 2 is the third")
        self.assertEqual(trace["method"], "fake")

    def test_where_no_real_run_is_small_a_third_recording_checks_the_sizes(self):
        with mock.patch.object(exporter.real_run, "MAX_BYTES", 0):
            self.assertEqual(self.check(mlp)["batchSizes"], [4, 8, 12])

    def test_a_real_run_with_other_sizes_does_not_replace_the_third_recording(self):
        class Padded(nn.Linear):
            def forward(self, x):
                return super().forward(x.new_zeros((len(x) + 3) // 4 * 4, 8).index_add(0, torch.arange(len(x)), x))

        def function(batch):
            return Padded(8, 8), (torch.randn(batch, 8),), lambda output: output.square().mean()

        trace = exporter.export(function, 4, "cpu")["traces"][0]
        self.assertEqual(trace["batchSizes"], [4, 8, 12])

    def test_tensors_that_change_their_shape_or_storage(self):
        class Changes(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

            def forward(self, x):
                wide = self.first(x)
                held = wide.detach().clone()
                held.transpose_(0, 1)
                turned = held * 2
                held.data = held.data[:4].clone()
                again = held + 1
                held.resize_(32, 128)
                return self.second(wide) + again.sum() + turned.sum() + held.sum() * 0

        self.check(lambda batch: (Changes(), (torch.randn(batch, 64),), lambda output: output.square().mean()))

    def test_cnn(self):
        self.check(cnn)

    def test_lstm_and_frozen_parameters(self):
        trace = self.check(lstm)
        frozen = [p for p in trace["parameters"] if not p["trainable"]]
        self.assertEqual([(p["name"], p["gradient"]) for p in frozen], [("head.bias", [])])

    def test_sparse_gradients(self):
        trace = self.check(sparse)
        self.assertTrue(trace["parameters"][0]["sparseGradient"])

    def test_transformer(self):
        self.check(transformer)

    def test_gradients_summed_in_place_are_no_inputs(self):
        for function in (residual, shared_gradient):
            with self.subTest(function.__name__):
                trace = self.check(function)
                used = {tensor for operator in trace["operators"] for tensor in operator[3] + operator[4]}
                inputs = [i for i, row in enumerate(trace["storages"]) if trace["roles"][row[1]] == "input"]
                self.assertEqual(len(inputs), 1)
                self.assertIn(inputs[0], {trace["tensors"][t][0] for t in used})

    def test_a_tensor_that_backward_alone_reads_has_no_producer(self):
        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                return gradient * hidden

        hidden = torch.ones(16)

        def function(batch):
            model = nn.Linear(16, 16)
            return model, (torch.randn(batch, 16),), lambda output: Scaled.apply(output).sum()

        with self.assertRaisesRegex(ExportError, "backward reads 64 bytes \\(aten::mul\\) that no recorded operator made"):
            exporter.export(function, 4, "cpu")

    def test_a_path_that_only_a_recording_takes_is_noted_with_its_place(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

            def forward(self, x):
                x = self.first(x)
                return self.second(x * torch.ones(16) if type(x) is not torch.Tensor else x)

        def function(batch):
            return Model(), (torch.randn(batch, 16),), lambda output: output.square().mean()

        trace = exporter.export(function, 4, "cpu")["traces"][0]
        self.assertEqual(trace["method"], "fake")
        self.assertRegex(trace["notes"][0], "in the model a real run executes nothing where the recording has aten::ones, aten::mul")

    def test_transformers_builds_no_mask_for_a_recording_that_a_real_run_would_not_have(self):
        # As masking_utils.find_packed_sequence_indices: a Llama of 512 tokens was 16 % too high.
        module = types.ModuleType("transformers.utils.import_utils")
        module.is_fake_tensor = lambda tensor: type(tensor) is not torch.Tensor

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(16, 16)

            def forward(self, x):
                same = torch.arange(16).diff() == 1
                if not module.is_fake_tensor(same) and same.all():
                    return self.layer(x)
                return self.layer(x) * torch.ones(16, 16).tril().sum(0)

        def function(batch):
            return Model(), (torch.randn(batch, 16),), lambda output: output.square().mean()

        with mock.patch.dict(sys.modules, {module.__name__: module}):
            trace = self.check(function)
        self.assertEqual((trace["method"], trace["notes"]), ("fake", []))
        self.assertNotIn("aten::tril", trace["operatorNames"])

    def test_saved_parts_of_one_storage_keep_their_places(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(4, 2))

            def forward(self, x):
                row, column = torch.tensor([[3, 1], [2, 0], [0, 1]]).unbind(1)
                scale = x.sum().item()  # asked for, so that the run is a real one: column as row would be out of bounds
                return self.weight[row, column] * scale

        trace = exporter.export(lambda batch: (Model(), (torch.randn(batch, 2),), lambda output: output.sum()), 4, "cpu")["traces"][0]
        self.assertIn("aten::index", trace["operatorNames"])

    def test_constants_of_the_code_are_made_by_it(self):
        def function(batch):
            return nn.Linear(16, 16), (torch.randn(batch, 16),), lambda output: (output * torch.tensor([2.0] * 16)).sum()

        trace = self.check(function)
        roles = [trace["roles"][row[1]] for row in trace["storages"]]
        self.assertEqual(roles.count("input"), 1)

    def test_initializers_that_look_at_values_need_no_memory(self):
        self.assertEqual(exporter.export(residual, 4, "cpu")["traces"][0]["method"], "fake")

    def test_a_model_that_looks_at_values_is_run_for_real(self):
        for function in (needs_values, overwrites_values):
            with self.subTest(function.__name__):
                trace = exporter.export(function, 4, "cpu")["traces"][0]
                self.assertEqual(trace["method"], "real")
                self.assertTrue(trace["notes"])

    def test_values_that_hold_no_parameter_are_known_without_a_real_run(self):
        trace = self.check(looks_at_masks)
        self.assertEqual((trace["method"], trace["notes"]), ("fake", []))

    def test_shared_parameters_are_named_once(self):
        def tied(batch):
            model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
            model[1].weight = model[0].weight
            return model, (torch.randn(batch, 8),), lambda output: output.sum()

        names = {p["name"]: p.get("aliases", []) for p in exporter.export(tied, 2, "cpu")["traces"][0]["parameters"]}
        self.assertEqual(names["0.weight"], ["1.weight"])
        self.assertNotIn("1.weight", names)


def checkpointed(batch):
    """Both kinds of checkpointing, one of which runs backward inside backward."""
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3)])

        def forward(self, x):
            for index, block in enumerate(self.blocks):
                x = x + checkpoint(block, x, use_reentrant=index == 1)
            return x

    return Model(), (torch.randn(batch, 32, requires_grad=True),), lambda output: output.square().sum()


def user_function(batch):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, weight):
            ctx.save_for_backward(x, weight)
            ctx.factor = factor
            return x * weight * factor

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            return gradient * weight * ctx.factor, None, (gradient * x).sum(0) * ctx.factor

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.weight = nn.Linear(16, 32), nn.Parameter(torch.ones(32))

        def forward(self, x):
            return Scaled.apply(self.first(x), 3.0, self.weight) + self.weight

    return Model(), (torch.randn(batch, 16),), lambda output: output.square().mean()


class Errors(unittest.TestCase):
    def refused(self, function, text, **options):
        with self.assertRaises(ExportError) as raised:
            exporter.export(function, options.pop("batch", 4), "cpu", **options)
        self.assertIn(text, str(raised.exception))

    def test_what_function_returns(self):
        self.refused(lambda b: nn.Linear(2, 2), "must return (nn.Module")
        self.refused(lambda b: (1, (), len), "must be an nn.Module")
        self.refused(lambda b: (nn.Linear(2, 2), torch.ones(2), len), "tuple of example inputs")
        self.refused(lambda b: (nn.Linear(2, 2), (torch.ones(b, 2),), None), "the loss")

    def test_losses(self):
        self.refused(lambda b: (nn.Linear(2, 2), (torch.ones(b, 2),), lambda o: o), "scalar")
        self.refused(lambda b: (nn.Linear(2, 2), (torch.ones(b, 2),), lambda o: o.sum().detach()), "no gradient")

    def test_options(self):
        self.refused(mlp, "batch size", batch=0)
        self.refused(mlp, "precision", precision="FP7")

    def test_batch_of_one_with_batch_norm(self):
        model = lambda b: (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), (torch.ones(b, 4),), lambda o: o.sum())  # noqa: E731
        self.refused(model, "more than 1 value per channel", batch=1)

    def test_command_line(self):
        self.assertEqual(exporter.main(["nowhere_at_all:f", "--batch-size", "2", "-o", "unused"]), 1)
        self.assertEqual(exporter.main(["json:no_such", "--batch-size", "2", "-o", "unused"]), 1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.json.gz")
            exporter.write(exporter.export(mlp, 2, "cpu"), path)
            with gzip.open(path) as file:
                self.assertEqual(json.load(file)["format"], "plimsoll-graph/1")


if __name__ == "__main__":
    unittest.main()
