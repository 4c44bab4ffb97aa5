"""What PyTorch would choose on a GPU, for recording on a machine that has none.

Some composites query the device before they choose a kernel: attention its compute capability, recurrent layers cuDNN,
autocast the driver. `made_for_cuda` answers for an Ampere card or newer; all else follows from the tensors' device.
"""

import math

import torch
from torch.nn import functional as F

from .worlds import replaced

_HALF = (torch.float16, torch.bfloat16)
_FLASH_HEAD_LIMIT = 256  # ATen/native/transformers/cuda/sdp_utils.cpp, check_head_dim_size_flash
_BIAS_ALIGNMENT = 16  # ATen/native/transformers/attention.cpp, pad_bias


def _on_cuda(tensor):
    return tensor.device.type == "cuda"


def _alike(query, key, value):
    """What both fused kernels require: four dims, equal numbers of heads, contiguous rows."""
    tensors = (query, key, value)
    return all(t.dim() == 4 and t.stride(-1) == 1 and t.numel() > 0 for t in tensors) and (
        query.shape[:2] == key.shape[:2] == value.shape[:2]) and len({t.dtype for t in tensors}) == 1


def _flash(query, key, value, mask):
    return mask is None and query.dtype in _HALF and _alike(query, key, value) and (
        query.shape[-1] == key.shape[-1] == value.shape[-1] <= _FLASH_HEAD_LIMIT)


def _efficient(query, key, value, mask):
    granule = 8 if query.dtype in _HALF else 4
    return query.dtype in (*_HALF, torch.float32) and _alike(query, key, value) and (
        mask is None or not mask.requires_grad) and query.shape[-1] % granule == 0 and value.shape[-1] % granule == 0


def _bias(mask, query, key):
    """The mask as the efficient kernel requires it: additive, its rows padded to the alignment, expanded."""
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = torch.where(mask, torch.zeros((), dtype=query.dtype, device=query.device),
                           torch.full((), -math.inf, dtype=query.dtype, device=query.device))
    columns = mask.shape[-1]
    if columns % _BIAS_ALIGNMENT:
        mask = F.pad(mask, (0, _BIAS_ALIGNMENT - columns % _BIAS_ALIGNMENT))[..., :columns]
    return mask.expand(*query.shape[:3], key.shape[2])


def _attention(original):
    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if not _on_cuda(query):
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if enable_gqa and query.dim() == 4 and key.shape[1] != query.shape[1]:
            key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], 1) for t in (key, value))
        if _flash(query, key, value, attn_mask):
            head, scale = query.shape[-1], scale or 1 / math.sqrt(query.shape[-1])
            if head % 8:
                query, key, value = (F.pad(t, (0, 8 - head % 8)) for t in (query, key, value))
            result = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
            return result[..., :head] if head % 8 else result
        if _efficient(query, key, value, attn_mask):
            with_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
            return torch.ops.aten._scaled_dot_product_efficient_attention(
                query, key, value, _bias(attn_mask, query, key), with_gradient, dropout_p, is_causal, scale=scale)[0]
        return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)

    return attention


# How many values of the hidden size cuDNN keeps of a step of a layer for backward: the gates, and what is computed from them.
# From the cells' equations; cuDNN does not document its reserve space.
_RESERVED = {"lstm": 6, "gru": 5, "rnn_tanh": 1, "rnn_relu": 1}


class _Recurrent(torch.autograd.Function):
    """One cuDNN call for all layers and steps: results and reserve space in forward, all gradients in backward."""

    @staticmethod
    def forward(ctx, kind, shape, sequence, hidden, cell, *weights):
        steps, layers, width, projected, directions = shape
        output = sequence.new_empty(*sequence.shape[:-1], projected * directions)
        reserve = sequence.new_empty(steps * layers * directions * (_RESERVED[kind] * width + projected))
        ctx.save_for_backward(sequence, hidden, cell, output, reserve, *weights)
        return output, torch.empty_like(hidden), None if cell is None else torch.empty_like(cell)

    @staticmethod
    def backward(ctx, *gradients):
        sequence, hidden, cell, _, _, *weights = ctx.saved_tensors
        weight_gradients = sequence.new_empty(sum(w.numel() for w in weights))  # one buffer, as the weights are
        pieces = weight_gradients.split([w.numel() for w in weights])
        return (None, None, torch.empty_like(sequence), torch.empty_like(hidden),
                None if cell is None else torch.empty_like(cell), *(p.view(w.shape) for p, w in zip(pieces, weights)))


def _recurrent(kind, original):
    def call(sequence, *rest):
        if not _on_cuda(sequence):
            return original(sequence, *rest)
        packed = isinstance(rest[2], (list, tuple))  # (batch sizes, states, weights, ...); else (states, weights, ...)
        states, weights, _, layers, _, _, bidirectional = rest[1:] if packed else rest[:7]
        hidden, cell = states if kind == "lstm" else (states, None)
        steps = sequence.numel() // sequence.shape[-1]
        shape = (steps, layers, (hidden if cell is None else cell).shape[-1], hidden.shape[-1], 2 if bidirectional else 1)
        output, last, last_cell = _Recurrent.apply(kind, shape, sequence, hidden, cell, *weights)
        return (output, last, last_cell) if kind == "lstm" else (output, last)

    return call


def _is_causal_mask(original):
    def is_causal_mask(mask, is_causal=None, size=None):
        """nn.Transformer compares the mask with the causal one; of a mask without values only the shape is known."""
        if is_causal is None and mask is not None and _on_cuda(mask):
            return mask.dim() == 2 and mask.shape[0] == mask.shape[1] == (mask.shape[0] if size is None else size)
        return original(mask, is_causal, size)

    return is_causal_mask


def made_for_cuda():
    """Within the block, composites on tensors of a GPU that does not exist choose as they would on a real one."""
    attention = _attention(F.scaled_dot_product_attention)
    return replaced(
        (F, "scaled_dot_product_attention", attention), (torch._C._nn, "scaled_dot_product_attention", attention),
        *((torch._VF, kind, _recurrent(kind, getattr(torch._VF, kind))) for kind in _RESERVED),
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "is_bf16_supported", lambda *args, **kwargs: True),
        (torch.nn.modules.transformer, "_detect_is_causal_mask", _is_causal_mask(torch.nn.modules.transformer._detect_is_causal_mask)))
