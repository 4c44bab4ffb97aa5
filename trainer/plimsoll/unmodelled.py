"""What a recording passes over or runs otherwise than a real iteration, by the name of the module that does it.

    torch.compile            runs eagerly: what a compiled module saves and fuses is another amount
    CUDA streams             all work is on one stream: memory that another stream still uses is freed later in a real run
    saved-tensor hooks       run as they are; what they move to the host is not on the card (Recorder). Only a trace that is derived
                             from the CPU's cannot show that
    parameters on the host   are not on the card; what the optimizer keeps of them is counted there
"""

import contextlib
import sys
import types

import torch

from . import places
from .worlds import replaced

_CHECKPOINT = ("_checkpoint_hook", "_recomputation_hook")  # torch.utils.checkpoint's own, which keep nothing elsewhere


def _is_compiled(value):
    """Whether torch.compile has made a function. Its fused attention is modelled (flex.py)."""
    marks = vars(value) if isinstance(value, types.FunctionType) else {}
    original = marks.get("_torchdynamo_orig_callable")
    return original is not None and not marks.get("_torchdynamo_disable") and getattr(original, "__name__", None) != "flex_attention"


def _compiled_functions(owner, values):
    """Names of compiled functions among the values of a namespace."""
    return [f"the function {name} of {owner}" for name, value in values.items() if _is_compiled(value)]


def compiled(model, loss):
    """One text for each module and function that torch.compile has compiled."""
    found = []
    for path, module in model.named_modules():
        name = f"module {path}" if path else "the model"
        if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
            found.append(name)
        else:
            found += _compiled_functions(name, vars(module))
    kinds = {type(module) for module in model.modules()} | {type(loss)}
    namespaces = {kind.__module__ for kind in kinds} | {getattr(loss, "__module__", None)}
    namespaces = {name for name in namespaces if name in sys.modules and name.split(".")[0] not in ("torch", "builtins")}
    for kind in sorted(kinds, key=lambda kind: kind.__qualname__):
        if kind.__module__ in namespaces:
            found += _compiled_functions(kind.__qualname__, vars(kind))
    for name in sorted(namespaces):
        found += _compiled_functions(name, vars(sys.modules[name]))
    closure = zip(loss.__code__.co_freevars, loss.__closure__ or ()) if isinstance(loss, types.FunctionType) else ()
    found += _compiled_functions("the loss", {name: cell.cell_contents for name, cell in closure})
    if _is_compiled(loss):
        found.append("the loss")
    return [f"torch.compile is not modelled: {name} is recorded as PyTorch runs it without; what its compiled form keeps for backward and "
            "fuses is another amount" for name in dict.fromkeys(found)]


def parameters_on_the_host(named):
    """A text for the parameters of a recording for CUDA that are in the host's memory; `named` is (name, tensor) pairs."""
    names = [name for name, tensor in named if tensor.device.type == "cpu"]
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [f"in the host's memory, and not counted: {', '.join(names[:3])}{more}; what the optimizer keeps of them is counted on the card"]


@contextlib.contextmanager
def run_eagerly():
    """What torch.compile has compiled runs as it is written."""
    dynamo = sys.modules.get("torch._dynamo")  # not imported: nothing is compiled
    if dynamo is None:
        yield
    elif hasattr(torch.compiler, "set_stance"):
        with torch.compiler.set_stance("force_eager"):
            yield
    else:
        with replaced((dynamo.config, "disable", True)):
            yield


class _Stream:
    """A stream or an event of a card that does not exist; waits for nothing."""

    device = torch.device("cuda", 0)
    cuda_stream = 0

    def __init__(self, *args, **kwargs):
        pass

    def record(self, stream=None):
        pass

    def wait(self, stream=None):
        pass

    wait_event = wait_stream = wait

    def record_event(self, event=None):
        return event or _Stream()

    def synchronize(self):
        pass

    def query(self):
        return True

    def elapsed_time(self, end):
        return 0.0


@contextlib.contextmanager
def pretended_streams():
    """Code that uses streams of a card that does not exist runs."""
    with replaced((torch.cuda, "Stream", _Stream), (torch.cuda, "Event", _Stream), (torch.cuda, "stream", contextlib.nullcontext),
                  (torch.cuda, "current_stream", _Stream), (torch.cuda, "default_stream", _Stream),
                  (torch.cuda, "synchronize", _Stream), (torch.Tensor, "record_stream", _Stream.wait)):
        yield


@contextlib.contextmanager
def watched(recorder, path_of):
    """Notes in the recording what the iteration does with streams and hooks; `path_of(module)` names a module."""
    notes, hooks = recorder.recording.notes, recorder.recording.hooks
    enter, record, push = torch.cuda.stream, torch.Tensor.record_stream, torch._C._autograd._push_saved_tensors_default_hooks

    def note(what):
        text = f"CUDA streams are not modelled: {what} in {path_of(recorder.module)} ({places.of_call()}) counts as on the default " \
            "stream; memory that another stream still uses is freed later in a real run"
        if text not in notes:
            notes.append(text)

    def stream(one):
        if one is not None:
            note("work on a stream of its own")
        return enter(one)

    def record_stream(tensor, one):
        note("record_stream")
        return record(tensor, one)

    def push_hooks(pack, unpack):
        if not getattr(pack, "__module__", "").startswith(__package__):
            name = getattr(pack, "__qualname__", type(pack).__name__).split(".")[0]
            if name not in _CHECKPOINT:
                hooks.append(f"{name} in {path_of(recorder.module)}")
            pack, unpack = recorder.hooks_of_user(pack, unpack)
        return push(pack, unpack)

    with replaced((torch.cuda, "stream", stream), (torch.Tensor, "record_stream", record_stream),
                  (torch._C._autograd, "_push_saved_tensors_default_hooks", push_hooks)):
        yield
