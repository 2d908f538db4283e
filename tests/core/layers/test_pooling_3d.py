"""Pooling along three axes against loops, forward and backward, on the CPU and CUDA."""

from __future__ import annotations

import itertools
import math

import numpy as np
from core.layers.fork_nets import build
from core.ops.cases import cases
from hypothesis import assume, given
from hypothesis import strategies as st


def windows(size, k, s, p, ceil):
    """First and last place of each window of an axis, and how many places it counts, zeros of the pad too."""
    steps = (size + 2 * p - k) / s
    count = int(math.ceil(steps) if ceil else math.floor(steps)) + 1
    if p and (count - 1) * s >= size + p:
        count -= 1
    found = []
    for i in range(count):
        first = i * s - p
        last = min(first + k, size + p)
        found.append((max(first, 0), min(last, size), last - first))
    return found


def reference(x, kind, kernel, stride, pad, ceil):
    axes = [windows(x.shape[2 + i], kernel[i], stride[i], pad[i], ceil) for i in range(3)]
    y = np.zeros((*x.shape[:2], *map(len, axes)))
    for place in itertools.product(*[range(len(axis)) for axis in axes]):
        box = [axes[i][place[i]] for i in range(3)]
        part = x[:, :, box[0][0] : box[0][1], box[1][0] : box[1][1], box[2][0] : box[2][1]]
        if kind == "AVE":
            y[(..., *place)] = part.sum(axis=(2, 3, 4)) / math.prod(b[2] for b in box)
        else:
            y[(..., *place)] = part.max(axis=(2, 3, 4))
    return y


@cases(60)
@given(
    st.tuples(*[st.integers(2, 5)] * 3),
    st.tuples(*[st.integers(1, 3)] * 3),
    st.tuples(*[st.integers(1, 3)] * 3),
    st.booleans(),
    st.sampled_from(["MAX", "AVE"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_against_loops(device, size, kernel, stride, padded, kind, ceil, seed):
    pad = tuple((k - 1) // 2 if padded else 0 for k in kernel)
    assume(all(k <= n + 2 * p for k, n, p in zip(kernel, size, pad, strict=True)))
    axes = [windows(n, k, s, p, ceil) for n, k, s, p in zip(size, kernel, stride, pad, strict=True)]
    assume(
        all(first < last for axis in axes for first, last, _ in axis)
    )  # of an empty one each has rules
    assume(len({bool(p) for p in pad[1:]}) == 1)  # a pad of either axis of an image counts for both
    x = np.random.default_rng(seed).permutation(4 * math.prod(size)).reshape(2, 2, *size) / 7
    keys = {"pool": kind, "kernel_size": list(kernel), "stride": list(stride), "pad": list(pad)}
    keys["round_mode"] = "CEIL" if ceil else "FLOOR"
    net = build("Pooling", keys, [x.shape], device, "float64")
    wanted = reference(x, kind, kernel, stride, pad, ceil)
    got = device.to_host(net.forward(b0=x)["it"])
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_the_case_of_a_forks_file():
    net = build("Pooling", {"kernel_size": 2, "stride": 2}, [(1, 2, 4, 6, 6)])
    x = np.arange(288.0).reshape(1, 2, 4, 6, 6)
    wanted = x.reshape(1, 2, 2, 2, 3, 2, 3, 2).max(axis=(3, 5, 7))
    np.testing.assert_array_equal(net.forward(b0=x)["it"], wanted)
