#!/usr/bin/env python3
"""What torchrec's planner says of one table in every sharding type, kernel, optimizer, data type and pipeline.

Prints tests/estimator/sharder/torchrec_kernels.csv. Needs torchrec (scripts/lib/torchrec.sh installs
it); run it again when torchrec's cost model changes:

    python golden_options.py > ../../estimator/sharder/torchrec_kernels.csv
"""
import contextlib
import sys

import torch
import torchrec
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator
from torchrec.distributed.types import CacheParams, PipelineType

KERNELS = [["dense"], ["fused", "fused_uvm", "fused_uvm_caching"]]  # it drops dense where fused may be had
OPTIMIZERS = {
    "kSGD": torch.optim.SGD,
    "kRowWiseAdagrad": torchrec.optim.RowWiseAdagrad,
    "kAdagrad": torch.optim.Adagrad,
    "kAdam": torch.optim.Adam,
    "kLAMB": torchrec.optim.LAMB,
}
DTYPES = {"kFP32": torch.float32, "kFP16": torch.float16, "kInt8": torch.int8}
PIPELINES = {
    "kNone": PipelineType.NONE,
    "kSparseDist": PipelineType.TRAIN_SPARSE_DIST,
    "kPrefetchSparseDist": PipelineType.TRAIN_PREFETCH_SPARSE_DIST,
}

# rows, columns, lookups a sample; trainers, trainers a node, samples a trainer
TABLES = [(100_003, 256, 5.424), (1_000_000, 64, 0.4), (37, 384, 12.5)]
TOPOLOGIES = [(64, 8, 1024), (16, 8, 512), (8, 8, 2048)]
COLUMNS = 64  # of a block, where columns are cut


SHARDING_TYPES = [
    "data_parallel", "table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise", "grid_shard"
]
ELEMENT_BYTES = {"kFP32": 4, "kFP16": 2, "kInt8": 1}
PIPELINE_NAMES = {"kNone": "none", "kSparseDist": "sparse-dist", "kPrefetchSparseDist": "prefetch"}


class Sharder(EmbeddingBagCollectionSharder):
    """One that lets the planner choose any of the kernels."""

    def __init__(self, kernels):
        super().__init__()
        self.kernels = kernels

    def compute_kernels(self, sharding_type, compute_device_type):
        return self.kernels


def options(case, kernels):
    rows, columns, lookups = TABLES[case["table"]]
    world, local, batch = TOPOLOGIES[case["topology"]]
    weighted = case["weighted"]
    config = torchrec.EmbeddingBagConfig(
        name="t", embedding_dim=columns, num_embeddings=rows, feature_names=["f"]
    )
    collection = torchrec.EmbeddingBagCollection(tables=[config], device=torch.device("meta"), is_weighted=weighted)
    weight = torch.nn.Parameter(
        torch.empty(rows, columns, dtype=DTYPES[case["dtype"]], device="meta"), requires_grad=False
    )
    weight._optimizer_classes = [OPTIMIZERS[case["optimizer"]]]
    collection.embedding_bags["t"].weight = weight
    constraints = {
        "t": ParameterConstraints(
            sharding_types=SHARDING_TYPES,
            compute_kernels=kernels,
            min_partition=COLUMNS,
            pooling_factors=[lookups],
            is_weighted=weighted,
            cache_params=CacheParams(
                load_factor=case["cache"], prefetch_pipeline=case["pipeline"] == "kPrefetchSparseDist"
            ),
        )
    }
    place = Topology(world_size=world, local_world_size=local, compute_device="cuda")
    estimators = [
        EmbeddingPerfEstimator(place, constraints),
        EmbeddingStorageEstimator(place, constraints, PIPELINES[case["pipeline"]], case["peak"]),
    ]
    enumerator = EmbeddingEnumerator(place, batch, constraints, estimators)
    model = torch.nn.Module()
    model.collection = collection
    with contextlib.redirect_stdout(sys.stderr):
        return enumerator.enumerate(model, [Sharder(kernels)])


def case(table, topology, optimizer, dtype="kFP32", weighted=False, pipeline="kNone", peak=False, cache=0.2):
    return locals()


CASES = [
    case(0, 0, "kRowWiseAdagrad"),
    case(1, 0, "kRowWiseAdagrad"),
    case(2, 0, "kSGD"),
    case(0, 1, "kAdagrad"),
    case(0, 2, "kRowWiseAdagrad"),
    case(1, 2, "kAdam", "kFP16", True, "kSparseDist", True, 0.35),
    case(1, 0, "kAdam", "kFP16", True, "kSparseDist"),
    case(0, 0, "kAdagrad", "kInt8", False, "kPrefetchSparseDist"),
    case(1, 1, "kSGD", "kFP32", True, "kPrefetchSparseDist", True, 0.1),
    case(2, 1, "kAdagrad"),
    case(2, 2, "kRowWiseAdagrad", "kFP16", True, "kNone", False, 0.5),
]


HEADER = """\
# What torchrec's planner says of three tables in every sharding type, kernel, optimizer, data type and pipeline; times and
# bytes are of the first shard. Column blocks have 64 columns. Printed by tests/accuracy/torchrec/golden_options.py from
# torchrec 1.9.2 (github.com/meta-pytorch/torchrec, BSD-3-Clause); the figures of its commit 376cac6a are equal.
rows,dim,lookups,elementBytes,weighted,trainers,perNode,batch,optimizer,pipeline,outputsAtPeak,cacheRatio,\
shardingType,kernel,shardRows,shardColumns,milliseconds,gpuBytes,hostBytes"""


def main():
    print(HEADER)
    for of in CASES:
        request = [*TABLES[of["table"]], ELEMENT_BYTES[of["dtype"]], int(of["weighted"]), *TOPOLOGIES[of["topology"]],
                   of["optimizer"][1:], PIPELINE_NAMES[of["pipeline"]], int(of["peak"]), of["cache"]]
        for option in (option for kernels in KERNELS for option in options(of, kernels)):
            shard = option.shards[0]
            print(*request, option.sharding_type, option.compute_kernel, shard.size[0], shard.size[1],
                  repr(shard.perf.total), shard.storage.hbm, shard.storage.ddr, sep=",")


if __name__ == "__main__":
    main()
