#!/usr/bin/env python3
"""What each rank of a real parallel run takes: 2 and 4 local processes over gloo, torch.profiler in each (torch 2).

The models are models/parallel.py's; how each strategy is set up is one function below. As in ../measure.py a process is
recorded from before the model is built, and the fourth iteration counts.

    python3 measure_parallel.py                         all cases, JSON on standard output (measured_torch2.json's form)
    python3 measure_parallel.py fsdp2 gpt 2 --ranks 4   one case, with what lives at each rank's peak
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "models")]
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import measure  # noqa: E402
import parallel  # noqa: E402
import torch  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

OPTIMIZER = "Adam/foreach"
measure.ITERATIONS = 4  # DDP and FSDP lay out their buffers anew in the second
MICROBATCHES = 4
DATA_PARALLEL = ["plain", "ddp", "ddp_view", "zero1", "fsdp1", "fsdp2"]
CASES = [(strategy, model, batch) for model, batches in
         {"mlp": (64, 1024), "mlp_wide": (64, 1024), "gpt": (2, 8), "dlrm": (128, 2048)}.items()
         for strategy in DATA_PARALLEL for batch in batches]
CASES += [(strategy, model, batch) for model, batches in {"mlp_wide": (64, 1024), "gpt": (4, 16)}.items()
          for strategy in ("tensor", "pipeline", "interleaved") for batch in batches]
RANKS = {"plain": [1], "interleaved": [2]}  # 2 and 4 of the others
CHUNKS = 2  # parts of the model that each rank of an interleaved pipeline has
LIVE_BLOCKS = 24
REPETITIONS = 3


def blocks_of(module):
    """The units that FSDP shards: the blocks, or DLRM's two perceptrons."""
    return list(module.blocks) if hasattr(module, "blocks") else [module.bottom, module.top]


def optimizer_of(module):
    return measure.cases.make_optimizer(OPTIMIZER, module.parameters())


def setup_plain(module):
    return module, optimizer_of(module)


def setup_ddp(module):
    wrapped = nn.parallel.DistributedDataParallel(module)
    return wrapped, optimizer_of(wrapped)


def setup_ddp_view(module):
    wrapped = nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)
    return wrapped, optimizer_of(wrapped)


def setup_zero1(module):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    wrapped = nn.parallel.DistributedDataParallel(module)
    return wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, lr=1e-6, foreach=True)


def setup_fsdp1(module):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import CustomPolicy
    units = set(map(id, blocks_of(module)))
    wrapped = FullyShardedDataParallel(
        module, auto_wrap_policy=CustomPolicy(lambda part: id(part) in units), device_id=torch.device("cpu"))
    return wrapped, optimizer_of(wrapped)


def setup_fsdp2(module):
    from torch.distributed.fsdp import fully_shard
    mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
    for block in blocks_of(module):
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module, optimizer_of(module)


def setup_tensor(module):
    """Megatron's split: q, k, v and the first MLP layer by columns, the attention's and the MLP's last layer by rows.

    The rest is whole on every rank. Parameters split and whole are two groups for the optimizer: foreach can't mix them.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
    for block in module.blocks:
        by_columns = [name for name in ("q", "k", "v", "up") if hasattr(block, name)]
        by_rows = [name for name in ("out", "down") if hasattr(block, name)]
        parallelize_module(block, mesh, {**{name: ColwiseParallel() for name in by_columns},
                                         **{name: RowwiseParallel() for name in by_rows}})
    whole = [p for p in module.parameters() if not isinstance(p, DTensor)]
    split = [p for p in module.parameters() if isinstance(p, DTensor)]
    groups = [{"params": group} for group in (split, whole) if group]
    return module, measure.cases.make_optimizer(OPTIMIZER, groups)


def train(strategy, model, batch_size):
    module, inputs, loss_fn = getattr(parallel, model)(batch_size)
    module, optimizer = globals()[f"setup_{strategy}"](module)
    for _ in range(measure.ITERATIONS):
        measure.mark()
        optimizer.zero_grad(set_to_none=True)
        for tensor in inputs:
            tensor.grad = None
        measure.mark()
        loss = loss_fn(module(*inputs))
        measure.mark()
        loss.backward()
        measure.mark()
        optimizer.step()
        del loss
    measure.mark()


def train_pipeline(strategy, model, batch_size):
    """1F1B: equal runs of blocks; a batch is cut into MICROBATCHES. Its forward and backward count as Backward."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    chunks = CHUNKS if strategy == "interleaved" else 1
    parts = ranks * chunks

    def stage(part):
        blocks = 4 // parts
        module = (parallel.Gpt(layers=blocks, first=part == 0, last=part == parts - 1) if model == "gpt"
                  else parallel.Blocks([parallel.WideLayer(512, 2048) for _ in range(blocks)]))
        return PipelineStage(module, part, parts, torch.device("cpu"))

    stages = [stage(chunk * ranks + rank) for chunk in range(chunks)]
    first, last = rank == 0, rank == ranks - 1
    if model == "gpt":
        inputs, targets = (torch.zeros(batch_size, 64, dtype=torch.int64) if wanted else None for wanted in (first, last))
        loss_fn = parallel.next_token_loss
    else:
        inputs, targets = (torch.randn(batch_size, 512) if wanted else None for wanted in (first, last))
        loss_fn = nn.functional.mse_loss
    schedule = (ScheduleInterleaved1F1B(stages, n_microbatches=MICROBATCHES, loss_fn=loss_fn) if chunks > 1
                else Schedule1F1B(stages[0], n_microbatches=MICROBATCHES, loss_fn=loss_fn))
    optimizer = optimizer_of(nn.ModuleList(stage.submod for stage in stages))
    for _ in range(measure.ITERATIONS):
        measure.mark()
        optimizer.zero_grad(set_to_none=True)
        measure.mark()
        measure.mark()
        schedule.step(*([inputs] if first else []), **({"target": targets, "losses": []} if last else {}))
        measure.mark()
        optimizer.step()
    measure.mark()


def of_collective(event):
    return any(name.startswith("c10d::") for name in measure.operators(event))


def with_unseen_releases(events):
    """Ends what a thread of gloo's released: the profiler does not record that.

    A copy that a collective made goes when the collective is done, so it ends before the first event outside of it.
    Anything else that the iteration before the last one made in its forward or backward is not state: it ends with it.
    """
    last = (measure.ITERATIONS - 1) * len(measure.PHASES) + 1
    phase_of, open_at, marks, last_mark_at = {}, {}, 0, 0
    for position, (pointer, size, _) in enumerate(events):
        if size < 0:
            open_at.pop(pointer, None)
            continue
        if size == measure.MARKER_BYTES:
            marks += 1
            last_mark_at = position if marks == last else last_mark_at
        if pointer in open_at:  # given out again: released somewhere in between
            phase_of[open_at[pointer]] = "reused", position
        open_at[pointer] = position
        phase_of[position] = marks, None
    ends = {}
    for position in [p for p, (kind, _) in phase_of.items() if kind == "reused"] + list(open_at.values()):
        pointer, size, event = events[position]
        phase, end = phase_of[position]
        if of_collective(event):
            end = next((p for p in range(position + 1, len(events)) if not of_collective(events[p][2])), len(events))
        elif phase in (last - 3, last - 2):
            end = last_mark_at
        if end is not None:
            ends.setdefault(end, []).append((pointer, -size, event))
    complete = []
    for position, event in enumerate(events):
        complete += ends.get(position, []) + [event]
    return complete


def run_rank(rank, ranks, store, connection, case, detail):
    try:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            (train_pipeline if case[0] in ("pipeline", "interleaved") else train)(*case)
            distributed.barrier()
        events = with_unseen_releases(measure.allocation_events(recorded))
        connection.send(measure.analyse(events, detail))
        distributed.destroy_process_group()
    except Exception as problem:  # the parent must hear of it, whatever it is
        connection.send({"error": f"{type(problem).__name__}: {problem}"})
        connection.close()
        os._exit(1)


def run(case, ranks, detail):
    """By rank, the lowest of REPETITIONS: gloo's threads let go of their copies when they come to it."""
    repetitions = [run_once(case, ranks, detail) for _ in range(REPETITIONS)]
    best = [min(results, key=lambda result: result.get("peakBytes", 0)) for results in zip(*repetitions)]
    for rank, result in enumerate(best):
        result["peaks"] = sorted(results[rank].get("peakBytes", 0) for results in repetitions)
    return best


def run_once(case, ranks, detail):
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
        processes = [context.Process(target=run_rank, args=(rank, ranks, f"{folder}/store", pipes[rank][1], case, detail))
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        results = []
        for ours, _ in pipes:
            try:
                results.append(ours.recv() if ours.poll(120) else {"error": "no answer within two minutes"})
            except EOFError:
                results.append({"error": "the process died"})
            if "error" in results[-1]:
                for other in processes:
                    other.terminate()
        for process in processes:
            process.join()
    return results


def grouped(rows):
    """Equal blocks as one row: count, bytes, phase, operators."""
    counts = {}
    for size, phase, names in rows:
        counts[(size, phase, names)] = counts.get((size, phase, names), 0) + 1
    rows = [[count, *key] for key, count in counts.items()]
    return sorted(rows, key=lambda row: -row[0] * row[1])[:LIVE_BLOCKS]


def document(rows):
    """One run a line, so that a change shows which."""
    head = {"torch": torch.__version__, "cpu": measure.cpu_capability(), "backend": "gloo",
            "models": "tests/accuracy/models/parallel.py", "setup": "tests/accuracy/parallel/measure_parallel.py",
            "microbatches": MICROBATCHES}
    return json.dumps(head)[:-1] + ', "runs": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case", nargs="*", help="STRATEGY MODEL BATCH_SIZE; none: all")
    parser.add_argument("--ranks", type=int, action="append", help="2 and 4 unless told")
    parser.add_argument("--events", action="store_true", help="every event of rank 0's iteration, on standard error")
    options = parser.parse_args()
    if options.case and len(options.case) != 3:
        parser.error("a case is STRATEGY MODEL BATCH_SIZE")
    chosen = [(options.case[0], options.case[1], int(options.case[2]))] if options.case else CASES
    rows, failed = [], 0
    for case in chosen:
        for ranks in options.ranks or RANKS.get(case[0], [2, 4]):
            results = run(case, ranks, "events" if options.events else "live")
            for rank, result in enumerate(results):
                events = result.pop("events", [])
                if rank == 0:
                    print(*("\t".join(map(str, row)) for row in events), sep="\n", end="\n" * bool(events), file=sys.stderr)
                if "error" in result:
                    failed += 1
                    print(*case, ranks, rank, result["error"], file=sys.stderr)
                else:
                    result["live"] = grouped(result["live"])
            rows.append({"strategy": case[0], "model": case[1], "batchSizePerRank": case[2], "ranks": ranks,
                         "optimizer": OPTIMIZER, "perRank": results})
            print(*case, ranks, [result.get("peakBytes") for result in results], file=sys.stderr, flush=True)
    print(document(rows))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
