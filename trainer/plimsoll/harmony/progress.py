"""What an iteration took: for `trainer.progress()`, and under plimsoll.signposts for the log and the termination message.

Not thread-safe, but for reading().
"""

import sys
import time

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
        return (f"plimsoll.harmony: iteration {self._trainer.steps}: {self._seconds:.3f} s, "
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
        return reading
