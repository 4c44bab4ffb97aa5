#!/usr/bin/env python3
"""The bytes that an iteration moves under plimsoll.harmony and under PyTorch FSDP2 with CPUOffloadPolicy, counted on the CPU for the
same GPT, batch and microbatch.

plimsoll.harmony's virtual devices count their copies; its plan is what `plimsoll swap` finds for devices of which each holds a sixth
of weights, gradients and Adam's states. FSDP2 runs on 2 and 4 gloo processes, each layer a fully_shard() of its own: the calls of
Tensor.to() with which its code brings shards from the host and takes gradients back are counted, and what its collectives send.
Without GPUs nothing is timed.

    ./scripts/bench swap [--json]     # where PyTorch 2 is installed (scripts/test --torch 2); or PYTHON tests/bench/fsdp2_peer.py
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "trainer"), str(ROOT / "tests" / "e2e" / "training")]
SAMPLES, MICROBATCH = 16, 2
MIB = 1 << 20


def by_harmony(gpus):
    """(bytes between host and GPUs, from GPU to GPU, microbatch) by plan; and what the plan had said, likewise."""
    import harmony_gpt
    import torch
    from plimsoll import harmony
    from plimsoll.harmony import profile as profiles

    torch.set_num_threads(1)
    model, inputs, targets, loss_fn = harmony_gpt.example(SAMPLES)
    states = 16 * sum(parameter.numel() for parameter in model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "profile.json")
        file.write_text(json.dumps(profiles.measure(harmony_gpt.example, [1, MICROBATCH])), encoding="utf-8")
        counts = {}
        for mode in ("vPP", "vDP"):
            answer = subprocess.run([ROOT / "build/release/bin/plimsoll", "swap", "--profile", file, "--gpus", str(gpus), "--mode", mode,
                                     "--batch-size", str(SAMPLES), "--capacity", str(states // 6), "-o", "json"],
                                    check=True, capture_output=True, text=True).stdout
            plan = json.loads(answer)
            plan = plan[0] if isinstance(plan, list) else plan
            with harmony.Trainer(harmony_gpt.example(1)[0], loss_fn, harmony_gpt.adam, plan) as trainer:
                trainer.step(inputs, targets)
                moved = trainer.moved()
            said = plan["volumes"]
            counts[mode] = (moved.swapped() - moved.targets_in, moved.p2p + moved.reduced), (said["swapped"], said["p2p"] + said["reduced"])
    return counts


def rank_of_fsdp2(rank, world, port, answers):
    import harmony_gpt
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives

    host = sent = 0
    to = torch.Tensor.to

    def counting_to(tensor, *args, **kwargs):
        """Of FSDP2's own code to the device that computes, and back; here both are the CPU, so that nothing is copied."""
        nonlocal host
        if "_fully_shard" in sys._getframe(1).f_code.co_filename:
            host += tensor.numel() * tensor.element_size()
        return to(tensor, *args, **kwargs)

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)

    def counting(collective):
        """A collective of FSDP2: each rank sends its shard to all others, or a shard of its gradients to each."""
        run = collective.__call__

        def counted(self, output_tensor, input_tensor, *args, **kwargs):
            nonlocal sent
            shard = min(output_tensor.numel(), input_tensor.numel()) * output_tensor.element_size()
            sent += shard * (world - 1)
            return run(self, output_tensor, input_tensor, *args, **kwargs)

        collective.__call__ = counted

    def share_of(tensor):
        return tensor[rank * SAMPLES // world:(rank + 1) * SAMPLES // world]

    torch.Tensor.to = counting_to
    counting(_fsdp_collectives.DefaultAllGather)
    counting(_fsdp_collectives.DefaultReduceScatter)
    model, inputs, targets, loss_fn = harmony_gpt.example(SAMPLES)
    mesh = dist.init_device_mesh("cpu", (world,))
    for layer in model:
        fully_shard(layer, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
    fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
    optimizer = harmony_gpt.adam(model.parameters())
    for counted in (False, True):  # the first iteration sets FSDP2 up
        host = sent = 0
        for value, target in zip(share_of(inputs).split(MICROBATCH), share_of(targets).split(MICROBATCH)):
            loss_fn(model(value), target).backward()
        optimizer.step()
        optimizer.zero_grad()
        if counted:
            answers.put((host, sent))
    dist.destroy_process_group()


def by_fsdp2(world):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [context.Process(target=rank_of_fsdp2, args=(rank, world, port, answers)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=300)
    if any(process.exitcode != 0 for process in ranks):
        sys.exit(f"fsdp2_peer: the ranks ended with {[process.exitcode for process in ranks]}")
    counts = [answers.get() for _ in ranks]
    return tuple(map(sum, zip(*counts)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one object a line: {bench, case, metric, value, unit, reference}")
    options = parser.parse_args()
    import harmony_gpt

    weights = 4 * sum(parameter.numel() for parameter in harmony_gpt.example(1)[0].parameters())

    def add(case, metric, value, expected):
        row = {"bench": "swap", "case": case, "metric": metric, "value": value / MIB, "unit": "MiB", "reference": expected / MIB}
        text = f"{case:38} {metric:28} {value / MIB:10.3f} MiB  (computed {expected / MIB:.3f})"
        print(json.dumps(row) if options.json else text, flush=True)

    for gpus in (2, 4):
        case = f"counted, small GPT, {SAMPLES} samples, {gpus} GPUs"
        for mode, (counted, said) in by_harmony(gpus).items():
            add(case, f"swapped by {mode}", counted[0], said[0])
            add(case, f"GPU to GPU by {mode}", counted[1], said[1])
        host, sent = by_fsdp2(gpus)
        microbatches = SAMPLES // gpus // MICROBATCH
        add(case, "swapped by FSDP2", host, 3 * microbatches * weights)
        add(case, "GPU to GPU by FSDP2", sent, 3 * microbatches * (gpus - 1) * weights)
    return 0


if __name__ == "__main__":
    sys.exit(main())
