"""Compares a recording without memory with a real run of the same iteration, operator by operator.

Code may take another path for tensors without memory than for real ones. Where the iteration is small enough, `export` runs it
for real at a small batch, and what differs becomes notes of the trace.
"""

import difflib
import itertools
import math
import typing

from .recorder import NEVER

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


def _between(a, b, share):
    return a if a == b else round(a + (b - a) * share)


def steps(recordings, batches, batch):
    """(steps, bytes of all storages) of an iteration at `batch`, from a recording at that batch or from two at others: shapes
    are affine in the batch, else the two would be no trace."""
    first, second = recordings[0], recordings[min(1, len(recordings) - 1)]
    share = (batch - batches[0]) / (batches[1] - batches[0]) if second is not first else 0

    def shapes(rows, twins):
        return [None if row == NEVER else tuple([_between(a, b, share) for a, b in zip(first.tensors[row][1], second.tensors[twin][1])])
                for row, twin in zip(rows, twins)]

    made = [Step(a.name, first.modules[a.module], place, shapes(a.inputs, b.inputs), shapes(a.outputs, b.outputs))
            for a, b, place in itertools.zip_longest(first.operators, second.operators, first.places)]
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
