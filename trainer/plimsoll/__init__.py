"""Plimsoll's Python package: records the memory use of a training iteration, and reports the memory that a training took."""

__version__ = "0.1.0"


class ExportError(Exception):
    """An error that the user can act on; the message says how."""
