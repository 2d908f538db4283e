"""Dropout, entry by entry."""

import re

import numpy as np
import pytest
from core.ops import references as ref
from core.ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minicaffe.backends.cpu.threads import run_flat
from minicaffe.backends.step_constants import Slots
from minicaffe.core.ops import random as activation
from minicaffe.errors import ShapeError

pytestmark = pytest.mark.usefixtures("threads")
shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


def entry_by_entry(function, *arrays):
    flat = [
        function(*map(float, values)) for values in zip(*(a.ravel() for a in arrays), strict=True)
    ]
    return np.array(flat).reshape(arrays[0].shape)


@cases(32)
@given(shapes, st.sampled_from([0.0, 0.5, 0.7]), st.booleans(), dtypes, seeds)
def test_dropout_against_the_definition(device, shape, ratio, in_place, dtype, seed):
    """The mask is NumPy's stream of the names; x and the gradient go through the same one."""
    xs = numbers(seed, shape, shape, dtype=dtype)
    size, scale = int(np.prod(shape)), 1 / (1 - ratio)
    kept = ref.philox(ref.random_key(seed, "drop", 3), size).reshape(shape) >= np.float32(ratio)
    slots = Slots(device)
    mask = activation.Mask(slots, shape)
    mask.draw(ratio, seed, "drop", 3)
    slots.send()
    for op, x in zip((activation.dropout, activation.dropout_gradient), xs, strict=True):
        there = put(device, x)
        out = there if in_place else blank(device, shape, dtype)
        assert op(there, mask, ratio, out) is out
        close(device, out, entry_by_entry(lambda v, keep: v * scale if keep else 0.0, x, kept))
        same(device, mask.kept, kept)


def test_a_loop_is_run_on_arrays_of_one_size_alone():
    def loop(*_):
        raise AssertionError("it would go past the end of an array")

    for arrays, sizes in (((np.zeros(3),), [3, 4]), ((np.zeros(4), 2, np.zeros(5)), [4, 5])):
        told = f"^arrays of {re.escape(str(sizes))} elements do not go together$"
        with pytest.raises(ShapeError, match=told):
            run_flat(loop, np.zeros(4), *arrays)


def test_a_loop_is_run_on_an_array_without_gaps_alone():
    """What is flat of another would be a copy, and the array itself stay as it was."""
    told = r"^an array of shape \(3, 2\) with gaps has no place in a row$"
    with pytest.raises(TypeError, match=told):
        run_flat(lambda *_: None, np.zeros((2, 3)).T, np.ones((3, 2)))
