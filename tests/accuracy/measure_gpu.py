#!/usr/bin/env python3
"""What training takes on a CUDA device: allocated, reserved and whole-card peaks of a list of models, as JSON.

    python3 measure_gpu.py -o measured_gpu/NAME.json      needs torch 2 and a CUDA device that nobody else uses
    python3 measure_gpu.py --rehearse                     trains each case on the CPU with two samples: what can fail fails here

Each case runs in a process of its own. `allocated` and `reserved` are the caching allocator's own peaks over three
iterations; `card` is the most that the whole card had in use (sampled; context included), and `cardBefore` what it had
in use before the process began. Files in measured_gpu/ are compared with estimates by compare_gpu.py.
"""
import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "models")]

import torch  # noqa: E402

import cases  # noqa: E402

ITERATIONS = 3
SAMPLE_SECONDS = 0.002
CASES = [
    ("cnn:resnet18", 256, "SGD"), ("cnn:resnet50", 128, "Adam"), ("cnn:mobilenet_v2", 256, "AdamW"),
    ("cnn:densenet121", 128, "Momentum"), ("cnn:vgg11", 128, "SGD"), ("cnn:convnext", 64, "AdamW"),
    ("cnn:efficientnet", 128, "RMSprop"), ("cnn:regnet", 256, "SGD"), ("vision:vit", 256, "AdamW"),
    ("vision:unet", 64, "Adam"), ("vision:mixer", 256, "AdamW"), ("text:gpt_tied", 64, "AdamW"),
    ("text:gpt_sdpa", 64, "AdamW"), ("text:llama", 64, "AdamW"), ("text:encoder", 128, "AdamW"),
    ("text:transformer", 128, "Adam"), ("text:encoder_decoder", 128, "Adam"), ("text:lstm", 256, "Adam"),
    ("recommend:dlrm", 16384, "Adagrad"), ("recommend:dlrm_sparse", 16384, "SGD"), ("recommend:dcn", 8192, "Adam"),
    ("odd:plain_mlp", 8192, "Adam"),
]
# What cuDNN takes, by batch (networks of published_gpu.json whose runs differ most from the estimates), and with
# torch.backends.cudnn.benchmark.
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


def train(model, batch_size, optimizer_name, device="cuda", iterations=ITERATIONS):
    module_name, _, function = model.partition(":")
    torch.set_default_device(device)
    module, inputs, loss_fn = getattr(importlib.import_module(module_name), function)(batch_size)
    module.train()
    optimizer = cases.make_optimizer(optimizer_name, [p for p in module.parameters() if p.requires_grad])
    for _ in range(iterations):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(module(*inputs))
        loss.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        del loss


def rehearse():
    """Trains each case once on the CPU; gives the number of cases that fail."""
    failed = 0
    for model, _, optimizer in dict.fromkeys((model, None, optimizer) for model, _, optimizer in CASES + BENCHMARK_CASES):
        try:
            train(model, REHEARSED_SAMPLES, optimizer, "cpu", 1)
            print(f"{model} {optimizer}: trains", flush=True)
        except Exception as error:
            failed += 1
            print(f"{model} {optimizer}: {type(error).__name__}: {error}", flush=True)
    return failed


def measure_here(model, batch_size, optimizer_name, benchmark):
    """In the case's own process. Looking at the card makes the context; what was in use before the parent says."""
    torch.backends.cudnn.benchmark = benchmark
    watcher = CardWatcher()
    watcher.start()
    train(model, batch_size, optimizer_name)
    card = watcher.stop()
    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(), "card": card}


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE", help="default: standard output")
    parser.add_argument("--case", nargs=3, metavar=("MODEL", "BATCH", "OPTIMIZER"), help="one case, in this process")
    parser.add_argument("--benchmark", action="store_true", help="with --case: torch.backends.cudnn.benchmark")
    parser.add_argument("--rehearse", action="store_true", help="train each case on the CPU with two samples; measure nothing")
    options = parser.parse_args()
    if options.rehearse:
        return 1 if rehearse() else 0
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing was measured. docs/estimation.md compares with published GPU figures instead.")
        return 0
    if options.case:
        print(json.dumps(measure_here(options.case[0], int(options.case[1]), options.case[2], options.benchmark)))
        return 0
    rows = []
    for benchmark, (model, batch_size, optimizer) in [*((False, case) for case in CASES), *((True, case) for case in BENCHMARK_CASES)]:
        before = used_before()
        done = subprocess.run([sys.executable, __file__, "--case", model, str(batch_size), optimizer, *["--benchmark"] * benchmark],
                              capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        lines = done.stdout.strip().splitlines()
        result = json.loads(lines[-1]) if done.returncode == 0 and lines else {
            "error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
        rows.append({"model": model, "batchSize": batch_size, "optimizer": optimizer, "cudnnBenchmark": benchmark,
                     "cardBefore": before, **result})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    properties = torch.cuda.get_device_properties(0)
    text = json.dumps({
        "gpu": properties.name, "capacity": properties.total_memory, "torch": torch.__version__, "cuda": torch.version.cuda,
        "driver": ask_driver("driver_version"), "cudnn": torch.backends.cudnn.version(),
        "allocatorSettings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "rows": rows}, indent=1) + "\n"
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
