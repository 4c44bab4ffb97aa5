#!/usr/bin/env python3
"""What each stage of a pipeline holds after a step, on two local processes over gloo: counts of tensors by micro-batch.

It runs with any PyTorch from 2.6 on; estimator/parallel/stage_memory.h follows what 2.6.0 and 2.15.0 print.

    python3 measure_stages.py                 1F1B
    python3 measure_stages.py --interleaved   two parts of the model a process
"""
import argparse
import os
import tempfile

import torch
from torch import distributed, multiprocessing, nn

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
MICROBATCHES, SAMPLES, WIDTH = 4, 64, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class AllWorks:
    def __init__(self, works):
        self.works = works

    def wait(self):
        for work in self.works:
            work.wait()


def wait_for_all_works(schedules):
    """2.6 waits for the last of several works, which is enough with NCCL, where they are one."""
    if torch.__version__.startswith("2.6"):
        schedules._batch_p2p = lambda ops, desc=None: AllWorks(distributed.batch_isend_irecv(ops)) if ops else None


def buffers(infos):
    found = [getattr(info, "buffer", None) for by_input in infos.values() for info in by_input]
    return [buffer for buffer in found if buffer is not None]


def run_rank(rank, store, interleaved):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B, schedules
    wait_for_all_works(schedules)
    chunks = 2 if interleaved else 1
    stages = [PipelineStage(Block(), 2 * chunk + rank, 2 * chunks, torch.device("cpu")) for chunk in range(chunks)]
    options = {"n_microbatches": MICROBATCHES, "loss_fn": nn.functional.mse_loss}
    schedule = ScheduleInterleaved1F1B(stages, **options) if interleaved else Schedule1F1B(stages[0], **options)
    samples = torch.randn(SAMPLES, WIDTH)
    for _ in range(2):
        schedule.step(*([samples] if rank == 0 else []), **({"target": samples, "losses": []} if rank == 1 else {}))
        distributed.barrier()
    for stage in stages:
        received = buffers(stage.args_recv_info)
        print(f"torch {torch.__version__} stage {stage.stage_index}: {len(received)} buffers of activations, "
              f"{sum(buffer.grad is not None for buffer in received)} with a gradient, "
              f"{len(buffers(stage.grad_recv_info))} buffers of gradients, {len(stage.output_chunks)} outputs", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--interleaved", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run_rank, args=(f"{folder}/store", options.interleaved), nprocs=2)


if __name__ == "__main__":
    main()
