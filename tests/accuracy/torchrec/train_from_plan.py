#!/usr/bin/env python3
"""Real torchrec trains from the plans that `plimsoll shard -o torchrec` prints.

For every sharding type, and all of them at once, on 2 and on 4 processes (gloo, CPU): plans a few tables, builds
DistributedModelParallel of the plan, trains some steps, and compares the bytes of tables and optimizer state that
each rank allocated with those that the plan says. Prints a line a case; exit 1 when one differs or fails.

    python train_from_plan.py [--plimsoll build/release/bin/plimsoll] [--only TEXT]
"""
import argparse
import contextlib
import json
import logging
import os
import pathlib
import queue
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing
import torchrec
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.types import ShardingEnv

warnings.filterwarnings("ignore")  # torchrec's of torch, which say nothing of plans
logging.disable(logging.WARNING)

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples"))
import torchrec_plan  # noqa: E402

BATCH = 64
STEPS = 3
MODULE = "collection"

# name, rows, columns, lookups a sample
TABLES = [
    ("wide", 20_011, 128, 3),
    ("tall", 50_003, 64, 2),
    ("tiny", 7, 64, 1),
    ("rare", 30_000, 32, 1),
]
# case: what each table is allowed, and the optimizer; None: free
CASES = {
    "free": (None, "RowWiseAdagrad"),
    "data_parallel": (["data_parallel"] * 4, "RowWiseAdagrad"),
    "table_wise": (["table_wise"] * 4, "RowWiseAdagrad"),
    "column_wise": (["column_wise"] * 4, "RowWiseAdagrad"),
    "table_column_wise": (["table_column_wise"] * 4, "RowWiseAdagrad"),
    "row_wise": (["row_wise"] * 4, "RowWiseAdagrad"),
    "table_row_wise": (["table_row_wise"] * 4, "RowWiseAdagrad"),
    "grid_shard": (["grid_shard", "grid_shard", "table_wise", "table_wise"], "RowWiseAdagrad"),
    "mixed": (["column_wise", "row_wise", "data_parallel", "table_wise"], "RowWiseAdagrad"),
    "adagrad": (["column_wise", "row_wise", "table_wise", "table_wise"], "Adagrad"),
    "sgd": (["table_row_wise", "row_wise", "table_wise", "column_wise"], "SGD"),
}
FUSED = {
    "RowWiseAdagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "Adagrad": EmbOptimType.EXACT_ADAGRAD,
    "SGD": EmbOptimType.EXACT_SGD,
}


def plan_of(plimsoll, folder, allowed, optimizer, ranks):
    """The plan in torchrec's form, and what each rank holds."""
    csv = pathlib.Path(folder) / "tables.csv"
    csv.write_text(
        "name,rows,dim,pooling_factor\n" + "".join(f"{n},{r},{d},{p}\n" for n, r, d, p in TABLES), encoding="utf-8"
    )
    # Little memory makes the planner cut columns where it may not cut rows.
    tight = set(allowed or []) & {"column_wise", "table_column_wise"} and "row_wise" not in allowed
    command = [
        plimsoll, "shard", "--tables", str(csv), "--trainers", str(ranks), "--per-node", "2", "--hbm",
        f"{30 // ranks}Mi" if tight else "1Gi", "--batch-size", str(BATCH), "--optimizer", optimizer, "--cost", "stages", "--verify",
    ]
    for (name, *_), kinds in zip(TABLES, allowed or []):
        command += ["--allow", f"{name}={kinds}"]

    def run(*more):
        done = subprocess.run(command + list(more), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)

    return run("-o", "torchrec", "--module", MODULE, "--device", "cpu"), run("-o", "json")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.collection = torchrec.EmbeddingBagCollection(
            device=torch.device("meta"),
            tables=[
                torchrec.EmbeddingBagConfig(
                    name=name, num_embeddings=rows, embedding_dim=columns, feature_names=[f"of_{name}"]
                )
                for name, rows, columns, _ in TABLES
            ],
        )
        self.over = torch.nn.Linear(sum(columns for _, _, columns, _ in TABLES), 1)

    def forward(self, features):
        return self.over(self.collection(features).values()).mean()


def batch(generator):
    lengths = []
    values = []
    for _, rows, _, lookups in TABLES:
        lengths.append(torch.full((BATCH,), lookups))
        values.append(torch.randint(0, rows, (BATCH * lookups,), generator=generator))
    return torchrec.KeyedJaggedTensor(
        keys=[f"of_{name}" for name, *_ in TABLES], values=torch.cat(values), lengths=torch.cat(lengths)
    )


def kernels_of(model):
    """The fused kernels; lookups are no child modules of the sharded collection."""
    collection = model.module.collection
    lookups = [getattr(lookup, "module", lookup) for lookup in collection._lookups]
    inside = [module for lookup in lookups for module in lookup.modules()]
    return [module for module in inside if isinstance(module, SplitTableBatchedEmbeddingBagsCodegen)]


def bytes_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def train(rank, ranks, port, plan, optimizer, answers):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks),
        LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2", OMP_NUM_THREADS="1",
    )
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
        sharder = EmbeddingBagCollectionSharder(
            fused_params={"optimizer": FUSED[optimizer], "learning_rate": 0.05, "eps": 1e-8}
        )
        model = torchrec.distributed.DistributedModelParallel(
            Model(),
            env=ShardingEnv.from_process_group(dist.GroupMember.WORLD),
            device=torch.device("cpu"),
            plan=torchrec_plan.parse(plan),
            sharders=[sharder],
        )
        # Tables that every rank copies are the model's own parameters, with an optimizer of the user's.
        copies = [
            parameter for name, parameter in model.named_parameters()
            if parameter.requires_grad and any(f"{table}.weight" in name for table, *_ in TABLES)
            and isinstance(parameter, torch.nn.Parameter) and not hasattr(parameter, "_in_backward_optimizers")
        ]
        dense = torch.optim.SGD(model.module.over.parameters(), lr=0.01)
        own = torchrec.optim.RowWiseAdagrad(copies, lr=0.05) if copies else None
        generator = torch.Generator().manual_seed(rank)
        losses = []
        for _ in range(STEPS):
            features = batch(generator)
            dense.zero_grad()
            if own:
                own.zero_grad()
            loss = model(features)
            loss.backward()
            dense.step()
            if own:
                own.step()
            losses.append(loss.item())
        kernels = kernels_of(model)
        tables = bytes_of(copies) + sum(bytes_of(kernel.split_embedding_weights()) for kernel in kernels)
        state = sum(
            bytes_of(tensor for states in kernel.split_optimizer_states() for tensor in states) for kernel in kernels
        )
        if own:
            state += sum(bytes_of(v for k, v in state.items() if k == "sum") for state in own.state.values())
        answers.put((rank, tables, state, losses, ""))
        dist.destroy_process_group()
    except Exception:  # the parent prints what went wrong
        answers.put((rank, 0, 0, [], traceback.format_exc()))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def check(name, ranks, plimsoll):
    allowed, optimizer = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        plan, said = plan_of(plimsoll, folder, allowed, optimizer, ranks)
    context = torch.multiprocessing.get_context("fork")
    answers = context.Queue()
    port = free_port()
    workers = [
        context.Process(target=train, args=(rank, ranks, port, plan, optimizer, answers)) for rank in range(ranks)
    ]
    for worker in workers:
        worker.start()
    found = []
    while len(found) < ranks and (any(worker.is_alive() for worker in workers) or not answers.empty()):
        with contextlib.suppress(queue.Empty):
            found.append(answers.get(timeout=1))
        if any(worker.exitcode not in (None, 0) for worker in workers):  # the others would wait for it for ever
            break
    for worker in workers:
        if len(found) < ranks:
            worker.terminate()
    found.sort()
    if len(found) < ranks:
        print(f"FAIL {name:18} {ranks} ranks  a process died", flush=True)
        return False
    for worker in workers:
        worker.join(timeout=30)
    kinds = sorted({f"{t['shardingType']}/{len(t['shards'])}" for t in said["plan"]})
    good = True
    for rank, tables, state, losses, trouble in found:
        if trouble:
            print(f"  rank {rank}: {trouble}")
            good = False
            continue
        of = said["ranks"][rank]
        if (tables, state) != (of["tableBytes"], of["optimizerBytes"]) or not all(map(torch.isfinite, map(torch.tensor, losses))):
            print(
                f"  rank {rank}: tables {tables} (plan {of['tableBytes']}), optimizer {state} "
                f"(plan {of['optimizerBytes']}), losses {losses}"
            )
            good = False
    held = ", ".join(str(tables + state) for _, tables, state, _, _ in found)
    print(f"{'ok  ' if good else 'FAIL'} {name:18} {ranks} ranks  {' '.join(kinds)}  bytes {held}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", default=str(ROOT / "build/release/bin/plimsoll"))
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    good = True
    for ranks in (2, 4):
        for name in CASES:
            if name == "grid_shard" and ranks == 2:
                continue  # a grid takes two nodes
            if arguments.only in f"{name} {ranks}":
                good = check(name, ranks, arguments.plimsoll) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
