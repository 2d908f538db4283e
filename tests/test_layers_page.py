"""docs/layers.md is what the declarations say, and each layer's example is true."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from kit import few_digits

from minicaffe import Net, parse
from minicaffe.cli import catalogue
from minicaffe.core.layers import REGISTRY

ROOT = Path(__file__).parent.parent
NAMES = sorted(REGISTRY)
NOT_ALONE = {"Python", "MemoryData"}  # what they do or give is the user's program's


def test_the_page_is_made_from_the_declarations():
    page = (ROOT / "docs" / "layers.md").read_text("utf-8")
    assert page == catalogue.page(REGISTRY), "minicaffe layers --markdown > docs/layers.md"


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_says_what_it_is_and_where_it_comes_from(name):
    doc = catalogue.documentation(REGISTRY[name])
    assert "Source: " in doc
    assert "Example: " not in doc
    assert catalogue.example(REGISTRY[name]) is not None


@pytest.mark.parametrize("name", sorted(set(NAMES) - NOT_ALONE))
def test_an_example_is_true(name, tmp_path, monkeypatch, here):
    few_digits(monkeypatch, 300, 100)
    shutil.copytree(ROOT / "tests" / "fixtures" / "examples", tmp_path, dirs_exist_ok=True)
    shapes, own, expected = catalogue.example(REGISTRY[name])
    bottoms = [f"b{i}" for i in range(len(shapes))]
    inputs = [
        f"  - {{name: {blob}, type: Input, shape: {{dim: {list(shape)}}}}}"
        for blob, shape in zip(bottoms, shapes, strict=True)
    ]
    tops = [f"t{i}" for i in range(len(expected))]
    layer = f"  - {{name: it, bottom: {bottoms}, top: {tops}, {own[1:]}".replace("'", "")
    net = Net(parse("\n".join(["layers:", *inputs, layer])), device="cpu")
    for blob, shape in zip(bottoms, shapes, strict=True):
        net.blobs[blob].data = np.ones(shape)
    net.forward()
    assert [value.blob.shape for value in net.steps[-1].tops] == expected


def test_a_page_of_a_layer_of_ones_own():
    class Odd:
        """Does a_thing to x*.

        a   b     c

        Example: (2, 3), (2,) ->
        {type: Odd} -> ()
        """

    assert catalogue.example(Odd) == ([(2, 3), (2,)], "{type: Odd}", [()])
    assert catalogue.documentation(Odd) == "Does a_thing to x*.\n\na   b     c"
