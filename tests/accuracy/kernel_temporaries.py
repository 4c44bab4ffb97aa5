#!/usr/bin/env python3
"""What ATen's CPU kernels take inside: a source of estimator/kernels/rules.h.

    python3 kernel_temporaries.py       the kernels of a few small models, those that take something inside

Before and after each operator a tensor of a size that nothing else has is made and dropped. The profiler's memory
events come in order, so what lies between two such marks is that operator's, to the byte.
"""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_flatten  # noqa: E402

MARK = 1234577


def mark():
    torch.empty(MARK, dtype=torch.uint8)


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        mark()
        result = func(*args, **(kwargs or {}))
        mark()
        shapes = [tuple(each.shape) for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
        self.calls.append((str(func), shapes))
        return result


def temporaries(run):
    """[(operator, shapes of its tensors, bytes it takes beyond what it leaves, events)]"""
    with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as recorded:
        with Recorder() as recorder:
            run()
    events = [event.nbytes() for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    between = [[]]
    at = 0
    while at < len(events):
        if events[at:at + 2] == [MARK, -MARK]:
            between.append([])
            at += 2
        else:
            between[-1].append(events[at])
            at += 1
    for (name, shapes), own in zip(recorder.calls, between[1::2]):
        live = peak = 0
        for bytes_ in own:
            live += bytes_
            peak = max(peak, live)
        if peak > max(live, 0):
            yield name, shapes, peak - max(live, 0), own


def step(module, *inputs):
    def run():
        result = module(*inputs)
        (result[0] if isinstance(result, tuple) else result).pow(2).mean().backward()
    return run


def main():
    print("PyTorch", torch.__version__)
    images = torch.randn(4, 3, 32, 32)
    cases = [
        step(nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
                           nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.Conv2d(32, 32, 3, groups=32)), images),
        step(nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.GELU()), images),
        step(nn.ConvTranspose2d(3, 4, 2, stride=2), images),
        step(nn.LSTM(16, 32, 2, batch_first=True), torch.randn(4, 7, 16)),
        step(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.randn(4, 16, 32)),
        step(nn.EmbeddingBag(1000, 16, mode="sum"), torch.randint(0, 1000, (8, 5))),
    ]
    for run in cases:
        for name, shapes, taken, events in temporaries(run):
            print(name, shapes, taken, events)


if __name__ == "__main__":
    main()
