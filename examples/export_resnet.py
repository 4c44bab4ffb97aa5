"""ResNet-50 on 224 x 224 images, as resnet-50.yaml trains it. Needs torchvision. Written with

PYTHONPATH=../trainer python3 -m plimsoll.export export_resnet:resnet50 --batch-size 64 --device cuda --precision FP16Mixed -o graph.json.gz
"""

import torch
import torchvision
from torch import nn


def resnet50(batch_size):
    images, classes = torch.randn(batch_size, 3, 224, 224), torch.randint(0, 1000, (batch_size,))
    return torchvision.models.resnet50(), (images,), lambda output: nn.functional.cross_entropy(output, classes)
