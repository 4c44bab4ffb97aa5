"""The optimizer's step on the host. Pure."""

import torch


def with_fused_step(optimizer):
    """The same optimizer, with PyTorch's fused step, which passes over its tensors once. From 2.4 on PyTorch has it for the CPU, but takes
    it only when it is told to (tests/accuracy/harmony_on_gpu.py prints what it is worth). What the user has chosen (fused, foreach or
    differentiable) stays, and so does an optimizer that has no such step."""
    for group in optimizer.param_groups:
        undecided = "fused" in group and group["fused"] is None and not group.get("foreach") and not group.get("differentiable")
        if undecided and torch.__version__ >= "2.4" and all(parameter.is_floating_point() for parameter in group["params"]):
            group["fused"] = True
    return optimizer
