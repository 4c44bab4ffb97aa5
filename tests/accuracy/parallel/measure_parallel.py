#!/usr/bin/env python3
"""What each rank of a real parallel run takes: 2, 4 and 8 local processes over gloo, torch.profiler in each (torch 2).

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
CASES += [("hsdp1", "gpt", 2), ("hsdp2", "gpt", 2), ("fsdp2", "gpt", 4), ("fsdp2_alone", "gpt", 2),
          ("plain_in_backward", "gpt", 4), ("fsdp2_in_backward", "gpt", 4)]
SAVED = ["ddp_saved_full", "zero1_saved_full", "fsdp1_saved_full", "fsdp1_saved_sharded", "fsdp2_saved_full",
         "fsdp2_saved_sharded"]
CASES += [(strategy, "gpt", 2) for strategy in SAVED]
SHARDED_PIPELINES = {"fsdp2_pipeline": (1, True), "fsdp2_pipeline_gathered": (1, False), "fsdp2_interleaved": (2, False)}
CASES += [("pipeline", "gpt_deep", batch) for batch in (8, 32)]
CASES += [(strategy, model, 4) for model in parallel.LLAMA_TOKENS for strategy in SHARDED_PIPELINES]
# Of the others 2 and 4.
RANKS = {"plain": [1], "fsdp2_alone": [1], "plain_in_backward": [1], "interleaved": [2], "hsdp1": [4], "hsdp2": [4, 8]}
EIGHT = [("mlp_wide", 64), ("gpt", 2)]  # models and batches that the data-parallel strategies run on 8 ranks, too
RANKS_OF_CASE = {("fsdp2", "gpt", 4): [8], **{("pipeline", "gpt_deep", batch): [8] for batch in (8, 32)},
                 **{(strategy, *case): [2, 4, 8] for strategy in ("ddp", "ddp_view", "zero1", "fsdp1") for case in EIGHT},
                 **{(strategy, model, 4): [4] for model in parallel.LLAMA_TOKENS for strategy in SHARDED_PIPELINES}}
STAGES = 2  # of the pipelines whose stages are sharded among the remaining ranks
REPLICATE = 2  # groups of hsdp1 and hsdp2 that each hold all parameters
CHUNKS = 2  # parts of the model that each rank of an interleaved pipeline has
LIVE_BLOCKS = 24
REPETITIONS = 3
# Nothing that any forward or backward makes stays: for training loops that lay out their buffers before or in a step.
STATE_IS_MADE_AHEAD = False


def microbatches_of(ranks):
    """A schedule needs as many as it has stages."""
    return max(MICROBATCHES, ranks)


def blocks_of(module):
    """The units that FSDP shards: the blocks, or DLRM's two perceptrons."""
    return list(module.blocks) if hasattr(module, "blocks") else [module.bottom, module.top]


def optimizer_of_parameters(parameters):
    return measure.cases.make_optimizer(OPTIMIZER, parameters)


def optimizer_of(module):
    return optimizer_of_parameters(module.parameters())


def optimizer_of_job():
    """The same in a TrainingJob's training."""
    name, _, implementation = OPTIMIZER.partition("/")
    return {"optimizer": name, "optimizerImplementation": {"foreach": "ForEach"}[implementation]}


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


def setup_fsdp1(module, **options):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import CustomPolicy
    units = set(map(id, blocks_of(module)))
    policy = CustomPolicy(lambda part: id(part) in units)
    wrapped = FullyShardedDataParallel(module, auto_wrap_policy=policy, device_id=torch.device("cpu"), **options)
    return wrapped, optimizer_of(wrapped)


def setup_hsdp1(module):
    from torch.distributed.fsdp import ShardingStrategy
    return setup_fsdp1(module, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=hybrid_mesh())


def fully_sharded(module, mesh):
    from torch.distributed.fsdp import fully_shard
    for block in blocks_of(module):
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def setup_fsdp2(module):
    mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
    return fully_sharded(module, mesh), optimizer_of(module)


setup_fsdp2_alone = setup_fsdp2


def hybrid_mesh():
    shard = distributed.get_world_size() // REPLICATE
    return distributed.init_device_mesh("cpu", (REPLICATE, shard), mesh_dim_names=("replicate", "shard"))


def setup_hsdp2(module):
    return fully_sharded(module, hybrid_mesh()), optimizer_of(module)


def stepped_in_backward(module):
    """torchtitan's OptimizersInBackwardContainer: an optimizer a parameter, which steps once its gradient is complete."""
    optimizers = {parameter: optimizer_of_parameters([parameter]) for parameter in module.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(step)
    return module, NoOptimizer()


class NoOptimizer:
    def zero_grad(self, set_to_none):
        pass

    def step(self):
        pass


def setup_plain_in_backward(module):
    return stepped_in_backward(module)


def setup_fsdp2_in_backward(module):
    mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
    return stepped_in_backward(fully_sharded(module, mesh))


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


def save(module, optimizer, full):
    """What a checkpoint holds of this rank, as torch.save or torch.distributed.checkpoint would write it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    if hasattr(optimizer, "consolidate_state_dict"):
        optimizer.consolidate_state_dict()
        return module.state_dict()
    return get_state_dict(module, optimizer, options=StateDictOptions(full_state_dict=full))


def train(strategy, model, batch_size):
    strategy, saves, form = strategy.partition("_saved_")
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
        if saves:
            save(module, optimizer, form == "full")
    measure.mark()


def train_pipeline(strategy, model, batch_size):
    """1F1B: equal runs of blocks; a batch is cut into microbatches_of() parts. Its forward and backward count as Backward."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    chunks = CHUNKS if strategy == "interleaved" else 1
    parts = ranks * chunks

    def stage(part):
        blocks = (8 if model == "gpt_deep" else 4) // parts
        module = (parallel.Gpt(layers=blocks, first=part == 0, last=part == parts - 1) if model.startswith("gpt")
                  else parallel.Blocks([parallel.WideLayer(512, 2048) for _ in range(blocks)]))
        return PipelineStage(module, part, parts, torch.device("cpu"))

    stages = [stage(chunk * ranks + rank) for chunk in range(chunks)]
    first, last = rank == 0, rank == ranks - 1
    if model.startswith("gpt"):
        inputs, targets = (torch.zeros(batch_size, 64, dtype=torch.int64) if wanted else None for wanted in (first, last))
        loss_fn = parallel.next_token_loss
    else:
        inputs, targets = (torch.randn(batch_size, 512) if wanted else None for wanted in (first, last))
        loss_fn = nn.functional.mse_loss
    microbatches = microbatches_of(ranks)
    schedule = (ScheduleInterleaved1F1B(stages, n_microbatches=microbatches, loss_fn=loss_fn) if chunks > 1
                else Schedule1F1B(stages[0], n_microbatches=microbatches, loss_fn=loss_fn))
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


def train_sharded_pipeline(strategy, model, batch_size):
    """As train_pipeline, and fully_shard shards each stage among the ranks that hold it."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
    chunks, reshard = SHARDED_PIPELINES[strategy]
    mesh = distributed.init_device_mesh("cpu", (STAGES, distributed.get_world_size() // STAGES), mesh_dim_names=("pp", "dp"))
    group, place, parts = mesh.get_group("pp"), mesh.get_local_rank("pp"), STAGES * chunks
    layers = parallel.LLAMA["num_hidden_layers"]

    def stage(part):
        module = parallel.LlamaStage(part * layers // parts, (part + 1) * layers // parts)
        for block in module.blocks:
            fully_shard(block, mesh=mesh["dp"], reshard_after_forward=reshard)
        return PipelineStage(fully_shard(module, mesh=mesh["dp"], reshard_after_forward=reshard), part, parts,
                             torch.device("cpu"), group=group)

    stages = [stage(chunk * STAGES + place) for chunk in range(chunks)]
    first, last = place == 0, place == STAGES - 1
    tokens = torch.zeros(batch_size, parallel.LLAMA_TOKENS[model], dtype=torch.int64)
    schedule = (ScheduleInterleaved1F1B(stages, n_microbatches=MICROBATCHES, loss_fn=parallel.next_token_loss) if chunks > 1
                else Schedule1F1B(stages[0], n_microbatches=MICROBATCHES, loss_fn=parallel.next_token_loss))
    optimizer = optimizer_of(nn.ModuleList(stage.submod for stage in stages))
    for _ in range(measure.ITERATIONS):
        measure.mark()
        optimizer.zero_grad(set_to_none=True)
        measure.mark()
        measure.mark()
        schedule.step(*([tokens] if first else []), **({"target": tokens, "losses": []} if last else {}))
        measure.mark()
        optimizer.step()
    measure.mark()


def train_of(strategy):
    if strategy in SHARDED_PIPELINES:
        return train_sharded_pipeline
    return train_pipeline if strategy in ("pipeline", "interleaved") else train


def of_collective(event):
    return any(name.startswith("c10d::") for name in measure.operators(event))


def with_unseen_releases(events):
    """Ends what a thread of gloo's released: the profiler does not record that.

    A copy that a collective made goes when the collective is done, so it ends before the first event outside of it.
    Anything else that the iteration before the last one made in its forward or backward is not state: it ends with it.
    """
    last = (measure.ITERATIONS - 1) * len(measure.PHASES) + 1
    earlier = [mark for mark in range(1, last) if mark % len(measure.PHASES) in (2, 3)]  # forwards and backwards
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
        elif phase in (last - 3, last - 2) or (STATE_IS_MADE_AHEAD and phase in earlier):
            end = last_mark_at
        if end is not None:
            ends.setdefault(end, []).append((pointer, -size, event))
    complete = []
    for position, event in enumerate(events):
        complete += ends.get(position, []) + [event]
    return complete


def run_rank(rank, ranks, store, connection, train_here, detail):
    try:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            train_here()
            distributed.barrier()
        events = with_unseen_releases(measure.allocation_events(recorded))
        connection.send(measure.analyse(events, detail))
        distributed.destroy_process_group()
    except Exception as problem:  # the parent must hear of it, whatever it is
        connection.send({"error": f"{type(problem).__name__}: {problem}"})
        connection.close()
        os._exit(1)


def run(case, ranks, detail, train_here=None):
    """By rank, the lowest of REPETITIONS: gloo's threads let go of their copies when they come to it.

    `train_here`: what each process runs instead of the case's strategy.
    """
    repetitions = [run_once(case, ranks, detail, train_here) for _ in range(REPETITIONS)]
    best = [min(results, key=lambda result: result.get("peakBytes", 0)) for results in zip(*repetitions)]
    for rank, result in enumerate(best):
        result["peaks"] = sorted(results[rank].get("peakBytes", 0) for results in repetitions)
    return best


def run_once(case, ranks, detail, train_here=None):
    train_here = train_here or (lambda: train_of(case[0])(*case))
    if case[1] in parallel.LLAMA_TOKENS:
        import transformers.models.llama.modeling_llama  # noqa: F401 (here, and not in each process)
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
        processes = [context.Process(target=run_rank, args=(rank, ranks, f"{folder}/store", pipes[rank][1], train_here, detail))
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        results = []
        for ours, _ in pipes:
            try:
                results.append(ours.recv() if ours.poll(600) else {"error": "no answer within ten minutes"})
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


def print_rows_of_specs(page, script, cases, model, train_of, row_of):
    """The program of a script whose cases begin with a name and a number of ranks: a row of YAML for each, or for the one that is named.

    train_of(case): what each rank trains. row_of(case, results): the row.
    """
    parser = argparse.ArgumentParser(description=page.split("\n")[0])
    parser.add_argument("case", nargs="?", help="its name; none: all")
    options = parser.parse_args()
    print("# Bytes at the highest point of one steady-state iteration, of each rank, one thread each.")
    print(f"# Printed by tests/accuracy/parallel/{script}: torch {torch.__version__}, gloo. `model` and `training` "
          "are those\n# of a TrainingJob.")
    failed = False
    for case in cases:
        name, ranks = case[:2]
        if options.case not in (None, name):
            continue
        results = run((name, *model), ranks, "live" if options.case else None, train_of(case))
        problems = [result["error"] for result in results if "error" in result]
        if problems:
            failed = True
            print(name, problems[0], file=sys.stderr)
            continue
        if options.case:
            print(*grouped(results[0].pop("live")), sep="\n", file=sys.stderr)
            print(*results, sep="\n", file=sys.stderr)
        print("- " + json.dumps(row_of(case, results)), flush=True)
    sys.exit(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case", nargs="*", help="STRATEGY MODEL BATCH_SIZE; none: all")
    parser.add_argument("--ranks", type=int, action="append", help="those of the committed figures unless told")
    parser.add_argument("--events", action="store_true", help="every event of rank 0's iteration, on standard error")
    options = parser.parse_args()
    if options.case and len(options.case) != 3:
        parser.error("a case is STRATEGY MODEL BATCH_SIZE")
    chosen = [(options.case[0], options.case[1], int(options.case[2]))] if options.case else CASES
    rows, failed = [], 0
    for case in chosen:
        for ranks in options.ranks or RANKS_OF_CASE.get(case, RANKS.get(case[0], [2, 4])):
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
