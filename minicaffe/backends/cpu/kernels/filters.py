"""What all engines of a convolution share: the bias, its gradient, and sums taken slice by slice."""

from __future__ import annotations

from minicaffe.backends.cpu import at, compiled, compiled_sums


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

    Of the equal pieces of `work`, one a slice, each holds from `start` on a matrix (k, f) for each group;
    out has (f, k). sizes are f and k.
    """
    f, k = sizes
    for i in range(first, last):
        here = start + i // f * k * f + i % f
        for j in range(k):
            total = out[at(i * k + j)]
            for piece in range(slices):
                total += work[at(piece * (work.size // slices) + here + j * f)]
            out[at(i * k + j)] = total
