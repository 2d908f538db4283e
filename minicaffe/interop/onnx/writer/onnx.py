"""A net in ONNX's file format, compared with onnxruntime before it is written."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net import Net, read
from minicaffe.errors import CheckpointError, SpecError, reason
from minicaffe.interop.onnx.table import packages
from minicaffe.interop.onnx.writer import check, tensorrt
from minicaffe.interop.onnx.writer import model as graphs
from minicaffe.storage import checkpoint
from minicaffe.tools.deploy import Preparation, metadata, preparation
from minicaffe.tools.deploy import described as json_text
from minicaffe.tools.inference import inference, inputs


def write(
    model: Net | str | Path | Mapping[str, Any] | NetSpec,
    path: str | Path,
    weights: str | Path | Mapping[str, Any] | None = None,
    *,
    dynamic: Sequence[str] = (),
    tensorrt_safe: bool = False,
) -> list[str]:
    """Write a net as it infers to an .onnx file, atomically; returns lines on what was done and compared.

    `model` is a Net, whose parameters and sizes are taken, or what Net takes, with `weights` as `Net.load`
    takes them. `dynamic` are the axes that may be of any size: batch, height, width. With `tensorrt_safe` the
    file holds only what TensorRT 10 reads. It is of opset 17 and float32, its inputs, outputs and blobs bear
    the net's names. A JSON file beside it says what `Preparation` holds. Before it is written onnx checks it,
    and onnxruntime computes from random numbers what the net does, at another size too if axes are dynamic.
    Raises SpecError for a layer that ONNX cannot say, CheckpointError for weights that do not fit, without
    the packages onnx and onnxruntime, if the two differ by more than 1e-4 of an output's largest number, and
    if the file cannot be written.
    """
    packages()
    spec = _spec(model)
    net, lines = inferring(model if isinstance(model, Net) else spec)
    if weights is not None:
        lines.append(f"weights: {net.load(weights)}")
    elif net.learnable and not isinstance(model, Net):
        raise SpecError(f"net {net.name!r} has parameters: weights are needed")
    return lines + save(net, path, preparation(spec), dynamic, tensorrt_safe)


def inferring(model: Net | str | Path | Mapping[str, Any] | NetSpec) -> tuple[Net, list[str]]:
    """The net that is written, on the CPU in float32, with a Net's parameters and sizes; notes on layers."""
    source = model if isinstance(model, Net) else None
    spec, notes = inference(_spec(model))
    net = Net(spec, "TEST", device="cpu", dtype="float32", deterministic=True)
    if source is not None:
        names = {value.name for step in source.steps for value in step.tops}
        own = [value.name for value in inputs(net) if value.name in names]
        net.reshape(**{name: source.first_blobs[name].shape for name in own})
        arrays = source.weights()
        net.load({name: array for name, array in arrays.items() if name in net.named_params})
    return net, notes


def _spec(model: Net | str | Path | Mapping[str, Any] | NetSpec) -> NetSpec:
    if isinstance(model, Net):
        return dataclasses.replace(model.spec, state=model.context.state)
    return model if isinstance(model, NetSpec) else read(model)


def save(
    net: Net,
    path: str | Path,
    about: Preparation,
    dynamic: Sequence[str] = (),
    tensorrt_safe: bool = False,
) -> list[str]:
    """Write a net that infers, checked and compared, and what is said about it; the rest of `write`."""
    onnx, _ = packages()
    path = Path(path)
    if not path.parent.is_dir():  # known before what may take minutes
        raise CheckpointError(f"{path}: cannot be written: there is no folder {str(path.parent)!r}")
    if tensorrt_safe:
        tensorrt.check_axes(dynamic)
    axes = graphs.dynamic_axes(net, dynamic)
    graph = graphs.write(net, graphs.trials(net, axes))
    if tensorrt_safe:
        tensorrt.check(graph, net)
    model, beside = graphs.proto(graph, net, axes), files_beside(path)
    onnx.helper.set_model_props(model, metadata(about, beside["mean"].name))
    data: bytes = model.SerializeToString()
    try:
        onnx.checker.check_model(data, full_check=True)
    except Exception as error:  # of several classes of its own
        raise CheckpointError(f"onnx refuses it: {reason(error)}") from None
    lines = compared(graph, net, axes, data)
    sizes_of = {
        kind: dict(graphs.described(graph, value, axes)[::2] for value in values)
        for kind, values in {"inputs": inputs(net), "outputs": net.graph.outputs.values()}.items()
    }
    if (image := about.mean_image) is not None:
        checkpoint.replace(beside["mean"], lambda file: np.save(file, image.astype(np.float32)))
    checkpoint.replace(beside["json"], json_text(about, sizes_of, beside["mean"].name))
    checkpoint.replace(path, data)
    size = f"{len(graph.nodes)} nodes, opset {graphs.OPSET}, {len(data) / 2**20:.1f} MiB"
    return [*lines, f"{path}: {size}"]


def files_beside(path: str | Path) -> dict[str, Path]:
    """The JSON and mean image beside an .onnx file. Raises CheckpointError for the path of one of them."""
    files = {"json": Path(path).with_suffix(".json"), "mean": Path(path).with_suffix(".mean.npy")}
    if Path(path) in files.values():
        raise CheckpointError(f"{path}: expected a name that ends in .onnx")
    return files


def compared(graph: graphs.Graph, net: Net, axes: graphs.Axes, data: bytes) -> list[str]:
    """A line for each output, at each size. Raises CheckpointError, of the first layer that differs."""
    words = graphs.words_of(axes)
    lines, names = [], graph.tensors
    if before := check.before_jumps(net.steps):
        data = graphs.proto(graph, net, axes, before).SerializeToString()
    for some in [[], words] if words else [[]]:
        net.reshape(**graphs.sizes(net, axes, some))
        apart = check.outputs(data, net, names)
        for value in net.graph.outputs.values():
            result = f"checked against onnxruntime: max. relative difference {apart[value]:.0e}"
            lines.append(f"{names[value]} {value.shape}: {result}")
        if max(apart.values()) > check.MOST:
            check.culprit(graphs.proto(graph, net, axes, names).SerializeToString(), net, names)
    return lines
