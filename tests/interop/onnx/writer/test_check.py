"""The comparison before a file is written: layers that leap are given onnxruntime's bottoms, which are compared too."""

import numpy as np
import pytest
from kit import refusal

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
    return {value.name: apart for value, apart in check.outputs(b"", net, names).items()}


def test_what_is_a_difference(net, monkeypatch):
    """A tie broken by a rounding error is none; another winner is one; the scores are compared as well."""
    told = outputs(net, monkeypatch, [2, 2 + 3e-7, 2, 0], 1)  # of equal ones it would be the last
    assert told["twice"] == 0 and 0 < told["scores"] < check.MOST
    assert outputs(net, monkeypatch, [2, 2, 2, 0], 1)["twice"] > check.MOST
    told = outputs(net, monkeypatch, [2, 3, 2, 0], 1)
    assert told["twice"] == 0 and told["scores"] > check.MOST


def test_a_difference_that_is_no_single_layers_is_told_as_that(net, monkeypatch):
    monkeypatch.setattr(check, "run", lambda data, arrays: {})
    names = {value: value.name for step in net.steps for value in step.tops}
    told = refusal(check.culprit, b"", net, names, error=CheckpointError)
    assert "though none of its layers does alone" in told
