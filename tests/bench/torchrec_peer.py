#!/usr/bin/env python3
"""Plimsoll's sharder and torchrec's own planner on the same tables, in the same run.

Both plan for fp32, row-wise Adagrad, nodes of 8, 80 GiB and torchrec's default bandwidths, with nothing reserved.
Times and bytes of both plans are by torchrec's cost model (tests/estimator/sharder/cost_test.cc holds Plimsoll's to
it). Search times are torchrec's on the processor, and Plimsoll's by the clock, the quickest of three. torchrec's
planner gets a limit; "none" is no plan by then.

    ./scripts/bench shard --peer torchrec [--limit SECONDS] [--json]
"""
import argparse
import csv
import json
import multiprocessing
import pathlib
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIB = 1 << 30

# name, file, trainers, samples a trainer
CASES = [
    ("MLPerf DLRM-DCNv2 x 8", "mlperf_dlrm_dcnv2.csv", 8, 8192),
    ("NVIDIA tiny x 16", "nvidia_synthetic_tiny.csv", 16, 4096),
    ("EMBark T200 x 128", "hugectr_t200.csv", 128, 512),
    ("B x 24 (98% full)", "amp_like_model_B.csv", 24, 1024),
    ("B x 128", "amp_like_model_B.csv", 128, 1024),
    ("A x 128", "amp_like_model_A.csv", 128, 1024),
]


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def read_tables(file):
    with open(ROOT / "examples/tables" / file, encoding="utf-8") as lines:
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        return [
            (row["name"], int(row["rows"]), int(row["dim"]),
             float(row["pooling_factor"]) * float(row.get("lookup_frequency") or 1))
            for row in rows
        ]


def summary(times, bytes_held, seconds):
    return {
        "maxMs": max(times),
        "hbmMaxOverMean": max(bytes_held) / (sum(bytes_held) / len(bytes_held)),
        "seconds": seconds,
    }


def by_torchrec(file, trainers, batch, answers):
    import logging

    logging.disable(logging.CRITICAL)
    import torch
    import torchrec
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation

    tables = read_tables(file)
    model = torch.nn.Module()
    model.collection = torchrec.EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            torchrec.EmbeddingBagConfig(
                name=name, num_embeddings=rows, embedding_dim=columns, feature_names=[f"of_{name}"]
            )
            for name, rows, columns, _ in tables
        ],
    )
    for bag in model.collection.embedding_bags.values():
        bag.weight._optimizer_classes = [torchrec.optim.RowWiseAdagrad]
    begin = processor_seconds()
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=trainers, local_world_size=8, compute_device="cuda", hbm_cap=80 * GIB),
        batch_size=batch,
        constraints={
            name: ParameterConstraints(pooling_factors=[lookups], compute_kernels=["fused", "dense"])
            for name, _, _, lookups in tables
        },
        storage_reservation=FixedPercentageStorageReservation(0.0),
        stats=[],
    )
    planner.plan(model, [EmbeddingBagCollectionSharder()])
    seconds = processor_seconds() - begin
    times = [0.0] * trainers
    held = [0] * trainers
    for option in planner._best_plan:
        for shard in option.shards:
            times[shard.rank] += shard.perf.total
            held[shard.rank] += shard.storage.hbm
    answers.put(summary(times, held, seconds))


def limited(limit, *arguments):
    """What torchrec's planner finds in a process of its own within the limit; None when nothing."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    worker = context.Process(target=by_torchrec, args=(*arguments, answers))
    worker.start()
    worker.join(limit)
    if worker.is_alive():
        worker.terminate()
        worker.join()
        return None
    return answers.get() if worker.exitcode == 0 else None


def by_plimsoll(plimsoll, file, trainers, batch):
    command = [plimsoll, "shard", "--tables", str(ROOT / "examples/tables" / file), "--trainers", str(trainers),
               "--hbm", "80Gi", "--batch-size", str(batch), "-o", "json"]
    runs = [json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    plan = min(runs, key=lambda run: run["elapsedSeconds"])
    ranks = plan["ranks"]
    found = summary([r["milliseconds"] for r in ranks], [r["memoryBytes"] for r in ranks], plan["elapsedSeconds"])
    return found, plan["perf"]["lowerBoundMs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", default=str(ROOT / "build/release/bin/plimsoll"))
    parser.add_argument("--limit", type=float, default=120, help="seconds for torchrec's planner in each case")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    arguments = parser.parse_args()
    heading = f"{'case':24} {'planner':9} {'time, ms':>10} {'over bound':>11} {'HBM max/mean':>13} {'search':>11}"
    if not arguments.json:
        print(heading)
    for name, file, trainers, batch in CASES:
        if arguments.only not in name:
            continue
        ours, bound = by_plimsoll(arguments.plimsoll, file, trainers, batch)
        theirs = limited(arguments.limit, file, trainers, batch)
        for planner, found in (("plimsoll", ours), ("torchrec", theirs)):
            if arguments.json:
                for metric, unit in (("maxMs", "ms"), ("hbmMaxOverMean", "ratio"), ("seconds", "s")):
                    print(json.dumps({
                        "bench": "shard", "case": f"{name}, {planner}", "metric": metric,
                        "value": found[metric] if found else None, "unit": unit,
                        "reference": bound if metric == "maxMs" else None,
                    }))
            elif found:
                print(f"{name:24} {planner:9} {found['maxMs']:10.4g} {found['maxMs'] / bound:11.3f} "
                      f"{found['hbmMaxOverMean']:13.3f} {found['seconds'] * 1e3:8.1f} ms", flush=True)
            else:
                print(f"{name:24} {planner:9} none in {arguments.limit:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
