"""Vision models that are no plain convolutional classifiers."""
import torch
import torchvision
from torch import nn

from cnn import classify


def vit(batch_size):
    model = torchvision.models.VisionTransformer(
        image_size=64, patch_size=8, num_layers=4, num_heads=6, hidden_dim=192, mlp_dim=768, num_classes=100)
    return classify(model, batch_size, 64)


def vit_dropout(batch_size):
    model = torchvision.models.VisionTransformer(
        image_size=32, patch_size=4, num_layers=3, num_heads=4, hidden_dim=128, mlp_dim=512, dropout=0.1,
        attention_dropout=0.1, num_classes=100)
    return classify(model, batch_size, 32)


def swin(batch_size):
    model = torchvision.models.SwinTransformer(
        patch_size=[4, 4], embed_dim=48, depths=[2, 2, 2], num_heads=[3, 6, 12], window_size=[4, 4], num_classes=100)
    return classify(model, batch_size, 64)


class MixerBlock(nn.Module):
    def __init__(self, tokens, channels):
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.across_tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.across_channels = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x):
        x = x + self.across_tokens(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across_channels(self.channel_norm(x))


class Mixer(nn.Module):
    def __init__(self, channels, layers):
        super().__init__()
        self.patches = nn.Conv2d(3, channels, 8, stride=8)
        self.blocks = nn.Sequential(*[MixerBlock(64, channels) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, 100)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def mixer(batch_size):
    return classify(Mixer(192, 6), batch_size, 64)


def twice(inputs, outputs, norm):
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), norm(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Down and up again with skip connections; `transposed` chooses how it goes up."""

    def __init__(self, width, norm, transposed):
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList([twice(i, o, norm) for i, o in zip([3] + widths, widths)])
        self.bottom = twice(4 * width, 8 * width, norm)
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(2 * w, w, 2, stride=2) if transposed
             else nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(2 * w, w, 1))
             for w in reversed(widths)])
        self.merge = nn.ModuleList([twice(2 * w, w, norm) for w in reversed(widths)])
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(width, 1, 1)

    def forward(self, x):
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


def segment(model, batch_size, pixels):
    images, masks = torch.randn(batch_size, 3, pixels, pixels), torch.zeros(batch_size, 1, pixels, pixels)
    return model, (images,), lambda output: nn.functional.binary_cross_entropy_with_logits(output, masks)


def unet(batch_size):
    return segment(UNet(16, nn.BatchNorm2d, transposed=True), batch_size, 96)


def unet_groupnorm(batch_size):
    return segment(UNet(16, lambda c: nn.GroupNorm(8, c), transposed=False), batch_size, 64)


def dcgan_generator(batch_size):
    layers, width = [nn.ConvTranspose2d(100, 256, 4, bias=False), nn.BatchNorm2d(256), nn.ReLU(True)], 256
    while width > 32:
        layers += [nn.ConvTranspose2d(width, width // 2, 4, 2, 1, bias=False), nn.BatchNorm2d(width // 2), nn.ReLU(True)]
        width //= 2
    layers += [nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()]
    real = torch.zeros(batch_size, 3, 64, 64)
    return nn.Sequential(*layers), (torch.randn(batch_size, 100, 1, 1),), lambda made: ((made - real) ** 2).mean()


class Autoencoder(nn.Module):
    """Variational: two heads, sampling by the reparameterisation, two losses."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(3072, 512), nn.LeakyReLU(0.1), nn.Linear(512, 256), nn.ELU())
        self.mean, self.log_variance = nn.Linear(256, 64), nn.Linear(256, 64)
        self.decoder = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 512), nn.Softplus(), nn.Linear(512, 3072))

    def forward(self, images):
        features = self.encoder(images)
        mean, log_variance = self.mean(features), self.log_variance(features)
        sample = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return torch.sigmoid(self.decoder(sample)), mean, log_variance


def autoencoder(batch_size):
    images = torch.rand(batch_size, 3, 32, 32)

    def loss_fn(output):
        made, mean, log_variance = output
        divergence = -0.5 * torch.mean(1 + log_variance - mean.pow(2) - log_variance.exp())
        return nn.functional.mse_loss(made, images.flatten(1)) + divergence

    return Autoencoder(), (images,), loss_fn
