"""Rows of test_launch.py's table: rows by their numbers, largest numbers, unpooling, interpolation."""

import numpy as np
from core.ops.cases import blank, numbers, put
from core.ops.launch_rows import drawn, summed, table

from minicaffe.core.ops import argmax
from minicaffe.core.ops import interp as between
from minicaffe.core.ops import pool as masks
from minicaffe.core.ops import take as numbered
from minicaffe.core.ops.geometry import Window

ROWS, row = table()
PLACES = [2, 0, 2, 1, 1, 2, 4, 0]  # of 5 rows: some more than once, one never


@row
def places(device, dtype):
    index, out = put(device, PLACES, summed(dtype)), blank(device, 8, np.int32)
    return lambda: numbered.places(index, 5, out, np.zeros(1, np.int32)), [out]


@row
def take(device, dtype):
    x, place = *drawn(device, dtype, (5, 3)), put(device, PLACES, np.int32)
    out = blank(device, (8, 3), dtype)
    return lambda: numbered.take(x, place, out), [out]


@row
def put_back(device, dtype):
    """Sums of up to 120 numbers, too long for 16 bits."""
    dy = put(device, np.abs(numbers(1, (320, 3), dtype=dtype)[0]))
    place = put(device, PLACES * 40, np.int32)
    out = blank(device, (5, 3), dtype)
    return lambda: numbered.put_back(dy, place, out), [out]


@row
def fold(device, dtype):
    x = put(device, np.abs(numbers(1, (3, 300, 5), dtype=dtype)[0]))
    out = blank(device, (3, 5), dtype)
    return lambda: numbered.fold(x, out), [out]


@row
def largest(device, dtype):
    """Of two columns, in each sample, some numbers are equal: of these the last comes first."""
    (x,) = numbers(1, (3, 9, 4), dtype=dtype)
    x[:, [1, 4, 7], :2] = 1
    x, flags = put(device, x), blank(device, (4, 3, 4), bool)
    place, number = (blank(device, (3, 4, 4), kind) for kind in (np.int32, dtype))
    return lambda: argmax.largest(x, place, number, flags), [place, number]


IMAGES, POOLED = (2, 3, 5, 4), (2, 3, 3, 4)


def mask(device, dtype):
    """Some pixels go nowhere, and many to where another goes."""
    where = np.random.default_rng(1).integers(-1, 9, POOLED)
    return put(device, where, summed(dtype)), put(device, where, np.int64)


@row
def winners(device, dtype):
    """Some windows have none; their corners lie in the padding, too."""
    which = np.random.default_rng(1).integers(-1, 6, POOLED)
    corners = np.arange(12).reshape(POOLED[2:]) - 3
    which, corners, place = (put(device, array, np.int32) for array in (which, corners, which))
    out, none = blank(device, POOLED, summed(dtype)), blank(device, POOLED, bool)
    return lambda: masks.mask(which, Window((2, 3), (2, 2)), 7, corners, out, place, none), [out]


@row
def mask_places(device, dtype):
    given, place = mask(device, dtype)[0], blank(device, POOLED, np.int64)
    return lambda: masks.places(given, IMAGES[2:], place, np.zeros(1, np.int32)), [place]


@row
def unpool(device, dtype):
    x, (_, place) = *drawn(device, dtype, POOLED), mask(device, dtype)
    out, winner = blank(device, IMAGES, dtype), blank(device, IMAGES, np.int32)
    return lambda: masks.unpool(x, place, out, winner), [out]


ROWS["claim"] = unpool


@row
def unpool_gradient(device, dtype):
    dy, (_, place) = *drawn(device, dtype, IMAGES), mask(device, dtype)
    out = blank(device, POOLED, dtype)
    return lambda: masks.unpool_gradient(dy, place, out), [out]


def axes(device, dtype):
    """Rows 1 to 3 of 5 to 60, 6 columns to 4; the scratch for 6 images."""
    spans = (5, 3, 60, 1), (6, 6, 4, 0)
    made = [between.Axis.of(device.xp, *span, summed(dtype)) for span in spans]
    return *made, blank(device, 6 * 60 * 12, dtype)


@row
def interp(device, dtype):
    x, out = numbers(1, (2, 3, 5, 6), (2, 3, 60, 4), dtype=dtype)
    x, out, (rows, columns, work) = put(device, x), put(device, out), axes(device, dtype)
    return lambda: between.interp(x, rows, columns, out, work), [out]


@row
def interp_gradient(device, dtype):
    """Sums of some 100 numbers."""
    dy, dx = numbers(1, (2, 3, 60, 4), (2, 3, 5, 6), dtype=dtype)
    dy, dx, (rows, columns, work) = put(device, np.abs(dy)), put(device, dx), axes(device, dtype)
    return lambda: between.interp_gradient(dy, rows, columns, dx, work), [dx]
