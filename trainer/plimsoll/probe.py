"""Measures the temporaries of CPU kernels: runs each distinct kernel of a recording once, alone, on dummy tensors.

A recording at ATen level cannot show temporaries of a kernel (layout changes of oneDNN, im2col buffers, sort buffers), and
they depend on the machine's instruction set and threads. Kernels are small compared with a model: their operands are created
for one operator at a time, filled with zeros, and freed. torch.profiler reports each allocation and free. The storages of
results are corrected, too, where the real kernel keeps another number of bytes than its shape function says.
"""

import math

import torch
from torch.profiler import ProfilerActivity, profile

from .recorder import NEVER, Row, storage_of

LARGEST_OPERATOR_BYTES = 512 << 20  # operands and results of one kernel; with larger ones nothing is measured
_MARK = 1299709  # bytes of the blocks that frame a kernel in the list of events; a prime that no tensor of floats has
_UNSAFE = frozenset(["aten::set_", "aten::resize_", "aten::resize_as_", "aten::_local_scalar_dense", "aten::record_stream"])


def largest_operator(recording):
    """Bytes of the operands and results of the largest operator."""
    sizes = {}  # of an element of each type

    def bytes_of(row):
        _, shape, _, dtype = row
        if dtype not in sizes:
            sizes[dtype] = torch.empty((), dtype=dtype).element_size()
        return math.prod(shape) * sizes[dtype]

    every = [bytes_of(row) for row in recording.tensors] + [0]  # the last is NEVER's
    return max((sum(every[t] for t in {*op.inputs, *op.outputs}) for op in recording.operators), default=0)


def _signature(recording, operator):
    tensors = recording.tensors

    def plain(value):
        kind = type(value)
        if kind is Row:
            return tensors[value.index][1:]
        if kind is list or kind is tuple:
            return tuple([plain(v) for v in value])
        return repr(value)

    function, args, kwargs = operator.call
    same = {}  # which arguments share storage matters to in-place kernels
    order = tuple([same.setdefault(tensors[t][0], len(same)) for t in operator.inputs if t != NEVER])
    # Not the operator itself, whose hash is a function of Python. The recording keeps it, and so its id.
    return id(function), plain(args), tuple([(k, plain(v)) for k, v in sorted(kwargs.items())]), order


def _dummy(row):
    _, shape, stride, dtype = row
    tensor = torch.empty_strided(shape, stride, dtype=dtype)
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
    if extent:
        torch.as_strided(tensor, (extent,), (1,)).zero_()
    return tensor


class _Probe:
    def __init__(self, recording):
        self._recording = recording
        self._kept = {}  # storage -> a result that later kernels need unchanged: oneDNN's workspaces
        self._made = {}  # signature -> such results, by their place
        self.sizes = {}  # signature -> bytes of each result's storage
        self.order = []

    def _operand(self, value):
        if isinstance(value, Row):
            row = self._recording.tensors[value.index]
            kept = self._kept.get(row[0])
            if kept is None and row[3] is torch.uint8 and self._recording.storages[row[0]].allocated_at != NEVER:
                raise ValueError("a workspace that no kernel has filled")
            return kept if kept is not None else _dummy(row)
        if isinstance(value, (list, tuple)):
            return type(value)(self._operand(v) for v in value)
        return value

    def run(self, operator, signature):
        function, args, kwargs = operator.call
        try:
            operands = self._operand(args)
            named = {k: self._operand(v) for k, v in kwargs.items()}
        except Exception:
            return
        torch.empty(_MARK, dtype=torch.uint8)
        try:
            result = function(*operands, **named)
        except Exception:
            result = None
        torch.empty(_MARK, dtype=torch.uint8)
        self.order.append(signature)
        if result is None:
            return
        results = result if isinstance(result, (tuple, list)) else [result]
        sizes = []
        for row, tensor in zip(operator.outputs, results):
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and row != NEVER:
                sizes.append(storage_of(tensor).nbytes())
                if tensor.dtype is torch.uint8:
                    self._made.setdefault(signature, {})[len(sizes) - 1] = tensor
            else:
                sizes.append(None)
        self.sizes[signature] = sizes

    def keep_workspaces(self, operator, signature):
        for place, tensor in self._made.get(signature, {}).items():
            self._kept[self._recording.tensors[operator.outputs[place]][0]] = tensor


def _events(profiler):
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    if events and hasattr(events[0], "start_ns"):
        events.sort(key=lambda e: e.start_ns())
    return [e.nbytes() for e in events]


def _temporaries(order, events):
    """Signature -> its peak beyond what it keeps, from the events between pairs of marks."""
    found, inside, kernels, live, peak = {}, False, iter(order), 0, 0
    position = 0
    while position < len(events):
        if events[position:position + 2] == [_MARK, -_MARK]:
            if inside:
                found[next(kernels)] = max(0, peak - max(live, 0))
            inside, live, peak = not inside, 0, 0
            position += 1
        elif inside:
            live += events[position]
            peak = max(peak, live)
        position += 1
    return found


def measure(recording):
    """(temporaries, unmeasured) of a recording: {operator index: bytes} and the indices that could not be run.

    Corrects the bytes of storages in the recording. Call it outside any dispatch mode.
    """
    probe = _Probe(recording)
    signatures = []
    with torch.enable_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        numbers = {}  # of the signatures, whose hashes take long
        for index, operator in enumerate(recording.operators):
            if index in (0, recording.loss_end):
                torch.set_grad_enabled(index < recording.loss_end)  # oneDNN's recurrent kernels keep a workspace only then
            signature = None
            if operator.name not in _UNSAFE:
                known = len(numbers)
                signature = numbers.setdefault(_signature(recording, operator), known)
                if signature == known:
                    probe.run(operator, signature)
                probe.keep_workspaces(operator, signature)
            signatures.append(signature)
    found = _temporaries(probe.order, _events(profiler))
    temporaries, unmeasured = {}, []
    for index, (operator, signature) in enumerate(zip(recording.operators, signatures)):
        if signature not in probe.sizes:
            unmeasured.append(index)
            continue
        if found.get(signature):
            temporaries[index] = found[signature]
        for row, size in zip(operator.outputs, probe.sizes[signature]):
            if row != NEVER and size is not None:
                storage = recording.storages[recording.tensors[row][0]]
                if storage.allocated_at == index:
                    storage.bytes = size
    return temporaries, unmeasured
