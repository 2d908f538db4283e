"""Samples side by side: a number of each of them makes a vector, and back. Needs Numba."""

from __future__ import annotations

from typing import Any

from numba.core import types

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.vector_ir import LONG, Emitter, lanes_of, made


@made
def _turn(typing, a, a0, apart, b, b0, places, place):
    """A square: b[b0 + places[place + j] + i] = a[a0 + i apart + j] for all lanes i, j.

    At distance 1, 2, 4 ... each two vectors exchange half of their numbers.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a_, a0, apart, b_, b0, places_, place = args
        on, add, mul = Emitter(context, builder, a), builder.add, builder.mul
        source, target, table = on.data(a, a_), on.data(b, b_), on.data(places, places_)
        count = on.count
        rows = [on.load(on.at(source, add(a0, mul(apart, LONG(i))))) for i in range(count)]
        distance = 1
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
            there = builder.sext(builder.load(on.at(table, add(place, LONG(j)))), LONG)
            on.store(vector, on.at(target, b0, there))
        return context.get_dummy_value()

    long = types.int64
    return types.void(a, long, long, b, long, places, long), generate


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
