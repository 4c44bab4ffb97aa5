"""Recommendation models: dense and sparse gradients of the tables, three interactions, two towers."""
import torch
from torch import nn
from torch.nn import functional


def perceptron(widths, last_relu):
    layers = []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layers.append(nn.Linear(inputs, outputs))
        if last_relu or i + 2 < len(widths):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Dlrm(nn.Module):
    """facebookresearch/dlrm's shape: EmbeddingBags with offsets, dot interaction of the lower triangle."""

    def __init__(self, dense, width, rows, sparse, bottom, top):
        super().__init__()
        self.bottom = perceptron([dense] + bottom + [width], last_relu=True)
        self.tables = nn.ModuleList([nn.EmbeddingBag(r, width, mode="sum", sparse=sparse) for r in rows])
        features = len(rows) + 1
        self.register_buffer("pairs", torch.tril_indices(features, features, offset=-1))
        self.top = perceptron([width + features * (features - 1) // 2] + top, last_relu=False)

    def forward(self, dense, indices, offsets):
        x = self.bottom(dense)
        pooled = [table(i, o) for table, i, o in zip(self.tables, indices, offsets)]
        stacked = torch.stack([x] + pooled, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1))


def click(model, batch_size, dense, tables, lookups):
    indices = [torch.zeros(batch_size * lookups, dtype=torch.int64) for _ in range(tables)]
    offsets = [torch.arange(0, batch_size * lookups, lookups) for _ in range(tables)]
    clicks = torch.zeros(batch_size, 1)
    return model, (torch.randn(batch_size, dense), indices, offsets), lambda output: (
        functional.binary_cross_entropy_with_logits(output, clicks))


def dlrm(batch_size):
    return click(Dlrm(13, 32, [5000] * 8, False, [256, 128], [256, 128, 1]), batch_size, 13, 8, 4)


def dlrm_sparse(batch_size):
    return click(Dlrm(13, 32, [20000] * 8, True, [256, 128], [256, 128, 1]), batch_size, 13, 8, 10)


class Dcn(nn.Module):
    """Deep and cross network, version 2, with low-rank crossing; single-valued categories in one stacked table."""

    def __init__(self, dense, fields, rows, width, layers, rank):
        super().__init__()
        self.table = nn.Embedding(fields * rows, width)
        self.register_buffer("begin", torch.arange(fields) * rows)
        total = dense + fields * width
        self.v = nn.ModuleList([nn.Linear(total, rank, bias=False) for _ in range(layers)])
        self.w = nn.ModuleList([nn.Linear(rank, total) for _ in range(layers)])
        self.deep = perceptron([total, 256, 128], last_relu=True)
        self.head = nn.Linear(total + 128, 1)

    def forward(self, dense, categories):
        x0 = torch.cat([dense, self.table(categories + self.begin).flatten(1)], dim=1)
        x = x0
        for v, w in zip(self.v, self.w):
            x = x0 * w(v(x)) + x
        return self.head(torch.cat([x, self.deep(x0)], dim=1))


def dcn(batch_size):
    clicks = torch.zeros(batch_size, 1)
    inputs = (torch.randn(batch_size, 13), torch.zeros(batch_size, 26, dtype=torch.int64))
    return Dcn(13, 26, 500, 16, 3, 64), inputs, lambda output: functional.binary_cross_entropy_with_logits(output, clicks)


class FactorisationMachine(nn.Module):
    """DeepFM: first order, second order by the sum-of-squares identity, and an MLP, all on one set of embeddings."""

    def __init__(self, fields, rows, width):
        super().__init__()
        self.first, self.table = nn.Embedding(fields * rows, 1), nn.Embedding(fields * rows, width)
        self.register_buffer("begin", torch.arange(fields) * rows)
        self.deep = nn.Sequential(
            nn.Linear(fields * width, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 1))

    def forward(self, categories):
        rows = categories + self.begin
        x = self.table(rows)
        second = 0.5 * (x.sum(1).pow(2) - x.pow(2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.first(rows).sum(1) + second + self.deep(x.flatten(1)))


def deepfm(batch_size):
    clicks = torch.zeros(batch_size, 1)
    categories = torch.zeros(batch_size, 20, dtype=torch.int64)
    return FactorisationMachine(20, 1000, 16), (categories,), lambda output: (
        functional.binary_cross_entropy(output, clicks))


class TwoTowers(nn.Module):
    """In-batch softmax between users and items; both towers share the table of words (an embedding used twice)."""

    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(10000, 64, mode="mean")
        self.user, self.item = perceptron([64, 256, 64], False), perceptron([64, 256, 64], False)

    def forward(self, user, item):
        left = functional.normalize(self.user(self.words(user)), dim=1)
        right = functional.normalize(self.item(self.words(item)), dim=1)
        return left @ right.t() / 0.05


def two_towers(batch_size):
    inputs = tuple(torch.zeros(batch_size, 20, dtype=torch.int64) for _ in range(2))
    labels = torch.arange(batch_size)
    return TwoTowers(), inputs, lambda output: functional.cross_entropy(output, labels)


class SequenceInterest(nn.Module):
    """DIN: attention of the candidate over the user's history, with PReLU."""

    def __init__(self, rows, width):
        super().__init__()
        self.items = nn.Embedding(rows, width)
        self.attend = nn.Sequential(nn.Linear(4 * width, 64), nn.PReLU(), nn.Linear(64, 1))
        self.head = nn.Sequential(nn.Linear(2 * width, 128), nn.PReLU(), nn.Linear(128, 1))

    def forward(self, history, candidate):
        seen, wanted = self.items(history), self.items(candidate)
        each = wanted.unsqueeze(1).expand_as(seen)
        weights = self.attend(torch.cat([seen, each, seen - each, seen * each], dim=-1)).softmax(dim=1)
        return self.head(torch.cat([(weights * seen).sum(1), wanted], dim=1))


def interest(batch_size):
    clicks = torch.zeros(batch_size, 1)
    inputs = (torch.zeros(batch_size, 50, dtype=torch.int64), torch.zeros(batch_size, dtype=torch.int64))
    return SequenceInterest(8000, 32), inputs, lambda output: functional.binary_cross_entropy_with_logits(output, clicks)
