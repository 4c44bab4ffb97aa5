"""The optimizer's step on the host: fused where PyTorch has one and the user has chosen nothing. PyTorch 2.4 and newer."""

import unittest

from needs_torch import torch
from plimsoll import harmony
from plimsoll.harmony.host_optimizer import with_fused_step
from small_gpt import gpt, loss_fn, losses_of, plan_of


def stepped(optimizer_of, steps=5):
    torch.manual_seed(0)
    parameter = torch.randn(1000, requires_grad=True)
    optimizer = optimizer_of([parameter])
    for step in range(steps):
        parameter.grad = torch.sin(torch.arange(1000.0) + step)
        optimizer.step()
    return parameter.detach(), optimizer


class FusedStep(unittest.TestCase):
    def test_is_taken_where_nothing_was_chosen(self):
        for make in (lambda p: torch.optim.AdamW(p, lr=0.01), lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
                     lambda p: torch.optim.Adagrad(p, lr=0.01)):
            plain, _ = stepped(make)
            fused, optimizer = stepped(lambda p, make=make: with_fused_step(make(p)))
            self.assertIs(optimizer.param_groups[0]["fused"], True)
            torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)

    def test_leaves_what_was_chosen(self):
        for chosen in ({"fused": False}, {"foreach": True}, {"differentiable": True}):
            optimizer = with_fused_step(torch.optim.AdamW([torch.zeros(2, requires_grad=True)], **chosen))
            self.assertIsNot(optimizer.param_groups[0]["fused"], True, chosen)

    def test_leaves_an_optimizer_that_has_none(self):
        optimizer = with_fused_step(torch.optim.RMSprop([torch.zeros(2, requires_grad=True)]))
        self.assertNotIn("fused", optimizer.param_groups[0])

    def test_trains_as_the_step_without(self):
        losses = []
        for fused in (None, False):
            def adamw(parameters, fused=fused):
                return torch.optim.AdamW(parameters, lr=1e-3, fused=fused)

            with harmony.Trainer(gpt(), loss_fn, adamw, plan_of("vPP", 2)) as trainer:
                losses.append(losses_of(trainer, 5))
                self.assertIs(trainer.optimizers[1].param_groups[0]["fused"], fused is None)
        torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
