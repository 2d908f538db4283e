"""Parameters are filled a few rows at a time: the numbers are those of one draw."""

from __future__ import annotations

import numpy as np
import pytest

from minicaffe.layers import fillers
from minicaffe.spec.declare import Filler

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
