"""Values of small tensors among tensors without memory, so that code that looks at them runs as in a real iteration.

Position ids, masks and lengths are made by factories (arange, ones, randint, rand) and hold no parameter. `KnownValues` is a
TorchDispatchMode between a Recorder and FakeTensorMode. It computes such tensors twice: without memory, and for real on the
CPU. When code asks for a value (`if mask.all():`, `lengths.max().item()`), the answer is that of the real twin. Tensors that
depend on a parameter or on a large input have no twin, and asking for their values is an error as before.

One iteration, one thread.
"""

import weakref

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from .recorder import storage_of

# A twin costs memory and time, so large tensors have none; floating-point ones are rarely looked at.
_INTEGER_ELEMENTS = 1 << 22
_FLOAT_ELEMENTS = 1 << 12
_ASKS = frozenset(getattr(torch.ops.aten, name).default for name in ("_local_scalar_dense", "equal", "is_nonzero")
                  if hasattr(torch.ops.aten, name))
_HAVE_NO_VALUES = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided")


def _leaves(values):
    for value in values:
        if type(value) in (list, tuple):
            yield from _leaves(value)
        else:
            yield value


def _address(tensor):
    return torch._C._storage_id(tensor)


def _small(tensor):
    limit = _FLOAT_ELEMENTS if tensor.is_floating_point() or tensor.is_complex() else _INTEGER_ELEMENTS
    return tensor.layout is torch.strided and tensor.numel() <= limit


class KnownValues(TorchDispatchMode):
    def __init__(self, is_fake):
        """`is_fake(tensor)`: whether a tensor is one without memory; all others are values already."""
        super().__init__()
        self._is_fake = is_fake
        self._twins = {}  # id of a tensor without memory -> (weak reference to it, its twin)
        self._stale = {}  # address -> storage of twins, into which a tensor without a twin was written

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        twins = self._twins_of(args, kwargs)
        if operator in _ASKS and twins is not None:
            with no_dispatch():
                return operator(*twins[0], **twins[1])
        result = operator(*args, **kwargs)
        known = twins is not None and self._has_values(operator, result) and self._compute(operator, twins, result)
        if not known and any(a.alias_info is not None and a.alias_info.is_write for a in operator._schema.arguments):
            self._forget(args, kwargs)
        return result

    def know(self, tensor, value):
        """From here on the values of `tensor`, which has no memory, are those of `value` where it is small."""
        if _small(value):
            self._know(tensor, value)

    def _twin(self, tensor):
        """The values of a tensor, or None."""
        if not self._is_fake(tensor):
            return tensor
        entry = self._twins.get(id(tensor))
        if entry is None or entry[0]() is not tensor or _address(entry[1]) in self._stale:
            return None
        return entry[1]

    def _twins_of(self, args, kwargs):
        """(args, kwargs) with values for tensors; None where one has no values."""
        for value in _leaves((*args, *kwargs.values())):
            if isinstance(value, torch.Tensor) and self._twin(value) is None:
                return None

        def convert(value):
            if isinstance(value, torch.Tensor):
                return self._twin(value)
            if type(value) in (list, tuple):
                return type(value)(convert(v) for v in value)
            return torch.device("cpu") if isinstance(value, torch.device) else value

        return [convert(v) for v in args], {k: convert(v) for k, v in kwargs.items() if k != "pin_memory"}

    def _has_values(self, operator, result):
        tensors = [value for value in _leaves((result,)) if isinstance(value, torch.Tensor)]
        return bool(tensors) and all(self._is_fake(tensor) and _small(tensor) for tensor in tensors) \
            and operator._schema.name not in _HAVE_NO_VALUES

    def _compute(self, operator, twins, result):
        """Whether the results have values now: the CPU may lack the operator."""
        try:
            with no_dispatch():
                values = operator(*twins[0], **twins[1])
        except (RuntimeError, NotImplementedError):
            return False
        for tensor, value in zip(_leaves((result,)), _leaves((values,))):
            if isinstance(tensor, torch.Tensor) and isinstance(value, torch.Tensor) and tensor.shape == value.shape:
                self._know(tensor, value)
        return True

    def _know(self, tensor, value):
        identity = id(tensor)
        reference = weakref.ref(tensor, lambda _: self._twins.pop(identity, None))
        self._twins[identity] = (reference, value)

    def _forget(self, args, kwargs):
        """What was written has unknown values now, as has all that shares its memory."""
        for value in _leaves((*args, *kwargs.values())):
            if isinstance(value, torch.Tensor) and id(value) in self._twins:
                self._stale[_address(self._twins[id(value)][1])] = storage_of(self._twins[id(value)][1])
