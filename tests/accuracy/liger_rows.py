#!/usr/bin/env python3
"""Single operations that linkedin/Liger-Kernel measured, beside `plimsoll estimate --graph` of the same operation.

    python3 liger_rows.py                     a line for each kind of operation; needs torch 2 and transformers
    python3 liger_rows.py --rows [REGEX]      a line for each row, or of the kinds that match

liger_memory.csv has the rows of benchmark/data/all_benchmark_data.csv (BSD-2-Clause, commit ead96b6) whose provider is PyTorch or
transformers, of the kinds that models/liger.py builds: what is allocated at the highest point of a round, in MiB. Left out are
`embedding`, whose process held 12 GB of something else, and rows of `mode` forward and backward. Fails where a row differs by more
than 1 %, but for the kinds below, whose reason is known.
"""
import argparse
import pathlib
import re
import statistics
import sys

import run

sys.path.insert(0, str(run.HERE / "models"))

import liger  # noqa: E402

BINARY = run.ROOT / "build" / "release" / "bin" / "plimsoll"
LIMIT = 1.0  # percent
MEBIBYTE = 1 << 20
BLOCK = 512  # of the caching allocator
# cuBLAS' workspace of one handle on these cards (CUBLAS_WORKSPACE_CONFIG's default, :4096:2:16:8), and how many the rows have: of
# forward's thread and of autograd's. The rotary embedding makes its angles in a product.
CUBLAS = 8_519_680
HANDLES = {"swiglu": 2, "geglu": 2, "fused_linear_cross_entropy": 2, "rope": 1}
# The gradients of the last round are gone when a round begins.
FREES = ("rope", "megatron_swiglu")
KNOWN = {"swiglu": "an added gradient is freed before the rest of its node has run, where autograd frees it afterwards"}


def scaffold(kind):
    """Blocks that the rows do not have: the input, and where the gradient is given, the loss and its own gradient."""
    has_loss = kind in ("cross_entropy", "kl_div", "jsd", "tvd", "fused_linear_cross_entropy", "megatron_swiglu", "megatron_rms_norm")
    return BLOCK * (1 if has_loss else 3)


def estimated(binary, index):
    """Bytes, or None and a reason."""
    kind = liger.ROWS[index]["kernel"]
    graph, problem = run.exported(f"liger:row_{index}", 1, device="cuda")
    if graph is None:
        return None, problem
    flags = ["--gpu", "A100-80GB"] + ([] if kind in FREES else ["--no-set-to-none"])
    peak, answer = run.estimate(binary, graph, 1, "SGD", "plimsoll", flags, "cuda")
    if peak is None:
        return None, answer
    return peak - answer["breakdown"].get("workspaceBytes", 0) + HANDLES.get(kind, 0) * CUBLAS - scaffold(kind), None


def compared_rows(binary, kinds=""):
    """A row for each of the table whose kind matches the expression; without an estimate it is wrong by 100 %."""
    rows = []
    for index, row in enumerate(liger.ROWS):
        if re.search(kinds, row["kernel"]):
            measured = float(row["peak_mib"])
            ours, problem = estimated(binary, index)
            name = f"{row['kernel']:27} {row['x_name']:>9} {row['x_value']:>6}"
            rows.append({"kind": row["kernel"], "model": name, "measuredMiB": measured,
                         "allocatedMiB": None if ours is None else ours / MEBIBYTE, "problem": problem,
                         "errorPercent": run.percent(ours, measured * MEBIBYTE)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", nargs="?", const="", metavar="REGEX", help="a line for each row")
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    options = parser.parse_args()
    errors, failed = {}, 0
    for row in compared_rows(options.binary, options.rows or ""):
        kind, error = row["kind"], row["errorPercent"]
        errors.setdefault(kind, []).append(abs(error))
        wrong = abs(error) > LIMIT and kind not in KNOWN
        failed += wrong
        if options.rows is not None or row["problem"]:
            found = row["problem"] or f"{row['measuredMiB']:11.3f} MiB {row['allocatedMiB']:11.3f} {error:+7.3f} %"
            print(row["model"], found, "WRONG" * wrong)
    print(f"{'':27} rows  median    mean   worst %")
    for kind, sizes in errors.items():
        print(f"{kind:27} {len(sizes):4} {statistics.median(sizes):7.3f} {statistics.fmean(sizes):7.3f} {max(sizes):7.3f}  "
              f"{KNOWN.get(kind, '') if max(sizes) > LIMIT else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
