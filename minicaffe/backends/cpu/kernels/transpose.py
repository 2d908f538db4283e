"""Samples side by side: a number of each of them makes a vector, and back. Needs Numba."""

from __future__ import annotations

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.vector_ir import LONG, emitted, lanes_of


@emitted("a")
def _turn(on, a, a0, apart, b, b0, places, place):
    """A square: b[b0 + places[place + j] + i] = a[a0 + i apart + j] for all lanes i, j.

    At distance 1, 2, 4 ... each two vectors exchange half of their numbers.
    """
    builder, count, distance = on.builder, on.count, 1
    rows = [on.load(on.at(a, a0, builder.mul(apart, LONG(i)))) for i in range(count)]
    while distance < count:
        low = [j if not j & distance else count + j - distance for j in range(count)]
        high = [j + distance if not j & distance else count + j for j in range(count)]
        for i in range(count):
            if not i & distance:
                two = rows[i], rows[i + distance]
                rows[i] = on.pick(two[0], low, two[1])
                rows[i + distance] = on.pick(two[0], high, two[1])
        distance *= 2
    for j, vector in enumerate(rows):
        there = builder.sext(builder.load(on.at(places, place, LONG(j))), LONG)
        on.store(vector, on.at(b, b0, there))


@helper
def to_lanes(x, start, apart, valid, count, places, place, out, to):
    """out[to + places[place + i] + l] = x[start + l apart + i] for i < count; 0 for lanes from `valid` on."""
    lanes = lanes_of(x)
    if valid == lanes and count >= lanes:
        for i in range(0, count - lanes + 1, lanes):
            _turn(x, start + i, apart, out, to, places, place + i)
        if count % lanes:
            i = count - lanes
            _turn(x, start + i, apart, out, to, places, place + i)
        return
    for i in range(count):
        there = to + places[at(place + i)]
        for lane in range(valid):
            out[at(there + lane)] = x[at(start + lane * apart + i)]
        for lane in range(valid, lanes):
            out[at(there + lane)] = 0
