"""Layers of forks that read images between pixels, compare them, or move what they hold, against loops."""

from __future__ import annotations

import ctypes
import itertools
import math

import numpy as np
import pytest
from core.layers.fork_nets import build, cases, run, there_and_back
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.interop.caffe.forks.pairs import c_random

seeds = st.integers(0, 2**32 - 1)


def between(plane, y, x):
    """A point of a plane; 0 outside, and None there for whoever asks."""
    h, w = plane.shape
    if not (0 <= y < h and 0 <= x < w):
        return None
    a, b = int(y), int(x)
    c, d = min(a + 1, h - 1), min(b + 1, w - 1)
    top = plane[a, b] * (1 - x + b) + plane[a, d] * (x - b)
    return top * (1 - y + a) + (plane[c, b] * (1 - x + b) + plane[c, d] * (x - b)) * (y - a)


@cases(30)
@given(
    st.tuples(*[st.integers(1, n) for n in (2, 3, 5, 5)]),
    st.sampled_from(["ZERO", "NOT_A_NUMBER"]),
    st.booleans(),
    seeds,
)
def test_a_warped_image_against_loops(device, shape, fill, whole, seed):
    random = np.random.default_rng(seed)
    x, flow = random.normal(size=shape), 2 * random.normal(size=(shape[0], 2, *shape[2:]))
    flow = np.round(flow) if whole else flow
    keys = {"fill_value": fill}
    (got,) = run(build("FlowWarp", keys, [x.shape, flow.shape], device), x, flow)
    for n, k, i, j in np.ndindex(shape):
        wanted = between(x[n, k], i + flow[n, 1, i, j], j + flow[n, 0, i, j])
        if wanted is None:
            wanted = 0 if fill == "ZERO" else math.nan
        assert got[n, k, i, j] == pytest.approx(wanted, rel=1e-9, abs=1e-12, nan_ok=True)


def test_a_flow_that_is_no_number_is_outside(device):
    net = build("FlowWarp", {}, [(1, 1, 2, 2), (1, 2, 2, 2)], device, phase="TRAIN")
    flow = np.zeros((1, 2, 2, 2))
    flow[0, 0, 1, 1], flow[0, 1, 0, 0] = np.nan, np.inf
    np.testing.assert_array_equal(run(net, np.ones((1, 1, 2, 2)), flow)[0], [[[[0, 1], [1, 0]]]])
    net.backward(it=np.ones((1, 1, 2, 2)))
    np.testing.assert_array_equal(device.to_host(net.blobs["b0"].diff), [[[[0, 1], [1, 0]]]])


@cases(30)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(5, 7), st.integers(5, 8)),
    st.fixed_dictionaries(
        {
            "pad": st.integers(0, 2),
            "kernel_size": st.sampled_from([1, 3]),
            "max_displacement": st.integers(0, 1),
            "stride_1": st.integers(1, 2),
            "stride_2": st.integers(1, 2),
            "correlation_type": st.sampled_from(["MULTIPLY", "SUBTRACT"]),
        }
    ),
    seeds,
)
def test_correlation_against_loops(device, shape, keys, seed):
    random, pad, most = np.random.default_rng(seed), keys["pad"], keys["max_displacement"]
    a, b = random.normal(size=(2, *shape))
    (got,) = run(build("Correlation", keys, [shape, shape], device), a, b)
    wide = [np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))) for x in (a, b)]
    radius, size = most // keys["stride_2"], keys["kernel_size"]
    moves = [k * keys["stride_2"] for k in range(-radius, radius + 1)]
    border = most + size // 2
    out = [math.ceil((n + 2 * pad - 2 * border) / keys["stride_1"]) for n in shape[2:]]
    assert got.shape == (shape[0], len(moves) ** 2, *out)
    for n, i, j in np.ndindex(shape[0], *out):
        y, x = (keys["stride_1"] * at + most for at in (i, j))  # of a patch's first pixel
        for k, (p, o) in enumerate(itertools.product(moves, moves)):
            total = 0
            for c, v, u in np.ndindex(shape[1], size, size):
                one = wide[0][n, c, y + v, x + u]
                other = wide[1][n, c, y + p + v, x + o + u]
                multiplies = keys["correlation_type"] == "MULTIPLY"
                total += one * other if multiplies else abs(one - other)
            assert got[n, k, i, j] == pytest.approx(total / (shape[1] * size**2), abs=1e-9)


@cases(20)
@given(
    st.tuples(*[st.integers(1, n) for n in (2, 2, 4, 4)]),
    st.sampled_from([1, 2, 3, None]),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    seeds,
)
def test_interpolation_against_loops(device, shape, factor, size, seed):
    x = np.random.default_rng(seed).normal(size=shape)
    keys = {} if factor is None else {"interpolation_factor": factor}
    given_ = [x] if factor else [x, np.zeros((1, 1, *size))]
    (got,) = run(
        build("BilinearInterpolation", keys, [one.shape for one in given_], device), *given_
    )
    out = size if factor is None else (factor * shape[2], factor * shape[3])
    assert got.shape == (*shape[:2], *out)
    for n, k, i, j in np.ndindex(got.shape):
        y, z = (
            at * (small - 1) / (large - 1) if large > 1 else 0
            for at, small, large in zip((i, j), shape[2:], out, strict=True)
        )
        y, z = (min(at, small - 1) for at, small in zip((y, z), shape[2:], strict=True))
        assert got[n, k, i, j] == pytest.approx(between(x[n, k], y, z), rel=1e-9, abs=1e-12)


def test_random_numbers_are_those_of_gnus_library():
    try:
        library = ctypes.CDLL("libc.so.6")
    except OSError:
        pytest.skip("this system has no GNU C library")
    library.srand(1)
    assert c_random(2000) == [library.rand() for _ in range(2000)]


@cases(25)
@given(
    st.tuples(*[st.integers(1, n) for n in (2, 4, 3, 3)]),
    st.integers(1, 4),
    st.integers(1, 9),
    st.booleans(),
    seeds,
)
def test_compact_bilinear_against_loops(device, shape, other, d, pooled, seed):
    random, (n, c, h, w) = np.random.default_rng(seed), shape
    a, b = random.normal(size=shape), random.normal(size=(n, other, h, w))
    drawn = c_random(2 * (c + other))
    h1, s1 = [v % d for v in drawn[:c]], [2 * (v % 2) - 1 for v in drawn[c : 2 * c]]
    rest = drawn[2 * c :]
    h2, s2 = [v % d for v in rest[:other]], [2 * (v % 2) - 1 for v in rest[other:]]
    wanted = np.zeros((n, d, h, w))
    for i, j in np.ndindex(c, other):
        wanted[:, (h1[i] + h2[j]) % d] += s1[i] * s2[j] * a[:, i] * b[:, j]
    if pooled:
        wanted = wanted.sum(axis=(2, 3), keepdims=True)
    keys = {"num_output": d, "sum_pool": pooled}
    (got,) = run(build("CompactBilinear", keys, [a.shape, b.shape], device), a, b)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


@cases(25)
@given(
    st.tuples(st.integers(1, 2), st.integers(3, 6), st.integers(3, 6)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(1, 2)),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    seeds,
)
def test_deformable_convolution_against_loops(device, sizes, kernel, how, group, d, bias, seed):
    random = np.random.default_rng(seed)
    n, h, w = sizes
    kh, kw = kernel
    stride, pad, dilation = how
    out = [
        (size + 2 * pad - dilation * (k - 1) - 1) // stride + 1
        for size, k in zip((h, w), kernel, strict=True)
    ]
    if min(out) < 1:
        return
    x = random.normal(size=(n, 4, h, w))
    offset = 1.5 * random.normal(size=(n, 2 * d * kh * kw, *out))
    keys = {"num_output": 2, "kernel_h": kh, "kernel_w": kw, "stride": stride, "pad": pad}
    keys |= {"dilation": dilation, "group": group, "deformable_group": d, "bias_term": bias}
    net = build("DeformableConvolution", keys, [x.shape, offset.shape], device)
    params = [random.normal(size=param.shape) for param in net.params["it"]]
    for param, values in zip(net.params["it"], params, strict=True):
        param.load(values)
    (got,) = run(net, x, offset)
    assert got.shape == (n, 2, *out) and len(params) == 1 + bias
    for b, f, i, j in np.ndindex(got.shape):
        total = params[1][f] if bias else 0
        per = 4 // group
        for c, v, u in np.ndindex(per, kh, kw):
            channel = f // (2 // group) * per + c
            at = 2 * (channel // (4 // d) * kh * kw + v * kw + u)
            y = i * stride - pad + v * dilation + offset[b, at, i, j]
            z = j * stride - pad + u * dilation + offset[b, at + 1, i, j]
            total += params[0][f, c, v, u] * (between(x[b, channel], y, z) or 0)
        assert got[b, f, i, j] == pytest.approx(total, rel=1e-9, abs=1e-9)


def test_without_offsets_it_is_a_convolution(device):
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 4, 6, 7))
    keys = {"num_output": 6, "kernel_size": 3, "stride": 2, "group": 2}
    plain = build("Convolution", keys, [x.shape], device)
    other = build("DeformableConvolution", keys, [x.shape, (2, 18, 2, 3)], device)
    for param, mine in zip(plain.params["it"], other.params["it"], strict=True):
        values = random.normal(size=param.shape)
        param.load(values)
        mine.load(values)
    np.testing.assert_allclose(
        run(other, x, np.zeros((2, 18, 2, 3)))[0], run(plain, x)[0], atol=1e-12
    )
    assert other.layers["it"].multiply_adds == plain.layers["it"].multiply_adds


def darknets(x, s, forward):
    """Reorg of Darknet, on flat memory."""
    (n, c, h, w), flat = x.shape, x.ravel()
    out, few = np.zeros_like(flat), c // s**2
    for b, k, j, i in np.ndindex(n, c, h, w):
        here = i + w * (j + h * (k + c * b))
        shift = k // few
        row, column = j * s + shift // s, i * s + shift % s
        there = column + w * s * (row + h * s * (k % few + few * b))
        if forward:
            out[there] = flat[here]
        else:
            out[here] = flat[there]
    return out


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "s"), [((2, 8, 4, 6), 2), ((1, 9, 3, 6), 3), ((1, 3, 2, 2), 1)])
def test_places_become_channels_as_in_darknet(device, shape, s, reverse):
    x = np.random.default_rng(0).normal(size=shape)
    net = build("Reorg", {"stride": s, "reverse": reverse}, [shape], device)
    (got,) = run(net, x)
    n, c, h, w = shape
    wanted = (n, c // s**2, h * s, w * s) if reverse else (n, c * s**2, h // s, w // s)
    assert got.shape == wanted
    np.testing.assert_array_equal(got.ravel(), darknets(x, s, reverse))


def test_prototxts_as_their_users_write_them():
    head = 'input: "a" input_shape { dim: 1 dim: 4 dim: 8 dim: 8 }\n'
    head += 'input: "f" input_shape { dim: 1 dim: 2 dim: 8 dim: 8 }\n'
    for line, wanted in [
        ('type: "FlowWarp" bottom: "a" bottom: "f" flow_warp_param { fill_value: NOT_A_NUMBER }',
         {"fill_value": "NOT_A_NUMBER"}),
        ('type: "Correlation" bottom: "a" bottom: "a" correlation_param { pad: 20 kernel_size: 1 '
         "max_displacement: 20 stride_1: 1 stride_2: 2 }", {"pad": 20, "stride_2": 2, "max_displacement": 20}),
        ('type: "BilinearInterpolation" bottom: "a" bilinear_interpolation_param { interpolation_factor: 4 }',
         {"interpolation_factor": 4}),
        ('type: "CompactBilinear" bottom: "a" bottom: "a" compact_bilinear_param { num_output: 8192 '
         "sum_pool: false }", {"num_output": 8192, "sum_pool": False}),
        ('type: "Reorg" bottom: "a" reorg_param { stride: 2 }', {"stride": 2, "reverse": False}),
        ('type: "DeformableConvolution" bottom: "a" bottom: "f" param { lr_mult: 1 } param { lr_mult: 2 } '
         "deformable_convolution_param { num_output: 512 kernel_size: 3 stride: 1 pad: 2 engine: 1 dilation: 2 "
         'deformable_group: 4 weight_filler { type: "xavier" } bias_filler { type: "constant" } }',
         {"num_output": 512, "kernel_size": (3,), "dilation": (2,), "deformable_group": 4, "group": 1}),
    ]:  # fmt: skip
        options, written = there_and_back(head + f'layer {{ name: "it" top: "it" {line} }}')
        assert {key: options[key] for key in wanted} == wanted
        block = next(word for word in line.split() if word.endswith("_param"))
        assert f"{block} {{" in written
    text = (
        head + 'layer { name: "it" type: "DeformableConvolution" bottom: "a" bottom: "f" top: "it" '
    )
    options, _ = there_and_back(
        text + "deformable_convolution_param { num_output: 2 kernel_size: 1 } }"
    )
    assert options["weight_filler"].type == "constant"  # as Caffe's weights start
