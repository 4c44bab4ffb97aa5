"""What an iteration took: for `trainer.progress()`, and under plimsoll.signposts for the log and the termination message. Where it is not
what the plan expects, a line on standard error says so once.

Not thread-safe, but for reading().
"""

import sys
import time

import torch
from torch.utils._pytree import tree_flatten

from .. import signposts
from ..device_budget import format_size
from .plan import Volumes

_FIRST_LINES = 3
_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    def __init__(self, trainer):
        self._trainer = trainer
        self._report = signposts.current()
        self._seconds = self._moved = None  # of the last iteration
        self._before = self._total()
        self._written_at = self._done = 0
        self._said = set()  # what deviates
        if self._report is not None:
            self._report.read_with(self.reading)

    def _total(self):
        return Volumes(*(sum(device.moved.get(kind, 0) for device in self._trainer.devices) for kind in Volumes._fields))

    def iteration(self, seconds):
        total = self._total()
        self._seconds, self._moved, self._before = seconds, Volumes(*(a - b for a, b in zip(total, self._before))), total
        self._done += 1
        if self._report is not None:
            self._report.iteration()
            if self._done <= _FIRST_LINES or time.monotonic() - self._written_at >= _SECONDS_BETWEEN_LINES:
                self._write()

    # ---- what the plan expects ----

    def ran(self, task, device):
        """After a task: whether its GPU held more than the plan has for it."""
        planned = self._trainer.plan.peak_bytes
        if planned is not None and device.peak_bytes > planned:
            name = "forward" if task.forward else "backward"
            self._say("peak", f"GPU {device.index} held {format_size(device.peak_bytes)} in the {name} task of layers {task.first} to "
                      f"{task.end - 1}, and the plan expects at most {format_size(planned)}")

    def passed(self, layer, value, samples):
        """In the first iteration: whether the layer is given as many bytes as the plan has for it."""
        planned = self._trainer.plan.input_bytes
        if planned is None or self._done > 0 or layer >= len(planned):
            return
        each = sum(leaf.numel() * leaf.element_size() for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)) / samples
        if each != planned[layer]:
            self._say("bytes", f"layer {layer} is given {each:.0f} bytes a sample, and the plan expects {planned[layer]}")

    def _say(self, what, text):
        if what not in self._said:
            self._said.add(what)
            print(f"plimsoll.harmony: {text}: make the plan from a profile of this model and batch", file=sys.stderr, flush=True)

    def stop(self):
        if self._report is not None and self._done > _FIRST_LINES:
            self._write()

    def _write(self):
        self._written_at = time.monotonic()
        print(self.line(), file=sys.stderr, flush=True)

    def line(self):
        devices = self._trainer.devices
        peaks = ", ".join(format_size(device.peak_bytes) for device in devices)
        budget = f" of {format_size(devices[0].budget_bytes)}" if devices[0].budget_bytes is not None else ""
        between = self._moved.p2p + self._moved.reduced
        planned = self._trainer.plan.iteration_seconds
        expected = f" (planned {planned:.3f} s)" if planned is not None else ""
        return (f"plimsoll.harmony: iteration {self._trainer.steps}: {self._seconds:.3f} s{expected}, "
                f"{format_size(self._moved.swapped())} between host and GPUs, {format_size(between)} from GPU to GPU; "
                f"at most {peaks}{budget} on the GPUs")

    def reading(self):
        """For a signpost (docs/signposts.md): memory of the GPU that holds the most, and what the last iteration took."""
        devices = self._trainer.devices
        fullest = max(devices, key=lambda device: device.peak_bytes)
        reading = fullest.reading()
        reading["devicePeakBytes"] = [device.peak_bytes for device in devices]
        if self._moved is not None:
            reading.update(iterationSeconds=round(self._seconds, 6), swappedBytes=self._moved.swapped(),
                           p2pBytes=self._moved.p2p + self._moved.reduced)
        for rates in (self._trainer.update_rate, *(device.rates for device in devices)):
            for name, rate in rates.reading().items():
                reading[name] = max(reading.get(name, 0), rate)
        return reading
