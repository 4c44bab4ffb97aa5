"""The models of published_gpu.json, as functions that plimsoll.export takes.

`published:convnext_tiny_1000` is torchvision's convnext_tiny with 1000 classes; `published:imagenet_vgg16_224` its vgg16 as it is
trained on images of 224 x 224; `published:perceptron_7` the eighth of the perceptrons.
"""
import functools
import json
import pathlib

import torch
import torchvision

DATA = json.loads((pathlib.Path(__file__).resolve().parents[1] / "published_gpu.json").read_text())
ACTIVATIONS = {"ELU", "GELU", "Identity", "LeakyReLU", "Mish", "PReLU", "ReLU", "SELU", "SiLU", "Softplus", "Tanh"}


class _LossOfNamedOutput:
    """`outputs = model(inputs); loss = criterion(outputs, labels)`: the name keeps the output until the next iteration's."""

    def __init__(self, labels):
        self._criterion = torch.nn.CrossEntropyLoss()
        self._labels = labels

    def __call__(self, outputs):
        self.outputs = outputs
        return self._criterion(outputs, self._labels)


def _image_classifier(name, classes, batch_size):
    published = DATA["convolutional"]
    module = getattr(torchvision.models, name)(weights=None, num_classes=classes)
    labels = torch.randint(0, published["labels"], (batch_size,))
    criterion = torch.nn.CrossEntropyLoss()  # Hugging Face's Trainer lets go of the output once the loss is known
    return module, (torch.randn(batch_size, *published["image"]),), lambda outputs: criterion(outputs, labels)


def _imagenet_classifier(name, size, batch_size):
    if name == "xception":
        import timm

        module = timm.create_model(name, num_classes=1000)
    else:
        options = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
        module = getattr(torchvision.models, name)(weights=None, num_classes=1000, **options)
    return module, (torch.randn(batch_size, 3, size, size),), _LossOfNamedOutput(torch.randint(0, 1000, (batch_size,)))


def _perceptron(index, batch_size):
    published = DATA["perceptrons"]["runs"][index]
    width = published["input"]
    layers = []
    for item in published["layers"].split():
        kind, outputs = item.split(":")
        if kind == "linear":
            layers.append(torch.nn.Linear(width, int(outputs)))
            width = int(outputs)
        elif kind == "batch_normalization":
            layers.append(torch.nn.BatchNorm1d(width))
        elif kind == "dropout":
            layers.append(torch.nn.Dropout(published["dropout"]))
        elif kind == "Softmax":
            layers.append(torch.nn.Softmax(dim=1))
        elif kind in ACTIVATIONS:
            layers.append(getattr(torch.nn, kind)())
        else:
            raise ValueError(f"published_gpu.json has a layer of unknown kind '{kind}'")
    labels = torch.randint(0, width, (batch_size,))
    return torch.nn.Sequential(*layers), (torch.randn(batch_size, published["input"]),), _LossOfNamedOutput(labels)


def __getattr__(name):
    model, _, number = name.rpartition("_")
    if not number.isdigit():
        raise AttributeError(name)
    if model == "perceptron":
        return functools.partial(_perceptron, int(number))
    if model.startswith("imagenet_"):
        return functools.partial(_imagenet_classifier, model.removeprefix("imagenet_"), int(number))
    return functools.partial(_image_classifier, model, int(number))
