"""Builds a model, as tensors without memory or for real.

`build(function, batch_size, kind, device)` calls the user's FUNCTION and returns a `Trainable`. Three kinds, tried in this order:
  fake        FUNCTION runs under FakeTensorMode: no memory at all, but code that looks at values fails
  real build  FUNCTION runs for real on the CPU, then its tensors are replaced by fakes: memory for the parameters alone
  real        everything runs for real on the CPU
"""

import contextlib
import dataclasses
import functools
import inspect
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from . import ExportError, lookups
from .values import KnownValues

# Functions by which a framework takes another path for tensors without memory, which a real run would not take.
_ASK_FOR_FAKES = (("transformers.utils.import_utils", "is_fake_tensor"),)

FAKE, REAL_BUILD, REAL = "fake", "real build", "real"


@dataclasses.dataclass
class Trainable:
    """A model, its inputs and its loss, and the context under which they run. Without memory, `values` runs the operators, and
    `adopt` makes fakes of real tensors; else both are None."""

    model: torch.nn.Module
    inputs: tuple
    loss: object
    context: object  # a function that returns a context manager
    values: object
    adopt: object
    tables: object  # lookups.Tables


@contextlib.contextmanager
def replaced(*places):
    """Within the block, `owner.name` is `replacement`, for each (owner, name, replacement)."""
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in places:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        yield


def _checked(result):
    if not isinstance(result, tuple) or len(result) != 3:
        raise ExportError(f"FUNCTION must return (nn.Module, tuple of example inputs, loss_fn); it returned {type(result).__name__}")
    model, inputs, loss = result
    if not isinstance(model, torch.nn.Module):
        raise ExportError(f"the first thing that FUNCTION returns must be an nn.Module; it is {type(model).__name__}")
    if isinstance(inputs, list):
        inputs = tuple(inputs)
    if not isinstance(inputs, tuple):
        raise ExportError(f"the second thing that FUNCTION returns must be a tuple of example inputs; it is {type(inputs).__name__}")
    if not callable(loss):
        raise ExportError("the third thing that FUNCTION returns must be the loss: a function of the model's output")
    return model, inputs, loss


def _replace_tensors(module, convert):
    """Replaces every parameter and buffer by `convert`'s result for it; shared ones stay shared."""
    made = {}

    def replacement(tensor):
        if id(tensor) not in made:
            made[id(tensor)] = (tensor, convert(tensor))
        return made[id(tensor)][1]

    for child in module.modules():
        for table in (child._parameters, child._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = replacement(tensor)
        if hasattr(child, "_flat_weights_names"):  # nn.RNN and similar modules keep a second list
            child._flat_weights = [getattr(child, name, None) for name in child._flat_weights_names]


def _as_parameter(value, like):
    if isinstance(like, torch.nn.Parameter):
        return torch.nn.Parameter(value, requires_grad=like.requires_grad)
    return value.requires_grad_(like.requires_grad)


def _apply(module, function, recurse=True):
    """nn.Module._apply for tensors without memory: torch 2's swaps tensors in place, which fakes cannot."""
    made = getattr(_apply, "made", None)
    top = made is None
    if top:
        made = _apply.made = {}
    try:
        if recurse:
            for child in module.children():
                child._apply(function)
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    with torch.no_grad():
                        made[id(tensor)] = (tensor, _as_parameter(function(tensor), tensor))
                table[name] = made[id(tensor)][1]
    finally:
        if top:
            _apply.made = None
    return module


def _deepcopy(tensor, memo):
    """A copy of a fake; Tensor.__deepcopy__ would copy its mode too."""
    if id(tensor) not in memo:
        with torch.no_grad():
            memo[id(tensor)] = _as_parameter(tensor.detach().clone(), tensor)
    return memo[id(tensor)]


def _allow_modules_of_fakes():
    """nn.Module.to and copy.deepcopy work on modules whose tensors have no memory."""
    return replaced((torch.nn.Module, "_apply", _apply), (FakeTensor, "__deepcopy__", _deepcopy))


def _skip_initialization():
    """nn.init's functions do nothing: tensors without memory have no values, and some of the functions look at them."""
    names = [name for name in vars(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    return replaced(*((torch.nn.init, name, lambda tensor, *args, **kwargs: tensor) for name in names))


def default_device(device):
    """Factories that are given no device make tensors there (torch 2; before it, only the CPU is possible)."""
    if device == "cpu":
        return contextlib.nullcontext()
    return torch.device(device)


def _adopter(mode, values, device):
    """A function that turns real tensors into fakes of the mode, the same one always into the same fake."""
    made = {}

    def adopt(tensor):
        if isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in made:
            fake = mode.from_tensor(tensor)
            made[id(tensor)] = (tensor, fake.to(device) if device != "cpu" and tensor.dim() > 0 else fake)
            values.know(made[id(tensor)][1], tensor)
        return made[id(tensor)][1]

    return adopt


def _map(value, convert):
    if isinstance(value, torch.Tensor):
        return convert(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(v, convert) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_map(v, convert) for v in value)
    if isinstance(value, dict):
        return type(value)((k, _map(v, convert)) for k, v in value.items())
    return value


def _fake_mode():
    """A mode in which reading a value is an error; torch 1.13 invents a value by default."""
    if "throw_on_data_dependent_ops" in inspect.signature(FakeTensorMode.__init__).parameters:
        return FakeTensorMode(throw_on_data_dependent_ops=True)
    return FakeTensorMode()


def build(function, batch_size, kind, device, lookups_of):
    torch.manual_seed(0)  # a branch on a random number goes the same way in each recording
    if kind == REAL:
        model, inputs, loss = _checked(function(batch_size))
        return Trainable(model, inputs, loss, contextlib.nullcontext, None, None, lookups.take_out(model, device, lookups_of))
    mode, values = _fake_mode(), KnownValues()
    adopt = _adopter(mode, values, device)
    if kind == FAKE:
        with _allow_modules_of_fakes(), _skip_initialization(), _without_memory(mode), values, default_device(device):
            model, inputs, loss = _checked(function(batch_size))
    else:
        model, inputs, loss = _checked(function(batch_size))
    with mode:
        tables = lookups.take_out(model, device, lookups_of)
    with mode, torch.no_grad():
        _replace_tensors(model, lambda t: t if isinstance(t, FakeTensor) else _as_parameter(adopt(t).detach(), t))
        inputs = _map(inputs, adopt)
    return Trainable(model, inputs, loss, functools.partial(_without_memory, mode), values, adopt, tables)


@contextlib.contextmanager
def _without_memory(mode):
    """Operators make tensors without memory, and code that asks whether they are real hears yes."""
    with contextlib.ExitStack() as stack:
        for name, function in _ASK_FOR_FAKES:
            if name in sys.modules and hasattr(sys.modules[name], function):
                stack.enter_context(replaced((sys.modules[name], function, lambda tensor: False)))
        stack.enter_context(mode)
        yield
