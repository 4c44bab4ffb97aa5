"""Where in the user's code something happens: the nearest line of a stack that is neither PyTorch's nor this package's."""

import contextlib
import os
import sys

import torch

_NOT_THE_USERS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep,
                  contextlib.__file__, "<")


def _place(frame, line):
    name = frame.f_code.co_filename
    inside = os.path.relpath(name)
    return f"{name if inside.startswith(os.pardir) else inside}:{line}"


def _is_users(frame):
    return not frame.f_code.co_filename.startswith(_NOT_THE_USERS)


def of_call():
    """FILE:LINE of the user's code that runs now; None while autograd runs backward."""
    frame = sys._getframe(1)
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    return None if frame is None else _place(frame, frame.f_lineno)


def of_error(error):
    """FILE:LINE of the user's code that raised an error; None where it was not the user's code."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if _is_users(trace.tb_frame):
            found = _place(trace.tb_frame, trace.tb_lineno)
        trace = trace.tb_next
    return found
