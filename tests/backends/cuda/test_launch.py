"""Every kernel gives the same bits whatever the order and the number of its threads."""

import itertools
import re
from importlib import resources
from types import SimpleNamespace

import numpy as np
import pytest
from core.ops import (
    cases,
    launch_rows_losses,
    launch_rows_moves,
    launch_rows_pooling,
    launch_rows_recurrent,
)
from core.ops import references as ref
from core.ops.cases import blank, close, numbers, put
from core.ops.launch_rows import drawn, held_in_memory, plain, summed, table

from minicaffe.backends import device as backend
from minicaffe.backends.cpu import threads
from minicaffe.backends.cuda import launch
from minicaffe.backends.cuda.capture import arrived
from minicaffe.backends.cuda.fusion import joined
from minicaffe.backends.step_constants import Slots
from minicaffe.core.ops import batch, channels, nan_guard, pool, random, update
from minicaffe.core.ops import elementwise as functions
from minicaffe.core.ops import lrn as response_norms
from minicaffe.core.ops import normalize as norms
from minicaffe.core.ops import softmax as accuracies
from minicaffe.core.ops import softmax as ops
from minicaffe.core.ops import take as tables
from minicaffe.core.ops.conv import ENGINES
from minicaffe.core.ops.geometry import ConvGeometry, Window
from minicaffe.core.ops.im2col import col2im, im2col
from minicaffe.core.ops.lrn import Response
from minicaffe.core.ops.rows import Affine, Norm, Past, Rows, Statistics, by_channel, workspace
from minicaffe.core.ops.rows import recall as recalled
from minicaffe.core.ops.rows import statistics as measure
from minicaffe.core.ops.softmax import Labels, Mean
from minicaffe.core.ops.sums import add_places, add_rows, total
from minicaffe.errors import ShapeError

CONV = Window((3, 2), (2, 1), (1, 2), (1, 2))  # image 7 x 6, columns 4 x 8
POOL = Window((3, 2), (2, 3), (1, 1))  # image 7 x 6, pooled 4 x 3
HALVES = Window((2, 2), (2, 2))
ROWS, row = table()


IMAGES, COLUMNS = (3, 3, 7, 6), (3, 18, 32)
ROWS["im2col"] = plain(lambda x, out: im2col(x, CONV, out), [IMAGES], COLUMNS)
ROWS["im2col_loopfree"] = plain(
    lambda x, out: im2col(x, CONV, out, form="loopfree"), [IMAGES], COLUMNS
)
ROWS["col2im"] = plain(lambda x, out: col2im(x, CONV, out), [COLUMNS], IMAGES)
ROWS["ave_pool"] = plain(lambda x, y: pool.ave_pool(x, POOL, y), [(2, 3, 7, 6)], (2, 3, 4, 3))
ROWS["scale"] = plain(channels.scale, [(3, 4, 5), (4,), (4,)], (3, 4, 5))
ROWS["elementwise"] = plain(lambda x, y: functions.forward("Swish", x, (0.5,), y), [(40,)], 40)
ROWS["elementwise_gradient"] = plain(
    lambda dy, x, y, dx: functions.gradient("Swish", dy, x, y, (0.5,), dx), [(40,)] * 3, 40
)


@row
def col2im_scatter(device, dtype):
    """Sums that are exact, so that their order does not show."""
    col = put(device, np.random.default_rng(1).integers(-9, 9, COLUMNS), dtype)
    images = blank(device, IMAGES, dtype)
    return lambda: col2im(col, CONV, images, form="scatter"), [images]


GROUPED = ConvGeometry(3, 4, (7, 6), 6, CONV, 2)


def convolution(strategy, direction, g=GROUPED):
    """A row for one of the three products of a convolution."""

    def build(device, dtype):
        x, weight, bias, dy = drawn(device, dtype, g.x_shape, g.weight_shape, (g.f,), g.y_shape)
        inputs, out = {
            "forward": ((x, weight, bias), g.y_shape),
            "input_gradient": ((dy, weight), g.x_shape),
            "weight_gradient": ((x, dy), g.weight_shape),
        }[direction]
        (written,) = drawn(device, dtype, out, seed=2)
        work = blank(device, ENGINES[strategy].workspace(g, 10**6) * threads.count(), dtype)
        run = getattr(ENGINES[strategy], direction)
        return lambda: run(*inputs, g, written, work), [written]

    return build


ROWS["conv"] = convolution("direct", "forward")
ROWS["conv_input_gradient"] = convolution("direct", "input_gradient")
ROWS["conv_weight_gradient"] = convolution("direct", "weight_gradient")
ROWS["implicit"] = convolution("implicit", "forward")
DEPTHWISE = ConvGeometry(3, 4, (19, 6), 4, Window((3, 3), (2, 2), (1, 1)), 4)
ROWS["depthwise"] = convolution("direct", "forward", DEPTHWISE)
ROWS["depthwise_input_gradient"] = convolution("direct", "input_gradient", DEPTHWISE)
ROWS["depthwise_weight_gradient"] = convolution("direct", "weight_gradient", DEPTHWISE)


@row
def sums(device, dtype):
    x, start = drawn(device, dtype, (5, 40, 3), (40,))
    rows, work = x.reshape(15, 40), blank(device, 600, dtype)
    places, columns, every = start, start.copy(), blank(device, (), summed(dtype))

    def run():
        add_places(x, places, work)
        add_rows(rows, columns)
        total(x, every, work, squares=True)

    return run, [places, columns, every]


@row
def ave_pool_gradient(device, dtype):
    (dy,) = drawn(device, dtype, (2, 3, 4, 3))
    dx, share = (blank(device, shape, dtype) for shape in ((2, 3, 7, 6), dy.shape))
    return lambda: pool.ave_pool_gradient(dy, POOL, dx, share), [dx]


@row
def max_pool(device, dtype):
    (x,) = numbers(1, (2, 3, 7, 6), dtype=dtype)
    x, shape = put(device, x), (2, 3, 4, 3)
    y, which, better = (blank(device, shape, kind) for kind in (dtype, np.int32, bool))
    return lambda: pool.max_pool(x, POOL, y, which, better), [y, which]


@row
def max_pool_gradient(device, dtype):
    find, (_, which) = max_pool(device, dtype)
    find()
    (dy,) = numbers(1, which.shape, dtype=dtype)
    won, share = blank(device, dy.shape, bool), blank(device, dy.shape, dtype)
    dy, dx = put(device, dy), blank(device, (2, 3, 7, 6), dtype)
    return lambda: pool.max_pool_gradient(dy, which, POOL, dx, won, share), [dx]


@row
def max_pool_gradient_2x2(device, dtype):
    which = put(device, np.random.default_rng(1).integers(-1, 4, (2, 3, 4, 4)), np.int32)
    dy, dx = *drawn(device, dtype, which.shape), blank(device, (2, 3, 8, 8), dtype)
    given = HALVES, dx, blank(device, dy.shape, bool), blank(device, dy.shape, dtype)
    return lambda: pool.max_pool_gradient(dy, which, *given), [dx]


@pytest.mark.parametrize("order", ["forward", "reversed", "random"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_windows_2_x_2_in_images_of_any_size(cuda, monkeypatch, dtype, order):
    """The last row and column in a window or in none, no two of a row side by side; to the bit, with a mask too."""
    monkeypatch.setattr(cuda.xp, "thread_order", order, raising=False)
    sizes = ((4, 6), (2, 3)), ((5, 7), (2, 3)), ((5, 7), (3, 4)), ((3, 6), (1, 3)), ((1, 1), (1, 1))
    for (image, pooled), x_at, top_at in itertools.product(sizes, (2, 3), (None, 4, 5)):
        dy, top = numbers(1, (2, 3, *pooled), (300,), dtype=dtype)
        dy[0], which = -0.0, np.random.default_rng(2).integers(-1, 4, dy.shape)
        expected, host = ref.max_pool_gradient(dy, which, HALVES, (2, 3, *image)), top.copy()
        x, mask = put(cuda, host), put(cuda, top)
        dx = x[x_at : x_at + expected.size].reshape(expected.shape)
        with joined():
            given = put(cuda, dy), put(cuda, which, np.int32), HALVES, dx, None, None
            pool.max_pool_gradient(*given)
            if top_at:
                y = mask[top_at : top_at + dx.size].reshape(dx.shape)
                functions.gradient("ReLU", dx, y, y, (), dx)
                expected *= top[top_at : top_at + dx.size].reshape(dx.shape) > 0
        host[x_at : x_at + dx.size] = expected.ravel()
        assert cuda.to_host(x).tobytes() == host.tobytes()


@row
def softmax(device, dtype):
    """One class a thread, and several; columns side by side, and one class behind the other."""
    shapes = (5, 7, 3), (40, 300, 1)
    xs = drawn(device, dtype, *shapes)
    ys = [blank(device, shape, summed(dtype)) for shape in shapes]
    ends = [blank(device, (n, 1, s), summed(dtype)) for n, _, s in shapes]
    return lambda: list(map(ops.softmax, xs, ys, ends)), ys


@row
def softmax_gradient(device, dtype):
    shapes = (5, 7, 3), (40, 300, 1)
    dys = drawn(device, dtype, *shapes)
    ys = [put(device, array, summed(dtype)) for array in numbers(2, *shapes, dtype=dtype)]
    dxs = [blank(device, shape, summed(dtype)) for shape in shapes]
    ends = [blank(device, (n, 1, s), summed(dtype)) for n, _, s in shapes]
    return lambda: list(map(ops.softmax_gradient, dys, ys, dxs, ends)), dxs


def loss_of(device, dtype, counts=True):
    """Scores, labels of which some do not count, and what a loss is computed into."""
    kind, (n, c, s) = summed(dtype), (40, 5, 30)
    labels = put(device, np.random.default_rng(1).integers(0, c, (n, s)), kind)
    (x,) = drawn(device, dtype, (n, c, s))
    mean = Mean.empty(device.xp, 7, counts, kind)
    prob, losses = blank(device, (n, c, s), kind), blank(device, (n, s), kind)
    read = Labels.empty(device.xp, n, c, s, kind)
    return x, (labels, 2, prob, losses, read, mean, blank(device, (), kind)), blank(device, 9, kind)


@row
def softmax_loss(device, dtype):
    x, given, work = loss_of(device, dtype)
    wanted = [given[2], given[-1], given[-2].normalizer]
    return lambda: ops.softmax_loss(x, *given, work), wanted


@row
def softmax_loss_gradient(device, dtype):
    x, given, work = loss_of(device, dtype, counts=False)
    labels, ignore, prob, _, read, mean, _ = given
    if not device.is_cuda:  # whose form reads what the loss has left
        ops.softmax_loss(x, *given, work)
    device.xp.copyto(prob, x, casting="same_kind")
    dloss, dx = put(device, 0.3, prob.dtype), blank(device, prob.shape, prob.dtype)
    return lambda: ops.softmax_loss_gradient(prob, labels, ignore, dloss, dx, read, mean), [dx]


@row
def accuracy(device, dtype):
    rng, read = np.random.default_rng(1), Labels.empty(device.xp, 8, 5, 3, dtype)
    drawn = rng.random((8, 5, 3)), rng.integers(0, 5, (8, 3))
    scores, labels = (put(device, array, dtype) for array in drawn)
    hits, lower = blank(device, (8, 3), dtype), blank(device, (8, 5, 3), bool)
    return lambda: accuracies.accuracy(scores, labels, 2, 0, hits, read, lower), [hits, read.valid]


@row
def class_accuracy(device, dtype):
    rng = np.random.default_rng(1)
    valid = rng.integers(0, 2, 60)
    hits, valid = put(device, valid * rng.integers(0, 2, 60), dtype), put(device, valid, dtype)
    labels, out = put(device, rng.integers(0, 9, 60), dtype), blank(device, 10, dtype)
    return lambda: accuracies.class_accuracy(hits, valid, labels, out), [out]


@row
def uniform(device, dtype):
    out = blank(device, 101, np.float32)
    return lambda: random.uniform(out, 1, "drop"), [out]


@row
def dropout(device, dtype):
    (x,) = drawn(device, dtype, (101,))
    slots, y = Slots(device), blank(device, 101, dtype)
    mask = random.Mask(slots, (101,))
    mask.draw(0.4, 1, "drop")
    slots.send()
    return lambda: random.dropout(x, mask, 0.4, y), [y, mask.kept]


@row
def dropout_gradient(device, dtype):
    (dy,) = drawn(device, dtype, (101,))
    mask, dx = random.Mask(Slots(device), (101,)), blank(device, 101, dtype)
    mask.kept.fill(False)
    mask.kept[::3] = True
    return lambda: random.dropout_gradient(dy, mask, 0.4, dx), [dx]


@row
def gather(device, dtype):
    rng = np.random.default_rng(1)
    images = put(device, rng.integers(0, 256, (6, 3, 5, 4)), np.uint8)
    places = put(device, [[5, 0, 3], [0, 2, 1], [1, 0, 1], [0, 1, 1]], np.int64)
    mean, labels = (put(device, rng.random(shape), summed(dtype)) for shape in ((3, 5, 4), (6,)))
    out, chosen = blank(device, (3, 3, 3, 3), dtype), blank(device, 3, summed(dtype))
    return lambda: batch.gather(images, labels, places, mean, 0.5, out, chosen), [out, chosen]


def rule(name, memory, *settings):
    """One of the solver's rules, with L1 and with L2, of pieces that begin at 16 bytes and that do not."""

    def made(device, dtype):
        hosts = numbers(1, *[(50,)] * (2 + memory), dtype=dtype)
        hosts[0][7] = 0
        hosts[2:] = [np.abs(host) for host in hosts[2:]]
        arrays, start = ([put(device, host) for host in hosts] for _ in range(2))
        scratch, skip = blank(device, 43, dtype), put(device, [0], np.int32)
        given = put(device, [[*settings, 0.125], [*settings[::-1], 0.0]], np.float64)
        parts = update.Parts([(11, 1), (30, 0), (43, 1)], device)

        def run():
            for array, before in zip(arrays, start, strict=True):
                device.xp.copyto(array, before)
            for penalty, starts in (
                ("L1", (0, 0, 0, 4)),
                ("L2", (0, 0, 0, 1)),
                ("L2", (3, 0, 0, 0)),
            ):
                w, d, *history = (a[at : at + 43] for a, at in zip(arrays, starts, strict=False))
                update.update(name, w, d, history, given, parts, penalty, 0.25, scratch, skip)

        return run, arrays

    return made


ROWS["update, sgd"] = rule("sgd", 1, 0.5, 0.75)
ROWS["update, nesterov"] = rule("nesterov", 1, 0.5, 0.75)
ROWS["update, scaled"] = rule("scaled", 1, 0.5, 0.75, 0.25, 0.125)
ROWS["update, adadelta"] = rule("adadelta", 2, 0.5, 0.75, 0.125)
ROWS["update, adam"] = rule("adam", 2, 0.5, 0.75, 0.875, 0.125, 0.0625)


@row
def unscale(device, dtype):
    (given,) = numbers(1, (40,), dtype=dtype)
    given[7] = np.inf
    given, diff = put(device, given), blank(device, 40, dtype)
    gradient = blank(device, 40, np.promote_types(dtype, np.float32))
    bad = blank(device, 1, np.int32)

    def run():
        device.xp.copyto(diff, given)
        gradient.fill(1)
        bad.fill(0)
        update.unscale(diff, 1024.0, gradient, True, bad)

    return run, [gradient, diff, bad]


@row
def squares(device, dtype):
    (x,) = drawn(device, dtype, (5000,))
    out, parts, bad = (blank(device, n, kind) for n, kind in (((), "d"), (3, "d"), (1, np.int32)))
    rounded = blank(device, (), summed(dtype))

    def run():
        bad.fill(0)
        nan_guard.squares(x, out, parts, bad)
        device.xp.copyto(rounded, out, casting="same_kind")

    return run, [rounded, bad]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_squares_of_a_piece_that_begins_anywhere(cuda, dtype):
    """What is read 16 bytes at a time, and what lies before and behind: each once, and none that is no number."""
    host = np.random.default_rng(1).integers(-9, 9, 40_000).astype(dtype)
    x, out = put(cuda, host), blank(cuda, (), "d")
    parts, bad = blank(cuda, 7, "d"), put(cuda, np.zeros(1, np.int32))
    for first, size in ((0, 40_000), (1, 39_998), (3, 20_000), (7, 1), (9, 6), (5, 33), (2, 0)):
        nan_guard.squares(x[first : first + size], out, parts, bad)
        piece = host[first : first + size].astype(float)
        assert (float(cuda.to_host(out)), int(cuda.to_host(bad)[0])) == (float(piece @ piece), 0)
        for place in {first, first + size // 2, first + size - 1} if size else ():
            x[place] = np.nan
            nan_guard.squares(x[first : first + size], out, parts, bad)
            assert int(cuda.to_host(bad)[0]) == 1
            x[place], bad[0] = host[place], 0


@row
def judge(device, dtype):
    kind = summed(dtype)
    loss, square = put(device, [0.5], kind), blank(device, (), np.float64)
    gradients = drawn(device, dtype, (30,), (5000,))
    parts, rounded = blank(device, 7, np.float64), blank(device, (), kind)
    flags, factor = put(device, [1, 0, 0, 5, 2, 0], np.int32), blank(device, (), kind)
    going = blank(device, (), bool)

    def run():
        flags[:1].fill(1)
        nan_guard.judge(
            loss, gradients, square, parts, 2.0, True, flags, going, factor, np.zeros(1, np.int32)
        )
        device.xp.copyto(rounded, square, casting="same_kind")

    return run, [rounded, flags, going, factor]


@row
def average(device, dtype):
    given, x = numbers(1, (40,), (40,), dtype=dtype)
    given[7] = x[7]
    x, mean, scratch = put(device, x), blank(device, 40, dtype), blank(device, 40, dtype)
    skip, share = put(device, [0], np.int32), put(device, [0.125], np.float64)

    def run():
        device.copy_from_host(mean, given)
        update.average(mean, x, share, scratch, skip)

    return run, [mean]


@row
def prelu(device, dtype):
    dy, x, a = drawn(device, dtype, (3, 4, 5), (3, 4, 5), (4,))
    out, work = blank(device, x.shape, dtype), blank(device, 60, dtype)
    return lambda: channels.prelu_gradient(dy, x, a, out, work), [out]


@row
def products(device, dtype):
    dy, x, sums = drawn(device, dtype, (3, 4, 5), (3, 4, 5), (4,))
    work = blank(device, channels.workspace(device.xp, (3, 4, 5), below=True), dtype)
    return lambda: channels.add_products(dy, x, sums, work, below=True), [sums]


@row
def embed(device, dtype):
    weight, out = *drawn(device, dtype, (3, 5)), blank(device, (4, 5), dtype)
    indices = put(device, [2, 0, 2, 1], summed(dtype))
    rows = blank(device, 4, np.int64)
    return lambda: tables.embed(indices, weight, out, rows, np.zeros(1, np.int32)), [out]


@row
def embed_gradient(device, dtype):
    dy, sums = drawn(device, dtype, (4, 5), (3, 5))
    indices, rows = (put(device, [2, 0, 2, 1], kind) for kind in (summed(dtype), np.int64))
    return lambda: tables.add_gradient(dy, indices, rows, sums), [sums]


NORMS = (  # what is normalised and what is scaled, of (6, 9, 70)
    (Rows(1, 6, 9, 70), Norm("variance", 0.1), Rows(1, 6, 9, 70)),
    (Rows(1, 1, 54, 70), Norm("deviation", 0.1), None),
    (Rows(1, 6, 630, 1), Norm("mean", 0.1), Rows(1, 54, 70, 1)),
    (Rows(6, 9, 70, 1), Norm("length", 0.1), Rows(1, 6, 9, 70)),
    (Rows(1, 1, 1, 3780), Norm("variance", 0.1), Rows(1, 1, 1, 3780)),
)


def normalised(device, dtype):
    """For each of NORMS: rows, norm, affine, statistics, x, dy, work."""
    for rows, norm, features in NORMS:
        x, dy = drawn(device, dtype, (6, 9, 70), (6, 9, 70))
        kind, affine = summed(dtype), None
        given = (
            put(device, np.abs(array) + kind(0.5))
            for array in numbers(2, *[(rows.count,)] * 3, dtype=kind)
        )
        if features is not None:
            affine = Affine(features, *drawn(device, dtype, *[(features.count,)] * 2, seed=3))
        work = blank(device, workspace(device.xp, x.size, rows, 70), dtype)
        yield rows, norm, affine, Statistics(*given), x, dy, work


@row
def moments(device, dtype):
    given = [
        (x, rows, norm, found, work)
        for rows, norm, _, found, x, _, work in normalised(device, dtype)
    ]
    return lambda: [measure(*g) for g in given], [a for g in given for a in vars(g[3]).values()]


@row
def recall(device, dtype):
    kind = summed(dtype)
    sums = [put(device, np.abs(a) + kind(0.5)) for a in numbers(1, (9,), (9,), (1,), dtype=kind)]
    nothing = [put(device, a) for a in (*numbers(1, (9,), (9,), dtype=kind), np.zeros(1, kind))]
    found = [Statistics.empty(device.xp, Rows(1, 2, 9, 3), kind) for _ in range(2)]

    def run():
        for given, out in zip((sums, nothing), found, strict=True):
            recalled(Past(0.0, 1, *given), Norm("variance", 0.1), out)

    return run, [a for out in found for a in vars(out).values()]


@row
def normalise(device, dtype):
    given = [(*g[4:1:-1], g[0]) for g in normalised(device, dtype)]
    outs = [blank(device, (6, 9, 70), dtype) for _ in given]

    def run():
        for (x, found, affine, rows), out in zip(given, outs, strict=True):
            norms.normalise(x, rows, found, affine, out)

    return run, outs


def normal_gradient(device, dtype, fixed):
    given = list(normalised(device, dtype))
    outs = [blank(device, (6, 9, 70), dtype) for _ in given]
    learnt = [
        (None, None) if g[2] is None else (g[2].bias.copy(), g[2].scale.copy()) for g in given
    ]

    def run():
        for (rows, norm, affine, found, x, dy, work), out, sums in zip(
            given, outs, learnt, strict=True
        ):
            of = None if fixed else norm
            norms.gradients(x, dy, rows, of, found, affine, sums, out, work)

    return run, [*outs, *(array for pair in learnt for array in pair if array is not None)]


ROWS["normalise_gradient"] = lambda device, dtype: normal_gradient(device, dtype, True)
ROWS["gradients"] = lambda device, dtype: normal_gradient(device, dtype, False)


def held(device, dtype, shape, room):
    """A BatchNorm and a Scale, there and back, of rows in shared memory."""
    rows, f, kind, ones = by_channel(shape), shape[1], summed(dtype), np.ones(shape[1])
    x, dy, scale, bias, *learnt = drawn(device, dtype, shape, shape, *[(f,)] * 4)
    past = [put(device, array, kind) for array in (ones, ones, [1])]
    by = Statistics.empty(device.xp, rows, kind), Affine(rows, scale, bias)
    y, dx, norm = *(blank(device, shape, dtype) for _ in range(2)), Norm("variance", 0.1)
    work = blank(device, workspace(device.xp, x.size, rows, f), dtype)

    def run():
        with held_in_memory(device, room * x.dtype.itemsize // 4):
            norms.normalise(x, rows, *by, y, norm, work, Past(0.5, rows.length, *past))
            norms.gradients(x, dy, rows, norm, *by, learnt, dx, work)

    return run, [y, dx, *learnt, *past, *vars(by[0]).values()]


@row
def resident_moments(device, dtype):
    """Of fewer packs than 8 blocks have, of 2 and 4 blocks, of one whose threads have some packs each."""
    cases = ((3, 5, 40), 0), ((3, 3, 48), 320), ((5, 2, 2400), 10**6)
    runs, written = zip(*(held(device, dtype, *case) for case in cases), strict=True)
    return lambda: [run() for run in runs], [*itertools.chain(*written)]


ROWS["resident_gradients"] = resident_moments
RESPONSES = (
    Response((6, 9, 70), 2, 0, 2.0, 0.5, 0.75),
    Response((54, 10, 7), 1, 1, 1.0, 0.5, 0.6),
    Response((54, 10, 7), 90, 90, 1.0, 0.5, 0.75),
)


@row
def lrn(device, dtype):
    xs = [drawn(device, dtype, r.image)[0] for r in RESPONSES]
    ss = [blank(device, x.shape, summed(dtype)) for x in xs]
    ys = [blank(device, x.shape, dtype) for x in xs]
    work = blank(device, 2 * 3780, dtype)

    def run():
        for x, response, s, y in zip(xs, RESPONSES, ss, ys, strict=True):
            response_norms.lrn(x, response, s, y, work)

    return run, ss + ys


@row
def lrn_gradient(device, dtype):
    find, written = lrn(device, dtype)
    find()
    both = [drawn(device, dtype, r.image, r.image) for r in RESPONSES]
    outs = [blank(device, r.image, dtype) for r in RESPONSES]
    work = blank(device, 2 * 3780, dtype)

    def run():
        for (x, dy), response, s, dx in zip(both, RESPONSES, written[:3], outs, strict=True):
            response_norms.lrn_gradient(x, dy, response, s, dx, work)

    return run, outs


ROWS["lrn_ratio"] = ROWS["lrn_across_gradient"] = lrn_gradient
ROWS["lrn_across"] = lrn
for family in (launch_rows_losses, launch_rows_moves, launch_rows_pooling, launch_rows_recurrent):
    ROWS.update(family.ROWS)


every = [
    pytest.mark.parametrize("name", ROWS),
    pytest.mark.parametrize(
        "dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.long)]
    ),
]


def every_kernel(function):
    for mark in every:
        function = mark(function)
    return function


def bits(build, device, dtype):
    run, written = build(device, dtype)
    run()
    return [device.to_host(array).tobytes() for array in written]


@every_kernel
def test_both_devices_agree(cuda, name, dtype):
    here = backend.device("cpu")
    (run, written), (run_there, written_there) = ROWS[name](here, dtype), ROWS[name](cuda, dtype)
    run()
    run_there()
    for array, there in zip(written, written_there, strict=True):
        close(cuda, there, array)


def with_threads(monkeypatch, blocks, threads):
    """Have every launch run in so many blocks of so many threads; the totals are returned."""
    compiled, totals = launch.kernels, []

    def limited(*which):
        def of(kernel):
            def call(grid, block, args, **_):
                totals.append(int(args[0]))
                kernel((blocks,), (threads,), args)

            return call

        return {name: of(kernel) for name, kernel in compiled(*which).items()}

    monkeypatch.setattr(launch, "kernels", limited)
    return totals


def test_every_kernel_has_a_row():
    files = [
        file
        for file in resources.files("minicaffe.backends.cuda.kernels").iterdir()
        if file.name.endswith(".cu")
    ]
    code = "".join(file.read_text(encoding="utf-8") for file in files)
    assert set(re.findall(r"__global__\s+void\s+(\w+)", code)) == {
        row.split(",")[0] for row in ROWS
    }


@every_kernel
def test_the_order_of_the_threads_does_not_matter(cuda, monkeypatch, name, dtype):
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only the stand-in runs threads in an order of choice")
    first = bits(ROWS[name], cuda, dtype)
    for order in ("reversed", "random"):
        monkeypatch.setattr(cuda.xp, "thread_order", order)
        assert bits(ROWS[name], cuda, dtype) == first


def near(got, expected, tolerance):
    got, expected = (array.astype(np.float64) for array in (got, expected))
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("kind", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_16_bits_are_summed_in_32(cuda, monkeypatch, name, kind):
    """From numbers that 16 bits can hold, the result is that of float32, rounded once if at all."""
    dtype = np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    monkeypatch.setattr(cases, "GRAIN", 1 / 64)
    results = []
    for kind in (dtype, np.float32):
        run, written = ROWS[name](cuda, kind)
        run()
        results.append([cuda.to_host(array) for array in written])
    rounding = 2**-8 if dtype is not np.float16 else 2**-10
    for half, full in zip(*results, strict=True):
        near(half, full, rounding if half.dtype == dtype else 1e-6)


# Their threads, or those of the sums behind them, share memory: a block is of 256, always. judge is one block
BLOCKWISE = {"implicit", "sums", "softmax", "softmax_gradient", "softmax_loss", "judge", "squares"}
BLOCKWISE |= {"moments", "gradients", "normalise", "normalise_gradient", "products"}
BLOCKWISE |= {"depthwise_weight_gradient", "resident_moments", "resident_gradients"}


@pytest.mark.parametrize("name", [name for name in ROWS if name not in BLOCKWISE])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("blocks", "threads"), [(2, 3), (1, 1), (3, 1)])
def test_few_threads_do_the_work_of_many(cuda, monkeypatch, name, dtype, blocks, threads):
    many = bits(ROWS[name], cuda, dtype)
    totals = with_threads(monkeypatch, blocks, threads)
    assert bits(ROWS[name], cuda, dtype) == many
    assert min(totals) > blocks * threads  # each thread went round more than once


@every_kernel
def test_a_kernel_allocates_nothing_and_waits_for_nothing(cuda, name, dtype):
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only the stand-in counts")
    run, _ = ROWS[name](cuda, dtype)
    arrived()  # of which there is one for all
    before = cuda.xp.allocations, cuda.xp.synchronizations
    run()
    assert (cuda.xp.allocations, cuda.xp.synchronizations) == before


@pytest.fixture
def launched(monkeypatch):
    """The (grid, block, args) of launches that run nothing."""
    calls = []
    fake = SimpleNamespace(dtype=np.dtype(np.float32), device=SimpleNamespace(id=0))
    record = {"f": lambda *call, **_: calls.append(call)}
    monkeypatch.setattr(launch, "kernels", lambda file, ctype, device: record)
    monkeypatch.setattr(launch, "files", lambda: {"f": "f.cu"})
    return lambda total, *args: launch.launch("f", total, fake, *args) or calls


@pytest.mark.parametrize(("total", "blocks"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_thread_an_element(launched, monkeypatch, total, blocks):
    monkeypatch.setattr(launch, "THREADS", 4)
    ((grid, block, args),) = launched(total, 7, np.float32(0.5), True)
    assert (grid, block) == ((blocks,), (4,))
    assert args == (total, 7, 0.5, True)
    assert [type(arg) for arg in args] == [np.int32, np.int32, np.float32, bool]


def test_more_than_a_thread_can_count_is_refused_before_a_launch(monkeypatch):
    calls = []
    monkeypatch.setattr(launch, "launch_blocks", lambda *call: calls.append(call))
    most = 2**31 - 1 - launch.GRID * launch.THREADS
    launch.launch_typed("f", most, ())
    told = rf"^f: {most + 1} elements are more than a kernel's 32-bit index"
    with pytest.raises(ShapeError, match=told):
        launch.launch_typed("f", most + 1, ())
    assert len(calls) == 1


def test_nothing_is_launched_for_nothing(launched):
    assert launched(0) == []


@pytest.mark.parametrize(
    "total", [2**24, 2**30, 2**31 - 2**25, 2**31 - 2**24, 2**31 - 1, 2**31, 2**40]
)
def test_no_index_passes_32_bits(launched, total):
    """A thread adds the grid, which has its limit, to its index once more than it needs: that must not wrap."""
    try:
        (((blocks,), (threads,), _),) = launched(total)
    except ShapeError as error:
        assert f"{total} elements" in str(error)
        assert total > 2**31 - 2**25
    else:
        assert total - 1 + blocks * threads < 2**31
        assert blocks <= 65535 and threads <= 1024
