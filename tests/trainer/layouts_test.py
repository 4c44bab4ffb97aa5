"""Strides of results without memory against those of real kernels."""

import unittest

from export_test import torch
from plimsoll import layouts
from plimsoll.worlds import _fake_mode

aten = torch.ops.aten
SHAPE = (2, 8, 16)


def contiguous():
    return torch.full(SHAPE, 0.4)


def transposed():
    return torch.full((SHAPE[0], SHAPE[2], SHAPE[1]), 0.3).transpose(1, 2)


def vectors(count):
    return [torch.ones(SHAPE[1]) for _ in range(count)]


def means():
    return [torch.ones(SHAPE[0], SHAPE[1], 1) for _ in range(2)]


# operator: the call with two operands of the same shape
CALLS = {
    "_log_softmax_backward_data": lambda a, b: aten._log_softmax_backward_data(a, b, 1, torch.float32),
    "binary_cross_entropy_backward": lambda a, b: aten.binary_cross_entropy_backward(a, b, b),
    "copysign": aten.copysign,
    "elu_backward": lambda a, b: aten.elu_backward(a, 1.0, 1.0, 1.0, False, b),
    "floor_divide": aten.floor_divide,
    "hardsigmoid_backward": aten.hardsigmoid_backward,
    "hardswish_backward": aten.hardswish_backward,
    "hardtanh_backward": lambda a, b: aten.hardtanh_backward(a, b, 0.0, 1.0),
    "huber_loss_backward": lambda a, b: aten.huber_loss_backward(a, b, b, 0, 1.0),
    "log_sigmoid_forward": lambda a, b: aten.log_sigmoid_forward(b),
    "logit_backward": aten.logit_backward,
    "mse_loss_backward": lambda a, b: aten.mse_loss_backward(a, b, b, 0),
    "native_batch_norm": lambda a, b: aten.native_batch_norm(b, *vectors(4), True, 0.1, 1e-5),
    "native_batch_norm_backward": lambda a, b: aten.native_batch_norm_backward(a, b, *vectors(5), True, 1e-5, [True] * 3),
    "native_layer_norm_backward": lambda a, b: aten.native_layer_norm_backward(
        a, b, [SHAPE[2]], *means(), torch.ones(SHAPE[2]), torch.ones(SHAPE[2]), [True] * 3),
    "smooth_l1_loss_backward": lambda a, b: aten.smooth_l1_loss_backward(a, b, b, 0, 1.0),
    "softplus_backward": lambda a, b: aten.softplus_backward(a, b, 1.0, 20.0),
    "xlogy": aten.xlogy,
}


class Strides(unittest.TestCase):
    def test_a_call_for_each_operator(self):
        self.assertEqual(set(CALLS), set(layouts.OPERATORS))

    def test_are_those_of_the_kernels(self):
        for name, call in CALLS.items():
            if name == "huber_loss_backward" and torch.__version__.startswith("1."):
                continue  # FakeTensorMode of 1.13 cannot run it
            for first in (contiguous, transposed):
                for second in (contiguous, transposed):
                    with self.subTest(name, first=first.__name__, second=second.__name__):
                        real = call(first(), second())
                        with _fake_mode(), _Corrected():
                            without_memory = call(first(), second())
                        real, without_memory = (r[0] if isinstance(r, tuple) else r for r in (real, without_memory))
                        self.assertEqual(without_memory.stride(), real.stride())

    def test_channels_last_stays_in_batch_norm(self):
        def call():
            return aten.native_batch_norm(torch.ones(2, 4, 4, 8).permute(0, 3, 1, 2), *vectors(4), True, 0.1, 1e-5)[0]

        with _fake_mode(), _Corrected():
            without_memory = call()
        self.assertEqual(without_memory.stride(), call().stride())


class _Corrected(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return layouts.corrected(operator, args, operator(*args, **(kwargs or {})))


if __name__ == "__main__":
    unittest.main()
