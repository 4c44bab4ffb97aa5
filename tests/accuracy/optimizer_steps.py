#!/usr/bin/env python3
"""What an optimizer keeps and what its step allocates, event by event: the source of estimator/trace/optimizer.cc.

    python3 optimizer_steps.py          every optimizer and implementation of this PyTorch, on the CPU

Four parameters of 4000, 12000, 8000 and 16000 bytes, so that each event tells whose it is; the third step counts.
"""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

SHAPES = [(1000,), (30, 100), (20, 100), (8, 500)]
SMALLEST_SHOWN = 400
OPTIMIZERS = {
    "SGD": lambda parameters, **how: torch.optim.SGD(parameters, lr=1e-3, **how),
    "Momentum": lambda parameters, **how: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **how),
    **{name: getattr(torch.optim, name)
       for name in ("Adam", "AdamW", "Adagrad", "RMSprop", "Adafactor") if hasattr(torch.optim, name)},
}


def events_of_step(make):
    parameters = [torch.nn.Parameter(torch.randn(*shape)) for shape in SHAPES]
    optimizer = make(parameters)
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as recorded:
            optimizer.step()
    state = sum(value.numel() * value.element_size() for parameter in parameters
                for value in optimizer.state[parameter].values() if torch.is_tensor(value))
    return state, [event.nbytes() for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]


def main():
    print("PyTorch", torch.__version__, "bytes of the parameters: 40000")
    for name, make in OPTIMIZERS.items():
        for how in ({}, {"foreach": True}, {"fused": True}):
            try:
                state, events = events_of_step(lambda parameters, make=make, how=how: make(parameters, **how))
            except (TypeError, RuntimeError) as error:
                print(name, how, "not there:", str(error)[:60])
                continue
            live = peak = 0
            for bytes_ in events:
                live += bytes_
                peak = max(peak, live)
            print(name, how, "state", state, "peak", peak, [each for each in events if abs(each) >= SMALLEST_SHOWN])


if __name__ == "__main__":
    main()
