"""A net as a model of ONNX: its layers written one after another, its blobs' names kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minicaffe import __version__
from minicaffe.core.layers.blob import Shape
from minicaffe.core.net import Net
from minicaffe.core.net.step import Value
from minicaffe.errors import CheckpointError, MinicaffeError, SpecError, did_you_mean
from minicaffe.interop.onnx.table import packages, writer_of
from minicaffe.interop.onnx.writer.graph import Body, Graph, Node, Trial
from minicaffe.tools.inference import inputs

WORDS = {"batch": 0, "height": 2, "width": 3}
Axes = Mapping[Value, Mapping[int, str]]  # of inputs, their dynamic axes, and a word for each


def dynamic_axes(net: Net, words: Sequence[str]) -> Axes:
    """The axes that words mean: `batch` is the first of every input that has as many samples as the first
    input, `height` and `width` are the last two of images (n, c, h, w). Raises SpecError.
    """
    found: dict[Value, dict[int, str]] = {}
    for word in words:
        if word not in WORDS:
            hint = did_you_mean(word, WORDS) or f"; expected {', '.join(WORDS)}"
            raise SpecError(f"dynamic: there is no axis {word!r}{hint}")
        axis = WORDS[word]
        fits = [v for v in inputs(net) if len(v.shape) == 4 or (not axis and v.shape)]
        if not fits:
            raise SpecError(f"dynamic: no input of net {net.name!r} has a {word}")
        for value in fits:
            if axis or value.shape[0] == fits[0].shape[0]:
                found.setdefault(value, {})[axis] = word
    return found


def words_of(axes: Axes) -> list[str]:
    """The words of dynamic axes, each once."""
    return list(dict.fromkeys(word for those in axes.values() for word in those.values()))


def trials(net: Net, axes: Axes) -> list[Trial]:
    """The shapes of all values at the net's own size, at others of one word each, and at others of all.

    Larger by 32, which nets of strides of 2 can do with, and by 37 where the net can: what is one size
    with the former need not be with the latter. Raises the error of the layer that cannot take another size.
    """
    words = words_of(axes)
    mine = [value for step in net.steps for value in step.tops]
    found: list[Trial] = [{value: value.shape for value in mine}]
    if not words:
        return found
    shapes = Net(net.spec, "TEST", device="cpu", shapes_only=True)
    for some, more in [*(([word], 32) for word in words), (words, 32), (words, 37)]:
        try:
            shapes.reshape(**sizes(net, axes, some, more))
        except MinicaffeError as error:
            if more == 37:
                break
            raise error.at(f"dynamic {', '.join(some)}: another size will not do") from None
        there = [value.shape for step in shapes.steps for value in step.tops]
        found.append(dict(zip(mine, there, strict=True)))
    return found


def sizes(net: Net, axes: Axes, words: Sequence[str], more: int = 32) -> dict[str, Shape]:
    """Shapes of a net's inputs, larger along axes of these words, the first of a shape by 2."""
    return {
        value.name: tuple(
            size + (2 if axis == 0 else more) * (axes.get(value, {}).get(axis) in words)
            for axis, size in enumerate(value.shape)
        )
        for value in inputs(net)
    }


OPSET = 17  # of 2022: read by onnxruntime from 1.12 on
IR_VERSION = 8
MOST = 2**31 - 2**20  # bytes of a file: protobuf's limit, with room for what is no array


def write(net: Net, trials: Sequence[Trial]) -> Graph:
    """A net's layers as ONNX's nodes. Raises SpecError for a layer, or keys of one, that it cannot say."""
    graph = Graph(trials)
    for value in inputs(net):
        graph.tensors[value] = value.name
    for step in net.steps:
        if step.spec.type == "Input":
            continue
        graph.begin(step)
        if any(value in graph.open for value in step.bottoms):
            graph.open |= {value: range(len(value.shape)) for value in step.tops}
        with step.named():
            writer = writer_of(step.spec.type)
            tops = writer(graph, step, *[graph.tensors[value] for value in step.bottoms])
        tops = [tops] if isinstance(tops, str) else tops
        graph.tensors.update(zip(step.tops, tops, strict=True))
    name_blobs(graph, net)
    return graph


def name_blobs(graph: Graph, net: Net) -> None:
    """Give what holds a blob the blob's name; to what it held before work in place, the layer's name too.

    Where several blobs are one tensor it has the name of an output, if there is one among them.
    """
    given = set(graph.arrays) | {graph.tensors[value] for value in inputs(net)}
    outputs: set[str] = set()
    for value in net.graph.outputs.values():
        if graph.tensors[value] in given | outputs:
            graph.tensors[value] = graph.op("Identity", graph.tensors[value])
        outputs.add(graph.tensors[value])
    new: dict[str, str] = {}
    tops = [(step, value) for step in reversed(net.steps) for value in step.tops]
    last = set(net.graph.outputs.values())
    for step, value in sorted(tops, key=lambda top: top[1] not in last):
        tensor = graph.tensors[value]
        if tensor in given or tensor in new:
            continue
        taken = value.name in given or value.name in new.values()
        before = f"{value.name}/{step.spec.name}"
        new[tensor] = graph.unique(before) if taken else value.name
    graph.rename(new)


def proto(graph: Graph, net: Net, axes: Axes, more: Iterable[Value] = ()) -> Any:
    """The model, an onnx.ModelProto; of `more` values, those that nodes compute are given out as well.

    Raises CheckpointError for a net too large for a file.
    """
    size = sum(array.nbytes for array in graph.arrays.values())
    if size > MOST:
        raise CheckpointError(
            f"net {net.name!r} has {size >> 20} MiB of parameters; an .onnx file holds less than 2048 MiB"
        )
    onnx, _ = packages()
    helper = onnx.helper
    nodes = [operation(helper, node) for node in graph.nodes]
    info = helper.make_tensor_value_info
    outputs = {graph.tensors[value]: value for value in net.graph.outputs.values()}
    made = {name for node in graph.nodes for name in node.outputs}
    outputs |= {graph.tensors[value]: value for value in more if graph.tensors[value] in made}
    body = helper.make_graph(
        nodes,
        net.name or "net",
        [info(*described(graph, value, axes)) for value in inputs(net)],
        [info(*described(graph, value, axes)) for value in outputs.values()],
    )
    model = helper.make_model(
        body,
        producer_name="minicaffe",
        producer_version=__version__,
        doc_string=f"net {net.name!r} of Caffe's kind, as it infers",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    for name, array in graph.arrays.items():  # together they would be held three times
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def operation(helper: Any, node: Node) -> Any:
    """A node as an onnx.NodeProto; a body among its attributes as a graph of matrices."""
    attributes = dict(node.attributes)
    for key, within in node.attributes.items():
        if isinstance(within, Body):
            nodes = [operation(helper, one) for one in within.nodes]
            ends = [
                [helper.make_tensor_value_info(name, 1, [None, None]) for name in names]
                for names in (within.inputs, within.outputs)
            ]
            attributes[key] = helper.make_graph(nodes, f"{node.name}/{key}", *ends)
    return helper.make_node(node.kind, node.inputs, node.outputs, node.name, **attributes)


def described(graph: Graph, value: Value, axes: Axes) -> tuple[str, int, list[Any]]:
    """A value's name, type (1: float32) and shape, with words for the axes that vary or are open."""
    name, shapes = graph.tensors[value], graph.shapes(value)
    words: dict[tuple[int, ...], str] = {}
    for one, those in axes.items():
        for axis, word in those.items():
            if word not in words.values():  # the same word elsewhere would promise the same size
                words[tuple(shape[axis] for shape in graph.shapes(one))] = word
    sizes: list[Any] = []
    for axis, size in enumerate(value.shape):
        own = f"{name}_{axis}"
        if axis in graph.open.get(value, ()):
            sizes.append(own)
        elif graph.varies(value, axis):
            sizes.append(words.get(tuple(shape[axis] for shape in shapes), own))
        else:
            sizes.append(size)
    return name, 1, sizes
