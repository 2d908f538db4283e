"""What the nets of models/ are, from their files alone: the first table of docs/zoo.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

import tables

from minicaffe import Net

MODELS = Path(__file__).resolve().parent.parent.parent / "models"
NAMES = {
    "logistic_regression": "logistic regression",
    "mnist_autoencoder": "autoencoder of MNIST",
    "mnist_siamese": "siamese LeNet, of a pair",
    "lenet": "LeNet",
    "lenet_paper": "LeNet, the paper's",
    "cifar10_quick": "CIFAR-10 quick",
    "cifar10_full": "CIFAR-10 full",
    "lstm": "character LSTM, of a step",
    "alexnet": "AlexNet",
    "caffenet": "CaffeNet",
    "vgg16": "VGG-16",
    "googlenet": "GoogLeNet",
    "resnet50": "ResNet-50",
    "squeezenet": "SqueezeNet 1.1",
    "mobilenet": "MobileNet v1",
    "fcn8s": "FCN-8s",
}


def sizes() -> str:
    """A row a net, in the phase TEST: layers, lines of its file, parameters, multiply-adds of a sample."""
    rows = []
    for name, title in NAMES.items():
        path = MODELS / f"{name}.yaml"
        net = Net(path, "TEST", device="cpu", shapes_only=True)
        batch, *image = net.steps[0].tops[0].shape
        kept = [
            param.size
            for step in net.steps
            if step.spec.type == "BatchNorm"
            for param in step.layer.params
        ]
        params = sum(param.size for param in net.learnable) - sum(kept)
        rows.append(
            [
                f"[{title}](../models/{name}.yaml)",
                " x ".join(map(str, image)),
                str(len(net.steps)),
                str(len(path.read_text().splitlines())),
                f"{params:,}" + (f" + {sum(kept):,}" if kept else ""),
                f"{sum(step.layer.multiply_adds for step in net.steps) // batch / 1e6:,.2f} M",
            ]
        )
    head = ["net", "sample", "layers", "lines of YAML", "parameters", "multiply-adds"]
    return tables.lay_out(head, rows)
