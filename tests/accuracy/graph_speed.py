#!/usr/bin/env python3
"""The predicted time of an iteration of exported graphs beside published ones: timm's models on an RTX 3090 (timm_rtx3090.csv).

Exports each model for CUDA (FP16Mixed, minutes in all) and prints predicted and published seconds. Fails if the median of the
factor between them is above 1.3, or the 90th percentile above 1.7, which is what IterationTime::uncertainty says of graphs.

    python3 graph_speed.py --binary build/release/bin/plimsoll [--only REGEX]

Needs timm (PLIMSOLL_TORCH_PYTHON's environment has it).
"""

import argparse
import csv
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import timm
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "trainer"))

LIMITS = {"median": 1.3, "90th percentile": 1.7}
EXPORTED_BATCH = 8


def published():
    with open(HERE / "timm_rtx3090.csv") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def exported(row, path):
    from plimsoll import export

    def function(batch):
        size = int(row["image_size"])
        labels = torch.zeros(batch, dtype=torch.int64)
        images = torch.randn(batch, 3, size, size)
        return timm.create_model(row["model"]), (images,), lambda output: nn.functional.cross_entropy(output, labels)

    export.write(export.export(function, EXPORTED_BATCH, "cuda", "FP16Mixed", row["model"]), path)


def predicted(binary, row, path):
    answer = subprocess.run(
        [binary, "estimate", "--graph", path, "--batch-size", row["batch_size"], "--gpu", "RTX-3090", "--optimizer", "SGD",
         "--precision", "FP16Mixed", "-o", "json"], capture_output=True, text=True, check=False)  # it may not fit by the bound
    return float(json.loads(answer.stdout)["throughput"]["iterationSeconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, help="plimsoll")
    parser.add_argument("--only", default="", help="models whose names match")
    options = parser.parse_args()
    torch.set_num_threads(1)
    factors = []
    with tempfile.TemporaryDirectory() as folder:
        for row in published():
            if not re.search(options.only, row["model"]):
                continue
            path = f"{folder}/graph.json.gz"
            exported(row, path)
            ratio = predicted(options.binary, row, path) / float(row["step_seconds"])
            factors.append(max(ratio, 1 / ratio))
            print(f"{row['model']:32} batch {row['batch_size']:>4}: {row['step_seconds']} s, predicted {ratio:.2f} of it", flush=True)
    factors.sort()
    figures = {"median": statistics.median(factors), "90th percentile": factors[int(0.9 * (len(factors) - 1) + 0.5)]}
    print(f"{len(factors)} models, factor: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))
    return any(figures[name] > limit for name, limit in LIMITS.items()) if not options.only else 0


if __name__ == "__main__":
    sys.exit(main())
