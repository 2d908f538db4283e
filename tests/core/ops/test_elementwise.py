"""Every row of the table of element-wise functions, entry by entry, against Python's own mathematics."""

import math

import numpy as np
import pytest
from core.ops.cases import blank, cases, close, dtypes, put, same, seeds
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minicaffe.backends.formulas import FORMULAS
from minicaffe.core.ops import elementwise

pytestmark = pytest.mark.usefixtures("threads")
shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)
ANY = st.sampled_from([-2.0, -0.75, 0.0, 0.5, 1.0, 3.0])
ABOVE_0 = st.sampled_from([0.25, 0.5, 1.0, 2.0])


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def normal(x):
    """Its distribution and its density."""
    return 0.5 * (1 + math.erf(x / math.sqrt(2))), math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_tanh(x):
    u, du = (math.sqrt(2 / math.pi) * v for v in (x + 0.044715 * x**3, 1 + 3 * 0.044715 * x * x))
    return 0.5 * x * (1 + math.tanh(u)), 0.5 * (1 + math.tanh(u) + x * du / math.cosh(u) ** 2)


# name: y and dy/dx at x, for these numbers; what numbers to draw; the least x that is asked for
REFERENCES = {
    "AbsVal": (lambda x: (math.fabs(x), (x > 0) - (x < 0)), []),
    "BNLL": (lambda x: (math.log(1 + math.exp(x)), sigmoid(x)), []),
    "Clip": (lambda x, low, high: (min(max(x, low), high), float(low <= x <= high)), [ABOVE_0.map(lambda v: -v), ABOVE_0]),
    "Constant": (lambda x, value: (value, 0.0), [ANY]),
    "ELU": (lambda x, a: (x, 1.0) if x > 0 else (a * (math.exp(x) - 1), a * math.exp(x)), [ANY]),
    "Exp": (lambda x, a, b: (b * math.exp(a * x), a * b * math.exp(a * x)), [ANY, ANY]),
    "GELU": (lambda x: (x * normal(x)[0], normal(x)[0] + x * normal(x)[1]), []),
    "GELUTanh": (gelu_tanh, []),
    "HardSwish": (
        lambda x: (0.0, 0.0) if x <= -3 else (x, 1.0) if x >= 3 else (x * (x + 3) / 6, (2 * x + 3) / 6),
        [],
    ),
    "LeakyReLU": (lambda x, a: (x, 1.0) if x > 0 else (a * x, a), [ANY]),
    "Linear": (lambda x, a, b: (a * x + b, a), [ANY, ANY]),
    "Log": (lambda x, a, b, c: (c * math.log(a * x + b), c * a / (a * x + b)), [ABOVE_0, ABOVE_0, ANY]),
    "Power": (lambda x, a, b, p: ((a * x + b) ** p, p * a * (a * x + b) ** (p - 1)), [ABOVE_0, ABOVE_0, ANY]),
    "ReLU": (lambda x: (max(x, 0.0), float(x > 0)), []),
    "ReLU6": (lambda x: (min(max(x, 0.0), 6.0), float(0 < x < 6)), []),
    "Sigmoid": (lambda x: (sigmoid(x), sigmoid(x) * (1 - sigmoid(x))), []),
    "Square": (lambda x, a, b: ((a * x + b) ** 2, 2 * a * (a * x + b)), [ANY, ANY]),
    "Swish": (
        lambda x, b: (x * sigmoid(b * x), sigmoid(b * x) * (1 + b * x * (1 - sigmoid(b * x)))),
        [ANY],
    ),
    "TanH": (lambda x: (math.tanh(x), 1 / math.cosh(x) ** 2), []),
    "Threshold": (lambda x, t: (float(x > t), None), [ANY]),
}  # fmt: skip
POSITIVE = {"Log", "Power"}  # take x >= 0 here
calls = st.one_of(
    [st.tuples(st.just(name), st.tuples(*drawn)) for name, (_, drawn) in REFERENCES.items()]
)
without_a_number = {"Constant", "Threshold"}  # what they give of a NaN is as of another x


def entries(seed, shape, dtype, name):
    """Numbers from -8 to 8, some of them 0 or another bound."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-8, 8, shape)
    x = np.where(rng.random(shape) < 0.2, rng.choice([0.0, 3.0, -3.0, 6.0, 0.5], shape), x)
    return (np.abs(x) if name in POSITIVE else x).astype(dtype)


def wanted(name, numbers, x):
    pairs = [REFERENCES[name][0](float(v), *numbers) for v in x.ravel()]
    return [np.array([p[i] for p in pairs], float).reshape(x.shape) for i in (0, 1)]


def test_every_row_has_a_reference():
    assert set(FORMULAS) == set(REFERENCES)


@cases(150)
@given(calls, shapes, dtypes, seeds)
@example(("ELU", (-2.0,)), (7,), np.float32, 1)
@example(("LeakyReLU", (-2.0,)), (7,), np.float32, 1)
def test_a_row_against_the_definition(device, call, shape, dtype, seed):
    name, numbers = call
    x = entries(seed, shape, dtype, name)
    dy = np.random.default_rng(seed + 1).uniform(-1, 1, shape).astype(dtype)
    y, slope = wanted(name, numbers, x)
    x_there, y_there, dy_there = put(device, x), blank(device, shape, dtype), put(device, dy)
    assert elementwise.forward(name, x_there, numbers, y_there) is y_there
    close(device, y_there, y)
    if FORMULAS[name].slope is not None:
        out = blank(device, shape, dtype)
        assert elementwise.gradient(name, dy_there, x_there, y_there, numbers, out) is out
        close(device, out, dy.astype(float) * slope)
    same(device, x_there, x)
    same(device, dy_there, dy)


@cases(100)
@given(calls, st.sampled_from([33, 1025]), dtypes, seeds)
def test_a_row_reads_what_it_says_and_is_in_place_where_it_says(device, call, size, dtype, seed):
    name, numbers = call
    formula = FORMULAS[name]
    if formula.slope is None:
        return
    x = put(device, entries(seed, (size,), dtype, name))
    y = elementwise.forward(name, x, numbers, blank(device, size, dtype))
    dy, unread = put(device, np.linspace(-1, 1, size), dtype), blank(device, size, dtype)

    def gradient(x, y):
        return device.to_host(
            elementwise.gradient(name, dy, x, y, numbers, blank(device, size, dtype))
        )

    whole = gradient(x, y)
    given = (array if letter in formula.reads else unread for letter, array in (("x", x), ("y", y)))
    np.testing.assert_array_equal(gradient(*given), whole)
    if formula.in_place(*numbers):
        np.testing.assert_array_equal(gradient(y, y), whole)
        kept = device.to_host(y).copy()
        same(device, elementwise.forward(name, x, numbers, x), kept)
        same(device, elementwise.gradient(name, dy, x, x, numbers, dy), whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(set(REFERENCES) - without_a_number))
def test_what_is_no_number_stays_so(device, name, dtype):
    numbers = {"Clip": (-1.0, 1.0), "Power": (1.0, 0.5, 3.0)}.get(
        name, (0.5,) * len(REFERENCES[name][1])
    )
    x = put(device, [np.nan, 1.0, np.nan], dtype)
    y = device.to_host(elementwise.forward(name, x, numbers, blank(device, 3, dtype)))
    assert np.isnan(y).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "x", "y", "slope"),
    [
        ("BNLL", [-1e4, 1e4], [0, 1e4], [0, 1]),
        ("BNLL", [-np.inf, np.inf], [0, np.inf], [0, 1]),
        ("Sigmoid", [-1e4, 1e4], [0, 1], [0, 0]),
        ("TanH", [-1e4, 1e4], [-1, 1], [0, 0]),
        ("GELU", [-1e4, 1e4], [0, 1e4], [0, 1]),
        ("GELUTanh", [-1e4, 1e4], [0, 1e4], [0, 1]),
        ("HardSwish", [-1e4, 1e4], [0, 1e4], [0, 1]),
        ("ReLU", [-np.inf, np.inf], [0, np.inf], [0, 1]),
        ("ReLU6", [-np.inf, np.inf], [0, 6], [0, 0]),
    ],
)
def test_far_out_nothing_overflows(device, name, x, y, slope, dtype):
    x = put(device, x, dtype)
    there = elementwise.forward(name, x, (), blank(device, 2, dtype))
    same(device, there, np.array(y, dtype))
    ones = put(device, [1, 1], dtype)
    same(device, elementwise.gradient(name, ones, x, there, (), blank(device, 2, dtype)), slope)


def test_a_power_has_its_slope_at_zero(device):
    """Caffe divides y by x there, and finds no number."""
    x = put(device, [0.0, 2.0])
    y = elementwise.forward("Power", x, (1, 0, 3), blank(device, 2, float))
    slope = elementwise.gradient(
        "Power", put(device, [1.0, 1.0]), x, y, (1, 0, 3), blank(device, 2, float)
    )
    close(device, slope, np.array([0.0, 12.0]))


def test_blocks_and_threads_cover_every_entry(device):
    for size in (elementwise.BLOCK - 1, elementwise.forward.op.worth + 3 * elementwise.BLOCK + 5):
        x = np.linspace(-3, 3, size)
        y = elementwise.forward("TanH", put(device, x), (), blank(device, size, float))
        close(device, y, np.tanh(x))
        dx = elementwise.gradient("TanH", put(device, x), y, y, (), blank(device, size, float))
        close(device, dx, x / np.cosh(x) ** 2)
