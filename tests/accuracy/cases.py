"""What is measured: models, batch sizes, optimizers, and which models were held out until the end.

A model is "FILE:FUNCTION" below models/; an optimizer is a name of the API, with "/foreach" or "/fused" for the
implementation (none: PyTorch's default on the CPU, one tensor at a time), and "@BF16Mixed" or "@BF16" for a precision other
than FP32.
"""
import contextlib
import importlib.util
import random

SPLIT_SEED = 20231105

# model: [(batch size, optimizer), ...]
CASES = {
    "cnn:alexnet": [(4, "SGD"), (16, "Momentum")],
    "cnn:vgg11": [(4, "SGD")],
    "cnn:resnet18": [(4, "SGD"), (16, "Adam"), (8, "RMSprop"), (2, "Adam/foreach"), (8, "SGD@BF16Mixed")],
    "cnn:resnet50": [(4, "SGD"), (6, "Momentum")],
    "cnn:resnext50": [(4, "SGD"), (6, "Adagrad")],
    "cnn:densenet121": [(4, "Momentum"), (12, "SGD")],
    "cnn:mobilenet_v2": [(4, "SGD"), (16, "Adam")],
    "cnn:mobilenet_v3_small": [(4, "RMSprop"), (16, "SGD"), (8, "SGD@BF16Mixed")],
    "cnn:mnasnet": [(4, "Adam"), (12, "SGD")],
    "cnn:squeezenet": [(2, "SGD"), (12, "AdamW")],
    "cnn:shufflenet": [(4, "Momentum"), (12, "Adam")],
    "cnn:efficientnet": [(4, "AdamW"), (8, "RMSprop")],
    "cnn:regnet": [(4, "SGD"), (12, "Adam")],
    "cnn:convnext": [(2, "AdamW"), (4, "SGD")],
    "cnn:googlenet": [(4, "SGD"), (8, "Adam")],
    "cnn:deeplab": [(2, "SGD"), (4, "Adam")],
    "vision:vit": [(4, "AdamW"), (12, "SGD"), (8, "AdamW@BF16Mixed")],
    "vision:vit_dropout": [(4, "SGD"), (16, "Adam")],
    "vision:swin": [(4, "AdamW"), (12, "SGD"), (8, "SGD@BF16")],
    "vision:mixer": [(8, "Adam"), (32, "SGD"), (4, "AdamW/foreach")],
    "vision:unet": [(2, "Adam"), (6, "SGD"), (4, "SGD@BF16Mixed")],
    "vision:unet_groupnorm": [(2, "SGD"), (8, "AdamW")],
    "vision:dcgan_generator": [(8, "Adam"), (32, "SGD")],
    "vision:autoencoder": [(64, "Adam"), (512, "SGD")],
    "text:gpt_tied": [(2, "AdamW"), (8, "SGD"), (4, "AdamW/foreach"), (4, "AdamW@BF16Mixed")],
    "text:gpt_untied": [(2, "Adam"), (12, "SGD"), (8, "Adagrad"), (4, "SGD@BF16")],
    "text:gpt_long": [(1, "AdamW"), (4, "SGD")],
    "text:gpt_sdpa": [(2, "AdamW"), (8, "SGD"), (4, "AdamW/fused"), (4, "SGD@BF16Mixed")],
    "text:gpt_sdpa_dropout": [(2, "AdamW"), (8, "Momentum")],
    "text:llama": [(2, "AdamW"), (6, "SGD"), (4, "SGD@BF16Mixed")],
    "text:encoder": [(4, "Adam"), (16, "SGD")],
    "text:encoder_norm_first": [(2, "AdamW"), (8, "SGD")],
    "text:transformer": [(4, "Adam"), (12, "SGD"), (8, "SGD@BF16Mixed")],
    "text:encoder_decoder": [(4, "SGD"), (12, "Adagrad"), (8, "SGD@BF16Mixed")],
    "text:lstm": [(4, "SGD"), (16, "Adam")],
    "text:lstm_bidirectional": [(8, "Adam"), (32, "SGD")],
    "text:gru": [(4, "RMSprop"), (16, "SGD")],
    "text:rnn_tanh": [(8, "SGD"), (32, "Adam")],
    "recommend:dlrm": [(256, "SGD"), (2048, "Adagrad"), (8192, "SGD"), (2048, "SGD@BF16Mixed")],
    "recommend:dlrm_sparse": [(256, "SGD"), (2048, "SGD"), (1024, "Adagrad")],
    "recommend:dcn": [(256, "Adagrad"), (2048, "Adam"), (1024, "SGD@BF16Mixed")],
    "recommend:deepfm": [(512, "Adam"), (4096, "SGD")],
    "recommend:two_towers": [(128, "Adam"), (1024, "SGD")],
    "recommend:interest": [(64, "SGD"), (512, "Adagrad")],
    "odd:in_place": [(64, "SGD"), (1024, "Adam")],
    "odd:graph": [(256, "Adam"), (2048, "SGD")],
    "odd:wavenet": [(2, "Adam"), (8, "SGD")],
    "odd:experts": [(32, "AdamW"), (256, "SGD"), (128, "SGD@BF16")],
    "odd:plain_mlp": [(64, "Adam"), (1024, "SGD"), (64, "Adagrad/foreach")],
    "odd:wide_mlp": [(64, "RMSprop"), (1024, "SGD")],
    "odd:frozen": [(8, "Adam"), (64, "SGD")],
    "odd:custom_function": [(64, "Momentum"), (1024, "Adam"), (256, "Adam@BF16")],
    "odd:checkpointed": [(128, "Adam"), (1024, "SGD"), (512, "SGD@BF16Mixed")],
    "odd:siamese": [(8, "SGD"), (32, "Adam")],
}

# Models that were once estimated wrong. They were looked at, so they are in neither half.
REGRESSIONS = {
    "regressions:wavenet": [(2, "Adam"), (8, "SGD")],
    "regressions:unet_additive": [(2, "Adam"), (6, "SGD")],
    "regressions:shared_gradient": [(2, "AdamW"), (8, "SGD")],
    "regressions:parallel_residual": [(2, "AdamW"), (8, "SGD")],
    "regressions:normalized_channels": [(2, "AdamW"), (8, "SGD")],
}

# Drawn by draw.py before any of them was estimated. "hf__TASK__MODEL__TOKENS" is of transformers, "tv__MODEL" of torchvision.
DRAWN = {
    "drawn:hf__causal__arcee__512": [(3, "Adam")],
    "drawn:hf__causal__qwen3_5_text__512": [(2, "Momentum")],
    "drawn:hf__causal__phi3__1024": [(2, "SGD")],
    "drawn:hf__causal__recurrent_gemma__1024": [(2, "Adam")],
    "drawn:hf__causal__olmo3__512": [(4, "AdamW")],
    "drawn:hf__causal__plbart__1024": [(3, "AdamW")],
    "drawn:hf__causal__starcoder2__512": [(2, "Momentum")],
    "drawn:hf__causal__aria_text__2048": [(4, "Momentum")],
    "drawn:hf__causal__rembert__2048": [(4, "Momentum")],
    "drawn:hf__causal__olmo_hybrid__2048": [(4, "SGD")],
    "drawn:hf__causal__vaultgemma__512": [(2, "Momentum")],
    "drawn:hf__causal__trocr__512": [(4, "Momentum")],
    "drawn:hf__causal__openai-gpt__2048": [(2, "SGD")],
    "drawn:hf__causal__smollm3__1024": [(3, "Momentum")],
    "drawn:hf__causal__electra__512": [(2, "Momentum")],
    "drawn:hf__causal__mellum__1024": [(2, "AdamW")],
    "drawn:hf__causal__minimax_m3_vl_text__2048": [(2, "AdamW")],
    "drawn:hf__causal__granite_swa__512": [(4, "SGD")],
    "drawn:hf__masked__rembert__128": [(2, "Adam")],
    "drawn:hf__masked__mvp__128": [(4, "Adam")],
    "drawn:hf__masked__fnet__512": [(3, "SGD")],
    "drawn:hf__masked__mpnet__512": [(2, "Adam")],
    "drawn:hf__seq2seq__blenderbot-small__128": [(4, "Adam")],
    "drawn:hf__seq2seq__umt5__128": [(2, "Momentum")],
    "drawn:hf__seq2seq__blenderbot__128": [(2, "Momentum")],
    "drawn:hf__seq2seq__pegasus_x__512": [(4, "AdamW")],
    "drawn:hf__image__timm_wrapper__0": [(3, "SGD")],
    "drawn:hf__image__regnet__0": [(2, "AdamW")],
    "drawn:hf__image__vit__0": [(3, "SGD")],
    "drawn:hf__image__bit__0": [(3, "Momentum")],
    "drawn:hf__audio__data2vec-audio__0": [(4, "Momentum")],
    "drawn:hf__audio__wav2vec2__0": [(2, "AdamW")],
    "drawn:hf__audio__wav2vec2-conformer__0": [(4, "Adam")],
    "drawn:tv__mc3_18": [(2, "AdamW")],
    "drawn:tv__densenet201": [(3, "SGD")],
    "drawn:tv__wide_resnet101_2": [(4, "Momentum")],
    "drawn:tv__convnext_small": [(3, "AdamW")],
    "drawn:tv__wide_resnet50_2": [(2, "AdamW")],
    "drawn:tv__efficientnet_b7": [(3, "Momentum")],
    "drawn:tv__regnet_x_800mf": [(2, "SGD")],
}
# Fine-tuning with peft.
TUNED = {
    "tuned:lora": [(2, "AdamW")],
    "tuned:lora_all_linear": [(2, "AdamW"), (4, "SGD")],
    "tuned:lora_rank_stabilized": [(2, "Adam")],
    "tuned:lora_with_head": [(2, "AdamW")],
    "tuned:lora_checkpointed": [(2, "AdamW")],
    "tuned:dora": [(2, "AdamW"), (4, "SGD")],
}
ALL = {**CASES, **REGRESSIONS, **DRAWN, **TUNED}

# Models that PyTorch 1.13 has no function for. Precisions other than FP32 run with torch 2 alone: 1.13's autocast on the CPU
# covers few operators.
NEEDS_TORCH_2 = {"text:gpt_sdpa", "text:gpt_sdpa_dropout", *DRAWN, *TUNED}


def needs_transformers(model):
    return model.startswith(("drawn:hf__", "tuned:"))


def has_transformers():
    """Whether transformers is there, with timm, which one of its models wraps, and peft."""
    return all(importlib.util.find_spec(package) for package in ("transformers", "timm", "peft"))


def split():
    """(development, held out): two halves of the models, drawn once by the seed."""
    names = sorted(CASES)
    random.Random(SPLIT_SEED).shuffle(names)
    return sorted(names[::2]), sorted(names[1::2])


def cases_for(torch_version):
    """Every (model, batch size, optimizer) that this PyTorch can run."""
    old = int(torch_version.split(".")[0]) < 2
    return [(model, batch, optimizer) for model, rows in ALL.items() for batch, optimizer in rows
            if not (old and (model in NEEDS_TORCH_2 or "/fused" in optimizer or "@" in optimizer))
            and (has_transformers() or not needs_transformers(model))]


def parts(optimizer):
    """(name, implementation or "", precision)"""
    optimizer, _, precision = optimizer.partition("@")
    name, _, implementation = optimizer.partition("/")
    return name, implementation, precision or "FP32"


def in_precision(module, inputs, optimizer):
    """(module, inputs, what forward and loss run under)"""
    import torch
    precision = parts(optimizer)[2]
    if precision == "BF16":
        module = module.to(torch.bfloat16)
        inputs = tuple(i.to(torch.bfloat16) if isinstance(i, torch.Tensor) and i.is_floating_point() else i for i in inputs)
    mixed = precision == "BF16Mixed"
    return module, inputs, lambda: torch.autocast("cpu", dtype=torch.bfloat16) if mixed else contextlib.nullcontext()


def make_optimizer(optimizer, parameters):
    import torch
    name, kind, _ = parts(optimizer)
    options = {"lr": 1e-6, **({kind: True} if kind else {})}
    if name == "Momentum":
        return torch.optim.SGD(parameters, momentum=0.9, **options)
    return getattr(torch.optim, name)(parameters, **options)
