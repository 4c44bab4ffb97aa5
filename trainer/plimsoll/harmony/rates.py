"""Rates that a training reaches on its node, in bytes a second: what the operator plans the next one with (docs/signposts.md).

An object has one thread that notes; any may read.
"""

_LARGE = 1 << 20  # bytes; less says more of how a copy begins than of the link


class LinkRates:
    """Of copies: the most that a large one has reached, since GPUs that share a link have a part of it at times."""

    def __init__(self):
        self._most = {}  # way -> bytes a second

    def note(self, way, size, seconds):
        if size >= _LARGE and seconds > 0:
            self._most[way] = max(self._most.get(way, 0), int(size / seconds))

    def reading(self):
        """The fields of a signpost."""
        return dict(self._most)


class UpdateRate:
    """Of the host's updates of layers, all together, but for the first of each, which makes the optimizer's state."""

    def __init__(self):
        self._total = 0, 0.0  # bytes, seconds

    def note(self, size, seconds):
        self._total = self._total[0] + size, self._total[1] + seconds

    def reading(self):
        size, seconds = self._total
        return {"hostUpdateBytesPerSecond": int(size / seconds)} if size >= _LARGE else {}


def touched_bytes(parameters, optimizer, copies):
    """What an update reads and writes: weights and state both, gradients read, and where another type moves what is converted
    (estimator/speed/host_update.h counts the same). `copies`: bytes of the weights in the type that moves, if that is another one."""
    weights = _bytes(parameters)
    state = _bytes(value for parameter in parameters for value in optimizer.state[parameter].values()
                   if hasattr(value, "numel") and value.numel() > 1)
    return 3 * weights + 2 * state + (2 * (weights + copies) if copies else 0)


def _bytes(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
