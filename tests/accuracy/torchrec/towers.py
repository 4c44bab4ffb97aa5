"""Models with torchrec's collections, small enough for CPU processes. Each is a function as plimsoll.export takes it."""

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor

META = torch.device("meta")


def features_of(batch_size, lookups):
    """`lookups`: feature -> (rows of its table, lookups of a sample). Every sample has as many, spread evenly over the rows."""
    values = [torch.randperm(batch_size * count) * rows // (batch_size * count) for rows, count in lookups.values()]
    lengths = [torch.full((batch_size,), count) for _, count in lookups.values()]
    return KeyedJaggedTensor(keys=list(lookups), values=torch.cat(values), lengths=torch.cat(lengths))


def bag(name, rows, columns, features=None):
    return EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=columns, feature_names=features or [name])


def perceptron(*widths):
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class TwoTowers(nn.Module):
    """The towers share the table of items."""

    def __init__(self):
        super().__init__()
        self.sparse = EmbeddingBagCollection(device=META, tables=[
            bag("user", 40_000, 64), bag("item", 20_000, 64, ["item", "liked"]), bag("category", 1000, 32)])
        self.user, self.item = perceptron(128, 256, 64), perceptron(96, 256, 64)

    def forward(self, features):
        pooled = self.sparse(features)
        user = torch.cat([pooled["user"], pooled["liked"]], 1)
        item = torch.cat([pooled["item"], pooled["category"]], 1)
        return (self.user(user) * self.item(item)).sum(1)


def two_towers(batch_size):
    features = features_of(batch_size, {"user": (40_000, 1), "item": (20_000, 1), "liked": (20_000, 10), "category": (1000, 2)})
    clicks = torch.rand(batch_size)
    return TwoTowers(), (features,), lambda output: nn.functional.binary_cross_entropy_with_logits(output, clicks)


class Ranking(nn.Module):
    """Dense features beside six tables of several widths, and a deep top."""

    def __init__(self):
        super().__init__()
        self.tables = EmbeddingBagCollection(device=META, tables=[
            bag(f"t{index}", rows, columns) for index, (rows, columns) in enumerate(RANKING)])
        self.bottom = perceptron(13, 128, 64)
        self.top = perceptron(64 + sum(columns for _, columns in RANKING), 512, 256, 1)

    def forward(self, dense, features):
        return self.top(torch.cat([self.bottom(dense), self.tables(features).values()], 1)).squeeze(1)


RANKING = [(30_000, 64), (50_000, 32), (10_000, 128), (5000, 16), (20_000, 64), (100, 32)]


def ranking(batch_size):
    features = features_of(batch_size, {f"t{index}": (rows, 1 + index) for index, (rows, _) in enumerate(RANKING)})
    clicks = torch.rand(batch_size)
    return Ranking(), (torch.randn(batch_size, 13), features), \
        lambda output: nn.functional.binary_cross_entropy_with_logits(output, clicks)


class Sequences(nn.Module):
    """An EmbeddingCollection: rows of sequences, padded and summed."""

    def __init__(self):
        super().__init__()
        self.sparse = EmbeddingCollection(device=META, tables=[
            EmbeddingConfig(name="item", num_embeddings=20_000, embedding_dim=64, feature_names=["item", "liked"]),
            EmbeddingConfig(name="query", num_embeddings=10_000, embedding_dim=64, feature_names=["query"])])
        self.net = perceptron(192, 256, 1)

    def forward(self, features):
        rows = self.sparse(features)
        return self.net(torch.cat([rows[name].to_padded_dense(10).sum(1) for name in ("item", "liked", "query")], 1))


def sequences(batch_size):
    features = features_of(batch_size, {"item": (20_000, 1), "liked": (20_000, 10), "query": (10_000, 4)})
    return Sequences(), (features,), lambda output: output.square().mean()
