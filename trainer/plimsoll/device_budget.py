"""Limits the memory for tensors of a CPU process, as a GPU's memory would.

    with DeviceBudget(256 << 20) as budget:
        train()                      # torch.cuda.OutOfMemoryError, with PyTorch's message, where 256 MiB are not enough
    budget.peak_bytes

Counts the storages of all CPU tensors, each rounded up as the CUDA allocator rounds: those that existed before, and those that
operators create, forward and backward. Exact between operators. Not counted: memory that an operator allocates and frees while
it runs, and memory that changes when a storage is resized outside of operators (FSDP). For the thread that enters it, and for
whatever autograd runs for that thread.
"""

import gc
import os

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from .recorder import storage_of

_GRANULE = 512  # c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize

try:
    OutOfMemoryError = torch.OutOfMemoryError
except AttributeError:
    OutOfMemoryError = torch.cuda.OutOfMemoryError


def budget_from_environment():
    """PLIMSOLL_DEVICE_BUDGET_BYTES, or None where it is not set."""
    text = os.environ.get("PLIMSOLL_DEVICE_BUDGET_BYTES", "")
    if not text:
        return None
    if not text.isdigit() or int(text) == 0:
        raise ValueError("PLIMSOLL_DEVICE_BUDGET_BYTES must be a positive whole number of bytes, is %r" % text)
    return int(text)


def format_size(count):
    """As c10::CachingAllocator writes sizes."""
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count > limit:
            return "%.2f %s" % (count / limit, unit)
    return "%d bytes" % count


def out_of_memory_text(wanted, allocated, budget, gpu=0):
    """The message of this PyTorch when a card of `budget` bytes is full; version 2.1 changed it."""
    free = max(budget - allocated, 0)
    advice = "See documentation for Memory Management "
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 1):
        return ("CUDA out of memory. Tried to allocate %s (GPU %d; %s total capacity; %s already allocated; %s free; %s reserved "
                "in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
                "fragmentation.  %sand PYTORCH_CUDA_ALLOC_CONF") % (
                    format_size(wanted), gpu, *(format_size(count) for count in (budget, allocated, free, allocated)), advice)
    return ("CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. Including "
            "non-PyTorch memory, this process has %s memory in use. Of the allocated memory %s is allocated by PyTorch, and %s "
            "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  %s"
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)") % (
                format_size(wanted), gpu, *(format_size(count) for count in (budget, free, allocated, allocated, 0)), advice)


class LiveStorages:
    """Bytes of the storages that live, each rounded up to `granule`. Freed ones are removed late: when the sum would be a new peak."""

    def __init__(self, granule=1):
        self.counted = self.peak = 0
        self._granule = granule
        self._live = {}  # a storage's address -> [weak reference, bytes]; the reference reserves the address

    def add(self, tensor):
        try:
            storage = storage_of(tensor)
            address = storage._cdata
        except (NotImplementedError, RuntimeError):  # a tensor without own memory, such as a fake or a functional one
            return
        size = -(-storage.nbytes() // self._granule) * self._granule
        known = self._live.get(address)
        if known is None:
            if size > 0:
                self._live[address] = [StorageWeakRef(storage), size]
                self.counted += size
        else:
            self.counted += size - known[1]  # resize_ of a tensor
            known[1] = size

    def sweep(self):
        """What lives now."""
        dead = [address for address, (reference, _) in self._live.items() if reference.expired()]
        for address in dead:
            self.counted -= self._live.pop(address)[1]
        return self.counted

    def settle(self, before, budget, refuse):
        """Records a new peak. Where what was added to `before` exceeds the budget, refuse(wanted, allocated) is raised."""
        if self.counted <= self.peak:
            return
        wanted = self.counted - before
        self.sweep()
        if budget is not None and self.counted > budget:
            raise refuse(wanted, self.counted - wanted)
        self.peak = max(self.peak, self.counted)


class DeviceBudget(TorchDispatchMode):
    """`budget_bytes` None counts without a limit."""

    def __init__(self, budget_bytes=None):
        super().__init__()
        self.budget_bytes = budget_bytes
        self._storages = LiveStorages(_GRANULE)

    def __enter__(self):
        # isinstance() would read __class__, which raises for a weak proxy whose object is gone.
        for found in gc.get_objects():
            if issubclass(type(found), torch.Tensor):
                self._see(found)
        return super().__enter__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        before = self._storages.counted
        self._see(result)
        if self._storages.counted > before:
            self._storages.settle(before, self.budget_bytes, self._refusal)
        return result

    @property
    def allocated_bytes(self):
        return self._storages.sweep()

    @property
    def peak_bytes(self):
        return self._storages.peak

    def _refusal(self, wanted, allocated):
        return OutOfMemoryError(out_of_memory_text(wanted, allocated, self.budget_bytes))

    def _see(self, value):
        if isinstance(value, (list, tuple, dict)):
            for part in value.values() if isinstance(value, dict) else value:
                self._see(part)
        elif isinstance(value, torch.Tensor):
            if value.layout is torch.sparse_coo:
                self._count(value._indices())
                self._count(value._values())
            else:
                self._count(value)

    def _count(self, tensor):
        if tensor.device.type == "cpu":
            self._storages.add(tensor)
