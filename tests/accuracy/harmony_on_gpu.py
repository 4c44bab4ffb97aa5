"""Trains GPT-2 XL on a GPU by swap plans, and prints what was predicted beside what was measured (docs/harmony.md, On a GPU).

    plimsoll swap --config examples/gpt2-xl-config.json --gpus 1 --batch-size 16 --gpu H100-80GB --precision BF16Mixed --capacity 12Gi \\
                  --links host=55G -o json > plan.json
    PYTHONPATH=trainer python3 tests/accuracy/harmony_on_gpu.py examples/gpt2-xl-config.json plan.json ... [--unfused] [--profile FILE]

Needs CUDA and transformers. --profile measures the layers, too, and writes what `plimsoll swap --profile` reads.
"""

import argparse
import gc
import json
import time

import torch
import transformers
from plimsoll import harmony
from plimsoll.harmony import profile as profiles

STEPS = 4


def next_token_loss(logits, words):
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def available_bytes():
    """Of the host. What CUDA has pinned is no process's resident memory, so that this is what tells."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


def trained(model, plan, precision, fused):
    """Seconds of the last two iterations, what the host has available after them, and the trainer, which has ended."""
    words = torch.randint(0, model.config.vocab_size, (plan["batchSize"], model.config.n_positions))
    with harmony.Trainer(model, next_token_loss, lambda parameters: torch.optim.AdamW(parameters, lr=1e-5, fused=fused), plan,
                         precision=precision) as trainer:
        seconds = []
        for _ in range(STEPS):
            began = time.perf_counter()
            trainer.step(words, words)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        available = available_bytes()
    return sum(seconds[-2:]) / 2, available, trainer


def report(name, plan, seconds, host_bytes, trainer):
    moved = trainer.moved()
    print(name, len(plan["resident"]), round(plan["iterationSeconds"], 3), round(seconds, 3), plan["peakDeviceBytes"],
          trainer.devices[0].peak_bytes, torch.cuda.max_memory_reserved(), plan["volumes"]["swapped"],
          (moved.swapped() - moved.targets_in) // STEPS, plan["hostBytes"], host_bytes, sep="  ", flush=True)


def update_rate(fused):
    """GB a second that AdamW reads and writes on the host, for a block of GPT-2 XL: weights and two states both, gradients read."""
    parameters = [torch.zeros(shape, requires_grad=True) for shape in ((1600, 4800), (1600, 1600), (1600, 6400), (6400, 1600))]
    optimizer = torch.optim.AdamW(parameters, fused=fused)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer.step()
    began = time.perf_counter()
    for _ in range(STEPS):
        optimizer.step()
    moved = 7 * sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    return STEPS * moved / (time.perf_counter() - began) / 1e9


def write_profile(model, file, precision):
    def function(size):
        words = torch.randint(0, model.config.vocab_size, (size, model.config.n_positions))
        return model, words, words, next_token_loss

    with open(file, "w", encoding="utf-8") as output:
        json.dump(profiles.measure(function, [1, 2, 4], print, precision), output)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config", help="GPT-2's config.json")
    parser.add_argument("plans", nargs="*", metavar="PLAN.json")
    parser.add_argument("--unfused", action="store_true", help="the optimizer's step on the host without PyTorch's fused kernels")
    parser.add_argument("--fp32", action="store_true", help="compute in fp32, for plans of --precision FP32; else in bfloat16")
    parser.add_argument("--profile", metavar="FILE", help="measure microbatches of 1, 2 and 4, and write the profile")
    options = parser.parse_args()
    precision = None if options.fp32 else torch.bfloat16
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    before = available_bytes()
    with open(options.config, encoding="utf-8") as file:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**json.load(file)))
    print(f"AdamW on the host: {update_rate(False):.0f} GB/s, fused {update_rate(True):.0f} GB/s, {torch.get_num_threads()} threads")
    print("plan  stay  predicted_s  measured_s  planned_peak_bytes  peak_bytes  reserved_bytes  planned_swapped_bytes  swapped_bytes  "
          "planned_host_bytes  host_bytes")
    for name in options.plans:
        with open(name, encoding="utf-8") as file:
            plan = json.load(file)
        plan = plan[0] if isinstance(plan, list) else plan
        torch.cuda.reset_peak_memory_stats()
        try:
            seconds, available, trainer = trained(model, plan, precision, False if options.unfused else None)
            report(name, plan, seconds, before - available, trainer)
            del trainer
        except torch.cuda.OutOfMemoryError as error:
            print(name, "ran out of memory:", str(error).split(". ")[0], flush=True)
        gc.collect()  # a trainer and its model refer to each other
        torch.cuda.empty_cache()
        if hasattr(torch._C, "_host_emptyCache"):
            torch._C._host_emptyCache()
    if options.profile:
        write_profile(model, options.profile, precision)


if __name__ == "__main__":
    main()
