"""Training with GPU memory virtualised per GPU, the baseline of Harmony's paper: each task brings what it works on, and takes all of
it back (the strict rule of the paper's swap model). Layers are tasks."""

import torch
from plimsoll import harmony
from plimsoll.harmony.weights import PlacedLayer


class NaiveSwapping:
    """Data parallel on `gpus` virtual devices; the optimizer runs on them, too."""

    def __init__(self, layers, loss_fn, optimizer, gpus, batch_size, microbatch):
        self.layers, self._loss_fn, self._optimizer = layers, loss_fn, optimizer
        self.devices = [harmony.VirtualDevice(index) for index in range(gpus)]
        self._batch_size, self._microbatch = batch_size, microbatch
        self._gradients = [[{name: torch.zeros_like(p) for name, p in layer.named_parameters()} for layer in layers] for _ in range(gpus)]
        self._states = [{} for _ in layers]
        self.moved = {}

    def _in(self, device, kind, tensors):
        self._count(kind, tensors)
        return {name: device.bring(tensor, kind) for name, tensor in tensors.items()}

    def _out(self, kind, tensors, into):
        self._count(kind, tensors)
        for name, tensor in tensors.items():
            into[name].detach().copy_(tensor.detach())

    def _count(self, kind, tensors):
        self.moved[kind] = self.moved.get(kind, 0) + sum(t.numel() * t.element_size() for t in tensors.values())

    def step(self, inputs, targets):
        base = int(torch.randint(1 << 62, ()))
        each = self._batch_size // len(self.devices)
        loss = sum(self._microbatch_of(rank, base, begin, inputs, targets)
                   for rank in range(len(self.devices)) for begin in range(rank * each, (rank + 1) * each, self._microbatch))
        for gradients in zip(*self._gradients):  # the all-reduce, beside the last backward
            for name in gradients[0]:
                total = sum(mine[name] for mine in gradients)
                for mine in gradients:
                    mine[name].copy_(total)
        updated = [self._update(rank, index) for rank in range(len(self.devices)) for index in range(len(self.layers))]
        for index, new in enumerate(updated[: len(self.layers)]):
            self._states[index] = new
        return loss

    def _microbatch_of(self, rank, base, begin, inputs, targets):
        device, end = self.devices[rank], begin + self._microbatch
        value, stashes = inputs[begin:end].clone(), []
        for index, layer in enumerate(self.layers):
            host = dict(layer.named_parameters())
            weights = self._in(device, "weights", host)
            stashes.append({"x": value})
            self._count("stash", stashes[-1])
            with torch.no_grad(), harmony.seeded(device.torch_device, base, index, begin):
                value = PlacedLayer(layer)(weights, value)
            self._out("weights", weights, host)
        gradient = None  # of the result
        for index in reversed(range(len(self.layers))):
            layer, host = self.layers[index], dict(self.layers[index].named_parameters())
            weights = {name: w.requires_grad_() for name, w in self._in(device, "weights", host).items()}
            sums = self._in(device, "gradients", self._gradients[rank][index])
            stashed = self._in(device, "stash", stashes[index])["x"]
            stashed = stashed.requires_grad_() if stashed.is_floating_point() else stashed
            with harmony.seeded(device.torch_device, base, index, begin):
                result = PlacedLayer(layer)(weights, stashed)
            if index + 1 == len(self.layers):
                loss = self._loss_fn(result, targets[begin:end]) * (self._microbatch / self._batch_size)
                loss.backward()
            else:
                result.backward(gradient)
            gradient = stashed.grad
            for name, weight in weights.items():
                sums[name] += weight.grad
            self._out("gradients", sums, self._gradients[rank][index])
            self._out("weights", weights, host)
        return loss.item()

    def _update(self, rank, index):
        device, layer = self.devices[rank], self.layers[index]
        host = dict(layer.named_parameters())
        if rank + 1 < len(self.devices):  # every replica computes the same; the last one is kept
            host = {name: parameter.detach().clone() for name, parameter in host.items()}
        weights = {name: w.requires_grad_() for name, w in self._in(device, "weights", host).items()}
        gradients = self._in(device, "gradients", self._gradients[rank][index])
        for name, weight in weights.items():
            weight.grad = gradients[name]
        optimizer = self._optimizer(list(weights.values()))
        if self._states[index]:
            optimizer.load_state_dict(self._states[index])
        state = {f"{i}.{name}": t for i, s in optimizer.state_dict()["state"].items() for name, t in s.items() if t.dim()}
        self._count("state", state)
        optimizer.step()
        state = {f"{i}.{name}": t for i, s in optimizer.state_dict()["state"].items() for name, t in s.items() if t.dim()}
        self._count("state", state)
        self._out("weights", weights, host)
        self._count("gradients", gradients)
        for mine in self._gradients[rank][index].values():
            mine.zero_()
        return optimizer.state_dict()
