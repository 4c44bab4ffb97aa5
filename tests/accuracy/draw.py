#!/usr/bin/env python3
"""Draws the models of cases.DRAWN by a seed, from the lists of transformers and torchvision. Nothing is estimated.

A model is eligible if it can be built in small (models/drawn.py), and two training steps on the CPU take less than 60 s and
8 GB. Prints the rows of cases.DRAWN, and on standard error what was not eligible; needs torch 2 and transformers:

    python3 tests/accuracy/draw.py
"""
import contextlib
import importlib
import io
import pathlib
import random
import resource
import signal
import sys
import warnings

import measure
import torch
import torchvision

SEED = 20261122
QUOTAS = {"causal": 18, "masked": 4, "seq2seq": 4, "image": 4, "audio": 3, "torchvision": 7}
MAPPINGS = {"causal": "CAUSAL_LM", "masked": "MASKED_LM", "seq2seq": "SEQ_TO_SEQ_CAUSAL_LM", "image": "IMAGE_CLASSIFICATION",
            "audio": "AUDIO_CLASSIFICATION"}
TOKENS = {"causal": [512, 1024, 2048], "masked": [128, 512], "seq2seq": [128, 512]}
OPTIMIZERS = ["SGD", "AdamW", "Adam", "Momentum"]
SECONDS, MEMORY_BYTES = 60, 8 << 30


def names(task):
    if task == "torchvision":
        left_out = ("quantized", "raft")  # no training, no classification
        detection = ("rcnn", "retinanet", "ssd", "fcos")  # their losses need boxes
        return [name for name in torchvision.models.list_models()
                if not name.startswith(left_out) and not any(word in name for word in detection)]
    from transformers.models.auto import modeling_auto
    return list(getattr(modeling_auto, f"MODEL_FOR_{MAPPINGS[task]}_MAPPING_NAMES"))


def try_out(connection, case):
    model, batch_size = case
    address_space = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (address_space + MEMORY_BYTES,) * 2)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.set_num_threads(1)
            module, inputs, loss_fn = measure.resolve(model)(batch_size)
            module.train()
            for _ in range(2):
                loss = loss_fn(module(*inputs))
                loss.backward()
        connection.send({"parameters": sum(p.numel() for p in module.parameters())})
    except BaseException as problem:  # whatever it is: it is not eligible
        connection.send({"error": f"{type(problem).__name__}: {problem}"})


def main():
    warnings.filterwarnings("ignore")
    importlib.import_module("drawn")
    for task, quota in QUOTAS.items():
        random.seed(f"{SEED} {task}")
        candidates = sorted(names(task))
        random.shuffle(candidates)
        found = 0
        for candidate in candidates:
            tokens = random.choice(TOKENS.get(task, [0]))
            batch_size, optimizer = random.choice([2, 3, 4]), random.choice(OPTIMIZERS)
            model = f"drawn:tv__{candidate}" if task == "torchvision" else f"drawn:hf__{task}__{candidate}__{tokens}"
            result = measure.in_child(try_out, (model, batch_size))
            if "error" in result:
                print(f"# not eligible: {model}: {str(result['error']).splitlines()[0][:90]}", file=sys.stderr, flush=True)
                continue
            print(f'    "{model}": [({batch_size}, "{optimizer}")],', flush=True)
            found += 1
            if found == quota:
                break


if __name__ == "__main__":
    main()
