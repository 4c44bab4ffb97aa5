"""flex_attention, which PyTorch always passes through its compiler, as operators that can be recorded.

Compiled (`torch.compile(flex_attention)`, or in a compiled model) it is one kernel, which keeps queries, keys, values, the result
and a float a row and head; backward makes a float a row and head, and three gradients
(torch/_inductor/kernel/flex/flex_attention.py). As written it makes the whole matrix of scores
(torch/_higher_order_ops/flex_attention.py, sdpa_dense and sdpa_dense_backward), whose functions run here. Parameters that
`score_mod` takes from its surroundings get no gradient.
"""

import contextlib
import importlib
import sys

import torch

from .worlds import replaced


def _dense():
    """The module of the unfused functions; its package gives the name to another thing."""
    return importlib.import_module("torch._higher_order_ops.flex_attention")


def _is_compiled():
    """Whether the call comes through torch.compile."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(("_dynamo/eval_frame.py", "_dynamo\\eval_frame.py")):
            return True
        frame = frame.f_back
    return False


def _gradient_of(score_mod, dtype):
    """A function that gives the gradient of one score: the graph that PyTorch would trace. Where `score_mod` uses tensors without
    memory, it cannot be traced; then by forward differentiation, which for one number is the same, but makes more tensors."""
    def traced():
        score = torch.zeros((), dtype=dtype, device="cpu", requires_grad=True)
        places = tuple(torch.zeros((), dtype=torch.int32, device="cpu") for _ in range(4))
        return _dense().create_fw_bw_graph(score_mod, (score, *places), ())[1]

    def differentiated(score, batch, head, query, key, gradient):
        def changed(one):
            return score_mod(one, batch, head, query, key)

        return [torch.func.jvp(changed, (score,), (gradient,))[1], None, None, None, None]

    from torch.utils._python_dispatch import _disable_current_modes  # PyTorch 1.13 has none, and no flex_attention

    try:
        with _disable_current_modes(), torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            return traced()
    except Exception:
        return differentiated


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, is_fused, score_mod, joint, block_mask, scale, options, query, key, value):
        ctx.constants = (is_fused, score_mod, joint, block_mask, scale, options)
        if is_fused:
            shape = (*query.shape[:3], value.shape[-1])
            results = (_dense()._permute_strides(query.new_empty(shape), query.stride()),
                       query.new_empty(shape[:3], dtype=torch.float32), query.new_empty(0))
        else:
            results = _dense().sdpa_dense(query, key, value, score_mod, block_mask, scale, options)
        ctx.mark_non_differentiable(*results[2:])
        ctx.save_for_backward(query, key, value, *results)
        return tuple(results)

    @staticmethod
    def backward(ctx, gradient, gradient_of_sums, *_):
        is_fused, score_mod, joint, block_mask, scale, options = ctx.constants
        query, key, value, output, sums, *_ = ctx.saved_tensors
        if is_fused:
            torch.empty_like(sums)  # the sums of output * gradient, which the kernel reads
            found = tuple(torch.empty_like(tensor) for tensor in (query, key, value))
        else:
            found = _dense().sdpa_dense_backward(
                query, key, value, output, sums, gradient, gradient_of_sums, score_mod, joint, block_mask, scale, options,
                (), ())[:3]
        return (None,) * 6 + tuple(found)


def _attention(query, key, value, score_mod, block_mask, scale, options, *_):
    is_fused = _is_compiled()
    joint = None if is_fused else _gradient_of(score_mod, query.dtype)
    return _Attention.apply(is_fused, score_mod, joint, block_mask, scale, options, query, key, value)


def can_be_recorded():
    """Within the block, flex_attention runs as operators. Needs a PyTorch that has it, and that can run it uncompiled."""
    module = sys.modules.get("torch.nn.attention.flex_attention")
    if module is None or not hasattr(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"):
        return contextlib.nullcontext()
    return replaced((module, "flex_attention_hop", _attention), (module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True))
