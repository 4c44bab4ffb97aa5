#!/usr/bin/env python3
"""Estimates beside what measure_gpu.py measured: each file measured_gpu/CARD.json is one card and one PyTorch.

    python3 compare_gpu.py [--binary FILE] [FILE.json ...]      default: all such

Prints allocated and reserved peaks, ours and the card's, and says so where no file is there. Fails when a measured card peak
is above our upper bound, or a case cannot be estimated. The bound is compared without the context too: reserved memory
above the bound less its context is marked.
"""
import argparse
import json
import pathlib
import statistics
import sys

import cases
import run

HERE = pathlib.Path(__file__).resolve().parent


def estimated(binary, row, gpu):
    """(the answer's peak, None) or (None, why not)"""
    graph, problem = run.exported(row["model"], row["batchSize"], cases.parts(row["optimizer"])[2], device="cuda")
    if graph is None:
        return None, problem
    _, answer = run.estimate(binary, graph, row["batchSize"], row["optimizer"], "plimsoll",
                               ["--gpu", gpu], device="cuda")
    if isinstance(answer, dict):
        answer["peak"]["withoutContext"] = answer["peak"]["upperBoundBytes"] - answer["breakdown"]["cudaContextBytes"]
    return (answer["peak"], None) if isinstance(answer, dict) else (None, answer)


def compare(binary, path):
    """How many rows failed."""
    measured = json.loads(path.read_text())
    print(f"{path.name}: {measured['gpu']}, PyTorch {measured['torch']}, CUDA {measured['cuda']}")
    print(f"{'':28} {'batch':>6} {'optimizer':10} {'allocated':>9} {'ours':>9} {'err %':>7} {'reserved':>9} {'ours':>9} {'err %':>7}   MiB")
    failed, errors = 0, {"allocated": [], "reserved": []}
    for row in measured["rows"]:
        if row.get("cudnnBenchmark"):
            continue  # not modelled
        name = f"{row['model']:28} {row['batchSize']:6} {row['optimizer']:10}"
        peak, problem = (None, row["error"]) if "error" in row else estimated(binary, row, measured["gpu"])
        if peak is None:
            failed += 1
            print(f"{name} {problem}")
            continue
        cells = []
        for key in errors:
            ours = peak[key + "Bytes"]
            errors[key].append(run.percent(ours, row[key]))
            cells.append(f"{run.mebibytes(row[key]):>9} {run.mebibytes(ours):>9} {errors[key][-1]:+7.2f}")
        above = row["card"] - (row["cardBefore"] or 0) > peak["upperBoundBytes"]
        failed += above
        mark = "ABOVE THE BOUND" if above else "above the bound without its context" if row["reserved"] > peak["withoutContext"] else ""
        print(name, *cells, mark)
    for key, found in errors.items():
        if found:
            sizes = [abs(e) for e in found]
            print(f"{key}: median {statistics.median(sizes):.2f}%  worst {max(sizes):.2f}%")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=pathlib.Path, default=run.ROOT / "build" / "release" / "bin" / "plimsoll")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    files = options.files or sorted(path for path in (HERE / "measured_gpu").glob("*.json") if "_" not in path.name)
    if not files:
        print("measured_gpu/ has no file: no card was at hand (measure_gpu.py makes one); the published figures stand for it")
    sys.exit(1 if sum(compare(options.binary, path) for path in files) else 0)


if __name__ == "__main__":
    main()
