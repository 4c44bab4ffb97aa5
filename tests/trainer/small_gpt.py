"""A GPT of few operators that the tests of plimsoll.harmony train; the same training by PyTorch alone; and its plans.

Attention and feed-forward are layers of their own, so that none is a large part of the model. FUNCTION for plimsoll.harmony.profile:
small_gpt:example.
"""

import torch
from plimsoll import harmony
from torch import nn

WIDTH, BLOCKS, TOKENS, WORDS, SAMPLES = 64, 4, 8, 96, 4
LAYERS = 2 * BLOCKS + 2
CPU = torch.device("cpu")


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = (part.view(batch, tokens, 4, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).split(WIDTH, dim=2))
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        mixed = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(future, float("-inf")).softmax(dim=3) @ v
        return x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH)))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm(x)))))


def gpt():
    torch.manual_seed(0)
    blocks = [part for _ in range(BLOCKS) for part in (Attention(), FeedForward())]
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks, nn.Linear(WIDTH, WORDS))


def loss_fn(output, targets):
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def batch(step):
    """Four batches, over and over."""
    words = torch.randint(0, WORDS, (SAMPLES, TOKENS + 1), generator=torch.Generator().manual_seed(step % 4))
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


def example(batch_size):
    return (gpt(), *(part[:batch_size] for part in batch(0)), loss_fn)


def plan_of(mode, gpus, forward=1, backward=1, **more):
    return {"mode": mode, "gpus": gpus, "batchSize": SAMPLES, "layers": LAYERS, "microbatch": {"forward": forward, "backward": backward},
            "packs": {"forward": [0, 2, 4, 6, 8], "backward": list(range(LAYERS))}, **more}


def plain_losses(model, steps, microbatch, data=batch, layers=None, max_norm=None, max_value=None):
    """PyTorch alone: the microbatches one after the other, and one step of one optimizer."""
    optimizer, losses = adam(model.parameters()), []
    model.train()
    for step in range(steps):
        base = int(torch.randint(1 << 62, ()))
        inputs, targets = data(step)
        total = 0.0
        for begin in range(0, len(targets), microbatch):
            parts = [part[begin:begin + microbatch] for part in (inputs if isinstance(inputs, tuple) else (inputs,))]
            value = tuple(parts) if len(parts) > 1 else parts[0]
            for index, layer in enumerate(layers or model):
                with harmony.seeded(CPU, base, index, begin):
                    value = layer(*value) if isinstance(value, tuple) else layer(value)
            loss = loss_fn(value, targets[begin:begin + microbatch]) * (microbatch / len(targets))
            loss.backward()
            total += loss.item()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        if max_value is not None:
            nn.utils.clip_grad_value_(model.parameters(), max_value)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def losses_of(trainer, steps, first=0, data=batch):
    return [trainer.step(*data(step)) for step in range(first, first + steps)]


def bytes_of(layer):
    return sum(parameter.numel() * parameter.element_size() for parameter in layer.parameters())


WEIGHTS = [bytes_of(layer) for layer in gpt()]
ACTIVATIONS = [TOKENS * 8] + [TOKENS * WIDTH * 4] * (LAYERS - 1)  # of each layer's input, for one sample
TARGETS = TOKENS * 8
