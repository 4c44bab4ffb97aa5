"""GPUs as the executor uses them, and virtual ones on the CPU, whose memory is counted and limited.

Both bring tensors from the host and back, hand them to another device, and count the bytes by what they are. Not thread-safe.
"""

import contextlib
import os
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from ..device_budget import LiveStorages, OutOfMemoryError, budget_from_environment, out_of_memory_text
from ..signposts import CudaCard, budget_reading
from .pinned_memory import PinnedMemory
from .rates import LinkRates
from .plan import PlanError


_IN, _OUT = "hostToDeviceBytesPerSecond", "deviceToHostBytesPerSecond"  # of a signpost
_TIMED_FROM = 4 << 20  # bytes of a copy on a GPU
_MOST_TIMED = 64  # copies of an iteration, on each GPU


class DeviceOutOfMemory(OutOfMemoryError):
    """A virtual device would hold more than its budget. The text is PyTorch's own."""


class _Meter(TorchDispatchMode):
    """Counts the storages that operators make, until they are freed."""

    def __init__(self, device):
        super().__init__()
        self._device = device

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else each operator passes through PyTorch's compiler

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        for tensor in (result,) if isinstance(result, torch.Tensor) else tree_flatten(result)[0]:
            if isinstance(tensor, torch.Tensor):
                self._device.count_storage(tensor)
        return result


class VirtualDevice:
    """A part of the host's memory that stands for a GPU: what is brought to it is copied, and everything is done at once."""

    def __init__(self, index, budget_bytes=None):
        self.index, self.budget_bytes = index, budget_bytes
        self.torch_device = torch.device("cpu")
        self.moved = {}  # kind -> bytes
        self.rates = LinkRates()
        self._storages = LiveStorages()

    @property
    def live_bytes(self):
        return self._storages.sweep()

    @property
    def peak_bytes(self):
        return self._storages.peak

    def reset_peak(self):
        self._storages.peak = self._storages.sweep()

    def reading(self):
        """The memory figures of a signpost (docs/signposts.md)."""
        return budget_reading(self.peak_bytes, self.budget_bytes)

    def computing(self):
        """Within it operators run on this device."""
        return _Meter(self)

    def count_storage(self, tensor):
        if not tensor.dim():  # a GPU's optimizer has its counts of steps in host memory
            return
        before = self._storages.counted
        self._storages.add(tensor)
        if self._storages.counted > before:
            self._storages.settle(before, self.budget_bytes, self._refusal)

    def _refusal(self, wanted, allocated):
        return DeviceOutOfMemory(out_of_memory_text(wanted, allocated, self.budget_bytes, self.index))

    def bring(self, tensor, kind):
        """A copy of a host's tensor. To be used after use(arrival())."""
        source = self._counted(kind, tensor.detach())
        with self.computing(), self._timed(_IN, source):
            return source.clone()

    def hand_to(self, other, tensor, kind):
        """A copy on the other device, likewise."""
        source = self._counted(kind, tensor.detach())
        with other.computing():
            return source.clone()

    def take_back(self, tensor, into, kind):
        """Copies a tensor into one of the host, which holds it after wait_for(departure())."""
        source = self._counted(kind, tensor.detach())
        with self._timed(_OUT, source):
            into.copy_(source)

    @contextlib.contextmanager
    def _timed(self, way, tensor):
        began = time.perf_counter()
        yield
        self.rates.note(way, tensor.numel() * tensor.element_size(), time.perf_counter() - began)

    def arrival(self):
        """What is on its way to this device."""

    def use(self, arrival):
        """What is computed from here on finds it."""

    def departure(self):
        """What is on its way from this device to the host."""

    def wait_for(self, departure):
        """Returns when the host has it."""

    def wait_for_all(self):
        """Returns when all that was started here has ended."""

    def stop(self):
        """Nothing is brought or taken back from here on."""

    def bring_after(self, departure):
        """What is brought to this device from here on, but for weights, comes after what another one, or this, has sent to the host."""

    def host_tensor(self, shape, dtype):
        """For copies to and from this device."""
        return torch.empty(shape, dtype=dtype)

    def pinned(self, tensor):
        """A host's tensor where copies to this device are fastest."""
        return tensor

    def _counted(self, kind, tensor):
        self.moved[kind] = self.moved.get(kind, 0) + tensor.numel() * tensor.element_size()
        return tensor


class CudaDevice(VirtualDevice):
    """A GPU. Weights, other tensors and what goes to the host have a stream each beside the computation's. `pinned`: what it shares with
    others."""

    def __init__(self, index, budget_bytes=None, pinned=None):
        super().__init__(index, budget_bytes)
        self._pinned = pinned or PinnedMemory()
        self.torch_device = torch.device("cuda", index)
        if budget_bytes is not None:
            total = torch.cuda.get_device_properties(index).total_memory
            if budget_bytes > total:
                raise PlanError(f"deviceBytes is {budget_bytes}, and GPU {index} has {total} bytes: make a plan with a --capacity below")
            torch.cuda.set_per_process_memory_fraction(budget_bytes / total, index)
        self._compute, self._weights, self._data, self._out = (torch.cuda.Stream(index) for _ in range(4))
        self._card = CudaCard(index)
        self._timings = []  # (which way, bytes, event before, event after)

    @property
    def live_bytes(self):
        return torch.cuda.memory_allocated(self.torch_device)

    @property
    def peak_bytes(self):
        return torch.cuda.max_memory_allocated(self.torch_device)

    def reset_peak(self):
        torch.cuda.synchronize(self.torch_device)
        torch.cuda.reset_peak_memory_stats(self.torch_device)

    def reading(self):
        return self._card.read()

    @contextlib.contextmanager
    def computing(self):
        with torch.cuda.device(self.index), torch.cuda.stream(self._compute):
            yield

    def bring(self, tensor, kind):
        stream = self._weights if kind == "weights_in" else self._data
        with torch.cuda.device(self.index), torch.cuda.stream(stream), self._timed(_IN, tensor):
            there = tensor.detach().to(self.torch_device, non_blocking=True)
        there.record_stream(self._compute)
        return self._counted(kind, there)

    def hand_to(self, other, tensor, kind):
        source = self._counted(kind, tensor.detach())
        other._data.wait_stream(self._compute)
        with torch.cuda.device(other.index), torch.cuda.stream(other._data):
            there = source.to(other.torch_device, non_blocking=True)
        source.record_stream(other._data)
        there.record_stream(other._compute)
        return there

    def take_back(self, tensor, into, kind):
        source = self._counted(kind, tensor.detach())
        self._out.wait_stream(self._compute)
        with torch.cuda.device(self.index), torch.cuda.stream(self._out), self._timed(_OUT, source):
            into.copy_(source, non_blocking=True)
        source.record_stream(self._out)

    @contextlib.contextmanager
    def _timed(self, way, tensor):
        """By events on the stream, which are read once the iteration has ended."""
        size = tensor.numel() * tensor.element_size()
        if size < _TIMED_FROM or len(self._timings) >= _MOST_TIMED:
            yield
            return
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        yield
        ended.record()
        self._timings.append((way, size, began, ended))

    def arrival(self):
        return self._weights.record_event(), self._data.record_event()

    def use(self, arrival):
        for event in arrival:
            self._compute.wait_event(event)

    def departure(self):
        return self._out.record_event()

    def wait_for(self, departure):
        departure.synchronize()

    def wait_for_all(self):
        torch.cuda.synchronize(self.torch_device)
        for way, size, began, ended in self._timings:
            self.rates.note(way, size, began.elapsed_time(ended) / 1e3)
        self._timings.clear()

    def stop(self):
        self.wait_for_all()
        self._pinned.close()

    def bring_after(self, departure):
        self._data.wait_event(departure)

    def host_tensor(self, shape, dtype):
        return self._pinned.empty(shape, dtype)

    def pinned(self, tensor):
        if tensor.is_pinned():
            return tensor
        return self.host_tensor(tensor.shape, tensor.dtype).copy_(tensor) if tensor.is_contiguous() else tensor.pin_memory()


def _expand_segments():
    """Weights of several sizes come and go on several streams, and the allocator's segments are of one stream each: without segments that
    expand, plans ran out of memory that was reserved and not allocated. What the user has set stays."""
    chosen = any(os.environ.get(name) for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))
    if not chosen and not torch.cuda.is_initialized() and torch.__version__ >= "2.1":  # it reads them once
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"


def devices_of(plan):
    """GPUs where there are any, else virtual devices; the latter have PLIMSOLL_DEVICE_BUDGET_BYTES, if that is less than the plan's."""
    if not torch.cuda.is_available():
        budgets = [budget for budget in (plan.device_bytes, budget_from_environment()) if budget is not None]
        return [VirtualDevice(index, min(budgets, default=None)) for index in range(plan.gpus)]
    if torch.cuda.device_count() < plan.gpus:
        raise PlanError(f"the plan is for {plan.gpus} GPUs, and {torch.cuda.device_count()} are visible")
    _expand_segments()
    pinned = PinnedMemory()
    return [CudaDevice(index, plan.device_bytes, pinned) for index in range(plan.gpus)]
