"""One rank of a run of DeepSpeed's ZeRO (0.19.8) in a process group that does not communicate.

The engine, its partitions, buckets and streams are DeepSpeed's own, with its defaults. The optimizer is PyTorch's, which the
engine is given, so that none of DeepSpeed's extensions has to be compiled.
"""
import os

import torch
from torch import distributed


def import_deepspeed(device):
    """DeepSpeed looks for its accelerator when it is imported."""
    rank = distributed.get_rank()
    os.environ.update(DS_ACCELERATOR=device, RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(distributed.get_world_size()))
    import deepspeed

    if device == "cpu":
        import deepspeed.comm.torch as backend

        backend.build_shm_op = lambda: None
    deepspeed.init_distributed(dist_backend="fake", verbose=False)
    return deepspeed


def configuration(training):
    parallelism = training["parallelism"]
    parts = training.get("gradientAccumulation", 1)
    sharded = {"stage": int(parallelism["strategy"][-1])}
    if "reduceBucketSize" in parallelism:
        sharded["reduce_bucket_size"] = parallelism["reduceBucketSize"]
    kept = {"Optimizer": ["offload_optimizer"], "Parameters": ["offload_optimizer", "offload_param"]}
    for each in kept.get(parallelism.get("offload"), []):
        sharded[each] = {"device": "cpu"}
    return {"train_micro_batch_size_per_gpu": training["batchSizePerTrainer"] // parts, "gradient_accumulation_steps": parts,
            "zero_optimization": sharded, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
            "bf16": {"enabled": training["precision"] == "BF16Mixed"}, "fp16": {"enabled": training["precision"] == "FP16Mixed"},
            "steps_per_print": 1 << 30}


class Loss:
    """The loss of one micro-batch, in the form of measure_gpu.iterate."""

    def __init__(self, engine, value):
        self.engine, self.value = engine, value

    def backward(self):
        self.engine.backward(self.value)
        self.value = None
        if not self.engine.is_gradient_accumulation_boundary():
            self.engine.step()  # counts the micro-batch


class Optimizer:
    """The engine's step, which also drops the gradients, in the form of measure_gpu.iterate."""

    def __init__(self, engine):
        self.step = engine.step

    def zero_grad(self, set_to_none):
        """Part of the step."""


def prepare(make_model, make_batches, training, device, initialisation, recorder):
    """make_model() makes the model, where `initialisation` says; make_batches(model) the inputs of each micro-batch."""
    deepspeed = import_deepspeed(device)
    settings = configuration(training)
    if initialisation == "Meta":
        with deepspeed.zero.Init(config_dict_or_path=settings):
            model = make_model()
    else:
        model = make_model()
    trained = [each for each in model.parameters() if each.requires_grad]
    fused = {"fused": True} if training.get("optimizerImplementation") == "Fused" else {}
    optimizer = getattr(torch.optim, training["optimizer"])(trained, lr=1e-9, **fused)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    made = recorder() if recorder else None
    losses = [lambda inputs=inputs: Loss(engine, engine(**inputs).loss) for inputs in make_batches(model)]
    return [Optimizer(engine)], losses, made
