#!/usr/bin/env python3
"""Ways to run an iteration, against real PyTorch on the CPU: activation checkpointing (torch.utils.checkpoint, with and
without reentrant autograd), gradient accumulation, and zero_grad() before backward instead of before forward.

The models are models/*.py's with a list of blocks; the graph is exported once and estimated with the options that say how
the loop runs. Fails unless the error is at most 1% (median) and 5% (worst).

    python3 loops.py --binary build/release/bin/plimsoll [--only REGEX]
"""
import argparse
import json
import pathlib
import re
import statistics
import sys

import measure
import run
import torch
from torch import nn
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
}
OPTIMIZERS = ["SGD", "Adam"]


class Checkpointed(nn.Module):
    def __init__(self, block, reentrant):
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, *arguments):
        return checkpoint(self.block, *arguments, use_reentrant=self.reentrant)


def parts_of(loop):
    return int(loop.rpartition("_")[2]) if "accumulate" in loop else 1


def train(function, batch_size, optimizer_name, loop):
    parts = parts_of(loop)
    module, inputs, loss_fn = function(batch_size // parts)
    module.train()
    if loop.startswith("checkpoint"):
        blocks = [Checkpointed(block, loop == "checkpoint_reentrant") for block in module.blocks]
        module.blocks = nn.Sequential(*blocks) if isinstance(module.blocks, nn.Sequential) else nn.ModuleList(blocks)
    optimizer = cases.make_optimizer(optimizer_name, list(module.parameters()))
    for _ in range(measure.ITERATIONS):
        measure.mark()
        if loop != "late_zero_grad":
            optimizer.zero_grad(set_to_none=True)
        measure.mark()
        for _ in range(parts - 1):
            loss = loss_fn(module(*inputs))
            loss.backward()
        loss = loss_fn(module(*inputs))
        measure.mark()
        if loop == "late_zero_grad":
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        measure.mark()
        optimizer.step()
        del loss
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
    rows = []
    for model, batch_size in MODELS.items():
        for loop, flags in LOOPS.items():
            for optimizer in OPTIMIZERS:
                if not re.search(options.only, f"{model} {loop} {optimizer}"):
                    continue
                truth = measure.in_child(child, (model, batch_size, optimizer, loop, "events" if options.events else None))
                graph, problem = run.exported(model, batch_size // parts_of(loop), "FP32")
                ours, answer = run.estimate(options.binary, graph, batch_size, optimizer, "plimsoll", flags) if graph else (None, problem)
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
