#!/usr/bin/env python3
"""Compares per-rank estimates of parallel jobs with real runs over gloo (measure_parallel.py, torch 2).

The figures in measured_torch2.json stand for the runs where the installed PyTorch and the kind of CPU are the file's; one
case of each strategy is then run again, and must repeat. Otherwise every case is run. Fails unless the error per rank
is at most 1% (median) and 5% (worst), over all and for each strategy.
"""
import argparse
import json
import pathlib
import random
import statistics
import sys
import tempfile

import measure_parallel
import measure
import run
import torch

MEASURED = pathlib.Path(__file__).with_name("measured_torch2.json")
LIMITS = {"median": 1.0, "worst": 5.0}  # percent
REPEATS_WITHIN = 0.5  # percent
ATTEMPTS = 3  # gloo's threads release their copies when they come to it: a busy machine shows some too long
FLAGS = {
    "plain": [],
    "ddp": ["--parallelism", "DDP"],
    "ddp_view": ["--parallelism", "DDP", "--gradient-as-bucket-view"],
    "zero1": ["--parallelism", "ZeRO1"],
    "fsdp1": ["--parallelism", "FSDP"],
    "fsdp2": ["--parallelism", "FSDP2"],
    "fsdp2_alone": ["--parallelism", "FSDP2"],
    "plain_in_backward": ["--optimizer-in-backward"],
    "fsdp2_in_backward": ["--parallelism", "FSDP2", "--optimizer-in-backward"],
    "hsdp1": ["--parallelism", "FSDP", "--replicate", str(measure_parallel.REPLICATE)],
    "hsdp2": ["--parallelism", "FSDP2", "--replicate", str(measure_parallel.REPLICATE)],
    "tensor": ["--parallelism", "Tensor"],
    "pipeline": ["--parallelism", "Pipeline"],
    "interleaved": ["--parallelism", "Pipeline", "--pipeline-chunks", str(measure_parallel.CHUNKS)],
}
for saved in measure_parallel.SAVED:
    strategy, _, form = saved.partition("_saved_")
    FLAGS[saved] = [*FLAGS[strategy], "--checkpoint-saving", form.capitalize()]
# These have no exported graph: the stages of a spec, from its config.json.
PIPELINE = ["--parallelism", "FSDP2", "--pipeline", str(measure_parallel.STAGES),
            "--accumulate", str(measure_parallel.MICROBATCHES)]
SPEC_FLAGS = {
    "fsdp2_pipeline": PIPELINE,
    "fsdp2_pipeline_gathered": [*PIPELINE, "--no-reshard-after-forward"],
    "fsdp2_interleaved": [*PIPELINE, "--no-reshard-after-forward", "--pipeline-chunks", "2"],
}


def key_of(row):
    return row["strategy"], row["model"], row["batchSizePerRank"], row["ranks"]


def peaks_of(row):
    return [rank["peakBytes"] for rank in row["perRank"]]


def measured_again(strategy, model, batch_size, ranks):
    results = measure_parallel.run((strategy, model, batch_size), ranks, None)
    problems = [result["error"] for result in results if "error" in result]
    if problems:
        sys.exit(f"FAILED: {strategy} {model} on {ranks} ranks could not be measured: {problems[0]}")
    return {"strategy": strategy, "model": model, "batchSizePerRank": batch_size, "ranks": ranks, "perRank": results}


def measured_runs():
    """The truth: the file's, with a sample run again, or everything run here."""
    document = json.loads(MEASURED.read_text())
    kept = document["runs"]
    if (document["torch"], document["cpu"]) != (torch.__version__, measure.cpu_capability()):
        print(f"{MEASURED.name} is of PyTorch {document['torch']} on {document['cpu']}: measuring everything here")
        return [measured_again(*key_of(row)) for row in kept]
    draw = random.Random()
    for strategy in sorted({row["strategy"] for row in kept}):
        row = draw.choice([row for row in kept if row["strategy"] == strategy])
        for _ in range(ATTEMPTS):
            again = measured_again(*key_of(row))
            apart = max(abs(run.percent(new, old)) for new, old in zip(peaks_of(again), peaks_of(row)))
            if apart <= REPEATS_WITHIN:
                break
        print(f"run again: {strategy:11} {row['model']:9} batch {row['batchSizePerRank']:5} ranks {row['ranks']}: "
              f"within {apart:.3f}%", flush=True)
        if apart > REPEATS_WITHIN:
            sys.exit(f"FAILED: this run does not repeat what {MEASURED.name} says")
    return kept


def spec_peaks(binary, row):
    """(bytes by rank, None) or (None, reason), of a model that is a config.json: of each stage, whose ranks are equal."""
    flags = [*SPEC_FLAGS[row["strategy"]], "--trainers", str(row["ranks"]), "--sequence-length",
             str(measure_parallel.parallel.LLAMA_TOKENS[row["model"]])]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump(measure_parallel.parallel.LLAMA, config)
        config.flush()
        peak, answer = run.estimate_of(binary, ["--config", config.name], row["batchSizePerRank"], measure_parallel.OPTIMIZER,
                                       "plimsoll", flags)
    if peak is None:
        return None, answer
    alike = row["ranks"] // len(answer["ranks"])
    return [rank["allocatedBytes"] for rank in answer["ranks"] for _ in range(alike)], None


def estimated_peaks(binary, graph, row):
    """(bytes by rank, None) or (None, reason)."""
    flags = [*FLAGS[row["strategy"]], "--trainers", str(row["ranks"])]
    if "Pipeline" in flags:
        flags += ["--microbatches", str(measure_parallel.microbatches_of(row["ranks"]))]
    peak, answer = run.estimate(binary, graph, row["batchSizePerRank"], measure_parallel.OPTIMIZER, "plimsoll", flags)
    if peak is None:
        return None, answer
    return [rank["allocatedBytes"] for rank in answer.get("ranks", [])] or [peak] * row["ranks"], None


def estimates_of(binary, row):
    if row["strategy"] in SPEC_FLAGS:
        return spec_peaks(binary, row)
    graph, problem = run.exported(f"parallel:{row['model']}", row["batchSizePerRank"], "FP32")
    return estimated_peaks(binary, graph, row) if graph else (None, problem)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=pathlib.Path, default=run.ROOT / "build" / "release" / "bin" / "plimsoll")
    parser.add_argument("--no-assert", action="store_true", help="only print")
    parser.add_argument("--as-measured", action="store_true", help="take the file's figures, run nothing")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE", help="rows as JSON")
    options = parser.parse_args()
    runs = json.loads(MEASURED.read_text())["runs"] if options.as_measured else measured_runs()
    rows = []
    print(f"\n{'strategy':11} {'model':9} {'batch':>5} {'ranks':>5} {'rank':>4} {'measured':>9} {'ours':>9} {'err %':>8}   MiB")
    for row in runs:
        estimates, problem = estimates_of(options.binary, row)
        for rank, measured in enumerate(peaks_of(row)):
            estimated = estimates[rank] if estimates else None
            rows.append({"strategy": row["strategy"], "model": row["model"], "batchSize": row["batchSizePerRank"],
                         "ranks": row["ranks"], "rank": rank, "measuredBytes": measured, "estimatedBytes": estimated,
                         "errorPercent": run.percent(estimated, measured), "problem": problem})
            print(f"{row['strategy']:11} {row['model']:9} {row['batchSizePerRank']:5} {row['ranks']:5} {rank:4} "
                  f"{run.mebibytes(measured):>9} {run.mebibytes(estimated):>9} {rows[-1]['errorPercent']:+8.3f}  "
                  f"{problem or ''}".rstrip(), flush=True)
    problems = []
    for strategy in [*FLAGS, *SPEC_FLAGS, "all"]:
        own = [abs(row["errorPercent"]) for row in rows if strategy in (row["strategy"], "all")]
        if own:
            figures = {"median": statistics.median(own), "worst": max(own)}
            problems += [f"{strategy}: {key} error {figures[key]:.3f}% is over {limit}%"
                         for key, limit in LIMITS.items() if figures[key] > limit]
            print(f"{strategy:11} ranks {len(own):3}  " + "  ".join(f"{key} {value:.3f}%" for key, value in figures.items()))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))
    for problem in [] if options.no_assert else problems:
        print("FAILED:", problem)
    sys.exit(1 if problems and not options.no_assert else 0)


if __name__ == "__main__":
    main()
