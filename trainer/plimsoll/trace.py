"""Makes the trace of docs/graph.md from recordings at several batch sizes."""

from fractions import Fraction

from .recorder import NEVER

ROLES = ["parameter", "buffer", "input", "output", "loss", "activation", "gradient", "backward"]


class Mismatch(Exception):
    """Two recordings are not the same operators; the message says where."""


def same_operators(first, second, batches):
    """Raises Mismatch unless both recordings are the same iteration at two batch sizes."""
    for index, (a, b) in enumerate(zip(first.operators, second.operators)):
        if a.name != b.name or len(a.inputs) != len(b.inputs) or len(a.outputs) != len(b.outputs):
            path = first.modules[a.module] or "the model"
            raise Mismatch(f"operator {index} (in {path}) is {a.name} at batch {batches[0]} and {b.name} at batch {batches[1]}")
    if len(first.operators) != len(second.operators):
        raise Mismatch(f"{len(first.operators)} operators at batch {batches[0]}, {len(second.operators)} at batch {batches[1]}")
    if len(first.storages) != len(second.storages) or len(first.saved) != len(second.saved):
        raise Mismatch(f"the same operators keep different tensors at batches {batches[0]} and {batches[1]}")
    for index, (a, b) in enumerate(zip(first.operators, second.operators)):
        if a.inputs != b.inputs or a.outputs != b.outputs:
            if [_storage_of(first, t) for t in a.inputs + a.outputs] != [_storage_of(second, t) for t in b.inputs + b.outputs]:
                raise Mismatch(f"operator {index} ({a.name}) works on other tensors at batch {batches[1]} than at {batches[0]}")


def _storage_of(recording, tensor):
    return NEVER if tensor == NEVER else recording.tensors[tensor][0]


def _number(value):
    return int(value) if value.denominator == 1 else float(value)


def line(a, b, batches):
    """The count through two points, as JSON has it."""
    if a == b:
        return a
    whole, rest = divmod(b - a, batches[1] - batches[0])
    if rest == 0:
        return [a - whole * batches[0], whole]
    slope = Fraction(b - a, batches[1] - batches[0])
    return [_number(a - slope * batches[0]), _number(slope)]


def _product(counts, factor):
    """The polynomial of a product of counts."""
    result = [Fraction(factor)]
    for count in counts:
        if isinstance(count, list):
            terms = [Fraction(c).limit_denominator(1 << 20) for c in count]
            result = [sum((result[i] * terms[k - i] for i in range(len(result)) if 0 <= k - i < len(terms)), Fraction(0))
                      for k in range(len(result) + len(terms) - 1)]
        else:
            result = [r * count for r in result]
    while len(result) > 1 and result[-1] == 0:
        result.pop()
    return _number(result[0]) if len(result) == 1 else [_number(r) for r in result]


def evaluate(count, batch):
    if not isinstance(count, list):
        return count
    return round(sum(c * batch**power for power, c in enumerate(count)))


class _Table:
    """Interned rows."""

    def __init__(self):
        self.rows = []
        self._index = {}

    def add(self, key, row=None):
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self.rows)
            self.rows.append(key if row is None else row)
        return index


class _Merger:
    def __init__(self, recordings, batches):
        self.first, self.second = recordings[0], recordings[-1 if len(recordings) < 2 else 1]
        self.batches = batches
        self.layouts, self.dtypes, self.names, self.attributes = _Table(), _Table(), _Table(), _Table()
        self.tensors = _Table()
        self.rows = {}
        self._sizes = {}
        self._bytes = {}

    def counts(self, a, b):
        if self.first is self.second:
            return list(a)
        return [line(x, y, self.batches) for x, y in zip(a, b)]

    def layout(self, shape, strides):
        contiguous, expected = True, 1
        for size, stride in zip(reversed(shape), reversed(strides)):
            if stride != expected:
                contiguous = False
                break
            expected = _product([size], 1) if expected == 1 else _product([expected, size], 1)
        row = {"shape": shape} if contiguous else {"shape": shape, "strides": strides}
        return self.layouts.add(repr(row), row)

    def sizes(self, first, second):
        """The layout of a tensor with these (shape, strides) in the two recordings."""
        key = (first, second)
        if key not in self._sizes:
            self._sizes[key] = self.layout(self.counts(first[0], second[0]), self.counts(first[1], second[1]))
        return self._sizes[key]

    def tensor(self, index, twin):
        """The row of a tensor, from its index in each recording."""
        if index == NEVER:
            return NEVER
        key = (index, twin)
        row = self.rows.get(key)
        if row is None:
            storage, shape, stride, dtype = self.first.tensors[index]
            _, shape2, stride2, _ = self.second.tensors[twin]
            if len(shape) != len(shape2):
                raise Mismatch(f"a tensor has {len(shape)} dimensions at batch {self.batches[0]} and {len(shape2)} at {self.batches[1]}")
            dtype = self.dtypes.add(dtype, str(dtype)[6:])
            row = (storage, self.sizes((shape, stride), (shape2, stride2)), dtype)
            row = self.rows[key] = self.tensors.add(row, list(row))
        return row

    def bytes(self, index, itemsize):
        """A storage's size: as the product of its first tensor's dims where that holds, which is exact at every batch."""
        a, b = self.first.storages[index], self.second.storages[index]
        if self.first is self.second or a.bytes == b.bytes:
            return a.bytes
        tensors = None
        if a.first_tensor != NEVER and b.first_tensor != NEVER:
            tensors = self.first.tensors[a.first_tensor], self.second.tensors[b.first_tensor]
        key = (a.bytes, b.bytes, tensors and (tensors[0][1], tensors[1][1], tensors[0][3]))
        if key not in self._bytes:
            self._bytes[key] = self._bytes_of(a.bytes, b.bytes, tensors, itemsize)
        return self._bytes[key]

    def _bytes_of(self, a, b, tensors, itemsize):
        if tensors is not None:
            size = _product(self.counts(tensors[0][1], tensors[1][1]), itemsize(tensors[0][3]))
            if [evaluate(size, batch) for batch in self.batches[:2]] == [a, b]:
                return size
        return line(a, b, self.batches)

    def attribute(self, a, b):
        if not a:
            return NEVER
        if a == b:
            return self.attributes.add(repr(sorted(a.items())), a)
        merged = {}
        for name, value in a.items():
            other = b.get(name)
            if type(value) is int and type(other) is int:
                merged[name] = value if value == other else {"count": line(value, other, self.batches)}
            elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
                merged[name] = [x if x == y else {"count": line(x, y, self.batches)} for x, y in zip(value, other)]
            else:
                merged[name] = value
        return self.attributes.add(repr(sorted(merged.items())), merged)


def _released(storage, saved_until):
    """When a storage was freed. One that got new references only while autograd held it counts from the first time."""
    if storage.first_released_at != NEVER and NEVER != storage.released_at <= saved_until:
        return storage.first_released_at
    return storage.released_at


def merge_temporaries(measured, batches):
    """([operator, count] rows, operators without a measure) from {operator: bytes} at one batch size, or at two."""
    rows = []
    for operator in sorted(set().union(*(temporaries for temporaries, _ in measured))):
        values = [temporaries.get(operator, 0) for temporaries, _ in measured]
        rows.append([operator, values[0] if len(values) == 1 else line(values[0], values[1], batches)])
    return rows, sorted(set().union(*(unmeasured for _, unmeasured in measured)))


def make_trace(recordings, batches, device, precision, method, notes):
    """One trace from one recording, or from two and more at as many batch sizes; Mismatch where they differ."""
    import torch

    for other, batch in zip(recordings[1:], batches[1:]):
        same_operators(recordings[0], other, (batches[0], batch))
    merger = _Merger(recordings, batches)
    first, second = merger.first, merger.second

    def itemsize(dtype):
        return torch.empty((), dtype=dtype).element_size()

    operators = []
    for a, b in zip(first.operators, second.operators):
        operators.append([merger.names.add(a.name), a.module, merger.attribute(a.attributes, b.attributes),
                          [merger.tensor(x, y) for x, y in zip(a.inputs, b.inputs)],
                          [merger.tensor(x, y) for x, y in zip(a.outputs, b.outputs)]])
    saved, saved_until = [], {}
    for a, b in zip(first.saved, second.saved):
        saved.append([merger.tensor(a.tensor, b.tensor), a.packed_at, a.unpacked_at, a.released_at])
        storage = first.tensors[a.tensor][0]
        saved_until[storage] = max(saved_until.get(storage, 0), len(first.operators) if a.released_at == NEVER else a.released_at)
    storages = [[merger.bytes(i, itemsize), ROLES.index(s.role), s.allocated_at, _released(s, saved_until.get(i, NEVER))]
                for i, s in enumerate(first.storages)]
    parameters = []
    for a, b in zip(first.parameters, second.parameters):
        row = merger.tensors.rows[merger.tensor(a["row"], b["row"])]
        entry = {"name": a["name"], "storage": row[0], "layout": row[1], "dtype": row[2], "trainable": a["trainable"],
                 "gradient": a["gradient"], "sparseGradient": a["sparse"]}
        if a["aliases"]:
            entry["aliases"] = a["aliases"]
        parameters.append(entry)
    for recording, batch in list(zip(recordings, batches))[2:]:
        for index, (row, storage) in enumerate(zip(storages, recording.storages)):
            if evaluate(row[0], batch) != storage.bytes:
                raise Mismatch(f"storage {index} has {storage.bytes} bytes at batch {batch}, not {evaluate(row[0], batch)} as batches "
                               f"{batches[0]} and {batches[1]} predict")
    return {
        "device": device, "precision": precision, "method": method, "notes": notes, "batchSizes": list(batches),
        "dtypes": merger.dtypes.rows, "roles": ROLES, "modules": first.modules, "operatorNames": merger.names.rows,
        "layouts": merger.layouts.rows, "attributes": merger.attributes.rows, "storages": storages,
        "tensors": merger.tensors.rows, "operators": operators, "saved": saved, "forwardEnd": first.forward_end,
        "lossEnd": first.loss_end, "parameters": parameters, "buffers": first.buffers,
    }
