"""Operations whose memory linkedin/Liger-Kernel publishes for PyTorch and transformers (benchmark/data, BSD-2-Clause).

`row_N` is row N of ../liger_memory.csv: what its benchmark runs in one round (benchmark/scripts/benchmark_*.py of the row's
version). Tensors that are there all the time are parameters here: gradients stay until the next round adds to them.
"""
import csv
import json
import pathlib

import torch
from torch import nn
from torch.nn import functional

ROWS = list(csv.DictReader((pathlib.Path(__file__).parent.parent / "liger_memory.csv").open()))


class Given(torch.autograd.Function):
    """A loss whose backward passes these gradients to the results; none: torch.randn_like(result), as long as backward runs."""

    @staticmethod
    def forward(ctx, round_, gradients, *results):
        ctx.round, ctx.gradients, ctx.results = round_, gradients, results
        round_.saved.extend(results)
        return results[0].new_zeros(())

    @staticmethod
    def backward(ctx, _):
        gradients = ctx.gradients or [ctx.round.keep(torch.randn_like(each)) for each in ctx.results]
        return (None, None, *gradients)


class Round(nn.Module):
    """function(round), which has tensors and layers as attributes."""

    def __init__(self, function, retains, **attributes):
        super().__init__()
        self.function, self.retains, self.saved = function, retains, []
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def keep(self, tensor):
        self.saved.append(tensor)
        return tensor

    def forward(self, _):
        if not self.retains:
            return self.function(self)
        # backward(retain_graph=True): what autograd has saved lives until the round's result goes.
        with torch.autograd.graph.saved_tensors_hooks(self.keep, lambda tensor: tensor):
            return self.function(self)


def trained(*shape, dtype=torch.float32):
    return nn.Parameter(torch.empty(*shape, dtype=dtype))


def dtype_of(config):
    return getattr(torch, config["dtype"].removeprefix("torch."))


def cross_entropy(x, config):
    rows = config["B"] * config["T"]
    return Round(lambda of: functional.cross_entropy(of.x, of.target), False, x=trained(rows, x),
                 target=torch.zeros(rows, dtype=torch.int64))


def kl_div(x, config):
    # Its input is a result of log_softmax, which alone requires a gradient: one that backward passes on.
    rows = config["B"] * config["T"]
    return Round(lambda of: functional.kl_div(of.x.log_softmax(-1), of.target, reduction="batchmean"), True, x=trained(rows, x),
                 target=torch.empty(rows, x))


def jsd(x, config):
    def loss(of):
        log_q, log_p = of.x.log_softmax(-1), of.target
        mean = torch.lerp(torch.exp(log_p), torch.exp(log_q), 0.5)
        divergence = nn.KLDivLoss(reduction="batchmean", log_target=True)
        return 0.5 * divergence(torch.log(mean), log_p) + 0.5 * divergence(torch.log(mean), log_q)

    rows = config["B"] * config["T"]
    return Round(loss, True, x=trained(rows, x), target=torch.empty(rows, x))


def tvd(x, config):
    rows = config["B"] * config["T"]
    return Round(lambda of: torch.sum(torch.abs(of.x.softmax(-1) - of.target) / 2.0) / of.x.size(0), True, x=trained(rows, x),
                 target=torch.empty(rows, x))


def relu_squared(x, config):
    def run(of):
        return Given.apply(of, None, torch.square(functional.relu(of.x)))

    return Round(run, True, x=trained(x, dtype=dtype_of(config)))


def megatron_swiglu(x, config):
    def run(of):
        gate, up = torch.chunk(of.x, 2, -1)
        of.keep(result := functional.silu(gate) * up)
        return result.sum()

    return Round(run, False, x=trained(config["S"], config["B"], 2 * x, dtype=torch.bfloat16))


def megatron_rms_norm(x, config):
    def run(of):
        of.keep(result := of.layer(of.x))
        return result.sum()

    return Round(run, False, x=trained(config["S"], config["B"], x, dtype=torch.bfloat16),
                 layer=nn.RMSNorm(x, eps=1e-6).to(torch.bfloat16))


def of_one(make_layer, shape, dtype):
    """A layer's result and a gradient that is there."""
    gradient = torch.empty(shape, dtype=dtype)
    return Round(lambda of: Given.apply(of, [of.gradient], of.layer(of.x)), True, x=trained(*shape, dtype=dtype), gradient=gradient,
                 layer=make_layer())


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = trained(width)

    def forward(self, x):
        before = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(before)


class AddRMSNorm(RMSNorm):
    def forward(self, x, residual):
        before = x.dtype
        x = x.to(torch.float32) + residual.to(torch.float32)
        kept = x
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(before), kept.to(before)


def rms_norm(x, config):
    return of_one(lambda: RMSNorm(x), (config["M"], x), torch.float32)  # the row says bfloat16: see liger_rows.py


def layer_norm(x, config):
    return of_one(lambda: nn.LayerNorm(x), (config["M"], x), dtype_of(config))


def group_norm(x, config):
    return of_one(lambda: nn.GroupNorm(x // config["channels_per_group"], x), (config["M"], x, config["H"]), dtype_of(config))


def fused_add_rms_norm(x, config):
    shape = config["M"], x
    return Round(lambda of: Given.apply(of, [of.first, of.second], *of.layer(of.x, of.residual)), False, x=trained(*shape),
                 residual=trained(*shape), first=torch.empty(shape), second=torch.empty(shape), layer=AddRMSNorm(x))


def perceptron(samples, tokens, config):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    layer = LlamaMLP(LlamaConfig(hidden_size=config["hidden_size"], intermediate_size=config["intermediate_size"],
                                 hidden_act=config["hidden_act"])).to(dtype_of(config))
    x = trained(samples, tokens, config["hidden_size"], dtype=dtype_of(config))
    return Round(lambda of: Given.apply(of, None, of.layer(of.x)), True, x=x, layer=layer)


def swiglu(x, config):
    return perceptron(config["B"], x, config)


def geglu(x, config):
    return perceptron(config["bsz"], x, config)


def rope(x, config):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    width, tokens = config.get("hidden_size", x), config.get("seq_len", x)
    head = width // config["num_q_heads"]
    dtype = dtype_of(config)
    shapes = [(1, tokens, heads, head) for heads in (config["num_q_heads"], config["num_kv_heads"])]

    def turn(of):
        return Given.apply(of, [of.dq, of.dk], *apply_rotary_pos_emb(of.q, of.k, of.cos, of.sin))

    q, k = (nn.Parameter(torch.empty(shape, dtype=dtype).transpose(1, 2)) for shape in shapes)
    dq, dk = (torch.empty(shape, dtype=dtype).transpose(1, 2) for shape in shapes)
    return Round(turn, True, q=q, k=k, dq=dq, dk=dk, cos=torch.empty(1, tokens, head, dtype=dtype),
                 sin=torch.empty(1, tokens, head, dtype=dtype))


def fused_linear_cross_entropy(x, config):
    dtype = dtype_of(config)
    weight = config["V"], config["H"]
    # The benchmark has Liger's layer beside it.
    return Round(lambda of: functional.cross_entropy(functional.linear(of.x, of.weight), of.target), False,
                 x=trained(x, config["H"], dtype=dtype), weight=trained(*weight, dtype=dtype), other=torch.empty(weight, dtype=dtype),
                 target=torch.zeros(x, dtype=torch.int64))


BUILDERS = {each.__name__: each for each in (cross_entropy, kl_div, jsd, tvd, rms_norm, layer_norm, group_norm, fused_add_rms_norm,
                                             relu_squared, swiglu, geglu, rope, fused_linear_cross_entropy, megatron_swiglu,
                                             megatron_rms_norm)}


def __getattr__(name):
    if not name.startswith("row_"):
        raise AttributeError(name)
    row = ROWS[int(name.removeprefix("row_"))]
    return lambda _: (BUILDERS[row["kernel"]](int(row["x_value"]), json.loads(row["config"])), (torch.zeros(1),), lambda loss: loss)
