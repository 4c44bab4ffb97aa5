#!/usr/bin/env python3
"""What Hugging Face's transformers take on a CUDA device, in sizes that are trained, beside the estimates.

    python3 transformers_on_gpu.py -o measured_gpu/NAME.json    measures; needs torch 2, transformers 5 and a CUDA device
    python3 transformers_on_gpu.py --rehearse                   one layer of each model on the CPU: what can fail fails here
    python3 transformers_on_gpu.py --compare [FILE.json ...]    estimates beside the files, or all of measured_gpu/transformers_*

`training` and `model` of a row are those of a TrainingJob. measure_gpu.py says what the figures are.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import torch  # noqa: E402
import transformers  # noqa: E402

import measure_gpu  # noqa: E402
import transformer_truth  # noqa: E402


def llama(hidden, layers, heads, key_value_heads, intermediate, vocabulary, **more):
    return {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": key_value_heads, "intermediate_size": intermediate, "vocab_size": vocabulary, **more}


TINY_LLAMA = llama(2048, 22, 32, 4, 5632, 32000)
LLAMA_1B = llama(2048, 16, 32, 8, 8192, 128256, tie_word_embeddings=True)
LLAMA_8B = llama(4096, 32, 32, 8, 14336, 128256)
QWEN2 = {**llama(1536, 28, 12, 2, 8960, 151936, tie_word_embeddings=True), "model_type": "qwen2"}
QWEN3 = {**llama(1024, 28, 16, 8, 3072, 151936, tie_word_embeddings=True), "model_type": "qwen3", "head_dim": 128}
MISTRAL = {**llama(2048, 16, 32, 8, 7168, 32000), "model_type": "mistral", "sliding_window": 1024}
GPT2_MEDIUM = {"model_type": "gpt2", "n_embd": 1024, "n_head": 16, "n_layer": 24, "n_positions": 1024, "vocab_size": 50257}
GPT2_XL = {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_positions": 1024, "vocab_size": 50257}
BERT_LARGE = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 1024, "intermediate_size": 4096,
              "num_attention_heads": 16, "num_hidden_layers": 24, "max_position_embeddings": 512, "vocab_size": 30522}
T5_BASE = {"model_type": "t5", "d_model": 768, "d_ff": 3072, "d_kv": 64, "num_heads": 12, "num_layers": 12, "vocab_size": 32128,
           "decoder_start_token_id": 0}
GEMMA = {**llama(2048, 18, 8, 1, 16384, 256000), "model_type": "gemma", "head_dim": 256}
GEMMA2 = {**llama(2304, 26, 8, 4, 9216, 256000), "model_type": "gemma2", "head_dim": 256, "sliding_window": 4096,
          "query_pre_attn_scalar": 256}
PHI2 = {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32, "num_hidden_layers": 32,
        "vocab_size": 51200, "partial_rotary_factor": 0.4, "resid_pdrop": 0.1}
PHI3 = {**llama(3072, 32, 32, 32, 8192, 32064), "model_type": "phi3", "pad_token_id": 0}
PYTHIA = {"model_type": "gpt_neox", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
          "num_hidden_layers": 24, "vocab_size": 50304, "rotary_pct": 0.25}
OPT = {"model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192, "num_attention_heads": 32, "num_hidden_layers": 24,
       "vocab_size": 50272, "max_position_embeddings": 2048, "dropout": 0.1}
BLOOM = {"model_type": "bloom", "hidden_size": 1024, "n_head": 16, "n_layer": 24, "vocab_size": 250880}
MIXTRAL = {**llama(1024, 8, 16, 4, 3584, 32000), "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
VIT_LARGE = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 1024, "intermediate_size": 4096,
             "num_attention_heads": 16, "num_hidden_layers": 24, "image_size": 224, "patch_size": 16, "num_labels": 1000}
WHISPER = {"model_type": "whisper", "d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12,
           "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "max_source_positions": 1500,
           "max_target_positions": 448, "vocab_size": 51865, "num_mel_bins": 80}
MAMBA = {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 4, "state_size": 16, "vocab_size": 50280}

FALCON = {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 8, "vocab_size": 65024}
STABLELM = {**llama(2048, 24, 32, 32, 5632, 100352), "model_type": "stablelm"}
OLMO2 = {**llama(2048, 16, 16, 16, 8192, 100352), "model_type": "olmo2", "pad_token_id": 0, "eos_token_id": 1}
DEEPSEEK = {"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "num_attention_heads": 16,
            "num_key_value_heads": 16, "num_hidden_layers": 4, "vocab_size": 102400, "kv_lora_rank": 512, "q_lora_rank": None,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 32, "n_shared_experts": 2,
            "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "topk_method": "greedy",
            "n_group": 1, "topk_group": 1}

T5_LARGE = {**T5_BASE, "d_model": 1024, "d_ff": 4096, "num_heads": 16, "num_layers": 24}
GEMMA3 = {**llama(1152, 26, 4, 1, 6912, 262144), "model_type": "gemma3_text", "head_dim": 256, "sliding_window": 512,
          "sliding_window_pattern": 6, "query_pre_attn_scalar": 256}
CLIP = {"model_type": "clip", "projection_dim": 768,
        "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12,
                        "vocab_size": 49408, "max_position_embeddings": 77, "eos_token_id": 2, "projection_dim": 768},
        "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
                          "image_size": 224, "patch_size": 14, "projection_dim": 768}}
LLAMA4 = {"model_type": "llama4_text", "hidden_size": 1024, "intermediate_size": 2048, "intermediate_size_mlp": 4096,
          "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "num_hidden_layers": 8, "vocab_size": 202048,
          "num_local_experts": 8, "interleave_moe_layer_step": 2, "attention_chunk_size": 1024, "no_rope_layer_interval": 4,
          "pad_token_id": 0}
QWEN3_NEXT = {"model_type": "qwen3_next", "hidden_size": 1024, "intermediate_size": 2560, "num_attention_heads": 8,
              "num_key_value_heads": 2, "head_dim": 128, "num_hidden_layers": 4, "vocab_size": 151936, "num_experts": 16,
              "num_experts_per_tok": 4, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
              "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 8, "linear_num_value_heads": 16}

FULL = {"activationCheckpointing": "Full"}
OPTIMIZERS = ("SGD", "Momentum", "Adam", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adadelta", "Adamax", "Adafactor", "Muon")


def case(name, config, batch, tokens, precision="BF16Mixed", optimizer="AdamW", attention="SDPA", **training):
    """tokens: of a sample, or those of the encoder and those of the decoder."""
    lengths = {"encoderSeqLen": tokens[0], "seqLen": tokens[1]} if isinstance(tokens, tuple) else {"seqLen": tokens}
    model = {"config": json.dumps(config), **lengths, "attention": attention}
    return {"case": name, "model": {"transformer": model},
            "training": {"batchSizePerTrainer": batch, "optimizer": optimizer, "precision": precision, **training}}


LORA = {"fineTuning": {"method": "LoRA", "rank": 16, "targetModules": ["q_proj", "k_proj", "v_proj", "o_proj"]}}
CASES = [
    case("TinyLlama", TINY_LLAMA, 4, 2048),
    case("TinyLlama", TINY_LLAMA, 8, 2048),
    case("TinyLlama", TINY_LLAMA, 4, 2048, **FULL),
    case("TinyLlama", TINY_LLAMA, 4, 2048, gradientAccumulation=2, **FULL),
    case("TinyLlama", TINY_LLAMA, 4, 2048, gradientAccumulation=2),
    case("TinyLlama", TINY_LLAMA, 4, 2048, "BF16"),
    case("TinyLlama", TINY_LLAMA, 4, 2048, "BF16", **FULL),
    case("TinyLlama", TINY_LLAMA, 2, 2048, "FP32"),
    case("TinyLlama", TINY_LLAMA, 2, 2048, "TF32"),
    case("TinyLlama", TINY_LLAMA, 4, 2048, "FP16Mixed", gradScaler=True),
    case("TinyLlama", TINY_LLAMA, 4, 1024, attention="Eager"),
    case("TinyLlama", TINY_LLAMA, 2, 1024, "FP32", attention="Eager"),
    case("TinyLlama", TINY_LLAMA, 4, 2048, "BF16Mixed", "SGD"),
    case("TinyLlama", TINY_LLAMA, 4, 2048, optimizerImplementation="Fused"),
    case("TinyLlama", TINY_LLAMA, 4, 2048, optimizerImplementation="SingleTensor"),
    case("Llama 3.2 1B", LLAMA_1B, 2, 4096),
    case("Llama 3.2 1B", LLAMA_1B, 2, 4096, "BF16", **FULL),
    case("Llama 3 8B, LoRA", LLAMA_8B, 1, 4096, "BF16", **FULL, **LORA),
    case("Llama 3 8B, LoRA", LLAMA_8B, 1, 2048, "BF16", **LORA),
    case("Llama 3 8B", LLAMA_8B, 1, 4096, "BF16", "SGD", **FULL),
    case("TinyLlama, LoRA", TINY_LLAMA, 4, 2048, **LORA),
    case("Qwen2.5 1.5B", QWEN2, 2, 2048),
    case("Qwen3 0.6B", QWEN3, 4, 2048, "BF16"),
    case("Mistral, window 1,024", MISTRAL, 2, 2048),
    case("GPT-2 medium", GPT2_MEDIUM, 8, 1024),
    case("GPT-2 XL", GPT2_XL, 4, 1024, **FULL),
    case("GPT-2 medium", GPT2_MEDIUM, 4, 1024, "FP32", attention="Eager"),
    case("BERT large", BERT_LARGE, 16, 512),
    case("BERT large", BERT_LARGE, 8, 512, "FP32", attention="Eager"),
    case("T5 base", T5_BASE, 8, 512, attention="Eager"),
    case("T5 base", T5_BASE, 8, 512, "FP32", "Adafactor", attention="Eager"),
    case("Gemma 2B", GEMMA, 1, 2048),
    case("Gemma 2 2B", GEMMA2, 2, 2048, "BF16", attention="Eager", **FULL),
    case("Phi-2", PHI2, 2, 2048, "BF16", **FULL),
    case("Phi-3 mini", PHI3, 2, 2048, "BF16", "SGD"),
    case("Pythia 410M", PYTHIA, 8, 2048),
    case("OPT 1.3B", OPT, 4, 2048),
    case("BLOOM 560M", BLOOM, 2, 2048, attention="Eager"),
    case("Mixtral, small", MIXTRAL, 4, 2048),
    case("Mixtral, small", MIXTRAL, 4, 2048, "BF16"),
    case("ViT large", VIT_LARGE, 64, 197),
    case("Whisper small", WHISPER, 8, 448),
    case("Mamba, 4 layers", MAMBA, 2, 512, attention="Eager"),
    # Where the step is the peak.
    *(case("TinyLlama", TINY_LLAMA, 1, 64, "FP32", optimizer) for optimizer in OPTIMIZERS),
    case("TinyLlama", TINY_LLAMA, 4, 2048, compile="Model"),
]

# Estimated for the first time after the rules that the cases above led to had been written.
HELD_OUT = [
    case("Falcon, 8 layers", FALCON, 2, 2048, "BF16"),
    case("Falcon, 8 layers", FALCON, 1, 2048),
    case("Llama 3.2 1B", LLAMA_1B, 1, 2048, "FP32"),
    case("Qwen3 0.6B", QWEN3, 1, 2048, "TF32"),
    case("Mistral, window 1,024", MISTRAL, 2, 2048, "FP32"),
    case("GPT-2 medium", GPT2_MEDIUM, 4, 1024, "FP32"),
    case("GPT-2 medium", GPT2_MEDIUM, 4, 1024, "FP16Mixed"),
    case("GPT-2 medium", GPT2_MEDIUM, 4, 1024, attention="Eager"),
    case("BERT large", BERT_LARGE, 8, 512, "FP32"),
    case("StableLM 1.6B", STABLELM, 2, 2048),
    case("OLMo 2 1B", OLMO2, 2, 2048, "BF16", **FULL),
    case("Mixtral, small", MIXTRAL, 2, 2048, "FP32"),
    case("Mixtral, small", MIXTRAL, 4, 2048, **FULL),
    case("DeepSeek-V2, 4 layers", DEEPSEEK, 2, 2048),
    case("T5 base", T5_BASE, 8, 512, "BF16", attention="Eager"),
    case("ViT large", VIT_LARGE, 32, 197, "FP32"),
    case("Whisper small", WHISPER, 4, 448, "FP32"),
    case("TinyLlama, LoRA", TINY_LLAMA, 2, 2048, "FP32", **LORA),
    case("Phi-3 mini, LoRA", PHI3, 2, 2048, "BF16",
         fineTuning={"method": "LoRA", "rank": 8, "targetModules": ["qkv_proj", "o_proj"]}),
]
HELD_OUT += [
    case("T5 base", T5_BASE, 8, (512, 128), attention="Eager"),
    case("T5 base", T5_BASE, 16, (512, 128), attention="Eager", **FULL),
    case("T5 base", T5_BASE, 8, 512, "FP32", attention="Eager", **FULL),
    case("T5 large", T5_LARGE, 4, 512, attention="Eager"),
    case("T5 large", T5_LARGE, 8, 512, attention="Eager", **FULL),
    case("T5 large", T5_LARGE, 8, (256, 512), "BF16", attention="Eager"),
    case("Gemma 3 1B", GEMMA3, 2, 2048),
    case("Gemma 3 1B", GEMMA3, 2, 2048, "BF16", **FULL),
    case("CLIP large", CLIP, 64, 77),
    case("Llama 4, small", LLAMA4, 2, 2048, "BF16"),
    case("Qwen3 Next, small", QWEN3_NEXT, 2, 1024),
]
CASES += HELD_OUT


def optimizers_of(training, model):
    """As docs/estimation.md says of each: Muon takes the matrices, and AdamW the rest."""
    trained = [each for each in model.parameters() if each.requires_grad]
    name = training["optimizer"]
    more = {"ForEach": {"foreach": True}, "Fused": {"fused": True},
            "SingleTensor": {"foreach": False}}.get(training.get("optimizerImplementation"), {})
    if name == "Momentum":
        return [torch.optim.SGD(trained, lr=1e-9, momentum=0.9, **more)]
    if name == "Muon":
        return [torch.optim.Muon([each for each in trained if each.dim() == 2], lr=1e-9),
                torch.optim.AdamW([each for each in trained if each.dim() != 2], lr=1e-9)]
    return [getattr(torch.optim, name)(trained, lr=1e-9, **more)]


def build(config, attention, training, device):
    """The model, made on the device in the type that it is trained in."""
    torch.set_default_dtype(torch.bfloat16 if training["precision"] == "BF16" else torch.float32)
    with torch.device(device):
        model = transformer_truth.build(config, attention, training.get("activationCheckpointing") == "Full")
    torch.set_default_dtype(torch.float32)
    tuning = training.get("fineTuning")
    if tuning:
        import peft

        if training.get("activationCheckpointing") == "Full":
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(r=tuning["rank"], target_modules=tuning["targetModules"]))
    return model.train()


def prepare(row, device):
    training, spec = row["training"], row["model"]["transformer"]
    config = json.loads(spec["config"])
    precision = training["precision"]
    if precision == "TF32":
        torch.set_float32_matmul_precision("high")
    model = build(config, spec["attention"].lower(), training, device)
    made = model.config
    run = torch.compile(model) if training.get("compile") == "Model" else model
    parts = training.get("gradientAccumulation", 1)
    optimizers = optimizers_of(training, model)
    scaler = torch.amp.GradScaler(device) if training.get("gradScaler") else None
    type_ = {"BF16Mixed": torch.bfloat16, "FP16Mixed": torch.float16}.get(precision)

    def make_loss(inputs):
        with torch.autocast(device, type_, enabled=type_ is not None):
            loss = run(**inputs).loss
        return scaler.scale(loss) if scaler else loss

    batches = []
    for _ in range(parts):
        tokens = (spec.get("encoderSeqLen", spec["seqLen"]), spec["seqLen"])
        inputs = transformer_truth.make_inputs(config, made, training["batchSizePerTrainer"] // parts, tokens)
        floats = torch.bfloat16 if precision == "BF16" else torch.float32
        batches.append({name: value if not torch.is_tensor(value) else value.to(device, floats) if value.is_floating_point()
                        else value.to(device) for name, value in inputs.items()})
    if scaler:
        optimizers = [ScaledOptimizer(scaler, each) for each in optimizers]
    return optimizers, [lambda inputs=inputs: make_loss(inputs) for inputs in batches]


class ScaledOptimizer:
    def __init__(self, scaler, optimizer):
        self._scaler, self._optimizer = scaler, optimizer
        self.zero_grad = optimizer.zero_grad

    def step(self):
        self._scaler.step(self._optimizer)
        self._scaler.update()


def quiet():
    import warnings

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()


def measure_case(row):
    quiet()
    return measure_gpu.measure_iterations(*prepare(row, "cuda"))


LAYERS = {"llama4_text": 4, "qwen3_next": 4}  # their layers are of several kinds


def one_layer(row):
    """The case with one layer, one sample of few tokens and few words."""
    spec = row["model"]["transformer"]
    config = json.loads(spec["config"])
    for part in (config, config.get("text_config", {}), config.get("vision_config", {})):
        for key in ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"):
            if key in part:
                part[key] = LAYERS.get(config["model_type"], 1)
    if config["model_type"] not in ("whisper", "clip"):  # whose special tokens are its last ones
        config["vocab_size"] = 1024
    training = {**row["training"], "batchSizePerTrainer": row["training"].get("gradientAccumulation", 1)}
    if training.get("optimizerImplementation") == "Fused":
        del training["optimizerImplementation"]
    return {**row, "training": training,
            "model": {"transformer": {**spec, "config": json.dumps(config),
                                      **{key: min(value, 32) for key, value in spec.items() if key.endswith("eqLen")}}}}


def rehearse(rows):
    quiet()
    failed = 0
    for row in rows:
        try:
            measure_gpu.iterate(*prepare(one_layer(row), "cpu"))
            print(row["case"], row["training"], "trains", flush=True)
        except Exception as error:
            failed += 1
            print(row["case"], row["training"], f"{type(error).__name__}: {error}", flush=True)
    return failed


def estimate(binary, row, measured):
    """The JSON of `plimsoll estimate` for a row, of one trainer unless the row says `trainers`."""
    trainers = row.get("trainers", 1)
    training = {**row["training"], "torchVersion": ".".join(measured["torch"].split(".")[:2])}
    job = {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "job"},
           "spec": {"trainers": {"replicas": trainers}, "model": row["model"], "training": training,
                    "template": {"spec": {"containers": [{"name": "trainer", "image": "trainer"}]}}}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(job, file)
        file.flush()
        done = subprocess.run([binary, "estimate", "-f", file.name, "--gpu", measured["gpu"], "--trainers", str(trainers), "-o",
                               "json"], capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"reason": (done.stderr.strip() or "no answer").splitlines()[0]}


def compare(binary, path):
    """Prints a row of each case; gives the number of cases above the upper bound or without an estimate."""
    measured = json.loads(path.read_text())
    print(f"{path.name}: {measured['gpu']}, PyTorch {measured['torch']}, CUDA {measured['cuda']}")
    print(f"{'':24} {'batch':>9} {'options':44} {'allocated':>9} {'ours':>8} {'err %':>7} {'reserved':>9} {'ours':>8} {'err %':>7}"
          f" {'card':>8} {'bound':>8}   MiB {'seconds':>8} {'ours':>8} {'err %':>7}")
    failed, errors = 0, {"allocated": [], "reserved": [], "seconds": []}
    for row in measured["rows"]:
        training = {key: value for key, value in row["training"].items() if key != "batchSizePerTrainer"}
        options = " ".join("LoRA" if key == "fineTuning" else str(value) for key, value in training.items())
        model = row["model"]["transformer"]
        name = (f"{row['case']:24} {row['training']['batchSizePerTrainer']:>4}x{model['seqLen']:<4} "
                f"{options + ' ' + model['attention']:44}")
        answer = {"reason": row["error"]} if "error" in row else estimate(binary, row, measured)
        if "peak" not in answer:
            failed += 1
            print(name, answer.get("reason", answer))
            continue
        cells = []
        for key in ("allocated", "reserved"):
            found = errors[key]
            ours = answer["peak"][key + "Bytes"]
            found.append(100 * (ours / row[key] - 1))
            cells.append(f"{row[key] >> 20:>9} {ours >> 20:>8} {found[-1]:+7.2f}")
        card = row["card"] - (row["cardBefore"] or 0)
        bound = answer["peak"]["upperBoundBytes"]
        failed += card > bound
        seconds = float(answer["throughput"]["iterationSeconds"])
        errors["seconds"].append(100 * (seconds / row["seconds"] - 1))
        print(name, *cells, f"{card >> 20:>8} {bound >> 20:>8}       {row['seconds']:8.3f} {seconds:8.3f} {errors['seconds'][-1]:+7.1f}",
              "ABOVE THE BOUND" if card > bound else "")
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
    parser.add_argument("--held-out", action="store_true", help="the cases that were held out alone")
    parser.add_argument("--rehearse", action="store_true", help="train each case on the CPU with one layer; measure nothing")
    parser.add_argument("--compare", action="store_true", help="compare the files with estimates; measure nothing")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build" / "release" / "bin" / "plimsoll")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    chosen = [row for row in (HELD_OUT if options.held_out else CASES) if re.search(options.only, json.dumps(row))]
    if options.rehearse:
        return 1 if rehearse(chosen) else 0
    if options.compare:
        files = options.files or sorted((HERE / "measured_gpu").glob("transformers_*.json"))
        return 1 if sum(compare(options.binary, path) for path in files) else 0
    head = measure_gpu.in_child(measure_gpu.device)
    if head is None:
        print("no CUDA device here: nothing was measured.")
        return 0
    measure_gpu.measure_all([(row, measure_case, row) for row in chosen], options.output,
                            {**head, "transformers": transformers.__version__})
    return 0


if __name__ == "__main__":
    sys.exit(main())
