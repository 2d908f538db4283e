"""Closing, Otsu's threshold and connected components against slow references."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from minicaffe.tools.data.pictures.digit import closing, components, dilate, erode, otsu


@pytest.mark.parametrize("size", [1, 3, 5, 11, 31])
@pytest.mark.parametrize("shape", [(1, 1), (1, 20), (20, 1), (13, 17)])
def test_dilate_and_erode_are_the_extremes_of_windows(size, shape):
    values = np.random.default_rng(size).random(shape)
    windows = sliding_window_view(np.pad(values, size // 2, "edge"), (size, size))
    np.testing.assert_array_equal(dilate(values, size), windows.max(axis=(2, 3)))
    np.testing.assert_array_equal(erode(values, size), windows.min(axis=(2, 3)))


def test_a_closing_fills_what_is_dark_and_narrow_and_nothing_else():
    slope = np.tile(np.linspace(0, 1, 60), (40, 1))
    np.testing.assert_array_equal(closing(slope, 11), slope)
    drawn = slope.copy()
    drawn[10:30, 20:25] = -1  # narrower than 11
    drawn[:, :12] = -1  # wider
    closed = closing(drawn, 11)
    assert (closed[:, :12] == -1).all()
    assert (closed[10:30, 20:25] >= slope[10:30, 19:20]).all()
    assert (closed[10:30, 20:25] <= slope[10:30, 25:26]).all()


def flooded(mask: np.ndarray) -> np.ndarray:
    """Components by flood fill, in the order of their first pixels."""
    labels = np.zeros(mask.shape, int)
    for start in zip(*np.nonzero(mask), strict=True):
        if labels[start]:
            continue
        todo, label = [start], labels.max() + 1
        while todo:
            y, x = todo.pop()
            inside = 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]
            if inside and mask[y, x] and not labels[y, x]:
                labels[y, x] = label
                todo += [(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    return labels


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.6, 1.0])
def test_components_are_those_of_a_flood_fill(share):
    rng = np.random.default_rng(0)
    for shape in [(1, 1), (1, 9), (9, 1), (15, 20), (40, 30)]:
        mask = rng.random(shape) < share
        np.testing.assert_array_equal(components(mask), flooded(mask))


def test_otsu_without_two_classes():
    assert otsu(np.zeros(0)) == 1
    assert otsu(np.full(9, 0.3)) == 1
