"""Models with something unusual: in-place operations, graphs, sound, experts, mixed outputs, frozen parts."""
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class InPlace(nn.Module):
    """Writes into its own activations wherever autograd allows it."""

    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).mul_(0.5).add_(1.0).relu_()
        return x.clamp_(-5, 5)


def in_place(batch_size):
    wanted = torch.zeros(batch_size, 384)
    return InPlace(384, 6), (torch.randn(batch_size, 384),), lambda output: functional.smooth_l1_loss(output, wanted)


class GraphConvolution(nn.Module):
    """Messages along edges by index_select and index_add; the batch is the number of nodes."""

    def __init__(self, width, layers):
        super().__init__()
        self.message = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(layers)])
        self.update = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(layers)])

    def forward(self, x, source, target):
        for message, update in zip(self.message, self.update):
            sent = functional.relu(message(torch.cat([x.index_select(0, source), x.index_select(0, target)], dim=1)))
            received = torch.zeros_like(x).index_add(0, target, sent)
            x = functional.relu(update(torch.cat([x, received], dim=1)))
        return x


def graph(batch_size):
    edges = 8 * batch_size
    nodes = torch.arange(edges)
    inputs = (torch.randn(batch_size, 64), nodes % batch_size, (nodes * 7 + 1) % batch_size)
    labels = torch.zeros(batch_size, dtype=torch.int64)
    return GraphConvolution(64, 3), inputs, lambda output: functional.cross_entropy(output, labels)


class Sound(nn.Module):
    """One-dimensional convolutions, dilated and gated, with skip sums (WaveNet's shape)."""

    def __init__(self, width, layers):
        super().__init__()
        self.begin = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList([nn.Conv1d(width, 2 * width, 3, padding=2 ** i, dilation=2 ** i) for i in range(layers)])
        self.mix = nn.ModuleList([nn.Conv1d(width, 2 * width, 1) for _ in range(layers)])
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x):
        x, skips = self.begin(x), 0
        for gate, mix in zip(self.gates, self.mix):
            a, b = gate(x).chunk(2, dim=1)
            kept, skip = mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, dim=1)
            x, skips = x + kept, skips + skip
        return self.end(skips)


def wavenet(batch_size):
    labels = torch.zeros(batch_size, 1024, dtype=torch.int64)
    return Sound(32, 6), (torch.randn(batch_size, 1, 1024),), lambda output: functional.cross_entropy(output, labels)


class Experts(nn.Module):
    """Soft mixture: every expert sees every token, the gate weighs them (static shapes)."""

    def __init__(self, width, hidden, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * 0.02)

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        hidden = functional.gelu(torch.einsum("bd,edh->ebh", x, self.up))
        return torch.einsum("ebh,ehd,be->bd", hidden, self.down, weights)


def experts(batch_size):
    model = nn.Sequential(Experts(128, 256, 8), nn.LayerNorm(128), Experts(128, 256, 8), nn.Linear(128, 10))
    labels = torch.zeros(batch_size, dtype=torch.int64)
    return model, (torch.randn(batch_size, 128),), lambda output: functional.cross_entropy(output, labels)


def plain_mlp(batch_size):
    layers = []
    for _ in range(5):
        layers += [nn.Linear(512, 512), nn.GELU()]
    labels = torch.zeros(batch_size, 512)
    return nn.Sequential(*layers), (torch.randn(batch_size, 512),), lambda output: functional.mse_loss(output, labels)


def wide_mlp(batch_size):
    model = nn.Sequential(nn.Linear(64, 4096), nn.Dropout(0.5), nn.ReLU6(), nn.Linear(4096, 256), nn.Hardswish(),
                          nn.Linear(256, 32), nn.LogSoftmax(dim=1))
    labels = torch.zeros(batch_size, dtype=torch.int64)
    return model, (torch.randn(batch_size, 64),), lambda output: functional.nll_loss(output, labels)


class FrozenBackbone(nn.Module):
    """Fine-tuning: only the head is trained, the backbone has no gradients."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.backbone.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))

    def forward(self, images):
        return self.head(self.backbone(images))


def frozen(batch_size):
    labels = torch.zeros(batch_size, dtype=torch.int64)
    return FrozenBackbone(), (torch.randn(batch_size, 3, 32, 32),), lambda output: (
        functional.cross_entropy(output, labels))


class Square(torch.autograd.Function):
    """A function of the user's own: saves its input, and makes a temporary in backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Custom(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = Square.apply(layer(x)) + x
        return x.norm(dim=1)


def custom_function(batch_size):
    return Custom(256), (torch.randn(batch_size, 256),), lambda output: output.mean()


class Checkpointed(nn.Module):
    """torch.utils.checkpoint inside the model: blocks run again during backward."""

    def __init__(self, width, layers):
        super().__init__()
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)])
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def checkpointed(batch_size):
    labels = torch.zeros(batch_size, dtype=torch.int64)
    return Checkpointed(192, 6), (torch.randn(batch_size, 192),), lambda output: functional.cross_entropy(output, labels)


class Siamese(nn.Module):
    """One trunk used three times: its parameters gather three gradients."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 32, 5, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
            nn.AvgPool2d(3), nn.Flatten(), nn.Linear(64 * 9, 128))

    def forward(self, anchor, same, other):
        return self.trunk(anchor), self.trunk(same), self.trunk(other)


def siamese(batch_size):
    images = tuple(torch.randn(batch_size, 3, 48, 48) for _ in range(3))
    return Siamese(), images, lambda output: functional.triplet_margin_loss(*output)
