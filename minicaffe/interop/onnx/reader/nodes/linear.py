"""Gemm and MatMul: products with a matrix of numbers."""

from __future__ import annotations

import math

import numpy as np

from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node
from minicaffe.interop.onnx.reader.nodes.window import convolution
from minicaffe.interop.onnx.reader.table import RefusedError, reads


@reads("Gemm")
def gemm(draft: Draft, node: Node) -> Blob:
    """InnerProduct; alpha and beta are multiplied into its numbers."""
    weight = node.needs_const(1, "second matrix")
    x = draft.blob(node.inputs[0])
    if node.get("transA", 0):
        raise RefusedError("transA turns the samples into features")
    weight = weight if node.get("transB", 0) else weight.T
    weight = weight * np.float32(node.get("alpha", 1.0))
    y = inner_product(draft, x, weight, None, node.shape)
    if node.input(2) is None:
        return y
    term = node.const(2)
    if term is None:
        scaled = draft.linear(draft.blob(node.inputs[2]), node.get("beta", 1.0))
        return draft.combined("Bias", y, scaled, node.shape)
    term = np.broadcast_to(term, np.broadcast_shapes(term.shape, (1, len(weight))))
    return draft.plus(y, term * np.float32(node.get("beta", 1.0))) if term.any() else y


@reads("MatMul")
def mat_mul(draft: Draft, node: Node) -> Blob:
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
    y = inner_product(draft, x, matrix.T, None, shape)
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
    y = convolution(draft, flat, weight[:, :, None, None], None, shape, kernel_size=1)
    return draft.reshape(y, node.shape)


def inner_product(
    draft: Draft, x: Blob, weight: np.ndarray, bias: np.ndarray | None, shape: tuple[int, ...]
) -> Blob:
    """An InnerProduct over the last axis; a Flatten or Reshape before it that makes that axis is taken in."""
    axis, made = len(x.shape) - 1, x.layer
    if axis < 1:
        x = draft.reshape(x, (1, *x.shape))
        y = inner_product(draft, x, weight, bias, (1, len(weight)))
        return draft.reshape(y, shape)
    if made is not None and made.type in ("Flatten", "Reshape") and len(x.shape) == 2:
        before = made.bottoms[0]
        if len(before.shape) > 2 and before.shape[0] == x.shape[0]:
            x, axis = before, 1
    arrays = [weight] if bias is None else [weight, bias]
    keys = {} if axis == 1 else {"axis": axis}
    keys |= {"bias_term": False} if bias is None else {}
    return draft.layer(
        "InnerProduct", x, shape=shape, arrays=arrays, num_output=len(weight), **keys
    )
