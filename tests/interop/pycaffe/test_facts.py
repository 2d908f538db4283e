"""Nets and solvers through pycaffe's interface, against numbers computed with the real Caffe through its own."""

import json

import caffe_cases as cases
import numpy as np
import pytest

import minicaffe.interop.pycaffe as caffe

NETS = cases.names("Net")
SOLVERS = cases.names("Solver")


def without_splits(names):
    """Caffe's automatic layers and blobs have no counterpart here."""
    return [name for name in json.loads(str(names)) if "_split" not in name]


def filled(case, text_file):
    net = caffe.Net(text_file(str(case["net_prototxt"])), int(str(case["phase"]) == "TEST"))
    for key, array in case.items():
        if key.startswith("param__"):
            layer, index = key.removeprefix("param__").rsplit("__", 1)
            net.params[layer][int(index)].data[...] = array
    return net


@pytest.mark.parametrize("name", NETS)
def test_a_net_shows_what_caffes_shows(name, text_file, placed):
    case = cases.load(name)
    net = filled(case, text_file)
    assert net._layer_names == without_splits(case["layer_names"])
    assert list(net.blobs) == without_splits(case["blob_names"])
    inputs = {k.removeprefix("input__"): v for k, v in case.items() if k.startswith("input__")}
    assert set(net.inputs) == set(inputs)
    net.forward(**inputs)
    for key, array in case.items():
        if key.startswith("blob__") and "_split_" not in key:
            cases.assert_close(net.blobs[key.removeprefix("blob__")].data, array, key)
    net.backward()
    for key, array in case.items():
        if key.startswith("blobdiff__") and "_split_" not in key:
            cases.assert_close(net.blobs[key.removeprefix("blobdiff__")].diff, array, key)
        if key.startswith("paramdiff__"):
            layer, index = key.removeprefix("paramdiff__").rsplit("__", 1)
            got, noise = net.params[layer][int(index)].diff, "bn1" in net.params
            if not noise or np.abs(got - array).max() > 1e-6:  # a bias that BatchNorm undoes
                cases.assert_close(got, array, key)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_takes_caffes_steps(name, text_file):
    """The batches are fed by a hook, before the second layer of each forward pass."""
    case = cases.load(name)
    settings = cases.from_json(case["solver_json"])
    settings |= {"snapshot_after_train": False, "max_iter": settings.get("max_iter", 10_000)}
    net_file = text_file(str(case["net_prototxt"]))
    lines = [f'net: "{net_file}"']
    for key, value in settings.items():
        for one in value if isinstance(value, list) else [value]:
            lines.append(f"{key}: {json.dumps(one)}")
    solver = caffe.get_solver(text_file("\n".join(lines), "solver"))
    assert type(solver).__name__ == f"{settings.get('type', 'SGD')}Solver"
    net = solver.net
    names = [full.rsplit("__", 1) for full in json.loads(str(case["param_names"]))]
    for layer, index in names:
        net.params[layer][int(index)].data[...] = case[f"traj__{layer}__{index}"][0]
    feed = iter(zip(case["data"], case["label"], strict=True))

    def fill(layer):
        if layer == 1:
            data, label = next(feed)
            net.blobs["data"].data[...], net.blobs["label"].data[...] = data, label

    net.before_forward(fill)
    for i in range(int(case["steps"])):
        assert solver.iter == i
        cases.assert_close(solver.lr, case["lr"][i], f"learning rate {i}")
        solver.step(1)
        for layer, index in names:
            full = f"{layer}__{index}"
            got = net.params[layer][int(index)].data
            cases.assert_close(got, case[f"traj__{full}"][i + 1], f"{full} after step {i}", 2e-5)
