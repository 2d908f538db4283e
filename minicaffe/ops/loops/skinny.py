"""Products of a few vectors with a large matrix, which is read once, as it lies: by the tiles of `tile`.

BLAS copies a matrix into blocks before it multiplies; with few vectors that takes longer than the product.
Matrices are flat: a (m, k), b (k, n), c (m, n), sizes (m, n, k). `steps` and `places` are the tables of the
tiles: k entries of the sum, or m vectors; vectors of neighbours, of so many lanes, in a row of the matrix.
"""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled, helper
from minicaffe.ops.loops.tile import ADD, COLUMNS, ROWS, ZERO, add_sums, multiply
from minicaffe.ops.loops.tile import lanes as lanes


@compiled
def product(
    sizes: Any,
    a: Any,
    a_turned: bool,
    b: Any,
    add: bool,
    rows: bool,
    deep: int,
    wide: int,
    steps: Any,
    places: Any,
    lanes: int,
    c: Any,
    first: int,
    last: int,
) -> None:
    """c = a b, or c += a b, where m is small, or, of `rows`, k.

    A unit is COLUMNS vectors of each row of c, or ROWS rows. At a time `deep` rows of b are taken, and of
    them `wide` vectors.
    """
    m, n, k = sizes
    row, apart = (1, m) if a_turned else (k, 1)
    r0, r1, v0, v1 = 0, m, first * COLUMNS, min(len(places), last * COLUMNS)
    if rows:
        r0, r1, v0, v1 = first * ROWS, min(m, last * ROWS), 0, len(places)
    down = ROWS if rows else m
    for v in range(v0, v1, wide):
        there = places, v, min(v1, v + wide)
        for r in range(r0, r1, down):
            height = min(down, r1 - r)
            for step in range(0, k, deep):
                left, some = (a, r * row, row), (steps, step, min(k, step + deep))
                begin, to = ADD if add or step else ZERO, (c, r * n, n)
                multiply(left, (b, 0), to, some, there, height, begin, (c, 0))
    if v1 == len(places):
        rest(sizes, (a, row, apart), b, add, lanes * len(places), c, r0, r1)


@helper
def rest(sizes: Any, a: Any, b: Any, add: bool, column: int, c: Any, first: int, last: int) -> None:
    """The same of rows first..last, columns from `column` on, which fill no vector; a as it lies."""
    (_, n, k), (values, row, apart) = sizes, a
    for r in range(first, last):
        for q in range(column, n):
            total = c[at(r * n + q)] if add else c.dtype.type(0)
            for i in range(k):
                total += values[at(r * row + i * apart)] * b[at(i * n + q)]
            c[at(r * n + q)] = total


@compiled
def dots(
    sizes: Any,
    a: Any,
    b: Any,
    bias: Any,
    add: bool,
    steps: Any,
    places: Any,
    lanes: int,
    c: Any,
    first: int,
    last: int,
) -> None:
    """c = a b + bias, or c += a b, where m is small and b lies by columns: a unit is ROWS of them."""
    m, n, k = sizes
    for q in range(first * ROWS, min(n, last * ROWS), ROWS):
        rows = min(ROWS, n - q)
        for i in range(m):
            for j in range(q, q + rows):
                total = c[at(i * n + j)] if add else c.dtype.type(0)
                if bias.size:
                    total += bias[at(j)]
                for p in range(lanes * len(places), k):
                    total += a[at(i * k + p)] * b[at(j * k + p)]
                c[at(i * n + j)] = total
        columns = b, q * k, k
        add_sums((c, q, 1), (a, 0), columns, (steps, 0, m), (places, 0, len(places)), rows)
