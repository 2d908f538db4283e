"""Ops by compiled loops: a table of which loop computes each, over how many units, and with which arguments.

A row has the names of the arguments that it takes of its op, and first the module of compiled loops, which is
that of its family or is named, if it serves the type of an array: the op's first, or `of` another. It returns
NotImplemented for what it cannot compute. The NumPy function in core/ops says what an op is. A family of ops
may have its rows beside its loops, in the file of its name.
"""

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, for_rows, loops, no_bias, skinny, threads
from minicaffe.backends.cpu.threads import GRAIN, run, run_flat
from minicaffe.backends.dispatch import OpTable, flag, number
from minicaffe.core.ops.geometry import numbers_of
from minicaffe.core.ops.pool import workspace_of_one

RANKS = (1, 4, 8)  # axes that the loop of two arrays is compiled for
ENTRIES = "fdbBhHiIlLqQ?"  # types that it knows
KINDS = ("variance", "deviation", "mean", "length")  # of statistics, as the loops count them
OF = ("values", "squares", "magnitudes")  # what can be summed, by its number
SCORES = 2**11  # that a thread is worth waking for
LEAST = 1e-20  # a smaller probability counts as this (Caffe's kLOG_THRESHOLD)
MANY = 1 << 15  # elements of a batch that a thread is worth waking for
PRODUCTS = 2**15  # multiply-adds that a slice is worth
TALL = 256  # vectors, from which on BLAS is not faster from the left
STRIP = 256  # columns of a unit of LRN
NO_NAMES = np.empty(0, np.int32)
PAIRS = ((2, 2), (2, 2), (0, 0))  # kernel, stride and pad of windows of 2 x 2 side by side
STREAM = 2**10  # numbers of streams that a thread is worth waking for
FEW = 64  # rows of all steps: for fewer it does not pay to put the weights in panels
NEAR = 2**20  # bytes of weights, which then stay in the second cache
STREAMS = 2  # that are worth a thread

ROWS = OpTable(for_rows)
row = ROWS.add


@row("arrays.apply", None)
def apply(name, a, b, out):
    if not isinstance(b, np.ndarray):
        b = _number(b, a.dtype)
    compiled: Any = loops("elementwise", np.float64)
    if compiled is None or any(array.dtype.char not in ENTRIES for array in (a, b, out)):
        return NotImplemented
    if (walk := _walk(out.shape, *map(_steps, (a, b, out)))) is None:
        return NotImplemented
    sizes, (first, second, third) = walk
    args = _span(a), first, _span(b), second, sizes, _span(out), third
    return run(compiled.function(name), out.size, *args, grain=GRAIN)


def _steps(array: Any) -> tuple[tuple[int, int], ...]:
    """Of each axis its size and how many entries lie between neighbours."""
    return tuple(
        (n, step // array.itemsize) for n, step in zip(array.shape, array.strides, strict=True)
    )


@functools.lru_cache(4096)
def _walk(shape: tuple[int, ...], *arrays: tuple[tuple[int, int], ...]) -> Any:
    """The sizes of a walk over all entries, and each array's steps in it; None for too many axes."""
    stretched = [
        [(0, 0)] * (len(shape) - len(axes)) + [(n, 0 if n == 1 else step) for n, step in axes]
        for axes in arrays
    ]
    walk: list[tuple[int, ...]] = []  # of each axis its size and the steps
    for size, *of_each in zip(shape, *stretched, strict=True):
        steps = [step for _, step in of_each]
        if any(n not in (0, 1, size) for n, _ in of_each):
            shapes = [tuple(n for n, _ in axes) for axes in arrays]
            raise ValueError(f"arrays of shapes {shapes} do not go into one of {shape}")
        if size == 1:
            continue
        if walk and all(far == size * step for far, step in zip(walk[-1][1:], steps, strict=True)):
            walk[-1] = (walk[-1][0] * size, *steps)
        else:
            walk.append((size, *steps))
    rank = next((rank for rank in RANKS if rank >= len(walk)), None)
    if rank is None or any(step < 0 for _, *steps in walk for step in steps):
        return None
    sizes, *steps_of = zip(*[(1,) * (1 + len(arrays))] * (rank - len(walk)), *walk, strict=True)
    return sizes, steps_of


def _span(array: Any) -> Any:
    """The entries of an array, and for a view all that lies between its first and its last."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    span = 1 + sum((n - 1) * step for n, step in _steps(array))
    return np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))


@functools.lru_cache(1024)
def _number(value: float, dtype: np.dtype) -> Any:
    return np.array(value, dtype)


@row("elementwise.forward", of="x")
def forward(compiled, name, x, numbers, out):
    loop = compiled.formula(name, "y", x.dtype)
    return run_flat(loop, out, x, _typed(numbers, x.dtype)) if loop else NotImplemented


@row("elementwise.gradient", of="dy")
def gradient(compiled, name, dy, x, y, numbers, out):
    loop = compiled.formula(name, "slope", x.dtype)
    return run_flat(loop, out, dy, x, y, _typed(numbers, x.dtype)) if loop else NotImplemented


@functools.lru_cache(256)
def _typed(numbers: tuple[float, ...], dtype: np.dtype) -> tuple[Any, ...]:
    return tuple(map(dtype.type, numbers))


@row("random.dropout", "elementwise")
def dropout(compiled, x, mask, ratio, out):
    run_flat(compiled.dropout, out, x, mask.kept, x.dtype.type(1 / (1 - ratio)))


@row("update.average", "elementwise")
def average(compiled, mean, x, share, skip):
    call(compiled.average, mean.size, x, share, skip, mean, grain=GRAIN)


@row("arrays.larger", "elementwise")
def larger(compiled, x, out, which, i):
    if which is None:
        run_flat(compiled.larger, out, x)
    else:
        run_flat(compiled.larger_of, out, x, i, which)


@row("arrays.largest_gradient", "elementwise")
def largest_gradient(compiled, dy, which, i, out):
    run_flat(compiled.where_it_is, out, dy, which, i)


def call(loop: Any, n: int, *args: Any, grain: int = 1) -> int:
    """Run a compiled loop over 0..n, with flat arrays: see `run`."""
    flat = [a.reshape(-1) if isinstance(a, np.ndarray) and a.ndim != 1 else a for a in args]
    return run(loop, n, *flat, grain=grain)


@row("sums.total")
def total(compiled, x, out, work, scale, squares, add):
    if not x.flags.c_contiguous:
        return NotImplemented
    entries, scaled = (x, int(squares)), (float(scale), add, out)
    if work is None or work.dtype != x.dtype or not work.size or x.size < 2 * GRAIN:
        call(compiled.total, 1, *entries, *scaled)
        return None
    grain = max(GRAIN, -(-x.size // work.size))
    slices = call(compiled.part, x.size, *entries, Piece(work), grain=grain)
    call(compiled.together, 1, work, work.size // slices, slices, *scaled)
    return None


@row("sums.rows")
def rows(compiled, x, out, of, scale):
    if not x.flags.c_contiguous:
        return NotImplemented
    m, k = x.shape
    args = x, k, OF.index(of), float(scale), out
    return call(compiled.rows, m, *args, grain=1 + GRAIN // max(k, 1))


@row("softmax.softmax")
def softmax(compiled, x, out, reduced):
    n, c, s = x.shape
    call(compiled.softmax(x.dtype), n * s, x, c, s, reduced, out, grain=grain(c))


@row("softmax.softmax_gradient")
def softmax_gradient(compiled, dy, y, out, reduced):
    n, c, s = dy.shape
    call(compiled.softmax_gradient, n * s, dy, y, c, s, reduced, out, grain=grain(c))


@row("softmax.nll")
def nll(compiled, prob, labels, ignore, out, valid, refused):
    n, c, s = prob.shape
    args = prob, labels, c, s, flag(ignore), np.finfo(prob.dtype).tiny, out, valid, refused
    call(compiled.nll, n * s, *args, grain=grain(c))


@row("softmax.nll_gradient")
def nll_gradient(compiled, prob, labels, scale, out, valid):
    n, c, s = prob.shape
    call(compiled.nll_gradient, n * s, prob, labels, c, s, valid, scale, out, grain=grain(c))


def grain(c: int) -> int:
    """Columns of c scores that a thread is worth waking for."""
    return 1 + SCORES // c


@row("label_losses.hinge", "losses")
def hinge(compiled, x, labels, out, read):
    n, d = x.shape
    call(compiled.hinge, n, x, labels, d, read.refused, out, grain=grain(d))
    read.check(labels, None, d)


@row("label_losses.hinge_gradient", "losses")
def hinge_gradient(compiled, margins, labels, squared, scale, out):
    n, d = margins.shape
    call(compiled.hinge_gradient, n, margins, labels, d, squared, scale, out, grain=grain(d))


@row("label_losses.multinomial", "softmax")
def multinomial(compiled, prob, labels, out, read):
    n, d = prob.shape
    args = prob, labels, d, 1, flag(None), number(LEAST, out), out, read.valid, read.refused
    call(compiled.nll, n, *args)
    read.check(labels, None, d)


@row("label_losses.multinomial_gradient", "losses")
def multinomial_gradient(compiled, prob, labels, scale, out):
    n, d = prob.shape
    args = prob, labels, d, number(LEAST, out), scale, out
    call(compiled.multinomial_gradient, n, *args, grain=grain(d))


@row("label_losses.row_sums", "losses")
def row_sums(compiled, matrix, out):
    call(compiled.row_sums, out.size, matrix, out, grain=grain(out.size))


@row("label_losses.infogain", "losses")
def infogain(compiled, prob, labels, matrix, ignore, out, read):
    n, c, s = prob.shape
    args = prob, labels, matrix, c, s, flag(ignore), number(LEAST, out)
    call(compiled.infogain, n * s, *args, out, read.valid, read.refused, grain=grain(c))
    read.check(labels, ignore, c)


@row("label_losses.infogain_gradient", "losses")
def infogain_gradient(compiled, prob, labels, matrix, sums, scale, out, read):
    n, c, s = prob.shape
    args = prob, labels, matrix, sums, c, s, read.valid, scale, out
    call(compiled.infogain_gradient, n * s, *args, grain=grain(c))


@row("pair_losses.contrastive", "losses")
def contrastive(compiled, diff, similar, margin, legacy, out, pull):
    n, c = diff.shape
    args = diff, similar, c, number(margin, out), legacy, out, pull
    call(compiled.contrastive, n, *args, grain=1 + GRAIN // max(c, 1))


@row("pair_losses.smooth_l1", "losses")
def smooth_l1(compiled, a, b, inside, outside, sigma, out):
    args = a, b, *_optional(a, inside, outside), number(sigma**2, out), out
    call(compiled.smooth_l1, out.size, *args, grain=GRAIN)


@row("pair_losses.smooth_l1_gradient", "losses")
def smooth_l1_gradient(compiled, a, b, inside, outside, sigma, scale, sign, out):
    numbers = number(sigma**2, out), scale, number(sign, out)
    args = a, b, *_optional(a, inside, outside), *numbers, out
    call(compiled.smooth_l1_gradient, out.size, *args, grain=GRAIN)


@row("pair_losses.sigmoid_cross_entropy", "losses")
def sigmoid_cross_entropy(compiled, x, target, ignore, out, valid):
    loop = compiled.sigmoid_cross_entropy(x.dtype)
    call(loop, out.size, x, target, flag(ignore), out, valid, grain=GRAIN)


@row("pair_losses.sigmoid_cross_entropy_gradient", "losses")
def sigmoid_cross_entropy_gradient(compiled, x, target, scale, out, valid):
    loop = compiled.sigmoid_cross_entropy_gradient(x.dtype)
    call(loop, out.size, x, target, valid, scale, out, grain=GRAIN)


def _optional(like: Any, *arrays: Any) -> list[Any]:
    """Arrays as the loops take them: empty where there are none."""
    return [no_bias(like.dtype) if array is None else array for array in arrays]


@row("softmax.accuracy")
def accuracy(compiled, scores, labels, top_k, ignore, out, read):
    n, c, s = scores.shape
    args = scores, labels, c, s, top_k, flag(ignore), out, read.valid, read.refused
    call(compiled.accuracy, n * s, *args, grain=grain(c))
    read.check(labels, ignore, c)


@row("softmax.class_accuracy")
def class_accuracy(compiled, hits, valid, labels, out):
    args = hits, valid, labels, out
    call(compiled.class_accuracy, out.size, *args, grain=grain(max(labels.size, 1)))


@row("argmax.largest", "softmax")
def largest(compiled, x, place, number):
    n, c, s = x.shape
    call(compiled.largest, n * s, x, c, s, place.shape[1], place, number)


@row("batch.gather", "elementwise", of="out")
def gather(compiled, images, labels, places, mean, scale, out, out_labels):
    if not images.flags.c_contiguous:
        return NotImplemented
    n, sizes = len(out), (*images.shape[1:], *out.shape[2:])
    of, to = (labels, out_labels) if labels is not None else (no_bias(out.dtype),) * 2
    args = images, of, tuple(places), mean, out.dtype.type(scale), sizes, out, to
    return call(compiled.gather, n, *args, grain=1 + MANY * n // max(1, out.size))


@row("take.places", "gather")
def take_places(compiled, index, n, out, refused):
    call(compiled.places, index.size, index, n, out, refused, grain=GRAIN)
    return _refusal(refused)


@row("take.take", "gather")
def take(compiled, x, place, out):
    d = x.shape[1]
    call(compiled.take, len(place), x, place, d, out, grain=max(1, GRAIN // max(1, d)))


@row("take.put_back", "gather")
def put_back(compiled, dy, place, out, add):
    d = dy.shape[1]
    call(compiled.put_back, len(out), dy, place, d, add, out, grain=max(1, GRAIN // max(1, d)))


@row("take.fold", "gather")
def fold(compiled, x, out):
    a, count, d = x.shape
    call(compiled.fold, a, x, count, d, out, grain=max(1, GRAIN // max(1, count * d)))


@row("take.read", "gather")
def read(compiled, indices, count, out, refused):
    if refused is None:
        return NotImplemented
    return take_places(compiled, indices, count, out, refused)


def _refusal(refused: Any) -> Any:
    """NotImplemented if a loop refused something: NumPy, which is asked then, says what."""
    if not refused[0]:
        return None
    refused[0] = 0
    return NotImplemented


@row("pool.places", "gather")
def unpool_places(compiled, mask, image, out, refused):
    call(compiled.mask_places, mask.size, mask, image[0] * image[1], out, refused, grain=GRAIN)
    return _refusal(refused)


@row("pool.unpool", "gather")
def unpool(compiled, x, place, out):
    pixels, size = math.prod(x.shape[2:]), math.prod(out.shape[2:])
    call(compiled.unpool, math.prod(x.shape[:2]), x, place, pixels, size, out)


@row("pool.unpool_gradient", "gather")
def unpool_gradient(compiled, dy, place, out):
    pixels, size = math.prod(out.shape[2:]), math.prod(dy.shape[2:])
    call(compiled.unpool_gradient, math.prod(out.shape[:2]), dy, place, pixels, size, out)


@row("channels.scale", "normalize")
def scale(compiled, x, a, b, out):
    n, f, p = x.shape
    if p <= 1:
        return NotImplemented
    args = x, *_optional(x, a, b), b is not None and b.shape == x.shape, out, f, p
    return call(compiled.scale, n * f, *args, grain=max(1, GRAIN // p))


@row("channels.prelu_gradient", "normalize", of="x")
def prelu_gradient(compiled, dy, x, a, out):
    n, f, p = x.shape
    call(compiled.prelu, n * f, dy, x, a, out, f, p, grain=max(1, GRAIN // max(1, p)))


@row("channels._add_products", "normalize", of="x")
def add_products(compiled, dy, x, out, way):
    n, f, p = dy.shape
    call(compiled.add_sums, f, dy, x, way, f, p, n, out, grain=max(1, GRAIN // max(1, n * p)))


@row("rows._statistics", "normalize", of="x")
def _statistics(compiled, x, rows, norm, out):
    args = KINDS.index(norm.kind), out.rate.dtype.type(norm.eps), out.mean, out.spread, out.rate
    run_rows(compiled, "statistics", x, rows, rows.seen, *args)


@row("rows.remember", "normalize")
def remember(compiled, mean, past, stats):
    numbers = mean.dtype.type(past.fraction), mean.dtype.type(past.correction)
    args = stats.mean, stats.spread, *numbers, mean, past.variance, past.batches
    run(compiled.remember, mean.size, *args, grain=GRAIN)


@row("rows.recalled", "normalize")
def recalled(compiled, mean, past, norm, out):
    args = mean, past.variance, past.batches, mean.dtype.type(norm.eps)
    run(compiled.recall, mean.size, *args, out.mean, out.spread, out.rate, grain=GRAIN)


@row("normalize.normalised", of="x")
def normalised(compiled, x, rows, stats, out):
    run_rows(compiled, "normalise", x, rows, rows.seen, stats.mean, stats.rate, out)


@row("normalize.through", of="x")
def through(compiled, x, g, rows, norm, stats, out):
    args = KINDS.index(norm.kind), stats.rate.dtype.type(norm.eps), stats.mean, stats.rate, out
    run_rows(compiled, "gradient", x, rows, g, rows.seen, *args)


def run_rows(compiled: Any, name: str, x: Any, rows: Any, *args: Any) -> None:
    """Run a compiled loop of x over the rows, in the form for their entries."""
    loop = getattr(compiled, name + "_across" if rows.inner == 1 and rows.kept > 1 else name)
    call(loop, rows.count, x, *args, grain=max(1, GRAIN // max(1, rows.length)))


@row("lrn.lrn", "normalize")
def lrn(compiled, x, response, s, out, work):
    (loop, _), units, args = _bound(compiled, x, response)
    call(loop, units, x, *args, work, s, out)


@row("lrn.lrn_gradient", "normalize")
def lrn_gradient(compiled, x, dy, response, s, out, work):
    (_, loop), units, args = _bound(compiled, x, response)
    call(loop, units, x, dy, *args, s, work[: x.size], work[x.size : 2 * x.size], out)


def _bound(compiled: Any, x: Any, r: Any) -> Any:
    """The loops, how many units they take, and their sizes and numbers."""
    m, h, w = r.image
    wide = max(1, w if r.side else min(w, STRIP))
    numbers = tuple(map(x.dtype.type, (r.base, r.alpha, r.beta)))
    units = m * -(-w // wide)
    return compiled.lrn_of(x.dtype, r.beta == 0.75), units, ((h, w, wide), (r.up, r.side), numbers)


@row("pool.max_pool")
def max_pool(compiled, x, window, out, which, work, keep):
    image, sizes, pooled = _tuples(x, window, out)
    planes, args = math.prod(x.shape[:2]), (x, image, sizes, pooled, _work(work, window, x, out))
    if _halves(sizes, image, pooled):
        which = which if keep else NO_NAMES
        call(compiled.max_halve, planes, x, image[1], out, which, pooled, keep)
    elif keep:
        call(compiled.max_pool, planes, *args, out, which)
    else:
        call(compiled.largest, planes, *args, out)


@row("pool.max_pool_gradient")
def max_pool_gradient(compiled, dy, which, window, out):
    image, sizes, pooled = _tuples(out, window, dy)
    planes = math.prod(out.shape[:2])
    if _halves(sizes, image, pooled):
        call(compiled.max_halve_gradient, planes, out, image[1], dy, which, pooled, True)
    else:
        args = dy, which, image, sizes, pooled, _offsets(window.kernel, image[1]), out
        call(compiled.max_pool_gradient, planes, *args)


@row("pool.ave_pool")
def ave_pool(compiled, x, window, out, work):
    _average(compiled.ave_pool, x, x, window, out, work, out)


@row("pool.ave_pool_gradient")
def ave_pool_gradient(compiled, dy, window, out, work):
    _average(compiled.ave_pool_gradient, dy, out, window, dy, work, out)


def _average(
    loop: Any, source: Any, image: Any, window: Any, pooled: Any, work: Any, out: Any
) -> None:
    divisors = window.divisors(image.shape[2:], pooled.shape[2:], pooled.dtype)
    window = window.seen(image.shape[2:], pooled.shape[2:])
    args = source, *_tuples(image, window, pooled), *divisors, _work(work, window, image, pooled)
    call(loop, math.prod(image.shape[:2]), *args, out)


def _halves(sizes: Any, image: Any, pooled: Any) -> bool:
    """True if windows are of 2 x 2 side by side: they have loops of their own."""
    return bool(sizes == PAIRS and image == tuple(2 * o for o in pooled))


@functools.cache
def _offsets(kernel: tuple[int, ...], width: int) -> Any:
    """Of each kernel element how far it is from the window's corner."""
    return np.ravel(np.arange(kernel[0])[:, None] * width + np.arange(kernel[1]))


def _work(work: Any, window: Any, image: Any, pooled: Any) -> Piece:
    size = workspace_of_one(window, image.shape[2:], pooled.shape[2:]) * threads.count()
    return Piece(np.empty(size, image.dtype) if work is None else work[:size])


def _tuples(image: Any, window: Any, pooled: Any) -> tuple[Any, ...]:
    return image.shape[2:], (window.kernel, window.stride, window.pad), pooled.shape[2:]


@row("pool.roi_pool")
def roi_pool(compiled, x, rois, scale, out, which, refused):
    args = x, rois, x.shape, out.shape[2:], x.dtype.type(scale), out, which, refused
    call(compiled.roi_pool, len(rois) * x.shape[1], *args)
    return _refusal(refused)


@row("pool.roi_pool_gradient")
def roi_pool_gradient(compiled, dy, which, rois, out):
    bins = dy.shape[2] * dy.shape[3]
    call(compiled.roi_pool_gradient, out.shape[1], dy, which, rois, out.shape, bins, out)


@row("recurrent.lstm_unit")
def lstm_unit(compiled, x, r, cont, c_prev, acts, c, h):
    if acts is not x:
        apply("copy", acts, x, acts)
    args = acts, acts[:0] if r is None else r, x.shape[1], cont, c_prev, h.shape[1], c, h
    call(compiled.lstm_unit(x.dtype), len(h), *args, grain=1 + STREAM // max(h.shape[1], 1))


@row("recurrent.lstm_unit_gradient")
def lstm_unit_gradient(compiled, acts, c_prev, c, cont, dh, r, after, dc, dx):
    d = dh.shape[1]
    args = acts, c_prev, c, cont, dh, r, d, after, d, dc, dx
    call(compiled.lstm_unit_gradient(acts.dtype), len(dh), *args, grain=1 + STREAM // max(d, 1))


@row("recurrent.lstm", of="h")
def lstm(compiled, z, cont, first, weight, c, h, work):
    return _swept(compiled, "lstm", weight, True, h, work, z, cont, first, c, h)


@row("recurrent.lstm_gradient", of="dh")
def lstm_gradient(compiled, acts, c, cont, dh, weight, dc, dz, work):
    return _swept(compiled, "lstm_gradient", weight, False, dh, work, acts, c, cont, dh, dc, dz)


def _swept(
    compiled: Any, name: str, weight: Any, turned: bool, h: Any, work: Any, *kernel_args: Any
) -> Any:
    """Run a loop over streams, if it pays to put the weights of h in panels, which stay in a cache."""
    (t, n, _), (rows, columns) = h.shape, weight.shape[::-1] if turned else weight.shape
    if t * n < FEW or weight.nbytes > NEAR:
        return NotImplemented
    vectors, wide, places = compiled.panels_of(rows, columns, weight.dtype)
    if (rows + n) * wide > work.size:
        return NotImplemented
    panels, r = work[: rows * wide], work[rows * wide : (rows + n) * wide]
    call(compiled.panels, vectors, weight, rows, columns, turned, places, panels)
    loop = getattr(compiled, name)(h.dtype)
    return call(loop, n, *kernel_args, panels, (*h.shape, wide), r, grain=STREAMS)


@row("nan_guard.squares", "sums")
def squares(compiled, x, out, parts, bad, add):
    grain = max(GRAIN, x.size // parts.size + 1)
    slices = run(compiled.squares, x.size, x, Piece(parts), grain=grain)
    call(compiled.checked_total, 1, parts, parts.size // max(slices, 1), slices, add, bad, out)


@row("nan_guard.decide", "sums", of="square")
def decide(compiled, loss, square, limit, pass_over, flags, going, factor, refused):
    call(compiled.judge, 1, loss, square, float(limit), pass_over, flags, going, factor, refused)


@row("gemm.gemm", "product", of="out", blas=True)
def gemm(compiled, blas, a, b, out, accumulate):
    """In slices of its rows, or of its columns where these are more than twice as many.

    It must be one of two matrices that lie whole. Rows of the result lie whole too: threads write in no line
    of another, which is worth the larger matrix that each of them reads.
    """
    (x, x_turned), (y, y_turned), (c, c_turned) = map(_whole, (a, b, out))
    if x is None or y is None or c is None or not a.dtype == b.dtype == out.dtype:
        return NotImplemented
    if c_turned:
        return gemm(compiled, blas, b.T, a.T, out.T, accumulate)
    (m, n), k = out.shape, a.shape[1]
    if skinny.multiply(x, x_turned, y, y_turned, c, accumulate, (m, n, k)):
        return None
    rows = m >= n or 1 < m >= n / 2
    args = (m, n, k), x, x_turned, y, y_turned, rows, accumulate, c
    many, others = (m, n) if rows else (n, m)
    grain = 1 + PRODUCTS // (others * k)
    if k == 1 or others == 1:
        return run(compiled.narrow, many, *args, grain=grain)
    return run(compiled.product, many, blas, *args, grain=grain)


@row("linear.linear", "product", of="out", blas=True)
def linear(compiled, blas, x, weight, bias, out, work):
    """In slices of the numbers, or of the vectors, whichever are more."""
    (w, turned), (flat, _) = _whole(weight), _whole(x)
    if not x.flags.c_contiguous or w is None or flat is None:
        return NotImplemented
    bias = no_bias(out.dtype) if bias is None else bias
    (m, k), f, y = x.shape, weight.shape[1], out.reshape(-1)
    if turned and skinny.dots(flat, w, bias, y, False, (m, f, k)):
        return None
    if m == 1 and (turned or f == 1 or k == 1):
        run(compiled.linear_of_one, f, k, flat, w, bias, y, grain=1 + PRODUCTS // k)
    elif (turned and m < TALL) or f == 1 or k == 1:
        sizes, n, features = (m, f, k), max(m, f), f >= m
        args = blas, sizes, flat, w, bias, features, work[: out.size], y
        run(compiled.linear, n, *args, grain=1 + PRODUCTS // (m * f * k // n))
    else:
        if gemm(compiled, blas, x, weight, out, False) is NotImplemented:
            return NotImplemented
        if bias.size:
            run(compiled.add_bias, m, bias, y, grain=1 + PRODUCTS // f)
    return None


@row("linear.bias_gradient", "product")
def bias_gradient(compiled, dy, out, empty):
    if not dy.flags.c_contiguous:
        return NotImplemented
    (m, f), add = dy.shape, not empty
    return call(compiled.add_columns, f, dy, m, f, add, out, grain=1 + PRODUCTS // max(m, 1))


def _whole(matrix: Any) -> tuple[Any, bool]:
    """A matrix as it lies in memory, flat, and whether by columns; none if its rows stand apart.

    >>> _whole(np.array([[1, 2], [3, 4]]).T)
    (array([1, 2, 3, 4]), True)
    """
    if matrix.ndim == 2 and matrix.size:
        for array, turned in ((matrix, False), (matrix.T, True)):
            if array.flags.c_contiguous:
                return array.reshape(-1), turned
    return None, False


@row("common.add_bias", "filters")
def add_bias(compiled, bias, out):
    if bias is not None:
        n, f, *sizes = out.shape
        run(compiled.add_bias, n * f, bias, f, math.prod(sizes), out.reshape(-1))


@row("common.bias_gradient", "filters")
def conv_bias_gradient(compiled, dy, g, out):
    call(compiled.bias_gradient, g.f, dy, g.n, g.f, g.places, out)


@row("im2col.im2col", "im2col")
def im2col(compiled, x, window, out, layout, places):
    numbers = numbers_of(x.shape, window, places, layout)
    if numbers.steps[-1] != 1:
        return NotImplemented
    return call(compiled.im2col, math.prod(x.shape[:2]), x, *numbers.shapes, out, numbers.steps)


@row("im2col.col2im", "im2col", of="out")
def col2im(compiled, col, window, out, layout, places, add):
    numbers = numbers_of(out.shape, window, places, layout)
    if numbers.steps[-1] != 1:
        return NotImplemented
    args = col, *numbers.shapes, out, numbers.steps, not add
    return call(compiled.col2im, math.prod(out.shape[:2]), *args)


@row("update.update", "elementwise")
def update(compiled, rule, weight, diff, history, numbers, parts, penalty, scale, skip):
    kind, loop = weight.dtype.type, compiled.update_loop(rule, weight.dtype)
    flat = [array.reshape(-1) for array in (weight, diff, *history)]
    for here, i in parts.slices:
        w, d, *h = (array[here] for array in flat)
        decays = kind(numbers[i][-1]), penalty == "L1", kind(scale), skip
        run(loop, w.size, d, tuple(h), numbers[i][:-1], *decays, w, grain=GRAIN)
