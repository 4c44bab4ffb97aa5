#!/usr/bin/env python3
"""./scripts/bench export: how long the exporter takes for a decoder whose iteration has about 10,000 operators.

A table for people; with --json one object a line, as the other benchmarks write: {bench, case, metric, value, unit,
reference}. One thread. Seconds are those of the processor, so that other programs of the machine do not count; the time
of starting Python and importing PyTorch is given apart.

    ./scripts/bench export [--device cpu|cuda|both] [--layers N] [--json] [--profile]
"""

import argparse
import cProfile
import json
import os
import pathlib
import pstats
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "trainer"))

GOAL_SECONDS = 5.0
WIDTH, HEADS, TOKENS, WORDS = 128, 4, 32, 1000


def decoder(layers):
    """MODULE:FUNCTION of the exporter: a GPT of so many layers, written with PyTorch's own modules."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            batch, tokens, _ = x.shape
            q, k, v = (part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in self.qkv(self.before(x)).split(WIDTH, dim=2))
            scores = (q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5).softmax(dim=-1)
            x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, tokens, WIDTH))
            return x + self.down(nn.functional.gelu(self.up(self.after(x))))

    def function(batch_size):
        model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *(Block() for _ in range(layers)), nn.Linear(WIDTH, WORDS))
        words = torch.randint(0, WORDS, (batch_size, TOKENS))
        return model, (words,), lambda output: nn.functional.cross_entropy(output.flatten(0, 1), words.flatten())

    return function


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda", "both"], action="append", help="may be repeated (default: each of the three)")
    parser.add_argument("--layers", type=int, default=227, help="227 layers are 10,000 operators (default)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    began = time.process_time()
    import torch
    from plimsoll import export

    torch.set_num_threads(1)
    imported = time.process_time() - began
    export.export(decoder(1), 8)  # what Python and PyTorch do once for a process
    warm = time.process_time() - began - imported
    missed = False
    for device in options.device or ["cpu", "cuda", "both"]:
        with tempfile.TemporaryDirectory() as folder:
            profile = cProfile.Profile()
            if options.profile:
                profile.enable()
            began = time.process_time()
            graph = export.export(decoder(options.layers), 8, device=device, progress=lambda line: options.profile and print(line))
            export.write(graph, os.path.join(folder, "graph.json.gz"))
            seconds = time.process_time() - began
            profile.disable()
        if options.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        operators = len(graph["traces"][0]["operators"])
        missed = missed or seconds > GOAL_SECONDS
        row = {"bench": "export", "case": f"{device}, {operators} operators, torch {torch.__version__}", "metric": "time",
               "value": round(seconds, 2), "unit": "s", "reference": GOAL_SECONDS}
        print(json.dumps(row) if options.json else f"{row['case']:45} {seconds:6.2f} s of at most {GOAL_SECONDS:.0f}", flush=True)
    if not options.json:
        print(f"beside it, once for a process: importing {imported:.1f} s, the first export {warm:.1f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
