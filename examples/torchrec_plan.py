"""Makes a torchrec ShardingPlan of what `plimsoll shard -o torchrec` prints.

    plimsoll shard --tables tables.csv --trainers 16 --hbm 80Gi --batch-size 1024 -o torchrec > plan.json

    import torchrec_plan
    model = DistributedModelParallel(model, plan=torchrec_plan.load("plan.json"), sharders=[...])

`--module` must name the embedding collection as `model.named_modules()` does. Needs torchrec.
"""
import json

from torch.distributed._shard.sharding_spec import EnumerableShardingSpec, ShardMetadata
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ParameterSharding, ShardingPlan


def _shard(of):
    return ShardMetadata(
        shard_offsets=of["shard_offsets"], shard_sizes=of["shard_sizes"], placement=of["placement"]
    )


def _table(of):
    spec = of["sharding_spec"]
    return ParameterSharding(
        sharding_type=of["sharding_type"],
        compute_kernel=of["compute_kernel"],
        ranks=of["ranks"],
        sharding_spec=EnumerableShardingSpec([_shard(shard) for shard in spec["shards"]]) if spec else None,
    )


def parse(plan):
    """The plan as an object, of the plan as a dictionary."""
    return ShardingPlan(
        {
            module: EmbeddingModuleShardingPlan({name: _table(table) for name, table in tables.items()})
            for module, tables in plan.items()
        }
    )


def load(path):
    with open(path, encoding="utf-8") as file:
        return parse(json.load(file))
