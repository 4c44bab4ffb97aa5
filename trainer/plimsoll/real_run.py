"""Compares a recording without memory with a real run of the same iteration, operator by operator.

Code may take another path for tensors without memory than for real ones. Where the iteration is small enough, `export` runs it
for real at a small batch, and what differs becomes notes of the trace.
"""

import difflib
import itertools
import math
import typing

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .recorder import DETACH, NEVER, OperatorKind, Recording

BATCH = 2
MAX_BYTES = 1 << 30  # of all storages of the iteration
MAX_OPERATIONS = 5e10  # of its matrix products and convolutions: seconds on one core
_SHOWN = 20


class Step(typing.NamedTuple):
    """One operator: the path of its module, its line of code where that is known, and the shapes of its tensors, None for an absent
    one."""

    name: str
    path: str
    place: str
    inputs: list
    outputs: list


class Unobservable(Exception):
    """The iteration has tensors that an Observer does not understand."""


class Observer(TorchDispatchMode):
    """Lists the operators of an iteration as a Recorder would, and nothing of their storages, which takes less time."""

    def __init__(self):
        super().__init__()
        self.recording = Recording()  # of which only the notes are used
        self.operators = []  # (name, module, shapes of the results)
        self.module = 0
        self._kinds = {}
        self._in_backward = False

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # as Recorder's

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        if operator is DETACH and not isinstance(result, torch.Tensor):
            result = torch.tensor(result)  # torch 1.13 gives a number that autograd wrapped as a number
        kind = self._kinds.get(id(operator))
        if kind is None:
            kind = self._kinds[id(operator)] = OperatorKind(operator)
        with torch._C.DisableTorchFunction():
            self._observe(kind, args, kwargs, result)
        return result

    def _observe(self, kind, args, kwargs, result):
        if isinstance(result, torch.Tensor):
            results = shapes = (result,)
        else:
            shapes = [value for value in _leaves((result,)) if value is not result and (value is None or isinstance(value, torch.Tensor))]
            results = [value for value in shapes if value is not None]
        for tensor in results:
            if tensor.layout is not torch.strided:
                raise Unobservable
        if not kind.writes and not kind.makes_constants and (kind.is_view or self._are_views(results, (args, (kwargs or {}).values()))):
            return
        self.operators.append((kind.name, self.module, [None if value is None else tuple(value.shape) for value in shapes]))

    @staticmethod
    def _are_views(results, arguments):
        """Whether all results share an argument's storage: some operators make views that their schemas do not show."""
        given = {torch._C._storage_id(value) for values in arguments for value in _leaves(values)
                 if isinstance(value, torch.Tensor) and value.layout is torch.strided}
        return all(torch._C._storage_id(tensor) in given for tensor in results)

    def backward_begins(self):
        self._in_backward = True
        self.module = 0

    def pack(self, tensor):
        return tensor, self.module

    def unpack(self, packed):
        tensor, module = packed
        if self._in_backward:
            self.module = module
        return tensor

    def hooks_of_user(self, pack, unpack):
        return pack, unpack


def _leaves(values):
    for value in values:
        if type(value) in (list, tuple):
            yield from _leaves(value)
        else:
            yield value


def observed_steps(operators, modules):
    """Steps from what an Observer has seen."""
    return [Step(name, modules[module], None, [], shapes) for name, module, shapes in operators]


def _between(a, b, share):
    return a if a == b else round(a + (b - a) * share)


def steps(recordings, batches, batch):
    """(steps, bytes of all storages) of an iteration at `batch`, from a recording at that batch or from two at others: shapes
    are affine in the batch, else the two would be no trace."""
    first, second = recordings[0], recordings[min(1, len(recordings) - 1)]
    share = (batch - batches[0]) / (batches[1] - batches[0]) if second is not first else 0

    known = {}  # shapes of two recordings -> the one at `batch`

    def shape(row, twin):
        if row == NEVER:
            return None
        both = first.tensors[row][1], second.tensors[twin][1]
        if both not in known:
            known[both] = tuple([_between(a, b, share) for a, b in zip(*both)])
        return known[both]

    def shapes(rows, twins):
        return list(map(shape, rows, twins))

    made = [Step(a.name, first.modules[a.module], place, shapes(a.inputs, b.inputs), shapes(a.outputs, b.outputs))
            for a, b, place in itertools.zip_longest(first.operators, second.operators, first.places)]
    for index in first.sums:  # in place or not, which depends on who holds the gradients
        made[index] = made[index]._replace(name="aten::add", outputs=made[index].inputs[:1])
    return made, sum(_between(a.bytes, b.bytes, share) for a, b in zip(first.storages, second.storages))


def _operations(step):
    """Multiplications of a product of matrices: the root of the product of its three sizes. A bound for batched ones, and a
    kernel's side too few for convolutions."""
    if not any(part in step.name for part in ("mm", "conv", "attention")):
        return 0
    sizes = sorted(math.prod(shape) for shape in [*step.inputs, *step.outputs] if shape is not None)
    return math.sqrt(math.prod(sizes[-3:])) if len(sizes) >= 3 else 0


def is_small(iteration, total_bytes):
    """Whether a real run of this iteration takes seconds and little memory."""
    return total_bytes <= MAX_BYTES and sum(_operations(step) for step in iteration) <= MAX_OPERATIONS


def _names(iteration):
    names = [step.name for step in iteration[:3]]
    return ", ".join(names) + (f" and {len(iteration) - 3} more" if len(iteration) > 3 else "") if names else "nothing"


def _where(*iterations):
    places = [step.place for iteration in iterations for step in iteration if step.place is not None]
    return f" ({places[0]})" if places else ""


def differences(recorded, real):
    """One text for each place where the steps of two iterations at one batch size are other operators, or have other shapes."""
    found = []
    first, second = [step[:2] for step in recorded], [step[:2] for step in real]
    blocks = [("equal", 0, len(first), 0, len(second))] if first == second \
        else difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    for kind, begin, end, real_begin, real_end in blocks:
        if kind != "equal":
            path = (first[begin:end] or second[real_begin:real_end])[0][1] or "the model"
            found.append(f"in {path} a real run executes {_names(real[real_begin:real_end])} where the recording has "
                         f"{_names(recorded[begin:end])}{_where(recorded[begin:end], real[real_begin:real_end])}")
            continue
        for one, other in zip(recorded[begin:end], real[real_begin:real_end]):
            if one.outputs != other.outputs:
                found.append(f"in {one.path or 'the model'} a real run of {one.name} makes {other.outputs}, the recording {one.outputs}"
                             f"{_where([one, other])}")
    more = [f"and {len(found) - _SHOWN} more differences from a real run"] if len(found) > _SHOWN else []
    return found[:_SHOWN] + more
