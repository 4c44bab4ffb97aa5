"""Convolutional networks of torchvision, as it builds them, on small images."""
import torch
import torchvision
from torch import nn


def classify(model, batch_size, pixels, classes=1000):
    images = torch.randn(batch_size, 3, pixels, pixels)
    labels = torch.zeros(batch_size, dtype=torch.int64)
    return model, (images,), lambda output: nn.functional.cross_entropy(output, labels)


def torchvision_model(name, batch_size, pixels, **options):
    return classify(getattr(torchvision.models, name)(**options), batch_size, pixels)


def alexnet(batch_size):
    return torchvision_model("alexnet", batch_size, 96)


def vgg11(batch_size):
    return torchvision_model("vgg11", batch_size, 64)


def resnet18(batch_size):
    return torchvision_model("resnet18", batch_size, 96)


def resnet50(batch_size):
    return torchvision_model("resnet50", batch_size, 96)


def resnext50(batch_size):
    return torchvision_model("resnext50_32x4d", batch_size, 64)


def densenet121(batch_size):
    return torchvision_model("densenet121", batch_size, 64)


def mobilenet_v2(batch_size):
    return torchvision_model("mobilenet_v2", batch_size, 96)


def mobilenet_v3_small(batch_size):
    return torchvision_model("mobilenet_v3_small", batch_size, 128)


def mnasnet(batch_size):
    return torchvision_model("mnasnet0_5", batch_size, 128)


def squeezenet(batch_size):
    return torchvision_model("squeezenet1_1", batch_size, 128)


def shufflenet(batch_size):
    return torchvision_model("shufflenet_v2_x1_0", batch_size, 128)


def efficientnet(batch_size):
    return torchvision_model("efficientnet_b0", batch_size, 96)


def regnet(batch_size):
    return torchvision_model("regnet_y_400mf", batch_size, 128)


def convnext(batch_size):
    return torchvision_model("convnext_tiny", batch_size, 64)


def googlenet(batch_size):
    """With its two auxiliary heads: the output is a named tuple, and the loss a weighted sum."""
    model = torchvision.models.googlenet(aux_logits=True, init_weights=False)
    images = torch.randn(batch_size, 3, 96, 96)
    labels = torch.zeros(batch_size, dtype=torch.int64)

    def loss_fn(output):
        entropy = nn.functional.cross_entropy
        return entropy(output.logits, labels) + 0.3 * (
            entropy(output.aux_logits1, labels) + entropy(output.aux_logits2, labels))

    return model, (images,), loss_fn


def deeplab(batch_size):
    """Semantic segmentation: dilated convolutions, bilinear upsampling, a dict as the output."""
    model = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=21, aux_loss=False)
    images = torch.randn(batch_size, 3, 96, 96)
    labels = torch.zeros(batch_size, 96, 96, dtype=torch.int64)
    return model, (images,), lambda output: nn.functional.cross_entropy(output["out"], labels)
