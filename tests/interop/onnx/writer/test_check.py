"""The comparison before a file is written: layers that leap are given onnxruntime's bottoms, which are compared too."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from minicaffe import CheckpointError, Net, parse
from minicaffe.interop.onnx.writer import check

NET = """
layers:
  - {name: x, type: Input, shape: {dim: [1, 4]}}
  - {name: scores, type: Power, scale: 2}
  - {name: best, type: ArgMax, axis: 1}
  - {name: twice, type: Power, bottom: best, scale: 2}
"""


@pytest.fixture
def net():
    return Net(parse(NET), "TEST", device="cpu")


def outputs(net, monkeypatch, scores, best):
    """The differences, of x [1, 1, 1, 0], if onnxruntime gives these scores, and `best` as their best."""
    monkeypatch.setattr(check, "drawn", lambda net: {"x": np.array([[1, 1, 1, 0]], np.float32)})
    found = {"scores": np.array([scores], np.float32), "twice": np.array([[2 * best]], np.float32)}
    monkeypatch.setattr(check, "run", lambda data, arrays: found)
    names = {value: value.name for step in net.steps for value in step.tops}
    told = check.outputs(b"", net, names)
    return {value.name: apart for value, apart in told.items()}


def test_a_tie_broken_by_a_rounding_error_is_no_difference(net, monkeypatch):
    told = outputs(net, monkeypatch, [2, 2 + 3e-7, 2, 0], 1)  # of equal ones it would be the last
    assert told["twice"] == 0 and 0 < told["scores"] < check.MOST


def test_another_winner_of_the_same_numbers_is_one(net, monkeypatch):
    assert outputs(net, monkeypatch, [2, 2, 2, 0], 1)["twice"] > check.MOST


def test_the_numbers_before_are_compared_as_well(net, monkeypatch):
    told = outputs(net, monkeypatch, [2, 3, 2, 0], 1)
    assert told["twice"] == 0 and told["scores"] > check.MOST


def test_a_difference_that_is_no_single_layers_is_told_as_that(net, monkeypatch):
    monkeypatch.setattr(check, "run", lambda data, arrays: {})
    with pytest.raises(CheckpointError, match="though none of its layers does alone"):
        check.culprit(b"", net, {value: value.name for step in net.steps for value in step.tops})
