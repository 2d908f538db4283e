"""The nets of models/ as they are measured: fed with arrays, and for inference without labels and losses.

`write` leaves a folder with all that a contender reads: the net, its weights and its inputs as files.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from measure import ROOT

from minicaffe import Net, read
from minicaffe.core.config.declare import NetSpec, SolverSpec
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.inputs import BlobShape
from minicaffe.tools.inference import inference

BATCH = {
    "cpu": {"infer": 1, "train": 8},
    "cuda": {"infer": 1, "train": 32},
}
TRAIN_BATCH = {  # of nets that have another one
    "cpu": {"fcn8s": 1},  # a picture at a time, as its authors trained it
    "cuda": {"fcn8s": 1, "alexnet": 128, "caffenet": 128},  # as others measure them
}
RULE = {"momentum": 0.9, "weight_decay": 0.0005, "max_iter": 10**9}  # of training, by SGD
RATE = 1e-6  # small, as what is timed shall not diverge on noise
STREAMS = {"lstm"}  # whose data are (t, n, ...)
NEVER = ("Accuracy", "Silence")  # they tell, and compute nothing that is wanted


def batch_of(name: str, way: str, kind: str = "cpu") -> int:
    """How many samples a net is given on a kind of device."""
    own = TRAIN_BATCH[kind] if way == "train" else {}
    return own.get(name, BATCH[kind][way])


def spec_of(name: str, way: str, batch: int | None = None) -> NetSpec:
    """A net of models/, to `infer` or to `train`."""
    batch = batch_of(name, way) if batch is None else batch
    model = read(ROOT / "models" / f"{name}.yaml")
    return prepared(model, way, batch, axis=1 if name in STREAMS else 0)


def prepared(model: NetSpec, way: str, batch: int, axis: int = 0) -> NetSpec:
    """The net of a phase with an Input for all that reads data, and so many samples along an axis.

    To infer, it is the net that `minicaffe export` writes: without labels and losses.
    """
    if way == "infer":
        model, _ = inference(model)
    layers = []
    phase = "TRAIN" if way == "train" else "TEST"
    for step in Net(model, phase, device="cpu", shapes_only=True).steps:
        keys = {"bottom": step.layer.bottom, "top": step.layer.top, "include": (), "exclude": ()}
        if not step.bottoms:
            shapes = tuple(BlobShape(dim=resized(v.shape, batch, axis)) for v in step.tops)
            keys |= {"type": "Input", "options": {"shape": shapes}}
        if step.spec.type not in NEVER:
            layers.append(dataclasses.replace(step.spec, **keys))
    rule = SolverSpec(base_lr=RATE, **RULE)
    return dataclasses.replace(model, layers=tuple(layers), test_nets=(), solver=rule)


def resized(shape: tuple[int, ...], batch: int, axis: int) -> tuple[int, ...]:
    """A shape with so many samples."""
    axis = min(axis, len(shape) - 1)
    return (*shape[:axis], batch, *shape[axis + 1 :])


def without_dropout(spec: NetSpec) -> NetSpec:
    """A net whose Dropouts drop nothing."""
    layers = [
        dataclasses.replace(layer, options={**layer.options, "dropout_ratio": 0.0})
        if layer.type == "Dropout"
        else layer
        for layer in spec.layers
    ]
    return dataclasses.replace(spec, layers=tuple(layers))


def inputs_of(net: Net, seed: int = 0) -> Mapping[str, np.ndarray]:
    """Random numbers for the blobs that the user fills, labels that are labels."""
    rng, arrays = np.random.default_rng(seed), {}
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
            arrays[value.name] = array.astype(np.float32)
    return arrays


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


def write(
    folder: Path, name: str, way: str, batch: int, for_others: bool = True
) -> dict[str, object]:
    """Write a net's files for all contenders; returns what it is. BatchNorms know what a batch has."""
    from minicaffe.core.net import model

    spec = spec_of(name, way, batch)
    net = Net(spec, "TRAIN" if way == "train" else "TEST", device="cpu")
    begin(net)
    if way == "infer" and any(step.spec.type == "BatchNorm" for step in net.steps):
        seen = Net(spec_of(name, "train"), "TRAIN", device="cpu")
        seen.forward(**inputs_of(seen))
        net.load(
            {key: value for key, value in seen.weights().items() if key in net.named_params},
            strict=False,
        )
    (folder / "net.yaml").write_text(model.text(spec, folder))
    net.save(str(folder / "weights.npz"))
    np.savez(folder / "inputs.npz", **inputs_of(net))
    if way == "infer" and for_others:
        write_for_others(folder, net)
    past = [p for step in net.steps if step.spec.type == "BatchNorm" for p in step.layer.past]
    return {
        "parameters": sum(param.size for param in net.learnable if param not in past),
        "multiply_adds": sum(step.layer.multiply_adds for step in net.steps),
    }


def write_for_others(folder: Path, net: Net) -> None:
    """Prototxt and .caffemodel, and ONNX where a net can be said in it."""
    from minicaffe.cli import main
    from minicaffe.interop.caffe.prototxt import prototxt

    text = str(folder / "net.prototxt")
    Path(text).write_text(prototxt(dataclasses.replace(net.spec, solver=None), REGISTRY))
    net.save(str(folder / "net.caffemodel"))
    producers = [value.producer.name for value in net.graph.outputs.values()]
    (folder / "outputs.json").write_text(json.dumps(producers))
    weights, onnx = (str(folder / end) for end in ("weights.npz", "net.onnx"))
    main(["export", text, "--weights", weights, "--onnx", onnx])  # which says why not
