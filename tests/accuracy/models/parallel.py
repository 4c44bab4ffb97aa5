"""The models of the parallel runs; parallel/measure.py splits them over processes.

mlp        six Linear(512, 512) + GELU; loss: mean squared error
mlp_wide   four residual blocks 512 -> 2048 -> GELU -> 512; loss: mean squared error
gpt        4 pre-norm blocks of width 256, 8 heads (attention by hand, q, k, v apart, no dropout), MLP 1024 with GELU,
           64 tokens, vocabulary 2000, learned positions, head not tied; loss: cross entropy
gpt_deep   the same with 8 blocks: as many as there are ranks
dlrm       the dense part: bottom 13-512-256-128 and top 479-1024-1024-512-256-1 with ReLU between (and after the bottom),
           dot interaction of 27 features of width 128 (upper triangle); the pooled embeddings are an input that takes a
           gradient; loss: binary cross entropy with logits
llama      transformers' LlamaForCausalLM by LLAMA, a config.json: wide layers and few tokens, so that parameters decide
Batch sizes are per process.
"""
import math

import torch
from torch import nn
from torch.nn import functional

from recommend import perceptron


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return functional.gelu(self.linear(x))


class WideLayer(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(x)))


class Blocks(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def squares(model, batch_size):
    wanted = torch.zeros(batch_size, 512)
    return model, (torch.randn(batch_size, 512),), lambda output: functional.mse_loss(output, wanted)


def mlp(batch_size):
    return squares(Blocks([Layer(512) for _ in range(6)]), batch_size)


def mlp_wide(batch_size):
    return squares(Blocks([WideLayer(512, 2048) for _ in range(4)]), batch_size)


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.size = width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (linear(y).unflatten(-1, (-1, self.size)).transpose(1, 2) for linear in (self.q, self.k, self.v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        length = x.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        y = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A pipeline stage has some of the blocks, the first one the embeddings and the last one the head."""

    def __init__(self, vocabulary=2000, length=64, width=256, layers=4, heads=8, first=True, last=True):
        super().__init__()
        self.first, self.last = first, last
        if first:
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList([GptBlock(width, heads) for _ in range(layers)])
        if last:
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        if self.first:
            x = self.tokens(x) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.last else x


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 512,
         "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8,
         "max_position_embeddings": 512, "tie_word_embeddings": False}
LLAMA_TOKENS = {"llama": 16, "llama_long": 512}  # by model: the second's stages exchange as much as they compute


class LlamaStage(nn.Module):
    """Layers [begin, end) of the model, the embedding before the first and the norm and head after the last."""

    def __init__(self, begin=0, end=LLAMA["num_hidden_layers"]):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM
        config = LlamaConfig(**LLAMA, attn_implementation="sdpa")
        whole = LlamaForCausalLM(config)
        self.tokens = whole.model.embed_tokens if begin == 0 else None
        self.blocks = nn.ModuleList(whole.model.layers[begin:end])
        self.rotary = whole.model.rotary_emb
        last = end == config.num_hidden_layers
        self.norm, self.head = (whole.model.norm, whole.lm_head) if last else (None, None)

    def forward(self, x):
        if self.tokens is not None:
            x = self.tokens(x)
        places = self.rotary(x, torch.arange(x.shape[1]).unsqueeze(0))
        for block in self.blocks:
            x = block(x, attention_mask=None, position_embeddings=places)
        return x if self.head is None else self.head(self.norm(x))


def next_token_loss(output, targets):
    return functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def gpt(batch_size, layers=4):
    tokens, targets = (torch.zeros(batch_size, 64, dtype=torch.int64) for _ in range(2))
    return Gpt(layers=layers), (tokens,), lambda output: next_token_loss(output, targets)


def gpt_deep(batch_size):
    return gpt(batch_size, layers=8)


class DlrmDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = perceptron([13, 512, 256, 128], last_relu=True)
        self.register_buffer("pairs", torch.triu_indices(27, 27, offset=1))
        self.top = perceptron([128 + 351, 1024, 1024, 512, 256, 1], last_relu=False)

    def forward(self, dense, pooled):
        x = self.bottom(dense)
        features = torch.cat([x.unsqueeze(1), pooled], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1))


def dlrm(batch_size):
    inputs = (torch.randn(batch_size, 13), torch.randn(batch_size, 26, 128, requires_grad=True))
    clicks = torch.zeros(batch_size, 1)
    return DlrmDense(), inputs, lambda output: functional.binary_cross_entropy_with_logits(output, clicks)
