"""Two towers over shared embedding tables, as two-towers.yaml trains them. Needs torchrec. Written with

PYTHONPATH=../trainer python3 -m plimsoll.export export_two_towers:two_towers --batch-size 1024 --device cuda -o graph.json.gz

The exporter takes the tables out of the graph, and describes them in the file. `embeddings` is on the meta device, as
DistributedModelParallel wants it: none of its 26 GB is allocated.
"""

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor

# name, rows, columns, and the features that look it up with how many values a sample each
TABLES = [
    ("user", 40_000_000, 128, {"user": 1}),
    ("item", 10_000_000, 128, {"item": 1, "liked": 20}),
    ("category", 10_000, 64, {"category": 2}),
]
USER, ITEM = ["user", "liked"], ["item", "category"]  # the features of each tower
COLUMNS = {feature: columns for _, _, columns, features in TABLES for feature in features}


def tower(features):
    return nn.Sequential(nn.Linear(sum(COLUMNS[name] for name in features), 512), nn.ReLU(), nn.Linear(512, 128))


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = EmbeddingBagCollection(device=torch.device("meta"), tables=[
            EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=columns, feature_names=list(features))
            for name, rows, columns, features in TABLES])
        self.user, self.item = tower(USER), tower(ITEM)

    def forward(self, features):
        pooled = self.embeddings(features)
        user, item = (torch.cat([pooled[name] for name in names], 1) for names in (USER, ITEM))
        return (self.user(user) * self.item(item)).sum(1)


def two_towers(batch_size):
    rows, lookups = {}, {}
    for _, count, _, features in TABLES:
        rows.update(dict.fromkeys(features, count))
        lookups.update(features)
    values = [torch.randint(0, rows[name], (batch_size * lookups[name],)) for name in lookups]
    lengths = [torch.full((batch_size,), lookups[name]) for name in lookups]
    features = KeyedJaggedTensor(keys=list(lookups), values=torch.cat(values), lengths=torch.cat(lengths))
    clicks = torch.rand(batch_size)
    return TwoTowers(), (features,), lambda output: nn.functional.binary_cross_entropy_with_logits(output, clicks)
