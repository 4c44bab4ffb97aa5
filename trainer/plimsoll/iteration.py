"""Runs one training iteration under a Recorder: forward, loss, backward."""

import contextlib
import warnings

import torch

from . import ExportError, cuda_choices, engine, flex, lookups, real_run, unmodelled, worlds
from .recorder import NEVER, Recorder

PRECISIONS = ("FP32", "TF32", "BF16Mixed", "FP16Mixed", "BF16", "FP16")


@contextlib.contextmanager
def _modules_tracked(recorder, model):
    """Sets the recorder's module to the innermost one that runs. Gives the paths of all modules."""
    named = list(model.named_modules())  # the model itself is the first, with the name ""
    index = {id(module): i for i, (_, module) in enumerate(named)}
    original = torch.nn.Module.__call__

    def call(module, *args, **kwargs):
        outer = recorder.module
        recorder.module = index.get(id(module), outer)
        try:
            return original(module, *args, **kwargs)
        finally:
            recorder.module = outer

    with worlds.replaced((torch.nn.Module, "__call__", call)):
        yield [name for name, _ in named]


def _autocast(precision, device):
    dtype = {"BF16Mixed": torch.bfloat16, "FP16Mixed": torch.float16}.get(precision)
    return torch.autocast(device, dtype=dtype) if dtype else contextlib.nullcontext()


def _cast(trainable, precision):
    dtype = {"BF16": torch.bfloat16, "FP16": torch.float16}.get(precision)
    if dtype is None:
        return
    with trainable.context(), trainable.values or contextlib.nullcontext(), torch.no_grad():
        worlds._replace_tensors(
            trainable.model, lambda t: worlds._as_parameter(t.detach().to(dtype), t) if t.is_floating_point() else t)
        trainable.inputs = worlds._map(
            trainable.inputs, lambda t: t.detach().to(dtype).requires_grad_(t.requires_grad) if t.is_floating_point() else t)
        trainable.tables.dtype = dtype


def _check_loss(loss):
    if not isinstance(loss, torch.Tensor):
        raise ExportError(f"loss_fn(output) must return a scalar tensor; it returned {type(loss).__name__}")
    if loss.numel() != 1:
        raise ExportError(f"loss_fn(output) must return a scalar tensor; it returned one of shape {tuple(loss.shape)}")
    if not loss.requires_grad:
        raise ExportError("the loss has no gradient: no parameter that can be trained takes part in it")


def _named_tensors(model, table):
    """(names, tensor) for each distinct parameter or buffer: tied ones have several names."""
    names = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, tensor in getattr(module, table).items():
            if tensor is not None:
                names.setdefault(id(tensor), ([], tensor))[0].append(f"{path}.{name}" if path else name)
    return list(names.values())


def _backward(loss, recorder, pretended):
    if not pretended:
        loss.backward()
        return
    recorder.nodes_run_one_by_one()
    with engine.in_place_of_autograds(recorder):
        engine.backward(loss, recorder)


def record(function, batch_size, kind, device, precision, with_places=False, lookups_of=lookups.COLLECTIONS):
    """A Recording of one iteration of FUNCTION at this batch size; `with_places` notes the line of code of each operator.
    `lookups_of` says what is looked up in tables (lookups.py)."""
    pretended = device == "cuda" and not torch.cuda.is_available()
    if pretended and not engine.works_here():
        raise NotImplementedError("recording for CUDA on a machine without a GPU needs torch 2.4 or newer")
    with contextlib.ExitStack() as stack:
        if pretended:
            stack.enter_context(cuda_choices.made_for_cuda())
            stack.enter_context(unmodelled.pretended_streams())
        return _record(function, batch_size, kind, device, precision, pretended, with_places, lookups_of)


@contextlib.contextmanager
def _recorded(recorder, trainable, device):
    """Within the block, `recorder` sees what runs. Gives the paths of all modules."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        modules = stack.enter_context(_modules_tracked(recorder, trainable.model))
        stack.enter_context(unmodelled.run_eagerly())
        stack.enter_context(flex.can_be_recorded())
        stack.enter_context(unmodelled.watched(recorder, lambda module: modules[module] or "the model"))
        stack.enter_context(trainable.context())
        stack.enter_context(worlds.default_device(device))
        stack.enter_context(recorder)
        yield modules


def _loss(recorder, trainable, precision, device, forward_has_ended=lambda output: output):
    """The loss after the forward pass, whose saved tensors go through the recorder."""
    with torch.autograd.graph.saved_tensors_hooks(recorder.pack, recorder.unpack), _autocast(precision, device):
        loss = trainable.loss(forward_has_ended(trainable.model(*worlds._map(trainable.inputs, trainable.tables.looked_up))))
    _check_loss(loss)
    return loss


def observe(function, batch_size, precision, lookups_of=lookups.COLLECTIONS):
    """What a real iteration on the CPU executes: (operators of an Observer, paths of the modules)."""
    trainable = worlds.build(function, batch_size, worlds.REAL, "cpu", lookups_of)
    _cast(trainable, precision)
    trainable.model.train()
    observer = real_run.Observer()
    with _recorded(observer, trainable, "cpu") as modules:
        loss = _loss(observer, trainable, precision, "cpu")
        observer.backward_begins()
        trainable.tables.counting = False
        loss.backward()
    return observer.operators, modules


def _record(function, batch_size, kind, device, precision, pretended, with_places, lookups_of):
    trainable = worlds.build(function, batch_size, kind, device, lookups_of)
    _cast(trainable, precision)
    model = trainable.model.train()
    parameters = _named_tensors(model, "_parameters")
    recorder = Recorder(device, trainable.values and trainable.values.run, trainable.adopt, with_places)
    recording = recorder.recording
    recording.notes += unmodelled.compiled(model, trainable.loss)
    if device != "cpu":
        recording.notes += unmodelled.parameters_on_the_host((names[0], tensor) for names, tensor in parameters)
    with _recorded(recorder, trainable, device) as recording.modules:
        with torch._C.DisableTorchFunction():  # a default device would look at each attribute that is read
            for names, tensor in parameters:
                row = recorder.note(tensor)
                recording.parameters.append({"name": names[0], "aliases": names[1:], "row": row, "trainable": tensor.requires_grad})
                recording.storages[recording.tensors[row][0]].role = "parameter"
        for names, tensor in _named_tensors(model, "_buffers"):
            for storage in recorder.storages_of(tensor):
                recording.storages[storage].role = "buffer"
                recording.buffers.append({"name": names[0], "storage": storage})
        given = worlds._map(trainable.inputs, lambda t: None if trainable.tables.are_made_of(t) else t)
        for storage in recorder.storages_of(given):
            recording.storages[storage].role = recording.storages[storage].role or "input"
        outputs = []

        def forward_has_ended(output):
            outputs.extend(recorder.storages_of(output))
            recording.forward_end = len(recording.operators)
            return output

        loss = _loss(recorder, trainable, precision, device, forward_has_ended)
        recording.loss_end = len(recording.operators)
        loss_storages = recorder.storages_of(loss)
        recorder.in_backward = True
        trainable.tables.counting = False
        recorder.module = 0
        _backward(loss, recorder, pretended)
        with torch._C.DisableTorchFunction():
            for (_, tensor), entry in zip(parameters, recording.parameters):
                gradient = tensor.grad
                entry["gradient"] = [] if gradient is None else recorder.storages_of(gradient)
                entry["sparse"] = gradient is not None and gradient.layout is torch.sparse_coo
        recorder.finish()
    if trainable.values:
        recording.assumed = trainable.values.assumed
    recording.tables = trainable.tables.described()
    recording.notes += trainable.tables.notes
    _give_roles(recording, outputs, loss_storages)
    return recording


def _give_roles(recording, outputs, loss_storages):
    gradients = [storage for entry in recording.parameters for storage in entry["gradient"]]
    for storages, role in ((gradients, "gradient"), (loss_storages, "loss"), (outputs, "output")):
        for storage in storages:
            recording.storages[storage].role = recording.storages[storage].role or role
    for storage in recording.storages:
        if storage.role is None and storage.backward_reader is not None:
            raise RuntimeError(f"backward reads {storage.bytes} bytes ({storage.backward_reader}) that no recorded operator made")
        if storage.role is None and storage.allocated_at == NEVER:
            storage.role = "input"
        elif storage.role is None:
            storage.role = "activation" if storage.allocated_at < recording.loss_end else "backward"
