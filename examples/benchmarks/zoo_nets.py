"""The nets of models/ as they are measured: fed with arrays, and for inference without labels and losses."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from measure import ROOT
from zoo_names import STREAMS, batch_of

from minicaffe import Net, read
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers.inputs import BlobShape
from minicaffe.tools.inference import inference

NEVER = ("Accuracy", "Silence")  # they tell, and compute nothing that is wanted


def spec_of(name: str, way: str, batch: int | None = None) -> NetSpec:
    """A net of models/, to `infer` or to `train`."""
    given = read(ROOT / "models" / f"{name}.yaml")
    batch = batch_of(name, way) if batch is None else batch
    return prepared(given, way, batch, axis=1 if name in STREAMS else 0)


def prepared(model: NetSpec, way: str, batch: int, axis: int = 0) -> NetSpec:
    """The net of a phase with an Input for all that reads data, and so many samples along an axis.

    To infer, it is the net that `minicaffe export` writes: without labels and losses.
    """
    if way == "infer":
        model, _ = inference(model)
    layers = []
    phase = "TRAIN" if way == "train" else "TEST"
    for step in Net(model, phase, device="cpu", shapes_only=True).steps:
        given = {"bottom": step.layer.bottom, "top": step.layer.top, "include": (), "exclude": ()}
        if not step.bottoms:
            shapes = tuple(BlobShape(dim=resized(v.shape, batch, axis)) for v in step.tops)
            given |= {"type": "Input", "options": {"shape": shapes}}
        if step.spec.type not in NEVER:
            layers.append(dataclasses.replace(step.spec, **given))
    return dataclasses.replace(model, layers=tuple(layers), test_nets=())


def resized(shape: tuple[int, ...], batch: int, axis: int) -> tuple[int, ...]:
    """A shape with so many samples."""
    axis = min(axis, len(shape) - 1)
    return (*shape[:axis], batch, *shape[axis + 1 :])


def inputs_of(net: Net, seed: int = 0) -> Mapping[str, np.ndarray]:
    """Random numbers for the blobs that the user fills, labels that are labels."""
    rng, found = np.random.default_rng(seed), {}
    between = any(step.spec.type == "SigmoidCrossEntropyLoss" for step in net.steps)
    for source in net.steps:
        for value in source.tops if not source.bottoms else ():
            kind, reader = next(
                ((s.spec.type, s) for s in net.steps if value in s.bottoms[1:]), ("", None)
            )
            embeds = [s for s in net.steps if s.spec.type == "Embed" and value in s.bottoms]
            if embeds:
                array = rng.integers(0, embeds[0].layer.input_dim, value.shape)
            elif kind == "SoftmaxWithLoss":
                array = rng.integers(0, reader.layer.ncs[1], value.shape)
            elif kind == "ContrastiveLoss" and value is reader.bottoms[2]:
                array = rng.integers(0, 2, value.shape)
            elif kind in ("LSTM", "RNN"):
                array = np.ones(value.shape)
                array[0] = 0
            elif len(value.shape) == 1:
                array = rng.integers(0, 10, value.shape)
            elif between:
                array = rng.random(value.shape)
            else:
                array = rng.standard_normal(value.shape)
            found[value.name] = array.astype(np.float32)
    return found


def begin(net: Net, seed: int = 0) -> None:
    """Let no part of a net give zeros: weights that start so are drawn, a BatchNorm has seen variance 1."""
    rng = np.random.default_rng(seed)
    for param in net.learnable:
        if len(param.shape) > 1 and not param.data.any():
            deviation = math.prod(param.shape[1:]) ** -0.5
            param.load(deviation * rng.standard_normal(param.shape, np.float32))
    for step in net.steps:
        if step.spec.type == "BatchNorm":
            mean, variance, count = step.layer.past
            if not count.data.any():
                mean.load(np.zeros(mean.shape))
                variance.load(np.ones(variance.shape))
                count.load(np.ones(1))
