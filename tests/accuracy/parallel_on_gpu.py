#!/usr/bin/env python3
"""What one rank of a parallel run takes on a CUDA device, in sizes that are trained, beside the estimates.

    python3 parallel_on_gpu.py -o measured_gpu/NAME.json    measures; needs torch 2, transformers 5 and a CUDA device
    python3 parallel_on_gpu.py --rehearse                   one small model each on the CPU: what can fail fails here
    python3 parallel_on_gpu.py --compare [FILE.json ...]    estimates beside the files, or all of measured_gpu/parallel_*

One device stands for one rank of N: PyTorch's "fake" process group has N ranks, of which this process is one, and its
collectives return at once. Everything else is real: what FSDP, DDP and DTensor allocate, on which streams, and what the
caching allocator reserves. NCCL's own buffers are missing, and so is the time that a collective takes, so `seconds` say nothing.
A row's `made` has the peaks of making and wrapping the model, before the first iteration.
"""
import argparse
import functools
import json
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "parallel"), str(HERE / "models")]

import torch  # noqa: E402
import transformers  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import measure_gpu  # noqa: E402
import transformer_truth  # noqa: E402
import transformers_on_gpu as single  # noqa: E402

FULL = {"activationCheckpointing": "Full"}
ZERO = ("ZeRO1", "ZeRO2", "ZeRO3")
# As Llama 3 8B, with a quarter of the layers.
LLAMA_8B_QUARTER = {**single.LLAMA_8B, "num_hidden_layers": 8}
LLAMA_70B_SHORT = single.llama(8192, 4, 64, 8, 28672, 128256)


def case(name, config, ranks, strategy, batch, tokens, precision="BF16Mixed", parallelism=(), initialisation="GPU", rank=0,
         attention="SDPA", **training):
    model = {"config": json.dumps(config), "seqLen": tokens, "attention": attention}
    if strategy == "FSDP" and precision == "BF16Mixed":
        parallelism = {"reduceDtype": "FP32", **dict(parallelism)}
    return {"case": name, "trainers": ranks, "rank": rank, "initialisation": initialisation, "model": {"transformer": model},
            "training": {"batchSizePerTrainer": batch, "optimizer": training.pop("optimizer", "AdamW"), "precision": precision,
                         **training, "parallelism": {"strategy": strategy, **dict(parallelism)}}}


CASES = [
    # Data parallelism.
    case("TinyLlama", single.TINY_LLAMA, 8, "DDP", 2, 2048),
    case("TinyLlama", single.TINY_LLAMA, 8, "DDP", 2, 2048, parallelism={"gradientAsBucketView": True}),
    case("TinyLlama", single.TINY_LLAMA, 8, "DDP", 4, 2048, **FULL),
    case("TinyLlama", single.TINY_LLAMA, 8, "DDP", 2, 2048, "FP32"),
    case("TinyLlama", single.TINY_LLAMA, 8, "DDP", 4, 2048, gradientAccumulation=2),
    case("GPT-2 XL", single.GPT2_XL, 8, "DDP", 4, 1024, **FULL),
    *(case("TinyLlama", single.TINY_LLAMA, ranks, strategy, 4, 2048, **FULL)
      for strategy in ("FSDP", "FSDP2") for ranks in (2, 8, 64)),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, batch, 2048)
      for strategy in ("FSDP", "FSDP2") for batch in (1, 4)),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 2, 2048, "FP32") for strategy in ("FSDP", "FSDP2")),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 4, 2048, "BF16", **FULL) for strategy in ("FSDP", "FSDP2")),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 4, 2048, gradientAccumulation=2, **FULL)
      for strategy in ("FSDP", "FSDP2")),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 4, 2048, parallelism={"reshardAfterForward": False}, **FULL)
      for strategy in ("FSDP", "FSDP2")),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 4, 2048, parallelism={"offload": "Parameters"}, **FULL)
      for strategy in ("FSDP", "FSDP2")),
    *(case("GPT-2 XL", single.GPT2_XL, 8, strategy, 4, 1024, **FULL) for strategy in ("FSDP", "FSDP2")),
    *(case("GPT-2 medium", single.GPT2_MEDIUM, 16, strategy, 8, 1024) for strategy in ("FSDP", "FSDP2")),
    *(case("Qwen2.5 1.5B", single.QWEN2, 8, strategy, 2, 2048) for strategy in ("FSDP", "FSDP2")),
    case("Llama 3 8B", single.LLAMA_8B, 8, "FSDP2", 1, 8192, initialisation="Meta", **FULL),
    case("Llama 3 8B", single.LLAMA_8B, 64, "FSDP2", 1, 8192, initialisation="Meta", **FULL),
    case("Llama 3 8B", single.LLAMA_8B, 64, "FSDP2", 2, 8192, initialisation="Meta", **FULL),
    case("Llama 3 8B", single.LLAMA_8B, 32, "FSDP2", 4, 8192, initialisation="Meta", **FULL),
    case("Llama 3 8B", single.LLAMA_8B, 64, "FSDP2", 1, 4096, initialisation="Meta"),
    # torchtitan's plan of tensor parallelism beside FSDP2, by 2 data-parallel ranks.
    *(case("Llama 3 8B, 8 layers", LLAMA_8B_QUARTER, 2 * tensor, "FSDP2", 1, 8192,
           parallelism={"tensor": tensor, "sequence": True}, initialisation="Meta", **more)
      for tensor in (2, 8) for more in ({}, FULL)),
    case("Llama 3 8B, 8 layers", LLAMA_8B_QUARTER, 8, "FSDP2", 1, 8192, parallelism={"tensor": 4}, initialisation="Meta", **FULL),
    case("Llama 3 70B, 4 layers", LLAMA_70B_SHORT, 64, "FSDP2", 2, 8192, parallelism={"tensor": 8, "sequence": True},
         initialisation="Meta", **FULL),
    # Megatron-Core, tensor x pipeline x 2 data-parallel ranks.
    *(case("Llama 3 8B, 8 layers", LLAMA_8B_QUARTER, 2 * tensor, "Megatron", 1, 8192, parallelism={"tensor": tensor, "sequence": sequence},
           optimizerImplementation="ForEach", **more)
      for tensor, sequence in ((1, False), (2, False), (2, True), (8, True)) for more in ({}, FULL)),
    case("TinyLlama", single.TINY_LLAMA, 8, "Megatron", 2, 2048, optimizerImplementation="ForEach"),
    case("TinyLlama", single.TINY_LLAMA, 64, "Megatron", 4, 2048, optimizerImplementation="ForEach", gradientAccumulation=4),
    case("TinyLlama", single.TINY_LLAMA, 8, "Megatron", 2, 2048, optimizerImplementation="Fused"),
    case("TinyLlama", single.TINY_LLAMA, 8, "Megatron", 1, 1024, attention="Eager", optimizerImplementation="ForEach"),
    case("TinyLlama", single.TINY_LLAMA, 8, "Megatron", 1, 1024, attention="Eager", optimizerImplementation="ForEach",
         parallelism={"tensor": 2, "sequence": True}),
    *(case("Llama 3 8B, 8 layers", LLAMA_8B_QUARTER, 8, "Megatron", 8, 4096, parallelism={"tensor": 2, "sequence": True, "pipeline": 2},
           rank=rank, gradientAccumulation=8, optimizerImplementation="ForEach", **more) for rank in (0, 4) for more in ({}, FULL)),
    # DeepSpeed. Hugging Face's "auto" of reduce_bucket_size is the square of the width.
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 4, 2048, parallelism={"reduceBucketSize": 2048 * 2048}, **FULL)
      for strategy in ZERO),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 4, 2048, **FULL) for strategy in ZERO),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 2, 2048) for strategy in ZERO),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 2, 2048, "FP32") for strategy in ZERO),
    case("TinyLlama", single.TINY_LLAMA, 8, "ZeRO2", 2, 2048, "FP16Mixed"),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 4, 2048, gradientAccumulation=2, **FULL) for strategy in ZERO),
    *(case("TinyLlama", single.TINY_LLAMA, ranks, "ZeRO3", 4, 2048, **FULL) for ranks in (2, 64)),
    case("TinyLlama", single.TINY_LLAMA, 64, "ZeRO2", 4, 2048, **FULL),
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 4, 2048, parallelism={"offload": "Optimizer"}, **FULL) for strategy in ZERO),
    case("TinyLlama", single.TINY_LLAMA, 8, "ZeRO3", 4, 2048, parallelism={"offload": "Parameters"}, **FULL),
    *(case("GPT-2 XL", single.GPT2_XL, 8, strategy, 4, 1024, **FULL) for strategy in ZERO),
    case("Qwen2.5 1.5B", single.QWEN2, 8, "ZeRO3", 2, 2048),
    case("Llama 3 8B, 8 layers", LLAMA_8B_QUARTER, 8, "ZeRO3", 1, 8192, **FULL),
    case("Llama 3 8B", single.LLAMA_8B, 64, "ZeRO3", 1, 4096, initialisation="Meta", **FULL),
    case("Llama 3 8B", single.LLAMA_8B, 64, "ZeRO2", 1, 4096, initialisation="CPU", **FULL),
    # Adapters.
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 4, 2048, **single.LORA, **more)
      for strategy in ("DDP", "FSDP", "FSDP2", "ZeRO2", "ZeRO3") for more in ({}, FULL)),
    # How the model is made.
    *(case("TinyLlama", single.TINY_LLAMA, 8, strategy, 1, 128, initialisation=way)
      for strategy in ZERO for way in ("GPU", "CPU")),
    *(case("TinyLlama", single.TINY_LLAMA, ranks, "ZeRO3", 1, 128, initialisation="Meta") for ranks in (2, 8)),
    case("GPT-2 XL", single.GPT2_XL, 8, "ZeRO3", 1, 128, initialisation="CPU"),
    *(case("TinyLlama", single.TINY_LLAMA, ranks, strategy, 1, 128, "BF16Mixed", initialisation=way)
      for strategy in ("FSDP", "FSDP2") for way in ("GPU", "CPU", "Meta") for ranks in (2, 8)),
    case("TinyLlama", single.TINY_LLAMA, 8, "FSDP", 1, 128, "BF16Mixed", initialisation="CPU, synchronised"),
    *(case("GPT-2 XL", single.GPT2_XL, 8, strategy, 1, 128, "BF16Mixed", initialisation=way)
      for strategy in ("FSDP", "FSDP2") for way in ("GPU", "CPU")),
]


def start_group(ranks, rank):
    """A process group of `ranks` ranks, of which this is one; its collectives compute nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())


def layers_of(model):
    """The model's own layers: its largest list of modules."""
    return max((each for each in model.modules() if isinstance(each, nn.ModuleList)), key=len)


def checkpoint_layers(model):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    layers = layers_of(model)
    for index, layer in enumerate(layers):
        layers[index] = checkpoint_wrapper(layer)


def make(config, training, device):
    """transformers' model in the precision in which its parameters are kept."""
    torch.set_default_dtype(torch.bfloat16 if training["precision"] == "BF16" else torch.float32)
    own = training["parallelism"]["strategy"] in ("DDP", "ZeRO1", "ZeRO2", "ZeRO3")  # FSDP's examples wrap the layers
    with torch.device(device):
        model = transformer_truth.build(config, "sdpa", own and training.get("activationCheckpointing") == "Full")
    torch.set_default_dtype(torch.float32)
    tuning = training.get("fineTuning")
    if tuning:
        import peft

        if own and training.get("activationCheckpointing") == "Full":
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(r=tuning["rank"], target_modules=tuning["targetModules"]),
                                    autocast_adapter_dtype=False)
    return model.train()


def initialise(module):
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            nn.init.zeros_(tensor)


def wrap_ddp(model, training, device, initialisation):
    def reduce(_, bucket):  # what the fake group returns instead of a tensor is refused
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    view = training["parallelism"].get("gradientAsBucketView", False)
    wrapped = nn.parallel.DistributedDataParallel(model.to(device), gradient_as_bucket_view=view)
    wrapped.register_comm_hook(None, reduce)
    return wrapped


def wrap_fsdp(model, training, device, initialisation):
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import CustomPolicy

    units = set(map(id, layers_of(model)))
    if "fineTuning" in training:  # as peft.utils.other.fsdp_auto_wrap_policy(): each adapter is a unit of its own
        units.update(id(part) for part in model.modules() if not list(part.children()) and hasattr(part, "weight")
                     and part.weight.requires_grad)
    options = {"auto_wrap_policy": CustomPolicy(lambda part: id(part) in units), "device_id": torch.device(device)}
    if device == "cuda":
        options["device_id"] = torch.cuda.current_device()
    if training["precision"] == "BF16Mixed":
        reduce = torch.float32 if training["parallelism"].get("reduceDtype") == "FP32" else torch.bfloat16
        options["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=reduce)
    if not training["parallelism"].get("reshardAfterForward", True):
        options["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
    if training["parallelism"].get("offload") == "Parameters":
        options["cpu_offload"] = CPUOffload(offload_params=True)
    if initialisation == "Meta":
        def materialise(module):
            module.to_empty(device=device, recurse=False)
        options["param_init_fn"] = materialise
    if initialisation == "CPU, synchronised":
        options["sync_module_states"] = True
    return FullyShardedDataParallel(model, **options)


def wrap_fsdp2(model, training, device, initialisation, over=None):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    options = {"mesh": over or distributed.init_device_mesh(device, (distributed.get_world_size(),))}
    if not training["parallelism"].get("reshardAfterForward", True):  # else FSDP2's default, which spares the root
        options["reshard_after_forward"] = False
    if training["precision"] == "BF16Mixed":
        reduce = torch.bfloat16 if training["parallelism"].get("reduceDtype") == "Half" else torch.float32
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce)
    offloads = training["parallelism"].get("offload") == "Parameters"
    if offloads:
        options["offload_policy"] = CPUOffloadPolicy()
    for layer in layers_of(model):
        fully_shard(layer, **options)
    fully_shard(model, **options)
    if initialisation == "Meta":
        model.to_empty(device="cpu" if offloads else device)
        with torch.no_grad():
            initialise(model)
    return model


def split_llama(config, tokens, training, device):
    """measure_meshes.py's Llama on the meta device, split as torchtitan splits it; its loss is loss_parallel's."""
    import measure_meshes
    import parallel

    parallel.LLAMA = config
    measure_meshes.LAYERS = config["num_hidden_layers"]
    tensor = training["parallelism"]["tensor"]
    mesh = distributed.init_device_mesh(device, (distributed.get_world_size() // tensor, tensor), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        module = measure_meshes.Llama(0, 1, tokens)
    measure_meshes.split_by_heads(module, mesh["tp"], training["parallelism"].get("sequence", False))
    return module, mesh["dp"]


def fill_rotary(module, config, device):
    """to_empty() has left the frequencies without values."""
    module.rotary = type(module.rotary)(module.rotary.config).to(device)


class SplitLoss:
    """The loss of a Llama that is split over a mesh."""

    def __init__(self, module, tokens):
        self.module, self.tokens = module, tokens

    def __call__(self):
        with torch.device(self.tokens.device):
            output = self.module(self.tokens)
        return functional.cross_entropy(output.flatten(0, 1).float(), self.tokens.flatten())


def batches_of(config, made, batch, tokens, parts, device):
    """The inputs of each micro-batch."""
    batches = []
    for _ in range(parts):
        inputs = transformer_truth.make_inputs(config, made, batch, tokens)
        batches.append({name: value.to(device) if torch.is_tensor(value) else value for name, value in inputs.items()})
    return batches


def prepare(row, device, recorder=None):
    training, spec = row["training"], row["model"]["transformer"]
    config = json.loads(spec["config"])
    strategy, way = training["parallelism"]["strategy"], row["initialisation"]
    start_group(row["trainers"], row["rank"])
    if strategy == "Megatron":
        import megatron_rank

        return megatron_rank.prepare(config, spec, training, device, recorder)
    parts = training.get("gradientAccumulation", 1)
    batch = training["batchSizePerTrainer"] // parts
    checkpoints = training.get("activationCheckpointing") == "Full" and strategy.startswith("FSDP")
    if "tensor" in training["parallelism"]:
        from torch.distributed.tensor.parallel import loss_parallel

        loss_parallel().__enter__()  # for as long as this process lives
        module, over = split_llama(config, spec["seqLen"], training, device)
        if checkpoints:
            from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
            for index, block in enumerate(module.blocks):
                module.blocks[index] = checkpoint_wrapper(block)
        module = wrap_fsdp2(module, training, device, way, over)
        fill_rotary(module, config, device)
        made = recorder() if recorder else None
        groups = {}
        for parameter in module.parameters():
            groups.setdefault(parameter.device_mesh, []).append(parameter)
        optimizer = torch.optim.AdamW([{"params": group} for group in groups.values()], lr=1e-9)
        tokens = torch.zeros(batch, spec["seqLen"], dtype=torch.int64, device=device)
        return [optimizer], [SplitLoss(module, tokens)] * parts, made
    if strategy.startswith("ZeRO"):
        import deepspeed_rank

        return deepspeed_rank.prepare(
            lambda: make(config, training, {"GPU": device}.get(way, "cpu")),
            lambda model: batches_of(config, model.config, batch, spec["seqLen"], parts, device), training, device, way, recorder)
    model = make(config, training, {"GPU": device, "Meta": "meta"}.get(way, "cpu"))
    made_config = model.config
    if checkpoints:
        checkpoint_layers(model)
    wrap = {"DDP": wrap_ddp, "FSDP": wrap_fsdp, "FSDP2": wrap_fsdp2}[strategy]
    model = wrap(model, training, device, way)
    made = recorder() if recorder else None
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = getattr(torch.optim, training["optimizer"])(trained, lr=1e-9)
    batches = batches_of(config, made_config, batch, spec["seqLen"], parts, device)
    # accelerate runs FSDP under autocast, too, which adapters need: peft casts their inputs to the type of the shards.
    casts = training["precision"] == "BF16Mixed" and (strategy == "DDP" or (strategy == "FSDP" and "fineTuning" in training))

    def make_loss(inputs):
        with torch.autocast(device, torch.bfloat16, enabled=casts):
            return model(**inputs).loss

    return [optimizer], [functools.partial(make_loss, inputs) for inputs in batches], made


def peaks_so_far():
    torch.cuda.synchronize()
    found = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
             "remains": torch.cuda.memory_allocated()}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return found


def measure_case(row):
    single.quiet()
    torch.cuda.init()
    optimizers, losses, made = prepare(row, "cuda", peaks_so_far)
    return {"made": made, **measure_gpu.measure_iterations(optimizers, losses)}


def small(row):
    """The case with two layers, one sample of few tokens and few words."""
    spec = row["model"]["transformer"]
    config = json.loads(spec["config"])
    for key in ("num_hidden_layers", "n_layer"):
        if key in config:
            config[key] = 2
    config["vocab_size"] = 1024
    training = {**row["training"], "batchSizePerTrainer": row["training"].get("gradientAccumulation", 1)}
    return {**row, "training": training,
            "model": {"transformer": {**spec, "config": json.dumps(config), "seqLen": min(spec["seqLen"], 32)}}}


def rehearse(rows):
    def train(row):
        single.quiet()
        torch._dynamo.config.disable = True  # Megatron-Core compiles its fused activation
        optimizers, losses, _ = prepare(small(row), "cpu")
        measure_gpu.iterate(optimizers, losses)
        return {}

    failed = 0
    for row in rows:
        result = measure_gpu.in_child(train, row)
        failed += "error" in result
        print(row["case"], row["trainers"], row["initialisation"], row["training"], result.get("error", "trains"), flush=True)
    return failed


def options_of(row):
    training = row["training"]
    words = [f"{key}={value}" if key not in ("strategy", "precision", "optimizer", "activationCheckpointing", "optimizerImplementation")
             else str(value) for part in (training["parallelism"], training) for key, value in part.items()
             if key not in ("parallelism", "batchSizePerTrainer")]
    return " ".join(words + [row["model"]["transformer"]["attention"], f"rank={row['rank']}"])


def compare(binary, path):
    """Prints a row of each case; gives the number of cases above the upper bound or without an estimate."""
    measured = json.loads(path.read_text())
    print(f"{path.name}: {measured['gpu']}, PyTorch {measured['torch']}, CUDA {measured['cuda']}")
    print(f"{'':21} {'N':>3} {'batch':>6} {'options':78} {'allocated':>9} {'ours':>8} {'err %':>7} {'reserved':>9} {'ours':>8} {'err %':>7}"
          f" {'bound':>8} {'made':>8} MiB")
    failed, errors = 0, {"allocated": [], "reserved": []}
    for row in measured["rows"]:
        model = row["model"]["transformer"]
        name = (f"{row['case']:21} {row['trainers']:>3} {row['training']['batchSizePerTrainer']:>2}x{model['seqLen']:<4} "
                f"{options_of(row):78}")
        answer = {"reason": row["error"]} if "error" in row else single.estimate(binary, row, measured)
        if "peak" not in answer:
            failed += 1
            print(name, str(answer.get("reason", answer))[:150])
            continue
        cells = []
        for key in ("allocated", "reserved"):
            ours = answer["peak"][key + "Bytes"]
            errors[key].append(100 * (ours / row[key] - 1))
            cells.append(f"{row[key] >> 20:>9} {ours >> 20:>8} {errors[key][-1]:+7.2f}")
        parts = answer["breakdown"]  # NCCL and, in what is reserved, the context are missing in the runs
        bound = answer["peak"]["upperBoundBytes"] - parts["cudaContextBytes"] - parts["communicationBytes"]
        failed += row["reserved"] > bound
        print(name, *cells, f"{bound >> 20:>8} {row['made']['reserved'] >> 20:>8}", row["initialisation"],
              "ABOVE THE BOUND" if row["reserved"] > bound else "")
    for key, found in errors.items():
        if found:
            sizes = [abs(error) for error in found]
            print(f"{key}: {len(found)} cases, median {statistics.median(sizes):.2f} %, mean {statistics.fmean(sizes):.2f} %, "
                  f"worst {max(sizes):.2f} %")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE", help="default: standard output")
    parser.add_argument("--only", metavar="REGEX", default="", help="cases whose row matches somewhere")
    parser.add_argument("--rehearse", action="store_true", help="train each case on the CPU with two layers; measure nothing")
    parser.add_argument("--compare", action="store_true", help="compare the files with estimates; measure nothing")
    parser.add_argument("--binary", type=pathlib.Path, default=single.ROOT / "build" / "release" / "bin" / "plimsoll")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    if options.compare:
        files = options.files or sorted((HERE / "measured_gpu").glob("parallel_*.json"))
        return 1 if sum(compare(options.binary, path) for path in files) else 0
    chosen = [row for row in CASES if re.search(options.only, json.dumps(row))]
    if options.rehearse:
        return 1 if rehearse(chosen) else 0
    head = measure_gpu.in_child(measure_gpu.device)
    if head is None:
        print("no CUDA device here: nothing was measured.")
        return 0
    measure_gpu.measure_all([(row, measure_case, row) for row in chosen], options.output,
                            {**head, "transformers": transformers.__version__})
    return 0


if __name__ == "__main__":
    sys.exit(main())
