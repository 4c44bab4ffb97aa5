"""One rank of a run of Megatron-Core (0.16.1, without Transformer Engine and Apex) in a process group that does not communicate.

Its layers, distributed data parallelism, distributed optimizer and schedules are Megatron-Core's own. Parts that need
packages are PyTorch's: norms (torch.nn.RMSNorm), fused attention (scaled_dot_product_attention) and AdamW.
"""
import contextlib
import functools

import torch
from torch import nn
from torch.nn import functional


class Substituted(torch.overrides.TorchFunctionMode):
    """For rehearsals: what Megatron-Core does on "cuda" it does on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.cuda:
            return args[0]
        result = function(*args, **kwargs)
        if function is torch.Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.")  # distrib_optimizer.py asks for these names
        return result


def substitute_cuda():
    from megatron.core.tensor_parallel import random

    Substituted().__enter__()
    random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    random.CudaRNGStatesTracker.get_states = lambda self: {}
    random.CudaRNGStatesTracker.set_states = lambda self, states: None
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda *_, **__: None
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None


def norm_of_torch(_, config, hidden_size, eps=1e-5, **more):
    norm = nn.RMSNorm(hidden_size, eps, dtype=config.params_dtype, device=torch.cuda.current_device())
    norm.weight.sequence_parallel = config.sequence_parallel
    return norm


class FusedAttention(nn.Module):
    """Queries, keys and values are (tokens, samples, heads, width of a head)."""

    def __init__(self, config, **more):
        super().__init__()

    def forward(self, query, key, value, attention_mask, **more):
        query, key, value = (each.permute(1, 2, 0, 3) for each in (query, key, value))
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return out.permute(2, 0, 1, 3).flatten(2)


def layer_spec(attention):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import torch_norm

    torch_norm.WrappedTorchNorm.__new__ = norm_of_torch
    spec = get_gpt_layer_local_spec(normalization="RMSNorm")
    if attention != "Eager":
        spec.submodules.self_attention.submodules.core_attention = FusedAttention
    return spec


def configuration(model, parallelism, recomputes, on_cpu):
    from megatron.core.transformer.transformer_config import TransformerConfig

    recompute = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1} if recomputes else {}
    return TransformerConfig(
        num_layers=model["num_hidden_layers"], hidden_size=model["hidden_size"], ffn_hidden_size=model["intermediate_size"],
        num_attention_heads=model["num_attention_heads"], num_query_groups=model["num_key_value_heads"], gated_linear_unit=True,
        activation_func=functional.silu, add_bias_linear=False, normalization="RMSNorm", hidden_dropout=0.0, attention_dropout=0.0,
        bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, sequence_parallel=parallelism.get("sequence", False),
        tensor_model_parallel_size=parallelism.get("tensor", 1), pipeline_model_parallel_size=parallelism.get("pipeline", 1),
        gradient_accumulation_fusion=False, masked_softmax_fusion=False, bias_activation_fusion=True,
        use_cpu_initialization=on_cpu,
        deallocate_pipeline_outputs=True, **recompute)


class Loop:
    """The parts of an iteration in the form of measure_gpu.iterate: forward and backward are one, Megatron-Core's schedule."""

    def __init__(self, model, optimizer, tokens, parts, masked):
        from megatron.core.pipeline_parallel import get_forward_backward_func

        self.model, self.optimizer, self.tokens, self.parts = model, optimizer, tokens, parts
        length = tokens.shape[1]
        self.positions = torch.arange(length, device=tokens.device).unsqueeze(0)
        self.mask = torch.ones(1, 1, length, length, dtype=torch.bool, device=tokens.device).triu(1) if masked else None
        self.schedule = get_forward_backward_func()

    def zero_grad(self, set_to_none):
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad(set_to_none)

    def step(self):
        self.optimizer.step()

    def forward(self, _, model):
        output = model(self.tokens, self.positions, self.mask, labels=self.tokens)
        return output, lambda losses: (losses.float().mean(), {})

    def __call__(self):
        self.schedule(forward_step_func=self.forward, data_iterator=None, model=self.model, num_microbatches=self.parts,
                      seq_length=self.tokens.shape[1], micro_batch_size=self.tokens.shape[0], forward_only=False)
        return self

    def backward(self):
        """Part of the schedule."""


def prepare(model, spec, training, device, recorder):
    """The process group must have been started."""
    from megatron.core import optimizer, parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.module import Float16Module

    if device == "cpu":
        substitute_cuda()
    parallelism = training["parallelism"]
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=parallelism.get("tensor", 1), create_gloo_process_groups=False,
                                             pipeline_model_parallel_size=parallelism.get("pipeline", 1))
    if device != "cpu":
        model_parallel_cuda_manual_seed(1)
    config = configuration(model, parallelism, training.get("activationCheckpointing") == "Full", device == "cpu")
    gpt = GPTModel(config, layer_spec(spec["attention"]), model["vocab_size"], spec["seqLen"], position_embedding_type="rope",
                   pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage(),
                   share_embeddings_and_output_weights=False)
    settings = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True)
    wrapped = DistributedDataParallel(config, settings, Float16Module(config, gpt.to(device)))
    # What it takes where neither Transformer Engine nor Apex is there.
    torch.optim.AdamW = functools.partial(torch.optim.AdamW, fused=training["optimizerImplementation"] == "Fused")
    settings = optimizer.OptimizerConfig(optimizer="adam", lr=1e-9, bf16=True, params_dtype=torch.bfloat16, clip_grad=0.0,
                                         use_distributed_optimizer=True)
    made = optimizer.get_megatron_optimizer(settings, [wrapped], use_gloo_process_groups=False)
    peaks = recorder() if recorder else None
    parts = training.get("gradientAccumulation", 1)
    tokens = torch.zeros(training["batchSizePerTrainer"] // parts, spec["seqLen"], dtype=torch.int64, device=device)
    loop = Loop(wrapped, made, tokens, parts, spec["attention"] == "Eager")
    return [loop], [loop], peaks
