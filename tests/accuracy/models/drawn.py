"""Models that draw.py drew by a seed from the lists of transformers and torchvision, before any of them was estimated.

A name is LIBRARY_TASK_MODEL, for example `hf_causal_gemma2`; its tokens are in cases.py's name after `@`. transformers'
models have few layers and small widths: `small_config` writes SMALL over the fields that the default configuration has.
"""
import torch
import torchvision
from torch import nn

# What a default configuration's field becomes, where there is such a field.
SMALL = {
    **dict.fromkeys(["hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "word_embed_proj_dim"], 128),
    **dict.fromkeys(["num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers",
                     "num_encoder_layers", "num_decoder_layers", "num_blocks"], 3),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads",
                     "decoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads"], 4),
    **dict.fromkeys(["num_key_value_heads", "n_head_kv", "num_kv_heads"], 2),
    **dict.fromkeys(["intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner", "ffn_hidden_size",
                     "hidden_dim"], 352),
    **dict.fromkeys(["moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"], 96),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 4),
    **dict.fromkeys(["num_experts_per_tok", "moe_topk", "n_shared_experts"], 1),
    **dict.fromkeys(["max_position_embeddings", "n_positions", "max_seq_len", "max_source_positions"], 2048),
    **dict.fromkeys(["image_size"], 64),
    "vocab_size": 500, "head_dim": 32, "d_kv": 32, "n_group": 1, "topk_group": 1, "layerdrop": 0.0, "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0, "apply_spec_augment": False, "use_cache": False,
}
TASKS = {"causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM", "seq2seq": "AutoModelForSeq2SeqLM",
         "image": "AutoModelForImageClassification", "audio": "AutoModelForAudioClassification"}
IMAGE, SAMPLES, CLASSES = 64, 16_000, 20


def small_config(model_type):
    import transformers
    fields = transformers.AutoConfig.for_model(model_type).to_dict()
    changed = {name: value for name, value in SMALL.items() if isinstance(fields.get(name), (int, float))}
    for name, value in fields.items():  # a special token beyond the vocabulary
        if name.endswith("_token_id") and isinstance(value, int) and value >= SMALL["vocab_size"]:
            changed[name] = 1
    return transformers.AutoConfig.for_model(model_type, **changed)


class Loss(nn.Module):
    """The model with what it is called with, so that forward's result is the loss."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values):
        return self.model(**dict(zip(self.names, values, strict=True))).loss


def with_loss(model, batch_size, tokens, task):
    if task in ("image", "audio"):
        values = torch.randn(batch_size, 3, IMAGE, IMAGE) if task == "image" else torch.randn(batch_size, SAMPLES)
        names = ["pixel_values" if task == "image" else "input_values", "labels"]
        inputs = (values, torch.zeros(batch_size, dtype=torch.int64))
    else:
        ids = torch.randint(5, 400, (batch_size, tokens))
        names, inputs = ["input_ids", "labels"], (ids, ids.clone())
    return Loss(model, names), inputs, lambda loss: loss


def transformers_model(task, model_type, tokens):
    def make(batch_size):
        import transformers
        transformers.logging.set_verbosity_error()
        config = small_config(model_type)
        if task in ("image", "audio"):
            config.num_labels = CLASSES
        return with_loss(getattr(transformers, TASKS[task]).from_config(config), batch_size, tokens, task)
    return make


def torchvision_model(name):
    def make(batch_size):
        video = "3d" in name or name.startswith(("mvit", "mc3", "r2plus1d", "s3d"))
        size = 224 if name.startswith(("vit", "swin", "maxvit", "mvit")) else 96
        options = {"weights_backbone": None} if "deeplab" in name or "fcn" in name or "lraspp" in name else {}
        model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **options)
        shape = (3, 16, size, size) if video else (3, size, size)

        def loss(output):
            output = output if torch.is_tensor(output) else output["out"] if isinstance(output, dict) else output[0]
            labels = torch.zeros(output.shape[:1] + output.shape[2:], dtype=torch.int64)
            return nn.functional.cross_entropy(output, labels)
        return model, (torch.randn(batch_size, *shape),), loss
    return make


def __getattr__(name):
    """The function that `drawn:NAME` names."""
    parts = name.split("__")
    if parts[0] == "hf" and len(parts) == 4:
        return transformers_model(parts[1], parts[2], int(parts[3]))
    if parts[0] == "tv" and len(parts) == 2:
        return torchvision_model(parts[1])
    raise AttributeError(name)
