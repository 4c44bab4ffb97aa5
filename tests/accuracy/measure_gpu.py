#!/usr/bin/env python3
"""What training takes on a CUDA device: allocated, reserved and whole-card peaks of a list of models, as JSON.

    python3 measure_gpu.py -o measured_gpu/NAME.json      needs torch 2 and a CUDA device that nobody else uses
    python3 measure_gpu.py --rehearse                     trains each case on the CPU with two samples: what can fail fails here

Each case runs in a process of its own (a fork, so that PyTorch is imported once), and the file is written after each.
`allocated` and `reserved` are the caching allocator's own peaks; `card` is the most that the whole card had in use (sampled;
context included), and `cardBefore` what it had in use before the process began. `phases` has the bytes at the moments of
the last iteration. compare_gpu.py compares the files of measured_gpu/ with estimates.
"""
import argparse
import importlib
import json
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "models")]

import torch  # noqa: E402

import cases  # noqa: E402

WARM_UP = 2
ITERATIONS = 3
CASE_SECONDS = 90
SAMPLE_SECONDS = 0.002
CASES = [
    ("cnn:resnet18", 256, "SGD"), ("cnn:resnet50", 128, "Adam"), ("cnn:mobilenet_v2", 256, "AdamW"),
    ("cnn:densenet121", 128, "Momentum"), ("cnn:vgg11", 128, "SGD"), ("cnn:convnext", 64, "AdamW"),
    ("cnn:efficientnet", 128, "RMSprop"), ("cnn:regnet", 256, "SGD"), ("vision:vit", 256, "AdamW"),
    ("vision:unet", 64, "Adam"), ("vision:mixer", 256, "AdamW"), ("text:gpt_tied", 64, "AdamW"),
    ("text:gpt_sdpa", 64, "AdamW"), ("text:llama", 64, "AdamW"), ("text:encoder", 128, "AdamW"),
    ("text:transformer", 128, "Adam"), ("text:encoder_decoder", 128, "Adam"), ("text:lstm", 256, "Adam"),
    ("recommend:dlrm", 16384, "Adagrad"), ("recommend:dlrm_sparse", 16384, "SGD"), ("recommend:dcn", 8192, "Adam"),
    ("odd:plain_mlp", 8192, "Adam"), ("cnn:resnet50", 128, "SGD@BF16Mixed"), ("text:gpt_sdpa", 64, "AdamW@BF16Mixed"),
]
# What cuDNN takes, by batch (networks of published_gpu.json whose runs differ most from the estimates), and with
# torch.backends.cudnn.benchmark.
CASES += [(f"published:imagenet_{model}_224", batch, "SGD") for model in ("vgg16", "resnet50") for batch in (32, 128)]
CASES += [(f"published:{model}", batch, "Adam")
          for model in ("mnasnet1_0_10", "mobilenet_v2_1000", "regnet_x_400mf_1000", "regnet_y_400mf_1000")
          for batch in (100, 200, 251, 308, 317, 377, 482)]
BENCHMARK_CASES = [("cnn:resnet50", 128, "Adam"), ("cnn:vgg11", 64, "SGD"), ("published:mnasnet1_0_10", 200, "Adam"),
                   ("published:regnet_y_400mf_1000", 200, "Adam")]
REHEARSED_SAMPLES = 2


def card_in_use():
    free, total = torch.cuda.mem_get_info()
    return total - free


class CardWatcher(threading.Thread):
    """The highest of many looks at the card."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.done = 0, threading.Event()

    def run(self):
        while not self.done.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, card_in_use())

    def stop(self):
        self.done.set()
        self.join()
        return max(self.peak, card_in_use())


class Recorder:
    """The allocator's peaks, as a whole and between two calls of `peak`."""

    def __init__(self):
        self.allocated = self.reserved = 0

    def peak(self):
        """Bytes at most since the last call."""
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
        self.allocated = max(self.allocated, peak)
        self.reserved = max(self.reserved, torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()
        return peak


def iterate(optimizers, losses, recorder=None):
    """One iteration, of as many backward passes as there are losses. With a recorder: the bytes at its moments."""
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    moments = {}
    if recorder:
        recorder.peak()
        moments["start"] = torch.cuda.memory_allocated()
    for make_loss in losses:
        loss = make_loss()
        if recorder:
            moments["forwardPeak"] = recorder.peak()
            moments["forwardEnd"] = torch.cuda.memory_allocated()
        loss.backward()
        del loss
    if recorder:
        moments["backwardPeak"] = recorder.peak()
        moments["backwardEnd"] = torch.cuda.memory_allocated()
    for optimizer in optimizers:
        optimizer.step()
    if recorder:
        moments["stepPeak"] = recorder.peak()
    return moments


def measure_iterations(optimizers, losses):
    """Row of what the iterations take on this process's CUDA device. Seconds are those of steady iterations."""
    for _ in range(WARM_UP):
        iterate(optimizers, losses)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(ITERATIONS):
        iterate(optimizers, losses)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / ITERATIONS
    recorder = Recorder()
    moments = iterate(optimizers, losses, recorder)
    return {"allocated": recorder.allocated, "reserved": recorder.reserved, "seconds": seconds,
            "retries": torch.cuda.memory_stats()["num_alloc_retries"], "phases": moments}


def in_child(function, *arguments, seconds=CASE_SECONDS):
    """What the function returns in a fork of this process, which must not have touched CUDA yet; {"error": TEXT} where it fails."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run():
        try:
            theirs.send(function(*arguments))
        except Exception as error:
            theirs.send({"error": f"{type(error).__name__}: {error}".splitlines()[0]})

    child = context.Process(target=run)
    child.start()
    theirs.close()
    try:
        result = ours.recv() if ours.poll(seconds) else {"error": f"no answer within {seconds} s"}
    except EOFError:
        result = {"error": "the process died"}
    child.kill()
    child.join()
    return result


def watched(function, *arguments):
    """The function's row, with the most that the card had in use. For a process of its own."""
    watcher = CardWatcher()
    watcher.start()
    row = function(*arguments)
    return {**row, "card": watcher.stop()}


def prepare(model, batch_size, optimizer_name, device):
    """([optimizer], [function that gives a loss])"""
    module_name, _, function = model.partition(":")
    torch.set_default_device(device)
    module, inputs, loss_fn = getattr(importlib.import_module(module_name), function)(batch_size)
    module.train()
    precision = cases.parts(optimizer_name)[2]
    optimizer = cases.make_optimizer(optimizer_name, [p for p in module.parameters() if p.requires_grad])

    def make_loss():
        with torch.autocast(device, torch.bfloat16, enabled=precision == "BF16Mixed"):
            return loss_fn(module(*inputs))

    return [optimizer], [make_loss]


def rehearse():
    """Trains each case once on the CPU; gives the number of cases that fail."""
    failed = 0
    for model, _, optimizer in dict.fromkeys((model, None, optimizer) for model, _, optimizer in CASES + BENCHMARK_CASES):
        try:
            iterate(*prepare(model, REHEARSED_SAMPLES, optimizer, "cpu"))
            print(f"{model} {optimizer}: trains", flush=True)
        except Exception as error:
            failed += 1
            print(f"{model} {optimizer}: {type(error).__name__}: {error}", flush=True)
    return failed


def measure_case(model, batch_size, optimizer_name, benchmark):
    torch.backends.cudnn.benchmark = benchmark
    return measure_iterations(*prepare(model, batch_size, optimizer_name, "cuda"))


def ask_driver(what):
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits", "--id=0"],
                              capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.split()[0] if done.returncode == 0 and done.stdout.split() else None


def used_before():
    mebibytes = ask_driver("memory.used")
    return None if mebibytes is None else int(mebibytes) * 2**20


def device():
    """What a file begins with; None where there is no CUDA device. For a process of its own: it makes the context."""
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    return {"gpu": properties.name, "capacity": properties.total_memory, "torch": torch.__version__, "cuda": torch.version.cuda,
            "driver": ask_driver("driver_version"), "cudnn": torch.backends.cudnn.version(),
            "allocatorSettings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")}


def as_text(head, rows):
    """JSON with a line for each row."""
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    return json.dumps(head, indent=1).removesuffix("\n}") + f',\n "rows": [\n{lines}\n ]\n}}\n'


def measure_all(jobs, output, head):
    """Writes a row of each job: (what the row begins with, function, arguments...)."""
    rows = []
    for names, function, *arguments in jobs:
        row = {**names, "cardBefore": used_before(), **in_child(watched, function, *arguments)}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        if output:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(as_text(head, rows))
    if not output:
        print(as_text(head, rows), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE", help="default: standard output")
    parser.add_argument("--only", metavar="REGEX", default="", help="cases whose MODEL BATCH OPTIMIZER matches somewhere")
    parser.add_argument("--rehearse", action="store_true", help="train each case on the CPU with two samples; measure nothing")
    options = parser.parse_args()
    if options.rehearse:
        return 1 if rehearse() else 0
    head = in_child(device)
    if head is None:
        print("no CUDA device here: nothing was measured. docs/estimation.md compares with published GPU figures instead.")
        return 0
    jobs = [({"model": model, "batchSize": batch, "optimizer": optimizer, "cudnnBenchmark": benchmark},
             measure_case, model, batch, optimizer, benchmark)
            for chosen, benchmark in ((CASES, False), (BENCHMARK_CASES, True)) for model, batch, optimizer in chosen
            if re.search(options.only, f"{model} {batch} {optimizer}")]
    measure_all(jobs, options.output, head)
    return 0


if __name__ == "__main__":
    sys.exit(main())
