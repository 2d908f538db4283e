"""Models given as mappings: the same as from text, with a path for a place."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from kit import refusal

from minicaffe import Net, Solver, parse, read
from minicaffe.core.config import tree
from minicaffe.errors import SpecError


def small() -> dict:
    shapes = [{"dim": [2, 3]}, {"dim": 2}]
    return {
        "name": "small",
        "layers": [
            {"name": "x", "type": "Input", "top": ("x", "t"), "shape": shapes},
            {"name": "ip", "type": "InnerProduct", "bottom": "x", "num_output": np.int64(4)},
            {"name": "loss", "type": "SoftmaxWithLoss", "bottom": ["ip", "t"]},
        ],
        "solver": {"base_lr": np.float32(0.5), "max_iter": 3, "snapshot_after_train": False},
    }


def test_net_solver_and_read_take_it_too():
    assert Net(small(), device="cpu").blobs["ip"].shape == (2, 4)
    solver = Solver(small(), device="cpu", max_iter=1)
    solver.solve()
    assert solver.iteration == 1
    assert read(small()).name == "small"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_ouput", 4, "<mapping>:layers[1].num_ouput: layer 'ip' (InnerProduct): unknown key"
         " 'num_ouput'; did you mean 'num_output'?"),
        ("num_output", "four", "<mapping>:layers[1].num_output: layer 'ip' (InnerProduct): num_output:"
         " expected an integer, got 'four'"),
        ("param", [{}, {"decay_mult": -1}], "<mapping>:layers[1].param[1].decay_mult: layer 'ip' (InnerProduct):"
         " param: decay_mult: expected at least 0, got -1.0"),
        ("bottom", "y", "<mapping>:layers[1].bottom: layer 'ip' (InnerProduct): unknown bottom 'y'"),
        ("name", "x", "<mapping>:layers[1].name: layer 'x' (InnerProduct): the name is taken by the layer"
         " at layers[0]"),
        ("bottom", "loss", "<mapping>:layers[1].bottom: layer 'ip' (InnerProduct): bottom 'loss' is written"
         " below, by layer 'loss' at layers[2]; a layer reads only what stands above it"),
        ("weight_filler", object, "<mapping>:layers[1].weight_filler: expected text, a number, a list or a"
         " mapping, got <class 'object'>"),
        ("weight_filler", {1: 2}, "<mapping>:layers[1].weight_filler: expected a key that is a word, got 1"),
        ("type", {"a"}, "<mapping>:layers[1].type: expected text, a number, a list or a mapping, got {'a'}"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_mistakes_name_the_path(key, value, message):
    model = small()
    model["layers"][1][key] = value
    assert refusal(Net, model, device="cpu") == message


def test_mistakes_of_the_whole():
    for model, message in [
        ({}, "<mapping>: missing key 'layers' (the list of layers)"),
        ({"layers": []}, "<mapping>:layers: layers: expected at least one layer"),
        ({"nmae": 1}, "<mapping>:nmae: unknown key 'nmae'; did you mean 'name'?"),
    ]:
        assert refusal(parse, model) == message
    assert refusal(parse, {}, "mine").startswith("mine: missing key")
    model = small()
    del model["solver"]
    assert refusal(Solver, model) == "<mapping>: has no 'solver'; training needs one"


def test_what_has_no_end_is_refused(request, monkeypatch):
    """With --long at the true limit of values, else at a lower one."""
    assert tree.MAX_VALUES == 1_000_000
    many = 1_000_000 if request.config.getoption("--long") else 20_000
    monkeypatch.setattr(tree, "MAX_VALUES", many)
    endless: dict = {}
    endless["layers"] = [endless]
    with pytest.raises(SpecError, match="nested too deeply"):
        parse(endless)
    wide: list = [0]
    for _ in range(50):
        wide = [wide] * 9
    with pytest.raises(SpecError, match=f"more than {many} values"):
        parse({"layers": wide})


def test_a_limit_is_what_it_says(monkeypatch):
    model = {"layers": [{"name": "x", "type": "Input"}]}  # two mappings, a list and two words
    monkeypatch.setattr(tree, "MAX_VALUES", 5)
    tree.from_mapping(model)
    monkeypatch.setattr(tree, "MAX_VALUES", 4)
    assert "more than 4 values" in refusal(tree.from_mapping, model)


def test_numpys_numbers_and_paths_are_plain_ones():
    root = tree.from_mapping(
        {"a": np.float64(2), "b": np.arange(2), "c": Path("x/y"), "d": np.True_}
    )
    assert [node.value for node in root.value["b"].value] == [0, 1]
    assert [root.value[key].value for key in "acd"] == [2.0, "x/y", True]
    assert [type(root.value[key].value) for key in "acd"] == [float, str, bool]


@pytest.mark.parametrize("model", [5, True, None, ["layers"], b"x"])
def test_what_is_neither_is_refused(model):
    with pytest.raises(SpecError, match=r"^expected the path of a model file or a mapping, got "):
        read(model)
