"""Compares a recording without memory with a real run of the same iteration, operator by operator.

Code may take another path for tensors without memory than for real ones. Where the iteration is small enough, `export` runs it
for real at a small batch, and what differs becomes notes of the trace.
"""

import difflib
import math

from .recorder import NEVER

BATCH = 2
MAX_BYTES = 1 << 30  # of all storages of the iteration
MAX_OPERATIONS = 5e10  # of its matrix products and convolutions: seconds on one core
_SHOWN = 5


def _elements(recording, row):
    return math.prod(recording.tensors[row][1])


def _operations(recording, operator):
    """Multiplications of a product of matrices: the root of the product of its three sizes. A bound for batched ones, and a
    kernel's side too few for convolutions."""
    if not any(part in operator.name for part in ("mm", "conv", "attention")):
        return 0
    sizes = sorted(_elements(recording, row) for row in {*operator.inputs, *operator.outputs} if row != NEVER)
    return math.sqrt(math.prod(sizes[-3:])) if len(sizes) >= 3 else 0


def is_small(recording):
    """Whether a real run of this iteration takes seconds and little memory."""
    return sum(storage.bytes for storage in recording.storages) <= MAX_BYTES \
        and sum(_operations(recording, operator) for operator in recording.operators) <= MAX_OPERATIONS


def _names(operators):
    names = [operator.name for operator in operators[:3]]
    return ", ".join(names) + (f" and {len(operators) - 3} more" if len(operators) > 3 else "") if names else "nothing"


def differences(recorded, real):
    """One text for each place where two recordings at one batch size run other operators, or on other shapes."""
    def steps(recording):
        return [(op.name, recording.modules[op.module]) for op in recording.operators]

    def shapes(recording, operator):
        return [None if row == NEVER else recording.tensors[row][1] for row in operator.outputs]

    found = []
    first, second = steps(recorded), steps(real)
    blocks = [("equal", 0, len(first), 0, len(second))] if first == second \
        else difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    for kind, begin, end, real_begin, real_end in blocks:
        if kind != "equal":
            path = (first[begin:end] or second[real_begin:real_end])[0][1] or "the model"
            found.append(f"in {path} a real run executes {_names(real.operators[real_begin:real_end])} where the recording has "
                         f"{_names(recorded.operators[begin:end])}")
            continue
        for one, other in zip(recorded.operators[begin:end], real.operators[real_begin:real_end]):
            if shapes(recorded, one) != shapes(real, other):
                path = recorded.modules[one.module] or "the model"
                found.append(f"in {path} a real run of {one.name} makes {shapes(real, other)}, the recording {shapes(recorded, one)}")
    more = [f"and {len(found) - _SHOWN} more differences from a real run"] if len(found) > _SHOWN else []
    return found[:_SHOWN] + more
