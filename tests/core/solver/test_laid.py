"""Parameters laid side by side: what goes in one pass, and where multipliers end."""

import numpy as np
import pytest

from minicaffe.backends.device import device
from minicaffe.core.layers.blob import Param
from minicaffe.core.layers.fillers import ZERO
from minicaffe.core.solver.flat_parameters import ALIGNED, Laid


@pytest.fixture
def params():
    """Of a convolution, its statistics that never learn, a scale, and a convolution."""
    made = []
    for size, multipliers in [(70, (1, 1)), (3, (0, 0)), (5, (1, 0)), (40, (1, 1))]:
        param = Param((size,), device("cpu"), np.dtype("float32"), ZERO)
        param.lr_mult, param.decay_mult = multipliers
        made.append(param)
    return made


def ends(laid, apart=False):
    return [stretch.ends for stretch in laid.stretches(apart)]


def test_all_that_learns_goes_in_one_pass(params):
    laid = Laid(params, 1, np)
    whole = 3 * ALIGNED  # of the two convolutions, which are neighbours: 128 and 64 entries
    assert ends(laid) == [[(whole, (1, 1)), (whole + 5, (1, 0))]]
    (stretch,) = laid.stretches(False)
    assert stretch.weight.size == stretch.diff.size == stretch.history[0].size == whole + 5


def test_one_that_is_frozen_since_then_is_left_out(params):
    laid = Laid(params, 1, np)
    params[3].lr_mult = 0
    assert ends(laid) == [[(70, (1, 1))], [(5, (1, 0))]]


def test_one_of_other_multipliers_since_then_has_an_end_of_its_own(params):
    laid = Laid(params, 1, np)
    params[3].decay_mult = 9
    assert ends(laid) == [[(2 * ALIGNED, (1, 1)), (3 * ALIGNED, (1, 9)), (3 * ALIGNED + 5, (1, 0))]]


def test_apart_each_has_its_own(params):
    assert ends(Laid(params, 1, np), apart=True) == [[(70, (1, 1))], [(40, (1, 1))], [(5, (1, 0))]]


def test_what_learns_no_more_or_lies_elsewhere_is_not_cleared(params):
    laid = Laid(params, 1, np)
    params[3].lr_mult = 0
    params[2].lie_in(np.ones(5, np.float32), "diff")
    for param in params:
        param.diff[...], param.stale = 1, True
    laid.clear()
    assert [param.stale for param in params] == [False, True, True, True]
    assert not params[0]._diff.any() and params[2]._diff.all()
