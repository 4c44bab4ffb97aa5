#!/usr/bin/env python3
"""What real PyTorch takes on the CPU: the peak of one steady-state training iteration, to the byte.

Every allocation and release of a process is recorded by torch.profiler from before the model is built, so the running
sum is all that lives: parameters, buffers, inputs, targets, optimizer state, and what the iteration makes. The second
iteration is the one that counts: the optimizer's state is there. Each case runs in a process of its own (a fork of this one,
so that PyTorch is imported once). Results are kept under ~/.cache/plimsoll/accuracy, keyed by the sources, the case and the versions.

    python3 measure.py                                    all cases, as JSON lines
    python3 measure.py text:gpt_tied 2 AdamW              one case
    python3 measure.py --live text:gpt_tied 2 AdamW       and what lives at its peak, with the operator that made it
    python3 measure.py --events text:gpt_tied 2 AdamW     and every event of the iteration
"""
import argparse
import hashlib
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "models")]

import torch  # noqa: E402  (the environment must be set before)
import torchvision  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

import cases  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "plimsoll" / "accuracy"
ITERATIONS = 2
PHASES = ["ZeroGrad", "Forward", "Backward", "OptimizerStep"]
# A tensor of this many bytes is made and dropped where a phase begins; no model has one of this size.
MARKER_BYTES = 67_108_879
# Part of the cache's key: what is recorded, or how, has changed when this changes.
METHOD_VERSION = 2


def mark():
    torch.empty(MARKER_BYTES, dtype=torch.uint8)


def train(function, batch_size, optimizer_name):
    module, inputs, loss_fn = function(batch_size)
    module, inputs, precision = cases.in_precision(module, inputs, optimizer_name)
    module.train()
    optimizer = cases.make_optimizer(optimizer_name, [p for p in module.parameters() if p.requires_grad])
    for _ in range(ITERATIONS):
        mark()
        optimizer.zero_grad(set_to_none=True)
        mark()
        with precision():
            loss = loss_fn(module(*inputs))
        mark()
        loss.backward()
        mark()
        optimizer.step()
        del loss
    mark()


def allocation_events(recorded):
    """(address, bytes, negative for a release; the event), in order of time."""
    found, waiting = [], list(recorded.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        fields = event.extra_fields if hasattr(event, "extra_fields") else event.typed[1]
        if hasattr(fields, "alloc_size"):
            found.append((event.start_time_ns, event, fields))
    found.sort(key=lambda item: item[0])
    return [(fields.ptr, fields.alloc_size, event) for _, event, fields in found]


def operators(event):
    names = []
    event = event.parent
    while event is not None:
        names.append(event.name)
        event = event.parent
    return names


def analyse(events, detail):
    """The last iteration's highest point, its phase, and what lives there."""
    marks, live, peak, peaks, lines = 0, {}, 0, {}, []
    first_mark, total, state, at_peak = (ITERATIONS - 1) * len(PHASES) + 1, 0, 0, []
    for pointer, size, event in events:
        if abs(size) == MARKER_BYTES:
            marks += size > 0
            if size > 0 and marks == first_mark + 1:  # after zero_grad
                state = total
            continue
        if marks >= first_mark + len(PHASES):
            break
        total += size
        if size > 0:
            live[pointer] = (size, event, PHASES[marks - first_mark] if marks >= first_mark else "before")
        else:
            live.pop(pointer, None)
        if marks < first_mark:
            continue
        phase = PHASES[marks - first_mark]
        peaks[phase] = max(peaks.get(phase, total), total)
        if detail == "events":
            lines.append([phase, size, total, " < ".join(operators(event)[:4])])
        if total > peak:
            peak = total
            at_peak = sorted(live.values(), key=lambda item: -item[0]) if detail else []
    assert marks == ITERATIONS * len(PHASES) + 1, f"{marks} phases were seen"
    result = {"peakBytes": peak, "stateBytes": state, "peakPhase": max(peaks, key=peaks.get), "phasePeaks": peaks}
    if detail:
        result["live"] = [[size, phase, " < ".join(operators(event)[:4])] for size, event, phase in at_peak[:60]]
    if detail == "events":
        result["events"] = lines
    return result


def resolve(model):
    module, _, function = model.partition(":")
    return getattr(importlib.import_module(module), function)


def measure_here(model, batch_size, optimizer_name, detail=None):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        train(resolve(model), batch_size, optimizer_name)
    return analyse(allocation_events(recorded), detail)


def child(connection, arguments):
    try:
        connection.send(measure_here(*arguments))
    except Exception as problem:  # the parent must hear of it, whatever it is
        connection.send({"error": f"{type(problem).__name__}: {problem}"})


def in_child(target, arguments):
    """What `target(connection, arguments)` sends from a process of its own."""
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=target, args=(theirs, arguments))
    process.start()
    theirs.close()
    try:
        result = ours.recv()
    except EOFError:
        result = {"error": "the process died"}
    process.join()
    return result


def cache_key(model, batch_size, optimizer_name):
    digest = hashlib.sha256()
    for path in [HERE / "models" / (model.split(":")[0] + ".py"), HERE / "models" / "cnn.py"]:  # vision.py uses cnn.py
        digest.update(path.read_bytes())
    versions = [METHOD_VERSION, torch.__version__, torchvision.__version__, cpu_capability()]
    versions += [importlib.metadata.version("transformers")] if cases.needs_transformers(model) else []
    digest.update(json.dumps([model, batch_size, optimizer_name, versions]).encode())
    return digest.hexdigest()[:32]


def cpu_capability():
    """Which vector instructions oneDNN may use: its layouts, and so its temporaries, depend on them."""
    flags = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    return next((name for name in ("amx_tile", "avx512_bf16", "avx512f", "avx2") if name in flags), "default")


def measure(model, batch_size, optimizer_name, detail=None):
    """One case in a process of its own, or from the cache."""
    entry = CACHE / (cache_key(model, batch_size, optimizer_name) + ".json")
    if detail is None and entry.exists():
        return json.loads(entry.read_text())
    began = time.monotonic()
    result = in_child(child, (model, batch_size, optimizer_name, detail))
    result = {"model": model, "batchSize": batch_size, "optimizer": optimizer_name, **result,
              "torch": torch.__version__, "cpu": cpu_capability(), "seconds": round(time.monotonic() - began, 2)}
    if detail is None and "error" not in result:
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = entry.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(result))
        partial.rename(entry)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case", nargs="*", help="MODEL BATCH_SIZE OPTIMIZER; none: all")
    parser.add_argument("--live", action="store_const", const="live", dest="detail", help="what lives at the peak")
    parser.add_argument("--events", action="store_const", const="events", dest="detail", help="and every event")
    options = parser.parse_args()
    if options.case and len(options.case) != 3:
        parser.error("a case is MODEL BATCH_SIZE OPTIMIZER")
    chosen = ([(options.case[0], int(options.case[1]), options.case[2])] if options.case
              else cases.cases_for(torch.__version__))
    for module in sorted({model.split(":")[0] for model, _, _ in chosen}):
        importlib.import_module(module)
    for case in chosen:
        result = measure(*case, detail=options.detail)
        details = [(title, result.pop(title)) for title in ("events", "live") if title in result]
        for title, rows in details:
            print(f"# {title}", *("\t".join(map(str, row)) for row in rows), sep="\n")
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
