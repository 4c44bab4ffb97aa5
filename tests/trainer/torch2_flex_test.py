"""flex_attention: unfused against real runs on the CPU, fused against its equations."""

import sys
import unittest

from export_test import exporter, real_peak, replayed_peak, torch
from torch import nn
from torch.nn.attention import flex_attention as flex

HEADS, WIDTH, TOKENS = 4, 64, 128
COMPILED = torch.compile(flex.flex_attention)


def causal(batch, head, query, key):
    return query >= key


def distances(score, batch, head, query, key):
    return score * 2 - (query - key) * 0.1


class Attention(nn.Module):
    def __init__(self, attention, block_mask, score_mod):
        super().__init__()
        self.qkv, self.attention, self.mask, self.score_mod = nn.Linear(WIDTH, 3 * WIDTH), attention, block_mask, score_mod

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mask = flex.create_block_mask(causal, None, None, TOKENS, TOKENS, device=x.device) if self.mask else None
        return self.attention(q, k, v, block_mask=mask, score_mod=self.score_mod).transpose(1, 2).flatten(2)


def function(attention, mask=False, score_mod=None):
    def made(batch):
        return Attention(attention, mask, score_mod), (torch.randn(batch, TOKENS, WIDTH),), lambda output: output.square().mean()

    return made


class FlexAttention(unittest.TestCase):
    def test_unfused_is_as_real(self):
        self.addCleanup(setattr, flex, "_validate_device", flex._validate_device)
        flex._validate_device = lambda *args: None  # it refuses to train on the CPU, where its functions do run
        for options in ({}, {"mask": True}, {"mask": True, "score_mod": distances}):
            with self.subTest(str(options)):
                model = function(flex.flex_attention, **options)
                trace = exporter.export(model, 4, "cpu")["traces"][0]
                real = real_peak(model, 4)
                self.assertLessEqual(abs(replayed_peak(trace, 4) - real), 0.02 * real)

    def test_compiled_keeps_no_scores(self):
        trace = exporter.export(function(COMPILED, True, distances), 4, "cuda")["traces"][0]
        self.assertEqual((trace["device"], trace["method"]), ("cuda", "fake"))
        scores = 4 * HEADS * TOKENS * TOKENS * 4
        self.assertLess(replayed_peak(trace, 4), 2 * scores)
        # Queries, keys, values and the result, and a float a row and head.
        saved = {trace["tensors"][row[0]][0] for row in trace["saved"]}
        shapes = sorted(str(trace["layouts"][row[1]]["shape"]) for row in trace["tensors"] if row[0] in saved)
        self.assertTrue(any(f"{HEADS}, {TOKENS}]" in shape for shape in shapes), shapes)

    def test_both_devices_where_the_cpu_cannot_train_it(self):
        graph = exporter.export(function(flex.flex_attention), 4, "both")
        self.assertEqual([trace["device"] for trace in graph["traces"]], ["cuda"])


if __name__ == "__main__":
    sys.exit(unittest.main())
