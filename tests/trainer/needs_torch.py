"""Imported before what imports PyTorch: puts the package on the path, and where this Python has no torch, says so and ends with the exit
code for "skipped". One thread: several tests run at once."""

import pathlib
import sys

TRAINER = str(pathlib.Path(__file__).resolve().parents[2] / "trainer")
sys.path.insert(0, TRAINER)
try:
    import torch
except ImportError:
    print("SKIPPED: this Python has no torch")
    sys.exit(77)

torch.set_num_threads(1)
