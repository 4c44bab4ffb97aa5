"""Transformers that others measured on GPUs, beside `plimsoll estimate -f` of the same job: two sets of published_gpu.py.

torchtitan's rows are torchtitan.csv in tests/estimator/estimate, peft's are peft_metamath.yaml; their sources are in the files. Both
compare reserved memory, and the upper bound without the CUDA context and NCCL's memory, which the measurements do not contain.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import yaml

DATA = pathlib.Path(__file__).resolve().parents[1] / "estimator" / "estimate"
MIB = 1 << 20

# layers, hidden, feed-forward width of Llama 3.1
LLAMA = {"8B": (32, 4096, 14336), "70B": (80, 8192, 28672), "405B": (126, 16384, 53248)}
LLAMA_3B = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 3072, "head_dim": 128,
            "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8,
            "vocab_size": 128256, "tie_word_embeddings": True}
# peft's samples have 768 tokens at most, and how many a batch's longest one has is not published. So the rows are compared with this
# one, too: what such a run takes, as a share of what this one does.
PEFT_REFERENCE = "lora rank32"


def job_of(config, tokens, attention, training, trainers, gpu):
    transformer = {"seqLen": tokens, "attention": attention, "config": json.dumps(config)}
    pod = {"spec": {"containers": [{"name": "trainer", "image": "trainer"}]}}
    return {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "published"},
            "spec": {"model": {"family": "published", "transformer": transformer}, "training": training,
                     "provisioning": {"headroom": "0%"},  # the bound is the job's, not the card's
                     "trainers": {"replicas": trainers, "gpuModel": gpu}, "template": pod}}


def titan_job(row):
    layers, hidden, ffn = LLAMA[row["model"]]
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": hidden,
              "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": hidden // 128,
              "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False}
    tensor, pipeline = int(row["tensor"]), int(row["pipeline"])
    parallelism = {"strategy": "FSDP2", "tensor": tensor, "sequence": tensor > 1, "pipeline": pipeline,
                   "pipelineChunks": int(row["chunks"]), "context": int(row["context"]), "reshardAfterForward": pipeline == 1}
    training = {"batchSizePerTrainer": int(row["batch"]), "precision": "BF16Mixed", "optimizer": "AdamW",
                "optimizerImplementation": row["implementation"], "activationCheckpointing": row["checkpointing"],
                "compile": row["compile"], "float8": row["float8"], "torchVersion": row["torch"],
                "gradientAccumulation": pipeline, "parallelism": parallelism}
    gpu = "H200" if "H200" in row["name"] else "H100-NVL"
    return job_of(config, int(row["tokens"]), "Flash", training, int(row["trainers"]), gpu)


def answer_of(command, job=None):
    """The answer of `plimsoll estimate -o json`, which reads the job, if there is one; or None and its error."""
    done = subprocess.run(command, input=None if job is None else json.dumps(job), capture_output=True, text=True)
    if not done.stdout.strip():
        return None, done.stderr.strip()
    answer = json.loads(done.stdout)
    return (answer[0] if isinstance(answer, list) else answer), ""


def compared(name, answer, measured):
    peak = answer["peak"]
    bound = peak["upperBoundBytes"] - answer["breakdown"]["cudaContextBytes"] - answer["breakdown"]["communicationBytes"]
    return {"model": name, "measuredMiB": round(measured / MIB), "reservedMiB": round(peak["reservedBytes"] / MIB),
            "upperBoundMiB": round(bound / MIB), "errorPercent": round(100 * (peak["reservedBytes"] / measured - 1), 2),
            "boundPercent": round(100 * (bound / measured - 1), 2)}


def line(row):
    return (f"{row['model']:40} measured {row['measuredMiB']:6} MiB  reserved {row['reservedMiB']:6}  error {row['errorPercent']:+6.2f} %  "
            f"bound {row['boundPercent']:+6.2f} %")


def torchtitan(plimsoll):
    rows = []
    lines = (DATA / "torchtitan.csv").read_text().splitlines()
    for row in csv.DictReader(each for each in lines if not each.startswith("#")):
        expandable = "expandable_segments:" + ("True" if row["expandable"] == "yes" else "False")
        command = [plimsoll, "estimate", "-f", "-", "--alloc-conf", expandable, "-o", "json"]
        answer, problem = answer_of(command, titan_job(row))
        if answer is None:
            sys.exit(f"{row['name']}: {problem}")
        rows.append(compared(row["name"], answer, float(row["measuredGiB"]) * 1024 * MIB))
        print(line(rows[-1]), file=sys.stderr)
    return rows


def peft_answer(plimsoll, row, folder):
    """The answer for a run of peft's table, or None and why it is refused."""
    (folder / "config.json").write_text(json.dumps(LLAMA_3B))
    command = [plimsoll, "estimate", "--config", str(folder / "config.json"), "--sequence-length", "768", "--batch-size", "4",
               "--optimizer", row["optimizer"], "--precision", "BF16", "--gpu", "L40S", "-o", "json"]
    if "adapter" in row:
        (folder / "adapter_config.json").write_text(json.dumps(row["adapter"]))
        command += ["--adapter", str(folder / "adapter_config.json")]
    return answer_of(command)


def peft(plimsoll):
    rows, refused = [], []
    with tempfile.TemporaryDirectory() as folder:
        for run in yaml.safe_load((DATA / "peft_metamath.yaml").read_text()):
            answer, problem = peft_answer(plimsoll, run, pathlib.Path(folder))
            if answer is None:
                refused.append(problem.splitlines()[0].removeprefix("plimsoll: "))
            else:
                rows.append(compared(run["run"], answer, run["reservedBytes"]))
    reference = next(row for row in rows if row["model"] == PEFT_REFERENCE)
    for row in rows:
        measured, ours = (row[key] / reference[key] for key in ("measuredMiB", "reservedMiB"))
        row["ratioPercent"] = round(100 * (ours / measured - 1), 2)
        print(f"{line(row)}  as a share of {PEFT_REFERENCE}: measured {measured:.3f}, estimated {ours:.3f}, {row['ratioPercent']:+.2f} %",
              file=sys.stderr)
    for problem in sorted(set(refused)):
        print(f"refused, {refused.count(problem)}: {problem}", file=sys.stderr)
    return rows
