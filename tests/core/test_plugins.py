"""What is plugged into the core: formats of files, of the package and of one's own, and hooks."""

import json
from pathlib import Path

import numpy as np
import pytest

from minicaffe import Net, parse
from minicaffe.core.plugins import NAMES, STATES, WEIGHTS, format_of, register_format
from minicaffe.storage.checkpoint import ArrayFile

NET = "layers: [{name: x, type: Input, shape: {dim: [1, 3]}}, {name: ip, type: InnerProduct, num_output: 2}]"


class JsonFile(ArrayFile):
    """Weights as lists of numbers."""

    def __init__(self, path):
        self.path = Path(path)
        self.lists = json.loads(self.path.read_text())
        self.shapes = {name: np.shape(one) for name, one in self.lists.items()}

    def __getitem__(self, name):
        return np.asarray(self.lists[name], np.float32)


class JsonWeights:
    Reader = JsonFile

    @staticmethod
    def save(path, graph, arrays, ending=""):
        Path(path).write_text(json.dumps({name: one.tolist() for name, one in arrays.items()}))


@pytest.fixture
def of_json(monkeypatch):
    monkeypatch.setitem(WEIGHTS, ".json", None)
    register_format(WEIGHTS, (".json",), JsonWeights)


def test_a_format_of_ones_own_is_written_and_read(of_json, tmp_path):
    net = Net(parse(NET), "TEST", device="cpu")
    net.save(tmp_path / "net.json")
    again = Net(parse(NET), "TEST", device="cpu", seed=7)
    assert not np.array_equal(again.weights()["ip__0"], net.weights()["ip__0"])
    again.load(tmp_path / "net.json")
    assert np.array_equal(again.weights()["ip__0"], net.weights()["ip__0"])


def test_the_longest_ending_counts():
    assert format_of(STATES, "a.solverstate.h5").__name__.endswith("caffe.state")
    assert format_of(WEIGHTS, "a.solverstate.h5").__name__.endswith("caffe.weights")
    assert format_of(WEIGHTS, "a.yaml") is None and format_of(NAMES, "any.txt") is not None
