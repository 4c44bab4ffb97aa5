"""Plimsoll beside PyTorch: records what a training iteration does to memory, for `plimsoll estimate --graph`."""

__version__ = "0.1.0"


class ExportError(Exception):
    """Something the person who exports can act on; the message says what."""
