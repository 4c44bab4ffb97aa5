#!/usr/bin/env python3
"""Writes the large files of this folder: the models of the AMP paper and the cluster.

  examples/generate_models.py                 # rewrites the files beside this script
  examples/generate_models.py --output DIR    # writes them elsewhere

The same script writes the same bytes everywhere: the random numbers are seeded and nothing else is read.
Only Python's standard library is needed.
"""

import argparse
import math
import pathlib
import random
import statistics

FLOAT_BYTES = 4
HERE = pathlib.Path(__file__).resolve().parent

# Of a job; `tables` are lines of the model.
JOB = """\
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata:
  name: {name}
spec:
  model:
    family: {name}
    dlrm:
      denseFeatures: {dense_features}
      bottomMLP: {bottom}
      topMLP: {top}
      interaction: Cat
{tables}\
  training:
    batchSizePerTrainer: {batch}
    optimizer: Adam
    embeddingOptimizer: RowWiseAdagrad
  trainers: {{replicas: 128, perNode: 8, gpuModel: A100-80GB}}
  template:
    spec:
      containers:
        - name: trainer
          image: pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime
          command: [torchrun, train.py]
          resources:
            limits: {{nvidia.com/gpu: 8}}
          volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
      volumes:
        - {{name: shm, emptyDir: {{medium: Memory, sizeLimit: 16Gi}}}}
"""


# --- Models A, B and C ----------------------------------------------------------------------------------------
#
# R. Cheng et al., "Towards GPU Memory Efficiency for Distributed Training at Scale" (SoCC '23), Table 1: dense
# parameters, number of tables and their size. Section 3: 75% of the tables are under a couple of hundred MB;
# the batch sizes and 128 trainers are the ones most used. Figure 10: how often a table is looked up has nothing
# to do with its size. All else is made up here.

P75_BYTES = 180e6
LARGEST_BYTES = 100e9
DIMS = [16, 32, 64, 64, 128, 128, 128, 96, 192, 256]

PAPER_MODELS = {
    "a": dict(dense_bytes=0.46e9, tables=2190, table_bytes=5134e9, batch=1024, seed=20231),
    "b": dict(dense_bytes=0.80e9, tables=1037, table_bytes=1988e9, batch=2048, seed=20232),
    "c": dict(dense_bytes=0.19e9, tables=1864, table_bytes=4197e9, batch=1024, seed=20233),
}
PAPER_DENSE_FEATURES = 256
PAPER_BOTTOM = [512, 256, 128]
PAPER_TOP_TAIL = [512, 256, 1]  # after the first width, which gives the model its dense size


def standard_normal(rng):
    return statistics.NormalDist().inv_cdf(min(max(rng.random(), 1e-12), 1 - 1e-12))


def long_tail(rng, count, total):
    """Sizes in bytes: log-normal, three quarters below P75_BYTES, none above LARGEST_BYTES, summing to total."""
    z75 = statistics.NormalDist().inv_cdf(0.75)
    draws = [standard_normal(rng) for _ in range(count)]

    def sizes(sigma):
        return [min(P75_BYTES * math.exp(sigma * (z - z75)), LARGEST_BYTES) for z in draws]

    low, high = 0.5, 12.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(sizes(middle)) < total else (low, middle)
    return sizes(low)


def paper_tables(rng, count, total):
    tables = []
    for index, size in enumerate(long_tail(rng, count, total)):
        dim = DIMS[int(rng.random() * len(DIMS))]
        popularity = standard_normal(rng)
        pooling = min(2.6 * math.exp(1.3 * popularity), 300.0)
        frequency = 1 / (1 + math.exp(-(0.5 + 0.5 * popularity + 0.85 * standard_normal(rng))))
        tables.append(dict(name=f"t{index}", rows=max(1, round(size / (dim * FLOAT_BYTES))), dim=dim,
                           pooling=f"{max(pooling, 0.001):.3f}", frequency=f"{max(frequency, 0.0001):.4f}"))
    # Rounding to whole rows misses the total by a little: one big table that is not at the cap makes up for it.
    missing = total - sum(t["rows"] * t["dim"] * FLOAT_BYTES for t in tables)
    spare = max((t for t in tables if t["rows"] * t["dim"] * FLOAT_BYTES < LARGEST_BYTES / 2),
                key=lambda t: t["rows"] * t["dim"])
    spare["rows"] += round(missing / (spare["dim"] * FLOAT_BYTES))
    return tables


def layer_parameters(widths):
    return sum(a * b + b for a, b in zip(widths, widths[1:]))


def paper_top_mlp(tables, dense_bytes):
    """The first width for which all dense parameters together come closest to the paper's size."""
    concatenated = PAPER_BOTTOM[-1] + sum(t["dim"] for t in tables)
    bottom = layer_parameters([PAPER_DENSE_FEATURES] + PAPER_BOTTOM)

    def size(first):
        return FLOAT_BYTES * (bottom + layer_parameters([concatenated, first] + PAPER_TOP_TAIL))

    first = min(range(1, 16384), key=lambda width: abs(size(width) - dense_bytes))
    return [first] + PAPER_TOP_TAIL, size(first)


def paper_model(letter):
    model = PAPER_MODELS[letter]
    tables = paper_tables(random.Random(model["seed"]), model["tables"], model["table_bytes"])
    top, dense = paper_top_mlp(tables, model["dense_bytes"])
    name = f"model-{letter}"
    head = (f"# Synthetic, after Model-{letter.upper()} of Table 1 of the AMP paper (SoCC '23): {model['tables']} "
            f"tables of {model['table_bytes'] / 1e9:.0f} GB,\n"
            f"# {dense / 1e9:.2f} GB of dense parameters. Written by generate_models.py; change that instead.\n")
    if letter == "c":
        head += ("# The tables come from a ConfigMap, which the job names.\n"
                 f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}-tables\n"
                 "data:\n  tables.csv: |\n    name,rows,dim,pooling_factor,lookup_frequency\n")
        head += "".join(f"    {t['name']},{t['rows']},{t['dim']},{t['pooling']},{t['frequency']}\n" for t in tables) + "---\n"
        source = f"      tablesFrom:\n        configMapKeyRef: {{name: {name}-tables, key: tables.csv}}\n"
    else:
        # The short JSON of this list is what `kubectl apply` keeps in an annotation of at most 256 KiB.
        source = "      tables:\n" + "".join(
            f"        - {{name: {t['name']}, rows: {t['rows']}, dim: {t['dim']}, "
            f"poolingFactor: \"{t['pooling']}\", lookupFrequency: \"{t['frequency']}\"}}\n" for t in tables)
    return head + JOB.format(name=name, dense_features=PAPER_DENSE_FEATURES, bottom=PAPER_BOTTOM, top=top, tables=source,
                             batch=model["batch"])


# --- The cluster ----------------------------------------------------------------------------------------------
#
# Labels as NVIDIA's GPU feature discovery writes them.

NODES_OF_EACH = 64
GPUS_OF_A_NODE = 8
NODE_KINDS = [
    # prefix, product, memory (MiB), family, compute capability, MIG capable
    ("a100-40", "NVIDIA-A100-SXM4-40GB", 40960, "ampere", "8.0", True),
    ("a100-80", "NVIDIA-A100-SXM4-80GB", 81920, "ampere", "8.0", True),
    ("h100", "NVIDIA-H100-80GB-HBM3", 81559, "hopper", "9.0", True),
    ("v100-32", "Tesla-V100-SXM2-32GB", 32768, "volta", "7.0", False),
]


def cluster():
    lines = [f"# {NODES_OF_EACH} nodes of {GPUS_OF_A_NODE} GPUs for each of four GPU models, as "
             "`kubectl get nodes -o yaml` prints them, shortened to what",
             "# Plimsoll reads. Written by generate_models.py; change that instead.",
             "apiVersion: v1", "kind: List", "items:"]
    for prefix, product, memory, family, compute, mig in NODE_KINDS:
        major, minor = compute.split(".")
        for number in range(NODES_OF_EACH):
            name = f"{prefix}-{number:02}"
            labels = (f"kubernetes.io/hostname: {name}, nvidia.com/gpu.present: \"true\", "
                      f"nvidia.com/gpu.product: {product}, nvidia.com/gpu.memory: \"{memory}\", "
                      f"nvidia.com/gpu.count: \"{GPUS_OF_A_NODE}\", nvidia.com/gpu.family: {family}, "
                      f"nvidia.com/gpu.compute.major: \"{major}\", nvidia.com/gpu.compute.minor: \"{minor}\", "
                      "nvidia.com/gpu.replicas: \"1\", nvidia.com/gpu.sharing-strategy: none, "
                      f"nvidia.com/mig.capable: \"{'true' if mig else 'false'}\"")
            resources = f"{{cpu: \"96\", memory: 1536Gi, nvidia.com/gpu: \"{GPUS_OF_A_NODE}\", pods: \"110\"}}"
            lines.append(f"  - {{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{{labels}}}}}, "
                         f"status: {{capacity: {resources}, allocatable: {resources}, "
                         "conditions: [{type: Ready, status: \"True\"}]}}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=HERE, help="the folder to write to")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    contents = {f"model-{letter}.yaml": paper_model(letter) for letter in PAPER_MODELS}
    contents["cluster.yaml"] = cluster()
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
        print(f"{folder / name}: {len(content)} bytes")


if __name__ == "__main__":
    main()
