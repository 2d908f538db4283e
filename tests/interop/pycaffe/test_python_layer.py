"""Layers that scripts write: class X(caffe.Layer)."""

import sys

import numpy as np
import pytest
from kit import refusal

import minicaffe.interop.pycaffe as caffe
from minicaffe.errors import SpecError

HERE = "layers_of_a_script"


class Tenfold(caffe.Layer):
    def setup(self, bottom, top):
        self.seen = []

    def reshape(self, bottom, top):
        self.seen.append(bottom[0].data.shape)
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = 10 * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 10 * top[0].diff


class Numbers(caffe.Layer):
    """0, 1, 2, ... in batches of four, from the first again after ten."""

    def setup(self, bottom, top):
        top[0].reshape(4)
        self.reset()

    def reset(self):
        self.next = 0

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        top[0].data[...] = np.arange(self.next, self.next + 4) % 10
        self.next = (self.next + 4) % 10

    def backward(self, top, propagate_down, bottom):
        pass


class Weighted(caffe.Layer):
    def setup(self, bottom, top):
        self.blobs.add_blob(2)
        self.blobs[0].data[...] = self.param_str_ or 0

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        top[0].data[...] = self.blobs[0].data.sum()

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] += 1


class Phase(caffe.Layer):
    def __init__(self, p_object, *args, **kwargs):  # as editors write it
        super().__init__(p_object, *args, **kwargs)

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape()

    def forward(self, bottom, top):
        top[0].data[()] = self.phase


class Broken(caffe.Layer):
    def setup(self, bottom, top):
        self.raise_in("setup")

    def raise_in(self, where):
        if self.param_str == where:
            raise RuntimeError(f"in {where}")

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.raise_in("forward")

    def backward(self, top, propagate_down, bottom):
        self.raise_in("backward")


class Half(caffe.Layer):
    """Lacks forward, of which what its setup raises goes first."""

    def setup(self, bottom, top):
        if self.param_str:
            raise RuntimeError(self.param_str)

    def reshape(self, bottom, top):
        top[0].reshape(1)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])


def python(name, layer, bottom="", more=""):
    bottom = f'bottom: "{bottom}"' if bottom else ""
    return f"""layer {{ name: "{name}" type: "Python" top: "{name}" {bottom}
      python_param {{ module: "{HERE}" layer: "{layer}" {more} }} }}\n"""


INPUT = 'force_backward: true input: "data" input_shape { dim: 5 dim: 3 }\n'
THREE = INPUT + python("one", "Tenfold", "data") + python("two", "Tenfold", "one")


def test_forward_backward_and_shapes(text_file, placed):
    net = caffe.Net(text_file(THREE), caffe.TRAIN)
    net.blobs["two"].diff[...] = 7
    assert (net.backward()["data"] == 700).all()  # nothing has run forward
    net.blobs["data"].data[...] = 8
    assert (net.forward()["two"] == 800).all()
    assert (net.backward()["data"] == 700).all()
    net.blobs["data"].reshape(4, 4, 4)
    net.forward()
    assert {blob.data.shape for blob in net.blobs.values()} == {(4, 4, 4)}
    assert net.layers[1].seen[-1] == (4, 4, 4)
    assert isinstance(net.layers[1], Tenfold) and net.layers[1].type == "Python"


def test_the_layer_of_a_net_is_the_scripts_own_object(text_file, placed):
    net = caffe.Net(text_file(python("numbers", "Numbers")), caffe.TRAIN)
    batches = [net.forward()["numbers"].tolist() for _ in range(3)]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    net.layers[0].reset()
    assert net.forward()["numbers"].tolist() == batches[0]


def test_a_parameter_of_its_own(text_file, tmp_path):
    text = "force_backward: true\n" + python("sum", "Weighted", more='param_str: "2"')
    net = caffe.Net(text_file(text), caffe.TRAIN)
    layer = net.layers[0]
    assert layer.blobs[0].data.tolist() == net.params["sum"][0].data.tolist() == [2, 2]
    layer.blobs[0].data[0] = 5
    assert net.forward()["sum"].tolist() == [7]
    net.backward()
    assert net.params["sum"][0].diff.tolist() == layer.blobs[0].diff.tolist() == [1, 1]
    path = str(tmp_path / "weights")
    net.save(path)
    net.params["sum"][0].data[...] = -1
    assert net.forward()["sum"].tolist() == [-2]
    net.copy_from(path)
    assert layer.blobs[0].data.tolist() == [5, 2]
    other = caffe.Net(text_file(text), caffe.TRAIN)
    other.share_with(net)
    assert other.layers[0].blobs[0].data.tolist() == [5, 2]  # at once, as Caffe's own test has it
    assert other.forward()["sum"].tolist() == [7]


def test_the_phase(text_file):
    text = text_file(python("phase", "Phase"))
    for phase in (caffe.TRAIN, caffe.TEST):
        out = caffe.Net(text, phase).forward()["phase"]
        assert out.shape == () and out == phase


def test_what_a_layer_raises_comes_out_as_it_was_raised(text_file):
    def net(param_str, kind="Broken"):
        text = INPUT + python("broken", kind, "data", f'param_str: "{param_str}"')
        return caffe.Net(text_file(text), caffe.TRAIN)

    broken = net("backward")
    broken.forward()
    for where, run in (
        ("setup", lambda: net("setup")),
        ("forward", lambda: net("forward").forward()),
        ("backward", broken.backward),
        ("half", lambda: net("in half", "Half")),
    ):
        with pytest.raises(RuntimeError, match=f"^in {where}$") as caught:
            run()
        assert type(caught.value) is RuntimeError
    told = refusal(net, "", "Half", error=Exception)
    assert "class 'Half' of module" in told and "has no forward: a layer has setup" in told


def test_a_net_imports_nothing(text_file, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "never_imported.py").write_text("raise AssertionError('was run')")
    text = python("x", "X").replace(HERE, "never_imported")
    with pytest.raises(SpecError, match="`import never_imported` before the net is built"):
        caffe.Net(text_file(text), caffe.TRAIN)


class Growing(caffe.Layer):
    """Batches of one, two, three ... rows: the sizes are known when reshape is called."""

    def setup(self, bottom, top):
        self.rows = 0

    def reshape(self, bottom, top):
        self.rows += 1
        top[0].reshape(self.rows, 3)

    def forward(self, bottom, top):
        top[0].data[...] = self.rows

    def backward(self, top, propagate_down, bottom):
        pass


def test_shapes_that_a_data_layer_changes_from_pass_to_pass(text_file, placed):
    text = (
        python("rows", "Growing")
        + """layer { name: "ip" type: "InnerProduct" bottom: "rows" top: "ip"
      inner_product_param { num_output: 2 weight_filler { type: "constant" value: 1 } } }
      layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }"""
    )
    net = caffe.Net(text_file(text), caffe.TRAIN)
    for _ in range(3):
        net.clear_param_diffs()
        out = net.forward(blobs=["ip"])["ip"]
        rows = net.layers[0].rows
        assert out.shape == net.blobs["ip"].shape == (rows, 2) and (out == 3 * rows).all()
        net.backward()
        assert (net.params["ip"][0].diff == rows * rows).all()
