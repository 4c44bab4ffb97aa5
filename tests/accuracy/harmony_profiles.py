#!/usr/bin/env python3
"""What layers take alone, as plimsoll.harmony.profile measures it on the CPU: what derived profiles are held to.

Writes tests/estimator/layer_costs/measured.yaml, and the exported graphs of the same models beside it. Needs torch 2 and
transformers 5:

    python3 tests/accuracy/harmony_profiles.py
"""
import json
import pathlib
import sys

import torch
import transformers
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
OUTPUT = HERE.parents[1] / "tests" / "estimator" / "layer_costs"
sys.path.insert(0, str(HERE.parents[1] / "trainer"))

from plimsoll import export  # noqa: E402
from plimsoll.harmony import profile  # noqa: E402

TOKENS = 128
MICROBATCHES = (1, 2, 4)
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_head": 4, "n_layer": 2, "n_positions": 128, "vocab_size": 500,
        "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
GPT2_DROPOUT = {**GPT2, "tie_word_embeddings": False, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.1}
LLAMA = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 2,
         "num_key_value_heads": 2, "vocab_size": 500}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 128, "intermediate_size": 512,
        "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 128, "vocab_size": 500,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT_DROPOUT = {**BERT, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
CLASSES = {"gpt2": transformers.GPT2LMHeadModel, "llama": transformers.LlamaForCausalLM, "bert": transformers.BertForMaskedLM}


def transformer(config, attention, dtype=torch.float32):
    def function(samples):
        settings = transformers.AutoConfig.for_model(**config)
        settings._attn_implementation, settings.use_cache = attention, False
        model = CLASSES[config["model_type"]](settings).to(dtype)
        words = torch.randint(0, config["vocab_size"], (samples, TOKENS))
        return model, words, words, lambda logits, targets: nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    return function


def multilayer(samples):
    layers = [nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Dropout(0.1), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers), torch.randn(samples, 64), torch.randint(0, 10, (samples,)), nn.functional.cross_entropy


def convolutions(samples):
    def block(inside, outside):
        return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU())

    model = nn.Sequential(block(3, 16), block(16, 16), nn.MaxPool2d(2), block(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(32, 10))
    return model, torch.randn(samples, 3, 32, 32), torch.randint(0, 10, (samples,)), nn.functional.cross_entropy


CASES = {
    "gpt2": (transformer(GPT2, "sdpa"), GPT2, "SDPA", "FP32"),
    "gpt2-eager-dropout": (transformer(GPT2_DROPOUT, "eager"), GPT2_DROPOUT, "Eager", "FP32"),
    "gpt2-bf16": (transformer(GPT2, "sdpa", torch.bfloat16), GPT2, "SDPA", "BF16"),
    "llama": (transformer(LLAMA, "sdpa"), LLAMA, "SDPA", "FP32"),
    "llama-eager": (transformer(LLAMA, "eager"), LLAMA, "Eager", "FP32"),
    "bert": (transformer(BERT, "sdpa"), BERT, "SDPA", "FP32"),
    "bert-eager-dropout": (transformer(BERT_DROPOUT, "eager"), BERT_DROPOUT, "Eager", "FP32"),
    "multilayer": (multilayer, None, "", "FP32"),
    "convolutions": (convolutions, None, "", "FP32"),
}
BYTES = ("R", "W", "B", "K", "x", "mf", "mb")


def exported(function):
    def example(samples):
        model, inputs, targets, loss = function(samples)
        if isinstance(model, nn.Sequential):
            return model, (inputs,), lambda output: loss(output, targets)
        return model, (inputs,), lambda output: loss(output.logits, targets)
    return example


def main():
    torch.set_num_threads(1)
    measured = []
    for name, (function, config, attention, precision) in CASES.items():
        torch.manual_seed(0)
        whole = profile.measure(function, MICROBATCHES)
        case = {"case": name, "training": {"batchSizePerTrainer": 1, "optimizer": "AdamW", "precision": precision}}
        if config is not None:
            case["model"] = {"transformer": {"config": json.dumps(config), "seqLen": TOKENS, "attention": attention}}
        if precision == "FP32":
            case["graph"] = f"{name}.json.gz"
            export.write(export.export(exported(function), 4, "cpu", precision, name), str(OUTPUT / case["graph"]))
        measured.append({**case, "profile": {key: whole[key] for key in BYTES}})
        print(name, whole["R"], "layers", file=sys.stderr)
    with open(OUTPUT / "measured.yaml", "w", encoding="utf-8") as file:
        file.write("# Bytes of each layer alone on the CPU. Written by tests/accuracy/harmony_profiles.py: torch %s, transformers %s.\n" %
                   (torch.__version__, transformers.__version__))
        file.writelines(f"- {json.dumps(case)}\n" for case in measured)


if __name__ == "__main__":
    main()
