"""Where a model is built and run: as tensors without memory, or for real.

`build(function, batch_size, kind, device)` calls the user's FUNCTION and returns a `Trainable`. Three kinds, tried in this order:
  fake        FUNCTION runs under FakeTensorMode: no memory at all, but code that looks at values fails
  real build  FUNCTION runs for real on the CPU, then its tensors are replaced by fakes: memory for the parameters alone
  real        everything runs for real on the CPU
"""

import contextlib
import inspect

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from . import ExportError

FAKE, REAL_BUILD, REAL = "fake", "real build", "real"


class Trainable:
    """A model, its inputs and its loss, with the mode under which they are to be run."""

    def __init__(self, model, inputs, loss, mode, adopt):
        self.model = model
        self.inputs = inputs
        self.loss = loss
        self.mode = mode
        self.adopt = adopt


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
    """Every parameter and buffer by what `convert` makes of it; shared ones stay shared."""
    made = {}

    def replacement(tensor):
        if id(tensor) not in made:
            made[id(tensor)] = (tensor, convert(tensor))
        return made[id(tensor)][1]

    for child in module.modules():
        for name, parameter in child._parameters.items():
            if parameter is not None:
                child._parameters[name] = replacement(parameter)
        for name, buffer in child._buffers.items():
            if buffer is not None:
                child._buffers[name] = replacement(buffer)
        if hasattr(child, "_flat_weights_names"):  # nn.RNN and its kin keep a second list
            child._flat_weights = [getattr(child, name, None) for name in child._flat_weights_names]
    return made


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


@contextlib.contextmanager
def _modules_of_fakes():
    """Lets nn.Module.to and copy.deepcopy work on modules whose tensors have no memory."""
    original = torch.nn.Module._apply
    torch.nn.Module._apply = _apply
    FakeTensor.__deepcopy__ = _deepcopy
    try:
        yield
    finally:
        torch.nn.Module._apply = original
        del FakeTensor.__deepcopy__


@contextlib.contextmanager
def _values_left_as_they_are():
    """nn.init's functions do nothing: tensors without memory have no values, and some of the functions look at them."""
    names = [name for name in vars(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    originals = {name: getattr(torch.nn.init, name) for name in names}
    for name in names:
        setattr(torch.nn.init, name, lambda tensor, *args, **kwargs: tensor)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.nn.init, name, original)


def default_device(device):
    """Factories without a device make tensors there (torch 2; before it, the CPU alone is at hand)."""
    if device == "cpu":
        return contextlib.nullcontext()
    return torch.device(device)


class _Adopter:
    """Turns real tensors into fakes of the mode, the same one into the same fake."""

    def __init__(self, mode, device):
        self._mode = mode
        self._device = device
        self._made = {}

    def __call__(self, tensor):
        if isinstance(tensor, FakeTensor):
            return tensor
        entry = self._made.get(id(tensor))
        if entry is None:
            fake = self._mode.from_tensor(tensor)
            if self._device != "cpu" and tensor.dim() > 0:
                fake = fake.to(self._device)
            entry = self._made[id(tensor)] = (tensor, fake)
        return entry[1]


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
    """A mode in which looking at a value is an error; torch 1.13 makes one up unless told otherwise."""
    if "throw_on_data_dependent_ops" in inspect.signature(FakeTensorMode.__init__).parameters:
        return FakeTensorMode(throw_on_data_dependent_ops=True)
    return FakeTensorMode()


def build(function, batch_size, kind, device):
    if kind == REAL:
        torch.manual_seed(0)
        model, inputs, loss = _checked(function(batch_size))
        return Trainable(model, inputs, loss, contextlib.nullcontext(), None)
    mode = _fake_mode()
    adopt = _Adopter(mode, device)
    if kind == FAKE:
        with _modules_of_fakes(), _values_left_as_they_are(), mode, default_device(device):
            model, inputs, loss = _checked(function(batch_size))
    else:
        torch.manual_seed(0)
        model, inputs, loss = _checked(function(batch_size))
    with mode, torch.no_grad():
        _replace_tensors(model, lambda t: t if isinstance(t, FakeTensor) else _as_parameter(adopt(t).detach(), t))
        inputs = _map(inputs, adopt)
    return Trainable(model, inputs, loss, mode, adopt)
