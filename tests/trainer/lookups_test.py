"""Embedding tables are taken out of the dense graph, and described."""

import unittest

from needs_torch import torch
from torch import nn

from plimsoll import export as exporter
from plimsoll import lookups
from plimsoll.trace import evaluate


class Towers(nn.Module):
    """Two towers; the third bag shares the weight of the second."""

    def __init__(self):
        super().__init__()
        self.user = nn.EmbeddingBag(1000, 16, mode="sum")
        self.item = nn.EmbeddingBag(500, 16, mode="mean")
        self.author = nn.EmbeddingBag(500, 16, mode="mean")
        self.author.weight = self.item.weight
        self.top = nn.Linear(48, 1)

    def forward(self, users, items, offsets):
        return self.top(torch.cat([self.user(users), self.item(items, offsets), self.author(items, offsets)], 1))


def towers(batch):
    return Towers(), (torch.randint(0, 1000, (batch, 4)), torch.randint(0, 500, (batch * 3,)),
                      torch.arange(0, 3 * batch, 3)), lambda output: output.square().mean()


def trace_of(graph, device="cpu"):
    return next(trace for trace in graph["traces"] if trace["device"] == device)


def lookups_of(trace):
    """(attributes, storages of its results) of each lookup."""
    return [(trace["attributes"][attributes], [trace["storages"][trace["tensors"][t][0]] for t in outputs])
            for name, _, attributes, _, outputs in trace["operators"] if trace["operatorNames"][name] == "plimsoll::lookup"]


def role_of(trace, storage):
    return trace["roles"][storage[1]]


class Bags(unittest.TestCase):
    def test_are_taken_out_of_the_dense_graph(self):
        graph = exporter.export(towers, 8, device="cpu")
        self.assertEqual([(t["name"], t["rows"], t["dim"], t["dtype"], t["pooling"], t["features"], t["poolingFactor"])
                          for t in graph["embeddings"]],
                         [("user", 1000, 16, "FP32", "sum", ["user"], 4),
                          ("item", 500, 16, "FP32", "mean", ["item", "author"], 3)])
        trace = trace_of(graph)
        self.assertEqual([p["name"] for p in trace["parameters"]], ["top.weight", "top.bias"])
        self.assertEqual(trace["notes"], [])

    def test_their_results_live_as_long_as_the_model_keeps_them(self):
        trace = trace_of(exporter.export(towers, 8, device="cpu"))
        lookups = lookups_of(trace)
        self.assertEqual(len(lookups), 3)
        for attributes, (result,) in lookups:
            self.assertEqual((attributes["columns"], attributes["pooled"]), (16, True))
            self.assertEqual([evaluate(result[0], batch) for batch in (8, 100)], [8 * 64, 6400])
            self.assertEqual(role_of(trace, result), "activation")
            self.assertGreater(result[3], result[2])
        backward = [s for s in trace["storages"] if role_of(trace, s) == "backward" and evaluate(s[0], 8) == 8 * 48 * 4]
        self.assertEqual(len(backward), 1, "the gradient of the concatenated results, which their lookups take")

    def test_stay_parameters_on_request(self):
        graph = exporter.export(towers, 8, device="cpu", lookups_of=frozenset())
        self.assertNotIn("embeddings", graph)
        self.assertEqual(len(trace_of(graph)["parameters"]), 4)

    def test_a_weight_that_another_module_uses_stays_a_parameter(self):
        def tied(batch):
            class Model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.words = nn.EmbeddingBag(50, 8)
                    self.out = nn.Linear(8, 50, bias=False)
                    self.out.weight = self.words.weight

                def forward(self, words):
                    return self.out(self.words(words))

            return Model(), (torch.randint(0, 50, (batch, 3)),), lambda output: output.mean()

        graph = exporter.export(tied, 4, device="cpu")
        self.assertNotIn("embeddings", graph)
        self.assertIn("other modules use its weight", " ".join(trace_of(graph)["notes"]))

    def test_a_table_that_nothing_looks_up_is_noted(self):
        def unused(batch):
            model = Towers()
            model.spare = nn.EmbeddingBag(10, 4)
            return (model, *towers(batch)[1:])

        graph = exporter.export(unused, 4, device="cpu")
        self.assertEqual(len(graph["embeddings"]), 2)
        self.assertIn("spare was not looked up", " ".join(trace_of(graph)["notes"]))


class Inputs(unittest.TestCase):
    def test_that_require_a_gradient_are_results_of_lookups_on_request(self):
        def dense(batch):
            class Model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.net = nn.Linear(64, 1)

                def forward(self, features, pooled):
                    return self.net(torch.cat([features, pooled], 1))

            return Model(), (torch.randn(batch, 16), torch.randn(batch, 48, requires_grad=True)), lambda output: output.mean()

        self.assertEqual(lookups_of(trace_of(exporter.export(dense, 8, device="cpu"))), [], "only on request")
        graph = exporter.export(dense, 8, device="cpu", lookups_of=frozenset([lookups.INPUTS]))
        self.assertNotIn("embeddings", graph)
        trace = trace_of(graph)
        [(attributes, (result,))] = lookups_of(trace)
        self.assertEqual((attributes["columns"], attributes["pooled"], evaluate(result[0], 10)), (48, True, 1920))
        inputs = [evaluate(s[0], 10) for s in trace["storages"] if role_of(trace, s) == "input"]
        self.assertEqual([size for size in inputs if size], [640], "the dense features alone")


if __name__ == "__main__":
    unittest.main()
