"""Ops by CUDA kernels: a table of which kernel computes each, and with which arguments.

A row has the names of the arguments that it takes of its op; the NumPy function in core/ops says what that is.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.backends.cuda import direct, implicit_gemm, moments
from minicaffe.backends.cuda.capture import arrived
from minicaffe.backends.cuda.cublas import multiply
from minicaffe.backends.cuda.emit import NUMBERS
from minicaffe.backends.cuda.implicit_gemm import product
from minicaffe.backends.cuda.launch import (
    BLOCKS,
    EACH,
    GRID,
    SECTOR,
    THREADS,
    fill,
    in_sum_type,
    launch,
    launch_blocks,
    launch_typed,
)
from minicaffe.backends.dispatch import OpTable, flag, number
from minicaffe.backends.launch_listener import ask
from minicaffe.core.ops.geometry import numbers_of
from minicaffe.core.ops.rows import Affine, by_channel

MANY = 2**16  # threads that are enough to keep a device busy
COUNTS, APART = 1, 2  # the labels that count are the normalizer; or to be added to others'
OF = ("values", "squares", "magnitudes")  # what can be summed, by its number in sums.cu
LEAST = 1e-20  # a smaller probability counts as this (Caffe's kLOG_THRESHOLD)
REACH, CHANNELS = 2, 16  # of windows across channels in registers, and channels of a thread
SAMPLES = 8  # that a thread of the loop-free im2col takes its entry of
OWN = 2**26  # multiply-adds up to which one product is our kernel: the launch takes longest
BLOCK = 8  # random numbers of float32 from one step of the counter

ROWS = OpTable()
row = ROWS.add


def kernel(op: str) -> Any:
    """Add a row that returns what is launched: how many entries, types, and arguments of the kernel."""
    name = op.partition(".")[2]

    def decorated(function: Any) -> Any:
        @row(op)
        @functools.wraps(function)
        def launched(*args: Any) -> None:
            total, types, *kernel_args = function(*args)
            launch_typed(name, total, types, *kernel_args)

        return launched

    return decorated


@row("arrays.apply")
def apply(name, a, b, out):
    if name != "copy":
        ufunc = getattr(np, name)
        ask(name, "", (), (a, b, out), lambda by: ufunc(*by.args[:2], out=by.args[2]))
    elif hasattr(b, "dtype"):
        ask(name, "", (), (out, b), lambda asked: np.copyto(*asked.args))
    else:
        fill(out, b)


@row("elementwise.gradient")
def gradient(name, dy, x, y, numbers, out):
    args = dy, x, y, *_all(x, numbers), out
    launch("elementwise_gradient", x.size, x, *args, of=(name,))


def _all(x: Any, numbers: tuple[float, ...]) -> list[Any]:
    """The numbers in the type that a kernel computes in, and zeros up to what it takes."""
    return [number(value, x) for value in (*numbers, *[0] * (NUMBERS - len(numbers)))]


@kernel("random.dropout")
def dropout(x, mask, ratio, out):
    stream = mask.key.there, np.uint64(mask.first), x.size, np.float32(ratio)
    args = *stream, number(1 / (1 - ratio), x), x, mask.kept, out
    return blocks_of(x.size, mask.first), (x,), *args


row("implicit.forward", work=implicit_gemm.workspace)(implicit_gemm.forward)
row("direct.weight_gradient", work=direct.workspace)(direct.weight_gradient)


@row("implicit.input_gradient")
def implicit_input_gradient(dy, weight, g, out, work):
    if g.is_product:
        product(dy.reshape(g.n, g.f), weight.reshape(g.f, g.c), out.reshape(g.n, g.c), work)
    else:
        implicit_gemm.input_gradient(dy, weight, g, out, work)


def _sums_launch(x: Any, shape: Any, out: Any, work: Any, scale=1.0, of=0, add=False) -> None:
    """Sum x (outer, f, inner) over its outer and inner axis into `out`, in one launch or in two."""
    outer, f, inner = shape
    entries, wide = outer * inner, SECTOR if inner == 1 and f > 1 else 1
    while wide < min(f, THREADS // 8) and THREADS // wide > entries:  # more threads than entries
        wide *= 2
    # Neighbours enough for all blocks: more of them side by side
    while inner == 1 and wide < THREADS and f >= 2 * wide * 4 * BLOCKS:
        wide *= 2
    blocks, sums = -(-f // wide), in_sum_type(work, x)
    most = min(BLOCKS // max(1, blocks), entries * wide // (EACH * THREADS))
    parts = max(1, min(most, sums.size // max(1, f)))
    args = x, entries, f, max(1, inner), wide, of  # a kernel divides by it
    if parts == 1:
        ends = number(scale, x), int(add), out
        launch_blocks("sums", (blocks,), (x, out), *args, *ends)
        return
    launch_blocks("sums", (blocks, parts), (x, sums), *args, number(1, x), 0, sums)
    _sums_launch(sums[: parts * f], (parts, f, 1), out, None, scale, add=add)


@row("softmax.softmax_loss")
def softmax_loss(x, labels, ignore, prob, losses, read, mean, out, work):
    if not x.size:
        mean.of(losses, read.valid, out, work)
        return
    counts = 0 if not mean.counts else COUNTS if mean.add is None else APART
    of_labels = labels, *flag(ignore), losses, read.valid, arrived(), counts
    dloss = dx = None  # what cuda.fusion puts there
    more = *of_labels, mean.normalizer, out, dloss, dx
    _softmax_launch("softmax_loss", x.shape, (x, prob), x, more=more)
    if counts == APART:
        mean.over(out)


def _softmax_launch(name: str, shape: Any, types: Any, *arrays: Any, more: Any = ()) -> None:
    """A kernel of softmax.cu: as many threads a column as it has classes, unless columns are plenty."""
    n, c, s = shape
    most, lanes = THREADS if s == 1 else min(THREADS, MANY // max(1, n * s)), 1
    while lanes < c and 2 * lanes <= most:
        lanes *= 2
    grid = (min(-(-n * s * lanes // THREADS), GRID),)
    launch_blocks(name, grid, types, n * s, *arrays, c, s, lanes, *more, types[1])


@kernel("label_losses.infogain")
def infogain(prob, labels, matrix, ignore, out, read):
    n, c, s = prob.shape
    args = matrix, prob, labels, c, s, *flag(ignore), number(LEAST, out), out, read.valid
    return n * s, (matrix, out), *args


@kernel("pair_losses.contrastive")
def contrastive(diff, similar, margin, legacy, out, pull):
    n, c = diff.shape
    return n, (diff, similar, out), diff, similar, c, number(margin, out), int(legacy), out, pull


@kernel("argmax.largest")
def largest(x, place, number):
    n, c, s = x.shape
    return n * s, (x,), x, c, s, place.shape[1], place, number


@kernel("batch.gather")
def gather(images, labels, places, mean, scale, out, out_labels):
    n, _, *area = out.shape
    sizes = (*images.shape[1:], *area)
    scaling = mean.dtype.type(scale)
    return out.size, (out,), images, labels, places, mean, scaling, n, *sizes, out, out_labels


@row("take.add_gradient")
def add_gradient(dy, indices, out, empty):
    if empty:
        fill(out, 0)
    launch("embed_gradient", dy.size, out, dy, indices, len(dy), *out.shape, out)


@row("pool.mask")
def mask(which, window, width, corners, out):
    sizes = corners.size, window.kernel[1], width
    launch("winners", which.size, out, which, corners, *sizes, out)


@row("pool.unpool")
def unpool(x, place, out, winner):
    pixels, size = math.prod(x.shape[2:]), math.prod(out.shape[2:])
    fill(winner, -1)
    launch("claim", x.size, x, place, pixels, size, winner)
    launch("unpool", out.size, x, x, pixels, size, winner, out)


@row("channels.gradients")
def channels_gradients(dy, x, a, da, db, out, work):
    if not x.size or (da is None and db is None):
        return NotImplemented
    over = by_channel(x.shape)
    affine = None if out is None else Affine(over, a, None)
    moments.gradients(x, dy, over, work, None, affine, (da, db), g=out)


@row("channels._add_products")
def add_products(dy, x, out, work, way):
    if way == 0:
        _sums_launch(dy, dy.shape, out, work, add=True)
    elif way == 1:  # by a kernel that finds both sums
        moments.gradients(x, dy, by_channel(x.shape), work, learnt=(out, None))
    else:
        work = in_sum_type(work, x)
        products, rest = work[: x.size].reshape(x.shape), work[x.size :]
        launch("products", x.size, x, dy, x, products)
        _sums_launch(products, products.shape, out, rest, add=True)


@row("rows.statistics")
def statistics(x, rows, norm, out, work, past):
    if not x.size:
        return NotImplemented
    moments.moments(x, rows, norm, out, work, past)


@row("rows.recalled")
def recalled(mean, past, norm, out):
    args = mean, past.variance, past.batches, mean.dtype.type(norm.eps)
    launch("recall", mean.size, mean, *args, out.mean, out.spread, out.rate)


@row("normalize.normalise")
def normalise(x, rows, stats, affine, out, norm, work, past):
    if not x.size:
        return NotImplemented
    then = moments.ends(affine, out)
    if norm is None or not moments.moments(x, rows, norm, stats, work, past, then):
        grid, wide = moments.spread(rows)
        args = rows.count, x, stats.mean, stats.rate, *rows.seen, wide, *then
        launch_blocks("normalise", grid, (out,), *args)


@row("normalize.gradients")
def normalize_gradients(x, dy, rows, norm, stats, affine, learnt, out, work):
    if not x.size:
        return NotImplemented
    of, means = (rows, norm, stats), None
    learns = affine is not None and any(sums is not None for sums in learnt)
    apart = norm is None or out is None or affine is None or affine.rows != rows
    if affine is not None and learns and apart:
        moments.gradients(x, dy, affine.rows, work, of, learnt=learnt)
        learnt = None, None
    if norm is not None and out is not None:
        means = moments.gradients(x, dy, rows, work, of, affine, learnt, dx=out)
        if means is None:
            return
    if out is not None:
        scale, _, features, places = moments.learned(affine)
        grid, wide = moments.spread(rows)
        args = x, dy, scale, features, places, stats.mean, stats.rate, *rows.seen, wide, means, out
        launch_blocks("normalise_gradient", grid, (out,), rows.count, *args)


@row("lrn.lrn")
def lrn(x, response, s, out):
    r, kind = response, s.dtype.type
    numbers = kind(r.base), kind(r.alpha), kind(r.beta)
    if _is_across(r):
        launch_typed("lrn_across", *_columns(r, x), *numbers, s, out)
    else:
        launch("lrn", x.size, out, x, *r.image[1:], r.up, r.side, *numbers, s, out)


@row("lrn.lrn_gradient")
def lrn_gradient(x, dy, response, s, out, work):
    r, kind = response, s.dtype.type
    numbers = kind(r.alpha), kind(r.beta)
    if _is_across(r):
        launch_typed("lrn_across_gradient", *_columns(r, x, dy, s), *numbers, out)
        return
    ratio = in_sum_type(work, x)[: x.size]
    launch("lrn_ratio", x.size, out, x, dy, s, numbers[1], ratio)
    sizes = *r.image[1:], r.up, r.side
    launch("lrn_gradient", x.size, out, x, dy, s, ratio, *sizes, *numbers, out)


def _is_across(r: Any) -> bool:
    """Whether a window lies across few channels, which a thread then keeps in registers."""
    return r.side == 0 and 0 < r.up <= REACH


def _columns(r: Any, x: Any, *arrays: Any) -> tuple[Any, ...]:
    """What a kernel of lrn_across.cu is launched with, but for its numbers."""
    n, c, places = r.image
    chunks = -(-c // CHANNELS)
    return n * chunks * places, (x, r.up), x, *arrays, c, places, chunks


def _pool_sizes(image: Any, window: Any, pooled: Any) -> tuple[int, ...]:
    return (*image.shape[2:], *window.kernel, *window.pad, *window.stride, *pooled.shape[2:])


@row("pool.max_pool_gradient")
def max_pool_gradient(dy, which, window, out):
    h, w, *sizes, oh, ow = _pool_sizes(out, window, dy)
    if sizes == [2, 2, 0, 0, 2, 2]:
        total = math.prod(out.shape[:2]) * -(-h // 2) * -(-w // 2)
        launch("max_pool_gradient_2x2", total, out, dy, which, h, w, oh, ow, None, out)
    else:
        launch("max_pool_gradient", out.size, out, dy, which, h, w, *sizes, oh, ow, None, out)


@kernel("interp.interp")
def interp(x, rows, columns, out):
    (h, w), (oh, ow) = x.shape[2:], out.shape[2:]
    return out.size, (x,), x, rows.low, rows.share, columns.low, columns.share, h, w, oh, ow, out


@kernel("interp.interp_gradient")
def interp_gradient(dy, rows, columns, out):
    (oh, ow), (h, w) = dy.shape[2:], out.shape[2:]
    axes = [part for axis in (rows, columns) for part in (axis.low, axis.share, axis.first)]
    return out.size, (dy,), dy, *axes, h, w, oh, ow, out


def _stochastic_sizes(image: Any, window: Any, pooled: Any) -> tuple[int, ...]:
    return (*image.shape[2:], *window.kernel, *window.stride, *pooled.shape[2:])


@row("random.philox")
def philox(out, key, first):
    low, high = map(np.uint64, key)
    args = low, high, np.uint64(first), out.size, out
    launch("uniform", blocks_of(out.size, first), out, *args)


def blocks_of(count: int, first: int = 0) -> int:
    """How many of the stream's blocks hold so many numbers from the `first` on.

    >>> blocks_of(8), blocks_of(8, first=7)
    (1, 2)
    """
    return (first % BLOCK + count + BLOCK - 1) // BLOCK


@row("nan_guard.squares")
def squares(x, out, parts, bad, add):
    count = _squares(x, parts, bad)
    _sums_launch(parts[:count], (1, 1, count), out, None, add=add)


@row("nan_guard.judge")
def judge(loss, gradients, square, parts, limit, pass_over, flags, going, factor):
    bad = flags[:1]
    count, share = 0, parts.size // max(1, len(gradients))
    for gradient in gradients:
        count += _squares(gradient, parts[count : count + share], bad)
    args = np.float64(limit), int(pass_over), flags, going, factor
    launch_blocks("judge", (1,), (loss,), loss, parts, count, square, *args)


def _squares(x: Any, parts: Any, bad: Any) -> int:
    """Sums of x^2, on CUDA a block's each, into `parts`; how many there are."""
    blocks = max(1, min(BLOCKS, parts.size, x.size // (EACH * THREADS)))
    launch_blocks("squares", (blocks,), (x,), x.size, x, parts, bad)
    return blocks


@row("linear.linear")
def linear(x, weight, bias, out, work, plan):
    if _own(x, weight, plan, "forward"):
        product(weight.T, x.T, out.T, work, bias)
        return
    multiply(x, weight, out, False)
    if bias is not None:
        apply("add", out, bias, out)


@row("linear.gradients")
def gradients(x, dy, dweight, dbias, work, plan):
    if dweight is None or not _own(dy.T, x, plan, "weight_gradient"):
        return NotImplemented
    (dw, empty), (db, fresh) = dweight, dbias or (None, True)
    return product(dy.T, x, dw, work, add=not empty, sums=db, add_sums=not fresh)


@row("linear.weight_gradient")
def weight_gradient(a, b, out, empty, work, plan):
    if not _own(a, b, plan, "weight_gradient"):
        return NotImplemented
    return product(a, b, out, work, add=not empty)


@row("linear.input_gradient")
def input_gradient(dy, weight, out, work, plan):
    if not _own(dy, weight, plan, "input_gradient"):
        return multiply(dy, weight, out, False)
    return product(dy, weight, out, work)


@row("linear.bias_gradient")
def bias_gradient(dy, out, empty, work):
    if empty:
        fill(out, 0)
    _sums_launch(dy, (*dy.shape, 1), out, work, add=True)


def _own(a: Any, b: Any, plan: Any, way: str) -> bool:
    """True if our own kernel multiplies two matrices; if no plan says so, where that is small."""
    size = a.shape[0] * a.shape[1] * b.shape[1]
    if not size or not all(m.flags.c_contiguous or m.flags.f_contiguous for m in (a, b)):
        return False
    return size <= OWN if plan is None else plan.names[way] == "implicit"


@row("im2col.im2col")
def im2col(x, window, out, layout, form, places):
    numbers = numbers_of(x.shape, window, places, layout)
    if form == "caffe":
        total = math.prod(x.shape[:2]) * math.prod(numbers.places)
        launch("im2col", total, out, x, *numbers.sizes, out)
    else:
        threads = -(-len(x) // SAMPLES) * (out.size // max(len(x), 1))
        launch("im2col_loopfree", threads, out, x, *numbers.sizes, out)


@row("im2col.col2im")
def col2im(col, window, out, layout, form, places, add):
    numbers = numbers_of(out.shape, window, places, layout)
    if form == "gather":
        launch("col2im", out.size, out, col, *numbers.sizes, int(add), out)
        return
    if not add:
        out.fill(0)
    launch("col2im_scatter", col.size, out, col, *numbers.sizes, out)


@row("update.update")
def update(rule, weight, diff, history, numbers, parts, penalty, scale, skip):
    rows = numbers, numbers.shape[1], parts.there, len(parts.there)
    settings = *rows, int(penalty == "L1"), number(scale, weight), skip
    arrays = weight, diff, history[0], history[1] if len(history) > 1 else None
    grid = (min(-(-weight.nbytes // (16 * THREADS)), GRID),)
    launch_blocks("update", grid, (weight, rule), weight.size, *arrays, *settings)


def over(entries: Any, types: tuple[Any, ...], *args: Any) -> tuple[Any, ...]:
    """What a `kernel` is launched with that runs over the entries of an array."""
    return entries.size, types, *args


# What the kernel of an op is launched with, over the entries of an array
KERNELS: dict[str, Callable[..., Any]] = {
    "random.dropout_gradient": lambda dy, mask, ratio, out: over(
        dy, (dy,), dy, mask.kept, number(1 / (1 - ratio), dy), None, out
    ),
    "update.average": lambda mean, x, share, skip: over(mean, (mean,), mean, x, share, skip),
    "label_losses.row_sums": lambda matrix, out: over(out, (matrix, out), matrix, out),
    "pair_losses.difference": lambda a, b, out: over(out, (a, b, out), a, b, out),
    "pair_losses.smooth_l1": lambda a, b, inside, outside, sigma, out: over(
        out, (a, b, out), a, b, inside, outside, number(sigma**2, out), out
    ),
    "pair_losses.smooth_l1_gradient": lambda a, b, inside, outside, sigma, scale, sign, out: over(
        out, (a, b, out), a, b, inside, outside, number(sigma**2, out), scale, sign, out
    ),
    "pair_losses.sigmoid_cross_entropy": lambda x, target, ignore, out, valid: over(
        out, (x, target, out), x, target, *flag(ignore), out, valid
    ),
    "pair_losses.sigmoid_cross_entropy_gradient": lambda x, target, ignore, scale, out: over(
        out, (x, target, out), x, target, *flag(ignore), scale, out
    ),
    "softmax.class_accuracy": lambda hits, valid, labels, out: over(
        out, (out,), hits, valid, labels, labels.size, out
    ),
    "take.places": lambda index, n, out: over(index, (index,), index, n, out),
    "take.take": lambda x, place, out: over(out, (x,), x, place, x.shape[1], out),
    "take.put_back": lambda dy, place, out: over(
        out, (dy,), dy, place, dy.shape[1], dy.shape[0], out
    ),
    "take.fold": lambda x, out: over(out, (x,), x, x.shape[1], x.shape[2], out),
    "take.embed": lambda indices, weight, out: over(
        out, (out,), indices, weight, *weight.shape, out
    ),
    "pool.max_pool": lambda x, window, out, which: over(
        out, (out,), x, *_pool_sizes(x, window, out), out, which
    ),
    "pool.ave_pool": lambda x, window, out: over(out, (out,), x, *_pool_sizes(x, window, out), out),
    "pool.ave_pool_gradient": lambda dy, window, out: over(
        out, (out,), dy, *_pool_sizes(out, window, dy), None, out
    ),
    "pool.roi_pool": lambda x, rois, scale, out, which: over(
        out, (out,), x, rois, *x.shape, *out.shape[2:], number(scale, x), out, which
    ),
    "pool.roi_pool_gradient": lambda dy, which, rois, scale, out: over(
        out, (out,), dy, which, rois, len(dy), *out.shape[1:], *dy.shape[2:], number(scale, dy), out
    ),
    "pool.draw_pool": lambda x, window, noise, out, which: over(
        out, (x,), x, noise, *_stochastic_sizes(x, window, out), out, which
    ),
    "pool.expected_pool": lambda x, window, out, total: over(
        out, (x,), x, *_stochastic_sizes(x, window, out), out, total
    ),
    "pool.expected_pool_gradient": lambda dy, x, y, total, window, out: over(
        x, (x,), dy, x, y, total, *_stochastic_sizes(x, window, dy), out
    ),
    "recurrent.lstm_unit": lambda x, r, cont, c_prev, acts, c, h: over(
        h, (x, c), x, r, cont, c_prev, h.shape[1], acts, c, h
    ),
    "recurrent.lstm_unit_gradient": lambda acts, c_prev, c, cont, dh, r, after, dc, dx: over(
        dh, (acts, c), acts, c_prev, c, cont, dh, r, after, dh.shape[1], dc, dx
    ),
    "label_losses.hinge": lambda x, labels, out: over(
        x, (x, labels, out), x, labels, x.shape[1], out
    ),
    "label_losses.hinge_gradient": lambda margins, labels, squared, scale, out: over(
        margins, (margins, labels, out), margins, labels, margins.shape[1], int(squared), scale, out
    ),
    "label_losses.multinomial": lambda prob, labels, out: over(
        out, (prob, labels, out), prob, labels, prob.shape[1], number(LEAST, out), out
    ),
    "label_losses.multinomial_gradient": lambda prob, labels, scale, out: over(
        prob, (prob, labels, out), prob, labels, prob.shape[1], number(LEAST, out), scale, out
    ),
    "label_losses.infogain_gradient": lambda prob, labels, matrix, sums, ignore, scale, out: over(
        prob, (matrix, out), matrix, prob, labels, sums, *prob.shape[1:], *flag(ignore), scale, out
    ),
    "softmax.accuracy": lambda scores, labels, top_k, ignore, out, read: over(
        out, (out,), scores, labels, *scores.shape[1:], top_k, *flag(ignore), out, read.valid
    ),
    "pool.unpool_gradient": lambda dy, place, out: over(
        out, (dy,), dy, place, math.prod(out.shape[2:]), math.prod(dy.shape[2:]), out
    ),
    "channels.scale": lambda x, a, b, out: over(
        x, (x,), x, a, b, int(b is not None and b.shape == x.shape), *x.shape[1:], 0, out
    ),
    "softmax.softmax_loss_gradient": lambda prob, labels, ignore, dloss, out, mean: over(
        out, (out,), prob, labels, *prob.shape[1:], *flag(ignore), dloss, mean.normalizer, out
    ),
    "recurrent.tanh_unit": lambda x, r, cont, h: over(h, (x,), x, r, cont, h.shape[1], h),
    "recurrent.tanh_unit_gradient": lambda h, dh, r, after, dx: over(
        h, (h,), h, dh, r, after, h.shape[1], dx
    ),
    "update.unscale": lambda diff, scale, gradient, add, bad: over(
        diff, (diff,), diff, gradient.dtype.type(scale), int(add), gradient, bad
    ),
}
# Ops that are one call
LAUNCHES: dict[str, Callable[..., Any]] = {
    "sums.total": lambda x, out, work, scale, squares, add: _sums_launch(
        x, (1, 1, x.size), out, work, scale, int(squares), add
    ),
    "sums.rows": lambda x, out, work, of, scale: _sums_launch(
        x, (1, *x.shape), out, work, scale, OF.index(of)
    ),
    "sums.add_rows": lambda rows, out, add: _sums_launch(
        rows, (len(rows), out.size, 1), out, None, add=add
    ),
    "direct.forward": direct.forward,
    "direct.input_gradient": direct.input_gradient,
    "softmax.softmax": lambda x, out: _softmax_launch("softmax", x.shape, (x, out), x),
    "softmax.softmax_gradient": lambda dy, y, out: _softmax_launch(
        "softmax_gradient", dy.shape, (dy, out), dy, y
    ),
    "pool.places": lambda mask, image, out: launch(
        "mask_places", mask.size, mask, mask, image[0] * image[1], out
    ),
    "channels.prelu_gradient": lambda dy, x, a, out: launch(
        "prelu", x.size, x, dy, x, a, *x.shape[1:], out
    ),
    "elementwise.forward": lambda name, x, numbers, out: launch(
        "elementwise", x.size, x, x, *_all(x, numbers), out, of=(name,)
    ),
    "sums.add_places": lambda x, out, work, add: _sums_launch(x, x.shape, out, work, add=add),
    "common.bias_gradient": lambda dy, g, out, work: _sums_launch(
        dy.reshape(g.n, g.f, g.places), (g.n, g.f, g.places), out, work, add=True
    ),
    "implicit.weight_gradient": lambda x, dy, g, out, work: implicit_gemm.weight_gradient(
        x, dy, g, out, work
    ),
    "implicit.weight_and_bias_gradients": lambda x, dy, g, dw, db, work: (
        implicit_gemm.weight_gradient(x, dy, g, dw, work, db)
    ),
    "gemm.gemm": multiply,
}
for _op, _function in KERNELS.items():
    kernel(_op)(_function)
for _op, _function in LAUNCHES.items():
    row(_op)(_function)
