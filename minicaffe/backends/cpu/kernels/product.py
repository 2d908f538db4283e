"""Matrix products over rows or columns of the result, by BLAS, or by loops of their own where a size is 1.

Matrices are flat: a (m, k), b (k, n), c (m, n), sizes (m, n, k). One `turned` lies by columns.
"""

from minicaffe.backends.cpu import at, compiled, helper, helper_sums
from minicaffe.backends.cpu.blas import gemm


@compiled
def product(blas, sizes, a, a_turned, b, b_turned, rows, add, c, first, last):
    """c = a b, or c += a b: its rows, or its columns, first..last."""
    m, n, k = sizes
    lda, ldb = m if a_turned else k, k if b_turned else n
    if rows:
        left = a, first if a_turned else first * k, lda, a_turned
        gemm(blas, (last - first, n, k), left, (b, 0, ldb, b_turned), add, (c, first * n, n))
    else:
        right = b, first * k if b_turned else first, ldb, b_turned
        gemm(blas, (m, last - first, k), (a, 0, lda, a_turned), right, add, (c, first, n))


@compiled
def narrow(sizes, a, a_turned, b, b_turned, rows, add, c, first, last):
    """The same where k is 1, or m but for `rows`, or n of `rows`: no product is asked of BLAS."""
    m, n, k = sizes
    if k == 1:
        r0, r1, q0, q1 = (first, last, 0, n) if rows else (0, m, first, last)
        for r in range(r0, r1):
            value = a[at(r)]
            if add:
                for q in range(q0, q1):
                    c[at(r * n + q)] += value * b[at(q)]
            else:
                for q in range(q0, q1):
                    c[at(r * n + q)] = value * b[at(q)]
    elif rows:
        vector(b, k, a, m if a_turned else k, not a_turned, add, c, first, last)
    else:
        vector(a, k, b, k if b_turned else n, b_turned, add, c, first, last)


@compiled
def linear_of_one(k, x, weight, bias, y, first, last):
    """y = x weight' + bias of one vector of k numbers, of the features first..last."""
    vector(x, k, weight, k, True, False, y, first, last)
    for q in range(first, last if bias.size else first):
        y[at(q)] += bias[at(q)]


@compiled
def linear(blas, sizes, x, weight, bias, features, work, y, first, last):
    """y (m, f) = x (m, k) weight' + bias, of the features, or the vectors, first..last; sizes are (m, f, k).

    It is turned, weight x', which BLAS does faster by half, in `work`, of the size of y.
    """
    m, f, k = sizes
    i0, i1, q0, q1 = (0, m, first, last) if features else (first, last, 0, f)
    some, start = i1 - i0, first * (m if features else f)
    left, right = (weight, q0 * k, k, False), (x, i0 * k, k, True)
    gemm(blas, (q1 - q0, some, k), left, right, False, (work, start, some))
    for i in range(some):
        for q in range(q1 - q0):
            more = bias[at(q0 + q)] if bias.size else y.dtype.type(0)
            y[at((i0 + i) * f + q0 + q)] = work[at(start + q * some + i)] + more


@helper_sums
def vector(x, k, w, apart, rows, add, y, first, last):
    """y[j] = sum over i of x[i] w[j, i] for rows w[j], or of x[i] w[i, j]; added to y with `add`.

    Rows lie `apart`. Four are taken at a time: of distant rows memory gives more, as each is a stream of its
    own; by columns it spares y's way to memory and back.
    """
    if rows:
        quarter, end = (last - first + 3) // 4, last - 1
        for j in range(first, first + quarter):
            # the last quarter may be shorter: what has no row there takes the end's, and leaves it
            b, c, d = j + quarter, j + 2 * quarter, j + 3 * quarter
            p, q, r, s = j * apart, min(b, end) * apart, min(c, end) * apart, min(d, end) * apart
            t = u = v = z = y.dtype.type(0)
            for i in range(k):
                t += x[at(i)] * w[at(p + i)]
                u += x[at(i)] * w[at(q + i)]
                v += x[at(i)] * w[at(r + i)]
                z += x[at(i)] * w[at(s + i)]
            put(t, add, y, j)
            if b <= end:
                put(u, add, y, b)
            if c <= end:
                put(v, add, y, c)
            if d <= end:
                put(z, add, y, d)
        return
    if not add:
        for j in range(first, last):
            y[at(j)] = 0
    fours = k - k % 4
    for i in range(0, fours, 4):
        p, q, r, s = x[at(i)], x[at(i + 1)], x[at(i + 2)], x[at(i + 3)]
        a, b, c, d = i * apart, (i + 1) * apart, (i + 2) * apart, (i + 3) * apart
        for j in range(first, last):
            y[at(j)] += (p * w[at(a + j)] + q * w[at(b + j)]) + (
                r * w[at(c + j)] + s * w[at(d + j)]
            )
    for i in range(fours, k):
        for j in range(first, last):
            y[at(j)] += x[at(i)] * w[at(i * apart + j)]


@helper
def put(total, add, y, j):
    """y[j] = total, or y[j] += total."""
    if add:
        y[at(j)] += total
    else:
        y[at(j)] = total


@compiled
def add_bias(bias, y, first, last):
    """y[i] += bias, of rows first..last."""
    f = len(bias)
    for i in range(first, last):
        for q in range(f):
            y[at(i * f + q)] += bias[at(q)]


@compiled
def add_columns(x, m, f, add, y, first, last):
    """y[j] = the sum of column j of x (m, f), or y[j] += that."""
    if add:  # of shared weights two sums may cancel out
        for j in range(first, last):
            total = y.dtype.type(0)
            for i in range(m):
                total += x[at(i * f + j)]
            y[at(j)] += total
        return
    for j in range(first, last):
        y[at(j)] = 0
    for i in range(m):
        for j in range(first, last):
            y[at(j)] += x[at(i * f + j)]
