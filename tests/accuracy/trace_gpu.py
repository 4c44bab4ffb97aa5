#!/usr/bin/env python3
"""What PyTorch's caching allocator is asked for on a CUDA device, block by block, and what it reserves for it.

    python3 trace_gpu.py tests/estimator/allocator/traces_NAME.json.gz      needs torch 2, transformers 5 and a CUDA device

Each run is three iterations in a process of its own. An event n >= 0 allocates n granules of 512 B; -1 - i frees what the i-th
allocation made. Blocks of less than 0.5 MiB are left out. tests/estimator/allocator/traces_test.cc replays the file.
"""
import argparse
import gzip
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "models")]

import torch  # noqa: E402

import measure_gpu  # noqa: E402
import transformers_on_gpu  # noqa: E402

ITERATIONS = 3
LEAST_BYTES = 1 << 19
GRANULE = 512
EVENTS = 400_000
# Name: what picks the case of transformers_on_gpu, and the number of layers; all of them where it is None.
TRANSFORMERS = {
    "bert": ("BERT large", {"precision": "BF16Mixed"}, 2), "llama1b": ("Llama 3.2 1B", {"precision": "BF16"}, 2),
    "llama1bfull": ("Llama 3.2 1B", {"precision": "BF16"}, None), "qwen3": ("Qwen3 0.6B", {"precision": "BF16"}, None),
    "mamba": ("Mamba, 4 layers", {}, 1), "vit": ("ViT large", {"precision": "BF16Mixed"}, 2),
    "t5": ("T5 base", {"precision": "BF16Mixed"}, 2), "whisper": ("Whisper small", {"precision": "BF16Mixed"}, 2),
    "tinyfull": ("TinyLlama", {"precision": "BF16", "activationCheckpointing": "Full"}, None),
    "compile": ("TinyLlama", {"compile": "Model"}, 2),
}
MODELS = [("cnn:resnet18", 256, "SGD"), ("cnn:vgg11", 128, "SGD"), ("cnn:mobilenet_v2", 256, "AdamW"), ("vision:unet", 64, "Adam"),
          ("vision:vit", 256, "AdamW"), ("cnn:regnet", 256, "SGD"), ("cnn:densenet121", 128, "Momentum")]


def with_layers(row, layers):
    spec = row["model"]["transformer"]
    config = json.loads(spec["config"])
    for key in ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"):
        if key in config and layers is not None:
            config[key] = layers
    return {**row, "model": {"transformer": {**spec, "config": json.dumps(config)}}}


def row_of(case, training, layers):
    found = next(row for row in transformers_on_gpu.CASES
                 if row["case"] == case and all(row["training"].get(key) == value for key, value in training.items()))
    return with_layers(found, layers)


def events_of(trace):
    made, events, count = {}, [], 0
    for event in trace:
        if event["action"] == "alloc" and event["size"] >= LEAST_BYTES:
            made[event["addr"]] = count
            count += 1
            events.append(-(-event["size"] // GRANULE))
        elif event["action"] == "free_completed" and event["addr"] in made:
            events.append(-1 - made.pop(event["addr"]))
    return events


def traced(prepare, *arguments):
    transformers_on_gpu.quiet()
    torch.cuda.memory._record_memory_history(max_entries=EVENTS, context=None)
    optimizers, losses = prepare(*arguments, "cuda")
    for _ in range(ITERATIONS):
        measure_gpu.iterate(optimizers, losses)
    torch.cuda.synchronize()
    return {"reserved": torch.cuda.max_memory_reserved(), "events": events_of(torch.cuda.memory._snapshot()["device_traces"][0])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=pathlib.Path, metavar="FILE.json.gz")
    output = parser.parse_args().output
    jobs = [(name, transformers_on_gpu.prepare, row_of(*which)) for name, which in TRANSFORMERS.items()]
    jobs += [(model, measure_gpu.prepare, model, *others) for model, *others in MODELS]
    runs = [{"name": name, **measure_gpu.in_child(traced, *job)} for name, *job in jobs]
    text = json.dumps({"runs": runs}, separators=(",", ":"))
    output.write_bytes(gzip.compress(text.encode(), mtime=0))
    failed = [run["name"] for run in runs if "error" in run]
    print(f"{len(runs)} runs; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
