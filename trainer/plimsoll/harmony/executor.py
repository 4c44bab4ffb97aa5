"""Trains a model by a swap plan: parameters, gradients and the optimizer are in host memory, and layers are on a GPU while they
are needed; but those that the plan has as resident stay there.

    trainer = harmony.Trainer(model, loss_fn, lambda parameters: torch.optim.AdamW(parameters, lr=1e-4), "plan.json")
    for inputs, targets in loader:
        loss = trainer.step(inputs, targets)

One process drives all GPUs. The model stays on the host, and is the user's own: its state_dict is the checkpoint's. Not thread-safe.
"""

import concurrent.futures
import contextlib
import itertools
import time
import typing

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from .checks import check_model
from .devices import devices_of
from .host_gradients import HostGradients, give
from .host_optimizer import with_fused_step
from .layers import layers_of
from .plan import VDP, VPP, Plan, Volumes
from .progress import Progress
from .rates import UpdateRate, touched_bytes
from .resident import ResidentLayer
from .samples import DeviceSamples, Handed, HostSamples, in_precision
from .weights import HostWeights, PlacedLayer

_KINDS = Volumes._fields
_SEEDS = 1 << 62


class _Weights(typing.NamedTuple):
    """Of the layers of a task, on its device."""

    layers: dict  # layer -> {name: tensor}
    arrival: object


@contextlib.contextmanager
def seeded(device, base, layer, begin_sample):
    """Random numbers that depend on the layer and the samples alone. The backward task computes its layers again with the numbers
    of the forward pass, whatever ran in between and on whichever GPU, and nothing has to be saved."""
    seed = (base + layer * 1_000_003 + begin_sample * 7_919) % _SEEDS
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.default_generators[device.index].manual_seed(seed)
        yield


class Trainer:
    """`optimizer(parameters)` makes an optimizer of torch.optim for some of the model's parameters: there is one for each layer, so that
    a layer is updated while others are still computed. `loss_fn(output, targets)` is the mean over its samples. `plan`: a file, a
    dictionary or a Plan; without it the file that PLIMSOLL_SWAP_PLAN names. `precision`: what is computed in, torch.bfloat16; the host
    keeps the parameters in their own. `max_norm`: clips the gradients' norm, which waits for all of them, and updates no layer before;
    `max_value`: clips each gradient's values, before its layer is updated."""

    def __init__(self, model, loss_fn, optimizer, plan=None, *, precision=None, max_norm=None, max_value=None, devices=None):
        self.plan = plan.checked() if isinstance(plan, Plan) else Plan.read(plan if plan is not None else Plan.from_environment())
        if precision == torch.float16:
            raise ValueError("float16 needs its loss scaled (GradScaler), which plimsoll.harmony does not do; use torch.bfloat16")
        self.model, self.layers = layers_of(model)
        for name, tensor in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if tensor.device.type != "cpu":
                raise ValueError(f"{name} is on {tensor.device}: the model has to be in host memory")
        self._parameters = [dict(layer.named_parameters()) for layer in self.layers]
        self._buffers = [dict(layer.named_buffers()) for layer in self.layers]
        check_model(self.plan, self._parameters, precision)
        self.devices = devices or devices_of(self.plan)
        self._loss_fn, self._precision, self._max_norm, self._max_value = loss_fn, precision, max_norm, max_value
        # Backward repeats forward's random numbers, so both run the samples in equal parts. In backward, several parts at once would hold
        # a second gradient of each weight until the last part's is there.
        self._slice = min(self.plan.forward_microbatch, self.plan.backward_microbatch)
        self._updates = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="harmony-update")
        self._updated = {}  # layer -> the updates of its parameters
        self._placed = [PlacedLayer(layer) for layer in self.layers]
        moving = [layer for layer in range(len(self.layers)) if layer not in self.plan.resident]
        held = itertools.chain(*((self._parameters[layer] | self._buffers[layer]).values() for layer in moving))
        self._host = HostWeights(dict.fromkeys(held), self.devices[0], precision)
        # BatchNorm's kernels change its statistics, which the tensors' versions do not tell.
        self._with_statistics = {index for index, layer in enumerate(self.layers)
                                 if any(isinstance(module, nn.modules.batchnorm._NormBase) for module in layer.modules())}
        self._last_user = {}  # parameter -> the layer whose backward is the last that adds to its gradient
        for layer in reversed(range(len(self.layers))):
            for parameter in self._parameters[layer].values():
                if parameter.requires_grad:
                    self._last_user[parameter] = layer
        self._owned = [[p for p, last in self._last_user.items() if last == layer] for layer in range(len(self.layers))]
        self.optimizers = [with_fused_step(optimizer(parameters)) if parameters else None for parameters in self._owned]
        self._residents = {layer: ResidentLayer(self.devices[home], self._parameters[layer], self._buffers[layer], precision,
                                                self.optimizers[layer], layer in self._with_statistics)
                           for layer, home in self.plan.homes().items()}
        self.steps = 0
        self.update_rate, self._was_updated = UpdateRate(), set()
        self._gradients = None  # of the iteration that runs
        self._progress = Progress(self)

    # ---- an iteration ----

    def step(self, inputs, targets):
        """Trains on a batch of plan.batch_size samples; the mean loss, a number."""
        began = time.monotonic()
        if self._gradients is not None:  # the step before was given up, and what it had begun to move may still use what it held
            self._wait_for_all()
        self._inputs = HostSamples.given(inputs, self.plan.batch_size, "inputs", self.devices[0], self._precision)
        self._targets = HostSamples.given(targets, self.plan.batch_size, "targets", self.devices[0])
        self._base = int(torch.randint(_SEEDS, ()))
        self._stashes = {first: DeviceSamples() if first in self.plan.resident_stashes else HostSamples(self.plan.batch_size)
                         for first in self.plan.stashes()}
        self._handed, self._losses, self._reducing, self._norms = {}, [], {}, {}
        self._gradients = HostGradients()
        self.model.train()
        tasks = self.plan.tasks()
        self._receivers = {task: after.device for task, after in zip(tasks, tasks[1:])}
        nexts = self._next_of_device(tasks)
        for resident in self._residents.values():
            resident.place()
        there = {}  # device -> the weights that are on it
        for index, task in enumerate(tasks):
            device = self.devices[task.device]
            weights = self._bring(task, there.pop(task.device, None))
            if self.plan.prefetch and index in nexts:
                there[task.device] = self._bring(tasks[nexts[index]], weights)
            device.use(weights.arrival)
            if task.forward or task.end == self.plan.layers:
                (self._forward if task.forward else self._backward)(task, device, weights)
                self._take_buffers(task, device, weights)
            else:  # its layers have run forward before
                with self._keeping_buffers(task):
                    self._backward(task, device, weights)
            self._progress.ran(task, device)
            if index in nexts and task.device not in there:
                kept = {layer: weights.layers[layer] for layer in tasks[nexts[index]].layers() if layer in weights.layers}
                there[task.device] = _Weights(kept, weights.arrival)
            weights = None
        self._wait_for_all()
        loss = float(sum(self._losses))
        self._finish()
        self.steps += 1
        self._progress.iteration(time.monotonic() - began)
        return loss

    @staticmethod
    def _next_of_device(tasks):
        """The next task of the same device, by index."""
        nexts, last = {}, {}
        for index, task in enumerate(tasks):
            if task.device in last:
                nexts[last[task.device]] = index
            last[task.device] = index
        return nexts

    def _bring(self, task, kept):
        """The weights of the task's layers, of which some may be there."""
        device = self.devices[task.device]
        layers = {}
        for layer in task.layers():
            if layer in self._residents:
                layers[layer] = self._residents[layer].tensors
                continue
            if kept is not None and layer in kept.layers:
                layers[layer] = kept.layers[layer]
                continue
            if layer in self._updated:
                self._wait_for_updates(layer)
            layers[layer] = {name: device.bring(self._host.source(tensor), "weights_in").requires_grad_(tensor.requires_grad)
                             for name, tensor in (self._parameters[layer] | self._buffers[layer]).items()}
        return _Weights(layers, device.arrival())

    def _run(self, device, weights, layers, value, begin):
        """The layers on the samples from `begin` on, with their random numbers."""
        for layer in layers:
            with seeded(device.torch_device, self._base, layer, begin):
                value = self._placed[layer](weights.layers[layer], value)
        return value

    def _forward(self, task, device, weights):
        size = self._slice
        for begin in range(task.begin_sample, task.end_sample, size):
            end = begin + size
            value = self._input_of(task, device, begin, end)
            done = task.first
            with torch.no_grad():
                for head in [*(first for first in self._stashes if task.first <= first < task.end), task.end]:
                    if head > done:
                        with device.computing():
                            value = self._run(device, weights, range(done, head), value, begin)
                    if head < task.end:
                        self._progress.passed(head, value, size)
                        self._stashes[head].take(device, value, begin, end, "stash_out")
                    done = head
            self._progress.passed(task.end, value, size)
            self._output_of(task).put(device, value, begin, end)
            value = None

    def _backward(self, task, device, weights):
        size = self._slice
        is_last = task.end == self.plan.layers
        for begin in range(task.begin_sample, task.end_sample, size):
            end = begin + size
            value = self._stash_or_input_of(task, device, begin, end)
            gradients = None if is_last else self._gradient_of(task).get(device, begin, end)
            targets = self._targets.bring(device, begin, end, "targets_in") if is_last else None
            device.use(device.arrival())
            with device.computing(), torch.enable_grad():
                leaves, form = tree_flatten(value)
                needs = [leaf.is_floating_point() and task.first > 0 for leaf in leaves]
                leaves = [leaf.requires_grad_() if need else leaf for leaf, need in zip(leaves, needs)]
                result = self._run(device, weights, task.layers(), tree_unflatten(leaves, form), begin)
                value = None
                if is_last:
                    result = result if self._precision is None else in_precision(result, torch.float32)  # as autocast does
                    loss = self._loss_fn(result, targets) * (size / self.plan.batch_size)
                    loss.backward()
                    part = loss.detach()
                    loss = None
                else:
                    floats = [leaf for leaf in tree_flatten(result)[0] if leaf.is_floating_point()]
                    outputs = [(leaf, gradient) for leaf, gradient in zip(floats, gradients) if leaf.requires_grad]
                    torch.autograd.backward([leaf for leaf, _ in outputs], [gradient for _, gradient in outputs])
                    outputs = floats = None
                result = gradients = None
                given = [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf, need in zip(leaves, needs) if need]
                leaves = None
            if is_last:
                self._losses.append(device.host_tensor((), part.dtype))
                device.take_back(part, self._losses[-1], "loss_out")
                part = None
            if task.first > 0:
                self._gradient_out_of(task).put(device, given, begin, end)
            given = None
        self._take_gradients(task, device, weights)

    # ---- what tasks hand to each other ----

    def _input_of(self, task, device, begin, end):
        if task.first == 0:
            value = self._inputs.bring(device, begin, end, "inputs_in")
        else:
            value = self._handed[self._key("value", task.first, task.begin_sample)].get(device, begin, end)
        device.use(device.arrival())
        return value

    def _stash_or_input_of(self, task, device, begin, end):
        if task.first in self._stashes:
            # With several GPUs the others would wait, too, for what is to be launched on them.
            if self.plan.gpus == 1 and task.first not in self.plan.resident_stashes:
                self._wait_for_departures()
            return self._stashes[task.first].bring(device, begin, end, "stash_in")
        return self._input_of(task, device, begin, end)

    def _wait_for_departures(self):
        for device in self.devices:
            device.wait_for(device.departure())

    def _wait_for_all(self):
        for device in self.devices:
            device.wait_for_all()

    @staticmethod
    def _key(what, border, begin_sample):
        return what, border, begin_sample

    def _channel(self, what, border, task, receiver, microbatches_differ):
        key = self._key(what, border, task.begin_sample)
        if key not in self._handed:
            p2p = self.plan.hands_over_by_p2p() and not microbatches_differ
            self._handed[key] = Handed(self.plan.batch_size, self.devices[receiver] if p2p else None)
        return self._handed[key]

    def _receiver(self, task):
        return self._receivers[task] if self.plan.hands_over_by_p2p() else task.device

    def _output_of(self, task):
        turns = task.end == self.plan.backward_packs[-1]
        differ = turns and self.plan.forward_microbatch != self.plan.backward_microbatch
        return self._channel("value", task.end, task, self._receiver(task), differ)

    def _gradient_of(self, task):
        return self._handed[self._key("gradient", task.end, task.begin_sample)]

    def _gradient_out_of(self, task):
        return self._channel("gradient", task.first, task, self._receiver(task), False)

    # ---- buffers, gradients and updates ----

    def _take_buffers(self, task, device, weights):
        """Brings to the host what the forward pass changed, as BatchNorm's statistics; of vDP their mean over the GPUs."""
        for layer in task.layers():
            if layer in self._residents:
                continue
            for name, buffer in self._buffers[layer].items():
                there = weights.layers[layer][name]
                if not there._version and layer not in self._with_statistics:
                    continue
                mine = device.host_tensor(there.shape, there.dtype)
                device.take_back(there, mine, "buffers_out")
                device.wait_for(device.departure())
                if self.plan.mode == VPP or task.device == 0:
                    buffer.copy_(mine)
                elif buffer.is_floating_point():
                    buffer.add_(mine - buffer, alpha=1 / (task.device + 1))

    @contextlib.contextmanager
    def _keeping_buffers(self, task):
        """What the task computes again does not change the buffers that stay on the device a second time."""
        with contextlib.ExitStack() as stack:
            for layer in task.layers():
                if layer in self._residents:
                    stack.enter_context(self._residents[layer].keeping_buffers())
            yield

    def _take_gradients(self, task, device, weights):
        """Brings the gradients of the task's layers to the host, of vDP their sum over the GPUs, and updates the layers."""
        for layer in reversed(task.layers()):
            if layer in self._residents:
                self._update_there(layer)
                continue
            gradients = {name: weights.layers[layer][name].grad for name in self._parameters[layer]}
            for name in gradients:
                weights.layers[layer][name].grad = None
            holder = device
            if self.plan.mode == VDP and self.plan.gpus > 1:
                gradients = self._reduced(layer, device, gradients)
                if task.device + 1 < self.plan.gpus:
                    continue
                holder = self.devices[0]
            for name, gradient in gradients.items():
                parameter = self._parameters[layer][name]
                if parameter.requires_grad and gradient is None:
                    raise self._no_gradient(layer, name)
                if parameter.requires_grad:
                    self._gradients.add(holder, parameter, gradient)
            self._update(layer, holder)

    @staticmethod
    def _no_gradient(layer, name):
        return RuntimeError(f"layer {layer}: {name} got no gradient; freeze what takes no part in the loss")

    def _update_there(self, layer):
        resident = self._residents[layer]
        for name in resident.without_gradient():
            raise self._no_gradient(layer, name)
        if self.optimizers[layer] is None:
            return
        if self._max_norm is None:
            resident.update(self._max_value)
        else:
            self._norms[layer] = resident.take_norms()

    def _reduced(self, layer, device, gradients):
        """Adds the GPU's gradients to those of the GPUs before it, on GPU 0."""
        first = self.devices[0]
        if device is first:
            self._reducing[layer] = gradients
            return gradients
        for name, gradient in gradients.items():
            if gradient is not None:
                theirs = device.hand_to(first, gradient, "reduced")
                first.use(first.arrival())
                with first.computing():
                    self._reducing[layer][name].add_(theirs)
        return self._reducing.pop(layer) if device is self.devices[-1] else gradients

    def _update(self, layer, device):
        if self.optimizers[layer] is None or self._max_norm is not None:
            return
        departure = device.departure()
        update = self._updates.submit(self._update_now, layer, self._gradients.take(self._owned[layer]), device, departure)
        for user in range(len(self.layers)):
            if any(self._last_user.get(parameter) == layer for parameter in self._parameters[user].values()):
                self._updated.setdefault(user, []).append(update)

    def _update_now(self, layer, gradients, device, departure):
        device.wait_for(departure)
        self._apply(layer, gradients)

    def _apply(self, layer, gradients, scale=None):
        began = time.perf_counter()
        give(self._owned[layer], gradients, scale)
        if self._max_value is not None:
            nn.utils.clip_grad_value_(self._owned[layer], self._max_value)
        self.optimizers[layer].step()
        self.optimizers[layer].zero_grad(set_to_none=True)
        self._host.refresh(self._owned[layer], updated=True)
        if layer in self._was_updated:
            touched = touched_bytes(self._owned[layer], self.optimizers[layer], self._host.bytes_of_copies(self._owned[layer]))
            self.update_rate.note(touched, time.perf_counter() - began)
        self._was_updated.add(layer)

    def _finish(self):
        if self._max_norm is not None:
            scale = self._scale()
            for layer, parameters in enumerate(self._owned):
                if layer in self._norms:
                    self._residents[layer].update(self._max_value, scale)
                elif parameters:
                    self._apply(layer, self._gradients.take(parameters), scale)
        self._stashes = self._handed = self._reducing = self._norms = self._gradients = None

    def _scale(self):
        """What nn.utils.clip_grad_norm_ multiplies gradients by, of those on the host and those on the devices together."""
        norms = [self._norms[layer] if layer in self._norms else self._gradients.norms(parameters)
                 for layer, parameters in enumerate(self._owned) if parameters]
        return torch.clamp(self._max_norm / (torch.cat(norms).norm() + 1e-6), max=1.0)

    # ---- around the iterations ----

    def wait(self):
        """Until the host's parameters are those after the last step, also of the layers that stay on a GPU."""
        for layer in list(self._updated):
            self._wait_for_updates(layer)
        for resident in self._residents.values():
            resident.bring_home()

    def _wait_for_updates(self, layer):
        for update in self._updated.pop(layer):
            update.result()

    def moved(self):
        """Volumes of all iterations so far."""
        return Volumes(**{kind: sum(device.moved.get(kind, 0) for device in self.devices) for kind in _KINDS})

    def state_dict(self):
        """The model's own state_dict, the optimizers', and the random numbers'."""
        self.wait()
        return {"model": self.model.state_dict(), "steps": self.steps, "random": torch.get_rng_state(),
                "optimizers": [optimizer and (self._residents[layer].optimizer_state() if layer in self._residents
                                              else optimizer.state_dict()) for layer, optimizer in enumerate(self.optimizers)]}

    def load_state_dict(self, state):
        self.wait()
        self.model.load_state_dict(state["model"])
        if len(state["optimizers"]) != len(self.optimizers):
            raise ValueError(f"the checkpoint is of {len(state['optimizers'])} layers, and the model has {len(self.optimizers)}")
        for layer, (optimizer, theirs) in enumerate(zip(self.optimizers, state["optimizers"])):
            if layer in self._residents and optimizer is not None:
                self._residents[layer].load_optimizer_state(theirs)
            elif optimizer is not None:
                optimizer.load_state_dict(theirs)
        self.steps = state["steps"]
        torch.set_rng_state(state["random"])

    def stop(self):
        """Waits for the updates, and ends their thread. Nothing stays on a GPU."""
        self.wait()
        for resident in self._residents.values():
            resident.release()
        self._updates.shutdown(wait=True)
        for device in self.devices:
            device.stop()
        self._progress.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
