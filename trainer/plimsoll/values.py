"""Values of small tensors among tensors without memory, so that code that looks at them runs as in a real iteration.

Position ids, masks and lengths are made by factories (arange, ones, randint, rand) and hold no parameter. `KnownValues` is a
TorchDispatchMode above FakeTensorMode. It computes such tensors twice: without memory, and for real on the CPU. When code asks
for a value (`if mask.all():`, `lengths.max().item()`), the answer is that of the real twin; `nonzero` and selections by a mask
have the size that the twin gives them.

What depends on a parameter or on a large input has no twin. Where it becomes a decision (a comparison, topk, argmax, sort), the
decision is made on standard normal numbers instead, as fresh weights give about: a router then spreads its tokens. So it is
where code asks for a floating-point number; an unknown truth value is False. `assumed` has each place that got such an answer.
Asking for an unknown whole number is an error, because sizes follow from those.

One iteration, one thread.
"""

import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from . import metas, places
from .metas import storage_of

# A twin costs memory and time, so large tensors have none; floating-point ones are rarely looked at.
_INTEGER_ELEMENTS = 1 << 22
_FLOAT_ELEMENTS = 1 << 12
_ASKS = frozenset(getattr(torch.ops.aten, name).default for name in ("_local_scalar_dense", "equal", "is_nonzero")
                  if hasattr(torch.ops.aten, name))
_NUMBER = torch.ops.aten._local_scalar_dense.default


def _overloads(*names):
    return frozenset(getattr(packet, overload) for packet in (getattr(torch.ops.aten, name, None) for name in names)
                     if packet is not None for overload in packet.overloads() if overload != "out")


_DECIDES = _overloads("gt", "ge", "lt", "le", "eq", "ne", "isnan", "isinf", "topk", "argmax", "argmin", "argsort", "sort", "_to_copy",
                      "multinomial", "bucketize", "searchsorted") | {torch.ops.aten.max.dim, torch.ops.aten.min.dim}
_FINITE = _overloads("isnan", "isinf")  # a model that trains has finite values, so their answer is no assumption
_NEEDS_POSITIVE = _overloads("multinomial")
_BY_MASK = _overloads("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
_COPY = torch.ops.aten.copy_.default
_MASKED_SELECT = torch.ops.aten.masked_select.default
_HAVE_NO_VALUES = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
                   "plimsoll::lookup")


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


class _Traits:
    """What `KnownValues.run` needs to know of an operator, found once: the operator's own hash is a function of Python."""

    __slots__ = ("operator", "asks", "by_mask", "is_masked_select", "of_dynamic_size", "decides", "is_copy", "writes", "usual")

    def __init__(self, operator):
        self.operator = operator  # keeps its id
        self.asks = operator in _ASKS
        self.by_mask = operator in _BY_MASK
        self.is_masked_select = operator is _MASKED_SELECT
        self.of_dynamic_size = torch.Tag.dynamic_output_shape in operator.tags
        self.decides = operator in _DECIDES
        self.is_copy = operator is _COPY
        self.writes = any(a.alias_info is not None and a.alias_info.is_write for a in operator._schema.arguments)
        # Without known values among its arguments it is nothing but a call.
        self.usual = not (self.asks or self.by_mask or self.is_masked_select or self.decides or self.is_copy or self.writes)


class KnownValues(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self._metas = metas.Metas()
        self._traits = {}  # id of an operator -> its _Traits
        self._twins = {}  # id of a tensor without memory -> (weak reference to it, its twin)
        self._guesses = set()  # ids of tensors whose twin follows from invented numbers
        self.assumed = {}  # place in the user's code -> the first answer that it got
        self._generator = torch.Generator().manual_seed(0)
        self._stale = {}  # address -> storage of twins, into which a tensor without a twin was written

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # as Recorder's

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return self.run(operator, args, kwargs or {})

    def run(self, operator, args, kwargs):
        """`operator(*args, **kwargs)` on tensors without memory."""
        traits = self._traits.get(id(operator))
        if traits is None:
            traits = self._traits[id(operator)] = _Traits(operator)
        twins = self._twins_of(args, kwargs) if self._all_known(args) else None
        if twins is None and traits.usual:
            return self._metas.run(operator, args, kwargs)
        if traits.asks:
            return self._answer(operator, args, kwargs, twins)
        if traits.by_mask:
            args = self._without_masks(args)
        elif traits.is_masked_select and twins is None and self._twin(args[1]) is not None:
            shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
            with no_dispatch():
                count = int(self._twin(args[1]).expand(shape).sum())
            if self._any_assumed(args):
                self._assume(f"{count} elements")
            return args[0].new_empty(count)
        elif twins is not None and traits.of_dynamic_size:
            return self._of_known_size(operator, args, twins)
        result = self._metas.run(operator, args, kwargs)
        if twins is None and traits.decides:
            self._decide(operator, args, kwargs, result)
            return result
        known = twins is not None and self._has_values(operator, result) and self._compute(
            operator, twins, result, self._any_assumed(args))
        if not known and traits.is_copy:
            known = self._fill(*args[:2])
        if not known and traits.writes:
            self._forget(args, kwargs)
        return result

    def _fill(self, tensor, source):
        """Whether a tensor that had no values has the known ones of `source` now: they were copied over all of its storage."""
        value = self._twin(source)
        if value is None or not isinstance(tensor, FakeTensor) or not _small(tensor) or not tensor.is_contiguous():
            return False
        if storage_of(tensor).nbytes() != tensor.numel() * tensor.element_size():
            return False
        with no_dispatch():
            value = value.expand(tensor.shape).to(tensor.dtype, copy=True)
        self._know(tensor, value, self._any_assumed([source]))
        return True

    def _answer(self, operator, args, kwargs, twins):
        """To code that asks for a value."""
        if twins is not None:
            with no_dispatch():
                answer = operator(*twins[0], **twins[1])
            if self._any_assumed(args):
                self._assume(answer)
            return answer
        if operator is not _NUMBER or args[0].constant is not None or not (args[0].is_floating_point() or args[0].dtype is torch.bool):
            return operator(*args, **kwargs)
        with no_dispatch():
            value = torch.zeros(args[0].shape, dtype=torch.bool, device="cpu") if args[0].dtype is torch.bool else self._invented(args[0])
        self._know(args[0], value, assumed=True)  # the same answer again
        return self._answer(operator, args, kwargs, ([value], {}))

    def _assume(self, answer):
        self.assumed.setdefault(places.of_call() or "backward", answer)

    def _any_assumed(self, args):
        return bool(self._guesses) and any(id(value) in self._guesses for value in _leaves(args))

    def _invented(self, tensor):
        return torch.randn(tensor.shape, generator=self._generator, device="cpu").to(tensor.dtype)

    def _decide(self, operator, args, kwargs, result):
        """Gives whole numbers and truth values that follow from unknown floating-point ones a twin."""
        def is_decision(tensor):
            return isinstance(tensor, FakeTensor) and not tensor.is_floating_point() and not tensor.is_complex() and _small(tensor)

        if not any(is_decision(tensor) for tensor in _leaves((result,))):
            return
        invented = {}
        for value in _leaves((*args, *kwargs.values())):
            if isinstance(value, torch.Tensor) and self._twin(value) is None and id(value) not in invented:
                if not value.is_floating_point() or value.numel() > _INTEGER_ELEMENTS or value.layout is not torch.strided:
                    return
                with no_dispatch():
                    numbers = self._invented(value)
                    invented[id(value)] = numbers.abs() if operator in _NEEDS_POSITIVE else numbers
        twins = self._twins_of(args, kwargs, invented)
        is_finite = operator in _FINITE or len(args) == 2 and args[0] is args[1]  # isnan is x != x
        self._compute(operator, twins, result, not is_finite, is_decision)

    def _without_masks(self, args):
        """The arguments of a selection with positions instead of known masks."""
        def positions(mask):
            if not isinstance(mask, FakeTensor) or mask.dtype is not torch.bool or self._twin(mask) is None:
                return [mask]
            with no_dispatch():
                count = int(self._twin(mask).sum())
            if self._any_assumed([mask]):
                self._assume(f"{count} elements")
            return [mask.new_empty(count, dtype=torch.int64) for _ in range(mask.dim())]

        if not any(isinstance(mask, torch.Tensor) and mask.dtype is torch.bool for mask in args[1]):
            return args
        return [args[0], [index for mask in args[1] for index in positions(mask)], *args[2:]]

    def _of_known_size(self, operator, args, twins):
        """A result whose size follows from values."""
        like = next(value for value in _leaves(args) if isinstance(value, FakeTensor))
        with no_dispatch():
            values = operator(*twins[0], **twins[1])
        if self._any_assumed(args):
            self._assume("of sizes " + ", ".join(str(list(value.shape)) for value in _leaves((values,))))
        made = [like.new_empty_strided(value.shape, value.stride(), dtype=value.dtype) for value in _leaves((values,))]
        for tensor, value in zip(made, _leaves((values,))):
            self._know(tensor, value, self._any_assumed(args))
        return type(values)(made) if type(values) in (list, tuple) else made[0]

    def _all_known(self, args):
        """False where an argument is clearly without a twin, which is quickly seen."""
        for value in args:
            if type(value) is FakeTensor and id(value) not in self._twins:
                return False
        return True

    def know(self, tensor, value):
        """From here on the values of `tensor`, which has no memory, are those of `value` where it is small."""
        if _small(value):
            self._know(tensor, value)

    def _twin(self, tensor):
        """The values of a tensor, or None."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        entry = self._twins.get(id(tensor))
        if entry is None or entry[0]() is not tensor or _address(entry[1]) in self._stale:
            return None
        return entry[1]

    def _twins_of(self, args, kwargs, invented=()):
        """(args, kwargs) with values for tensors; None where one has no values. `invented` has some, by id."""
        for value in _leaves((*args, *kwargs.values())):
            if isinstance(value, torch.Tensor) and id(value) not in invented and self._twin(value) is None:
                return None

        def convert(value):
            if isinstance(value, torch.Tensor):
                return invented[id(value)] if id(value) in invented else self._twin(value)
            if type(value) in (list, tuple):
                return type(value)(convert(v) for v in value)
            return torch.device("cpu") if isinstance(value, torch.device) else value

        return [convert(v) for v in args], {k: convert(v) for k, v in kwargs.items() if k != "pin_memory"}

    def _has_values(self, operator, result):
        tensors = [value for value in _leaves((result,)) if isinstance(value, torch.Tensor)]
        return bool(tensors) and all(isinstance(tensor, FakeTensor) and _small(tensor) for tensor in tensors) \
            and operator._schema.name not in _HAVE_NO_VALUES

    def _compute(self, operator, twins, result, assumed, wanted=lambda tensor: True):
        """Whether the results have values now: the CPU may lack the operator."""
        try:
            with no_dispatch():
                values = operator(*twins[0], **twins[1])
        except (RuntimeError, NotImplementedError):
            return False
        for tensor, value in zip(_leaves((result,)), _leaves((values,))):
            if isinstance(tensor, torch.Tensor) and isinstance(value, torch.Tensor) and tensor.shape == value.shape and wanted(tensor):
                self._know(tensor, value, assumed)
        return True

    def _know(self, tensor, value, assumed=False):
        identity = id(tensor)

        def ended(_):
            self._twins.pop(identity, None)
            self._guesses.discard(identity)

        self._twins[identity] = (weakref.ref(tensor, ended), value)
        if assumed:
            self._guesses.add(identity)
        else:
            self._guesses.discard(identity)

    def _forget(self, args, kwargs):
        """What was written has unknown values now, as has all that shares its memory."""
        for value in _leaves((*args, *kwargs.values())):
            if isinstance(value, torch.Tensor) and id(value) in self._twins:
                self._stale[_address(self._twins[id(value)][1])] = storage_of(self._twins[id(value)][1])
