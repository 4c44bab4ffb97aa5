#!/usr/bin/env python3
"""Ways to run an iteration, against real PyTorch on the CPU: activation checkpointing (torch.utils.checkpoint, with and
without reentrant autograd), gradient accumulation, zero_grad() before backward instead of before forward or with
set_to_none=False, an exponential moving average of the weights, gradient clipping, which takes nothing that counts,
validation passes of as many samples, and of 64 times as many, an epoch's last, smaller batch, and torch.amp.GradScaler
under autocast to fp16.

The models are models/*.py's with a list of blocks; the graph is exported once and estimated with the options that say how
the loop runs. Fails unless the error is at most 1% (median) and 5% (worst).

    python3 loops.py --binary build/release/bin/plimsoll [--only REGEX]
"""
import argparse
import contextlib
import json
import pathlib
import re
import statistics
import sys

import measure
import run
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import cases

LIMITS = {"median": 1.0, "worst": 5.0}  # percent
MODELS = {"parallel:gpt": 8, "text:llama": 4, "text:gpt_tied": 4}
LOOPS = {
    "checkpoint": ["--checkpoint", "Full"],
    "checkpoint_reentrant": ["--checkpoint", "Full", "--reentrant"],
    "accumulate_2": ["--accumulate", "2"],
    "accumulate_4": ["--accumulate", "4"],
    "checkpoint_accumulate_2": ["--checkpoint", "Full", "--accumulate", "2"],
    "late_zero_grad": ["--zero-grad", "before-backward"],
    "kept_gradients": ["--no-set-to-none"],
    "averaged_model": ["--averaged-model"],
    "clipped": [],
    "validation_1": ["--validation-batch-size", "1"],
    "validation_64": ["--validation-batch-size", "64"],
    "last_batch_1": ["--last-batch-size", "1"],
    "last_batch_3_validation": ["--last-batch-size", "3", "--validation-batch-size", "4"],
    "scaled": ["--grad-scaler"],
}
OPTIMIZERS = ["SGD", "Adam"]
NEEDS_TORCH_2 = ["scaled"]  # PyTorch 1.13's GradScaler is CUDA's alone, and its autocast on the CPU has bf16 alone


class Checkpointed(nn.Module):
    def __init__(self, block, reentrant):
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, *arguments):
        return checkpoint(self.block, *arguments, use_reentrant=self.reentrant)


def parts_of(loop):
    return int(loop.rpartition("_")[2]) if "accumulate" in loop else 1


def times_of(loop):
    return int(loop.rpartition("_")[2])


def validate(module, inputs, loss_fn):
    module.eval()
    with torch.no_grad():
        loss_fn(module(*inputs))
    module.train()


def flags_of(loop, batch_size):
    times = times_of(loop) if loop.startswith("validation") else 0
    return [str(batch_size * times) if flag == str(times) else flag for flag in LOOPS[loop]]


def precision_of(loop):
    return "FP16Mixed" if loop == "scaled" else "FP32"


def ends_of_epoch(function, batch_size, loop):
    """What flags_of(loop) names besides the usual iteration, in the order of an epoch's end: (is it training, its arguments)."""
    flags = flags_of(loop, batch_size)
    return [(option == "--last-batch-size", function(int(flags[flags.index(option) + 1]))[1:])
            for option in ("--last-batch-size", "--validation-batch-size") if option in flags]


def step(module, optimizer, inputs, loss_fn):
    optimizer.zero_grad(set_to_none=True)
    loss_fn(module(*inputs)).backward()
    optimizer.step()


def scaling(loop):
    """(GradScaler, autocast). A scale of 1, so that no gradient overflows and every step is taken; a disabled one does nothing."""
    if loop == "scaled":
        return torch.amp.GradScaler("cpu", init_scale=1.0), torch.autocast("cpu", torch.float16)
    return torch.cuda.amp.GradScaler(enabled=False), contextlib.nullcontext()


def train(function, batch_size, optimizer_name, loop):
    parts = parts_of(loop)
    module, inputs, loss_fn = function(batch_size // parts)
    module.train()
    if loop.startswith("checkpoint"):
        blocks = [Checkpointed(block, loop == "checkpoint_reentrant") for block in module.blocks]
        module.blocks = nn.Sequential(*blocks) if isinstance(module.blocks, nn.Sequential) else nn.ModuleList(blocks)
    optimizer = cases.make_optimizer(optimizer_name, list(module.parameters()))
    averaged = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.999)) if loop == "averaged_model" else None
    others = ends_of_epoch(function, batch_size, loop)
    usual = inputs, loss_fn
    scaler, autocast = scaling(loop)
    for _ in range(measure.ITERATIONS):
        inputs, loss_fn = usual
        measure.mark()
        if loop != "late_zero_grad":
            optimizer.zero_grad(set_to_none=loop != "kept_gradients")
        measure.mark()
        for _ in range(parts - 1):
            loss = loss_fn(module(*inputs))
            loss.backward()
        with autocast:
            loss = loss_fn(module(*inputs))
        measure.mark()
        if loop == "late_zero_grad":
            optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        measure.mark()
        if loop == "clipped":
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if averaged is not None:
            averaged.update_parameters(module)
        del loss
        for is_training, (inputs, loss_fn) in others:
            if is_training:
                step(module, optimizer, inputs, loss_fn)
            else:
                validate(module, inputs, loss_fn)
    measure.mark()


def child(connection, arguments):
    try:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        model, batch_size, optimizer_name, loop, detail = arguments
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            train(measure.resolve(model), batch_size, optimizer_name, loop)
        connection.send(measure.analyse(measure.allocation_events(recorded), detail))
    except Exception as problem:  # the parent must hear of it, whatever it is
        connection.send({"error": f"{type(problem).__name__}: {problem}"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=pathlib.Path, default=run.ROOT / "build" / "release" / "bin" / "plimsoll")
    parser.add_argument("--only", default="", help="cases whose 'model loop optimizer' matches")
    parser.add_argument("--events", action="store_true", help="print every event of the iteration")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE", help="rows as JSON")
    options = parser.parse_args()
    loops = [loop for loop in LOOPS if int(torch.__version__.split(".")[0]) >= 2 or loop not in NEEDS_TORCH_2]
    rows = []
    for model, batch_size in MODELS.items():
        for loop in loops:
            for optimizer in OPTIMIZERS:
                if not re.search(options.only, f"{model} {loop} {optimizer}"):
                    continue
                truth = measure.in_child(child, (model, batch_size, optimizer, loop, "events" if options.events else None))
                graph, problem = run.exported(model, batch_size // parts_of(loop), precision_of(loop))
                ours, answer = (run.estimate(options.binary, graph, batch_size, f"{optimizer}@{precision_of(loop)}",
                                             "plimsoll", flags_of(loop, batch_size)) if graph else (None, problem))
                problem = truth.get("error") or (None if ours else answer)
                error = 100.0 if problem else run.percent(ours, truth["peakBytes"])
                print(*("\t".join(map(str, event)) for event in truth.get("events", [])), sep="\n")
                print(f"{model:14} {loop:24} {optimizer:5} measured {truth.get('peakBytes', 0):>11} ours {ours or 0:>11} "
                      f"{error:+8.3f}%  {truth.get('peakPhase', '')} {problem or ''}".rstrip(), flush=True)
                rows.append({"model": model, "batchSize": batch_size, "loop": loop, "optimizer": optimizer,
                             "measuredBytes": truth.get("peakBytes"), "estimatedBytes": ours, "errorPercent": error})
    errors = [abs(row["errorPercent"]) for row in rows]
    figures = {"median": statistics.median(errors), "worst": max(errors)}
    print("  ".join(f"{key} {value:.3f}%" for key, value in figures.items()))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))
    problems = [f"{key} error {figures[key]:.3f}% is over {limit}%" for key, limit in LIMITS.items() if figures[key] > limit]
    for problem in problems:
        print("FAILED:", problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
