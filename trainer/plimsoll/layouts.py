"""The strides of results, where FakeTensorMode gives others than the kernels do.

Later kernels copy operands whose strides they do not support, so that wrong strides hide copies. tests/trainer/layouts_test.py
runs each operator of the table for real and without memory. The rules are those of PyTorch's sources (aten/src/ATen/native).
"""

import torch


def _contiguous(tensors):
    """Reductions and losses: zeros_like with the legacy contiguous format, or empty_like of a contiguous copy."""
    return tensors[0].new_empty(tensors[0].shape)


def _like_operands(tensors):
    """TensorIterator's: where operands differ, the first one decides."""
    return torch.add(*tensors[:2]) if len(tensors) > 1 else torch.neg(tensors[0])


def _like_second(tensors):
    return torch.empty_like(tensors[1])


def _suggested(tensor):
    """Batch norm on the CPU: channels last stays, anything else becomes contiguous."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    keeps = last is not None and tensor.is_contiguous(memory_format=last)
    return torch.empty_like(tensor, memory_format=last if keeps else torch.contiguous_format)


# operator: (what has the strides of the first result, from the call's tensors; the device where that holds, or any)
_RULES = {
    "_log_softmax_backward_data": (_contiguous, None),
    "binary_cross_entropy_backward": (_like_second, None),
    "copysign": (_like_operands, None),
    "elu_backward": (_like_operands, None),
    "floor_divide": (_like_operands, None),
    "hardsigmoid_backward": (_like_operands, None),
    "hardswish_backward": (_like_operands, None),
    "hardtanh_backward": (_like_operands, None),
    "huber_loss_backward": (_contiguous, None),
    "log_sigmoid_forward": (_contiguous, "cpu"),
    "logit_backward": (_like_operands, None),
    "mse_loss_backward": (_contiguous, None),
    "native_batch_norm": (lambda tensors: _suggested(tensors[0]), "cpu"),
    "native_batch_norm_backward": (lambda tensors: _suggested(tensors[1]), "cpu"),
    "native_layer_norm_backward": (_contiguous, None),
    "smooth_l1_loss_backward": (_contiguous, None),
    "softplus_backward": (_like_operands, None),
    "xlogy": (_like_operands, None),
}
OPERATORS = frozenset(_RULES)


def corrected(operator, args, result):
    """`result` of `operator(*args)` with the strides of the kernel's; call it under the mode that made it."""
    rule, device = _RULES.get(operator.overloadpacket.__name__, (None, None))
    several = isinstance(result, (tuple, list))
    first = result[0] if several else result
    if rule is None or first is None or first.dim() < 2 or (device is not None and first.device.type != device):
        return result
    wanted = rule([value for value in args if isinstance(value, torch.Tensor)])
    if wanted.shape != first.shape or wanted.stride() == first.stride():
        return result
    first = first.new_empty_strided(first.shape, wanted.stride())
    return type(result)([first, *result[1:]]) if several else first
