"""Layers of sequences that forks have, against loops in Python's floats."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from core.layers.fork_nets import build, cases, run, there_and_back
from hypothesis import given
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def lstm(x, weight, state_weight, bias, clip, carried):
    """Lstm of rows x (t, n, k), entry by entry; the last h and c too."""
    t, n, _ = x.shape
    d = state_weight.shape[1]
    h, c = (carried[0].copy(), carried[1].copy()) if clip is not None else np.zeros((2, n, d))
    out = np.zeros((t, n, d))
    for s, i in itertools.product(range(t), range(n)):
        goes_on = clip[s, i] if clip is not None else s > 0
        before = h[i].copy() if goes_on else np.zeros(d)
        z = [
            sum(weight[r, k] * x[s, i, k] for k in range(x.shape[2]))
            + sum(state_weight[r, k] * before[k] for k in range(d))
            + bias[r]
            for r in range(4 * d)
        ]
        for k in range(d):
            kept = sigmoid(z[d + k]) * c[i, k] if goes_on else 0
            c[i, k] = kept + sigmoid(z[k]) * math.tanh(z[3 * d + k])
            h[i, k] = sigmoid(z[2 * d + k]) * math.tanh(c[i, k])
        out[s, i] = h[i]
    return out, (h, c)


@cases(25)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    st.booleans(),
    seeds,
)
def test_an_lstm_against_loops(device, sizes, clipped, seed):
    """Two passes, of which the second goes on from the first where there is a clip."""
    random, (t, n, k, d) = np.random.default_rng(seed), sizes
    shapes = [(t * n, k)] + [(t * n,)] * clipped
    net = build("Lstm", {"num_output": d, "batch_size": n}, shapes, device)
    params = [random.normal(size=param.shape) for param in net.params["it"]]
    assert [one.shape for one in params] == [(4 * d, k), (4 * d, d), (4 * d,)]
    for param, values in zip(net.params["it"], params, strict=True):
        param.load(values)
    carried = np.zeros((2, n, d))
    for _ in range(2):
        x = random.normal(size=(t, n, k))
        clip = random.integers(2, size=(t, n)) if clipped else None
        (got,) = run(net, x.reshape(t * n, k), *([clip.ravel()] if clipped else []))
        wanted, carried = lstm(x, *params, clip, carried)
        np.testing.assert_allclose(got, wanted.reshape(t * n, d), rtol=1e-9, atol=1e-9)


def gradients(x, dy, params, device, **keys):
    """What Lstm gives back: of x, and of its parameters."""
    net = build("Lstm", {"num_output": 2, **keys}, [x.shape], device, phase="TRAIN")
    for param, values in zip(net.params["it"], params, strict=True):
        param.load(values)
    run(net, x)
    net.backward(it=dy)
    return [np.array(device.to_host(one.diff)) for one in (net.blobs["b0"], *net.params["it"])]


def test_gradients_of_gates_are_cut(device):
    """Of one step the bias has the sum of what the gates of each stream have, each cut by itself."""
    random = np.random.default_rng(0)
    x, dy = random.normal(size=(3, 2)), 10 * random.normal(size=(3, 2))
    params = [random.normal(size=shape) for shape in ((8, 2), (8, 2), (8,))]
    each = [gradients(x[i : i + 1], dy[i : i + 1], params, device)[3] for i in range(3)]
    assert np.abs(each).max() > 1
    got = gradients(x, dy, params, device, batch_size=3, clipping_threshold=0.25)
    cut = np.clip(each, -0.25, 0.25)
    np.testing.assert_allclose(got[3], cut.sum(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got[0], cut @ params[0], rtol=1e-9, atol=1e-12)


def test_a_limit_reaches_the_steps_before(device):
    """A step's gradient is cut before it goes on; a limit that nothing reaches changes nothing."""
    random = np.random.default_rng(1)
    x, dy = random.normal(size=(2, 2)), np.array([[0.0, 0], [50, -80]])
    params = [random.normal(size=shape) for shape in ((8, 2), (8, 2), (8,))]
    free = gradients(x, dy, params, device)
    wide = gradients(x, dy, params, device, clipping_threshold=1e6)
    for one, other in zip(free, wide, strict=True):
        np.testing.assert_array_equal(one, other)
    tight = gradients(x, dy, params, device, clipping_threshold=1e-3)
    dz = np.linalg.lstsq(x.T, tight[1].T, rcond=None)[0]  # of both steps, from dW = dz' x
    assert np.abs(dz).max() <= 1e-3 * (1 + 1e-9) and np.abs(dz[0]).max() > 0


def test_an_lstm_forgets_when_told_to(device):
    net = build("Lstm", {"num_output": 2}, [(3, 2), (3,)], device)
    for param in net.params["it"]:
        param.load(np.full(param.shape, 0.5))
    x, clip = np.ones((3, 2)), np.ones(3)
    first, second = run(net, x, clip)[0], run(net, x, clip)[0]
    assert not np.array_equal(first, second)
    net.layers["it"].reset()
    np.testing.assert_array_equal(run(net, x, clip)[0], first)
    assert len(net.layers["it"].running) == 2


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_an_axis_is_turned_round(device, axis):
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    (got,) = run(build("Reverse", {"axis": axis}, [x.shape], device), x)
    for place in np.ndindex(x.shape):
        other = list(place)
        other[axis] = x.shape[axis] - 1 - place[axis]
        assert got[place] == x[tuple(other)]


@pytest.mark.parametrize("dim", list(itertools.permutations(range(3))))
def test_axes_change_places(device, dim):
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    (got,) = run(build("Transpose", {"dim": dim}, [x.shape], device), x)
    for place in np.ndindex(x.shape):
        assert got[tuple(place[i] for i in dim)] == x[place]


def test_an_indicator_says_where_sequences_begin(device):
    net = build("ContinuationIndicator", {"time_step": 3, "batch_size": 2}, [], device)
    np.testing.assert_array_equal(run(net)[0], [[0, 0], [1, 1], [1, 1]])


def said(way, blank, merge):
    """What a way says."""
    kept = [one for i, one in enumerate(way) if not (merge and i and one == way[i - 1])]
    return [one for one in kept if one != blank]


def p_of(label, scores, blank, merge):
    """The probability of a label: the sum over every way there is."""
    y = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    ways = itertools.product(range(scores.shape[1]), repeat=len(scores))
    chosen = (way for way in ways if said(way, blank, merge) == list(label))
    return sum(math.prod(y[t, one] for t, one in enumerate(way)) for way in chosen)


@cases(40)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(2, 3)),
    st.integers(-1, 1),
    st.booleans(),
    st.integers(0, 1),
    st.booleans(),
    seeds,
)
def test_ctc_against_all_ways(device, sizes, blank, merge, delay, collapse, seed):
    random, (t, n, c) = np.random.default_rng(seed), sizes
    delay = min(delay, t - 1)
    x, last = random.normal(size=(t, n, c)), blank if blank >= 0 else c - 1
    go, labels, losses = np.ones((t, n)), np.full((t, n), -1), []
    for i in range(n):
        length = int(random.integers(delay + 1, t + 1))
        go[0, i], go[length:, i] = 0, 0
        way = random.integers(c, size=length - delay)
        label = said(way, last, merge)
        labels[: len(label), i] = label
        if collapse:
            label = [one for k, one in enumerate(label) if not k or one != label[k - 1]]
        p = p_of(label, x[delay:length, i], last, merge) if label else 1
        losses.append(-math.log(p))
    keys = {"blank_index": blank, "ctc_merge_repeated": merge, "output_delay": delay}
    keys["preprocess_collapse_repeated"] = collapse
    net = build("CTCLoss", keys, [x.shape, go.shape, labels.shape], device)
    assert run(net, x, go, labels)[0] == pytest.approx(sum(losses) / n, rel=1e-9, abs=1e-12)


@cases(30)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(2, 3)),
    st.integers(0, 1),
    st.integers(1, 3),
    seeds,
)
def test_ctc_of_warp_ctc_against_all_ways(device, sizes, blank, most, seed):
    """A label that is too long has no loss; blanks in labels are left out."""
    random, (t, n, c) = np.random.default_rng(seed), sizes
    x, labels, total = random.normal(size=(t, n, c)), random.integers(c, size=(n, most)), 0.0
    for i in range(n):
        p = p_of([one for one in labels[i] if one != blank], x[:, i], blank, True)
        total -= math.log(p) if p else 0
    keys = {"alphabet_size": c, "time_step": t, "blank_label": blank}
    net = build("CtcLoss", keys, [x.shape, labels.shape], device)
    assert run(net, x, labels)[0] == pytest.approx(total / n, rel=1e-9, abs=1e-12)


def test_ctc_of_scores_far_apart_is_finite(device):
    x = np.zeros((40, 1, 3))
    x[:, :, 0] = 2000
    net = build(
        "CtcLoss", {"alphabet_size": 3, "time_step": 40}, [x.shape, (1, 2)], device, phase="TRAIN"
    )
    assert run(net, x, [[1, 2]])[0] == pytest.approx(4000 - math.log(780))
    net.backward()
    assert np.isfinite(device.to_host(net.blobs["b0"].diff)).all()


def far(a, b):
    """The edit distance, by its definition."""
    if not a or not b:
        return len(a) + len(b)
    return min(far(a[1:], b) + 1, far(a, b[1:]) + 1, far(a[1:], b[1:]) + (a[0] != b[0]))


@cases(30)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(2, 4)),
    st.integers(-1, 1),
    st.booleans(),
    seeds,
)
def test_decoding_against_loops(device, sizes, blank, merge, seed):
    random, (t, n, c) = np.random.default_rng(seed), sizes
    x, last = random.normal(size=(t, n, c)), blank if blank >= 0 else c - 1
    go, labels = random.integers(4, size=(t, n)) > 0, random.integers(-1, c, size=(t, n))
    rows, scores, wrong = np.full((t, n), -1), np.zeros(n), 0.0
    for i in range(n):
        way = []
        for s in range(t):
            if s and not go[s, i]:
                break
            way.append(max(range(c), key=lambda k: x[s, i, k]))
            scores[i] -= x[s, i, way[-1]]
        found = said(way, last, merge)
        rows[: len(found), i] = found
        label = list(itertools.takewhile(lambda one: one >= 0, map(int, labels[:, i])))
        wrong += far(found, label) / max(len(found), len(label), 1)
    keys = {"blank_index": blank, "ctc_merge_repeated": merge}
    tops = ("a", "b", "c")
    net = build("CTCGreedyDecoder", keys, [x.shape, go.shape, go.shape], device, tops=tops)
    got = run(net, x, go, labels)
    assert [one.shape for one in got] == [(t, n, 1, 1), (n, 1, 1, 1), (1, 1, 1, 1)]
    np.testing.assert_array_equal(got[0].reshape(t, n), rows)
    np.testing.assert_allclose(got[1].ravel(), scores)
    assert got[2].item() == pytest.approx(1 - wrong / n)
    two = build("CTCGreedyDecoder", keys, [x.shape, go.shape], device, tops=tops[:2])
    np.testing.assert_allclose(run(two, x, go)[1].ravel(), scores)
    two = build("CTCGreedyDecoder", keys, [x.shape, go.shape, go.shape], device, tops=tops[:2])
    assert run(two, x, go, labels)[1].item() == got[2].item()


HEAD = """
input: "data" input_shape { dim: 8 dim: 2 dim: 5 }
input: "clip" input_shape { dim: 8 dim: 2 }
input: "label" input_shape { dim: 2 dim: 3 }
"""


def test_prototxts_as_their_users_write_them():
    options, written = there_and_back(
        HEAD
        + """
layer {
  name: "lstm1" type: "Lstm" bottom: "data" bottom: "clip" top: "lstm1"
  lstm_param {
    num_output: 15 clipping_threshold: 0.1 batch_size: 2
    weight_filler { type: "gaussian" std: 0.1 } bias_filler { type: "constant" }
  }
}"""
    )
    assert options["num_output"] == 15 and options["weight_filler"].std == 0.1
    assert "lstm_param {" in written
    options, _ = there_and_back(
        HEAD
        + 'layer { name: "r" type: "Lstm" bottom: "data" top: "r" lstm_param { num_output: 2 } }'
    )
    assert options["weight_filler"].type == "constant"  # as Caffe's weights start
    options, written = there_and_back("""
layer {
  name: "indicator" type: "ContinuationIndicator" top: "indicator"
  continuation_indicator_param { time_step: 80 batch_size: 16 }
}""")
    assert options == {"time_step": 80, "batch_size": 16}
    for line, wanted in [
        ('type: "Reverse" bottom: "data" reverse_param { axis: 1 }', {"axis": 1}),
        ('type: "Transpose" bottom: "data" transpose_param { dim: 2 dim: 0 dim: 1 }', {"dim": (2, 0, 1)}),
        ('type: "CtcLoss" bottom: "data" bottom: "label" loss_weight: 1.0 ctc_loss_param { blank_label: 4 '
         "alphabet_size: 5 time_step: 8 }", {"blank_label": 4, "alphabet_size": 5, "time_step": 8}),
        ('type: "CTCLoss" bottom: "data" bottom: "clip" bottom: "clip" ctc_loss_param { blank_index: 0 '
         "preprocess_collapse_repeated: true }", {"blank_index": 0, "preprocess_collapse_repeated": True}),
        ('type: "CTCGreedyDecoder" bottom: "data" bottom: "clip" ctc_decoder_param { ctc_merge_repeated: false '
         "blank_index: 1 }", {"ctc_merge_repeated": False, "blank_index": 1}),
    ]:  # fmt: skip
        options, written = there_and_back(HEAD + f'layer {{ name: "it" top: "it" {line} }}')
        assert {key: options[key] for key in wanted} == wanted
        block = line.split("{")[0].split()[-1]
        assert f"{block} {{" in written
