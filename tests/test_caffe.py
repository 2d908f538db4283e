"""Forward, backward, training and data, against numbers computed with the real Caffe."""

import json
from pathlib import Path

import caffe_cases as cases
import kit
import numpy as np
import pytest

from minicaffe import Net
from minicaffe.backends.step_constants import Slots
from minicaffe.core.config.declare import Filler
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.fillers import fill
from minicaffe.core.ops import random as activation
from minicaffe.core.ops.conv import ENGINES
from minicaffe.core.solver import mean_outputs
from minicaffe.errors import ShapeError
from minicaffe.tools.data import datasets

# Tested below or with their layers, in ways of their own
ELSEWHERE = ("Data_", "DummyData_", "HDF5Data_", "Dropout_train", "LSTM_carry", "MemoryData_")
LAYERS = [name for name in cases.names(*REGISTRY) if not name.startswith(ELSEWHERE)]
# Where Caffe's answer is an accident that minicaffe does not copy (docs/from-caffe.md), tested below.
ACCIDENTS = {
    "Accuracy_nan",
    "Pooling_MAX_empty_last_window_forward_only",
    "Pooling_AVE_empty_last_window_forward_only",
}


def run_layer(case, device, **keys):
    """The net of a layer case, with more keys of the layer's if given, after forward."""
    model = cases.as_model(cases.from_json(case["net_json"]))
    layer = model["layers"][-1]
    layer.update(keys)
    for i, given in enumerate(model["layers"][:-1]):
        given.update(type="Input", shape={"dim": [int(n) for n in case[f"bottom_{i}"].shape]})
    layer["propagate_down"] = [bool(flag) for flag in case["propagate_down"]]
    if bool(case["has_backward"]):
        layer["loss_weight"] = [1.0] * int(case["num_tops"])
    else:
        layer.pop("loss_weight", None)
    model["force_backward"] = True
    net = Net(model, str(case["phase"]), device=device)
    step = net.steps[-1]
    for j, param in enumerate(step.layer.params):
        assert param.shape == case[f"param_{j}"].shape
        net.device.copy_from_host(param.data, case[f"param_{j}"])
    net.forward(**{f"b{i}": case[f"bottom_{i}"] for i in range(int(case["num_bottoms"]))})
    return net, step


def parts(case, prefix):
    """The arrays of a case whose names begin so, by the rest of their names."""
    return {key.removeprefix(prefix): case[key] for key in case if key.startswith(prefix)}


def check_layer(case, device, note="", **keys):
    """Forward and, with the injected gradients, backward are Caffe's."""
    assert int(case["steps"]) == 1
    net, step = run_layer(case, device, **keys)
    host = net.device.to_host
    for t, value in enumerate(step.tops):
        cases.assert_close(host(value.blob.data), case[f"top_{t}"], f"{note}top {t}")
    if not case["has_backward"]:
        return
    net.backward(**{value.name: case[f"top_diff_{t}"] for t, value in enumerate(step.tops)})
    for i, value in enumerate(step.bottoms):
        if case["propagate_down"][i]:
            what = f"{note}gradient of bottom {i}"
            cases.assert_close(host(value.blob.diff), case[f"bottom_diff_{i}"], what)
    for j, param in enumerate(step.layer.params):
        what = f"{note}gradient of parameter {j}"
        cases.assert_close(host(param.diff), case[f"param_diff_{j}"], what)


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ACCIDENTS])
def test_a_layer_agrees_with_caffe(name, device):
    check_layer(cases.load(name), device)


@pytest.mark.parametrize("name", cases.names("Convolution", "Deconvolution"))
def test_every_engine_that_takes_a_convolution_agrees_with_caffe(name, device):
    taken = set()
    for engine in ENGINES:
        try:
            check_layer(cases.load(name), device, f"{engine}: ", engine=engine)
        except ShapeError as refusal:
            assert f"engine '{engine}' cannot take this convolution: " in str(refusal)
        else:
            taken.add(engine)
    assert taken >= {"direct", "caffe", "loopfree", "batched", "implicit"}


def test_the_cases_are_all_there():
    assert len(LAYERS) >= 94


@pytest.mark.parametrize("kind", ["MAX", "AVE"])
def test_an_empty_last_window_gives_zero_where_caffe_gives_an_accident(kind, device):
    case = cases.load(f"Pooling_{kind}_empty_last_window_forward_only")
    _, step = run_layer({**case, "has_backward": np.array(False)}, device)
    wanted = case["top_0"].copy()
    accident = ~np.isfinite(wanted) | (wanted < -1e30)
    assert accident.any()
    wanted[accident] = 0
    cases.assert_close(device.to_host(step.tops[0].blob.data), wanted, "top")


def test_scores_that_are_no_numbers_are_misses(device):
    case = cases.load("Accuracy_nan")
    assert case["top_0"] == 1
    _, step = run_layer(case, device)
    assert float(device.to_host(step.tops[0].blob.data)) == 0


def test_dropout_agrees_with_caffe(device):
    case = cases.load("Dropout_train_ratio0.5")
    mask = activation.Mask(Slots(device), case["top_0"].shape)
    device.xp.copyto(mask.kept, device.asarray(case["top_0"] != 0))
    for given, wanted in (("bottom_0", "top_0"), ("top_diff_0", "bottom_diff_0")):
        x = device.asarray(case[given])
        y = activation.dropout_gradient(x, mask, 0.5, device.xp.empty(x.shape, x.dtype))
        cases.assert_close(device.to_host(y), case[wanted], wanted)
    case = cases.load("Dropout_test_ratio0.2")
    _, step = run_layer(case, device)
    cases.assert_close(device.to_host(step.tops[0].blob.data), case["top_0"], "top")


@pytest.mark.parametrize("name", cases.names("Net_"))
def test_a_net_agrees_with_caffe(name):
    case = cases.load(name)
    net = Net(cases.as_model(cases.from_json(case["net_json"])), str(case["phase"]), device="cpu")
    for name, array in parts(case, "param__").items():
        layer, index = name.rsplit("__", 1)
        net.params[layer][int(index)].data[...] = array
    net.forward(**parts(case, "input__"))
    for name, array in parts(case, "blob__").items():
        if "_split_" not in name:
            cases.assert_close(net.blobs[name].data, array, name)
    cases.assert_close(net.loss, case["loss"], "loss")
    net.backward()
    for name, array in parts(case, "blobdiff__").items():
        if "_split_" not in name:  # the last that Caffe wrote
            cases.assert_close(net.first_blobs[name].diff, array, f"gradient of {name}")
    for name, array in parts(case, "paramdiff__").items():
        layer, index = name.rsplit("__", 1)
        found = net.params[layer][int(index)].diff
        noise = name == "conv1__1" and "BatchNorm" in str(case["net_json"])
        if not noise or np.abs(found - array).max() > 1e-6:
            cases.assert_close(found, array, f"gradient of {name}")


@pytest.mark.parametrize("name", cases.names("Solver"))
def test_training_follows_caffe_step_by_step(name):
    case = cases.load(name)
    solver, iter_size = cases.solver_of(case), int(case["iter_size"])
    named = cases.params_of(solver.net, case)
    for name, param in named.items():
        param.data[...] = case[f"traj__{name}"][0]
    cases.feed(solver.net, case)
    window = []
    for i in range(int(case["steps"])):
        cases.assert_close(solver.rate, case["lr"][i], f"learning rate {i}", 1e-5)
        before = {n: p.data.copy() for n, p in named.items()}
        solver.step(1)
        window.append(case["loss_per_forward"][i * iter_size : (i + 1) * iter_size].mean())
        mean = np.mean(window[-solver.spec.average_loss :])
        assert solver.loss() == pytest.approx(mean, rel=1e-5)
        for n, param in named.items():
            cases.assert_close(param.data, case[f"traj__{n}"][i + 1], f"{n} after step {i}", 2e-5)
            update = case[f"update__{n}"][i]
            if np.abs(update).max() > 1e-6:
                found = before[n] - param.data
                cases.assert_close(found, update, f"update of {n} in step {i}", 1e-3)


def of_mnist(case, folder, monkeypatch, device="cpu", **transform):
    """The net of a case of the layer Data, which reads MNIST from its files."""
    monkeypatch.setenv("MINICAFFE_DATA", str(folder))
    model = cases.as_model(cases.from_json(case["net_json"]))
    model["layers"][0].update(source="mnist")
    model["layers"][0].pop("backend")
    model["layers"][0].setdefault("transform", {}).update(transform)
    return Net(model, "TEST", device=device)


@pytest.mark.parametrize(
    "name", ["mnist_scale", "mnist_mean_value_scale", "mnist_crop20_test_center"]
)
def test_data_agrees_with_caffe(name, device, mnist_folder, monkeypatch):
    case = cases.load(f"Data_{name}")
    net = of_mnist(case, mnist_folder, monkeypatch, device)
    for k in range(2):
        net.forward()
        for blob in ("data", "label"):
            found = device.to_host(net.blobs[blob].data)
            cases.assert_close(found, case[f"{blob}_{k}"], f"{blob} of batch {k}")


@pytest.mark.parametrize("suffix", [".npy", ".binaryproto"])
def test_a_mean_file_is_subtracted_as_by_caffe(mnist_folder, monkeypatch, tmp_path, suffix):
    """It is that of MNIST's training images, or of its test images."""
    case = cases.load("Data_mnist_crop21_mean_file_test_center")
    errors, path = {}, tmp_path / f"mean{suffix}"
    for split in ("train", "test"):
        images = datasets.load(str(mnist_folder / "mnist"), split).images
        mean = images.mean(axis=0, dtype=np.float64).astype(np.float32)
        if suffix == ".npy":
            np.save(path, mean)
        else:  # num, channels, height, width as varints; 784 floats, packed
            path.write_bytes(bytes.fromhex("0801 1001 181c 201c 2ac018") + mean.tobytes())
        net = of_mnist(case, mnist_folder, monkeypatch, mean_file=str(path))
        net.forward()
        errors[split] = np.abs(net.blobs["data"].data - case["data_0"]).max() / 255
    assert min(errors.values()) < 1e-5, errors


def test_batches_wrap_around_as_in_caffe(mnist_folder, monkeypatch):
    case = cases.load("Data_mnist_wraparound_labels")
    net = of_mnist(case, mnist_folder, monkeypatch)
    labels = np.concatenate([net.forward()["label"].copy() for _ in range(5)])
    np.testing.assert_array_equal(labels, case["labels"])


def test_fillers_agree_with_caffe():
    case, words = cases.load("Fillers_stats"), ("type", "variance_norm")
    for key, text in json.loads(str(case["notes"])).items():
        said = iter(text.split(" -- ")[0].replace('"', "").replace(":", "").split())
        settings = dict(zip(said, said, strict=True))
        filler = Filler(**{k: v if k in words else float(v) for k, v in settings.items()})
        wanted, random = case[key], np.random.default_rng(0)
        if key.startswith("exact"):
            cases.assert_close(fill(filler, wanted.shape, random), wanted, key, 1e-6)
            continue
        values = fill(filler, (200, 50, 5, 5), random)
        got = values.mean(), values.std(), values.min(), values.max(), (values == 0).mean()
        for which, tolerance in (
            (slice(0, 1), {"rtol": 1e-7, "atol": 0.02 * wanted[1]}),
            (slice(1, 2), {"rtol": 0.05}),
            (slice(2, 4), {"rtol": 0.25, "atol": 0.01 * wanted[1]}),
            (slice(4, 5), {"rtol": 1e-7, "atol": 0.002}),
        ):
            np.testing.assert_allclose(got[which], wanted[which], err_msg=text, **tolerance)


def test_caffes_lenet_gives_caffes_blobs(device):
    case = cases.load("LeNet_test10")
    model = cases.as_model(cases.from_json(case["net_json"]))
    model["layers"][0]["shape"] = [{"dim": [10, 1, 28, 28]}, {"dim": [10]}]
    net = Net(model, "TEST", device=device)
    assert len(net.load(cases.FIXTURES / "lenet_iter_10000.npz").loaded) == 8
    net.forward(data=case["blob__data"], label=case["label"])
    for name, wanted in parts(case, "blob__").items():
        cases.assert_close(device.to_host(net.blobs[name].data), wanted, name)


def test_caffes_lenet_gives_caffes_blobs_and_logits_of_all_test_images(mnist_folder):
    """The whole of what Caffe computed, where it is at hand: blobs of 100 images, logits of 10,000."""
    whole = cases.SHARED / "cases" / "LeNet_test100.npz"
    if not whole.exists():
        pytest.skip("LeNet_test100.npz of the reference numbers is not here")
    images = datasets.load(str(mnist_folder / "mnist"), "test").images / np.float32(256)
    case = kit.arrays(whole)
    net = Net(cases.as_model(cases.from_json(case["net_json"])), "TEST", device="cpu")
    net.load(cases.FIXTURES / "lenet_iter_10000.npz")
    logits = np.empty((10_000, 10), np.float32)
    for start in range(0, 10_000, 100):
        net.forward(data=images[start : start + 100], label=case["label"])
        logits[start : start + 100] = net.blobs["ip2"].data
        if start == 0:
            for name, wanted in parts(case, "blob__").items():
                if "_split_" not in name:
                    cases.assert_close(net.blobs[name].data, wanted, name)
    cases.assert_close(logits, case["all_logits"], "logits of the 10,000 test images")
    np.testing.assert_array_equal(logits.argmax(axis=1), case["pred"])


def test_caffes_lenet_gets_caffes_accuracy(mnist_folder, monkeypatch):
    monkeypatch.setenv("MINICAFFE_DATA", str(mnist_folder))
    net = Net(Path(__file__).parent.parent / "models" / "lenet.yaml", "TEST", device="cpu")
    net.load(cases.FIXTURES / "lenet_iter_10000.npz")
    scores = mean_outputs(net, 100)
    assert scores["accuracy"] == pytest.approx(0.9904, abs=1e-7)
    assert scores["loss"] == pytest.approx(0.02891, abs=1e-5)
