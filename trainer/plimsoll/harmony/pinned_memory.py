"""Host memory that GPUs copy to and from at full speed, of the bytes that are asked for and no more.

PyTorch's own (pin_memory) takes the next power of two, so that a model's weights may take nearly twice as much of the host as they have
bytes. May be used from several threads: lists append and pop at once.
"""

import ctypes
import math
import mmap
import sys
import weakref

import torch

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for all GPUs
_SMALL = 64 << 10  # bytes; less is PyTorch's: whole pages of its own would be more


class PinnedMemory:
    """What a tensor no longer uses is kept for the next one of that size, until close(). Its last copies must have ended before a tensor is
    given up: unlike PyTorch's, this memory does not wait for them."""

    def __init__(self):
        self._unused = {}  # bytes -> [memory]
        self._closed = self._fails = False
        self._cuda = None  # CUDA's runtime

    def empty(self, shape, dtype):
        size = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = self._taken(size) if size >= _SMALL and not self._fails else None
        if memory is None:
            return torch.empty(shape, dtype=dtype, pin_memory=True)
        held = (ctypes.c_char * size).from_buffer(memory)  # lives as long as the tensor's storage
        weakref.finalize(held, self._give_up, memory, ctypes.addressof(held)).atexit = False
        return torch.frombuffer(held, dtype=dtype, count=math.prod(shape)).view(shape)

    def _taken(self, size):
        try:
            return self._unused[size].pop()
        except (KeyError, IndexError):
            return self._registered(size)

    def _registered(self, size):
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # After a fork (a DataLoader's workers) kernels before 5.12 give a page that is written to another place, and the GPU keeps the old.
        memory.madvise(mmap.MADV_DONTFORK)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._cuda = self._cuda or torch.cuda.cudart()
        code = self._cuda.cudaHostRegister(address, size, _PORTABLE)
        if int(code) == 0:
            return memory
        self._fails = True
        print(f"plimsoll.harmony: cudaHostRegister gave {code!s}: pinned memory is PyTorch's, which takes up to twice as much of the host",
              file=sys.stderr, flush=True)
        return None

    def _give_up(self, memory, address):
        if self._closed:
            self._cuda.cudaHostUnregister(address)
        else:
            self._unused.setdefault(len(memory), []).append(memory)

    def close(self):
        """What is unused is given back to the system, and so is what tensors still use, once they are given up."""
        self._closed = True
        for unused in self._unused.values():
            while unused:
                self._cuda.cudaHostUnregister(ctypes.addressof(ctypes.c_char.from_buffer(unused.pop())))
