#!/usr/bin/env python3
"""What an optimizer keeps and what its step allocates, event by event: the source of estimator/trace/optimizer.cc.

    python3 optimizer_steps.py          every optimizer and implementation of this PyTorch, on the CPU

Four parameters of 4000, 12000, 8000 and 16000 bytes, so that each event tells whose it is; the eighth step counts, because
RAdam adapts its rate from the sixth on. Muon takes matrices alone, so its vector is left out. bitsandbytes' optimizers are
shown if it is installed; their parameters are larger, since smaller states are not quantised.
"""
import contextlib
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

SHAPES = [(1000,), (30, 100), (20, 100), (8, 500)]
SHAPES_OF_8BIT = [(1000,), (100, 300), (400, 100), (200, 300)]
STEPS = 8
SMALLEST_SHOWN = 400
OPTIMIZERS = {
    "SGD": lambda parameters, **how: torch.optim.SGD(parameters, lr=1e-3, **how),
    "Momentum": lambda parameters, **how: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **how),
    **{name: getattr(torch.optim, name)
       for name in ("Adam", "AdamW", "Adagrad", "RMSprop", "Adafactor", "NAdam", "RAdam", "Adadelta", "Adamax")
       if hasattr(torch.optim, name)},
}
OF_BITSANDBYTES = ("Adam8bit", "AdamW8bit", "PagedAdamW8bit", "PagedAdamW", "Lion", "Lion8bit", "PagedLion8bit")


def events_of_step(make, shapes):
    parameters = [torch.nn.Parameter(torch.randn(*shape)) for shape in shapes]
    optimizer = make(parameters)
    for _ in range(STEPS):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as recorded:
            optimizer.step()
    state = sum(value.numel() * value.element_size() for parameter in parameters
                for value in optimizer.state[parameter].values() if torch.is_tensor(value))
    return state, [event.nbytes() for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]


def show(name, make, how, shapes):
    try:
        state, events = events_of_step(lambda parameters: make(parameters, **how), shapes)
    except (TypeError, RuntimeError) as error:
        print(name, how, "not there:", str(error)[:60])
        return
    live = peak = 0
    for bytes_ in events:
        live += bytes_
        peak = max(peak, live)
    print(name, how, "state", state, "peak", peak, [each for each in events if abs(each) >= SMALLEST_SHOWN])


def main():
    print("PyTorch", torch.__version__, "bytes of the parameters: 40000")
    for name, make in OPTIMIZERS.items():
        for how in ({}, {"foreach": True}, {"fused": True}):
            show(name, make, how, SHAPES)
    if hasattr(torch.optim, "Muon"):
        show("Muon", torch.optim.Muon, {}, SHAPES[1:])
    with contextlib.suppress(ImportError):
        import bitsandbytes
        for name in OF_BITSANDBYTES:
            show(name, getattr(bitsandbytes.optim, name), {}, SHAPES_OF_8BIT)


if __name__ == "__main__":
    main()
