#!/usr/bin/env python3
"""What torch.compile's code of one torchtitan block allocates with tensor parallelism of 8 and float8, on the CPU.

TorchInductor lowers torchtitan's block with torchao's Float8Linear. Its code runs with kernels and collectives that compute
nothing: what it allocates and frees, and when, is its own. Symmetric memory's operators allocate as their CUDA
implementations do (torch/distributed/_symmetric_memory/__init__.py); their workspaces are outside of the allocator. The block
is Llama 3.1 405B's with a 16th of the width and of the tokens, so that bytes are multiplied by 256.

    git -C TORCHTITAN checkout 9dec370; git -C AO checkout 567cb4640
    python3 measure_block.py --torchtitan TORCHTITAN --torchao AO --samples 4 --asynchronous      (PyTorch 2.6.0)
"""
import argparse
import importlib
import sys
import types

import torch
from torch import nn
from torch._inductor.async_compile import AsyncCompile
from torch.distributed import _symmetric_memory, device_mesh, init_process_group
from torch.profiler import ProfilerActivity, profile, record_function
from torch.testing._internal.distributed.fake_pg import FakeStore

TENSOR, TOKENS, SCALE = 8, 2048, 16


def nothing(*arguments):
    """A kernel."""


def scaled_product(a, b, *rest, out_dtype=None, **options):
    return a.new_empty(a.shape[0], b.shape[1], dtype=out_dtype)


def scaled_product_into(a, b, *rest, out, **options):
    return out


def gather_and_multiply(shard, weights, scale, scales, dim, group, biases, result_scales, dtypes, fast):
    dtypes = _symmetric_memory._maybe_convert_scalar_types_to_dtypes(dtypes)
    rows = shard.movedim(dim, 0)
    leading = [TENSOR, *rows.shape[:-1]]
    rows = rows.flatten(0, -2)

    def restored(tensor):
        return tensor.view(*leading, -1).flatten(0, 1).movedim(0, dim)

    gathered = rows.new_empty(rows.shape[0] * TENSOR, rows.shape[1])
    results = [rows.new_empty(gathered.shape[0], each.shape[1], dtype=dtype) for each, dtype in zip(weights, dtypes, strict=True)]
    return restored(gathered), [restored(each) for each in results]


def multiply_and_scatter(a, weight, scale, weight_scale, operation, dim, group, bias=None, result_scale=None, dtype=None, fast=False):
    dtype = _symmetric_memory._maybe_convert_scalar_types_to_dtypes([dtype])[0]
    rows = a.movedim(dim, 0)
    leading = [TENSOR, rows.shape[0] // TENSOR, *rows.shape[1:-1]]
    partials = a.new_empty(rows.flatten(0, -2).shape[0], weight.shape[1], dtype=dtype)
    return partials.view(*leading, -1).movedim(1, dim + 1).movedim(0, dim).sum(dim=dim)


def replace_kernels():
    AsyncCompile.cpp_pybinding = lambda self, types, source: nothing
    _symmetric_memory.enable_symm_mem_for_group = lambda group: None
    _symmetric_memory._is_test_mode = True
    libraries = []
    for namespace, operator, function in (
        ("aten", "_scaled_mm", scaled_product),
        ("aten", "_scaled_mm.out", scaled_product_into),
        ("symm_mem", "fused_all_gather_scaled_matmul", gather_and_multiply),
        ("symm_mem", "fused_scaled_matmul_reduce_scatter", multiply_and_scatter),
    ):
        libraries.append(torch.library.Library(namespace, "IMPL"))
        libraries[-1].impl(operator, function, "CPU")
    return libraries


class Stage(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.layers = nn.ModuleDict({"0": block})

    def forward(self, x, positions):
        return self.layers["0"](x, positions)


def compiled_block(asynchronous):
    # Its norms need a GPU to be imported.
    norms = types.ModuleType("torchtitan.models.norms")
    norms.build_norm = lambda kind, dim, eps: nn.RMSNorm(dim, eps=eps)
    sys.modules[norms.__name__] = norms
    model = importlib.import_module("torchtitan.models.llama.model")
    parallel = importlib.import_module("torchtitan.parallelisms.parallelize_llama")
    float8 = importlib.import_module("torchao.float8")
    sizes = model.ModelArgs(
        dim=16384 // SCALE, n_layers=1, n_heads=64, n_kv_heads=8, vocab_size=1024, multiple_of=256, ffn_dim_multiplier=1.2,
        max_seq_len=TOKENS,
    )
    stage = Stage(model.TransformerBlock(0, sizes)).to(torch.bfloat16)
    float8.convert_to_float8_training(stage, config=float8.Float8LinearConfig())
    split = parallel.parallelize_module

    def split_block(module, mesh=None, plan=None, **names):
        plan = names.get("parallelize_plan", plan)
        return None if "tok_embeddings" in plan else split(module, names.get("device_mesh", mesh), plan)

    parallel.parallelize_module = split_block
    mesh = device_mesh.init_device_mesh("cpu", (TENSOR,), mesh_dim_names=("tp",))
    parallel.apply_tp(stage, mesh, loss_parallel=True, enable_float8=True, enable_async_tp=asynchronous)
    parallel.apply_ac(stage, types.SimpleNamespace(mode="full"))
    parallel.apply_compile(stage)
    return stage, model.precompute_freqs_cis(sizes.dim // sizes.n_heads, TOKENS), sizes.dim


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torchtitan", required=True)
    parser.add_argument("--torchao", required=True)
    parser.add_argument("--samples", type=int, default=1, help="that the tokens of a micro-batch are divided into")
    parser.add_argument("--asynchronous", action="store_true", help="asynchronous tensor parallelism")
    arguments = parser.parse_args()
    sys.path[:0] = [arguments.torchtitan, arguments.torchao]
    init_process_group("fake", rank=0, world_size=TENSOR, store=FakeStore())
    libraries = replace_kernels()
    stage, positions, width = compiled_block(arguments.asynchronous)
    tokens = TOKENS // arguments.samples
    x = torch.zeros(arguments.samples, tokens // TENSOR, width, dtype=torch.bfloat16, requires_grad=True)
    stage(x, positions[:tokens]).sum().backward()
    for each in [x, *stage.parameters()]:
        each.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        with record_function("forward"):
            y = stage(x, positions[:tokens])
        gradient = torch.zeros_like(y)
        with record_function("backward"):
            y.backward(gradient)
    events = profiler.profiler.kineto_results.events()
    steps = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    for phase in ("forward", "backward"):
        begin, end = next((event.start_ns(), event.end_ns()) for event in events if event.name() == phase)
        held = peak = 0
        for at, change in steps:
            if begin <= at <= end:
                held += change
                peak = max(peak, held)
        print(f"{phase}: {peak * SCALE**2 / 2**30:.2f} GiB at most, {held * SCALE**2 / 2**30:.2f} GiB remain")
    del libraries


if __name__ == "__main__":
    main()
