"""Layers that stay on a GPU from iteration to iteration, and are updated there. Not thread-safe."""

import contextlib

import torch
from torch import nn
from torch.utils._pytree import tree_map

_IN, _OUT = "resident_in", "resident_out"  # kinds that no Volumes has: an iteration moves neither


class ResidentLayer:
    """From the first place() on its tensors and its optimizer's are the device's; the host's follow by bring_home() and optimizer_state().
    `parameters`, `buffers`: the host's, by name. `optimizer`: of the parameters that are trained, or None. With a precision the device has
    them in the host's type, too, which is what the optimizer updates. `statistics`: whether buffers change without their versions."""

    def __init__(self, device, parameters, buffers, precision, optimizer, statistics):
        self.tensors = {}  # name -> what the layer runs with
        self._trained = {}  # name -> what the optimizer updates: the same, or its master copy
        self._device, self._host, self._buffers, self._precision = device, parameters | buffers, tuple(buffers), precision
        self._optimizer, self._optimizer_is_there, self._statistics = optimizer, False, statistics
        self._versions = {}  # name -> the host's, and the device's, as they were placed
        self._ahead = False

    def place(self):
        """Brings to the device what is not there, and what has been changed on the host since. What follows runs on the device."""
        brought = {name: self._device.bring(tensor, _IN) for name, tensor in self._host.items()
                   if name not in self.tensors or self._versions[name][0] != tensor._version}
        if brought:
            self._device.use(self._device.arrival())
            with self._device.computing(), torch.no_grad():
                for name in list(brought):
                    self._put(name, brought.pop(name))
        if self._optimizer is not None and not self._optimizer_is_there:
            self._move_optimizer()
        self._ahead = True

    def _put(self, name, brought):
        host = self._host[name]
        if name in self.tensors:
            for mine in {self._trained.get(name, self.tensors[name]), self.tensors[name]}:
                mine.copy_(brought)
        else:
            there = brought.to(self._precision) if self._precision is not None and host.is_floating_point() else brought
            self.tensors[name] = there.requires_grad_(host.requires_grad)
            if host.requires_grad:
                self._trained[name] = brought.requires_grad_()
        self._versions[name] = host._version, self.tensors[name]._version

    def _move_optimizer(self):
        """It was made with the host's parameters, since it may tell them apart by what they are: which have no weight decay, say."""
        self._give_optimizer({self._host[name]: mine for name, mine in self._trained.items()}, self._bring_state)
        self._device.use(self._device.arrival())
        self._optimizer_is_there = True

    def _give_optimizer(self, others, state_of):
        """It updates the parameters `others[parameter]` from here on."""
        state = self._optimizer.state
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in state:
                    state[others[parameter]] = state_of(state.pop(parameter), group)
            group["params"] = [others[parameter] for parameter in group["params"]]

    def _bring_state(self, state, group):
        """Counts of steps stay on the host, but where the optimizer wants them on the device."""
        counts_there = group.get("capturable") or group.get("fused")
        return tree_map(lambda value: self._device.bring(value, _IN)
                        if isinstance(value, torch.Tensor) and (value.dim() or counts_there) else value, state)

    # ---- in an iteration ----

    @contextlib.contextmanager
    def keeping_buffers(self):
        """For what is computed again, which must not change them again, as BatchNorm's statistics. They wait on the host."""
        changed = self._changed_buffers()
        kept = self._taken({name: self.tensors[name] for name in changed}) if changed else {}
        yield
        if kept:
            brought = {name: self._device.bring(tensor, _IN) for name, tensor in kept.items()}
            self._device.use(self._device.arrival())
            with self._device.computing():
                for name, tensor in brought.items():
                    self.tensors[name].copy_(tensor)

    def _changed_buffers(self):
        return [name for name in self._buffers if self._statistics or self.tensors[name]._version != self._versions[name][1]]

    def without_gradient(self):
        """The names of the parameters that should have got one."""
        return [name for name in self._trained if self.tensors[name].grad is None]

    def take_norms(self):
        """Of the gradients, one by one: a tensor of the host, which has them after wait_for(departure())."""
        with self._device.computing():
            norms = torch.stack([self.tensors[name].grad.to(mine.dtype).norm() for name, mine in self._trained.items()])
        there = self._device.host_tensor(norms.shape, norms.dtype)
        self._device.take_back(norms, there, _OUT)
        return there

    def update(self, max_value, scale=None):
        """By the gradients that are there, times `scale`; frees them."""
        with self._device.computing():
            for name, mine in self._trained.items():
                there = self.tensors[name]
                if mine is not there:
                    mine.grad, there.grad = there.grad.to(mine.dtype), None
                if scale is not None:
                    mine.grad.mul_(scale)
            if max_value is not None:
                nn.utils.clip_grad_value_(list(self._trained.values()), max_value)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                for name, mine in self._trained.items():
                    if mine is not self.tensors[name]:
                        self.tensors[name].copy_(mine)

    # ---- around the iterations ----

    def bring_home(self):
        """Makes the host's tensors current. Their versions stay, so that place() sees what others change."""
        if self._ahead:
            newer = self._trained | {name: self.tensors[name] for name in self._changed_buffers()}
            for name, tensor in newer.items():
                self._device.take_back(tensor, self._host[name].data, _OUT)
            self._device.wait_for(self._device.departure())
            self._ahead = False

    def optimizer_state(self):
        """As a state_dict() of the same optimizer on the host."""
        state = self._optimizer.state_dict()
        return {**state, "state": self._taken(state["state"])} if self._optimizer_is_there else state

    def load_optimizer_state(self, state):
        """Into the host's memory; place() brings it to the device."""
        if self._optimizer_is_there:
            self._optimizer.state.clear()
            self._give_optimizer({mine: self._host[name] for name, mine in self._trained.items()}, None)
            self._optimizer_is_there = False
        self._optimizer.load_state_dict(state)

    def release(self):
        """Brings home what is newer, and the optimizer's state, and frees the device. place() brings all of it there again."""
        self.bring_home()
        if self._optimizer_is_there:
            self.load_optimizer_state(self.optimizer_state())
        self.tensors, self._trained, self._versions = {}, {}, {}

    def _taken(self, values):
        """With the host's tensors in place of the device's."""
        def take(value):
            if not isinstance(value, torch.Tensor) or value.device != self._device.torch_device:
                return value
            mine = torch.empty(value.shape, dtype=value.dtype)
            self._device.take_back(value, mine, _OUT)
            return mine

        taken = tree_map(take, values)
        self._device.wait_for(self._device.departure())
        return taken
