"""Flows that are no numbers; a deformable convolution without offsets is a convolution."""

from __future__ import annotations

import numpy as np
from core.layers.fork_nets import build, run


def test_a_flow_that_is_no_number_is_outside(device):
    net = build("FlowWarp", {}, [(1, 1, 2, 2), (1, 2, 2, 2)], device, phase="TRAIN")
    flow = np.zeros((1, 2, 2, 2))
    flow[0, 0, 1, 1], flow[0, 1, 0, 0] = np.nan, np.inf
    np.testing.assert_array_equal(run(net, np.ones((1, 1, 2, 2)), flow)[0], [[[[0, 1], [1, 0]]]])
    net.backward(it=np.ones((1, 1, 2, 2)))
    np.testing.assert_array_equal(device.to_host(net.blobs["b0"].diff), [[[[0, 1], [1, 0]]]])


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
