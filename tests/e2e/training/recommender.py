"""A small recommender with real embedding tables, spread over the trainers as /etc/plimsoll/plan.json says.

    python3 -m plimsoll.signposts recommender.py PLAN [--iterations 8] [--batch-size 256] [--optimizer SGD|Adagrad]

Dense layers are data parallel (DDP, gloo). Each trainer holds its shards of the tables: it looks up the whole batch in them,
the parts are summed over all trainers, and each goes on with its own samples; backward, gradients go the same way back.
The loss must fall, or it exits with 1.
"""

import argparse
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from plimsoll import signposts

DENSE_FEATURES = 13


class Exchange(torch.autograd.Function):
    """[world, batch, dim] of parts -> this trainer's [batch, dim] of sums; gradients the other way."""

    @staticmethod
    def forward(context, parts):
        parts = parts.clone()
        dist.all_reduce(parts)
        return parts[dist.get_rank()].clone()

    @staticmethod
    def backward(context, gradient):
        gathered = [torch.empty_like(gradient) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, gradient.contiguous())
        return torch.stack(gathered)


class ShardedTable(nn.Module):
    """A table's shards on this trainer; none of them may be here."""

    def __init__(self, table, dim, rank):
        super().__init__()
        self.dim = dim
        self.data_parallel = table["shardingType"] == "data_parallel"
        self.here = [shard for shard in table["shards"] if shard["rank"] == rank]
        self.weights = nn.ParameterList(
            nn.Parameter(0.01 * torch.randn(shard["rowEnd"] - shard["rowBegin"], shard["columnEnd"] - shard["columnBegin"]))
            for shard in self.here)

    def forward(self, indices):
        """[world, batch] -> [world, batch, dim], zero where others hold the rows or columns."""
        # It requires a gradient also where no shard is: all trainers must take part in the way back.
        pooled = torch.zeros(*indices.shape, self.dim, requires_grad=True)
        for shard, weight in zip(self.here, self.weights):
            found = (indices >= shard["rowBegin"]) & (indices < shard["rowEnd"])
            rows = nn.functional.embedding((indices - shard["rowBegin"]).clamp(0, weight.shape[0] - 1), weight)
            columns = rows * found.unsqueeze(-1)
            pooled = pooled + nn.functional.pad(columns, (shard["columnBegin"], self.dim - shard["columnEnd"]))
        return pooled


class Dense(nn.Module):
    def __init__(self, tables, dim):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(DENSE_FEATURES, 64), nn.ReLU(), nn.Linear(64, dim), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(dim * (tables + 1), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, features, embedded):
        return self.top(torch.cat([self.bottom(features), *embedded], dim=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plan")
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--optimizer", default="SGD", choices=("SGD", "Adagrad"))
    options = parser.parse_args()
    with open(options.plan, encoding="utf-8") as file:
        tables = json.load(file)["sharding"]["plan"]

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with signposts.report() as report:
        report.stage("broadcast")
        dim = max(shard["columnEnd"] for table in tables for shard in table["shards"])
        sharded = [ShardedTable(table, dim, rank) for table in tables]
        report.stage("sharding")
        dense = DistributedDataParallel(Dense(len(tables), dim))
        parameters = [parameter for table in sharded for parameter in table.parameters()]
        optimizers = [torch.optim.SGD(dense.parameters(), lr=0.1)]
        if parameters:
            optimizers.append(getattr(torch.optim, options.optimizer)(parameters, lr=0.1))

        batch = options.batch_size
        features = torch.randn(batch, DENSE_FEATURES, generator=torch.Generator().manual_seed(rank))
        target = (features.sum(1, keepdim=True) > 0).float()
        rows = [max(shard["rowEnd"] for shard in table["shards"]) for table in tables]
        # All trainers draw the same indices for all, which spares exchanging them.
        draw = torch.Generator().manual_seed(1)
        indices = [torch.randint(0, count, (world, batch), generator=draw) for count in rows]
        losses = []
        for _ in range(options.iterations):
            for optimizer in optimizers:
                optimizer.zero_grad()
            embedded = [table(index)[rank] if table.data_parallel else Exchange.apply(table(index))
                        for table, index in zip(sharded, indices)]
            loss = nn.functional.binary_cross_entropy_with_logits(dense(features, embedded), target)
            loss.backward()
            for table in sharded:
                if table.data_parallel:
                    for weight in table.weights:
                        dist.all_reduce(weight.grad)
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
    print("attempt %s, rank %d of %d: loss %.4f -> %.4f" % (
        os.environ.get("PLIMSOLL_ATTEMPT", "?"), rank, world, losses[0], losses[-1]))
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
