"""A swap plan: which layers run together on which GPU, and in what order (Harmony, HotOS'21; its code, msr-fiddle/harmony).

The forward pass and the backward pass have packs of their own: runs of layers whose weights are on a GPU together. A task is a
pack with all microbatches, so that its weights are brought to the GPU once. The backward task computes its layers again from the
input of the first one; the last pack has no forward task, because its backward task would follow it at once.

- vPP: the tasks go round the GPUs, one after the other. Each takes all samples. `mirrored`: the backward tasks go round in the reverse
  order, so that with equal packs a layer has both of its tasks on one GPU. `resident` layers have, and stay on it.
- vDP: each GPU runs all tasks, with its share of the samples; gradients are added up before they leave the GPUs.
"""

import json
import os
import typing

VDP, VPP = "vDP", "vPP"
_FIELDS = {"mode", "gpus", "batchSize", "layers", "microbatch", "packs"}


class PlanError(ValueError):
    """The plan is not one, or not of this model. The message names the field."""


class Task(typing.NamedTuple):
    """The layers [first, end) with all microbatches of the samples [begin_sample, end_sample), on GPU `device`."""

    forward: bool
    first: int
    end: int
    device: int
    begin_sample: int
    end_sample: int

    def layers(self):
        return range(self.first, self.end)


class Plan(typing.NamedTuple):
    mode: str
    gpus: int
    batch_size: int  # samples of an iteration, of all GPUs together
    layers: int
    forward_microbatch: int
    backward_microbatch: int
    forward_packs: tuple  # first layers
    backward_packs: tuple  # first layers
    prefetch: bool = False  # the weights of a GPU's next task arrive while the one before it runs
    device_bytes: typing.Optional[int] = None  # memory of a GPU that the plan was made for
    p2p: bool = True  # vPP's results go from GPU to GPU; else through the host
    weight_bytes: typing.Optional[tuple] = None  # of each layer's parameters, as they move: of the model that the plan was made for
    resident: tuple = ()  # vPP's layers that stay on their GPU from iteration to iteration, and are updated there
    mirrored: bool = False  # vPP's backward tasks go round the GPUs in the reverse order
    # First layers of backward packs whose input stays on the GPU that made it; the others' wait on the host.
    resident_stashes: tuple = ()
    # What the planner expects: what deviates from it is said once.
    iteration_seconds: typing.Optional[float] = None
    peak_bytes: typing.Optional[int] = None  # of a GPU
    input_bytes: typing.Optional[tuple] = None  # of each layer's input, for one sample

    @classmethod
    def from_environment(cls):
        """The file that PLIMSOLL_SWAP_PLAN names: where the operator puts a job's plan."""
        file = os.environ.get("PLIMSOLL_SWAP_PLAN", "")
        if not file:
            raise PlanError("no plan: give harmony.Trainer one, as `plimsoll swap -o json` prints it, "
                            "or set PLIMSOLL_SWAP_PLAN to its file")
        return file

    @classmethod
    def read(cls, source):
        """From a dictionary, or from a file that `plimsoll swap -o json` wrote. Members that the executor does not need are ignored."""
        if not isinstance(source, dict):
            with open(source, encoding="utf-8") as file:
                try:
                    source = json.load(file)
                except json.JSONDecodeError as error:
                    raise PlanError(f"{file.name} is no JSON: {error}") from None
            source = source[0] if isinstance(source, list) and len(source) == 1 else source
        if not isinstance(source, dict):
            raise PlanError("a plan is a JSON object")
        lacking = sorted(_FIELDS - source.keys())
        if lacking:
            raise PlanError(f"the plan lacks {', '.join(lacking)}")
        microbatch, packs = _members(source, "microbatch"), _members(source, "packs")
        device_bytes = _count(source, "deviceBytes") if source.get("deviceBytes") is not None else None
        weights = _of_layers(source, "weightBytes", "parameters")
        inputs = _of_layers(source, "inputBytes", "input for one sample")
        seconds = source.get("iterationSeconds")
        if seconds is not None and not (isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds > 0):
            raise PlanError(f"iterationSeconds must be a number above 0, is {seconds!r}")
        peak = _count(source, "peakDeviceBytes") if source.get("peakDeviceBytes") is not None else None
        resident, stashes = _layers(source, "resident"), _layers(source, "residentStashes")
        return cls(
            mode=source["mode"], gpus=_count(source, "gpus"), batch_size=_count(source, "batchSize"), layers=_count(source, "layers"),
            forward_microbatch=_count(microbatch, "forward", "microbatch."),
            backward_microbatch=_count(microbatch, "backward", "microbatch."),
            forward_packs=_starts(packs, "forward"), backward_packs=_starts(packs, "backward"),
            prefetch=_switch(source, "prefetch", False), device_bytes=device_bytes, p2p=_switch(source, "p2p", True),
            weight_bytes=weights, resident=resident, mirrored=_switch(source, "mirrored", False), resident_stashes=stashes,
            iteration_seconds=seconds, peak_bytes=peak, input_bytes=inputs).checked()

    def checked(self):
        if self.mode not in (VDP, VPP):
            raise PlanError(f"mode must be {VDP} or {VPP}, is {self.mode!r}")
        if self.mode == VDP and self.batch_size % self.gpus:
            raise PlanError(f"batchSize is {self.batch_size} and must be a multiple of the {self.gpus} GPUs of vDP")
        for name, size in (("forward", self.forward_microbatch), ("backward", self.backward_microbatch)):
            if self.samples() % size:
                raise PlanError(f"microbatch.{name} is {size} and must divide the {self.samples()} samples of a task")
        self._check_packs("backward", self.backward_packs, self.layers)
        last = self.backward_packs[-1]
        if last > 0 or self.forward_packs:
            self._check_packs("forward", self.forward_packs, last)
        if self.mirrored and self.mode == VDP:
            raise PlanError(f"mirrored: only {VPP}'s tasks go round the GPUs, and mode is {VDP}")
        self._check_resident()
        self._check_resident_stashes()
        return self

    def _check_packs(self, name, starts, end):
        rising = all(a < b for a, b in zip(starts, starts[1:]))
        if not starts or starts[0] != 0 or not rising or starts[-1] >= end:
            raise PlanError(f"packs.{name} must be the packs' first layers, rising from 0 to at most {end - 1}, is {list(starts)}")

    def _check_resident(self):
        layers = self.resident
        rising = all(map(_is_whole, layers)) and all(a < b for a, b in zip(layers, layers[1:]))
        if not rising or layers and not 0 <= layers[0] <= layers[-1] < self.layers:
            raise PlanError(f"resident must be layers, rising from 0 to at most {self.layers - 1}, is {list(layers)}")
        if layers and self.mode != VPP:
            raise PlanError(f"resident: only {VPP}'s layers can stay on a GPU, and mode is {self.mode}")
        there = self._devices(True)
        for layer, back in self.homes().items():
            if there.get(layer, back) != back:
                raise PlanError(f"resident: layer {layer} has its forward task on GPU {there[layer]} and its backward task on GPU {back}")

    def _check_resident_stashes(self):
        heads, stashes = self.resident_stashes, self.stashes()
        if not all(map(_is_whole, heads)) or any(a >= b for a, b in zip(heads, heads[1:])) or not set(heads) <= set(stashes):
            raise PlanError(f"residentStashes must be first layers of backward packs, rising, without layer 0 and the last pack's: of "
                            f"{list(stashes)}, is {list(heads)}")
        there, back = self._devices(True), self._devices(False)
        for head in heads if self.mode == VPP else ():
            if there[head] != back[head]:
                raise PlanError(f"residentStashes: layer {head} has its forward task on GPU {there[head]} and its backward task on GPU "
                                f"{back[head]}")

    def stashes(self):
        """The first layers of the backward packs that have a stash: not the first pack, whose input is the samples, nor the last one, whose
        backward pass follows its forward pass at once."""
        return tuple(first for first in self.backward_packs[:-1] if first > 0)

    def _devices(self, forward):
        return {layer: task.device for task in self.tasks() if task.forward == forward for layer in task.layers()}

    def homes(self):
        """Of each resident layer the GPU."""
        devices = self._devices(False) if self.resident else {}
        return {layer: devices[layer] for layer in self.resident}

    def samples(self):
        """Of a task."""
        return self.batch_size // self.gpus if self.mode == VDP else self.batch_size

    def tasks(self):
        """In an order in which each task finds what it needs."""
        forward = list(zip(self.forward_packs, (*self.forward_packs[1:], self.backward_packs[-1])))
        backward = list(zip(self.backward_packs, (*self.backward_packs[1:], self.layers)))
        chain = [(True, *pack) for pack in forward] + [(False, *pack) for pack in reversed(backward)]
        if self.mode == VPP:
            turn = len(forward)
            places = [2 * turn - index if self.mirrored and index > turn else index for index in range(len(chain))]
            return [Task(*pack, place % self.gpus, 0, self.batch_size) for pack, place in zip(chain, places)]
        each = self.samples()
        return [Task(*pack, rank, rank * each, (rank + 1) * each) for pack in chain for rank in range(self.gpus)]

    def hands_over_by_p2p(self):
        """Results go from GPU to GPU; else a GPU hands them to itself, through the host."""
        return self.mode == VPP and self.gpus > 1 and self.p2p


class Volumes(typing.NamedTuple):
    """Bytes that an iteration moves between the host and all GPUs, and from GPU to GPU."""

    weights_in: int = 0
    gradients_out: int = 0
    stash_in: int = 0
    stash_out: int = 0
    hand_over_in: int = 0
    hand_over_out: int = 0
    inputs_in: int = 0  # the samples
    targets_in: int = 0
    p2p: int = 0
    reduced: int = 0  # from GPU to GPU, of vDP's gradients
    buffers_out: int = 0  # what the forward pass changed, as BatchNorm's statistics

    def swapped(self):
        return sum(self) - self.p2p - self.reduced


def volumes(plan, weights, gradients, activations, targets=0):
    """What the plan moves, by the closed forms of the runtime's schedule. `weights`, `gradients`: bytes of each layer;
    `activations`: bytes of each layer's input for one sample; `targets`: of one sample.

    Each weight arrives for its forward task and for its backward task, but for those of the last pack, which has one task, and
    those that a GPU needs for two tasks in a row. With one copy of the model's parts per GPU in vDP. Of resident layers neither weights
    nor gradients move."""
    tasks, copies = plan.tasks(), plan.gpus if plan.mode == VDP else 1
    arrived, on_gpu, resident = 0, {}, set(plan.resident)
    for task in tasks:
        arrived += sum(weights[layer] for layer in task.layers() if layer not in resident and layer not in on_gpu.get(task.device, ()))
        on_gpu[task.device] = task.layers()
    leaving = sum(size for layer, size in enumerate(gradients) if layer not in resident)
    samples = plan.batch_size
    stash = samples * sum(activations[first] for first in plan.stashes() if first not in plan.resident_stashes)
    last = plan.backward_packs[-1]
    borders = [first for first in (*plan.forward_packs[1:], *plan.backward_packs[1:]) if first > 0]
    turn = samples * activations[last] if last > 0 else 0
    crossing = samples * sum(activations[first] for first in borders)
    by_host = turn if plan.forward_microbatch != plan.backward_microbatch else 0  # cut into other microbatches there
    p2p = plan.hands_over_by_p2p()
    handed = turn + crossing
    passes = 1 + (len(plan.backward_packs) > 1)  # samples are the input of the first forward and of the first backward pack
    return Volumes(weights_in=arrived, gradients_out=leaving, stash_in=stash, stash_out=stash,
                   hand_over_in=by_host if p2p else handed, hand_over_out=by_host if p2p else handed,
                   inputs_in=samples * passes * activations[0], targets_in=samples * targets, p2p=handed - by_host if p2p else 0,
                   reduced=(copies - 1) * leaving)


def _members(source, name):
    if not isinstance(source[name], dict):
        raise PlanError(f"{name} must be an object with forward and backward")
    return source[name]


def _layers(source, name):
    value = source.get(name)
    if value is not None and not isinstance(value, list):
        raise PlanError(f"{name} must be a list of layers, is {value!r}")
    return tuple(value or ())


def _count(source, name, path=""):
    value = source.get(name)
    if not _is_whole(value) or value < 1:
        raise PlanError(f"{path}{name} must be a whole number of at least 1, is {value!r}")
    return value


def _of_layers(source, name, what):
    value = source.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != source["layers"] or not all(map(_is_whole, value)):
        raise PlanError(f"{name} must be a list of the bytes of each layer's {what}")
    return tuple(value)


def _is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _switch(source, name, default):
    value = source.get(name, default)
    if not isinstance(value, bool):
        raise PlanError(f"{name} must be true or false, is {value!r}")
    return value


def _starts(source, name):
    value = source.get(name)
    if not isinstance(value, list) or not all(map(_is_whole, value)):
        raise PlanError(f"packs.{name} must be a list of the packs' first layers")
    return tuple(value)
