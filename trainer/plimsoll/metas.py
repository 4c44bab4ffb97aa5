"""Remembers what operators make of tensors without memory, because FakeTensorMode takes a millisecond to find it out.

Shapes, strides, types and devices of results, and which of them are views of which argument, follow from those of the
arguments. A model runs the same few hundred calls over and over, so `Metas.run` asks PyTorch once for each. It does not
remember calls whose answer depends on more: values that PyTorch knows, complex and sparse tensors, tensors that change their
shape in place, storages of unusual size.

One iteration, one thread.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch

from . import layouts

_PLAIN = frozenset([int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format])
_CHANGE_STORAGE = ("aten::set_", "aten::resize_", "aten::resize_as_", "aten::set_data")
_META = torch.device("meta")
_protect = getattr(torch._C, "_set_warn_deprecated_on_mutable_data_ptr", lambda tensor: None)  # as FakeTensor.__new__ of torch 2


class _NotRemembered(Exception):
    pass


class _Result:
    """A result to be made again: argument `source` itself, a view of it (`is_alias`: of the same shape and place), or a new tensor
    (`source` None)."""

    __slots__ = ("source", "is_view", "is_alias", "shape", "stride", "offset", "dtype", "device", "state")


def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()


def changes_shape(operator):
    """Whether it changes the shape or the storage of its first argument."""
    return torch.Tag.inplace_view in operator.tags or operator._schema.name in _CHANGE_STORAGE


def _key_of(values, tensors):
    """A hashable that says all that matters of the arguments; their tensors are added to `tensors`."""
    parts = []
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None:
                raise _NotRemembered
            tensors.append(value)
            parts.append((value.shape, value.stride(), value.storage_offset(), value.dtype, value.fake_device))
        elif kind is list or kind is tuple:
            parts.append(_key_of(value, tensors))
        elif kind in _PLAIN:
            parts.append(kind)  # 1, 1.0 and True are equal
            parts.append(value)
        else:
            raise _NotRemembered
    return tuple(parts)


def _form(tensor):
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype


class Metas:
    def __init__(self):
        self._results = {}  # key of a call -> (type of the result, its _Results), or None where it is not remembered

    def run(self, operator, args, kwargs):
        """`operator(*args, **kwargs)` under FakeTensorMode, with the strides of the real kernels."""
        tensors = []
        with torch._C.DisableTorchFunction():  # a default device would look at each shape that is read
            try:
                # Not the operator itself, whose hash is a function of Python.
                key = (id(operator), _key_of(args, tensors), (tuple(kwargs), _key_of(kwargs.values(), tensors)) if kwargs else None)
            except (_NotRemembered, RuntimeError):  # a sparse tensor has no strides
                key = None
            remembered = self._results.get(key)
            if remembered is not None:
                container, results = remembered
                if container is None:
                    return self._make(results[0], tensors)
                return container([self._make(result, tensors) for result in results])
        result = layouts.corrected(operator, args, operator(*args, **kwargs))
        if key is not None and key not in self._results:
            try:
                if _key_of(args, []) != key[1]:  # resize_ and others change their argument
                    raise _NotRemembered
                self._results[key] = self._remembered(operator, tensors, result)
            except _NotRemembered:
                self._results[key] = None
        return result

    def _remembered(self, operator, tensors, result):
        if changes_shape(operator) or any(tensor.dtype.is_complex for tensor in tensors):
            raise _NotRemembered
        container = type(result) if type(result) in (list, tuple) else None
        results, owners, made_here = [], {torch._C._storage_id(tensor): index for index, tensor in enumerate(tensors)}, set()
        for tensor in result if container else [result]:
            if tensor is None:
                results.append(None)
                continue
            if type(tensor) is not FakeTensor or tensor.constant is not None or tensor.layout is not torch.strided \
                    or tensor.dtype.is_complex:
                raise _NotRemembered
            made = _Result()
            results.append(made)
            made.is_view = False
            made.source = next((index for index, argument in enumerate(tensors) if argument is tensor), None)
            if made.source is not None:
                continue
            made.shape, made.stride, made.offset = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
            made.dtype, made.device, made.state = tensor.dtype, tensor.fake_device, dict(vars(tensor))
            address = torch._C._storage_id(tensor)
            made.source = owners.get(address)
            made.is_view = made.source is not None
            if made.is_view:
                made.is_alias = _form(tensors[made.source]) == _form(tensor)
            else:
                with no_dispatch():
                    again = torch.empty_strided(made.shape, made.stride, dtype=made.dtype, device="meta")
                if address in made_here or made.offset or storage_of(again).nbytes() != storage_of(tensor).nbytes():
                    raise _NotRemembered
                made_here.add(address)
        return container, results

    @staticmethod
    def _make(result, tensors):
        if result is None:
            return None
        if result.source is not None and not result.is_view:
            return tensors[result.source]
        guard = torch._C._DisableTorchDispatch()  # no_dispatch() in a third of the time
        if not result.is_view:
            meta = torch.empty_strided(result.shape, result.stride, dtype=result.dtype, device=_META)
        else:
            meta = tensors[result.source]
            if meta.dtype is not result.dtype:
                meta = torch.empty_strided((), (), dtype=result.dtype, device=_META)
                meta.set_(storage_of(tensors[result.source]), result.offset, result.shape, result.stride)
            elif not result.is_alias:
                meta = torch.as_strided(meta, result.shape, result.stride, result.offset)
        made = torch.Tensor._make_subclass(FakeTensor, meta, False, dispatch_device=True, device_for_backend_keys=result.device)
        del guard
        _protect(made)
        made.__dict__ = result.state.copy()
        return made
