"""R-FCN's layers against loops in Python's floats."""

from __future__ import annotations

import math

import numpy as np
from core.layers.fork_nets import build, cases, run, there_and_back
from hypothesis import given
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


def nearest(value):
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def bins_of_means(x, rois, dim, g, scale):
    """PSROIPooling, entry by entry."""
    out = np.zeros((len(rois), dim, g, g))
    for r, (image, *ends) in enumerate(rois):
        x0, y0 = (nearest(v) * scale for v in ends[:2])
        x1, y1 = ((nearest(v) + 1) * scale for v in ends[2:])
        high, wide = max(y1 - y0, 0.1) / g, max(x1 - x0, 0.1) / g
        for k in range(dim):
            for i in range(g):
                for j in range(g):
                    inside = [
                        x[int(image), (k * g + i) * g + j, a, b]
                        for a in range(x.shape[2])
                        for b in range(x.shape[3])
                        if math.floor(i * high + y0) <= a < math.ceil((i + 1) * high + y0)
                        and math.floor(j * wide + x0) <= b < math.ceil((j + 1) * wide + x0)
                    ]
                    out[r, k, i, j] = sum(inside) / len(inside) if inside else 0
    return out


@cases(40)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 8)),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 6),
    st.sampled_from([1.0, 0.5, 0.25, 0.0625]),
    seeds,
)
def test_means_of_bins_against_loops(device, area, dim, g, count, scale, seed):
    random, (n, h, w) = np.random.default_rng(seed), area
    x = random.normal(size=(n, dim * g * g, h, w))
    rois = random.uniform(-0.3, 1.2, (count, 5)) * np.array([1, w, h, w, h]) / scale
    rois[:, 0] = random.integers(n, size=count)
    keys = {"output_dim": dim, "group_size": g, "spatial_scale": scale}
    net = build("PSROIPooling", keys, [x.shape, rois.shape], device)
    (got,) = run(net, x, rois)
    np.testing.assert_allclose(got, bins_of_means(x, rois, dim, g, scale), rtol=1e-9, atol=1e-9)


def hardest(rois, loss, labels, weights, count, ignored):
    """BoxAnnotatorOHEM, region by region."""
    new_labels = [[ignored] * len(row) for row in labels]
    new_weights = np.zeros_like(weights)
    left = {}
    places = [(r, s) for r in range(loss.shape[0]) for s in range(loss.shape[1])]
    for r, s in sorted(places, key=lambda place: -loss[place]):
        image = rois[r, 0, s]
        left[image] = left.get(image, count) - 1
        if left[image] >= 0:
            new_labels[r][s] = labels[r, s]
            new_weights[r, :, s] = weights[r, :, s]
    return new_labels, new_weights


@cases(30)
@given(st.integers(1, 9), st.sampled_from([(), (1, 1), (2, 3)]), st.integers(1, 4), seeds)
def test_the_hardest_regions_against_loops(device, r, area, count, seed):
    random, s = np.random.default_rng(seed), math.prod(area)
    rois = random.integers(3, size=(r, 5, *area)).astype(float)
    loss = random.integers(4, size=(r, 1, *area)) / 4.0  # some are equal
    labels = random.integers(9, size=(r, 1, *area)).astype(float)
    weights = random.normal(size=(r, 8, *area))
    keys = {"roi_per_img": count, "ignore_label": -7}
    given_ = rois, loss, labels, weights
    net = build("BoxAnnotatorOHEM", keys, [one.shape for one in given_], device, tops=("a", "b"))
    flat = rois.reshape(r, 5, s), loss.reshape(r, s), labels.reshape(r, s), weights.reshape(r, 8, s)
    for got, wanted in zip(run(net, *given_), hardest(*flat, count, -7), strict=True):
        assert got.shape[2:] == (area or (1, 1))
        np.testing.assert_array_equal(got.ravel(), np.ravel(wanted))


def proposed(scores, given, info, keys):
    """Proposal, anchor by anchor."""
    (_, _, h, w), rows = scores.shape, []
    k = len(keys["ratio"]) * len(keys["scale"])
    for y in range(h):
        for x in range(w):
            i = 0
            for ratio in keys["ratio"]:
                wide = int(math.sqrt(keys["base_size"] ** 2 / ratio) + 0.5)
                high = int(wide * ratio + 0.5)
                for scale in keys["scale"]:
                    aw, ah = wide * scale, high * scale
                    cx = x * keys["feat_stride"] + (keys["base_size"] - 1) / 2 + 0.5
                    cy = y * keys["feat_stride"] + (keys["base_size"] - 1) / 2 + 0.5
                    dx, dy, dw, dh = given[0, 4 * i : 4 * i + 4, y, x]
                    cx = cx + dx * aw
                    cy = cy + dy * ah
                    bw = aw * math.exp(dw)
                    bh = ah * math.exp(dh)
                    ends = [cx - bw / 2, cy - bh / 2, cx + bw / 2, cy + bh / 2]
                    ends = [max(min(v, info[(j + 1) % 2] - 1), 0) for j, v in enumerate(ends)]
                    least = keys["min_size"] * info[2]
                    large = ends[2] - ends[0] + 1 >= least and ends[3] - ends[1] + 1 >= least
                    rows.append([float(scores[0, k + i, y, x]) if large else 0, *ends])
                    i += 1
    rows.sort(key=lambda row: -row[0])
    kept: list = []
    for row in rows[: keys["pre_nms_topn"]]:
        if all(shared(row[1:], other[1:]) <= keys["nms_thresh"] for other in kept):
            kept.append(row)
    return kept[: keys["post_nms_topn"]]


def shared(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0]) + 1
    h = min(a[3], b[3]) - max(a[1], b[1]) + 1
    both = max(w, 0) * max(h, 0)
    area = [(c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)]
    return both / (sum(area) - both)


@cases(40)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1, max_size=2),
    st.lists(st.sampled_from([1.0, 2.0, 8.0]), min_size=1, max_size=2),
    st.fixed_dictionaries(
        {
            "feat_stride": st.sampled_from([4, 16]),
            "base_size": st.sampled_from([8, 16]),
            "min_size": st.sampled_from([0, 16, 40]),
            "pre_nms_topn": st.sampled_from([1, 5, 6000]),
            "post_nms_topn": st.sampled_from([1, 3, 300]),
            "nms_thresh": st.sampled_from([0.0, 0.3, 0.7, 1.0]),
        }
    ),
    seeds,
)
def test_proposals_against_loops(device, area, ratio, scale, keys, seed):
    random, k = np.random.default_rng(seed), len(ratio) * len(scale)
    keys |= {"ratio": ratio, "scale": scale}
    scores = random.permutation(2 * k * area[0] * area[1]).reshape(1, 2 * k, *area) + 1.0
    given_, info = random.normal(size=(1, 4 * k, *area)) / 3, np.array([50.0, 70.0, 1.5])
    shapes = scores.shape, given_.shape, (1, 3)
    net = build("Proposal", keys, shapes, device, tops=("rois", "scores"))
    rois, best = run(net, scores, given_, info[None])
    wanted = np.array(proposed(scores, given_, info, keys))
    np.testing.assert_allclose(rois, np.insert(wanted[:, 1:], 0, 0, axis=1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(best, wanted[:, 0])


def test_a_fourth_number_is_the_scale_of_columns():
    keys = {"ratio": [1], "scale": [1], "min_size": 10, "nms_thresh": 1}
    net = build("Proposal", keys, [(1, 2, 1, 1), (1, 4, 1, 1), (1, 4)], tops=("rois", "scores"))
    for scales, score in (((1, 1), 0.5), ((2, 1), 0), ((1, 2), 0)):
        assert (
            run(net, np.full((1, 2, 1, 1), 0.5), np.zeros((1, 4, 1, 1)), [[99, 99, *scales]])[1]
            == score
        )


def test_a_prototxt_as_r_fcns_users_write_it():
    options, written = there_and_back("""
input: "maps" input_shape { dim: 1 dim: 392 dim: 14 dim: 14 }
input: "rois" input_shape { dim: 8 dim: 5 }
layer {
  bottom: "maps" bottom: "rois" top: "psroipooled" name: "pool" type: "PSROIPooling"
  psroi_pooling_param { spatial_scale: 0.0625 output_dim: 8 group_size: 7 }
}""")
    assert options == {"spatial_scale": 0.0625, "output_dim": 8, "group_size": 7}
    assert "psroi_pooling_param {" in written
    options, written = there_and_back("""
input: "r" input_shape { dim: 8 dim: 5 }
input: "l" input_shape { dim: 8 }
input: "w" input_shape { dim: 8 dim: 8 }
layer {
  bottom: "r" bottom: "l" bottom: "l" bottom: "w" top: "labels_ohem" top: "bbox_loss_weights_ohem"
  name: "annotate" type: "BoxAnnotatorOHEM" propagate_down: false propagate_down: false
  propagate_down: false propagate_down: false box_annotator_ohem_param { roi_per_img: 128 ignore_label: -1 }
}""")
    assert options["roi_per_img"] == 128 and "box_annotator_ohem_param {" in written
    options, written = there_and_back("""
input: "s" input_shape { dim: 1 dim: 18 dim: 3 dim: 4 }
input: "d" input_shape { dim: 1 dim: 36 dim: 3 dim: 4 }
input: "im_info" input_shape { dim: 1 dim: 3 }
layer {
  name: "proposal" type: "Proposal" bottom: "s" bottom: "d" bottom: "im_info" top: "rois" top: "scores"
  proposal_param {
    ratio: 0.5 ratio: 1.0 ratio: 2.0 scale: 8 scale: 16 scale: 32
    base_size: 16 feat_stride: 16 pre_nms_topn: 6000 post_nms_topn: 300 nms_thresh: 0.7 min_size: 16
  }
}""")
    assert options["ratio"] == (0.5, 1, 2) and options["scale"] == (8, 16, 32)
    assert "proposal_param {" in written
