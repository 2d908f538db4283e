"""The layers of sequences that forks have."""
# ruff: noqa: N802

import itertools
import math

import numpy as np
from core.layers.references.draws import drawn
from core.layers.references.points import sigmoid


def Lstm(layer, x, *clips):
    """Entry by entry; where there is a clip, a pass goes on from the one before."""
    weight, state_weight, bias = layer.params
    d, n = state_weight.shape[1], layer.batch_size
    rows = x.reshape(len(x) // n, n, -1)
    clip = clips[0].reshape(rows.shape[:2]) if clips else None
    h, c = getattr(layer, "carried", np.zeros((2, n, d))).copy() if clips else np.zeros((2, n, d))
    out = np.zeros((*rows.shape[:2], d))
    for s, i in np.ndindex(rows.shape[:2]):
        goes_on = clip[s, i] if clips else s > 0
        before = h[i] if goes_on else np.zeros(d)
        z = [weight[r] @ rows[s, i] + state_weight[r] @ before + bias[r] for r in range(4 * d)]
        for k in range(d):
            kept = sigmoid(z[d + k]) * c[i, k] if goes_on else 0
            c[i, k] = kept + sigmoid(z[k]) * math.tanh(z[3 * d + k])
        h[i] = [sigmoid(z[2 * d + k]) * math.tanh(c[i, k]) for k in range(d)]
        out[s, i] = h[i]
    layer.carried = np.array([h, c])
    return out.reshape(len(x), d)


@drawn("Lstm", sizes=((1, 4), (1, 3), (1, 3), (1, 3)), clipped=(0, 1), count=25)
def lstm_case(random, sizes, clipped):
    t, n, k, d = sizes
    passes = [
        [random.normal(size=(t * n, k)), *random.integers(2, size=(clipped, t * n))] for _ in "12"
    ]
    return {"num_output": d, "batch_size": n}, *passes


def Reverse(layer, x):
    return np.moveaxis([*np.moveaxis(x, layer.axis, 0)][::-1], 0, layer.axis)


@drawn("Reverse", axis=[0, 1, 2, -1], count=8)
def reverse_case(random, **keys):
    return keys, [random.normal(size=(3, 4, 2))]


def Transpose(layer, x):
    y = np.zeros([x.shape[i] for i in layer.dim])
    for place in np.ndindex(x.shape):
        y[tuple(place[i] for i in layer.dim)] = x[place]
    return y


@drawn("Transpose", dim=list(itertools.permutations(range(3))), count=12)
def transpose_case(random, **keys):
    return keys, [random.normal(size=(3, 4, 2))]


def ContinuationIndicator(layer):
    return [[float(t > 0)] * layer.batch_size for t in range(layer.time_step)]


@drawn("ContinuationIndicator", time_step=(1, 3), batch_size=(1, 2), count=4)
def indicator_case(random, **keys):
    return keys, []


def said(way, blank, merge):
    """What a way says."""
    kept = [one for i, one in enumerate(way) if not (merge and i and one == way[i - 1])]
    return [one for one in kept if one != blank]


def p_of(label, scores, blank, merge):
    """The probability of a label: the sum over every way there is."""
    y = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    ways = itertools.product(range(scores.shape[1]), repeat=len(scores))
    chosen = (way for way in ways if said(way, blank, merge) == label)
    return sum(math.prod(y[t, one] for t, one in enumerate(way)) for way in chosen)


def length_of(go):
    """How many steps a sequence has: it goes on while the indicator is not 0."""
    return 1 + len(list(itertools.takewhile(bool, go[1:])))


def known(label):
    return list(itertools.takewhile(lambda one: one >= 0, map(int, label)))


def CTCLoss(layer, x, go, labels):
    t, n, c = x.shape[:3]
    scores, total = x.reshape(t, n, c), 0.0
    blank, merge = layer.blank_index % c, layer.ctc_merge_repeated
    for i in range(n):
        label = known(labels[:, i])
        if layer.preprocess_collapse_repeated:
            label = [one for one, _ in itertools.groupby(label)]
        steps = scores[layer.output_delay : length_of(go[:, i]), i]
        total -= math.log(p_of(label, steps, blank, merge) if label else 1)
    return total / n


@drawn(
    "CTCLoss", sizes=((1, 5), (1, 3), (2, 3)), blank_index=(-1, 1), output_delay=(0, 1),
    ctc_merge_repeated=[False, True], preprocess_collapse_repeated=[False, True], count=40
)  # fmt: skip
def ctc_case(random, sizes, **keys):
    """Labels are what some way says."""
    t, n, c = sizes
    keys["output_delay"] = delay = min(keys["output_delay"], t - 1)
    go, labels = np.ones((t, n)), np.full((t, n), -1)
    for i in range(n):
        length = int(random.integers(delay + 1, t + 1))
        go[0, i], go[length:, i] = 0, 0
        way = random.integers(c, size=length - delay)
        label = said(way, keys["blank_index"] % c, keys["ctc_merge_repeated"])
        labels[: len(label), i] = label
    return keys, [random.normal(size=sizes), go, labels]


def CtcLoss(layer, x, labels):
    """A label that is too long has no loss; blanks in labels are left out."""
    n, total = x.shape[1], 0.0
    for i in range(n):
        label = [int(one) for one in labels[i] if one != layer.blank_label]
        p = p_of(label, x[:, i], layer.blank_label, True)
        total -= math.log(p) if p else 0
    return total / n


@drawn("CtcLoss", sizes=((1, 4), (1, 3), (2, 3)), blank_label=(0, 1), most=(1, 3))
def warp_ctc_case(random, sizes, most, **keys):
    t, n, c = sizes
    labels = random.integers(c, size=(n, most))
    return {"alphabet_size": c, "time_step": t, **keys}, [random.normal(size=sizes), labels]


def far(a, b):
    """The edit distance, by its definition."""
    if not a or not b:
        return len(a) + len(b)
    return min(far(a[1:], b) + 1, far(a, b[1:]) + 1, far(a[1:], b[1:]) + (a[0] != b[0]))


def CTCGreedyDecoder(layer, x, go, *labels):
    """What is said, and how sure that is, and how right; of two tops with labels, how right is the second."""
    t, n, c = x.shape
    rows, scores, right = np.full((t, n, 1, 1), -1), np.zeros((n, 1, 1, 1)), 1.0
    for i in range(n):
        way = [int(x[s, i].argmax()) for s in range(length_of(go[:, i]))]
        scores[i] = -sum(x[s, i, one] for s, one in enumerate(way))
        found = said(way, layer.blank_index % c, layer.ctc_merge_repeated)
        rows[: len(found), i, 0, 0] = found
        label = known(labels[0][:, i]) if labels else []
        right -= far(found, label) / max(len(found), len(label), 1) / n
    tops = rows, scores, [[[[right]]]]
    return (tops[0], tops[2]) if labels and layer.tops == 2 else tops


@drawn(
    "CTCGreedyDecoder", sizes=((1, 5), (1, 3), (2, 4)), blank_index=(-1, 1),
    ctc_merge_repeated=[False, True], labelled=(0, 1), tops=(2, 3)
)  # fmt: skip
def decoding_case(random, sizes, labelled, tops, **keys):
    t, n, c = sizes
    bottoms = [random.normal(size=sizes), random.integers(4, size=(t, n)) > 0]
    keys["top"] = ["a", "b", "c"][: tops if labelled else 2]
    return keys, [*bottoms, *[random.integers(-1, c, size=(t, n))] * labelled]
