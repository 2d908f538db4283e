"""Winograd's transform of the weight, U = G w, and its transpose. The letters are `conv.winograd`'s.

With a stride of s a channel is s^2 planes, each seen through elements of the kernel of its own: G is (planes,
points, elements of the kernel).
"""

from __future__ import annotations

from minicaffe.backends.cpu import at, compiled
from minicaffe.backends.cpu.blas import gemm

PAIRS = 1024  # of a filter and a plane, whose sums are taken back at a time


@compiled
def transform(blas, g, weight, sizes, turned, u, first, last):
    """u = G weight as (points, f, planes c), or (points, group, planes c, f) if it is `turned`.

    sizes are f and c of a group of the weight; G is for both axes at once, one of each plane. Of the filters
    first..last, or if `turned` of such channels.
    """
    (m, k), (count, points, size), numbers = sizes, g.shape, g.reshape(-1)
    pairs = len(u) // points
    if count == 1 and not turned:
        right = weight, first * k * size, size, True
        whole = points, (last - first) * k, size
        gemm(blas, whole, (numbers, 0, size, False), right, False, (u, first * k, pairs))
        return
    for row in range(first, last):
        if turned:
            group, plane = divmod(row // k, count)
            right = weight, (group * m * k + row % k) * size, k * size, True
            matrix = numbers, plane * points * size, size, False
            gemm(blas, (points, m, size), matrix, right, False, (u, row * m, pairs))
            continue
        for plane in range(count):
            right = weight, row * k * size, size, True
            matrix = numbers, plane * points * size, size, False
            to = u, (row * count + plane) * k, pairs
            gemm(blas, (points, k, size), matrix, right, False, to)


@compiled
def transform_back(blas, work, slices, g, rows, dw, first, last):
    """dw += G' [the sums of all slices, in their order], of filters first..last of so many.

    Of the equal pieces of `work`, one a slice, each begins with its sums; those of all go to the first's.
    """
    (count, points, size), piece, numbers = g.shape, len(work) // slices, g.reshape(-1)
    k, begin = len(dw) // rows // size, first * (len(dw) // rows // size) * count
    pairs, end = rows * k * count, last * k * count
    alike = pairs if count == 1 else k  # neighbours whose G is one
    while begin < end:
        many = min(PAIRS, end - begin, alike - begin % alike)
        for i in range(1, slices):
            for point in range(points):
                start = point * pairs + begin
                here, there = work[start : start + many], work[i * piece + start :]
                for q in range(many):
                    here[at(q)] += there[at(q)]
        row, plane = divmod(begin // k, count)
        left, right = (work, begin, pairs, True), (numbers, plane * points * size, size, False)
        to = dw, (row * k + begin % k) * size, size
        gemm(blas, (many, size, points), left, right, True, to)
        begin += many
