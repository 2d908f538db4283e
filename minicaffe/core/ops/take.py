"""Rows of a matrix by their numbers, which may be held as floats, as labels are; and sums over copies."""

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.errors import DataError


@op(replays=False)
def places(index: Any, n: int, out: Any, refused: Any) -> Any:
    """Numbers of any type as int32 `out`, -1 for one that is none of 0..n-1.

    Raises DataError for such a one; not on CUDA: see `check`. A replay sets `refused`, one int32, to 1.

    >>> places(np.array([1.0, 0.0]), 2, np.empty(2, np.int32), np.zeros(1, np.int32))
    array([1, 0], dtype=int32)
    """
    with np.errstate(invalid="ignore"):
        np.copyto(out, index, casting="unsafe")
    for i, value in enumerate(index):
        if not -1 < value < n:
            out[i] = -1
    check(out, n, index)


def check(place: np.ndarray, n: int, index: np.ndarray) -> None:
    """Raise DataError if `places` found a number that is no row."""
    if place.size and place.min() < 0:
        which = int(place.argmin())
        raise DataError(
            f"index {index[which]:g} of entry {which} is not one of the {n} entries 0..{n - 1}"
        )


@op(replays=False)
def take(x: Any, place: Any, out: Any) -> Any:
    """out[i] = x[place[i]], NaN where that is -1; x (n, d), place (m,) int32, out (m, d).

    >>> take(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 1, 0]), np.empty((3, 2)))
    array([[3., 4.],
           [3., 4.],
           [1., 2.]])
    """
    np.take(x, place, axis=0, out=out, mode="clip")


@op(replays=False)
def put_back(dy: Any, place: Any, out: Any, add: bool = False) -> Any:
    """out[k] = sum of dy[i] over the i with place[i] = k, in their order: the gradient of `take`.

    With `add`, on the CPU, it is added to what is there.

    >>> put_back(np.array([[1.0], [2.0], [4.0]]), np.array([1, 1, 0]), np.empty((3, 1))).ravel()
    array([4., 3., 0.])
    """
    if not add:
        out.fill(0)
    for row, k in zip(dy, place, strict=True):
        if k >= 0:
            out[k] += row


@op(replays=False)
def fold(x: Any, out: Any) -> Any:
    """out[a, b] = sum over t of x[a, t, b]: the gradient of copies.

    >>> fold(np.arange(6.0).reshape(1, 3, 2), np.empty((1, 2)))
    array([[6., 9.]])
    """
    np.sum(x, axis=1, out=out)


@op(replays=False)
def read(indices: Any, count: int, out: Any, refused: Any = None) -> Any:
    """Indices as integers, on the CPU. Raises DataError for one that is no row of `count`, as `embed` does.

    >>> read(np.array([2.0, 0.0]), 3, np.empty(2, np.int32))
    array([2, 0], dtype=int32)
    """
    with np.errstate(invalid="ignore"):
        np.copyto(out, indices, casting="unsafe")
    bad = indices[~((indices > -1) & (indices < count))]  # NaN, too, whatever a cast makes of it
    if bad.size:
        raise DataError(f"index {bad[0]:g} is not one of the {count} rows 0..{count - 1}")


@op(traced=False)
def embed(indices: Any, weight: Any, out: Any, rows: Any, refused: Any) -> Any:
    """out[i] = weight[indices[i]]; indices (m,), weight (count, f), out (m, f).

    `rows` (m,) int32 is then what was read. Raises DataError for an index that is no row; on CUDA, which is
    not waited for, its numbers are NaN. A replay sets `refused`, one int32, to 1 instead of raising.

    >>> weight = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> embed(np.array([1.0]), weight, np.empty((1, 2)), np.empty(1, np.int32), np.zeros(1, np.int32))
    array([[3., 4.]])
    """
    read(indices, len(weight), rows, refused)
    take(weight, rows, out)


@op(traced=False)
def add_gradient(dy: Any, indices: Any, rows: Any, out: Any, empty: bool = False) -> Any:
    """out[indices[i]] += dy[i], always in one order; `rows` as `embed` left it. `empty`: out holds nothing.

    >>> rows = np.array([1, 1])
    >>> add_gradient(np.ones((2, 1)), rows * 1.0, rows, np.zeros((2, 1)))
    array([[0.],
           [2.]])
    """
    put_back(dy, rows, out, add=not empty)
