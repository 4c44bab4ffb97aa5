#!/usr/bin/env python3
"""What each rank takes that trains LoRA adapters of a sharded Llama: local processes over gloo (torch 2, transformers 5, peft).

Prints tests/estimator/estimate/sharded_adapters_torch2.yaml, to which the estimates are held. The model is models/parallel.py's
llama with fewer layers, whose own parameters are frozen; FSDP, FSDP2 and DeepSpeed's ZeRO (0.19.8, on its CPU accelerator) shard
them as they shard the others. The method is measure_parallel.py's.

    python3 measure_adapters.py                all cases
    python3 measure_adapters.py 'FSDP2 4'      one, with what lives at rank 0's peak on standard error
"""
import functools
import json

import measure_deepspeed  # (sets DeepSpeed's accelerator)
import measure_parallel
import measure
import parallel
import peft
import torch
from torch import distributed

TOKENS = 16
LONG = 256
BATCH = 4
LAYERS = 3
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
BUCKET = 512 * 512
# Name, ranks, strategy, precision, micro-batches, rank of the adapters, their targets, tokens.
CASES = [
    ("FSDP2 2", 2, "FSDP2", "FP32", 1, 16, TARGETS, TOKENS),
    ("FSDP2 4", 4, "FSDP2", "FP32", 1, 16, TARGETS, TOKENS),
    ("FSDP2 4, long", 4, "FSDP2", "FP32", 1, 16, TARGETS, LONG),
    ("FSDP2 4, perceptrons", 4, "FSDP2", "FP32", 1, 64, MLP, TOKENS),
    ("FSDP2 2, two micro-batches", 2, "FSDP2", "FP32", 2, 16, TARGETS, TOKENS),
    ("FSDP 2", 2, "FSDP", "FP32", 1, 16, TARGETS, TOKENS),
    ("FSDP 4", 4, "FSDP", "FP32", 1, 16, TARGETS, TOKENS),
    ("FSDP 4, long", 4, "FSDP", "FP32", 1, 16, TARGETS, LONG),
    ("FSDP 4, perceptrons", 4, "FSDP", "FP32", 1, 64, MLP, TOKENS),
    ("FSDP 2, two micro-batches", 2, "FSDP", "FP32", 2, 16, TARGETS, TOKENS),
    ("FSDP 2, mixed", 2, "FSDP", "BF16Mixed", 1, 16, TARGETS, TOKENS),
    ("FSDP 4, mixed, long", 4, "FSDP", "BF16Mixed", 1, 16, TARGETS, LONG),
    ("ZeRO2 2", 2, "ZeRO2", "BF16Mixed", 1, 16, TARGETS, TOKENS),
    ("ZeRO3 2", 2, "ZeRO3", "BF16Mixed", 1, 16, TARGETS, TOKENS),
    ("ZeRO3 4", 4, "ZeRO3", "BF16Mixed", 1, 16, TARGETS, TOKENS),
    ("ZeRO3 2, fp32", 2, "ZeRO3", "FP32", 1, 16, TARGETS, TOKENS),
    ("ZeRO3 4, perceptrons", 4, "ZeRO3", "BF16Mixed", 1, 64, MLP, TOKENS),
]
parallel.LLAMA = {**parallel.LLAMA, "num_hidden_layers": LAYERS}
measure_parallel.REPETITIONS = 2


def with_adapters(rank, targets):
    module = parallel.LlamaStage(0, LAYERS)
    peft.inject_adapter_in_model(peft.LoraConfig(r=rank, target_modules=targets), module)
    return module


def trained_by(module):
    return measure_parallel.optimizer_of_parameters([each for each in module.parameters() if each.requires_grad])


def fully_sharded(module):
    measure_parallel.fully_sharded(module, distributed.init_device_mesh("cpu", (distributed.get_world_size(),)))
    return module


def flattened(module, precision):
    """FSDP1 with a unit for each layer and one for each adapter in it (peft.utils.other.fsdp_auto_wrap_policy)."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import CustomPolicy

    units = set(map(id, measure_parallel.blocks_of(module)))
    units.update(id(part) for part in module.modules() if not list(part.children()) and hasattr(part, "weight")
                 and part.weight.requires_grad)
    mixed = MixedPrecision(torch.bfloat16, torch.bfloat16) if precision == "BF16Mixed" else None
    return FullyShardedDataParallel(module, auto_wrap_policy=CustomPolicy(lambda part: id(part) in units), mixed_precision=mixed,
                                    device_id=torch.device("cpu"))


def train_fsdp(module):
    optimizer = trained_by(module)

    def step():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return module, torch.Tensor.backward, lambda last: step() if last else None


def train_zero(module, strategy, precision, parts):
    case = measure_deepspeed.Case(strategy, precision, distributed.get_world_size(), parts, BUCKET)
    engine = measure_deepspeed.engine_of(case, module, trained_by(module))
    return engine, engine.backward, lambda last: engine.step()


def train(strategy, precision, parts, rank, targets, tokens):
    measure_parallel.STATE_IS_MADE_AHEAD = strategy.startswith("ZeRO")
    module = with_adapters(rank, targets)
    model, backward, step = (train_fsdp(fully_sharded(module)) if strategy == "FSDP2" else
                             train_fsdp(flattened(module, precision)) if strategy == "FSDP" else
                             train_zero(module, strategy, precision, parts))
    # accelerate runs FSDP under autocast, too: peft casts an adapter's input to the type of its shards.
    casts = torch.autocast("cpu", torch.bfloat16, enabled=strategy == "FSDP" and precision == "BF16Mixed")
    inputs = torch.zeros(BATCH // parts, tokens, dtype=torch.int64)
    for _ in range(measure.ITERATIONS):
        measure.mark()
        measure.mark()
        for part in range(parts):
            last = part == parts - 1
            with casts:
                loss = parallel.next_token_loss(model(inputs), inputs)
            if last:
                measure.mark()
            backward(loss)
            if last:
                measure.mark()
            step(last)
            del loss
    measure.mark()


def train_of(case):
    return functools.partial(train, *case[2:])


def row_of(case, results):
    name, ranks, strategy, precision, parts, rank, targets, tokens = case
    model = {"config": json.dumps(parallel.LLAMA), "seqLen": tokens, "attention": "SDPA"}
    sharded = {"strategy": strategy, **({"reduceBucketSize": BUCKET} if strategy.startswith("ZeRO") else {})}
    training = {"batchSizePerTrainer": BATCH, "gradientAccumulation": parts, "precision": precision,
                **measure_parallel.optimizer_of_job(), "parallelism": sharded,
                "fineTuning": {"method": "LoRA", "rank": rank, "targetModules": targets}}
    return {"case": name, "model": {"transformer": model}, "training": training, "trainers": ranks,
            "bytes": min(result["peakBytes"] for result in results)}  # ranks are equal; gloo frees late on some


if __name__ == "__main__":
    measure_parallel.print_rows_of_specs(__doc__, "measure_adapters.py", CASES, ("llama", BATCH), train_of, row_of)
