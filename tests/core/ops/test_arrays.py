"""Filling, copying, adding and multiplying views of all kinds, against NumPy's own arithmetic."""

import numpy as np
import pytest

from minicaffe.core.ops import arrays

RNG = np.random.default_rng(3)


def _views(xp):
    """Targets and what goes into them: whole, cut, turned, stretched, of one entry, of none, of many axes."""
    base = xp.asarray(RNG.normal(size=(4, 6, 5, 7)).astype(np.float32))
    other = xp.asarray(RNG.normal(size=(4, 6, 5, 7)).astype(np.float32))
    many = xp.asarray(RNG.normal(size=(2,) * 12).astype(np.float32))
    long = xp.asarray(RNG.normal(size=(3, 40000)).astype(np.float32))
    return {
        "whole": (base, other),
        "cut": (base[:, 1:3], other[:, 2:4]),
        "cut twice": (base[:, :, 1:3, 2:], other[:, :, 2:4, 2:]),
        "turned": (base.transpose(1, 0, 3, 2), other[:, :, :, :].transpose(1, 0, 3, 2)),
        "from turned": (base.reshape(6, 4, 7, 5), other.transpose(1, 0, 3, 2)),
        "backwards": (base[:, ::-1], other[::-1]),
        "a number": (base, other[1, 2, 3, 4]),
        "stretched": (base, other[:1, :, :1, :]),
        "fewer axes": (base, other[0, 0, 0]),
        "one": (base[:1, :1, :1, :1], other[:1, :1, :1, :1]),
        "none": (base[:0], other[:0]),
        "twelve axes": (many.transpose(*range(11, -1, -1)), many.copy()),
        "long": (long[:, 1:], long[:, :-1].copy()),
    }


@pytest.mark.parametrize("name", _views(np))
def test_arithmetic_is_numpys(name, device):
    xp = device.xp
    host = device.to_host
    out, x = _views(xp)[name]
    before, given = host(out).copy(), host(x).copy()
    arrays.copy(x, out)
    np.testing.assert_array_equal(host(out), np.broadcast_to(given, before.shape))
    arrays.add(x, out)
    np.testing.assert_array_equal(host(out), np.broadcast_to(given + given, before.shape))
    arrays.multiply(out, x, out)
    np.testing.assert_array_equal(host(out), np.broadcast_to((given + given) * given, before.shape))
    arrays.scale(x, 0.5, out)
    np.testing.assert_array_equal(host(out), np.broadcast_to(given * np.float32(0.5), before.shape))
    arrays.fill(out, -2)
    assert (host(out) == -2).all()


@pytest.mark.parametrize("shape", [(3, 5), (2, 4), (2, 2, 5)])
def test_arrays_that_do_not_go_together_are_refused(shape, device):
    out = device.asarray(np.ones((2, 5)))
    cupys = "|Out shape is mismatched" if device.is_cuda else ""
    with pytest.raises(ValueError, match=r"\(2, ?5\)" + cupys):
        arrays.add(device.asarray(np.ones(shape)), out)
    np.testing.assert_array_equal(device.to_host(out), 1)


@pytest.mark.parametrize("compiled", [True, False])
def test_every_function_is_numpys(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(arrays.apply.op, "loop", None)
    x, by = np.array([1.0, -2.0, np.nan, 0.5]), np.array([4.0, 8.0, 1.0, 2.0])
    np.testing.assert_array_equal(arrays.divide(x, by, np.empty(4)), x / by)
    np.testing.assert_array_equal(arrays.at_least(x.copy(), 0.75), np.maximum(x, 0.75))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (np.int32, np.float32),
        (np.bool_, np.float32),
        (np.float32, np.float16),
        (np.int64, np.int64),
    ],
)
def test_types_become_the_targets_own(source, target):
    x = np.array([[0, 1], [1, 3]]).astype(source)
    assert arrays.copy(x.T, np.empty((2, 2), target)).tolist() == x.T.tolist()


def test_shapes_that_do_not_go_together_are_refused():
    said = r"arrays of shapes .* do not go into one of \(2, 2\)|could not broadcast"
    with pytest.raises(ValueError, match=said):
        arrays.copy(np.zeros(3, np.float32), np.zeros((2, 2), np.float32))
