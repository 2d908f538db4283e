"""What is `lanes`' alone: whole and partial blocks of samples, and its tables."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.cases import cases, convolutions, dtypes, edge, seeds
from ops.test_conv import check, on_threads

from minicaffe.backend import device as device_called
from minicaffe.ops.conv import STRATEGIES, lanes, lanes_tables
from minicaffe.ops.geometry import ConvGeometry

DIRECTIONS = ("forward", "input_gradient", "weight_gradient")
every_direction = pytest.mark.parametrize("direction", DIRECTIONS)
compiled = pytest.mark.parametrize("device", ["cpu-compiled"], indirect=True)

SHAPES = {
    "LeNet's first": edge(37, 1, (28, 28), 20, (5, 5)),
    "LeNet's second": edge(16, 20, (12, 12), 50, (5, 5)),
    "3x3 with padding": edge(33, 5, (9, 7), 7, (3, 3), (1, 1), (1, 1)),
    "steps of 2 and 3": edge(20, 3, (11, 10), 6, (3, 4), (2, 3), (1, 2)),
    "steps and dilations": edge(18, 2, (13, 12), 4, (3, 2), (2, 2), (2, 1), (3, 2)),
    "steps past the kernel": edge(16, 2, (12, 11), 3, (2, 1), (3, 4), (0, 0)),
    "padding past the kernel": edge(17, 2, (4, 5), 3, (2, 2), (1, 1), (3, 4)),
    "in groups": edge(32, 6, (6, 5), 9, (3, 3), (1, 1), (1, 1), group=3),
    "depthwise": edge(16, 4, (6, 5), 4, (3, 3), (2, 2), (1, 1), group=4),
    "one axis": edge(19, 2, (40,), 3, (4,), (2,), (1,), (2,)),
    "three axes": edge(16, 2, (3, 4, 5), 3, (2, 3, 2), (1, 2, 1), (1, 0, 2), (2, 1, 1)),
    "1x1": edge(16, 7, (5, 4), 6, (1, 1)),
}


def many(g, n):
    return ConvGeometry(n, g.c, g.image, g.f, g.window, g.group)


@on_threads
@compiled
@every_direction
@pytest.mark.parametrize("g", [pytest.param(g, id=name) for name, g in SHAPES.items()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whole_blocks(device, direction, g, dtype):
    check(device, "lanes", direction, g, dtype=dtype)


@on_threads
@compiled
@every_direction
@cases(6)
@given(convolutions(), st.integers(8, 40), dtypes, seeds)
def test_many_samples(device, direction, g, n, dtype, seed):
    check(device, "lanes", direction, many(g, n), dtype=dtype, seed=seed)


@on_threads
@compiled
@every_direction
@pytest.mark.parametrize("band", [1, 1500, 6000])
@cases(4)
@given(st.sampled_from(sorted(SHAPES)), seeds)
def test_small_bands(device, monkeypatch, direction, band, name, seed):
    monkeypatch.setattr(lanes_tables, "BAND", band)
    monkeypatch.setattr(lanes, "CHUNK", 3)
    lanes_tables.sweep.cache_clear()
    try:
        check(device, "lanes", direction, SHAPES[name], seed=seed)
    finally:
        lanes_tables.sweep.cache_clear()


@pytest.mark.parametrize("columns", lanes_tables.COLUMNS)
@pytest.mark.parametrize(
    ("g", "turned", "least", "most"),
    [
        (SHAPES["LeNet's second"], True, 0.44, 0.6),
        (SHAPES["LeNet's second"], False, 1.0, 1.0),
        (edge(16, 8, (4, 4), 8, (3, 3), (1, 1), (1, 1)), False, 0.69, 0.9),
        (SHAPES["padding past the kernel"], False, 0.1, 0.3),
    ],
)
def test_elements_that_see_only_padding_are_left_out(g, turned, least, most, columns):
    """Places times steps of all phases, against each place with the whole kernel; no place is left out."""
    found = lanes_tables.sweep(g, turned, 8, columns=columns)
    _, _, places, phases, _ = found.tables
    met = sum((k1 - k0) * (p1 - p0) for k0, k1, p0, p1 in phases)
    image = math.prod(g.image if turned else g.out)
    assert sorted(places[:, 1] // 8) == list(range(image))
    whole = image * math.prod(g.window.kernel) * (g.f if turned else g.c)
    assert least * whole <= met <= most * whole


@compiled
@pytest.mark.parametrize("threads", [1, 2, 3, 7], indirect=True)
@pytest.mark.parametrize("n", [1, 16, 48])
def test_every_thread_has_work(device, threads, n):
    """Blocks of samples are split by channels where there are too few of them."""
    found = lanes_tables.sweep(many(SHAPES["LeNet's second"], n), False, 16)
    units, cut = found.units(n, threads, 5)
    assert units == -(-n // 16) * cut[3]
    assert units >= threads
    worst = -(-units // threads) * threads / units
    assert worst <= 1.5


def test_blocks_are_counted_in_32_bits():
    g = edge(1, 1, (2**14, 2**14), 1, (3, 3))
    assert "less than 134217728 numbers" in STRATEGIES["lanes"].refuses(g)


def test_without_loops_it_is_implicit(monkeypatch, threads):
    monkeypatch.setattr("minicaffe.cpu.available", lambda: False)
    for direction in DIRECTIONS:
        check(device_called("cpu"), "lanes", direction, SHAPES["in groups"])
