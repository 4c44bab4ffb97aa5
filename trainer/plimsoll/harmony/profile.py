"""What each layer of a model takes, measured on this machine: what `plimsoll swap --profile` plans from.

    python3 -m plimsoll.harmony.profile MODULE:FUNCTION --batch-size 8 -o profile.json

FUNCTION(batch_size) returns (model, inputs, targets, loss_fn), as Trainer and its step() take them. Each layer is run alone, as a pack
of its own, on one GPU, or on the CPU where there is none; so the largest layer has to fit, and not the model.
"""

import argparse
import importlib
import json
import os
import sys
import time

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .checks import moved_bytes, users_of
from .devices import CudaDevice, VirtualDevice
from .host_gradients import give
from .host_optimizer import with_fused_step
from .layers import layers_of
from .samples import in_precision
from .weights import HostWeights, PlacedLayer

_REPETITIONS = 3
_ADAMS_STATES = 2
_STEPS_COPIES = 3  # of a layer's parameters, in the host's type: an optimizer's step makes no more at once


def _bytes(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _synchronized(device):
    if device.torch_device.type == "cuda":
        torch.cuda.synchronize(device.torch_device)
    return time.perf_counter()


class _Peak:
    """The most that a device holds above what it held before."""

    def __init__(self, device):
        self._device = device

    def __enter__(self):
        self._device.reset_peak()
        self._before = self._device.live_bytes
        return self

    def __exit__(self, *_):
        self.bytes = self._device.peak_bytes - self._before


class _Layer:
    """A layer alone on a device, with the input that the layers before it made for one microbatch."""

    def __init__(self, device, layer, inputs, precision):
        self._device, self._layer, self._inputs, self._precision = device, layer, inputs, precision
        self._run = PlacedLayer(layer)

    def _bring(self, tensor, kind):
        moves = tensor.to(self._precision) if self._precision is not None and tensor.is_floating_point() else tensor
        return self._device.bring(moves, kind)

    def _brought(self, needs_gradient):
        device = self._device
        weights = {name: self._bring(tensor, "weights_in").requires_grad_(tensor.requires_grad)
                   for name, tensor in [*self._layer.named_parameters(), *self._layer.named_buffers()]}
        leaves, form = tree_flatten(self._inputs)
        leaves = [self._bring(leaf, "inputs_in").requires_grad_(needs_gradient and leaf.is_floating_point()) for leaf in leaves]
        device.use(device.arrival())
        return weights, tree_unflatten(leaves, form)

    def forward(self):
        """(seconds, bytes, the result on the host)."""
        with _Peak(self._device) as peak, torch.no_grad():
            weights, value = self._brought(False)
            began = _synchronized(self._device)
            with self._device.computing():
                result = self._run(weights, value)
            seconds = _synchronized(self._device) - began
        leaves, form = tree_flatten(result)
        return seconds, peak.bytes, tree_unflatten([leaf.detach().cpu().clone() for leaf in leaves], form)

    def backward(self, loss_of, needs_gradient):
        """(seconds, bytes), with the forward that it repeats. `loss_of`: of the last layer; else None. Of the second microbatch,
        which adds its gradients to those of the first."""
        with _Peak(self._device) as peak, torch.enable_grad():
            weights, value = self._brought(needs_gradient)
            for _ in range(2):
                for leaf in tree_flatten(value)[0]:
                    leaf.grad = None
                began = _synchronized(self._device)
                with self._device.computing():
                    result = self._run(weights, value)
                    if loss_of is not None:
                        loss_of(result).backward()
                    else:
                        leaves = [leaf for leaf in tree_flatten(result)[0] if leaf.requires_grad]
                        torch.autograd.backward(leaves, [torch.ones_like(leaf) for leaf in leaves])
                        leaves = None
                    result = None
                seconds = _synchronized(self._device) - began
        return seconds, peak.bytes


def _update_seconds(layer, precision):
    """As the executor updates a layer: its gradients come in the precision, and the copies that move are made anew."""
    parameters = [torch.zeros_like(parameter, requires_grad=True) for parameter in layer.parameters()]
    if not parameters:
        return 0.0
    optimizer = with_fused_step(torch.optim.AdamW(parameters))
    weights = HostWeights(parameters, VirtualDevice(0), precision)

    def update():
        gradients = [[torch.zeros(parameter.shape, dtype=precision or parameter.dtype)] for parameter in parameters]
        began = time.perf_counter()
        give(parameters, gradients)
        optimizer.step()
        weights.refresh(parameters, updated=True)
        return time.perf_counter() - began

    update()
    return update()


def measure(function, microbatches, progress=lambda line: None, precision=None):
    """The profile: a dictionary with the members that docs/harmony.md lists. `precision`: as of Trainer."""
    device = CudaDevice(0) if torch.cuda.is_available() else VirtualDevice(0)
    model = function(1)[0]
    _, layers = layers_of(model)
    shared = [users for users in users_of(layer.parameters() for layer in layers).values() if len(users) > 1]
    profile = {"R": len(layers), "W": [sum(moved_bytes(p, precision) for p in layer.parameters()) for layer in layers],
               "B": [sum(moved_bytes(b, precision) for b in layer.buffers()) for layer in layers],
               "K": [_ADAMS_STATES * _bytes(layer.parameters()) for layer in layers],
               "upd": [_update_seconds(layer, precision) for layer in layers],
               "tied": sorted({layer for users in shared for layer in users}),
               "fwd_u": list(microbatches), "bwd_u": list(microbatches), "tf": {}, "tb": {}, "mf": {}, "mb": {}, "x": {}}
    if precision is not None:
        profile["hostW"] = [_bytes(layer.parameters()) for layer in layers]
    for size in microbatches:
        _, value, targets, loss_fn = function(size)
        rows = {name: [] for name in ("tf", "tb", "mf", "mb", "x")}
        for index, layer in enumerate(layers):
            alone = _Layer(device, layer.train(), value, precision)
            rows["x"].append(_bytes(tree_flatten(value)[0]))
            last = index + 1 == len(layers)

            def loss_of(result, targets=targets, loss_fn=loss_fn):
                result = result if precision is None else in_precision(result, torch.float32)
                return loss_fn(result, targets.to(device.torch_device))

            runs = [alone.forward() for _ in range(_REPETITIONS)]
            back = [alone.backward(loss_of if last else None, index > 0) for _ in range(_REPETITIONS)]
            rows["tf"].append(min(seconds for seconds, _, _ in runs))
            rows["tb"].append(min(seconds for seconds, _ in back))
            rows["mf"].append(max(peak for _, peak, _ in runs))
            rows["mb"].append(max(peak for _, peak in back))
            value = runs[-1][2]
        for name, row in rows.items():
            profile[name][str(size)] = row
        progress(f"microbatch {size}: {len(layers)} layers, {sum(rows['tf']):.3f} s forward, {sum(rows['tb']):.3f} s backward")
    return profile


def device_bytes(plan, profile):
    """A bound of what a GPU holds under the plan, from what its layers took alone: all of a pack's layers together, each without its
    input, the first one's input, what the task is handed for all its samples while it waits, and stashes that stay; with prefetch the next
    task's weights; all that the layers have which stay there, and what their optimizer's step makes."""
    forward, backward = str(plan.forward_microbatch), str(plan.backward_microbatch)
    weights, buffers, homes = profile["W"], profile["B"], plan.homes()
    kept = profile.get("hostW", weights)  # of residents beside the weights that move, where that is in another type
    stays = {layer: 2 * weights[layer] + buffers[layer] + profile["K"][layer] + (kept[layer] if kept[layer] != weights[layer] else 0)
             for layer in homes}
    tasks, most = plan.tasks(), 0
    nexts, last = {}, {}
    for index, task in enumerate(tasks):
        if task.device in last:
            nexts[last[task.device]] = task
        last[task.device] = index
    waiting = {}  # index of a task -> bytes of the stashes that stay on its GPU meanwhile
    for taken, task in enumerate(tasks):
        if not task.forward and task.first in plan.resident_stashes:
            made = next(index for index, other in enumerate(tasks)
                        if other.forward and task.first in other.layers() and other.begin_sample == task.begin_sample)
            stash = profile["x"][forward][task.first] // int(forward) * (task.end_sample - task.begin_sample)
            for index in range(made, taken + 1):
                if tasks[index].device == task.device:
                    waiting[index] = waiting.get(index, 0) + stash
    for index, task in enumerate(tasks):
        size = forward if task.forward else backward
        memory, inputs = profile["mf" if task.forward else "mb"][size], profile["x"][size]
        own = sum(memory[layer] - inputs[layer] for layer in task.layers()) + inputs[task.first]
        here = [layer for layer in task.layers() if layer in homes]
        if here and not task.forward:
            updated = sum(2 * weights[layer] + buffers[layer] for layer in task.layers())
            own = max(own, updated + _STEPS_COPIES * max(kept[layer] for layer in here))
        resident = sum(size for layer, size in stays.items() if homes[layer] == task.device)
        resident -= sum((1 if task.forward else 2) * weights[layer] + buffers[layer] for layer in here)  # in `own`
        handed = 0
        if plan.hands_over_by_p2p():
            samples = task.end_sample - task.begin_sample
            border = task.first if task.forward else task.end
            handed = inputs[border] // int(size) * samples if 0 < border < plan.layers else 0
            if not task.forward and task.end == plan.layers:
                handed = inputs[task.first] // int(size) * samples
        ahead = sum(weights[layer] + buffers[layer] for layer in nexts[index].layers() if layer not in homes) \
            if index in nexts and plan.prefetch else 0
        most = max(most, own + handed + waiting.get(index, 0) + ahead + resident)
    return most


def main():
    parser = argparse.ArgumentParser(prog="python3 -m plimsoll.harmony.profile", description=__doc__.split("\n")[0])
    parser.add_argument("function", metavar="MODULE:FUNCTION")
    parser.add_argument("--batch-size", type=int, required=True, metavar="B", help="the largest microbatch: 1, 2, 4, ... up to it")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of the computation, as Trainer's")
    parser.add_argument("-o", "--output", required=True, metavar="PROFILE.json")
    options = parser.parse_args()
    module, _, name = options.function.partition(":")
    if not name or options.batch_size < 1:
        parser.error("MODULE:FUNCTION and a --batch-size of at least 1 are needed")
    sys.path.insert(0, os.getcwd())
    microbatches = [size for size in (1 << power for power in range(31)) if size <= options.batch_size]
    precision = torch.bfloat16 if options.precision == "bfloat16" else None
    profile = measure(getattr(importlib.import_module(module), name), microbatches, lambda line: print(line, file=sys.stderr), precision)
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump(profile, file)


if __name__ == "__main__":
    main()
