#!/usr/bin/env python3
"""Measures what Hugging Face's transformers take, on the CPU, for one steady-state training iteration.

Prints tests/estimator/estimate/transformer_torch2.yaml, to which the lowered specs are held. Needs torch 2 and
transformers 5:

    python3 tests/accuracy/transformer_truth.py
"""
import json
import warnings

import torch
from torch.profiler import ProfilerActivity, profile

import transformers

LLAMA = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
         "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500}
QWEN2 = {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True}
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 48}
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_head": 4, "n_layer": 3, "n_positions": 128, "vocab_size": 500,
        "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
GPT2_DROPOUT = {**GPT2, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.1}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 128, "intermediate_size": 512,
        "num_attention_heads": 4, "num_hidden_layers": 3, "max_position_embeddings": 128, "vocab_size": 500,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
T5 = {"model_type": "t5", "d_model": 128, "d_ff": 512, "d_kv": 32, "num_heads": 4, "num_layers": 3, "vocab_size": 500,
      "dropout_rate": 0.0, "decoder_start_token_id": 0}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
DEEPSEEK = {"model_type": "deepseek_v2", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
            "num_key_value_heads": 4, "num_hidden_layers": 3, "vocab_size": 500, "kv_lora_rank": 64, "q_lora_rank": 96,
            "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 4,
            "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "first_k_dense_replace": 1,
            "topk_method": "greedy", "n_group": 1, "topk_group": 1}

# config, attention, batch, tokens, optimizer, checkpointing, mixed precision
CASES = [
    (LLAMA, "eager", 2, 64, "SGD", False, False),
    (LLAMA, "eager", 4, 128, "SGD", False, False),
    (LLAMA, "sdpa", 2, 64, "AdamW", False, False),
    (LLAMA, "sdpa", 4, 128, "SGD", False, False),
    (LLAMA, "sdpa", 8, 128, "SGD", True, False),
    (LLAMA, "eager", 8, 128, "SGD", True, False),
    (LLAMA, "sdpa", 4, 128, "SGD", False, True),
    (QWEN2, "sdpa", 4, 128, "Momentum", False, False),
    (QWEN3, "sdpa", 4, 128, "SGD", False, False),
    (GPT2, "eager", 4, 128, "SGD", False, False),
    (GPT2, "sdpa", 4, 128, "AdamW", False, False),
    (GPT2, "sdpa", 8, 128, "SGD", True, False),
    (GPT2_DROPOUT, "eager", 4, 128, "SGD", False, False),
    (BERT, "eager", 4, 128, "SGD", False, False),
    (BERT, "sdpa", 4, 128, "SGD", False, False),
    (T5, "eager", 4, 128, "SGD", False, False),
    (MIXTRAL, "sdpa", 4, 128, "SGD", False, False),
    (DEEPSEEK, "eager", 4, 128, "SGD", False, False),
]
MODELS = {"bert": transformers.AutoModelForMaskedLM, "t5": transformers.AutoModelForSeq2SeqLM}


def make_optimizer(name, parameters):
    return {
        "SGD": lambda: torch.optim.SGD(parameters, lr=1e-9),
        "Momentum": lambda: torch.optim.SGD(parameters, lr=1e-9, momentum=0.9),
        "AdamW": lambda: torch.optim.AdamW(parameters, lr=1e-9),
    }[name]()


def size(tensors):
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def build(config, attention, checkpointing):
    keys = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    made = transformers.AutoConfig.for_model(config["model_type"], use_cache=False, **keys)
    factory = MODELS.get(config["model_type"], transformers.AutoModelForCausalLM)
    model = factory.from_config(made, attn_implementation=attention)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def measure(config, attention, batch, tokens, optimizer_name, checkpointing, mixed):
    """Bytes of parameters, buffers, state and inputs, and the highest point of the iteration above them."""
    model = build(config, attention, checkpointing)
    optimizer = make_optimizer(optimizer_name, list(model.parameters()))
    ids = torch.randint(0, config["vocab_size"], (batch, tokens))
    labels = ids.clone()

    def loss():
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            return model(input_ids=ids, labels=labels).loss

    def iterate():
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(2):
        iterate()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        iterate()
    live = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    state = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
    return size([*model.parameters(), *model.buffers(), *state, ids, labels]) + peak


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    print("# Bytes at the highest point of one steady-state iteration of Hugging Face's models on the CPU, one thread.")
    print(f"# Printed by tests/accuracy/transformer_truth.py: torch {torch.__version__}, transformers "
          f"{transformers.__version__}. `model` and `training` are those of a\n# TrainingJob.")
    for case in CASES:
        config, attention, batch, tokens, optimizer, checkpointing, mixed = case
        model = {"config": json.dumps(config), "seqLen": tokens, "attention": {"eager": "Eager", "sdpa": "SDPA"}[attention]}
        training = {"batchSizePerTrainer": batch, "optimizer": optimizer}
        if checkpointing:
            training["activationCheckpointing"] = "Full"
        if mixed:
            training["precision"] = "BF16Mixed"
        print("- " + json.dumps({"case": config["model_type"], "model": {"transformer": model}, "training": training,
                                 "bytes": measure(*case)}), flush=True)


if __name__ == "__main__":
    main()
