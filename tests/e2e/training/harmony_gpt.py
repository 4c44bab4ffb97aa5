"""A small GPT that trains by a swap plan, on devices whose memory is less than the training takes (docs/harmony.md).

    PLIMSOLL_SWAP_PLAN=plan.json python3 -m plimsoll.signposts harmony_gpt.py [--steps 8] [--checkpoint FILE] [--stop-after N]
    python3 -m plimsoll.harmony.profile harmony_gpt:example --batch-size 2 -o profile.json

Prints each loss. With --checkpoint it saves its state after each step, and goes on from it where the file is there; --stop-after ends
it early, as a preemption would. The loss must fall over all steps, or it exits with 1.
"""

import argparse
import os
import sys

import torch
from plimsoll import harmony, signposts
from torch import nn

WIDTH = int(os.environ.get("HARMONY_GPT_WIDTH", "64"))
BLOCKS, TOKENS, WORDS = 6, 16, 96


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        samples, tokens, _ = x.shape
        q, k, v = (part.view(samples, tokens, 4, -1).transpose(1, 2) for part in self.qkv(self.before(x)).split(WIDTH, dim=2))
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        mixed = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(future, float("-inf")).softmax(dim=3) @ v
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(samples, tokens, WIDTH)))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.after(x)))))


def loss_fn(output, targets):
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3)


def example(batch_size):
    """(model, inputs, targets, loss_fn), as plimsoll.harmony.profile wants them: each word follows from the one before it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, WORDS))
    words = (torch.arange(batch_size)[:, None] * 7 + torch.arange(TOKENS + 1)) % WORDS
    return model, words[:, :-1].contiguous(), words[:, 1:].contiguous(), loss_fn


def exported(batch_size):
    """As plimsoll.export wants it."""
    model, inputs, targets, _ = example(batch_size)
    return model, (inputs,), lambda output: loss_fn(output, targets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--checkpoint")
    parser.add_argument("--stop-after", type=int, help="a step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with signposts.report():
        with harmony.Trainer(example(1)[0], loss_fn, adam) as trainer:
            _, inputs, targets, _ = example(trainer.plan.batch_size)
            losses = []
            if options.checkpoint and os.path.exists(options.checkpoint):
                state = torch.load(options.checkpoint)
                trainer.load_state_dict(state["trainer"])
                losses = state["losses"]
                print(f"goes on after step {trainer.steps}", flush=True)
            while trainer.steps < options.steps:
                losses.append(trainer.step(inputs, targets))
                print(f"step {trainer.steps}: loss {losses[-1]:.6f}", flush=True)
                if options.checkpoint:
                    torch.save({"trainer": trainer.state_dict(), "losses": losses}, options.checkpoint + ".new")
                    os.replace(options.checkpoint + ".new", options.checkpoint)
                if trainer.steps == options.stop_after:
                    return 0
            for device in trainer.devices:
                print(f"device {device.index}: at most {device.peak_bytes} of {device.budget_bytes} bytes")
            print(f"moved: {dict(trainer.moved()._asdict())}")
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
