#!/usr/bin/env python3
"""Measures what a worker of PyTorch's DataLoader takes of its host's memory, besides the pages that it shares with its trainer.

    python3 tests/accuracy/loader_workers.py [ITEMS]     # of a list of Python objects that workers read; default 1,000,000

Prints the private memory of each worker (Private_Clean and Private_Dirty of /proc/PID/smaps_rollup), after its first batch
and after an epoch.
"""
import sys

import torch
from torch.utils.data import DataLoader, Dataset

MIB = 2 ** 20


class Items(Dataset):
    """Reads a list that its trainer made, as of file names: reading counts references, and so writes to the pages that hold them."""

    def __init__(self, items):
        self.items = [str(i) for i in range(items)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, at):
        return torch.tensor(int(self.items[at]))


def private_bytes(pid):
    kibibytes = 0
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        for line in rollup:
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                kibibytes += int(line.split()[1])
    return kibibytes * 1024


def main():
    items = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    loader = DataLoader(Items(items), batch_size=1024, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    workers = [worker.pid for worker in batches._workers]
    first = [private_bytes(pid) for pid in workers]
    for _ in batches:
        pass
    last = [private_bytes(pid) for pid in workers]
    for before, after in zip(first, last):
        print(f"{items} items: a worker has {before / MIB:.0f} MiB of its own at first, {after / MIB:.0f} MiB after an epoch")


if __name__ == "__main__":
    main()
