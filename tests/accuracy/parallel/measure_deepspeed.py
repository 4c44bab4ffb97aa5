#!/usr/bin/env python3
"""What each rank of DeepSpeed's ZeRO takes: local processes over gloo on DeepSpeed's CPU accelerator (torch 2, DeepSpeed 0.19.8).

Prints tests/estimator/estimate/deepspeed_torch2.yaml, to which the estimates are held. The model is models/parallel.py's
llama with fewer layers, or a wider one, of which ZeRO-3 gathers only a part ahead; deepspeed.initialize() shards it with its
defaults, but for reduce_bucket_size in some cases. The method is measure_parallel.py's. Nothing is offloaded: on the CPU that
would be memory of the same kind.

    python3 -m venv ds && ds/bin/pip install torch==2.15.0 torchvision transformers==5.23.0 deepspeed==0.19.8
    ds/bin/python measure_deepspeed.py                        all cases
    ds/bin/python measure_deepspeed.py ZeRO3 BF16Mixed 2      those alone, with what lives at rank 0's peak on standard error
"""
import argparse
import dataclasses
import functools
import json
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29531")

import measure_parallel  # noqa: E402  (the environment must be set before)
import measure  # noqa: E402
import parallel  # noqa: E402
import deepspeed  # noqa: E402
import torch  # noqa: E402
from torch import distributed  # noqa: E402

TOKENS = 16
BATCH = 4
SMALL = {**parallel.LLAMA, "num_hidden_layers": 3}
WIDE = {**parallel.LLAMA, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 6}
measure_parallel.STATE_IS_MADE_AHEAD = True


@dataclasses.dataclass
class Case:
    strategy: str
    precision: str
    ranks: int
    parts: int = 1  # micro-batches
    bucket: int | None = None  # reduce_bucket_size; none: DeepSpeed's default
    llama: dict = dataclasses.field(default_factory=lambda: SMALL)


CASES = [Case(strategy, "BF16Mixed", ranks) for ranks in (2, 4) for strategy in ("ZeRO1", "ZeRO2", "ZeRO3")]
CASES += [Case("ZeRO2", "FP32", 2), Case("ZeRO3", "FP32", 2), Case("ZeRO1", "BF16Mixed", 2, 2), Case("ZeRO2", "BF16Mixed", 2, 2),
          Case("ZeRO3", "BF16Mixed", 2, 2), Case("ZeRO2", "BF16Mixed", 1), Case("ZeRO3", "BF16Mixed", 1)]
# Hugging Face's "auto", the square of the width, which some parameters exceed; one that is filled several times; and a large one.
CASES += [Case(strategy, "BF16Mixed", 2, 1, bucket) for bucket in (512 * 512, 2_000_000, 20_000_000)
          for strategy in ("ZeRO1", "ZeRO2", "ZeRO3")]
CASES += [Case(strategy, "BF16Mixed", 8, 1, 2_000_000) for strategy in ("ZeRO1", "ZeRO2", "ZeRO3")]
CASES += [Case("ZeRO3", "BF16Mixed", ranks, 1, 1024 * 1024, WIDE) for ranks in (2, 4)]


def configuration(case):
    sharded = {"stage": int(case.strategy[-1]), **({"reduce_bucket_size": case.bucket} if case.bucket else {})}
    return {"train_micro_batch_size_per_gpu": BATCH // case.parts, "gradient_accumulation_steps": case.parts,
            "zero_optimization": sharded, "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": case.precision == "BF16Mixed"}}


def engine_of(case, module, optimizer):
    """DeepSpeed's engine, in a process that has joined a group of gloo."""
    rank = str(distributed.get_rank())
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=str(distributed.get_world_size()))
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # all collectives are gloo's
    deepspeed.init_distributed(dist_backend="gloo")
    return deepspeed.initialize(model=module, optimizer=optimizer, config=configuration(case))[0]


def train(case):
    parallel.LLAMA = case.llama
    parts = case.parts
    module = parallel.LlamaStage(0, case.llama["num_hidden_layers"])
    engine = engine_of(case, module, measure_parallel.optimizer_of(module))
    tokens = torch.zeros(BATCH // parts, TOKENS, dtype=torch.int64)
    for _ in range(measure.ITERATIONS):
        measure.mark()
        measure.mark()
        for part in range(parts):
            loss = parallel.next_token_loss(engine(tokens), tokens)
            if part == parts - 1:
                measure.mark()
            engine.backward(loss)
            if part == parts - 1:
                measure.mark()
            engine.step()
            del loss
    measure.mark()


def row_of(case, results):
    parallelism = {"strategy": case.strategy, **({"reduceBucketSize": case.bucket} if case.bucket else {})}
    training = {"batchSizePerTrainer": BATCH, "gradientAccumulation": case.parts, "precision": case.precision,
                **measure_parallel.optimizer_of_job(), "parallelism": parallelism}
    model = {"config": json.dumps(case.llama), "seqLen": TOKENS, "attention": "SDPA"}
    return {"case": f"{case.strategy} {case.precision}", "model": {"transformer": model}, "training": training,
            "trainers": case.ranks,
            "bytes": min(result["peakBytes"] for result in results)}  # partitions are equal; gloo frees late on some rank


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case", nargs="*", help="STRATEGY PRECISION RANKS; none: all")
    options = parser.parse_args()
    print("# Bytes at the highest point of one steady-state iteration, of each rank, one thread each.")
    print(f"# Printed by tests/accuracy/parallel/measure_deepspeed.py: torch {torch.__version__}, DeepSpeed "
          f"{deepspeed.__version__}, gloo.\n# `model` and `training` are those of a TrainingJob.")
    failed = False
    for case in CASES:
        if options.case and [case.strategy, case.precision, str(case.ranks)] != options.case:
            continue
        results = measure_parallel.run(("deepspeed", "llama", BATCH), case.ranks, "live" if options.case else None,
                                       functools.partial(train, case))
        problems = [result["error"] for result in results if "error" in result]
        if problems:
            failed = True
            print(case, problems[0], file=sys.stderr)
            continue
        if options.case:
            print(*measure_parallel.grouped(results[0]["live"]), sep="\n", file=sys.stderr)
            print(*results, sep="\n", file=sys.stderr)
        print("- " + json.dumps(row_of(case, results)), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
