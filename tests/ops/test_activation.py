"""Dropout, entry by entry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds

from minicaffe.ops import activation

pytestmark = pytest.mark.usefixtures("threads")
shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


def entry_by_entry(function, *arrays):
    flat = [
        function(*map(float, values)) for values in zip(*(a.ravel() for a in arrays), strict=True)
    ]
    return np.array(flat).reshape(arrays[0].shape)


@cases(32)
@given(shapes, st.sampled_from([1.0, 2.0, 1 / 0.3]), st.booleans(), dtypes, seeds)
def test_dropout_against_the_definition(device, shape, scale, in_place, dtype, seed):
    x = numbers(seed, shape, dtype=dtype)[0]
    kept = np.random.default_rng(seed).random(shape) < 0.5
    x_there, kept_there = put(device, x), put(device, kept)
    out = x_there if in_place else blank(device, shape, dtype)
    assert activation.dropout(device.xp, x_there, kept_there, scale, out) is out
    close(device, out, entry_by_entry(lambda v, keep: v * scale if keep else 0.0, x, kept))
    same(device, kept_there, kept)
