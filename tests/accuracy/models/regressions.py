"""Models that were once estimated wrong: gradients that several branches share, and sums along a deep stack."""
import torch
from torch import nn
from torch.nn import functional


class GatedUnit(nn.Module):
    """A layer of WaveNet (arXiv 1609.03499, figure 4): gate, residual sum, skip connection."""

    def __init__(self, channels, skips, dilation):
        super().__init__()
        self.filter = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.gate = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.residual, self.skip = nn.Conv1d(channels, channels, 1), nn.Conv1d(channels, skips, 1)
        self.reach = dilation

    def forward(self, x):
        past = functional.pad(x, (self.reach, 0))
        unit = torch.tanh(self.filter(past)) * torch.sigmoid(self.gate(past))
        return x + self.residual(unit), self.skip(unit)


class WaveNet(nn.Module):
    def __init__(self, channels, skips, layers):
        super().__init__()
        self.start = nn.Conv1d(1, channels, 1)
        self.units = nn.ModuleList([GatedUnit(channels, skips, 2 ** (index % 5)) for index in range(layers)])
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(skips, skips, 1), nn.ReLU(), nn.Conv1d(skips, 64, 1))

    def forward(self, x):
        x, total = self.start(x), 0
        for unit in self.units:
            x, skip = unit(x)
            total = total + skip
        return self.end(total)


def wavenet(batch_size):
    labels = torch.zeros(batch_size, 512, dtype=torch.int64)
    return WaveNet(24, 32, 10), (torch.randn(batch_size, 1, 512),), lambda output: functional.cross_entropy(output, labels)


def convolutions(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class AdditiveUNet(nn.Module):
    """Skips are added, as in LinkNet (arXiv 1707.03718); concatenated ones are vision:unet."""

    def __init__(self, width, depth):
        super().__init__()
        widths = [width * 2**level for level in range(depth)]
        self.down = nn.ModuleList([convolutions(a, b) for a, b in zip([3] + widths, widths)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths, widths[1:])])
        self.join = nn.ModuleList([convolutions(a, a) for a in widths[:-1]])
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x):
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else functional.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up, join in zip(reversed(self.up), reversed(self.join)):
            x = join(up(x) + skips.pop())
        return self.head(x)


def unet_additive(batch_size):
    labels = torch.zeros(batch_size, 64, 64, dtype=torch.int64)
    return AdditiveUNet(16, 4), (torch.randn(batch_size, 3, 64, 64),), lambda output: functional.cross_entropy(output, labels)


class SharedGradient(nn.Module):
    """RepViT's token mixer in training: one sum whose gradient goes to three branches."""

    def __init__(self, channels):
        super().__init__()
        self.pointwise, self.depthwise = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.inner, self.outer = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.up, self.down = nn.Conv2d(channels, 2 * channels, 1), nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x):
        x = self.outer((self.inner(self.pointwise(x)) + self.depthwise(x)) + x)
        return x + self.down(functional.gelu(self.up(x)))


def shared_gradient(batch_size):
    model = nn.Sequential(nn.Conv2d(3, 24, 3, stride=2, padding=1), *(SharedGradient(24) for _ in range(6)), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(24, 10))
    labels = torch.zeros(batch_size, dtype=torch.int64)
    return model, (torch.randn(batch_size, 3, 64, 64),), lambda output: functional.cross_entropy(output, labels)


class ParallelBlock(nn.Module):
    """GPT-NeoX's block: attention and MLP read the same input, and both are added to it."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        return self.mlp(self.norm2(x)) + self.attention(self.norm1(x)) + x


def parallel_residual(batch_size):
    tokens = torch.zeros(batch_size, 128, dtype=torch.int64)
    model = nn.Sequential(nn.Embedding(500, 128), *(ParallelBlock(128, 4) for _ in range(4)), nn.LayerNorm(128), nn.Linear(128, 500))
    return model, (tokens,), lambda output: functional.cross_entropy(output.flatten(0, 1), tokens.flatten())


class NormalizedChannels(nn.Module):
    """A layer of data2vec-audio: LayerNorm over channels that stand second, so that its gradient is not contiguous."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(inputs, outputs, 3, stride=2), nn.LayerNorm(outputs)

    def forward(self, x):
        return functional.gelu(self.norm(self.conv(x).transpose(1, 2)).transpose(1, 2))


def normalized_channels(batch_size):
    model = nn.Sequential(NormalizedChannels(1, 64), NormalizedChannels(64, 64), NormalizedChannels(64, 64))
    return model, (torch.randn(batch_size, 1, 4096),), lambda output: output.square().mean()
