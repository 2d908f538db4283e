"""Layers written for Caffe's Python interface, and that no model makes code run."""

import copy
import os
import re
import subprocess
import sys
import types

import kit
import my_layers
import numpy as np
import pytest

from minicaffe import Net, ShapeError, Solver, SpecError, parse
from minicaffe.errors import LayerError
from minicaffe.interop.pycaffe.host_blob import HostBlob

LOSS = """
layers:
  - {name: in, type: Input, top: [x, y], shape: {dim: [4, 3]}}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 3}
  - {name: LOSS, bottom: [ip, y], loss_weight: 0.5}
solver: {base_lr: 0.2, momentum: 0.5, max_iter: 9, snapshot_after_train: false}
"""
PYTHON = "loss, type: Python, module: my_layers, layer: Distance"
FAULTY = """\
force_backward: true
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: it, type: Python, module: my_layers, layer: Faulty, param_str: WHERE}
"""


def values(net, seed=0):
    random = np.random.default_rng(seed)
    return {v.name: random.normal(size=v.shape).astype(np.float32) for v in net.steps[0].tops}


def test_a_loss_as_in_caffes_examples(device):
    """Half the mean squared distance, its gradient, and a step of learning by it."""
    solver = Solver(parse(LOSS.replace("LOSS", PYTHON)), device=device, keep=["ip"])
    net, host = solver.net, device.to_host
    given = values(net)
    net.forward(**given)
    difference = host(net.blobs["ip"].data) - given["y"]
    assert net.blobs["loss"].shape == (1,)
    assert net.loss == pytest.approx(0.5 * (difference**2).sum() / 8, rel=1e-5)
    net.backward()
    np.testing.assert_allclose(host(net.blobs["ip"].diff), difference / 4, rtol=1e-5, atol=1e-6)
    losses = []
    for _ in range(9):
        solver.step(1)
        net.forward(**given)
        losses.append(net.loss)
    assert losses == sorted(losses, reverse=True)


def test_a_parameter_of_its_own(device):
    text = """
layers:
  - {name: in, type: Input, top: [x, y], shape: {dim: [4, 3]}}
  - {name: one, type: Python, module: my_layers, layer: Scaled, param_str: "3", bottom: x}
  - {name: loss, type: Python, module: my_layers, layer: Distance, bottom: [one, y], loss_weight: 1}
solver: {base_lr: 0.1, max_iter: 9, weight_decay: 0, snapshot_after_train: false}
"""
    solver = Solver(parse(text), device=device)
    net, host = solver.net, device.to_host
    assert host(net.params["one"][0].data).tolist() == [0.5]
    given = values(net)
    net.forward(**given)
    net.backward()
    slope = (3 * given["x"] + 0.5 - given["y"]).sum() / 4
    np.testing.assert_allclose(host(net.params["one"][0].diff), [slope], rtol=1e-5)
    net.backward()  # it adds
    np.testing.assert_allclose(host(net.params["one"][0].diff), [2 * slope], rtol=1e-5)
    net.clear_param_diffs()
    solver.step(1)
    weights = solver.net.weights()
    assert weights["one__0"] != 0.5
    other = Net(parse(text), device=device)
    other.load(weights)
    other.reshape(x=(4, 3), y=(4, 3))  # parameters stay
    np.testing.assert_array_equal(other.weights()["one__0"], weights["one__0"])
    again = copy.deepcopy(other)
    np.testing.assert_array_equal(again.weights()["one__0"], weights["one__0"])
    got = host(again.forward(**given)["loss"])
    np.testing.assert_array_equal(got, host(other.forward(**given)["loss"]))


def test_reshape_runs_before_each_pass_and_shapes_follow_the_net(device):
    text = """
layers:
  - {name: data, type: Python, module: my_layers, layer: Counting, bottom: [], top: [n, twice]}
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: y, type: Python, module: my_layers, layer: Scaled, param_str: "10"}
"""
    net = Net(parse(text), device=device)
    assert [net.blobs[name].shape for name in ("n", "twice", "y")] == [(3,), (3, 1), (2, 3)]
    seen = []
    for _ in range(3):
        net.forward(x=np.ones((2, 3)))
        seen.append(device.to_host(net.blobs["n"].data).tolist())
        assert (device.to_host(net.blobs["twice"].data)[:, 0] == 2 * np.array(seen[-1])).all()
    assert seen == [[3, 4, 5], [6, 0, 1], [2, 3, 4]]
    net.reshape(x=(1, 4, 2))
    assert net.forward(x=np.ones((1, 4, 2)))["y"].shape == (1, 4, 2)
    np.testing.assert_array_equal(device.to_host(net.blobs["y"].data), 10.5)


@pytest.mark.parametrize("where", ["reshape", "forward"])
def test_tops_may_change_their_shape_from_pass_to_pass(where, device):
    """As images of a data set do; what is behind follows, forward and backward."""
    text = """
layers:
  - {name: data, type: Python, module: my_layers, layer: Growing, param_str: WHERE HEIGHTS, bottom: []}
  - {name: conv, type: Convolution, num_output: 2, kernel_size: 3}
  - {name: own, type: Python, module: my_layers, layer: Scaled, param_str: "2"}
  - {name: sum, type: Eltwise, bottom: [own, own], loss_weight: 1}
"""
    text = text.replace("WHERE", where)
    net = Net(parse(text.replace("HEIGHTS", "4 6 6 5 4")), device=device)
    for i, height in enumerate([4, 6, 6, 5, 4, 4, 6]):
        net.forward()
        net.clear_param_diffs()
        net.backward()
        data = (i + np.arange(6.0 * height)).reshape(1, 2, height, 3)
        np.testing.assert_array_equal(device.to_host(net.blobs["data"].data), data)
        assert net.blobs["sum"].shape == (1, 2, height - 2, 1)
        windows = np.stack([data[0, :, y : y + 3] for y in range(height - 2)])
        slope = np.broadcast_to(4 * windows.sum(axis=0), (2, 2, 3, 3))
        np.testing.assert_allclose(device.to_host(net.params["conv"][0].diff), slope, rtol=1e-5)
        assert device.to_host(net.params["own"][0].diff).tolist() == [4 * (height - 2)]
    dense = "  - {name: ip, type: InnerProduct, bottom: data, num_output: 1}\n"
    net = Net(parse(text.replace("HEIGHTS", "4 6 6 4 4") + dense), device=device)
    net.forward()
    for _ in range(2):
        with pytest.raises(ShapeError, match=r"layer 'ip' .InnerProduct.: parameter 0 has shape"):
            net.forward()
        assert [net.blobs[name].shape for name in ("data", "ip")] == [(1, 2, 4, 3), (1, 1)]
    net.forward()  # the fourth pass, of a height that fits
    assert float(device.to_host(net.blobs["data"].data).min()) == 3


def test_shapes_take_no_memory():
    """Nor does what such a layer is shown as data before there is any: this is 4 TiB."""
    text = """
layers:
  - {name: in, type: Input, top: [x, y], shape: {dim: [1048576, 1048576]}}
  - {name: loss, type: Python, module: my_layers, layer: Distance, bottom: [x, y]}
"""
    net = Net(parse(text), shapes_only=True, device="cpu")
    assert net.layers["loss"].bottoms[1].data.shape == (2**20, 2**20)


@pytest.mark.parametrize("where", ["setup", "reshape", "forward", "backward"])
def test_what_it_raises_is_told_with_both_places(where, tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(FAULTY.replace("Faulty", "Sloppy").replace("WHERE", where))
    with pytest.raises(LayerError) as caught:
        net = Net(path, device="cpu")
        net.forward()
        net.backward(it=np.ones((2, 3)))
    said = str(caught.value)
    assert said.startswith(f"{path}:4:5: layer 'it' (Python): ")
    assert "my_layers.py:" in said and said.endswith(f": ValueError: in {where}")


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        ("no shape", ShapeError, "neither setup nor reshape of Faulty calls top[0].reshape(...)"),
        ("write", LayerError, "ValueError: assignment destination is read-only"),
        ("late", ShapeError, "blobs.add_blob is for setup"),
        ("sizes", ShapeError, "reshape: expected integers of at least 1, got (2.5,)"),
        ("nothing", LayerError, "Faulty has no backward, and its gradient is wanted"),
    ],
)
def test_what_it_must_not_do(where, error, message):
    with pytest.raises(error, match=r"4:5: layer 'it' .Python.: ") as caught:
        net = Net(parse(FAULTY.replace("WHERE", where)), device="cpu")
        net.forward()
        net.backward(it=np.ones((2, 3)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("module", "layer", "message"),
    kit.rows("""
nowhere | Scaled | module 'nowhere' is not imported, and a model does not import: --import nowhere.py
a.b | Scaled | --import a/b.py does, or `import a.b` before the net is built
my_layers | Scale | module 'my_layers' has no class 'Scale'; did you mean 'Scaled'?
my_layers | function | module 'my_layers' has no class 'function'
my_layers | Unfinished | has no reshape and no forward: a layer has setup, reshape
os | system | module 'os' has no class 'system'
subprocess | Popen | class 'Popen' of module 'subprocess' has no setup and no reshape and no
__main__ | Scaled | module '__main__' has no class 'Scaled'
"""),
)
def test_a_class_that_is_not_there(module, layer, message):
    text = f"layers: [{{name: it, type: Python, module: {module}, layer: {layer}, bottom: []}}]"
    said = kit.error_line(Net, parse(text), device="cpu")
    assert re.match(r"SpecError: .*layer 'it' \(Python\): ", said) and message in said


def test_a_model_never_imports_nor_runs(tmp_path, monkeypatch, here):
    """Not a module that could be found, nor one that loads when it is looked at, nor a class without methods."""
    (tmp_path / "waiting.py").write_text("raise SystemExit('ran')\nclass It: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "layers: [{name: it, type: Python, module: waiting, layer: It, bottom: []}]"
    with pytest.raises(SpecError, match="module 'waiting' is not imported"):
        Net(parse(text), device="cpu")
    assert "waiting" not in sys.modules

    monkeypatch.setitem(sys.modules, "waiting", None)  # barred
    with pytest.raises(SpecError, match="module 'waiting' has no class 'It'"):
        Net(parse(text), device="cpu")

    class Loading(types.ModuleType):
        def __getattribute__(self, name):
            raise SystemExit("ran")

    monkeypatch.setitem(sys.modules, "waiting", Loading("waiting"))
    with pytest.raises(SpecError, match="module 'waiting' has no class 'It'"):
        Net(parse(text), device="cpu")


def test_a_module_by_import_and_one_that_is_the_script(tmp_path):
    """--import FILE, and a script that holds the class itself, run as a program."""
    layer = """
import numpy as np
class Twice:
    def setup(self, bottom, top): pass
    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top): top[0].data[...] = 2 * bottom[0].data
"""
    net = "layers: [{name: x, type: Input, shape: {dim: 2}}, {name: y, type: Python, module: own, layer: Twice}]"
    (tmp_path / "net.yaml").write_text(net)
    script = "if __name__ == '__main__':\n    from minicaffe import Net\n    print(Net('net.yaml', device='cpu').forward(x=[1, 2])['y'])\n"
    (tmp_path / "own.py").write_text(layer + script)

    def run(*words):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    assert run("own.py") == (0, "[2. 4.]\n")
    code, said = run("-m", "minicaffe", "summary", "net.yaml")
    assert code == 2 and "net.yaml:1:51: layer 'y' (Python): module 'own' is not imported" in said
    code, said = run("-m", "minicaffe", "summary", "net.yaml", "--import", "own.py")
    assert code == 0 and "Python" in said


@pytest.mark.parametrize("way", ["option", "variable"])
def test_modules_of_a_folder_that_the_user_names(way, tmp_path):
    """As Caffe's users keep them on PYTHONPATH: in packages, `import caffe` at the top, another module beside."""
    (tmp_path / "layers/rpn").mkdir(parents=True)
    (tmp_path / "layers/rpn/__init__.py").touch()
    (tmp_path / "layers/factors.py").write_text("TWO = 2\n")
    (tmp_path / "layers/rpn/twice.py").write_text(
        "import caffe\nfrom caffe.proto import caffe_pb2\nimport factors\n"
        "assert caffe_pb2.NetParameter and caffe.TEST == 1\n"
        "class Twice(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n"
        "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)\n"
        "    def forward(self, bottom, top): top[0].data[...] = factors.TWO * bottom[0].data\n"
    )
    (tmp_path / "layers/broken.py").write_text("1 / 0\n")
    layer = 'layer { name: "y" type: "Python" bottom: "x" top: "y" python_param { module: "MODULE" layer: "Twice" } }'
    inputs = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } }\n'
    for module in ("rpn.twice", "broken"):
        (tmp_path / f"{module}.prototxt").write_text(inputs + layer.replace("MODULE", module))
    (tmp_path / "one.py").write_text("import caffe\nassert caffe.Layer\n")
    given = ["--import", "layers", "--import", "one.py"] if way == "option" else []
    variables = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    variables |= {"MINICAFFE_PYTHON_LAYERS": "layers"} if way == "variable" else {}

    words = [sys.executable, "-m", "minicaffe", "time", "--iterations", "1", *kit.CPU, *given]

    def time(name):
        how = {"cwd": tmp_path, "env": variables, "capture_output": True, "text": True}
        return subprocess.run([*words, name], **how)

    ran = time("rpn.twice.prototxt")
    assert (ran.returncode, ran.stderr.count("Traceback")) == (0, 0), ran.stderr
    ran = time("broken.prototxt")
    assert ran.returncode == 2 and "layer 'y' (Python): " in ran.stderr
    assert ran.stderr.endswith("broken.py:1: ZeroDivisionError: division by zero\n")


def test_a_blob_as_such_a_layer_sees_it():
    blob = HostBlob((5, 4), np.dtype("float32"))
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (5, 4, 1, 1, 20)
    blob.data[...] = 3
    blob.reshape(5, 4)
    assert blob.data.sum() == 60  # of its shape already
    blob.reshape(np.int64(2))
    assert (blob.shape, blob.data.tolist(), blob.diff.dtype) == ((2,), [0, 0], np.float32)
    assert my_layers.Scaled.phase == 0


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_it_finds_its_phase_and_text(phase):
    user = Net(parse(FAULTY.replace("WHERE", "some text")), phase, device="cpu").layers["it"].user
    assert (user.phase, user.param_str) == (int(phase == "TEST"), "some text")
