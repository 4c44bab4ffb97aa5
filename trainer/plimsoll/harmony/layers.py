"""A model as a list of layers, each of which takes what the one before it returns.

Lists of modules and nn.Sequential are lists already. Of Hugging Face's transformers, GPT-2, Llama and BERT are cut between their
blocks; their modules stay the model's own, so that its state_dict is theirs.
"""

import torch
from torch import nn


class NoLayers(TypeError):
    """The model is not one that is known as a list of layers."""


def layers_of(model):
    """(module that owns the parameters, its layers). Raises NoLayers."""
    if isinstance(model, (list, tuple)) and model and all(isinstance(layer, nn.Module) for layer in model):
        return nn.ModuleList(model), list(model)
    if isinstance(model, nn.Sequential) and len(model):
        return model, list(model)
    cut = _CUTS.get(type(model).__name__)
    if cut is None:
        raise NoLayers(f"{type(model).__name__} is not known as a list of layers: give an nn.Sequential or a list of modules, each of "
                       f"which takes what the one before it returns, or one of {', '.join(sorted(_CUTS))}")
    return model, cut(model)


class _Embedding(nn.Module):
    """Ids of tokens, and with `positions` those of places, to vectors. An attention mask goes on from layer to layer beside them."""

    def __init__(self, tokens, positions=None, dropout=None):
        super().__init__()
        self.tokens, self.positions, self.dropout = tokens, positions, dropout or nn.Identity()

    def forward(self, ids, mask=None, *others):
        if others or not isinstance(ids, torch.Tensor) or ids.is_floating_point() or (mask is not None and mask.shape != ids.shape):
            raise TypeError("the inputs of a model of transformers are ids of tokens, or (ids, attention mask) of the same shape; other "
                            "arguments of its forward, as token_type_ids or labels, are not supported: what the loss needs are targets")
        vectors = self.tokens(ids)
        if self.positions is not None:
            vectors = vectors + self.positions(torch.arange(ids.shape[-1], device=ids.device))
        vectors = self.dropout(vectors)
        return vectors if mask is None else (vectors, mask)


class _Block(nn.Module):
    """A block of transformers, which returns a tensor, or a tuple that begins with it."""

    def __init__(self, block, causal):
        super().__init__()
        self.block, self.causal = block, causal

    def forward(self, hidden, mask=None):
        options = self.options(hidden)
        if mask is not None or self._looks_ahead():
            options["attention_mask"] = self._added(hidden.new_ones(hidden.shape[:2]) if mask is None else mask, hidden)
        result = self.block(hidden, **options)
        result = result[0] if isinstance(result, tuple) else result
        return result if mask is None else (result, mask)

    def options(self, hidden):
        return {}

    def _looks_ahead(self):
        """Whether the block's attention takes its causality from the mask that the model makes: transformers' eager one does; its fused
        ones are causal without a mask."""
        configs = [module.config for module in self.block.modules() if hasattr(module, "config")]
        return self.causal and any(getattr(config, "_attn_implementation", None) == "eager" for config in configs)

    def _added(self, mask, hidden):
        """What is added to the scores: (samples, 1, 1 or tokens, tokens), and nothing where tokens may look."""
        looks = mask.bool()[:, None, None, :]
        if self.causal:
            looks = looks & torch.ones(hidden.shape[1], hidden.shape[1], dtype=torch.bool, device=hidden.device).tril()
        return torch.zeros(looks.shape, dtype=hidden.dtype, device=hidden.device).masked_fill(~looks, torch.finfo(hidden.dtype).min)


class _RotaryBlock(_Block):
    """The same with rotary positions, which each computes again: they are small."""

    def __init__(self, block, rotary):
        super().__init__(block, causal=True)
        self.rotary = rotary

    def options(self, hidden):
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        return {"position_embeddings": self.rotary(hidden, positions), "position_ids": positions}


class _Head(nn.Sequential):
    def forward(self, hidden, mask=None):
        return super().forward(hidden)


def _gpt2(model):
    body = model.transformer
    blocks = [_Block(block, causal=True) for block in body.h]
    return [_Embedding(body.wte, body.wpe, body.drop), *blocks, _Head(body.ln_f, model.lm_head)]


def _llama(model):
    body = model.model
    blocks = [_RotaryBlock(block, body.rotary_emb) for block in body.layers]
    return [_Embedding(body.embed_tokens), *blocks, _Head(body.norm, model.lm_head)]


def _bert(model):
    body = model.bert
    blocks = [_Block(block, causal=False) for block in body.encoder.layer]
    return [_Embedding(body.embeddings), *blocks, _Head(model.cls)]


_CUTS = {"GPT2LMHeadModel": _gpt2, "LlamaForCausalLM": _llama, "BertForMaskedLM": _bert}
