"""Losses of distances against slow loops in float64, written from their authors' definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kit import check, host, near, single

from minicaffe.core.layers.blob import float_type
from minicaffe.core.ops.random import random_stream

RNG = np.random.default_rng(5)
WEIGHT = 0.5


def lost(kind, keys, bottoms, device, tops="[it]"):
    """The net of a loss with the loss weight 0.5, after both passes."""
    weights = [WEIGHT] + [0] * tops.count(",")
    more = f"loss_weight: {weights}" + (f", {keys}" if keys else "")
    made = single(kind, more, bottoms, device, tops=tops)
    made.backward()
    return made


@pytest.mark.parametrize("kind", ["L1Loss", "ManhattanLoss"])
def test_sums_of_magnitudes_against_loops(kind, device):
    a, b = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 2, 2))
    made = lost(kind, "", [a, b], device)
    pairs = list(zip(a.ravel(), b.ravel(), strict=True))
    check(made, it=sum(abs(p - q) for p, q in pairs) / 3)
    signs = np.reshape([1 if p > q else -1 for p, q in pairs], a.shape) * WEIGHT / 3
    check(made, b0=signs, b1=-signs.reshape(b.shape))


def test_weighted_euclidean_loss_against_loops(device):
    a, b, w = (RNG.normal(size=(3, 4)) for _ in range(3))
    made = lost("WeightedEuclideanLoss", "", [a, b, abs(w)], device)
    every = [abs(r) * (p - q) ** 2 for p, q, r in zip(a.flat, b.flat, w.flat, strict=True)]
    check(made, it=sum(every) / 6)
    wanted = WEIGHT * abs(w) * (a - b) / 3
    check(made, b0=wanted, b1=-wanted)


def test_dice_loss_against_loops(device):
    """The gradient is that of n times the loss, as the forks have it."""
    a, b = RNG.random((3, 2, 2)), (RNG.random((3, 4)) > 0.5) * 1.0
    made = lost("DiceCoefLoss", "", [a, b], device)
    rows = a.reshape(3, 4)
    dice, da, db = [], np.zeros((3, 4)), np.zeros((3, 4))
    for i in range(3):
        over = (rows[i] ** 2).sum() + (b[i] ** 2).sum() + 1
        dice.append((2 * (rows[i] * b[i]).sum() + 1) / over)
        da[i] = WEIGHT * 2 * (dice[i] * rows[i] - b[i]) / over
        db[i] = WEIGHT * 2 * (dice[i] * b[i] - rows[i]) / over
    check(made, it=1 - sum(dice) / 3, b0=da.reshape(a.shape), b1=db)


@pytest.mark.parametrize("mu", [1.0, 0.3])
@pytest.mark.parametrize("sample", [False, True])
def test_triplets_against_loops(device, mu, sample):
    """Groups of a label; the last label's samples stand in two places, and are no pairs across them."""
    x, labels = RNG.normal(size=(9, 2)), [3, 3, 3, 1, 1, 2, 2, 3, 3]
    keys = f"margin: 0.8, mu: {mu}, sample: {str(sample).lower()}"
    tops = "[it, right, counts]"
    made = lost("BatchTripletLoss", keys, [x, np.array(labels, float)], device, tops)
    groups = [[0, 1, 2], [3, 4], [5, 6], [7, 8]]
    d = [[((p - q) ** 2).sum() for q in x] for p in x]
    pairs = [(i, j) for group in groups for i in group for j in group if i != j]
    losses, below, right, dx = [], [], [], np.zeros_like(x)
    for i, j in pairs:
        for k in range(9):
            if labels[k] != labels[i]:
                loss = 0.8 + d[i][j] - d[i][k]
                losses.append(max(loss, 0))
                right.append(d[i][j] < d[i][k])
                if loss > 0 and (not sample or d[i][k] > d[i][j]):
                    below.append((i, j, k))
    rank, pair = np.mean(losses), np.mean([d[i][j] for i, j in pairs])
    pair = pair if mu < 1 else 0
    for i, j, k in below:
        scale = 2 * mu / len(below)
        dx[i] += scale * (x[k] - x[j])
        dx[j] += scale * (x[j] - x[i])
        dx[k] += scale * (x[i] - x[k])
    for i, j in pairs:
        dx[i] += (1 - mu) * 2 / len(pairs) * (x[i] - x[j])
        dx[j] += (1 - mu) * 2 / len(pairs) * (x[j] - x[i])
    check(made, it=mu * rank + (1 - mu) * pair, right=np.mean(right))
    chosen = [0.8 + d[i][j] - d[i][k] for i, j, k in below]
    counts = [np.mean(chosen), rank, pair, len(losses), len(below)]
    check(made, counts=np.reshape(counts, (1, 1, 1, 5)), b0=WEIGHT * dx)


def test_a_batch_without_triplets_has_no_loss(device):
    made = lost("BatchTripletLoss", "mu: 0.5", [np.ones((3, 2)), np.arange(3.0)], device)
    assert not host(made, made.blobs["it"].data) and not host(made, made.blobs["b0"].diff).any()


def drawn_pairs():
    """The pairs that are drawn of 4 sources and of 6 targets."""
    stream, ends = random_stream(1, "it", 0), []
    for size in (4, 6):
        first = stream.integers(size, size=6)
        ends.append((first, (first + stream.integers(1, size, size=6)) % size))
    return ends


@pytest.mark.parametrize("num", [1, 5])
def test_mmd_against_loops(device, num):
    """With the very pairs that are drawn."""
    source, target = RNG.normal(size=(4, 3)), RNG.normal(size=(6, 3)) + 0.5
    keys = f"kernel_num: {num}, kernel_mul: 1.7"
    made = lost("MMDLoss", keys, [source, target], device)
    every = [*source, *target]
    gamma = 90 / sum(((p - q) ** 2).sum() for p in every for q in every)
    (s, s2), (t, t2) = drawn_pairs()
    assert (s != s2).all() and (t != t2).all()
    loss, ds, dt = 0.0, np.zeros_like(source), np.zeros_like(target)

    def add(p, q, dp, dq, sign):
        """A pair's part of the loss and of the gradients."""
        total, square = 0.0, ((p - q) ** 2).sum()
        for i in range(num):
            width = gamma * 1.7 ** (i - num // 2)
            total += sign * math.exp(-width * square)
            slope = -2 * width * sign * math.exp(-width * square) * (p - q)
            dp += slope
            dq -= slope
        return total

    for i in range(6):
        loss += add(source[s[i]], source[s2[i]], ds[s[i]], ds[s2[i]], 1)
        loss += add(target[t[i]], target[t2[i]], dt[t[i]], dt[t2[i]], 1)
        loss += add(source[s[i]], target[t2[i]], ds[s[i]], dt[t2[i]], -1)
        loss += add(target[t[i]], source[s2[i]], dt[t[i]], ds[s2[i]], -1)
    check(made, it=loss / 6, b0=WEIGHT * ds / 6, b1=WEIGHT * dt / 6)


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize(("num", "of_labels"), [(1, 1), (5, 1), (4, 3)])
def test_joint_mmd_against_loops(device, num, of_labels, auto):
    """With the very pairs that are drawn; features and answers have a gradient."""
    xs = [RNG.normal(size=(4, 3)), RNG.normal(size=(6, 3)) + 0.5]
    ys = [RNG.random((4, 2)), RNG.random((6, 2))]
    keys = f"kernel_num: {num}, kernel_mul: 1.7, label_kernel_num: {of_labels}, label_kernel_mul: 3"
    keys += ", auto_sigma: true" if auto else ", sigma: 0.7"
    made = lost("JMMDLoss", keys, [*xs, *ys], device)
    spread = [sum(((p - q) ** 2).sum() for p in rows for q in rows) / 90
              for rows in ([*xs[0], *xs[1]], [*ys[0], *ys[1]])]  # fmt: skip
    sigma = spread[1] if auto else 0.7
    (s, s2), (t, t2) = drawn_pairs()
    loss, dxs, dys = 0.0, [np.zeros_like(x) for x in xs], [np.zeros_like(y) for y in ys]
    for i in range(6):
        for a, p, b, q, sign in (
            (0, s[i], 0, s2[i], 1), (1, t[i], 1, t2[i], 1),
            (0, s[i], 1, t2[i], -1), (1, t[i], 0, s2[i], -1),
        ):  # fmt: skip
            dx, dy = xs[a][p] - xs[b][q], ys[a][p] - ys[b][q]
            for j in range(num):
                for k in range(of_labels):
                    wide = 1.7 ** (j - num // 2) / spread[0]
                    near_by = 1 / (sigma * 3.0 ** (k - of_labels // 2))
                    value = sign * math.exp(-wide * (dx**2).sum() - near_by * (dy**2).sum())
                    loss += value
                    slopes = -2 * wide * value * dx, -2 * near_by * value * dy
                    for deltas, slope in zip((dxs, dys), slopes, strict=True):
                        deltas[a][p] += slope
                        deltas[b][q] -= slope
    check(made, it=loss / 6)
    for i, wanted in enumerate([*dxs, *dys]):
        near(host(made, made.blobs[f"b{i}"].diff), WEIGHT * wanted / 6)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_entropy_against_loops(device, first):
    """What is below the threshold does not count, and in the first passes nothing does."""
    p = RNG.dirichlet([0.3, 0.3, 0.3, 0.3], 5)
    assert (p < 0.05).any()
    made = lost("EntropyLoss", f"threshold: 0.05, iterations_num: {first}", [p], device)
    for turn in range(2):
        if turn:
            made.forward(b0=p)
            made.backward()
        loss, dp = 0.0, np.zeros_like(p)
        for n, k in np.ndindex(5, 4):
            if p[n, k] >= 0.05 and turn >= first:
                loss -= p[n, k] * math.log(p[n, k])
                dp[n, k] = -1 - math.log(p[n, k])
        check(made, it=loss / 5, b0=WEIGHT * dp / 5)


def test_rows_of_length_1_against_loops(device):
    x = RNG.normal(size=(3, 2, 4))
    x[1] = 0
    made, pull = single("L2Norm", "loss_weight: 0", [x], device), RNG.normal(size=x.shape)
    made.backward(it=pull)
    for n in range(3):
        row, dy = x[n].ravel(), pull[n].ravel()
        length = math.sqrt(sum(v * v for v in row))
        y = [v / length if length else 0 for v in row]
        along = sum(a * b for a, b in zip(y, dy, strict=True))
        dx = [(d - v * along) / length if length else 0 for v, d in zip(y, dy, strict=True)]
        near(host(made, made.blobs["it"].data)[n].ravel(), y)
        near(host(made, made.blobs["b0"].diff)[n].ravel(), dx)


@pytest.mark.parametrize("fixed", [False, True])
def test_mmd_keeps_its_width_if_asked_to(fixed):
    source, target = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 3))
    keys = f"fix_gamma: {str(fixed).lower()}"
    made = single("MMDLoss", keys, [source, target])
    before = float(made.layers["it"].gamma)
    made.forward(b0=2 * source, b1=2 * target)
    ratio = before / float(made.layers["it"].gamma)
    assert ratio == pytest.approx(1 if fixed else 4)


LOSSES = [
    "L1Loss",
    "DiceCoefLoss",
    "WeightedEuclideanLoss",
    "MMDLoss",
    "SigmoidCrossEntropyBalanceLoss",
]


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_against_float64(kind, dtype, cuda):
    """The losses are float32; bottoms that 16 bits can hold."""
    count = 3 if kind == "WeightedEuclideanLoss" else 2
    given = list(RNG.normal(size=(count, 5, 6)).astype(float_type(dtype)).astype(np.float64))
    if kind.startswith("Sigmoid"):
        given[1] = (given[1] > 0) * 1.0
    exact = single(kind, "loss_weight: 2", given)
    half = single(kind, "loss_weight: 2", given, cuda, "TRAIN", dtype)
    exact.backward(), half.backward()
    assert half.blobs["it"].data.dtype.name == "float32"
    near(host(half, half.blobs["it"].data), host(exact, exact.blobs["it"].data), "float32")
    for name in ("b0", "b1")[: 1 + (kind != "SigmoidCrossEntropyBalanceLoss")]:
        near(host(half, half.blobs[name].diff), host(exact, exact.blobs[name].diff), dtype)
