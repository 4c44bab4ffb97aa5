"""Records one training iteration at ATen level: operators in order, storages, and when each storage is freed.

A `Recorder` is a TorchDispatchMode. It is above FakeTensorMode (tensors without memory) or above real kernels, and sees every
operator below autograd, whichever composite called it. Lifetimes are not inferred: a weak reference to each tensor shows when
Python's and autograd's own references are gone, and hooks for saved tensors show what autograd keeps for backward.
Time is the number of operators recorded so far. Not thread-safe: one iteration, one thread, one recorder.
"""

import contextlib
import dataclasses
import typing
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from . import places
from .metas import changes_shape, storage_of

NEVER = -1


@dataclasses.dataclass(eq=False)
class StorageRecord:
    """One storage. `references` counts live tensors; `saved` those that autograd keeps.

    `key` is its address. `weak` reserves that address, though not the memory, so that no other storage gets it.
    """

    bytes: int
    allocated_at: int
    key: int
    weak: StorageWeakRef
    released_at: int = NEVER
    first_released_at: int = NEVER
    references: int = 0
    saved: int = 0
    role: str = None
    first_tensor: int = NEVER
    backward_reader: str = None  # the operator of backward that read it before any was seen to make it


class Row(typing.NamedTuple):
    """Stands for a tensor in the arguments of a recorded call."""

    index: int


class OperatorRecord(typing.NamedTuple):
    """One executed operator; tensors are indices of `Recording.tensors`, NEVER for an absent one.

    `call` is (ATen overload, args, kwargs) with a Row for each tensor.
    """

    name: str
    module: int
    attributes: dict
    inputs: list
    outputs: list
    call: tuple


@dataclasses.dataclass(eq=False)
class SavedRecord:
    tensor: int
    packed_at: int
    unpacked_at: int = NEVER
    released_at: int = NEVER


class PackedNumber(typing.NamedTuple):
    """Among fakes, a plain tensor is a Python number that autograd wrapped: it takes no memory, and tells the module."""

    tensor: torch.Tensor
    module: int


class UserPacked:
    """What a saved-tensor hook of the user's returned, until its node has run."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


@dataclasses.dataclass(eq=False)
class Packed:
    """What autograd holds instead of a saved tensor, until it no longer needs the tensor."""

    recorder: "Recorder"
    record: SavedRecord
    tensor: torch.Tensor
    storages: tuple
    module: int
    released: bool = False

    def __del__(self):
        self.recorder.release_saved(self)


class _TensorRef(weakref.ref):
    """A weak reference to a tensor, which knows the id that it had."""

    __slots__ = ("identity",)


@dataclasses.dataclass(eq=False)
class EngineSum:
    """A sum of two gradients that arrived at one place, whose result has no row yet.

    Whether autograd's engine would add in place is seen once it has dropped its own reference to `old`, the first gradient:
    other nodes that still wait for the same gradient keep it alive, and no count that Python can read shows them.
    """

    operator: int
    row: int
    first_released_at: int
    old: weakref.ref
    result: weakref.ref


class Recording:
    """The outcome: plain lists, no tensors."""

    def __init__(self):
        self.storages = []
        self.tensors = []  # (storage, sizes, strides, dtype)
        self.operators = []
        self.saved = []
        self.forward_end = 0
        self.loss_end = 0
        self.parameters = []
        self.buffers = []
        self.notes = []  # what the recording does not show
        self.places = []  # of the operators in the user's code, where that is asked for
        self.hooks = []  # the user's saved-tensor hooks, by name and module
        self.tables = []  # embedding tables that it looks up, as docs/graph.md describes them
        self.assumed = {}  # place in the user's code -> the answer that it got about a value that is not known
        self.sums = []  # operators by which autograd's engine summed two gradients


class OperatorKind:
    """What a Recorder needs to know of an ATen overload, computed once."""

    __slots__ = ("overload", "name", "names", "tensors", "writes", "reshapes", "is_view", "makes_constants", "copies", "adds")

    def __init__(self, operator):
        schema = operator._schema
        self.overload = operator
        self.name = schema.name
        self.names = [argument.name for argument in schema.arguments]
        self.tensors = ["Tensor" in str(argument.type) for argument in schema.arguments]
        self.writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        self.reshapes = self.writes and changes_shape(operator)
        self.makes_constants = self.name in _MAKES_CONSTANTS
        self.is_view = not self.writes and not self.makes_constants and any(r.alias_info is not None for r in schema.returns)
        self.copies = operator is _CLONE
        self.adds = operator is _ADD


class LiveTensor(typing.NamedTuple):
    """What is known of a tensor until it ends. `row` holds while its storage and shape are these."""

    reference: weakref.ref
    storages: tuple
    row: int = None
    key: int = None
    shape: tuple = None


def _dense(tensor):
    """Non-overlapping and dense: its strides are those of a contiguous tensor in some order of dims."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


_ENGINE_ADDS_IN_PLACE = int(torch.__version__.split(".")[0]) >= 2
_ADD, _ADD_IN_PLACE = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor
_CLONE = torch.ops.aten.clone.default
DETACH = torch.ops.aten.detach.default
_MAKES_CONSTANTS = ("aten::lift_fresh", "aten::lift")  # torch.tensor() makes a tensor unseen and passes it to one of these
_NUMBER_BYTES = 16  # autograd turns numbers into tensors unseen; the widest is complex128
_PRIM_DEVICE = torch.ops.prim.device.default
_ADOPTED = frozenset([FakeTensor, int, float, bool, type(None)])  # the usual arguments, which need no conversion
_new = tuple.__new__  # makes a named tuple in half the time
_layout_of = torch.Tensor.layout.__get__  # FakeTensor's own property takes longer
_SKIPPED_ARGUMENTS = frozenset(["generator", "device", "layout", "pin_memory", "memory_format", "size", "self", "out"])


def _plain(value):
    """A non-tensor argument as JSON can hold it, or None."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, torch.dtype):
        return str(value)[6:]
    if isinstance(value, (list, tuple)) and all(isinstance(v, (bool, int)) for v in value):
        return list(value)
    return None


class Recorder(TorchDispatchMode):
    def __init__(self, device="cpu", run=None, adopt=None, with_places=False):
        """Counts the memory of `device`. `run(operator, args, kwargs)` runs an operator on fakes; `adopt` turns a real tensor among
        them into a fake."""
        super().__init__()
        self._device = device
        self._with_places = with_places
        self.recording = Recording()
        self.module = 0
        self.active = True
        self._run = run or (lambda operator, args, kwargs: operator(*args, **kwargs))
        self._adopt = adopt
        self._kinds = {}
        self._tensors = {}  # id of a tensor -> LiveTensor
        self._rows = {}
        self._by_key = {}
        self._aliases = {}
        self._unpacked = set()
        self._sum = None  # the EngineSum that was recorded last, until the next operator
        self._of_this_node = None  # saved tensors that the running node unpacked, where nodes are run one by one
        self._paused = False
        self.in_backward = False

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else torch 2 imports its compiler, and passes each operator through it

    # -- operators ---------------------------------------------------------------------------------------------------
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator is _PRIM_DEVICE:
            return args[0].fake_device if type(args[0]) is FakeTensor else args[0].device
        if operator is DETACH and not isinstance(args[0], torch.Tensor):
            return torch.tensor(args[0])  # torch 1.13 passes a number that autograd wrapped as a number
        kwargs = kwargs or {}
        if self._adopt is not None:
            if not _ADOPTED.issuperset(map(type, args)):
                args = [value if type(value) in _ADOPTED else self._adopt_one(value) for value in args]
            if kwargs:
                kwargs = {k: self._adopt_one(v) for k, v in kwargs.items()}
        result = self._run(operator, args, kwargs)
        if not self._paused:
            with torch._C.DisableTorchFunction():  # a default device would look at each shape that is read
                self._record(operator, args, kwargs, result)
        return result

    @contextlib.contextmanager
    def _pause(self):
        """Operators within the block are not recorded."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _adopt_one(self, value):
        if isinstance(value, torch.Tensor):
            return self._adopt(value)
        if type(value) in (list, tuple) and not _ADOPTED.issuperset(map(type, value)):
            return type(value)(self._adopt_one(v) for v in value)
        return value

    def _record(self, operator, args, kwargs, result):
        kind = self._kinds.get(id(operator))  # not the operator itself, whose hash is a function of Python
        if kind is None:
            kind = self._kinds[id(operator)] = OperatorKind(operator)
        if self._sum is not None:
            self._settle_sum()
        if kind.makes_constants:
            args, kwargs = (), {}
        if kind.reshapes:
            self._forget_rows(args)
        if kind.is_view and not kwargs and self._is_known_view(args, result):
            self.note(result)
            return
        storages = self.recording.storages
        known = len(storages)
        now = len(self.recording.operators)
        arguments = list(enumerate(args))
        if kwargs:
            arguments += [(kind.names.index(name), value) for name, value in kwargs.items()]
        inputs = []
        for index, value in arguments:
            given = type(value)
            if given is FakeTensor:
                inputs.append(self.note(value))
            elif given is int:
                continue
            elif value is None and kind.tensors[index]:
                inputs.append(NEVER)
            else:
                self._note_tensors(value, inputs, NEVER)
        if len(storages) > known:
            for storage in storages[known:]:
                storage.backward_reader = kind.name if self.in_backward and storage.bytes > _NUMBER_BYTES else None
        first_new = len(storages)
        outputs = []
        if kind.copies and self.in_backward and not self._unpacked and _layout_of(args[0]) is torch.sparse_coo:
            self._steal(args[0], result)
            return
        if kind.adds and self.in_backward and not self._unpacked and self._engine_may_add_in_place(*args[:2]):
            storage = storages[self.recording.tensors[inputs[0]][0]]
            self.recording.sums.append(now)
            self._sum = EngineSum(now, inputs[0], storage.first_released_at, weakref.ref(args[0]), weakref.ref(result))
        else:
            self._note_tensors(result, outputs, now)
        if self._sum is not None or kind.writes or len(storages) > first_new:
            rows = iter(inputs)
            made = [self._template(value, rows, kind.tensors[index]) for index, value in arguments]
            call = (kind.overload, tuple(made[:len(args)]), dict(zip(kwargs, made[len(args):])))
            self.recording.operators.append(
                OperatorRecord(kind.name, self.module, self._attributes(kind, arguments), inputs, outputs, call))
            if self._with_places:
                self.recording.places.append(places.of_call())

    def _is_known_view(self, args, result):
        """Whether nothing but a view of a known tensor was made, as by most operators."""
        for value in args:
            if type(value) is FakeTensor and id(value) not in self._tensors:
                return False
        return type(result) is FakeTensor and torch._C._storage_id(result) in self._by_key

    def _template(self, value, rows, may_be_absent):
        """An argument with a Row for each tensor; `rows` gives their numbers, in the order of `_note_tensors`."""
        if isinstance(value, torch.Tensor):
            row = next(rows)
            return Row(row) if _layout_of(value) is torch.strided else None
        if type(value) in (list, tuple):
            return type(value)([self._template(v, rows, True) for v in value])
        if value is None and may_be_absent:
            next(rows)
        return value

    @staticmethod
    def _attributes(kind, arguments):
        found = {}
        for index, value in arguments:
            name = kind.names[index]
            if value is not None and name not in _SKIPPED_ARGUMENTS and not isinstance(value, torch.Tensor):
                plain = _plain(value)
                if plain is not None:
                    found[name] = plain
        return found

    def _note_tensors(self, value, rows, now):
        if isinstance(value, torch.Tensor):
            rows.append(self.note(value, now))
        elif isinstance(value, (list, tuple)):
            for item in value:
                if item is None:
                    rows.append(NEVER)
                elif type(item) is not int:
                    self._note_tensors(item, rows, now)

    def _engine_may_add_in_place(self, old, new):
        """Whether autograd's engine, which sums gradients of one tensor, may do so in place without a dispatch mode.

        torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace, since torch 2: the first is dense and the last
        reference to its storage. Under any dispatch mode the engine refrains, so the recording has a new sum.
        """
        if not _ENGINE_ADDS_IN_PLACE:
            return False
        if not isinstance(new, torch.Tensor) or old.shape != new.shape or old.dtype != new.dtype:
            return False
        if old.layout is not torch.strided or new.layout is not torch.strided or not _dense(old):
            return False
        record = self.recording.storages[self.recording.tensors[self.note(old)][0]]
        return record.references == 1 and record.saved == 0

    def _settle_sum(self):
        """Decides whether the sum that was recorded last is in place; from then on its result is known."""
        engine_sum, self._sum = self._sum, None
        if engine_sum is None:
            return
        result, outputs = engine_sum.result(), []
        operator = self.recording.operators[engine_sum.operator]
        if result is None:  # freed before any operator read it
            self.recording.operators[engine_sum.operator] = operator._replace(outputs=[NEVER])
            return
        if engine_sum.old() is None:
            storage = self.recording.tensors[engine_sum.row][0]
            self._move(storage, result)
            self.recording.storages[storage].first_released_at = engine_sum.first_released_at
            operator = operator._replace(name=_ADD_IN_PLACE._schema.name, call=(_ADD_IN_PLACE, *operator.call[1:]))
        self._note_tensors(result, outputs, engine_sum.operator)
        self.recording.operators[engine_sum.operator] = operator._replace(outputs=outputs)

    def _move(self, storage, tensor):
        """The record of a storage is from here on that of another tensor's storage."""
        record = self.recording.storages[storage]
        self._by_key.pop(record.key, None)
        record.key, record.weak = torch._C._storage_id(tensor), StorageWeakRef(storage_of(tensor))
        self._by_key[record.key] = storage

    def _steal(self, gradient, clone):
        """Autograd takes a sparse gradient over as it is (accumulate_grad.h), but clones it under a dispatch mode."""
        with self._pause():
            parts = [clone._indices(), clone._values()]
        for storage, part in zip(self._tensors[id(gradient)].storages, parts):
            if self.recording.storages[storage].allocated_at != NEVER:
                self._move(storage, part)
            else:
                self._by_key[torch._C._storage_id(part)] = storage
        self.note(clone)

    # -- tensors and storages ----------------------------------------------------------------------------------------
    def note(self, tensor, now=NEVER):
        """The row of a tensor, whose end is observed from now on. For a sparse one, the row of its values; both parts count."""
        known = self._tensors.get(id(tensor))
        if known is not None:
            reference, _, row, key, shape = known
            if row is not None and reference() is tensor and shape == tensor.shape and key == torch._C._storage_id(tensor):
                return row
        if _layout_of(tensor) is not torch.strided:
            return self._note_sparse(tensor, now)
        key = torch._C._storage_id(tensor)
        storage = self._by_key.get(key)
        if storage is None:
            storage = self._new_storage(tensor, key, now)
        row = (storage, tuple(tensor.shape), tensor.stride(), tensor.dtype)
        index = self._rows.get(row)
        if index is None:
            index = self._rows[row] = len(self.recording.tensors)
            self.recording.tensors.append(row)
            if self.recording.storages[storage].first_tensor == NEVER:
                self.recording.storages[storage].first_tensor = index
        self._watch(tensor, (storage,), index, key, row[1])
        return index

    def _forget_rows(self, args):
        """An operator has changed the shape or the storage of its first argument."""
        if args and id(args[0]) in self._tensors:
            self._tensors[id(args[0])] = self._tensors[id(args[0])]._replace(row=None)

    def _note_sparse(self, tensor, now):
        if self._adopt is not None and _ENGINE_ADDS_IN_PLACE:
            raise NotImplementedError("sparse tensors without memory do not share storage as real ones do")
        with self._pause():
            parts = [tensor._indices(), tensor._values()] if tensor.layout is torch.sparse_coo else []
        rows = [self.note(part, now) for part in parts]
        self._watch(tensor, tuple(self.recording.tensors[row][0] for row in rows))
        return rows[-1] if rows else NEVER

    def _new_storage(self, tensor, key, now):
        holder = storage_of(tensor)
        index = len(self.recording.storages)
        on_card = self._device == "cpu" or tensor.device.type == self._device  # else it is in the host's memory
        size = holder.nbytes() if on_card else 0
        self.recording.storages.append(StorageRecord(size, now, key, StorageWeakRef(holder)))
        self._by_key[key] = index
        return index

    def _watch(self, tensor, storages, row=None, key=None, shape=None):
        known = self._tensors.get(id(tensor))
        if known is not None and known.reference() is tensor:
            self._tensors[id(tensor)] = _new(LiveTensor, (known.reference, known.storages, row, key, shape))
            return
        for storage in storages:
            record = self.recording.storages[storage]
            record.references += 1
            record.released_at = NEVER
        self._tensors[id(tensor)] = _new(LiveTensor, (self._ref_to(tensor), storages, row, key, shape))

    def _ref_to(self, tensor):
        reference = _TensorRef(tensor, self._tensor_ended)
        reference.identity = id(tensor)
        return reference

    def _tensor_ended(self, reference):
        entry = self._tensors.pop(reference.identity, None)
        if entry is None or not self.active:
            return
        for storage in entry.storages:
            record = self.recording.storages[storage]
            record.references -= 1
            if record.references == 0:
                record.released_at = len(self.recording.operators)
                if record.first_released_at == NEVER:
                    record.first_released_at = record.released_at

    # -- what autograd keeps -----------------------------------------------------------------------------------------
    def pack(self, tensor):
        if not self.active or self._paused:
            return tensor
        if self._adopt is not None and type(tensor) is torch.Tensor:
            return PackedNumber(tensor, self.module)
        with torch._C.DisableTorchFunction():
            return self._packed(tensor)

    def _packed(self, tensor):
        row = self.note(tensor)
        storages = self._tensors[id(tensor)].storages or (self.recording.tensors[row][0],)
        record = SavedRecord(row, len(self.recording.operators))
        self.recording.saved.append(record)
        for storage in storages:
            self.recording.storages[storage].saved += 1
        return Packed(self, record, self._alias(tensor, row), storages, self.module)

    def unpack(self, packed):
        if isinstance(packed, PackedNumber) and self.in_backward:
            self.module = packed.module
        if not isinstance(packed, Packed):
            return packed.tensor if isinstance(packed, PackedNumber) else packed
        if packed.record.unpacked_at == NEVER:
            packed.record.unpacked_at = len(self.recording.operators)
        if self.in_backward:
            self.module = packed.module
            self._unpacked.add(id(packed))
            if self._of_this_node is not None:
                self._of_this_node.append(packed)
        return packed.tensor

    def nodes_run_one_by_one(self):
        """From here on `end_of_node` says when a node's saved tensors are freed: the node itself lives on."""
        self._of_this_node = []

    def hooks_of_user(self, pack, unpack):
        """The user's saved-tensor hooks, whose results end with their node where nodes are run one by one."""
        def packed(tensor):
            return UserPacked(pack(tensor))

        def unpacked(held):
            if not isinstance(held, UserPacked):
                return unpack(held)
            if self._of_this_node is not None:
                self._of_this_node.append(held)
            return unpack(held.value)

        return packed, unpacked

    def end_of_node(self):
        for packed in self._of_this_node:
            if isinstance(packed, UserPacked):
                packed.value = None
            else:
                self.release_saved(packed)
        self._of_this_node.clear()

    def release_saved(self, packed):
        if not self.active or packed.released:
            return
        packed.released = True
        packed.record.released_at = len(self.recording.operators)
        self._unpacked.discard(id(packed))
        for storage in packed.storages:
            self.recording.storages[storage].saved -= 1

    def _alias(self, tensor, row):
        """Another tensor on the same storage, so that the end of the first one can be seen."""
        if tensor.is_leaf and tensor.requires_grad:
            return tensor
        key = (row, tensor.storage_offset())  # rows of one shape in one storage may be at other places of it
        reference = self._aliases.get(key)
        alias = reference() if reference is not None else None
        if alias is None:
            before, enabled = self._paused, torch.is_grad_enabled()
            self._paused = True
            torch._C._set_grad_enabled(False)  # no_grad() would take a tenth of a recording
            try:
                alias = self._run(DETACH, (tensor,), {})
            finally:
                self._paused = before
                torch._C._set_grad_enabled(enabled)
            self._aliases[key] = weakref.ref(alias)
            self._tensors[id(alias)] = LiveTensor(self._ref_to(alias), ())
        return alias

    # -- the end -----------------------------------------------------------------------------------------------------
    def storages_of(self, value):
        """The storages of all tensors in a nest of tuples, lists, dicts and objects with attributes."""
        self._settle_sum()
        found, seen, stack = [], set(), [value]
        while stack:
            item = stack.pop()
            if id(item) in seen:
                continue
            seen.add(id(item))
            if isinstance(item, torch.Tensor):
                self.note(item)
                found.extend(self._tensors[id(item)].storages)
            elif isinstance(item, dict):
                stack.extend(item.values())
            elif isinstance(item, (list, tuple, set)):
                stack.extend(item)
            elif hasattr(item, "__dict__") and not isinstance(item, (type, torch.nn.Module)) and not callable(item):
                stack.extend(vars(item).values())
        return found

    def finish(self):
        self._settle_sum()
        self.active = False
        self._tensors.clear()
        self._aliases.clear()
        return self.recording
