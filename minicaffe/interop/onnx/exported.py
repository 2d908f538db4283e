"""Layers of many nodes, known by the nodes that `minicaffe export` writes for them, and no others.

What such nodes compute is told by all of them together, constants and all. So a reader guesses a layer from
some of them; the layer is exported again, and its nodes must be those of the model, one by one.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minicaffe.core.net import Net
from minicaffe.core.net.model import read
from minicaffe.errors import MinicaffeError
from minicaffe.interop.onnx.draft import Blob, Draft, Node, Shape, Tensor
from minicaffe.interop.onnx.writer.model import Graph, write


def as_exported(
    draft: Draft, node: Node, kind: str, sizes: Mapping[str, Shape], keys: dict[str, Any]
) -> Blob | None:
    """The top of a layer of these keys and bottoms' `sizes` if a node ends what is exported of it, or None."""
    layers: list[dict[str, Any]] = [
        {"name": name, "type": "Input", "shape": {"dim": list(size)}}
        for name, size in sizes.items()
    ]
    layers.append({"name": "last", "type": kind, "bottom": list(sizes), **keys})
    try:
        net = Net(read({"name": "last", "layers": layers}), "TEST", device="cpu", shapes_only=True)
    except MinicaffeError:  # there is no such layer
        return None
    graph = write(net, [{value: value.shape for step in net.steps for value in step.tops}])
    (top,) = net.graph.outputs.values()
    bound: dict[str, Tensor] = {}
    if not _same(graph, graph.tensors[top], node.outputs[0], bound):
        return None
    return draft.layer(kind, *[draft.blob(bound[name]) for name in sizes], shape=top.shape, **keys)


def _same(graph: Graph, name: str, tensor: Tensor | None, bound: dict[str, Tensor]) -> bool:
    """Whether a tensor is computed as one of the graph is, of what stands for the graph's inputs."""
    if tensor is None:
        return False
    if name in graph.arrays:
        wanted, data = graph.arrays[name], tensor.data
        return data is not None and data.dtype == wanted.dtype and np.array_equal(data, wanted)
    if name in bound:
        return bound[name] is tensor
    written = next((node for node in graph.nodes if name in node.outputs), None)
    bound[name] = tensor
    if written is None:
        return True
    node = tensor.node
    if node is None or node.kind != written.kind or len(node.inputs) != len(written.inputs):
        return False
    lists = {k: list(v) if isinstance(v, tuple) else v for k, v in written.attributes.items()}
    if tensor is not node.outputs[written.outputs.index(name)] or node.attributes != lists:
        return False
    pairs = zip(written.inputs, node.inputs, strict=True)
    return all(_same(graph, wanted, one, bound) for wanted, one in pairs)
