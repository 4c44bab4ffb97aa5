#!/usr/bin/env python3
"""Measures what Hugging Face's transformers take, on the CPU, for one steady-state training iteration.

Prints tests/estimator/estimate/transformer_torch2.yaml, to which the lowered specs are held. Needs torch 2 and
transformers 5:

    python3 tests/accuracy/transformer_truth.py                  # all
    python3 tests/accuracy/transformer_truth.py gemma2 phi       # these families alone
"""
import json
import sys
import warnings

import torch
from torch.profiler import ProfilerActivity, profile

import transformers

LLAMA = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
         "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500}
LLAMA_SCORE = {**LLAMA, "architectures": ["LlamaForSequenceClassification"], "num_labels": 3, "pad_token_id": 0}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": 48}
QWEN2_WINDOW = {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 48, "max_window_layers": 1}
QWEN2 = {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True}
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 48}
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_head": 4, "n_layer": 3, "n_positions": 128, "vocab_size": 500,
        "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
GPT2_DROPOUT = {**GPT2, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.1}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 128, "intermediate_size": 512,
        "num_attention_heads": 4, "num_hidden_layers": 3, "max_position_embeddings": 128, "vocab_size": 500,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT_CLASSES = {**BERT, "architectures": ["BertForSequenceClassification"], "num_labels": 3}
T5 = {"model_type": "t5", "d_model": 128, "d_ff": 512, "d_kv": 32, "num_heads": 4, "num_layers": 3, "vocab_size": 500,
      "dropout_rate": 0.0, "decoder_start_token_id": 0}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
DEEPSEEK = {"model_type": "deepseek_v2", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
            "num_key_value_heads": 4, "num_hidden_layers": 3, "vocab_size": 500, "kv_lora_rank": 64, "q_lora_rank": 96,
            "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 4,
            "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "first_k_dense_replace": 1,
            "topk_method": "greedy", "n_group": 1, "topk_group": 1}

GEMMA = {"model_type": "gemma", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "head_dim": 32,
         "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500}
# A window of 48 tokens, so that it matters; every second layer of three has it.
GEMMA2 = {**GEMMA, "model_type": "gemma2", "sliding_window": 48, "query_pre_attn_scalar": 32}
GEMMA3 = {**GEMMA2, "model_type": "gemma3_text", "sliding_window_pattern": 3}
PHI = {"model_type": "phi", "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4,
       "num_hidden_layers": 3, "vocab_size": 500}
PHI_DROPOUT = {**PHI, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attention_dropout": 0.1, "qk_layernorm": True}
PHI3 = {"model_type": "phi3", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
        "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500, "pad_token_id": 0}
PHI3_DROPOUT = {**PHI3, "resid_pdrop": 0.1, "attention_dropout": 0.1}
PHI3_WINDOW = {**PHI3, "sliding_window": 48}
GPT_NEOX = {"model_type": "gpt_neox", "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4,
            "num_hidden_layers": 3, "vocab_size": 500}
GPT_NEOX_DROPOUT = {**GPT_NEOX, "hidden_dropout": 0.1, "attention_dropout": 0.1, "use_parallel_residual": False}
STABLELM = {"model_type": "stablelm", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
            "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500}
STABLELM_PARALLEL = {**STABLELM, "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True,
                     "hidden_dropout": 0.1}
OLMO2 = {**LLAMA, "model_type": "olmo2", "pad_token_id": 0, "eos_token_id": 1}
OPT = {"model_type": "opt", "hidden_size": 128, "ffn_dim": 512, "num_attention_heads": 4, "num_hidden_layers": 3,
       "vocab_size": 500, "max_position_embeddings": 128, "dropout": 0.0}
OPT_AFTER = {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 64, "dropout": 0.1, "attention_dropout": 0.1}
FALCON = {"model_type": "falcon", "hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 500}
FALCON_GROUPS = {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "hidden_dropout": 0.1}
BLOOM = {"model_type": "bloom", "hidden_size": 128, "n_head": 4, "n_layer": 3, "vocab_size": 500}
BLOOM_DROPOUT = {**BLOOM, "hidden_dropout": 0.1, "attention_dropout": 0.1}
VIT = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 128, "intermediate_size": 512,
       "num_attention_heads": 4, "num_hidden_layers": 3, "image_size": 64, "patch_size": 8, "num_labels": 10}
VIT_DROPOUT = {**VIT, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
CLIP = {"model_type": "clip", "projection_dim": 48,
        "text_config": {"hidden_size": 96, "intermediate_size": 384, "num_attention_heads": 4, "num_hidden_layers": 3,
                        "vocab_size": 500, "max_position_embeddings": 40, "eos_token_id": 2, "projection_dim": 48},
        "vision_config": {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 3,
                          "image_size": 64, "patch_size": 8, "projection_dim": 48}}
WHISPER = {"model_type": "whisper", "d_model": 128, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4,
           "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 384, "max_source_positions": 100,
           "max_target_positions": 64, "vocab_size": 500, "num_mel_bins": 16, "pad_token_id": 0,
           "decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2, "begin_suppress_tokens": None}
WHISPER_DROPOUT = {**WHISPER, "dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
MAMBA = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 3, "state_size": 8, "vocab_size": 500}
LLAMA4 = {"model_type": "llama4_text", "hidden_size": 128, "intermediate_size": 96, "intermediate_size_mlp": 352,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 4, "vocab_size": 500,
          "num_local_experts": 4, "interleave_moe_layer_step": 2, "attention_chunk_size": 64, "no_rope_layer_interval": 4,
          "pad_token_id": 0}
QWEN3_NEXT = {"model_type": "qwen3_next", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 4, "vocab_size": 500, "num_experts": 4,
              "num_experts_per_tok": 2, "moe_intermediate_size": 96, "shared_expert_intermediate_size": 64,
              "linear_key_head_dim": 16, "linear_value_head_dim": 32, "linear_num_key_heads": 2,
              "linear_num_value_heads": 4}
# Tokens of the families that do not take 128.
TOKENS = {"vit": 65, "clip": 40, "whisper": 48}


def of_family(config, *kinds):
    """Cases of 4 samples of 128 tokens; "checkpointing" and "mixed" are with SDPA, unless the family has none."""
    attention = "eager" if config["model_type"] in ("gemma2", "bloom", "mamba") else "sdpa"
    tokens = TOKENS.get(config["model_type"], 128)
    return [(config, kind if kind in ("sdpa", "eager") else attention, 4, tokens, "SGD", kind == "checkpointing",
             kind == "mixed") for kind in kinds]


# Few tokens, so that the copies of the weights that autocast keeps until forward ends make the peak.
LLAMA_OF_WEIGHTS = {**LLAMA, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6, "vocab_size": 100}
GPT2_OF_WEIGHTS = {**GPT2, "n_embd": 256, "n_layer": 6, "vocab_size": 100}

# config, attention, batch, tokens, optimizer, checkpointing, mixed precision[, micro-batches of an iteration]
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
    # (Tokens of the encoder, of the decoder.)
    (T5, "eager", 4, (128, 32), "SGD", False, False),
    (T5, "eager", 4, (48, 128), "AdamW", False, False),
    (MIXTRAL, "sdpa", 4, 128, "SGD", False, False),
    (DEEPSEEK, "eager", 4, 128, "SGD", False, False),
    *of_family(GEMMA, "sdpa", "eager", "checkpointing", "mixed"),
    *of_family(GEMMA2, "eager", "checkpointing"),
    *of_family(GEMMA3, "sdpa", "eager", "checkpointing"),
    *of_family(PHI, "sdpa", "eager", "checkpointing", "mixed"),
    *of_family(PHI_DROPOUT, "eager"),
    *of_family(PHI3, "sdpa", "eager", "checkpointing"),
    *of_family(PHI3_DROPOUT, "eager"),
    *of_family(PHI3_WINDOW, "sdpa", "eager"),
    *of_family(GPT_NEOX, "sdpa", "eager", "checkpointing", "mixed"),
    *of_family(GPT_NEOX_DROPOUT, "eager"),
    *of_family(STABLELM, "sdpa", "eager", "checkpointing"),
    *of_family(STABLELM_PARALLEL, "sdpa", "eager"),
    *of_family(OLMO2, "sdpa", "eager", "checkpointing", "mixed"),
    *of_family(OPT, "sdpa", "eager", "checkpointing"),
    *of_family(OPT_AFTER, "eager"),
    *of_family(FALCON, "sdpa", "eager", "checkpointing"),
    *of_family(FALCON_GROUPS, "sdpa", "eager", "checkpointing", "mixed"),
    *of_family(BLOOM, "eager", "checkpointing"),
    *of_family(BLOOM_DROPOUT, "eager"),
    *of_family(VIT, "sdpa", "eager", "checkpointing"),
    *of_family(VIT_DROPOUT, "eager"),
    *of_family(CLIP, "sdpa", "eager", "checkpointing"),
    *of_family(WHISPER, "sdpa", "eager", "checkpointing"),
    *of_family(WHISPER_DROPOUT, "eager"),
    *of_family(MAMBA, "eager", "checkpointing"),
    *of_family(LLAMA4, "sdpa", "eager", "checkpointing", "mixed"),
    *of_family(QWEN3_NEXT, "sdpa", "eager", "checkpointing"),
    *of_family(LLAMA_SCORE, "sdpa", "eager", "checkpointing", "mixed"),
    *of_family(BERT_CLASSES, "sdpa", "eager"),
    *of_family(MISTRAL, "sdpa", "eager", "checkpointing"),
    *of_family(QWEN2_WINDOW, "sdpa", "eager"),
    (LLAMA_OF_WEIGHTS, "sdpa", 1, 8, "SGD", False, True),
    (LLAMA_OF_WEIGHTS, "sdpa", 1, 8, "SGD", True, True),
    (LLAMA_OF_WEIGHTS, "sdpa", 2, 8, "SGD", True, True, 2),
    (LLAMA_OF_WEIGHTS, "eager", 4, 8, "AdamW", True, True, 2),
    (GPT2_OF_WEIGHTS, "sdpa", 4, 16, "SGD", False, True, 2),
    (GPT2_OF_WEIGHTS, "sdpa", 4, 8, "Momentum", True, True, 4),
]
MODELS = {"bert": transformers.AutoModelForMaskedLM, "t5": transformers.AutoModelForSeq2SeqLM,
          "vit": transformers.AutoModelForImageClassification, "clip": transformers.AutoModel,
          "whisper": transformers.AutoModelForSpeechSeq2Seq}


def make_optimizer(name, parameters):
    return {
        "SGD": lambda: torch.optim.SGD(parameters, lr=1e-9),
        "Momentum": lambda: torch.optim.SGD(parameters, lr=1e-9, momentum=0.9),
        "AdamW": lambda: torch.optim.AdamW(parameters, lr=1e-9),
    }[name]()


def size(tensors):
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def scores_samples(config):
    return any(name.endswith("ForSequenceClassification") for name in config.get("architectures", []))


def build(config, attention, checkpointing):
    keys = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    made = transformers.AutoConfig.for_model(config["model_type"], use_cache=False, **keys)
    factory = MODELS.get(config["model_type"], transformers.AutoModelForCausalLM)
    if scores_samples(config):
        factory = transformers.AutoModelForSequenceClassification
    model = factory.from_config(made, attn_implementation=attention)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def make_inputs(config, made, batch, tokens):
    """What the model is called with, by the family's own names."""
    kind = config["model_type"]
    encoder_tokens, tokens = tokens if isinstance(tokens, tuple) else (tokens, tokens)
    if kind == "vit":
        return {"pixel_values": torch.randn(batch, 3, made.image_size, made.image_size),
                "labels": torch.randint(0, made.num_labels, (batch,))}
    ids = torch.randint(3, made.vocab_size if kind != "clip" else made.text_config.vocab_size, (batch, tokens))
    if kind == "clip":
        size = made.vision_config.image_size
        return {"input_ids": ids, "pixel_values": torch.randn(batch, 3, size, size), "return_loss": True}
    if kind == "whisper":
        return {"input_features": torch.randn(batch, made.num_mel_bins, 2 * made.max_source_positions), "labels": ids}
    if scores_samples(config):
        return {"input_ids": ids, "labels": torch.randint(0, made.num_labels, (batch,))}
    read = ids if encoder_tokens == tokens else torch.randint(3, made.vocab_size, (batch, encoder_tokens))
    return {"input_ids": read, "labels": ids.clone()}


def measure(config, attention, batch, tokens, optimizer_name, checkpointing, mixed, micro_batches=1):
    model = build(config, attention, checkpointing)
    return measure_model(model, model.config, config, batch, tokens, optimizer_name, mixed, micro_batches)


def measure_model(model, made, config, batch, tokens, optimizer_name, mixed, micro_batches=1):
    """Bytes of parameters, buffers, state and inputs, and the highest point of the iteration above them."""
    optimizer = make_optimizer(optimizer_name, [each for each in model.parameters() if each.requires_grad])
    inputs = make_inputs(config, made, batch, tokens)
    size_of_micro_batch = batch // micro_batches

    def loss(step):
        first = step * size_of_micro_batch
        part = {key: value[first : first + size_of_micro_batch] if torch.is_tensor(value) else value
                for key, value in inputs.items()}
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            return model(**part).loss

    def iterate():
        optimizer.zero_grad(set_to_none=True)
        for step in range(micro_batches):
            loss(step).backward()
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
    given = [value for value in inputs.values() if torch.is_tensor(value)]
    return size([*model.parameters(), *model.buffers(), *state, *given]) + peak


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    print("# Bytes at the highest point of one steady-state iteration of Hugging Face's models on the CPU, one thread.")
    print(f"# Printed by tests/accuracy/transformer_truth.py: torch {torch.__version__}, transformers "
          f"{transformers.__version__}. `model` and `training` are those of a\n# TrainingJob.")
    for case in CASES:
        if sys.argv[1:] and case[0]["model_type"] not in sys.argv[1:]:
            continue
        config, attention, batch, tokens, optimizer, checkpointing, mixed, *more = case
        lengths = {"encoderSeqLen": tokens[0], "seqLen": tokens[1]} if isinstance(tokens, tuple) else {"seqLen": tokens}
        model = {"config": json.dumps(config), **lengths, "attention": {"eager": "Eager", "sdpa": "SDPA"}[attention]}
        training = {"batchSizePerTrainer": batch, "optimizer": optimizer}
        if checkpointing:
            training["activationCheckpointing"] = "Full"
        if mixed:
            training["precision"] = "BF16Mixed"
        if more:
            training["gradientAccumulation"] = more[0]
        print("- " + json.dumps({"case": config["model_type"], "model": {"transformer": model}, "training": training,
                                 "bytes": measure(*case)}), flush=True)


if __name__ == "__main__":
    main()
