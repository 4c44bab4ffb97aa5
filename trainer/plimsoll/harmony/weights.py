"""Parameters and buffers of a model in host memory, as GPUs get them, and layers that run with what a GPU has got of them."""

import contextlib
import threading

import torch


class HostWeights:
    """The model's own tensors, in pinned memory where there are GPUs. With a precision there is a copy of each in it beside them, which
    is what moves: it is made anew once its tensor has changed. The updates' thread and the executor may call refresh() and source()."""

    def __init__(self, tensors, device, precision):
        self._copies = {}  # tensor -> [its copy, the tensor's version in it]
        self._lock = threading.Lock()
        for tensor in tensors:
            if precision is not None and tensor.is_floating_point() and tensor.dtype != precision:
                self._copies[tensor] = [device.host_tensor(tensor.shape, precision), None]
            else:
                tensor.data = device.pinned(tensor.data)

    def bytes_of_copies(self, tensors):
        """Of the copies that move in place of these."""
        return sum(copy[0].numel() * copy[0].element_size() for copy in map(self._copies.get, tensors) if copy is not None)

    def source(self, tensor):
        """What is brought to a GPU."""
        self.refresh((tensor,))
        return self._copies[tensor][0] if tensor in self._copies else tensor

    def refresh(self, tensors, updated=False):
        """`updated`: by an optimizer, whose fused step does not change the tensors' versions."""
        with self._lock, torch.no_grad():
            for tensor in tensors:
                copy = self._copies.get(tensor)
                if copy is not None and (updated or copy[1] != tensor._version):
                    copy[0].copy_(tensor)
                    copy[1] = tensor._version


class PlacedLayer:
    """A layer that runs with other tensors than its own."""

    def __init__(self, layer):
        self.layer = layer
        names, self._places = {}, []  # a tensor's first name; (the module's dictionary, the key in it, that name)
        for prefix, module in layer.named_modules():
            for held in (module._parameters, module._buffers):
                for key, tensor in held.items():
                    if tensor is not None:
                        name = names.setdefault(tensor, f"{prefix}.{key}" if prefix else key)
                        self._places.append((held, key, name))
        self.names = tuple(names.values())

    @contextlib.contextmanager
    def _with(self, tensors):
        own = [held[key] for held, key, _ in self._places]
        try:
            for held, key, name in self._places:
                held[key] = tensors[name]
            yield
        finally:
            for (held, key, _), tensor in zip(self._places, own):
                held[key] = tensor

    def __call__(self, tensors, value):
        """The result for `value`, a tuple or list of arguments or the only one, with `tensors` by the layer's names."""
        with self._with(tensors):
            return self.layer(*value) if isinstance(value, (list, tuple)) else self.layer(value)
