"""Caffe's convolution: sample by sample, im2col, GEMM, and the bias as a GEMM with a vector of ones.

x (n, c, h, w), weight (f, c/group, kh, kw), bias (f,), y (n, f, oh, ow). For sample s and group g

    y[s, g] = weight[g] im2col(x[s])[g] + bias[g] 1'          (f/g, k) (k, oh ow),  k = c/g kh kw

`work` is a flat buffer of `workspace(g)` elements; nothing else is allocated. Source: Caffe's
BaseConvolutionLayer; K. Chellapilla, S. Puri, P. Simard, High Performance Convolutional Neural
Networks for Document Processing, 2006.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.ops.im2col import col2im, im2col


def workspace(g: ConvGeometry) -> int:
    """Elements of the work buffer: one sample's columns, a vector of ones, and a product to add."""
    rows, places = g.column_shape
    return rows * places + places + max(math.prod(g.weight_shape), g.f * places)


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight * x + bias, into `out`."""
    columns, ones, scratch = _split(work, g)
    places = g.oh * g.ow
    w = weight.reshape(g.group, g.f // g.group, -1)
    y = out.reshape(g.n, g.group, g.f // g.group, places)
    for s in range(g.n):
        col = im2col(x[s], g.window, columns).reshape(g.group, -1, places)
        for i in range(g.group):
            gemm(w[i], col[i], y[s, i])
        if bias is not None:
            gemm(
                bias.reshape(-1, 1),
                ones,
                y[s].reshape(g.f, places),
                accumulate=True,
                scratch=scratch,
            )
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx[s] = col2im(weight' dy[s]), into `out`."""
    columns, _, _ = _split(work, g)
    places = g.oh * g.ow
    w = weight.reshape(g.group, g.f // g.group, -1)
    dy = dy.reshape(g.n, g.group, g.f // g.group, places)
    col = columns.reshape(g.group, -1, places)
    for s in range(g.n):
        for i in range(g.group):
            gemm(w[i].T, dy[s, i], col[i])
        col2im(columns, g.window, out[s])
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight = sum over samples of dy[s] im2col(x[s])', added to `out`."""
    columns, _, scratch = _split(work, g)
    places = g.oh * g.ow
    dw = out.reshape(g.group, g.f // g.group, -1)
    dy = dy.reshape(g.n, g.group, g.f // g.group, places)
    for s in range(g.n):
        col = im2col(x[s], g.window, columns).reshape(g.group, -1, places)
        for i in range(g.group):
            gemm(dy[s, i], col[i].T, dw[i], accumulate=True, scratch=scratch)
    return out


def bias_gradient(dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dbias = sum over samples of dy[s] 1, added to `out`."""
    _, ones, scratch = _split(work, g)
    for s in range(g.n):
        gemm(dy[s].reshape(g.f, -1), ones.T, out.reshape(-1, 1), accumulate=True, scratch=scratch)
    return out


def _split(work: Any, g: ConvGeometry) -> tuple[Any, Any, Any]:
    rows, places = g.column_shape
    columns, ones, scratch = (
        work[: rows * places],
        work[rows * places : (rows + 1) * places],
        work[(rows + 1) * places :],
    )
    ones.fill(1)
    return columns.reshape(rows, g.oh, g.ow), ones.reshape(1, places), scratch
