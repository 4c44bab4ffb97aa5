"""Gradients in host memory: as they left the devices, until their layer is updated. Not thread-safe, but for what take() has given."""

import torch


class HostGradients:
    """Of an iteration. Nothing waits here for a device: what the executor starts to bring may be used after its departure."""

    def __init__(self):
        self._parts = {}  # parameter -> what has left for it, in the type that it left in: several where layers share it

    def add(self, device, parameter, gradient):
        part = device.host_tensor(gradient.shape, gradient.dtype)
        device.take_back(gradient, part, "gradients_out")
        self._parts.setdefault(parameter, []).append(part)

    def norms(self, parameters):
        """Of each one's gradient."""
        return torch.stack([whole(self._parts[parameter], parameter.dtype).norm() for parameter in parameters])

    def take(self, parameters):
        """The parts of each one, for give()."""
        return [self._parts.pop(parameter) for parameter in parameters]


def whole(parts, dtype):
    """Their sum in the parameter's type. Only one part of that type is it itself, and no copy."""
    gradient = parts[0].to(dtype)
    for part in parts[1:]:
        gradient.add_(part)
    return gradient


def give(parameters, parts, scale=None):
    """Each parameter its gradient, times `scale`; frees the parts one by one."""
    for parameter in reversed(parameters):
        parameter.grad = whole(parts.pop(), parameter.dtype)
        if scale is not None:
            parameter.grad.mul_(scale)
