"""Tensors of samples on their way: from the user's batch, as stashes, and from one task to the next. Not thread-safe."""

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten


class HostSamples:
    """A tensor, or a structure of them, of all samples of an iteration, in host memory. Dimension 0 counts the samples."""

    def __init__(self, samples, leaves=None, form=None):
        self._samples, self._leaves, self._form = samples, leaves, form
        self._departures = {}  # samples -> what has to arrive before they are brought elsewhere

    @classmethod
    def given(cls, value, samples, what, device, precision=None):
        """The user's batch; numbers with a fraction in the precision of the computation, if one is given."""
        leaves, form = tree_flatten(value)
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                raise TypeError(f"{what} must be a tensor, or a structure of tensors; there is a {type(leaf).__name__}")
            if leaf.dim() == 0 or leaf.shape[0] != samples:
                raise ValueError(f"{what} must be tensors of {samples} samples, the plan's batchSize; one is of shape {tuple(leaf.shape)}")
        leaves = [leaf.to(precision) if precision is not None and leaf.is_floating_point() else leaf for leaf in leaves]
        return cls(samples, [device.pinned(leaf) for leaf in leaves], form)

    def take(self, device, value, begin, end, kind):
        leaves, self._form = tree_flatten(value)
        if not all(isinstance(leaf, torch.Tensor) and leaf.dim() and len(leaf) == end - begin for leaf in leaves):
            raise TypeError("a layer must return tensors, or a structure of them, whose dimension 0 counts the samples")
        if self._leaves is None:
            self._leaves = [device.host_tensor((self._samples, *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
        for leaf, whole in zip(leaves, self._leaves):
            device.take_back(leaf, whole[begin:end], kind)
        self._departures[begin, end] = device.departure()

    def bring(self, device, begin, end, kind):
        if (begin, end) in self._departures:
            device.bring_after(self._departures[begin, end])
        return tree_unflatten([device.bring(leaf[begin:end], kind) for leaf in self._leaves], self._form)


class DeviceSamples:
    """The same on the GPU that makes and uses them. Each part is used once."""

    def __init__(self):
        self._there = {}

    def take(self, device, value, begin, end, kind):
        leaves, form = tree_flatten(value)
        with device.computing():  # a copy: the layer that is given the value may change it
            self._there[begin, end] = tree_unflatten([leaf.detach().clone() for leaf in leaves], form)

    def bring(self, device, begin, end, kind):
        return self._there.pop((begin, end))


class Handed:
    """Results of a task that the next one needs, by their samples: on the GPU that takes them, or on the host."""

    def __init__(self, samples, device=None):
        self._device, self._host = device, HostSamples(samples) if device is None else None
        self._there = {}

    def put(self, source, value, begin, end):
        if self._device is None:
            self._host.take(source, value, begin, end, "hand_over_out")
            return
        leaves, form = tree_flatten(value)
        self._there[begin, end] = tree_unflatten([source.hand_to(self._device, leaf, "p2p") for leaf in leaves], form)

    def get(self, device, begin, end):
        if self._device is not None:
            return self._there.pop((begin, end))
        return self._host.bring(device, begin, end, "hand_over_in")


def in_precision(value, precision):
    """Its numbers with a fraction in that precision."""
    leaves, form = tree_flatten(value)
    return tree_unflatten([leaf.to(precision) if leaf.is_floating_point() else leaf for leaf in leaves], form)
