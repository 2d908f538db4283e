"""MS-CNN's and Cascade R-CNN's layers against loops in Python's floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from core.layers.fork_nets import build, cases, run, there_and_back
from core.layers.test_mnc import between
from core.ops.test_roi_pool import reference
from hypothesis import given
from hypothesis import strategies as st

from minicaffe import DataError, Net
from minicaffe.interop import caffe

seeds = st.integers(0, 2**32 - 1)


def shared(a, b, kind):
    """By how much two boxes x, y, width, height overlap."""
    if min(*a[2:], *b[2:]) <= 0:
        return 0.0
    w = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    h = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    both, one, other = max(w, 0) * max(h, 0), a[2] * a[3], b[2] * b[3]
    return both / {"IOU": one + other - both, "IOMU": min(one, other), "IOFU": one}[kind]


def proposed(xs, keys):
    """BoxOutput, place by place: rows of image, x0, y0, x1, y1, score."""
    rows = []
    mean, std = keys.get("bbox_mean", [0] * 4), keys.get("bbox_std", [1] * 4)
    far, large = 1 / keys["field_xyr"], math.log(keys["field_whr"])
    for image in range(len(xs[0])):
        found = []
        for k, x in enumerate(xs):
            rate, wide, high = (keys[key][k] for key in ("downsample_rate", "field_w", "field_h"))
            _, c, h, w = x.shape
            for i in range(h):
                for j in range(w):
                    here = x[image, :, i, j]
                    score = max(here[1 : c - 4]) - here[0]
                    dx, dy, dw, dh = (
                        v * s + m for v, s, m in zip(here[-4:], std, mean, strict=True)
                    )
                    dx, dy = (min(max(v, -far), far) for v in (dx, dy))
                    bw, bh = (
                        size * math.exp(min(max(v, -large), large))
                        for size, v in ((wide, dw), (high, dh))
                    )
                    x0 = max(dx * wide + (j + 0.5) * rate - bw / 2, 0)
                    y0 = max(dy * high + (i + 0.5) * rate - bh / 2, 0)
                    bw, bh = min(bw, w * rate - x0), min(bh, h * rate - y0)
                    if score >= keys["fg_thr"] and min(bw, bh) >= keys["min_size"]:
                        found.append((score, len(found), x0, y0, bw, bh))
        kept = []
        for one in sorted(found, reverse=True)[: keys["max_nms_num"] or None]:
            if all(shared(o[2:], one[2:], keys["nms_type"]) <= keys["iou_thr"] for o in kept):
                kept.append(one)
        for score, _, x0, y0, bw, bh in kept[: keys["max_post_nms_num"] or None]:
            rows.append([image, x0, y0, x0 + bw, y0 + bh, score])
    return rows


@cases(40)
@given(
    st.integers(1, 2),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3),
    st.integers(2, 4),
    st.fixed_dictionaries(
        {
            "fg_thr": st.sampled_from([-9.0, -1.0, 0.5, 99.0]),
            "iou_thr": st.sampled_from([0.0, 0.3, 0.65]),
            "nms_type": st.sampled_from(["IOU", "IOMU", "IOFU"]),
            "field_whr": st.sampled_from([1.0, 2.0, 4.0]),
            "field_xyr": st.sampled_from([0.5, 2.0]),
            "max_nms_num": st.sampled_from([0, 1, 7]),
            "max_post_nms_num": st.sampled_from([0, 2]),
            "min_size": st.sampled_from([0.0, 9.0, 15.0]),
        }
    ),
    st.booleans(),
    seeds,
)
def test_proposed_regions_against_loops(device, n, areas, classes, keys, normal, seed):
    """Some scores are equal: of these the last place comes first."""
    random = np.random.default_rng(seed)
    xs = [random.normal(size=(n, classes + 4, *area)) for area in areas]
    for x in xs:
        x[:, :classes] = np.round(x[:, :classes])
    keys["field_w"], keys["field_h"] = random.integers(8, 40, size=(2, len(xs))).tolist()
    keys["downsample_rate"] = [8, 16, 32][: len(xs)]
    if normal:
        keys |= {"bbox_mean": [0.1, -0.1, 0.2, 0.3], "bbox_std": [0.5, 0.7, 1.5, 0.25]}
    net = build("BoxOutput", keys, [x.shape for x in xs], device, tops=("a", "b"))
    for _ in range(2):
        rois, scored = run(net, *xs)
        wanted = np.array(proposed(xs, keys)).reshape(-1, 6)
        if len(wanted):
            assert rois.shape == (len(wanted), 5, 1, 1)
            np.testing.assert_allclose(rois[..., 0, 0], wanted[:, :5], rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(scored[..., 0, 0], wanted, rtol=1e-9, atol=1e-9)
        else:
            assert rois.ravel().tolist() == [0, 1, 1, 10, 10] and not scored.any()
            assert scored.shape == (1, 6, 1, 1)
        xs = [x * 0.5 for x in xs]  # another number of regions


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@cases(25)
@given(st.integers(1, 6), st.booleans(), st.booleans(), st.sampled_from([0.5, 0.95]), seeds)
def test_regions_that_are_moved_against_loops(device, phase, r, normal, matched, most, seed):
    random, train = np.random.default_rng(seed), phase == "TRAIN"
    moves, rois = random.normal(size=(r, 8)) / 2, random.uniform(0, 20, (r, 5))
    rois[:, 3:] += rois[:, 1:3] * random.uniform(-1, 1, (r, 1))  # some are inside out
    keys, boxes = {"gt_iou_thr": most}, random.uniform(size=(r, 6))
    mean, std = [0.0] * 4, [1.0] * 4
    if normal:
        mean, std = [0.1, -0.1, 0.2, 0.3], [0.1, 0.1, 0.2, 0.2]
        keys |= {"bbox_mean": mean, "bbox_std": std}
    arrays = [moves, rois, *[boxes] * (train and matched)]
    net = build("DecodeBBox", keys, [one.shape for one in arrays], device, phase=phase)
    wanted = []
    for i in range(r):
        image, x0, y0, x1, y1 = rois[i]
        dx, dy, dw, dh = (v * s + m for v, s, m in zip(moves[i, 4:], std, mean, strict=True))
        w, h = x1 - x0 + 1, y1 - y0 + 1
        cx = dx * w + (x0 + x1) / 2
        cy = dy * h + (y0 + y1) / 2
        bw = w * math.exp(dw)
        bh = h * math.exp(dh)
        one = [image, cx - (bw - 1) / 2, cy - (bh - 1) / 2]
        one += [one[1] + bw - 1, one[2] + bh - 1]
        inside_out = one[1] > one[3] or one[2] > one[4]
        if not train or not (inside_out or (matched and boxes[i, -1] >= most)):
            wanted.append(one)
    if not wanted:
        with pytest.raises(DataError, match="no region is left"):
            run(net, *arrays)
        return
    (got,) = run(net, *arrays)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def drawn(random, n, h, w, count, scale):
    """Regions, some of which reach beyond the maps or end before they begin."""
    rois = random.uniform(-0.4, 1.4, (count, 5)) * np.array([1, w, h, w, h]) / scale
    rois[:, 0] = random.integers(n, size=count)
    return rois


@cases(40)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 7), st.integers(1, 8)),
    st.tuples(st.integers(1, 4), st.integers(1, 3)),
    st.integers(1, 5),
    st.sampled_from([1.0, 0.5, 0.0625]),
    st.sampled_from([0.0, 0.25]),
    seeds,
)
def test_corners_of_a_grid_against_loops(device, area, pooled, count, scale, ratio, seed):
    random, (n, h, w), (ph, pw) = np.random.default_rng(seed), area, pooled
    x, rois = random.normal(size=(n, 2, h, w)), drawn(random, n, h, w, count, scale)
    keys = {"pooled_h": ph, "pooled_w": pw, "spatial_scale": scale, "pad_ratio": ratio}
    wanted = np.zeros((count, 2, ph + 1, pw + 1))
    for r, (image, x0, y0, x1, y1) in enumerate(rois):
        px, py = (x1 - x0 + 1) * ratio, (y1 - y0 + 1) * ratio
        x0, x1, y0, y1 = ((v) * scale - 0.5 for v in (x0 - px, x1 + px, y0 - py, y1 + py))
        for k, i, j in np.ndindex(2, ph + 1, pw + 1):
            at = y0 + i * (y1 - y0) / ph, x0 + j * (x1 - x0) / pw
            found = between(x[int(image), k], *at) if x1 > x0 and y1 > y0 else None
            wanted[r, k, i, j] = 0 if found is None else found
    (got,) = run(build("ROIAlign", keys, [x.shape, rois.shape], device), x, rois)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


@cases(30)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 7), st.integers(1, 8)),
    st.tuples(st.integers(1, 4), st.integers(1, 3)),
    st.integers(1, 5),
    st.sampled_from([1.0, 0.5, 0.0625]),
    st.sampled_from([0.25, 1.0]),
    seeds,
)
def test_pooled_regions_that_are_widened_against_loops(
    device, area, grid, count, scale, ratio, seed
):
    random, (n, h, w) = np.random.default_rng(seed), area
    x, rois = random.normal(size=(n, 2, h, w)), drawn(random, n, h, w, count, scale)
    keys = {"pooled_h": grid[0], "pooled_w": grid[1], "spatial_scale": scale, "pad_ratio": ratio}
    net = build("ROIPooling", keys, [x.shape, rois.shape], device, phase="TRAIN")
    (got,) = run(net, x, rois)
    pulls = random.normal(size=got.shape)
    net.backward(it=pulls)
    wide = []
    for image, x0, y0, x1, y1 in rois.tolist():
        pw, ph = (x1 - x0 + 1) * ratio, (y1 - y0 + 1) * ratio
        wide.append([image, x0 - pw, y0 - ph, x1 + pw, y1 + ph])
    wanted, which = reference(x, np.array(wide), scale, grid)
    np.testing.assert_array_equal(got, wanted)
    dx = np.zeros_like(x)
    for r, k, p, q in np.ndindex(got.shape):
        if which[r, k, p, q] >= 0:
            dx[int(rois[r, 0]), k].reshape(-1)[which[r, k, p, q]] += pulls[r, k, p, q]
    np.testing.assert_allclose(net.device.to_host(net.blobs["b0"].diff), dx, rtol=1e-9, atol=1e-12)


CASCADE = """
input: "a" input_shape { dim: 1 dim: 6 dim: 4 dim: 6 }
input: "b" input_shape { dim: 1 dim: 6 dim: 2 dim: 3 }
input: "maps" input_shape { dim: 1 dim: 3 dim: 4 dim: 6 }
layer {
  name: "boxes" type: "BoxOutput" bottom: "a" bottom: "b" top: "rois"
  box_output_param {
    fg_thr: -10 iou_thr: 0.65 nms_type: "IOU" field_w: 20 field_w: 28 field_h: 40 field_h: 56
    downsample_rate: 8 downsample_rate: 16 field_whr: 2 field_xyr: 2 max_nms_num: 3000
  }
  bbox_reg_param { bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 bbox_mean: 0
    bbox_std: 0.1 bbox_std: 0.1 bbox_std: 0.2 bbox_std: 0.2 }
}
layer {
  name: "pooled" type: "ROIPooling" bottom: "maps" bottom: "rois" top: "pooled"
  roi_pooling_param { pooled_w: 2 pooled_h: 3 spatial_scale: 0.125 pad_ratio: 0.25 }
}
layer { name: "moves" type: "InnerProduct" bottom: "pooled" top: "moves" inner_product_param { num_output: 8 } }
layer {
  name: "next" type: "DecodeBBox" bottom: "moves" bottom: "rois" top: "next"
  bbox_reg_param { bbox_std: 0.1 bbox_std: 0.1 bbox_std: 0.2 bbox_std: 0.2
    bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 }
  decode_bbox_param { gt_iou_thr: 0.9 } propagate_down: 0 propagate_down: 0
}
layer {
  name: "it" type: "ROIAlign" bottom: "maps" bottom: "next" top: "it"
  roi_pooling_param { pooled_w: 5 pooled_h: 5 spatial_scale: 0.125 pad_ratio: 0.25 }
  propagate_down: 1 propagate_down: 0
}
"""


def test_a_prototxt_as_cascade_r_cnns_users_write_it(device):
    options, written = there_and_back(CASCADE)
    assert options["pad_ratio"] == 0.25 and options["pooled_w"] == 5
    for word in (
        "box_output_param {",
        "bbox_reg_param {",
        "decode_bbox_param {",
        "pad_ratio: 0.25",
    ):
        assert word in written
    again, spec = caffe.parse(written), caffe.parse(CASCADE)
    for mine, theirs in zip(again.layers, spec.layers, strict=True):
        assert mine.options.items() <= theirs.options.items()
    net = Net(spec, "TEST", device=device)
    found = net.forward(a=np.ones((1, 6, 4, 6)))
    assert found["it"].shape[1:] == (3, 6, 6)
