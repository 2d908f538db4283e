"""A net in ONNX's file format, compared with onnxruntime before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minicaffe import checkpoint
from minicaffe.errors import CheckpointError, SpecError
from minicaffe.export import check
from minicaffe.export.dynamic import Axes, dynamic_axes, inputs, sizes, trials
from minicaffe.export.graph import Graph
from minicaffe.export.inference import inference
from minicaffe.export.library import packages
from minicaffe.export.model import OPSET, proto
from minicaffe.export.model import write as written
from minicaffe.net import Net, read
from minicaffe.spec.declare import NetSpec


def write(
    model: Net | str | Path | Mapping[str, Any] | NetSpec,
    path: str | Path,
    weights: str | Path | Mapping[str, Any] | None = None,
    *,
    dynamic: Sequence[str] = (),
) -> list[str]:
    """Write a net as it infers to an .onnx file, atomically; gives lines that tell what was done and compared.

    `model` is a Net, whose parameters and sizes are taken, or what Net takes, with `weights` as `Net.load`
    takes them. `dynamic` are the axes that may be of any size: batch, height, width. The file is of opset
    17 and float32, its inputs, outputs and blobs bear the net's names. Before it is written onnx checks it,
    and onnxruntime computes from random numbers what the net does, at another size too if axes are dynamic.
    Raises SpecError for a layer that ONNX cannot say, CheckpointError for weights that do not fit, without
    the packages onnx and onnxruntime, if the two differ by more than 1e-4 of an output's largest number, and
    if the file cannot be written.
    """
    onnx, _ = packages()
    net, lines = inferring(model, weights)
    axes = dynamic_axes(net, dynamic)
    tried = trials(net, axes)
    graph = written(net, tried)
    made = proto(graph, net, axes)
    data: bytes = made.SerializeToString()
    try:
        onnx.checker.check_model(made, full_check=True)
    except Exception as error:  # of several classes of its own
        raise CheckpointError(f"onnx refuses it: {' '.join(str(error).split())}") from None
    lines.append(f"opset {OPSET}, {len(graph.nodes)} nodes, {len(data) / 2**20:.1f} MiB")
    lines += compared(graph, net, axes, data)
    checkpoint.replace(path, lambda file: file.write(data))
    return lines


def inferring(model: Any, weights: Any = None) -> tuple[Net, list[str]]:
    """The net that is written, on the CPU in float32, with its parameters; and notes of what became of it."""
    source = model if isinstance(model, Net) else None
    spec = source.spec if source else model if isinstance(model, NetSpec) else read(model)
    spec, lines = inference(spec)
    net = Net(spec, "TEST", device="cpu", dtype="float32", deterministic=True)
    if source is not None:
        mine = {value.name: value.shape for value in inputs(net)}
        net.reshape(**{name: source.first_blobs[name].shape for name in mine})
        net.load(
            {name: array for name, array in source.weights().items() if name in net.named_params}
        )
    elif weights is not None:
        net.load(weights)
    elif net.learnable:
        raise SpecError(f"net {net.name!r} has parameters: weights are needed")
    return net, lines


def compared(graph: Graph, net: Net, axes: Axes, data: bytes) -> list[str]:
    """A line for each output, at each size. Raises CheckpointError, of the first layer that differs."""
    words = list(dict.fromkeys(word for those in axes.values() for word in those.values()))
    lines = []
    for some in [[], words] if words else [[]]:
        net.reshape(**sizes(net, axes, some))
        found = check.outputs(data, net, graph.tensors)
        for value, apart in found.items():
            told = f"largest difference {apart:.1e} of its largest number"
            lines.append(f"{graph.tensors[value]} {value.shape}: {told}")
        if max(found.values()) > check.MOST:
            every = proto(graph, net, axes, every=True).SerializeToString()
            check.culprit(every, net, graph.tensors)
    return lines
