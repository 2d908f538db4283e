"""What tests of several folders need: arrays of archives, refusals, layers of Caffe's text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minicaffe import MinicaffeError

CPU = ("--device", "cpu")


def arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def same_arrays(first: str | Path, second: str | Path) -> None:
    """Two snapshots are of the same bits, whatever their commands were (@model)."""
    one, other = arrays(first), arrays(second)
    assert set(one) == set(other)
    for name in set(one) - {"@model"}:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def refusal(work, *args, **more) -> str:
    """The message of the MinicaffeError that work(*args, **more) raises."""
    with pytest.raises(MinicaffeError) as caught:
        work(*args, **more)
    return str(caught.value)


def layer_text(kind: str, rest: str = "", name: str = "l", bottom: str = "x", top: str = "") -> str:
    """A layer in Caffe's text, which writes the blob of its own name."""
    bottoms = "".join(f' bottom: "{one}"' for one in bottom.split())
    return f'layer {{ name: "{name}" type: "{kind}"{bottoms} top: "{top or name}" {rest} }}\n'
