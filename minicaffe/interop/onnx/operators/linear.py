"""Products with a matrix of numbers, and rows of one by number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.draft import Blob, Draft, Node, Shape, differing
from minicaffe.interop.onnx.patterns import recognises
from minicaffe.interop.onnx.table import RefusedError, draws_below, reads, writes
from minicaffe.interop.onnx.writer.graph import Graph


@reads("Gemm")
def read_gemm(draft: Draft, node: Node, x: Blob) -> Blob:
    """InnerProduct; alpha and beta are multiplied into its numbers."""
    weight = node.needs_const(1, "second matrix")
    if node.get("transA", 0):
        raise RefusedError("transA turns the samples into features")
    weight = weight if node.get("transB", 0) else weight.T
    weight = weight * np.float32(node.get("alpha", 1.0))
    y = inner_product(draft, x, weight, node.shape)
    if node.input(2) is None:
        return y
    term = node.const(2)
    if term is None:
        scaled = draft.linear(draft.blob(node.inputs[2]), node.get("beta", 1.0))
        return draft.combined("Bias", y, scaled, node.shape)
    term = np.broadcast_to(term, np.broadcast_shapes(term.shape, (1, len(weight))))
    return draft.plus(y, term * np.float32(node.get("beta", 1.0))) if term.any() else y


@reads("MatMul")
def read_mat_mul(draft: Draft, node: Node) -> Blob:
    """InnerProduct along the last axis, of a constant matrix on the right."""
    weight = node.const(1)
    if weight is None:
        return _from_the_left(draft, node)
    x = draft.blob(node.inputs[0])
    if weight.ndim > 2 and math.prod(weight.shape[:-2]) != 1:
        raise RefusedError("its constant is a stack of matrices, an InnerProduct's is one")
    column = weight.ndim == 1
    matrix = weight.reshape((-1, 1) if column else weight.shape[-2:])
    shape = (*x.shape[:-1], matrix.size // len(matrix))
    y = inner_product(draft, x, matrix.T, shape)
    return draft.reshape(y, node.shape)


def _from_the_left(draft: Draft, node: Node) -> Blob:
    """A constant matrix times x: a Convolution by 1 x 1 whose channels are the rows of x."""
    weight, x = node.const(0), draft.blob(node.inputs[1])
    if weight is None:
        raise RefusedError("both matrices are computed: Caffe has no product of two blobs")
    if weight.ndim != 2 or len(x.shape) < 2:
        raise RefusedError("its constant is a stack of matrices, or x a vector")
    outer, (rows, columns) = x.shape[:-2], x.shape[-2:]
    flat = draft.reshape(x, (math.prod(outer), rows, columns, 1))
    shape = (flat.shape[0], len(weight), columns, 1)
    y = draft.weighted("Convolution", flat, weight[:, :, None, None], shape, kernel_size=1)
    return draft.reshape(y, node.shape)


def inner_product(draft: Draft, x: Blob, weight: np.ndarray, shape: Shape) -> Blob:
    """An InnerProduct over the last axis; a Flatten or Reshape before it that makes that axis is taken in."""
    axis, made = len(x.shape) - 1, x.layer
    if axis < 1:
        x = draft.reshape(x, (1, *x.shape))
        y = inner_product(draft, x, weight, (1, len(weight)))
        return draft.reshape(y, shape)
    if made is not None and made.type in ("Flatten", "Reshape") and len(x.shape) == 2:
        before = made.bottoms[0]
        if len(before.shape) > 2 and before.shape[0] == x.shape[0]:
            x, axis = before, 1
    keys = differing(axis=(axis, 1))
    return draft.weighted("InnerProduct", x, weight, shape, **keys)


@recognises(("Reshape", ("Gemm:product", [("Reshape:rows", "x"), ("Flatten:rows", "x")])))
def find_inner_product(draft: Draft, node: Node, x: Blob, product: Node, rows: Node) -> Blob | None:
    """InnerProduct of the last axes: they are made rows of a matrix, which is multiplied, and back."""
    y, axis = product.outputs[0].blob, len(node.shape) - 1
    made = y.layer if y is not None else None
    if made is None or made.type != "InnerProduct" or made.keys.get("axis", 1) != 1:
        return None
    whole = rows.shape[1:] == (math.prod(x.shape[axis:]),)
    if axis < 2 or x.shape[:axis] != node.shape[:-1] or not whole:
        return None
    if made.keys["num_output"] != node.shape[-1] or len(x.shape) <= axis:
        return None
    return draft.layer(
        "InnerProduct", x, shape=node.shape, arrays=made.arrays, **made.keys | {"axis": axis}
    )


@writes("InnerProduct")
def write_inner_product(graph: Graph, step: Step, x: str) -> str:
    """Gemm of x as a matrix, whose weight is laid out as ours is."""
    layer: Any = step.layer
    axis, shapes = canonical_axis(layer.axis, step.bottoms[0].shape), graph.shapes(step.tops[0])
    x = graph.op("Flatten", x, axis=axis)
    given = [graph.param(step, i) for i in range(len(layer.params))]
    y = graph.op("Gemm", x, *given, transB=int(not layer.transpose))
    flat = [(math.prod(shape[:axis]), layer.num_output) for shape in shapes]
    return graph.reshape(y, flat, shapes, like=step.bottoms[0])


@writes("InnerDistance")
def write_inner_distance(graph: Graph, step: Step, x: str, *others: str) -> str:
    """ReduceSumSquare or ReduceL1 of each x less each w."""
    layer: Any = step.layer
    k, shapes = layer.mk[1], graph.shapes(step.bottoms[0])
    x = graph.reshape(x, shapes, [(int(np.prod(shape)) // k, 1, k) for shape in shapes])
    if layer.weight is None:
        given = graph.shapes(step.bottoms[1])
        w = graph.reshape(others[0], given, [(shape[0], k) for shape in given])
    elif layer.normalize:
        weight = layer.weight.to_host()
        w = graph.const(weight / np.sqrt((weight * weight).sum(axis=1, keepdims=True) + 1e-6))
    else:
        w = graph.param(step, 0)
    kind = "ReduceL1" if layer.distance_type == "L1" else "ReduceSumSquare"
    y = graph.op(kind, graph.op("Sub", x, w), axes=[2], keepdims=0)
    flat = [(int(np.prod(shape)) // k, layer.n) for shape in shapes]
    return graph.reshape(y, flat, graph.shapes(step.tops[0]))


@reads("Gather")
def read_gather(draft: Draft, node: Node) -> Blob:
    """Slice and Concat of the entries that are wanted; rows of a constant by Embed."""
    table, indices = node.const(0), node.const(1)
    axis = node.get("axis", 0)
    if indices is None:
        if table is None or axis != 0 or table.ndim != 2:
            raise RefusedError("its indices are computed; Embed reads rows of a constant matrix")
        return _embed(draft, draft.blob(node.inputs[1]), table)
    x = draft.blob(node.inputs[0])
    axis %= len(x.shape)
    wanted = [int(index) % x.shape[axis] for index in indices.ravel()]
    return draft.reshape(draft.take(x, axis, wanted), node.shape)


@recognises(("Gather", "*table", ("Cast", "x")))
def find_embed(draft: Draft, node: Node, x: Blob, table: np.ndarray) -> Blob | None:
    """Embed: rows of a constant by numbers that are made whole."""
    return _embed(draft, x, table) if node.get("axis", 0) == 0 and table.ndim == 2 else None


def _embed(draft: Draft, index: Blob, table: np.ndarray) -> Blob:
    keys = {"input_dim": len(table), "num_output": table.shape[1], "bias_term": False}
    shape = (*index.shape, table.shape[1])
    return draft.layer("Embed", index, shape=shape, arrays=[table], **keys)


draws_below(lambda step: step.layer.input_dim, ("Embed", 0))


@writes("Embed")
def write_embed(graph: Graph, step: Step, x: str) -> str:
    """Rows of the weight, by numbers that are whole."""
    y = graph.op("Gather", graph.param(step, 0), graph.op("Cast", x, to=7), axis=0)
    return graph.op("Add", y, graph.param(step, 1)) if len(step.layer.params) > 1 else str(y)
