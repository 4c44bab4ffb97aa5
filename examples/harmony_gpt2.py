"""GPT-2 whose training takes three times the memory of its devices together, by a swap plan (docs/harmony.md).

Without GPUs the devices are virtual ones on the CPU, whose memory is counted and limited:

    PYTHONPATH=trainer python3 examples/harmony_gpt2.py
"""

import torch
import transformers
from plimsoll import harmony

SAMPLES, TOKENS, LAYERS = 8, 64, 12
PLAN = {"mode": "vPP", "gpus": 2, "batchSize": SAMPLES, "layers": LAYERS + 2, "microbatch": {"forward": 2, "backward": 2},
        "packs": {"forward": [0, 2, 4, 6, 8, 10], "backward": list(range(LAYERS + 2))}}


def next_token_loss(logits, words):
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def main():
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=128, n_head=4, n_layer=LAYERS, vocab_size=1000, n_positions=TOKENS))
    states = 16 * sum(parameter.numel() for parameter in model.parameters())  # with gradients and Adam's state, in fp32
    plan = dict(PLAN, deviceBytes=states // 3 // PLAN["gpus"])
    words = torch.randint(0, 1000, (SAMPLES, TOKENS))
    with harmony.Trainer(model, next_token_loss, lambda parameters: torch.optim.AdamW(parameters, lr=1e-3), plan) as trainer:
        for step in range(10):
            print(f"step {step}: loss {trainer.step(words, words):.3f}")
        for device in trainer.devices:
            print(f"device {device.index}: at most {device.peak_bytes / 2**20:.1f} of {device.budget_bytes / 2**20:.1f} MiB")
        swapped = trainer.moved().swapped() / 2**20
        print(f"weights, gradients and Adam's state: {states / 2**20:.1f} MiB; swapped in 10 steps: {swapped:.0f} MiB")


if __name__ == "__main__":
    main()
