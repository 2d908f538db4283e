"""Parameters are filled a few rows at a time: the numbers are those of one draw."""

import math

import numpy as np
import pytest

from minicaffe.core.config.declare import Filler
from minicaffe.core.layers import fillers

KINDS = [
    Filler(type="constant", value=2.0),
    Filler(type="uniform", min=-1.0, max=2.0),
    Filler(type="gaussian", mean=1.0, std=0.5),
    Filler(type="gaussian", sparse=3),
    Filler(type="xavier"),
    Filler(type="msra", variance_norm="FAN_OUT"),
    Filler(type="positive_unitball"),
]


@pytest.mark.parametrize("filler", KINDS, ids=lambda filler: filler.type)
@pytest.mark.parametrize("shape", [(), (7,), (13, 5, 3), (3, 40)], ids=str)
def test_the_parts_are_of_one_draw(filler, shape, monkeypatch):
    monkeypatch.setattr(fillers, "PIECE", 32)
    whole, found = fillers.fill(filler, shape, np.random.default_rng(1)), np.zeros(shape)
    parts = list(fillers.fill_parts(filler, shape, np.random.default_rng(1)))
    for rows, part in parts:
        found[rows] = part
    assert found.tobytes() == whole.tobytes()
    drawn_apart = filler.type not in ("constant", "positive_unitball") and filler.sparse < 0
    if drawn_apart and len(shape) > 1:
        assert max(part.size for _, part in parts) <= max(32, np.prod(shape[1:]))


def test_no_input_at_all_is_sparse_too():
    filler = Filler(type="gaussian", sparse=0)
    ((rows, part),) = fillers.fill_parts(filler, (3, 2**17), np.random.default_rng(1))
    assert rows is ... and part.shape == (3, 2**17) and not part.any()


@pytest.mark.parametrize("filler", KINDS, ids=lambda filler: filler.type)
@pytest.mark.parametrize("shape", [(), (1, 1), (5, 2)], ids=str)
def test_a_blob_of_any_shape_is_drawn_anew(filler, shape):
    """DummyData draws so, whose blobs may have no axes."""
    if filler.type == "constant":
        pytest.skip("a constant is not drawn")
    drawn = fillers.refill(filler, shape, np, np.empty((2, math.prod(shape)), np.float32), 1, "d")
    assert drawn.shape == shape and np.isfinite(drawn).all()
    if filler.type == "positive_unitball":
        sums = drawn.reshape(shape[0] if shape else 1, -1).sum(1)
        np.testing.assert_allclose(sums, np.ones_like(sums), rtol=1e-6)
