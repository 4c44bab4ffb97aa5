#!/usr/bin/env python3
"""Writes the example jobs and the example cluster of this folder.

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

TEMPLATE = """\
  template:
    spec:
      containers:
        - name: trainer
          image: pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime
          command: [torchrun, train.py]
          resources:
            limits: {nvidia.com/gpu: 8}
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


def job_head(name, comment, family):
    return (comment +
            "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata:\n" + f"  name: {name}\n" +
            "spec:\n  model:\n" + f"    family: {family}\n    dlrm:\n")


def job_tail(batch, optimizer, embedding_optimizer, trainers, gpu_model):
    return ("  training:\n" + f"    batchSizePerTrainer: {batch}\n    optimizer: {optimizer}\n" +
            f"    embeddingOptimizer: {embedding_optimizer}\n" +
            f"  trainers: {{replicas: {trainers}, perNode: 8, gpuModel: {gpu_model}}}\n" + TEMPLATE)


def paper_model(letter):
    model = PAPER_MODELS[letter]
    tables = paper_tables(random.Random(model["seed"]), model["tables"], model["table_bytes"])
    top, dense = paper_top_mlp(tables, model["dense_bytes"])
    comment = (f"# Synthetic, after Model-{letter.upper()} of Table 1 of the AMP paper (SoCC '23): {model['tables']} "
               f"tables of {model['table_bytes'] / 1e9:.0f} GB,\n"
               f"# {dense / 1e9:.2f} GB of dense parameters. Written by generate_models.py; change that instead.\n")
    dense_lines = (f"      denseFeatures: {PAPER_DENSE_FEATURES}\n      bottomMLP: {PAPER_BOTTOM}\n"
                   f"      topMLP: {top}\n      interaction: Cat\n")
    tail = job_tail(model["batch"], "Adam", "RowWiseAdagrad", 128, "A100-80GB")
    name = f"model-{letter}"
    if letter == "c":
        rows = "".join(f"    {t['name']},{t['rows']},{t['dim']},{t['pooling']},{t['frequency']}\n" for t in tables)
        config_map = (comment + "# The tables come from a ConfigMap, which the job names.\n"
                      "apiVersion: v1\nkind: ConfigMap\nmetadata:\n" + f"  name: {name}-tables\n" +
                      "data:\n  tables.csv: |\n    name,rows,dim,pooling_factor,lookup_frequency\n" + rows + "---\n")
        source = (f"      tablesFrom:\n        configMapKeyRef: {{name: {name}-tables, key: tables.csv}}\n")
        return config_map + job_head(name, "", name) + dense_lines + source + tail
    # The short JSON of this list is what `kubectl apply` keeps in an annotation of at most 256 KiB.
    rows = "".join(
        f"        - {{name: {t['name']}, rows: {t['rows']}, dim: {t['dim']}, "
        f"poolingFactor: \"{t['pooling']}\", lookupFrequency: \"{t['frequency']}\"}}\n" for t in tables)
    return job_head(name, comment, name) + dense_lines + "      tables:\n" + rows + tail


# --- MLPerf's DLRM-DCNv2 --------------------------------------------------------------------------------------
#
# mlcommons/training, recommendation_v2/torchrec_dlrm/README.MD (Apache-2.0), "Running the MLPerf DLRM v2
# benchmark": rows and multi-hot sizes per feature, layer sizes, global batch, optimizer.

MLPERF_ROWS = [40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938,
               155, 4, 976, 14, 40000000, 40000000, 40000000, 590152, 12973, 108, 36]
MLPERF_HOTS = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]


def mlperf_model():
    comment = ("# MLPerf Training's DLRM-DCNv2 on Criteo 1TB with at most 40M rows a table and synthetic multi-hot\n"
               "# features. Source of the figures: mlcommons/training,\n"
               "# recommendation_v2/torchrec_dlrm/README.MD (Apache-2.0). Global batch 65536 on 8 trainers.\n")
    rows = "".join(f"        - {{name: cat_{i}, rows: {r}, dim: 128, poolingFactor: {h}}}\n"
                   for i, (r, h) in enumerate(zip(MLPERF_ROWS, MLPERF_HOTS)))
    return (job_head("dlrm-dcnv2-mlperf", comment, "dlrm-dcnv2") +
            "      denseFeatures: 13\n      bottomMLP: [512, 256, 128]\n      topMLP: [1024, 1024, 512, 256, 1]\n"
            "      interaction: DCN\n      crossLayers: 3\n      crossRank: 512\n      tables:\n" + rows +
            job_tail(65536 // 8, "Adagrad", "Adagrad", 8, "A100-80GB"))


# --- NVIDIA's synthetic models --------------------------------------------------------------------------------
#
# NVIDIA-Merlin/distributed-embeddings, examples/benchmarks/synthetic_models (Apache-2.0): config_v3.py has the
# groups of equal tables (count, rows, width, and the sum of non-zeros of the features that share a table), the
# MLP and the numerical features; README.md the global batch of 65536, Adagrad, and the most GPUs measured.

NVIDIA_MODELS = {
    "tiny": dict(mlp=[256, 128], numerical=10, gpus=16, groups=[
        (1, 10_000, 8, 11), (1, 1_000_000, 16, 11), (1, 25_000_000, 16, 11), (1, 25_000_000, 16, 1), (16, 10, 8, 1),
        (10, 1_000, 8, 1), (4, 10_000, 8, 1), (2, 100_000, 16, 1), (19, 1_000_000, 16, 1)]),
    "small": dict(mlp=[512, 256, 128], numerical=10, gpus=32, groups=[
        (5, 10_000, 16, 31), (3, 4_000_000, 32, 31), (1, 50_000_000, 32, 31), (1, 50_000_000, 32, 1),
        (30, 10, 16, 1), (30, 1_000, 16, 1), (5, 10_000, 16, 1), (5, 100_000, 32, 1), (27, 4_000_000, 32, 1)]),
    "medium": dict(mlp=[1024, 512, 256, 128], numerical=25, gpus=128, groups=[
        (20, 100_000, 64, 51), (5, 10_000_000, 64, 51), (1, 100_000_000, 128, 51), (1, 100_000_000, 128, 1),
        (80, 10, 32, 1), (60, 1_000, 32, 1), (80, 100_000, 64, 1), (24, 200_000, 64, 1), (40, 10_000_000, 64, 1)]),
    "large": dict(mlp=[2048, 1024, 512, 256], numerical=100, gpus=128, groups=[
        (40, 100_000, 64, 101), (16, 15_000_000, 64, 101), (1, 200_000_000, 128, 101), (1, 200_000_000, 128, 1),
        (100, 10, 32, 1), (100, 10_000, 32, 1), (160, 100_000, 64, 1), (50, 500_000, 64, 1),
        (144, 15_000_000, 64, 1)]),
    "jumbo": dict(mlp=[2048, 1024, 512, 256], numerical=200, gpus=128, groups=[
        (50, 100_000, 128, 201), (24, 20_000_000, 128, 201), (1, 400_000_000, 256, 201), (1, 400_000_000, 256, 1),
        (100, 10, 32, 1), (200, 10_000, 64, 1), (350, 100_000, 128, 1), (80, 1_000_000, 128, 1),
        (216, 20_000_000, 128, 1)]),
}


def nvidia_model(size):
    model = NVIDIA_MODELS[size]
    count = sum(group[0] for group in model["groups"])
    total = sum(n * rows * dim * FLOAT_BYTES for n, rows, dim, _ in model["groups"])
    comment = (f"# NVIDIA's synthetic model \"{size}\": {count} tables of {total / 2**30:.1f} GiB. Source of the "
               "figures:\n"
               "# NVIDIA-Merlin/distributed-embeddings, examples/benchmarks/synthetic_models/config_v3.py "
               "(Apache-2.0).\n"
               f"# Global batch 65536 on {model['gpus']} trainers, the most that its README measured.\n")
    rows = "".join(f"        - {{name: g{i}, count: {n}, rows: {r}, dim: {d}, poolingFactor: {p}}}\n"
                   for i, (n, r, d, p) in enumerate(model["groups"]))
    return (job_head(f"nvidia-synthetic-{size}", comment, f"nvidia-synthetic-{size}") +
            f"      denseFeatures: {model['numerical']}\n      topMLP: {model['mlp'] + [1]}\n"
            "      interaction: Cat\n      tables:\n" + rows +
            job_tail(65536 // model["gpus"], "Adagrad", "Adagrad", model["gpus"], "A100-80GB"))


# --- One that fits on a single GPU ----------------------------------------------------------------------------

def single_gpu_model():
    comment = "# A small recommender: eight GPUs are asked for, one holds it.\n"
    return (job_head("single-gpu", comment, "getting-started") +
            "      denseFeatures: 13\n      bottomMLP: [512, 256, 64]\n      topMLP: [512, 256, 1]\n"
            "      interaction: Dot\n      tables:\n"
            "        - {name: user, rows: 20000000, dim: 64}\n"
            "        - {name: item, rows: 5000000, dim: 64, poolingFactor: 20}\n"
            "        - {name: context, count: 24, rows: 10000, dim: 64}\n" +
            job_tail(4096, "Adam", "RowWiseAdagrad", 8, "A100-80GB"))


# --- A stack of interactions ----------------------------------------------------------------------------------
#
# After DHEN (arXiv 2203.11014); the sizes are made up.

def guarded_model():
    """single-gpu, with all that is said about failures; its trainers report what they take."""
    comment = ("# A job that looks after itself: it reports its memory by signposts (docs/signposts.md), may grow to 4 GPUs\n"
               "# after an out-of-memory, and says what becomes of it after other failures (docs/remediation.md).\n")
    policy = ("  provisioning: {mode: Auto, maxTrainers: 4}\n"
              "  failurePolicy:\n    maxRestarts: 5\n    oomBumpUpRatio: \"1.5\"\n    rules:\n"
              "      # The nodes of this pool come and go.\n"
              "      - {action: RestartJobAndIgnoreMaxRestarts, onCauses: [InfrastructureFailure]}\n"
              "      # A host that is too small stays so: tell a person.\n"
              "      - {action: FailJob, onCauses: [HostOutOfMemory]}\n"
              "  activeDeadlineSeconds: 604800\n  ttlSecondsAfterFinished: 86400\n")
    head, tail = single_gpu_model().split("  trainers:", 1)
    job = comment + head.split("\n", 1)[1] + policy + "  trainers:" + tail
    return (job.replace("name: single-gpu", "name: guarded-training").replace("getting-started", "guarded-training")
            .replace("command: [torchrun, train.py]",
                     "command: [torchrun, -m, plimsoll.signposts, train.py]"))


def dhen_model():
    comment = "# A ranking model after DHEN (arXiv 2203.11014), with two histories that stay sequences. Sizes made up.\n"
    return (job_head("dhen-ranking", comment, "dhen-ranking") +
            "      denseFeatures: 600\n      bottomMLP: [512, 128]\n      topMLP: [1024, 512, 1]\n"
            "      interaction: DHEN\n      crossRank: 256\n"
            "      dhen: {layers: 4, features: 32, modules: [Dot, DCN, Linear, Attention], heads: 4}\n"
            "      tables:\n"
            "        - {name: user, count: 40, rows: 10000000, dim: 128, poolingFactor: 5}\n"
            "        - {name: item, count: 60, rows: 2000000, dim: 64}\n"
            "        - {name: history, count: 2, rows: 20000000, dim: 128, poolingFactor: 60, sequenceLength: 100}\n" +
            job_tail(2048, "Adam", "RowWiseAdagrad", 32, "A100-80GB"))


# --- A transformer ----------------------------------------------------------------------------------------------
#
# The sizes are those of Llama 3 8B's config.json on the Hugging Face hub (meta-llama/Meta-Llama-3-8B).

LLAMA_3_8B = """        {
          "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
          "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
          "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
          "max_position_embeddings": 8192, "tie_word_embeddings": false
        }
"""


def llama_model():
    return ("# Llama 3 8B by its config.json, fully sharded: 64 GPUs are asked for, as many as hold it are given.\n"
            "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata:\n  name: llama-3-8b\nspec:\n  model:\n"
            "    family: llama-3-8b\n    transformer:\n      seqLen: 8192\n      attention: SDPA\n      config: |\n" +
            LLAMA_3_8B +
            "  training:\n    batchSizePerTrainer: 1\n    precision: BF16Mixed\n    optimizer: AdamW\n"
            "    optimizerImplementation: Fused\n    activationCheckpointing: Full\n"
            "    parallelism: {strategy: FSDP2}\n"
            "  trainers: {replicas: 64, perNode: 8, gpuModel: A100-80GB}\n"
            "  template:\n    spec:\n      containers:\n        - name: trainer\n"
            "          image: pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime\n          command: [torchrun, train.py]\n"
            "          resources:\n            limits: {nvidia.com/gpu: 8}\n")


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


def files():
    contents = {f"model-{letter}.yaml": paper_model(letter) for letter in PAPER_MODELS}
    contents["dlrm-dcnv2-mlperf.yaml"] = mlperf_model()
    contents.update({f"nvidia-synthetic-{size}.yaml": nvidia_model(size) for size in NVIDIA_MODELS})
    contents["single-gpu.yaml"] = single_gpu_model()
    contents["guarded-training.yaml"] = guarded_model()
    contents["dhen-ranking.yaml"] = dhen_model()
    contents["llama-3-8b.yaml"] = llama_model()
    contents["cluster.yaml"] = cluster()
    return contents


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=HERE, help="the folder to write to")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_text(content, encoding="utf-8")
        print(f"{folder / name}: {len(content)} bytes")


if __name__ == "__main__":
    main()
