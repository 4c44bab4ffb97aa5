#!/usr/bin/env python3
"""Measures what peft's adapters take, on the CPU, for one steady-state training iteration of Hugging Face's models.

Prints tests/estimator/estimate/adapters_torch2.yaml, to which the lowered specs are held. Needs torch 2, transformers 5
and peft:

    python3 tests/accuracy/adapter_truth.py                     # all
    python3 tests/accuracy/adapter_truth.py gpt2 bert           # these families alone
    python3 tests/accuracy/adapter_truth.py --compare llama     # with plimsoll's estimate beside each
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import peft
import torch
import transformers

from transformer_truth import BERT, FALCON_GROUPS, GPT2, GPT_NEOX, LLAMA, MIXTRAL, PHI3, QWEN2, build, measure_model, size

BINARY = pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "release" / "bin" / "plimsoll"
# As those of transformer_truth.py, and wider, so that weights matter beside activations.
WIDE = {**LLAMA, "hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_hidden_layers": 4,
        "num_key_value_heads": 4, "vocab_size": 4000}


def case(config, adapter, tokens=128, batch=4, attention="sdpa", optimizer="AdamW", checkpointing=False, precision="FP32",
         quantization=None, prepared=False):
    return {"config": config, "adapter": {"peft_type": "LORA", **adapter}, "tokens": tokens, "batch": batch,
            "attention": attention, "optimizer": optimizer, "checkpointing": checkpointing, "precision": precision,
            "quantization": quantization, "prepared": prepared}


ALL = {"target_modules": "all-linear"}
DORA = {"use_dora": True, "r": 16, **ALL}
CASES = [
    case(LLAMA, {}),
    case(LLAMA, {"r": 16, **ALL}),
    case(LLAMA, {"r": 16, "lora_dropout": 0.05, **ALL}),
    case(LLAMA, {"r": 16, **ALL}, attention="eager"),
    case(LLAMA, {"r": 16, **ALL}, checkpointing=True, batch=8),
    case(LLAMA, {"r": 16, **ALL}, precision="BF16Mixed"),
    case(LLAMA, {"r": 16, **ALL}, precision="BF16"),
    case(LLAMA, {"r": 16, "lora_dropout": 0.05, **ALL}, precision="BF16"),
    case(LLAMA, {"modules_to_save": ["embed_tokens", "lm_head"]}),
    case(LLAMA, {"target_modules": ["q_proj", "down_proj"], "layers_to_transform": [1, 2]}),
    case(LLAMA, {"target_modules": ["o_proj", "up_proj"], "rank_pattern": {"o_proj": 32}}),
    case(LLAMA, {"target_modules": ["v_proj", "lm_head"]}),
    case(WIDE, {"r": 64, **ALL}),
    case(WIDE, {"r": 8}, checkpointing=True, batch=8, tokens=256),
    case(QWEN2, {"r": 16, "bias": "all", **ALL}),
    case(QWEN2, {"r": 16, "bias": "lora_only", "target_modules": ["q_proj"]}),
    case(QWEN2, {"modules_to_save": ["embed_tokens"], "r": 4}),
    case(GPT2, {}),
    case(GPT2, {"r": 16, **ALL}, attention="eager"),
    case(GPT2, {"r": 16, "target_modules": ["c_attn", "mlp.c_proj"], "lora_dropout": 0.1}, checkpointing=True),
    case(BERT, {}),
    case(BERT, {"r": 32, **ALL, "bias": "all"}),
    case(GPT_NEOX, {}),
    case(GPT_NEOX, {"r": 16, **ALL}, precision="BF16Mixed"),
    case(FALCON_GROUPS, {"r": 16}),
    case(FALCON_GROUPS, {"r": 16, **ALL}, checkpointing=True),
    case(PHI3, {"r": 16, **ALL}),
    case(LLAMA, DORA),
    case(WIDE, DORA),
    case(WIDE, {**DORA, "lora_dropout": 0.05}),
    case(WIDE, DORA, precision="BF16"),
    case(LLAMA, DORA, precision="BF16Mixed"),
    case(WIDE, DORA, checkpointing=True, tokens=256),
    case(GPT2, DORA),
    case(BERT, {**DORA, "lora_dropout": 0.05}),
    case(WIDE, {"r": 16, **ALL}, quantization="NF4"),
    case(WIDE, {"r": 16, **ALL}, quantization="NF4", precision="BF16"),
    case(WIDE, {"r": 16, **ALL}, quantization="NF4x2", precision="BF16"),
    case(WIDE, {"r": 16, **ALL}, quantization="NF4x2", precision="BF16", prepared=True),
    case(WIDE, {"r": 16, **ALL}, quantization="NF4x2", precision="BF16Mixed", prepared=True),
    case(WIDE, {"r": 16, **ALL, "lora_dropout": 0.1}, quantization="FP4", precision="BF16Mixed", prepared=True,
         checkpointing=True, tokens=256),
    case(WIDE, {"r": 16, **ALL}, quantization="Int8", precision="BF16"),
    case(WIDE, {"r": 16}, quantization="Int8", precision="FP32", checkpointing=True, tokens=256),
    case(WIDE, DORA, quantization="NF4", precision="BF16"),
    case(GPT2, {"r": 16, **ALL}, quantization="NF4", precision="BF16"),
    case(MIXTRAL, {"r": 16, **ALL}),
    case(MIXTRAL, {"target_modules": ["q_proj", "v_proj"]}, checkpointing=True),
]
PRECISIONS = {"FP32": torch.float32, "BF16Mixed": torch.float32, "BF16": torch.bfloat16}


def quantised(of):
    """The model as transformers loads it, with bitsandbytes' layers."""
    kind, dtype = of["quantization"], torch.float32 if of["precision"] == "FP32" else torch.bfloat16
    types = {"load_in_8bit": True} if kind == "Int8" else {
        "load_in_4bit": True, "bnb_4bit_quant_type": kind[:3].lower(), "bnb_4bit_use_double_quant": kind.endswith("x2"),
        "bnb_4bit_compute_dtype": dtype}
    with tempfile.TemporaryDirectory() as folder:
        build(of["config"], of["attention"], False).to(dtype).save_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, quantization_config=transformers.BitsAndBytesConfig(**types), dtype=dtype, device_map="cpu",
            attn_implementation=of["attention"])
    model.config.use_cache = False
    if of["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if of["prepared"]:
        peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return model.train()


def tables_of(model):
    """What bitsandbytes keeps beside the packed weights, which are parameters: maxima, tables and scales."""
    found = []
    for each in model.parameters():
        state = getattr(each, "quant_state", None)
        if state is not None:
            found += [state.absmax, state.code]
            found += [state.state2.absmax, state.offset] if state.nested else []
    for module in model.modules():
        if getattr(getattr(module, "state", None), "SCB", None) is not None:
            found.append(module.state.SCB)
    return size(found)


def measure(of):
    if of["quantization"]:
        model = quantised(of)
    else:
        model = build(of["config"], of["attention"], of["checkpointing"]).to(PRECISIONS[of["precision"]])
    keys = {key: value for key, value in of["adapter"].items() if key != "peft_type"}
    tuned = peft.get_peft_model(model, peft.LoraConfig(**keys)).train()
    peak = measure_model(tuned, model.config, of["config"], of["batch"], of["tokens"], of["optimizer"],
                         of["precision"] == "BF16Mixed")
    return peak + tables_of(tuned)


def estimate(of):
    with tempfile.TemporaryDirectory() as folder:
        config, adapter = pathlib.Path(folder) / "config.json", pathlib.Path(folder) / "adapter_config.json"
        config.write_text(json.dumps(of["config"]))
        adapter.write_text(json.dumps(of["adapter"]))
        command = [BINARY, "estimate", "--config", config, "--adapter", adapter, "--sequence-length", of["tokens"],
                   "--batch-size", of["batch"], "--optimizer", of["optimizer"], "--precision", of["precision"],
                   "--attention", {"eager": "Eager", "sdpa": "SDPA"}[of["attention"]], "--device", "cpu", "-o", "json"]
        command += ["--checkpoint", "Full"] if of["checkpointing"] else []
        command += ["--prepared-for-kbit-training"] if of["prepared"] else []
        command += ["--quantization", of["quantization"].removesuffix("x2")] if of["quantization"] else []
        command += ["--double-quantization"] if (of["quantization"] or "").endswith("x2") else []
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    try:
        return json.loads(done.stdout)["peak"]["allocatedBytes"]
    except (ValueError, KeyError):
        return (done.stderr or done.stdout).strip()


def job_fields(of):
    """training.fineTuning, as the API writes it."""
    adapter = of["adapter"]
    targets = adapter.get("target_modules", [])
    fields = {"method": "DoRA" if adapter.get("use_dora") else "LoRA", "rank": adapter.get("r", 0),
              "targetModules": [targets] if isinstance(targets, str) else targets,
              "modulesToSave": adapter.get("modules_to_save", []), "layersToTransform": adapter.get("layers_to_transform", []),
              "rankPattern": [{"module": m, "rank": r} for m, r in adapter.get("rank_pattern", {}).items()],
              "bias": {"none": "None", "all": "All", "lora_only": "LoRAOnly"}[adapter.get("bias", "none")]}
    if of["quantization"]:
        fields["quantization"] = of["quantization"].removesuffix("x2")
        fields["doubleQuantization"] = of["quantization"].endswith("x2")
        fields["preparedForKbitTraining"] = of["prepared"]
    if "lora_dropout" in adapter:
        fields["dropout"] = f"{100 * adapter['lora_dropout']:g}%"
    return {key: value for key, value in fields.items() if value not in ([], 0)}


def row(of, measured):
    training = {"batchSizePerTrainer": of["batch"], "optimizer": of["optimizer"], "precision": of["precision"],
                "fineTuning": job_fields(of)}
    if of["checkpointing"]:
        training["activationCheckpointing"] = "Full"
    model = {"config": json.dumps(of["config"]), "seqLen": of["tokens"],
             "attention": {"eager": "Eager", "sdpa": "SDPA"}[of["attention"]]}
    return "- " + json.dumps({"case": of["config"]["model_type"], "model": {"transformer": model}, "training": training,
                              "bytes": measured})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("families", nargs="*", help="model types (default: all)")
    parser.add_argument("--compare", action="store_true", help="print plimsoll's estimate and its error instead of rows")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    worst = 0.0
    if not options.compare:
        print("# Bytes at the highest point of one steady-state iteration of peft's adapters on the CPU, one thread.")
        print(f"# Printed by tests/accuracy/adapter_truth.py: torch {torch.__version__}, transformers "
              f"{transformers.__version__}, peft {peft.__version__}.")
    for of in CASES:
        if options.families and of["config"]["model_type"] not in options.families:
            continue
        measured = measure(of)
        if not options.compare:
            print(row(of, measured), flush=True)
            continue
        estimated = estimate(of)
        error = 100.0 * (estimated - measured) / measured if isinstance(estimated, int) else 100.0
        worst = max(worst, abs(error))
        adapter = " ".join(f"{key}={value}" for key, value in of["adapter"].items() if key != "peft_type")
        kind = " ".join([of["attention"], of["precision"], of["quantization"] or "",
                         "checkpointing" if of["checkpointing"] else ""])
        print(f"{of['config']['model_type']:10} {measured:12} {estimated:12} {error:+8.3f} %  {kind} {adapter}", flush=True)
    if options.compare:
        print(f"worst {worst:.3f} %")
        sys.exit(1 if worst > 2 else 0)


if __name__ == "__main__":
    main()
