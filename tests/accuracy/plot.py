#!/usr/bin/env python3
"""Draws predicted against measured peaks as a plain SVG, from what run.py or published_gpu.py wrote.

    python3 plot.py build/release/accuracy/torch-1.13.0a0.json [MORE.json...] -o docs/figures/predicted_vs_measured.svg
    python3 published_gpu.py --set all -o json > published.json
    python3 plot.py published.json -o docs/figures/published_gpu.svg
"""
import argparse
import json
import math
import pathlib

SIDE, LEFT, TOP, RIGHT, BOTTOM = 520, 70, 46, 16, 56
METHODS = [("estimatedBytes", "plimsoll", "#1f6fb2"), ("ampBytes", "AMP's formula", "#d1661f")]
MIB = 2**20


class LogAxis:
    """Bytes to pixels; one scale for both axes, so that a right estimate lies on the diagonal."""

    def __init__(self, values):
        self.low = 2 ** math.floor(math.log2(min(values)))
        self.high = 2 ** math.ceil(math.log2(max(values)))

    def at(self, value):
        return SIDE * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self):
        return [self.low * 2**i for i in range(0, int(math.log2(self.high / self.low)) + 1, 2)]


def name(count):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} B"


def draw(rows, title, measured_by):
    axis = LogAxis([row[key] for row in rows for key in ("measuredBytes", "estimatedBytes", "ampBytes") if row.get(key)])
    width, height = LEFT + SIDE + RIGHT, TOP + SIDE + BOTTOM
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<text x="{LEFT}" y="18" font-size="14">{title}</text>']
    x, y = (lambda value: LEFT + axis.at(value)), (lambda value: TOP + SIDE - axis.at(value))
    for tick in axis.ticks():
        parts += [f'<path d="M{x(tick):.1f} {TOP}V{TOP + SIDE}M{LEFT} {y(tick):.1f}H{LEFT + SIDE}" stroke="#ddd"/>',
                  f'<text x="{x(tick):.1f}" y="{TOP + SIDE + 16}" text-anchor="middle">{name(tick)}</text>',
                  f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{name(tick)}</text>']
    parts += [f'<path d="M{LEFT} {TOP + SIDE}L{LEFT + SIDE} {TOP}" stroke="#888"/>',
              f'<rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#444"/>',
              f'<text x="{LEFT + SIDE / 2}" y="{height - 14}" text-anchor="middle">{measured_by}</text>',
              f'<text transform="translate(14 {TOP + SIDE / 2}) rotate(-90)" text-anchor="middle">predicted</text>']
    for position, (key, title, colour) in reversed(list(enumerate(METHODS))):  # ours on top
        points = [row for row in rows if row.get(key)]
        if not points:
            continue
        parts.append(f'<g fill="{colour}" fill-opacity="0.65">' + "".join(
            f'<circle cx="{x(row["measuredBytes"]):.1f}" cy="{y(row[key]):.1f}" r="3.5">'
            f'<title>{row["model"]}, batch {row["batchSize"]}, {row["optimizer"]}</title></circle>' for row in points) + "</g>")
        parts.append(f'<circle cx="{LEFT + 16}" cy="{TOP + 16 + 18 * position}" r="4" fill="{colour}"/>'
                     f'<text x="{LEFT + 26}" y="{TOP + 20 + 18 * position}">{title}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def published(document):
    """Rows of published_gpu.py, as run.py has them."""
    return [{"model": run["model"], "batchSize": run.get("batch", ""), "optimizer": run.get("optimizer", ""),
             "measuredBytes": (run["measuredMiB"] - run.get("besideMiB", 0)) * MIB, "estimatedBytes": run["reservedMiB"] * MIB}
            for run in document["runs"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="run.py's --output, or published_gpu.py's -o json")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE.svg")
    options = parser.parse_args()
    documents = [json.loads(path.read_text()) for path in options.results]
    if "runs" in documents[0]:
        rows = [row for document in documents for row in published(document)]
        title, measured_by = f"Reserved memory: {len(rows)} published GPU runs", "as published"
    else:
        rows = [row for document in documents for row in document["rows"] if row["measuredBytes"]]
        versions = " and ".join(".".join(document["torch"].split(".")[:2]) for document in documents)
        title, measured_by = f"Peak of a training iteration: {len(rows)} cases, PyTorch {versions}", "measured by torch.profiler on the CPU"
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(draw(rows, title, measured_by))


if __name__ == "__main__":
    main()
