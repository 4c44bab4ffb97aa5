"""Fine-tuning with peft: a small Llama whose weights are frozen, and what is trained beside them."""
import torch
from drawn import Loss

HIDDEN, LAYERS, VOCABULARY, TOKENS = 256, 3, 1000, 256


def llama():
    import transformers
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2, intermediate_size=704,
        vocab_size=VOCABULARY, max_position_embeddings=TOKENS, use_cache=False))


def tuned(batch_size, checkpointing=False, **options):
    import peft
    model = llama()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, **options))
    ids = torch.randint(5, 400, (batch_size, TOKENS))
    return Loss(model, ["input_ids", "labels"]), (ids, ids.clone()), lambda loss: loss


def lora(batch_size):
    return tuned(batch_size, target_modules=["q_proj", "v_proj"])


def lora_all_linear(batch_size):
    return tuned(batch_size, target_modules="all-linear", lora_dropout=0.05)


def lora_rank_stabilized(batch_size):
    return tuned(batch_size, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], use_rslora=True, bias="lora_only")


def lora_with_head(batch_size):
    return tuned(batch_size, target_modules=["gate_proj", "up_proj", "down_proj"], modules_to_save=["lm_head", "embed_tokens"])


def lora_checkpointed(batch_size):
    return tuned(batch_size, checkpointing=True, target_modules="all-linear")


def dora(batch_size):
    return tuned(batch_size, target_modules="all-linear", use_dora=True)
