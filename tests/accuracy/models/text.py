"""Transformers and recurrent networks on token sequences."""
import math

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width, heads, dropout, kind):
        super().__init__()
        self.heads, self.kind, self.rate = heads, kind, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        if self.kind == "sdpa":
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.rate)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // self.heads)
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            y = self.dropout(scores.masked_fill(later, float("-inf")).softmax(-1)) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout, kind):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout, kind)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads, tied, dropout=0.0, kind="eager"):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*[Block(width, heads, dropout, kind) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(positions))
        return self.head(self.norm(self.blocks(x)))


def next_token(model, batch_size, length):
    tokens = torch.zeros(batch_size, length, dtype=torch.int64)
    targets = torch.zeros(batch_size, length, dtype=torch.int64)
    return model, (tokens,), lambda logits: functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def gpt_tied(batch_size):
    return next_token(Gpt(4000, 128, 192, 4, 6, tied=True), batch_size, 128)


def gpt_untied(batch_size):
    return next_token(Gpt(2000, 96, 256, 3, 8, tied=False, dropout=0.1), batch_size, 96)


def gpt_long(batch_size):
    return next_token(Gpt(512, 384, 128, 3, 4, tied=True, dropout=0.1), batch_size, 384)


def gpt_sdpa(batch_size):
    return next_token(Gpt(1000, 256, 192, 4, 6, tied=True, kind="sdpa"), batch_size, 256)


def gpt_sdpa_dropout(batch_size):
    return next_token(Gpt(1000, 128, 192, 4, 6, tied=False, dropout=0.1, kind="sdpa"), batch_size, 128)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class LlamaBlock(nn.Module):
    """Grouped-query attention with rotary positions, and a gated MLP."""

    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def split(self, x, heads):
        return x.view(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)

    @staticmethod
    def rotate(x, cosine, sine):
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-second, first), dim=-1) * sine

    def forward(self, x, cosine, sine, mask):
        y = self.norm1(x)
        q = self.rotate(self.split(self.q(y), self.heads), cosine, sine)
        k = self.rotate(self.split(self.k(y), self.kv_heads), cosine, sine)
        k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
        v = self.split(self.v(y), self.kv_heads).repeat_interleave(self.heads // self.kv_heads, dim=1)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.size) + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocabulary=2000, width=256, layers=4, heads=8, kv_heads=2, hidden=688, length=128):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([LlamaBlock(width, heads, kv_heads, hidden) for _ in range(layers)])
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        angles = torch.arange(length)[:, None] * 10000 ** (-torch.arange(0, width // heads, 2) / (width // heads))
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine, self.mask)
        return self.head(self.norm(x))


def llama(batch_size):
    return next_token(Llama(), batch_size, 128)


class Encoder(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads, classes, dropout, norm_first):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.head(self.encoder(self.tokens(tokens) + self.positions)[:, 0])


def sort_tokens(model, batch_size, length):
    labels = torch.zeros(batch_size, dtype=torch.int64)
    tokens = torch.zeros(batch_size, length, dtype=torch.int64)
    return model, (tokens,), lambda output: functional.cross_entropy(output, labels)


def encoder(batch_size):
    return sort_tokens(Encoder(4000, 64, 192, 4, 6, 10, 0.1, norm_first=False), batch_size, 64)


def encoder_norm_first(batch_size):
    return sort_tokens(Encoder(1000, 128, 128, 6, 4, 2, 0.0, norm_first=True), batch_size, 128)


class Translator(nn.Module):
    """nn.Transformer with one embedding for source, target and head."""

    def __init__(self, vocabulary, width, heads, layers, dropout):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.transformer = nn.Transformer(width, heads, layers, layers, 4 * width, dropout, batch_first=True)
        self.width = width

    def forward(self, source, target):
        length = target.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        x = self.transformer(self.tokens(source) * math.sqrt(self.width), self.tokens(target) * math.sqrt(self.width),
                             tgt_mask=later)
        return functional.linear(x, self.tokens.weight)


def translate(model, batch_size, source_length, target_length):
    source = torch.zeros(batch_size, source_length, dtype=torch.int64)
    target = torch.zeros(batch_size, target_length, dtype=torch.int64)
    wanted = torch.zeros(batch_size, target_length, dtype=torch.int64)
    return model, (source, target), lambda logits: functional.cross_entropy(
        logits.flatten(0, 1), wanted.flatten(), label_smoothing=0.1)


def transformer(batch_size):
    return translate(Translator(3000, 128, 4, 3, 0.1), batch_size, 48, 40)


class CrossBlock(nn.Module):
    def __init__(self, width, heads, cross):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3 if cross else 2)])
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross = nn.MultiheadAttention(width, heads, batch_first=True) if cross else None
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x, memory=None, mask=None):
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        if self.cross is not None:
            x = x + self.cross(self.norms[2](x), memory, memory, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


class EncoderDecoder(nn.Module):
    """Pre-norm, by hand around nn.MultiheadAttention; separate embeddings and head."""

    def __init__(self, vocabulary, width, heads, layers):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleList([CrossBlock(width, heads, False) for _ in range(layers)])
        self.decoder = nn.ModuleList([CrossBlock(width, heads, True) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source, target):
        memory, x = self.source(source), self.target(target)
        for block in self.encoder:
            memory = block(memory)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device).triu(1)
        for block in self.decoder:
            x = block(x, memory, mask)
        return self.head(x)


def encoder_decoder(batch_size):
    return translate(EncoderDecoder(1500, 160, 4, 3), batch_size, 64, 48)


class Recurrent(nn.Module):
    def __init__(self, kind, vocabulary, width, hidden, layers, **options):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.recurrent = getattr(nn, kind)(width, hidden, layers, batch_first=True, **options)
        self.head = nn.Linear(hidden * (2 if options.get("bidirectional") else 1), vocabulary)

    def forward(self, tokens):
        return self.head(self.recurrent(self.tokens(tokens))[0])


def lstm(batch_size):
    return next_token(Recurrent("LSTM", 1000, 128, 256, 2), batch_size, 48)


def lstm_bidirectional(batch_size):
    return next_token(Recurrent("LSTM", 500, 96, 128, 1, bidirectional=True), batch_size, 64)


def gru(batch_size):
    return next_token(Recurrent("GRU", 1000, 128, 192, 2, dropout=0.2), batch_size, 48)


def rnn_tanh(batch_size):
    return next_token(Recurrent("RNN", 800, 128, 256, 2), batch_size, 64)
