"""Plimsoll beside PyTorch: records what a training iteration does to memory, and reports what a training took."""

__version__ = "0.1.0"


class ExportError(Exception):
    """Something the person who exports can act on; the message says what."""
