"""Formulas in their three forms: what is emitted for CUDA, compiled for the CPU, and computed by NumPy agrees."""

import numpy as np
import pytest
from core.ops.cases import blank, close, put

from minicaffe.backends import formulas
from minicaffe.backends.cuda import emit
from minicaffe.backends.formulas import FORMULAS, RULES
from minicaffe.core.ops import elementwise, update

both = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@both
@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_what_numpy_makes_of_its_formula(device, name, dtype):
    formula, memory = RULES[name]
    rng = np.random.default_rng(6)
    settings = rng.uniform(0.25, 0.75, len(emit.parameters(formula)) - 2 - memory)
    w, d, *history = (rng.uniform(0.5, 2, 99).astype(dtype) for _ in range(2 + memory))
    step, *after = formula(w, 0.5 * d + 0.125 * w, *history, *settings.tolist())
    there = [put(device, array) for array in (w, d, *history)]
    update.update(
        *(name, there[0], there[1], there[2:], put(device, [[*settings, 0.125]], float)),
        *(update.Parts([(99, 0)], device), "L2", 0.5),
        *(blank(device, 99, dtype), put(device, [0], np.int32)),
    )
    for array, wanted in zip(there, (w - step, step, *after), strict=True):
        close(device, array, wanted)


def test_there_is_a_numpy_form_of_each_rule():
    assert set(update.FORMS) == set(RULES)


def test_numbers_and_operators():
    def formula(x, low):
        inside = (x >= low) & (x != 1.0)
        return where(inside, 2 / x - low, minimum(-x, 0.5)), abs(x)  # noqa: F821

    assert emit.emitted(formula, ["x", "low"]) == [
        "(((x >= low) && (x != S(1.0))) ? ((S(2) / x) - low) : ((-x) >= S(0.5) ? S(0.5) : (-x)))",
        "(x < 0 ? -x : x)",
    ]


def branching(x):
    if x > 0.0:
        return x
    return 0.0


def looping(x):
    for _ in x:
        pass
    return x


REFUSED = {
    "if": (branching, "the formula branching has no CUDA: it branches on a value"),
    "and": (lambda x: x > 0.0 and x < 1.0, "it branches on a value"),
    "a < b < c": (lambda x: 0.0 < x < 1.0, "it branches on a value"),
    "for": (looping, "'Value' object is not iterable"),
    "a word it does not know": (lambda x: sin(x), "name 'sin' is not defined"),  # noqa: F821
    "Python's min": (lambda x: min(x, 0.0), "name 'min' is not defined; it may call exp, expm1"),
    "a method": (lambda x: x.sum(), "no attribute 'sum'"),
    "an index": (lambda x: x[0], "not subscriptable"),
    "**": (lambda x: x**2, "unsupported operand"),
    "~": (lambda x: ~(x > 0.0), "bad operand type"),
    "too few arguments": (lambda x: where(x > 0.0, x), "out of range"),  # noqa: F821
    "another module": (lambda x: np.exp(x), "name 'np' is not defined"),
    "a list": (lambda x: [x], "is neither a value nor a number"),
    "no value": (lambda x: None, "None is neither a value nor a number"),
}


@pytest.mark.parametrize("construct", REFUSED)
def test_what_has_no_cuda_is_refused(construct):
    formula, message = REFUSED[construct]
    with pytest.raises(TypeError, match="has no CUDA: .*; it may call exp, ") as error:
        emit.emitted(formula, ["x"])
    assert message in str(error.value)


def test_a_formula_may_call_what_all_three_know():
    """Else it would be refused on one device only."""
    used = set()
    for row in FORMULAS.values():
        used |= {word for part in (row.y, row.slope) if part for word in part.__code__.co_names}
    used |= {word for rule in RULES.values() for word in rule.step.__code__.co_names}
    assert used == set(emit.WORDS)
    assert used - {"abs"} <= {name for name, value in vars(formulas).items() if callable(value)}


def test_a_function_that_is_added_has_its_kernel(device, monkeypatch):
    row = formulas.Formula(
        lambda x, slope: where(x > 0.0, x, slope * x),  # noqa: F821
        lambda x, y, slope: where(x > 0.0, 1.0, slope),  # noqa: F821
        "x",
    )
    monkeypatch.setitem(FORMULAS, "Added", row)
    out = elementwise.forward("Added", put(device, [-2.0, 4.0]), (0.5,), blank(device, 2, float))
    close(device, out, np.array([-1.0, 4.0]))
