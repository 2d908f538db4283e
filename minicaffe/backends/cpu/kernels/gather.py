"""Rows of a matrix by their numbers, sums over copies, and pixels by their places."""

import numpy as np

from minicaffe.backends.cpu import at, compiled


@compiled
def places(index, n, out, refused, first, last):
    """Numbers as int32, -1 for one that is none of 0..n-1, which sets `refused`."""
    for i in range(first, last):
        value = index[at(i)]
        inside = value > -1 and value < n
        out[at(i)] = np.int32(value) if inside else np.int32(-1)
        if not inside:
            refused[0] = 1


@compiled
def take(x, place, d, out, first, last):
    """out[i] = x[place[i]], rows of d entries; NaN where that is -1."""
    for i in range(first, last):
        here = place[i] * d
        for q in range(d):
            out[at(i * d + q)] = x[at(here + q)] if here >= 0 else out.dtype.type(np.nan)


@compiled
def put_back(dy, place, d, add, out, first, last):
    """out[k] = sum of dy[i] over the i with place[i] = k, in their order, for rows first..last of out."""
    if not add:
        for q in range(first * d, last * d):
            out[at(q)] = 0
    for i in range(len(place)):
        k = place[i]
        if k >= first and k < last:
            for q in range(d):
                out[at(k * d + q)] += dy[at(i * d + q)]


@compiled
def fold(x, count, d, out, first, last):
    """out[a, b] = sum over t < count of x[a, t, b], b < d."""
    for a in range(first, last):
        for b in range(d):
            out[at(a * d + b)] = x[at(a * count * d + b)]
        for t in range(1, count):
            here = (a * count + t) * d
            for b in range(d):
                out[at(a * d + b)] += x[at(here + b)]


@compiled
def mask_places(mask, size, out, refused, first, last):
    """A mask's numbers as int64: -1 for none; -2 for no place of `size` pixels, which sets `refused`."""
    for i in range(first, last):
        value = mask[at(i)]
        inside = value >= -1 and value < size
        out[at(i)] = np.int64(value) if inside else np.int64(-2)
        if not inside:
            refused[0] = 1


@compiled
def unpool(x, place, pixels, size, out, first, last):
    """out = 0 but out[place[i]] = x[i], plane by plane; one outside makes a plane's first pixel NaN."""
    for plane in range(first, last):
        for p in range(plane * size, (plane + 1) * size):
            out[at(p)] = 0
        for i in range(plane * pixels, (plane + 1) * pixels):
            if place[at(i)] >= 0:
                out[at(plane * size + place[at(i)])] = x[at(i)]
        for i in range(plane * pixels, (plane + 1) * pixels):
            if place[at(i)] < -1:
                out[at(plane * size)] = np.nan


@compiled
def unpool_gradient(dy, place, pixels, size, out, first, last):
    """dx[i] = dy[place[i]], 0 where that is none."""
    for i in range(first * pixels, last * pixels):
        pixel = place[at(i)]
        out[at(i)] = dy[at(i // pixels * size + pixel)] if pixel >= 0 else dy.dtype.type(0)
