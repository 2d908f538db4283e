"""What all engines of a convolution share: the bias, its gradient, sums of slices, and the epilogue.

An epilogue is what follows a convolution, on its outputs while they are in the cache.

    y = factor (y - mean) rate + term, by what a BatchNorm recalls    if it normalises
    y = y + other                                                if it adds
    y = 0 where less                                             if it rectifies
    a pooling of the same outputs                                if it pools

It is (steps, (channels, outputs of each), tail); the tail, see `Tail`, is the loop of the pooling, which needs
whole channels of an image. For packed weights (arguments of `normalize.recall`, factors, terms, other) follow.
The bits are those of one loop for each.
"""

from minicaffe.backends.cpu import at, compiled, compiled_sums, helper
from minicaffe.backends.cpu.atomics import function


@compiled
def add_bias(bias, f, p, y, first, last):
    """y[s, i] += bias[i] for planes first..last, of p places; f are a sample."""
    for plane in range(first, last):
        more = bias[at(plane % f)]
        for q in range(plane * p, (plane + 1) * p):
            y[at(q)] += more


@compiled_sums
def bias_gradient(dy, n, f, p, db, first, last):
    """db[i] += the sum of dy[s, i] over samples and places, for filters first..last."""
    for i in range(first, last):
        total = db.dtype.type(0)
        for s in range(n):
            for q in range((s * f + i) * p, (s * f + i + 1) * p):
                total += dy[at(q)]
        db[at(i)] += total


@compiled
def add_pieces(work, slices, start, sizes, out, first, last):
    """out[g, i] += the sums of all slices for filters first..last, in their order.

    Each slice's piece of `work` holds from `start` on a matrix (k, f) a group; out has (f, k). sizes: f, k.
    """
    f, k = sizes
    for i in range(first, last):
        here = start + i // f * k * f + i % f
        for j in range(k):
            total = out[at(i * k + j)]
            for piece in range(slices):
                total += work[at(piece * (work.size // slices) + here + j * f)]
            out[at(i * k + j)] = total


NORMALISES, ADDS, RECTIFIES, POOLS = 1, 2, 4, 8
_call = function(0, (64, 64, 64, 64))


@helper
def finish(y, start, count, epilogue):
    """Neighbouring outputs of a channel: `count` from `start` in y."""
    zero = y.dtype.type(0)
    if epilogue[0] & RECTIFIES:
        for i in range(start, start + count):
            # as a sum, all are stored: else lane by lane on many processors
            value = y[at(i)] + zero
            y[at(i)] = zero if value <= zero else value
    pool(start, count, epilogue)


@helper
def pool(start, count, epilogue):
    """Call the tail of some neighbouring outputs, of which all else is done."""
    loop, words, size, piece = epilogue[2]
    if epilogue[0] & POOLS:
        _call(loop, (words, start // size, (start + count) // size, piece))
