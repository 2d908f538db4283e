"""Layers of Caffe's forks: imported when they are named, and replaced by a user's class of their name."""

import importlib
import subprocess
import sys

import pytest

from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.registry import Registry
from minicaffe.interop.caffe.forks import FORKS

OWN = """
from minicaffe import Layer, Net, parse, register
{first}
@register
class PriorBox(Layer):
    def setup(self, *shapes):
        return shapes[0]

    def forward(self, x, *others):
        return x * 2
{last}
net = Net(parse('''
layers:
  - {{name: x, type: Input, shape: {{dim: [1, 2]}}}}
  - {{name: y, type: PriorBox}}
'''), device="cpu")
print(net.forward(x=[[1, 2]])["y"].tolist())
"""


def test_each_fork_has_the_types_that_the_table_says():
    for file in {fork.file for fork in FORKS}:
        name = f"minicaffe.interop.caffe.forks.{file}"
        importlib.import_module(name)
        types = {kind for fork in FORKS if fork.file == file for kind in fork.types}
        assert {kind for kind, cls in REGISTRY.items() if cls.__module__ == name} == types


def test_a_fork_is_not_imported_before_it_is_named():
    code = """
import sys
from minicaffe.core.layers import REGISTRY
assert "PriorBox" in REGISTRY and "PriorBox" in list(REGISTRY)
assert not [name for name in sys.modules if name.startswith("minicaffe.interop.caffe.forks.")]
assert REGISTRY["PriorBox"].__name__ == "PriorBox"
assert [name for name in sys.modules if name == "minicaffe.interop.caffe.forks.ssd"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("when", ["first", "last", "never"])
def test_a_users_class_takes_the_place_of_a_forks(when):
    """Whether the fork is imported before it, after it, or not at all."""
    lines = {"first": "", "last": "", when: "import minicaffe.interop.caffe.forks.ssd"}
    code = OWN.format(first=lines["first"], last=lines["last"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[2.0, 4.0]]"


def test_what_is_taken_out_is_gone():
    registry = Registry()
    registry["A"] = int
    del registry["A"]
    assert "A" not in registry
    assert (len(registry), registry.get("A")) == (0, None)
