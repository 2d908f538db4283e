"""MNC's layers against loops in Python's floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from core.layers.fork_nets import build, cases, run, there_and_back
from core.layers.test_rfcn import nearest
from hypothesis import given
from hypothesis import strategies as st

from minicaffe import DataError

seeds = st.integers(0, 2**32 - 1)


def between(plane, y, x):
    """A point of a plane, None outside."""
    h, w = plane.shape
    if not (-0.5 <= y <= h - 0.5 and -0.5 <= x <= w - 0.5):
        return None
    y, x = (min(max(v, 0), size - 1) for v, size in ((y, h), (x, w)))
    a, b = int(y), int(x)
    c, d = min(a + 1, h - 1), min(b + 1, w - 1)
    top = plane[a, b] * (1 - x + b) + plane[a, d] * (x - b)
    return top * (1 - y + a) + (plane[c, b] * (1 - x + b) + plane[c, d] * (x - b)) * (y - a)


def warped(x, rois, ph, pw, scale):
    """ROIWarping, point by point."""
    out = np.zeros((len(rois), x.shape[1], ph, pw))
    for r, (image, *ends) in enumerate(rois):
        x0, y0, x1, y1 = (nearest(v * scale) for v in ends)
        high, wide = max(y1 - y0, 0) / ph, max(x1 - x0, 0) / pw
        sy, sx = max(math.ceil(high), 1), max(math.ceil(wide), 1)
        for k in range(x.shape[1]):
            for i in range(ph):
                for j in range(pw):
                    read = [
                        between(
                            x[int(image), k], y0 + (i + p / sy) * high, x0 + (j + q / sx) * wide
                        )
                        for p in range(sy + 1)
                        for q in range(sx + 1)
                    ]
                    out[r, k, i, j] = max((v for v in read if v is not None), default=0)
    return out


@cases(40)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 7), st.integers(1, 8)),
    st.tuples(st.integers(1, 4), st.integers(1, 3)),
    st.integers(1, 5),
    st.sampled_from([1.0, 0.5, 0.0625]),
    seeds,
)
def test_warped_regions_against_loops(device, area, pooled, count, scale, seed):
    random, (n, h, w) = np.random.default_rng(seed), area
    x = random.normal(size=(n, 2, h, w))
    rois = random.uniform(-0.4, 1.4, (count, 5)) * np.array([1, w, h, w, h]) / scale
    rois[:, 0] = random.integers(n, size=count)
    keys = {"pooled_h": pooled[0], "pooled_w": pooled[1], "spatial_scale": scale}
    (got,) = run(build("ROIWarping", keys, [x.shape, rois.shape], device), x, rois)
    np.testing.assert_allclose(got, warped(x, rois, *pooled, scale), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("side", [np.nan, np.inf, 1e30])
def test_a_region_that_is_too_far_away(device, side):
    net = build("ROIWarping", {"pooled_h": 1, "pooled_w": 1}, [(2, 1, 2, 2), (1, 5)], device)
    with pytest.raises(DataError, match="region 0, 0, 1, .* is too far from its map"):
        run(net, np.ones((2, 1, 2, 2)), [[0, 0, 0, 1, side]])


def test_a_mask_against_loops(device):
    random = np.random.default_rng(0)
    x, mask = random.normal(size=(2, 3, 4, 5)), random.normal(size=(2, 1, 4, 5))
    net = build("MaskPooling", {}, [x.shape, mask.shape], device, phase="TRAIN")
    (got,), dy = run(net, x, mask), random.normal(size=x.shape)
    net.backward(it=dy)
    of_mask = net.device.to_host(net.blobs["b1"].diff)
    for n, k, y, z in np.ndindex(x.shape):
        assert got[n, k, y, z] == x[n, k, y, z] * mask[n, 0, y, z]
    for n, y, z in np.ndindex(2, 4, 5):
        assert of_mask[n, 0, y, z] == pytest.approx(sum(dy[n, :, y, z] * x[n, :, y, z]))


@cases(40)
@given(
    st.tuples(st.integers(1, 7), st.integers(1, 8)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    seeds,
)
def test_masks_of_another_size_against_loops(device, area, size, seed):
    """Where a larger mask's last entries lie behind the last pixel, they are 0."""
    random, (h, w), (oh, ow) = np.random.default_rng(seed), area, size
    x, pull = random.normal(size=(2, 2, h, w)), random.normal(size=(2, 2, oh, ow))
    keys = {"output_height": oh, "output_width": ow}
    net = build("MaskResize", keys, [x.shape], device, phase="TRAIN")
    (got,) = run(net, x)
    net.backward(it=pull)
    moved = x + 1e-3 * (step := random.normal(size=x.shape))
    total = 0.0
    for n, k, i, j in np.ndindex(2, 2, oh, ow):
        value, other = (between(one[n, k], i * (h / oh), j * (w / ow)) for one in (x, moved))
        assert got[n, k, i, j] == pytest.approx(0 if value is None else value, abs=1e-12)
        total += 0 if value is None else (other - value) * pull[n, k, i, j]
    along = (np.array(net.device.to_host(net.blobs["b0"].diff)) * step).sum() * 1e-3
    assert along == pytest.approx(total, rel=1e-6, abs=1e-12)


def test_a_prototxt_as_mncs_users_write_it():
    options, written = there_and_back("""
input: "conv5_3" input_shape { dim: 1 dim: 8 dim: 14 dim: 14 }
input: "rois" input_shape { dim: 8 dim: 5 }
layer {
  name: "roi_interpolate_conv5" type: "ROIWarping" bottom: "conv5_3" bottom: "rois" top: "roi_interpolate_conv5"
  roi_warping_param { pooled_w: 28 pooled_h: 28 spatial_scale: 0.0625 }
}""")
    assert options == {"pooled_w": 28, "pooled_h": 28, "spatial_scale": 0.0625}
    assert "roi_warping_param {" in written
    options, written = there_and_back("""
input: "mask_proposal" input_shape { dim: 8 dim: 1 dim: 21 dim: 21 }
layer {
  name: "mask_resize" type: "MaskResize" bottom: "mask_proposal" top: "mask_proposal_resize"
  mask_resize_param { output_height: 14 output_width: 14 }
}""")
    assert options == {"output_height": 14, "output_width": 14}
    assert "mask_resize_param {" in written
