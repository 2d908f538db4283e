"""Products of a few vectors with a large matrix, which is read once, as it lies: by the tiles of `tile`.

BLAS copies a matrix into blocks before it multiplies; with few vectors that takes longer than the product.
Matrices are flat: a (m, k), b (k, n), c (m, n), sizes (m, n, k). `steps` and `places` are tables of the
tiles: k entries of the sum, or m vectors; vectors of neighbours in a row of the matrix.
"""

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.microkernel import (
    ADD,
    FEW_COLUMNS,
    FEW_ROWS,
    ZERO,
    add_sums,
    few,
    few_of_one,
)
from minicaffe.backends.cpu.vector_ir import lanes as lanes
from minicaffe.backends.cpu.vector_ir import lanes_of
from minicaffe.backends.cpu.vector_ir import wide as wide


@compiled
def product(sizes, a, a_turned, b, add, rows, deep, wide, steps, vectors, c, first, last):
    """c = a b, or c += a b, where m is small, or, of `rows`, k.

    A unit is FEW_COLUMNS vectors of each row of c, or FEW_ROWS rows. At a time `deep` rows of b are taken,
    and of them `wide` vectors.
    """
    m, n, k = sizes
    row, apart = (1, m) if a_turned else (k, 1)
    down = FEW_ROWS if rows else m
    r0, r1, v0, v1 = 0, m, first * FEW_COLUMNS, min(vectors, last * FEW_COLUMNS)
    if rows:
        r0, r1, v0, v1 = first * FEW_ROWS, min(m, last * FEW_ROWS), 0, vectors
    for v in range(v0, v1, wide):
        for r in range(r0, r1, down):
            for step in range(0, k, deep):
                left, table = (a, r * row, row), (steps, step, min(k, step + deep))
                begin, span = ADD if add or step else ZERO, (v, min(v1, v + wide))
                tiles(left, b, (c, r * n, n), table, span, min(down, r1 - r), begin)
    if v1 == vectors:
        for r in range(r0, r1, down):
            rest(sizes, (a, row, apart), b, add, lanes_of(b) * vectors, c, r, min(r1, r + down))


@helper
def tiles(a, b, c, steps, vectors, rows, begin):
    """Some rows and vectors of c; what fills no tile one by one, for each kernel takes time to compile."""
    (x, a0, row), (z, c0, apart), (table, step, last), (v, end) = a, c, steps, vectors
    lanes = lanes_of(b)
    for p in range(v, end, FEW_COLUMNS):
        for r in range(0, rows, FEW_ROWS):
            left = x, a0 + r * row, row, min(FEW_ROWS, rows - r), (table, step, last - step)
            to = c0 + r * apart
            if p + FEW_COLUMNS <= end:
                few(*left, b, p * lanes, z, to + p * lanes, apart, begin, z, 0)
            else:
                for q in range(p, end):
                    few_of_one(*left, b, q * lanes, z, to + q * lanes, apart, begin, z, 0)


@helper
def rest(sizes, a, b, add, column, c, first, last):
    """The same of rows first..last, columns from `column` on, which fill no vector; a as it lies."""
    (_, n, k), (values, row, apart) = sizes, a
    for r in range(first, last if not add else first):
        for q in range(column, n):
            c[at(r * n + q)] = 0
    for i in range(k):
        for r in range(first, last):
            value = values[at(r * row + i * apart)]
            for q in range(column, n):
                c[at(r * n + q)] += value * b[at(i * n + q)]


@compiled
def dots(sizes, a, b, bias, add, steps, places, lanes, c, first, last):
    """c = a b + bias, or c += a b, where m is small and b lies by columns: a unit is FEW_ROWS of them."""
    m, n, k = sizes
    for q in range(first * FEW_ROWS, min(n, last * FEW_ROWS), FEW_ROWS):
        rows = min(FEW_ROWS, n - q)
        for i in range(m):
            for j in range(q, q + rows):
                total = c[at(i * n + j)] if add else c.dtype.type(0)
                if bias.size:
                    total += bias[at(j)]
                for p in range(lanes * len(places), k):
                    total += a[at(i * k + p)] * b[at(j * k + p)]
                c[at(i * n + j)] = total
        add_sums((c, q, 1), (a, 0), (b, q * k, k), (steps, 0, m), (places, 0, len(places)), rows)
