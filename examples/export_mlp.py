"""A model to export: from this folder,

PYTHONPATH=../trainer python3 -m plimsoll.export export_mlp:mlp --batch-size 256 -o mlp.json.gz
plimsoll estimate --graph mlp.json.gz --batch-size 256 --optimizer AdamW
"""

import torch
from torch import nn


def mlp(batch_size):
    model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 10))
    target = torch.randint(0, 10, (batch_size,))
    return model, (torch.randn(batch_size, 784),), lambda output: nn.functional.cross_entropy(output, target)
