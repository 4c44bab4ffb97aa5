"""plimsoll.export without PyTorch's own autograd engine, and for CUDA without a card: both need PyTorch 2.4."""

import unittest

from export_test import (checkpointed, cnn, exporter, lstm, mlp, replayed_peak, residual, shared_gradient, sparse, torch, transformer,
                         user_function)
from plimsoll import iteration
from torch import nn
from torch.nn import functional as F


class BackwardWithoutTheEngine(unittest.TestCase):
    """Node by node, on the CPU, where the engine can be compared with."""

    def recorded(self, function, by_hand):
        original = iteration._backward
        iteration._backward = lambda loss, recorder, _: original(loss, recorder, by_hand)
        try:
            return exporter.export(function, 4, "cpu")["traces"][0]
        finally:
            iteration._backward = original

    def test_is_the_engines(self):
        for function in (mlp, cnn, residual, shared_gradient, transformer, checkpointed, user_function, sparse):
            with self.subTest(function.__name__):
                engines, ours = self.recorded(function, False), self.recorded(function, True)
                names = [[trace["operatorNames"][operator[0]] for operator in trace["operators"]] for trace in (engines, ours)]
                self.assertEqual(names[0], names[1])
                for batch in (4, 12):
                    self.assertEqual(replayed_peak(engines, batch), replayed_peak(ours, batch))


class ForCuda(unittest.TestCase):
    """Without a card (with one, the same operators run through PyTorch's own engine)."""

    def operators(self, function, **options):
        trace = exporter.export(function, 4, "cuda", **options)["traces"][0]
        self.assertEqual((trace["device"], trace["method"]), ("cuda", "fake"))
        return trace, [trace["operatorNames"][operator[0]] for operator in trace["operators"]]

    def test_kernels_are_cudas(self):
        self.assertIn("aten::native_dropout", self.operators(mlp)[1])
        self.assertIn("aten::cudnn_batch_norm", self.operators(cnn)[1])
        self.operators(lstm)
        self.operators(checkpointed)

    def test_attention(self):
        def attention(batch):
            class Model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.qkv = nn.Linear(64, 192)

                def forward(self, x):
                    q, k, v = (t.view(*x.shape[:2], 4, 16).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
                    return F.scaled_dot_product_attention(q, k, v, is_causal=True)

            return Model(), (torch.randn(batch, 24, 64),), lambda output: output.float().square().mean()

        self.assertIn("aten::_scaled_dot_product_efficient_attention", self.operators(attention)[1])
        self.assertIn("aten::_scaled_dot_product_flash_attention", self.operators(attention, precision="BF16Mixed")[1])
        self.assertIn("aten::_scaled_dot_product_flash_attention_backward", self.operators(attention, precision="BF16")[1])

    def test_what_cannot_be_pretended_is_read_from_the_cpu(self):
        trace = exporter.export(sparse, 4, "cuda")["traces"][0]
        self.assertEqual((trace["device"], trace["method"]), ("cuda", "derived"))
        self.assertTrue(any("as the CPU runs it" in note for note in trace["notes"]))
        self.assertNotIn("temporaries", trace)


if __name__ == "__main__":
    unittest.main()
