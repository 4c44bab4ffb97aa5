"""Embedding tables of torchrec's collections."""

import sys
import unittest

from lookups_test import exporter, lookups_of, torch, trace_of
from plimsoll.trace import evaluate
from torch import nn

try:
    import torchrec
except ImportError:
    print("SKIPPED: this Python has no torchrec")
    sys.exit(77)


class Collections(unittest.TestCase):
    def graph(self, device):
        def model(batch):
            class Model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.bags = torchrec.EmbeddingBagCollection(device=torch.device("meta"), tables=[
                        torchrec.EmbeddingBagConfig(name="shared", embedding_dim=16, num_embeddings=1000, feature_names=["a", "b"]),
                        torchrec.EmbeddingBagConfig(name="item", embedding_dim=32, num_embeddings=100, feature_names=["c"],
                                                    data_type=torchrec.types.DataType.FP16)])
                    self.sequences = torchrec.EmbeddingCollection(device=torch.device("meta"), tables=[
                        torchrec.EmbeddingConfig(name="history", embedding_dim=8, num_embeddings=100, feature_names=["h"])])
                    self.user, self.item = nn.Linear(40, 8), nn.Linear(32, 8)

                def forward(self, features):
                    pooled, rows = self.bags(features), self.sequences(features)["h"]
                    user = torch.cat([pooled["a"], pooled["b"], rows.to_padded_dense(5).sum(1)], 1)
                    return (self.user(user) * self.item(pooled["c"])).sum(1)

            lengths = torch.tensor([2] * batch + [3] * batch + [1] * batch + [4] * batch)
            features = torchrec.KeyedJaggedTensor(keys=["a", "b", "c", "h"], values=torch.randint(0, 100, (batch * 10,)), lengths=lengths)
            return Model(), (features,), lambda output: output.square().mean()

        return exporter.export(model, 8, device=device)

    def test_towers_over_shared_tables(self):
        for device in ("cpu", "cuda"):
            with self.subTest(device=device):
                graph = self.graph(device)
                trace = trace_of(graph, device)
                self.assertEqual((trace["method"], trace["notes"]), ("fake", []))
                self.assertEqual([(t["name"], t["module"], t["dtype"], t["features"], t["poolingFactor"], t.get("sequenceLength"))
                                  for t in graph["embeddings"]],
                                 [("shared", "bags", "FP32", ["a", "b"], 2.5, None), ("item", "bags", "FP16", ["c"], 1, None),
                                  ("history", "sequences", "FP32", ["h"], 4, 4)])
                pooled, rows = lookups_of(trace)
                self.assertEqual((pooled[0]["columns"], pooled[0]["pooled"], evaluate(pooled[1][0][0], 10)), (64, True, 2560))
                self.assertEqual((rows[0]["columns"], rows[0]["pooled"], evaluate(rows[1][0][0], 10)), (8, False, 10 * 4 * 8 * 4))
                self.assertEqual(sorted(p["name"] for p in trace["parameters"]),
                                 ["item.bias", "item.weight", "user.bias", "user.weight"])


if __name__ == "__main__":
    unittest.main()
