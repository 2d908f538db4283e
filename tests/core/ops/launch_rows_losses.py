"""Rows of test_launch.py's table: losses of pairs and of labels. Losses of 16 bits are float32."""

import numpy as np
from core.ops.cases import blank, numbers, put
from core.ops.launch_rows import drawn, summed, table

from minicaffe.core.ops import label_losses, pair_losses
from minicaffe.core.ops.softmax import Labels

ROWS, row = table()


def pair(device, dtype):
    """Two bottoms: if they are of 16 bits their difference takes more."""
    a, b = numbers(1, (8, 5), (8, 5), dtype=dtype)
    return put(device, a), put(device, b / dtype(64))


@row
def difference(device, dtype):
    out = blank(device, (8, 5), summed(dtype))
    a, b = pair(device, dtype)
    return lambda: pair_losses.difference(a, b, out), [out]


@row
def contrastive(device, dtype):
    """Of pairs that are alike and that are not, some nearer than the margin and some not."""
    kind = summed(dtype)
    diff = numbers(1, (8, 5), dtype=kind)[0] * np.arange(0.25, 2.25, 0.25, kind)[:, None]
    diff, similar = put(device, diff), put(device, [0, 1] * 4, dtype)
    scratch = (blank(device, (8, 5), kind), blank(device, 8, kind), blank(device, 8, bool))
    outs = [[blank(device, 8, kind) for _ in range(2)] for _ in range(2)]

    def run():
        for legacy, (losses, pull) in enumerate(outs):
            pair_losses.contrastive(diff, similar, 1.25, bool(legacy), losses, pull, scratch)

    return run, [array for out in outs for array in out]


def weighted(device, dtype):
    """a, b and two weights; and without weights."""
    a, b = pair(device, dtype)
    return (a, b, *drawn(device, summed(dtype), (8, 5), (8, 5), seed=2)), (a, b, None, None)


@row
def smooth_l1(device, dtype):
    work, *outs = (blank(device, (8, 5), summed(dtype)) for _ in range(3))
    both = weighted(device, dtype)

    def run():
        for given, out in zip(both, outs, strict=True):
            pair_losses.smooth_l1(*given, 1.5, out, work)

    return run, outs


@row
def smooth_l1_gradient(device, dtype):
    outs = [blank(device, (8, 5), dtype) for _ in range(2)]
    scale, both = put(device, 0.3, summed(dtype)), weighted(device, dtype)

    def run():
        for given, sign, out in zip(both, (1, -1), outs, strict=True):
            pair_losses.smooth_l1_gradient(*given, 1.5, scale, sign, out)

    return run, outs


def targets(device, dtype):
    """Scores and what they should be: 0, 1 or, ignored, -1."""
    wanted = np.random.default_rng(1).integers(-1, 2, (8, 5))
    return pair(device, dtype)[0], put(device, wanted, dtype), -1


@row
def sigmoid_cross_entropy(device, dtype):
    losses, valid, work = (blank(device, (8, 5), summed(dtype)) for _ in range(3))
    given, flags = targets(device, dtype), blank(device, (8, 5), bool)
    return (
        lambda: pair_losses.sigmoid_cross_entropy(*given, losses, valid, work, flags),
        [losses, valid],
    )


@row
def sigmoid_cross_entropy_gradient(device, dtype):
    find, (_, valid) = sigmoid_cross_entropy(device, dtype)
    find()
    given, scale = targets(device, dtype), put(device, 0.3, summed(dtype))
    dx, flags = blank(device, (8, 5), dtype), blank(device, (8, 5), bool)
    return (
        lambda: pair_losses.sigmoid_cross_entropy_gradient(*given, scale, dx, valid, flags),
        [dx],
    )


LABELS = [4, 0, 2, 2, 1, 3, 0, 4]  # of 5 classes


def labelled(device, dtype):
    """Labels, in the scores' type, what is read off them, a buffer of their size."""
    read = Labels.empty(device.xp, 8, 5, 1, summed(dtype))
    return put(device, LABELS, dtype), read, blank(device, 8, summed(dtype))


@row
def hinge(device, dtype):
    x = put(device, 2 * numbers(1, (8, 5), dtype=dtype)[0])
    (labels, read, own) = labelled(device, dtype)
    margins = blank(device, (8, 5), summed(dtype))
    return lambda: label_losses.hinge(x, labels, margins, read, own), [margins]


@row
def hinge_gradient(device, dtype):
    """Of the margins and of their squares."""
    x = put(device, 2 * numbers(1, (8, 5), dtype=dtype)[0])
    (labels, read, own) = labelled(device, dtype)
    scale, margins = put(device, 0.3, summed(dtype)), blank(device, (8, 5), summed(dtype))
    label_losses.hinge(x, labels, margins, read, own)
    outs = [blank(device, (8, 5), dtype) for _ in range(2)]

    def run():
        for squared, out in enumerate(outs):
            label_losses.hinge_gradient(margins, labels, bool(squared), scale, out, read, own)

    return run, outs


def probabilities(device, shape, dtype):
    """Numbers in 1/2 .. 1."""
    return put(device, np.abs(numbers(1, shape, dtype=dtype)[0]) / dtype(2) + dtype(0.5))


@row
def multinomial(device, dtype):
    prob, (labels, read, _) = probabilities(device, (8, 5), dtype), labelled(device, dtype)
    losses = blank(device, 8, summed(dtype))
    return lambda: label_losses.multinomial(prob, labels, losses, read), [losses]


@row
def multinomial_gradient(device, dtype):
    prob, (labels, read, own) = probabilities(device, (8, 5), dtype), labelled(device, dtype)
    label_losses.multinomial(prob, labels, own, read)
    scale, dx = put(device, 0.3, summed(dtype)), blank(device, (8, 5), dtype)
    return lambda: label_losses.multinomial_gradient(prob, labels, scale, dx, read, own), [dx]


def gained(device, dtype):
    """Probabilities, labels of which some are ignored, a matrix (7, 7) of numbers large and small; what is read, the scratch."""
    kind, shape = summed(dtype), (8, 7, 3)
    labels = put(device, np.random.default_rng(1).integers(0, 7, (8, 3)), kind)
    matrix = numbers(2, (7, 7), dtype=dtype)[0] * (0.5 ** np.arange(7)).astype(dtype)
    made = [what.empty(device.xp, *shape, kind) for what in (Labels, label_losses.InfogainScratch)]
    return (probabilities(device, shape, kind), labels, put(device, matrix)), *made


@row
def row_sums(device, dtype):
    (_, _, matrix), _, _ = gained(device, dtype)
    sums = blank(device, 7, summed(dtype))
    return lambda: label_losses.row_sums(matrix, sums), [sums]


@row
def infogain(device, dtype):
    given, read, scratch = gained(device, dtype)
    losses, work = (blank(device, shape, summed(dtype)) for shape in ((8, 3), (8, 7, 3)))
    return lambda: label_losses.infogain(*given, 2, losses, read, work, scratch), [
        losses,
        read.valid,
    ]


@row
def infogain_gradient(device, dtype):
    given, read, scratch = gained(device, dtype)
    losses, work, dx = (blank(device, s, summed(dtype)) for s in ((8, 3), (8, 7, 3), (8, 7, 3)))
    label_losses.infogain(*given, 2, losses, read, work, scratch)
    sums, scale = blank(device, 7, summed(dtype)), put(device, 0.3, summed(dtype))
    label_losses.row_sums(given[2], sums)
    return lambda: label_losses.infogain_gradient(*given, sums, 2, scale, dx, read, scratch), [dx]
