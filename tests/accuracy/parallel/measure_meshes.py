#!/usr/bin/env python3
"""What each rank of a Llama takes on meshes of 4 and 8 ranks: local processes over gloo (torch 2, transformers 5).

Prints tests/estimator/estimate/meshes_torch2.yaml, to which the estimates of specs are held. The model is
models/parallel.py's llama with fewer layers, the method measure_parallel.py's.

    python3 measure_meshes.py                 all cases
    python3 measure_meshes.py 'tensor 2x4'    one, with what lives at rank 0's peak on standard error
"""
import functools
import json

import measure_parallel  # (sets what gloo needs, and where measure is)
import measure
import parallel
import torch
from torch import distributed, nn
from torch.distributed import _functional_collectives
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)

BATCH = 4
LAYERS = 3
parallel.LLAMA = {**parallel.LLAMA, "num_hidden_layers": LAYERS}
measure_parallel.REPETITIONS = 2
# Name, ranks, parallelism of a TrainingJob, tokens, attention.
CASES = [
    ("tensor 2x2", 4, {"strategy": "FSDP2", "tensor": 2}, 16, "SDPA"),
    ("context 2x2", 4, {"strategy": "FSDP2", "context": 2}, 512, "Eager"),
    ("tensor and sequence 2x2", 4, {"strategy": "FSDP2", "tensor": 2, "sequence": True}, 512, "SDPA"),
    ("tensor 2x4", 8, {"strategy": "FSDP2", "tensor": 4}, 16, "SDPA"),
    ("HSDP 2x4", 8, {"strategy": "FSDP2", "replicate": 2}, 16, "SDPA"),
    ("context 2x4", 8, {"strategy": "FSDP2", "context": 4}, 512, "Eager"),
    ("tensor 2x2, long", 4, {"strategy": "FSDP2", "tensor": 2}, 512, "SDPA"),
    ("HSDP over data and context 2x2x2", 8, {"strategy": "FSDP2", "replicate": 2, "context": 2}, 512, "Eager"),
]


def split_by_heads(module, mesh, sequence):
    """torchtitan's plan for Llama (models/llama3/infra/parallelize.py: apply_tp)."""
    between = Shard(1) if sequence else Replicate()
    norms = {"norm": SequenceParallel()} if sequence else {}
    parallelize_module(module, mesh, {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between), **norms,
        "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)})
    for block in module.blocks:
        plan = {**{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
                **{f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")},
                **{name: RowwiseParallel(output_layouts=between) for name in ("self_attn.o_proj", "mlp.down_proj")}}
        if sequence:
            plan.update({"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel(),
                         "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": Shard(1)},
                                                         desired_input_kwarg_layouts={"hidden_states": Replicate()}),
                         "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))})
        parallelize_module(block, mesh, plan)


def gathered_tokens(x, group):
    return _functional_collectives.all_gather_single_autograd(x, gather_dim=2, group=group)


def attention_over(group):
    """Eager attention of this rank's queries to the keys and values of all of the group."""
    from transformers.models.llama.modeling_llama import eager_attention_forward

    def attend(module, query, key, value, attention_mask, **options):
        key, value = gathered_tokens(key, group), gathered_tokens(value, group)
        return eager_attention_forward(module, query, key, value, attention_mask, **options)
    return attend


class Llama(nn.Module):
    """A LlamaStage that is given part of the tokens, the `place`th of `places`.

    Of several it has the mask that transformers makes for eager attention.
    """

    def __init__(self, place, places, tokens):
        super().__init__()
        stage = parallel.LlamaStage(0, LAYERS)
        self.tokens, self.blocks, self.rotary, self.norm, self.head = (stage.tokens, stage.blocks, stage.rotary, stage.norm,
                                                                       stage.head)
        self.begin, self.end, self.all = place * tokens // places, (place + 1) * tokens // places, tokens
        self.masked = places > 1

    def forward(self, x):
        x = self.tokens(x)
        own = torch.arange(self.begin, self.end)
        places = self.rotary(x, own.unsqueeze(0))
        mask = None
        if self.masked:
            mask = torch.where(own.unsqueeze(1) >= torch.arange(self.all), 0.0, torch.finfo(x.dtype).min)[None, None]
        for block in self.blocks:
            x = block(x, attention_mask=mask, position_embeddings=places)
        return self.head(self.norm(x))


def optimizer_by_mesh(module):
    """foreach can't mix DTensors of different meshes, so each mesh has a group."""
    groups = {}
    for parameter in module.parameters():
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups.setdefault(mesh, []).append(parameter)
    return measure_parallel.optimizer_of_parameters([{"params": group} for group in groups.values()])


def sharded(parallelism):
    """The mesh that FSDP shards over, and that of tensor or context parallelism."""
    ranks = distributed.get_world_size()
    inner = parallelism.get("tensor", 1)
    context, replicate = parallelism.get("context", 1), parallelism.get("replicate", 1)
    shard = ranks // inner // context // replicate
    mesh = distributed.init_device_mesh("cpu", (replicate, shard, context, inner), mesh_dim_names=("rep", "dp", "cp", "tp"))
    if context > 1:
        mesh["dp", "cp"]._flatten("dp_cp")
    over = ["rep"] * (replicate > 1) + ["dp_cp" if context > 1 else "dp"]
    return mesh, mesh[tuple(over)]


def train(parallelism, tokens, batch=BATCH):
    mesh, over = sharded(parallelism)
    context = parallelism.get("context", 1)
    if context > 1:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
        ALL_ATTENTION_FUNCTIONS["gathered"] = attention_over(mesh.get_group("cp"))
    module = Llama(mesh.get_local_rank("cp"), context, tokens)
    if context > 1:
        for block in module.blocks:
            block.self_attn.config._attn_implementation = "gathered"
    if "tensor" in parallelism:
        split_by_heads(module, mesh["tp"], parallelism.get("sequence", False))
    module, optimizer = measure_parallel.fully_sharded(module, over), optimizer_by_mesh(module)
    inputs, targets = (torch.zeros(batch, tokens // context, dtype=torch.int64) for _ in range(2))
    for _ in range(measure.ITERATIONS):
        measure.mark()
        optimizer.zero_grad(set_to_none=True)
        measure.mark()
        with loss_parallel() if "tensor" in parallelism else torch.enable_grad():
            loss = parallel.next_token_loss(module(inputs), targets)
            measure.mark()
            loss.backward()
        measure.mark()
        optimizer.step()
        del loss
    measure.mark()


def row_of(case, results):
    name, ranks, parallelism, tokens, attention = case
    model = {"config": json.dumps(parallel.LLAMA), "seqLen": tokens, "attention": attention}
    training = {"batchSizePerTrainer": BATCH, **measure_parallel.optimizer_of_job(), "parallelism": parallelism}
    return {"case": name, "model": {"transformer": model}, "training": training, "trainers": ranks,
            "bytes": min(result["peakBytes"] for result in results)}  # ranks are equal; gloo frees late on some


def train_of(case):
    _, _, parallelism, tokens, _ = case
    return functools.partial(train, parallelism, tokens)


if __name__ == "__main__":
    measure_parallel.print_rows_of_specs(__doc__, "measure_meshes.py", CASES, ("llama", BATCH), train_of, row_of)
