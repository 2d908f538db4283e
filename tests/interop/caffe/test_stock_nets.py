"""Caffe's stock solvers and nets train as they stand, on small databases of the kinds that they name."""

import logging
import shutil
from pathlib import Path

import caffe_nets
import numpy as np
import pytest
from reading_files import write_lmdb

from minicaffe import Solver
from minicaffe.core.config.model import model
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import model as net_model
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.interop.caffe.convert_weights import write_blob
from minicaffe.interop.caffe.model import read_prototxt, read_text
from minicaffe.tools.data import datum

COUNT, BATCH = 40, 8
SOLVERS = {  # the layer that reads, the channels and side of its pictures, how much of the loss shall be left
    "lenet": ("mnist", 1, 28, 0.7),
    "cifar10_quick": ("cifar", 3, 32, 1.0),  # from weights of 1e-4, it stands still for long
    "cifar10_full": ("cifar", 3, 32, 1.0),
    "mnist_autoencoder": ("data", 1, 28, 0.9),
    "mnist_siamese": ("pair_data", 2, 28, 0.9),
    "logreg": ("data", 0, 0, 0.8),
}


def pictures(channels: int, side: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of two kinds: bright above or bright below; of a pair, whether both are of one kind."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, (COUNT, channels))
    found = rng.integers(0, 60, (COUNT, channels, side, side))
    half = side // 2
    found[:, :, :half] += 150 * kinds[:, :, None, None]
    found[:, :, half:] += 150 * (1 - kinds[:, :, None, None])
    labels = (kinds[:, 0] == kinds[:, 1]) if channels == 2 else kinds[:, 0]
    return found.astype(np.uint8), labels.astype(int)


def lay_out(name: str, folder: Path) -> Path:
    """The files that a stock solver names, in a folder that is Caffe's; the solver."""
    _, channels, side, _ = SOLVERS[name]
    for path in caffe_nets.NETS.glob(f"{name}_*"):
        shutil.copy(path, folder)
    if name == "mnist_autoencoder":
        shutil.copy(caffe_nets.NETS / "mnist_autoencoder.prototxt", folder)
    net = next(path for path in folder.glob("*.prototxt") if "solver" not in path.name)
    for seed, source in enumerate(sorted(set(caffe_nets.sources(net)))):
        if source.endswith(".txt"):
            h5py = pytest.importorskip("h5py")
            rows = np.random.default_rng(seed).normal(size=(COUNT, 4)).astype(np.float32)
            (folder / source).parent.mkdir(parents=True, exist_ok=True)
            with h5py.File(folder / source.replace(".txt", ".h5"), "w") as file:
                file["data"], file["label"] = rows, (rows.sum(1) > 0).astype(np.float32)
            (folder / source).write_text(source.replace(".txt", ".h5") + "\n")
            continue
        pytest.importorskip("lmdb")
        values, labels = pictures(channels, side, seed)
        pairs = zip(values, labels, strict=True)
        write_lmdb(folder / source, [datum.write(image, int(label)) for image, label in pairs])
    return folder / f"{name}_solver.prototxt"


@pytest.mark.parametrize("name", SOLVERS)
def test_a_stock_solver_trains_its_net(name, tmp_path, caplog, here):
    reader, _, _, left = SOLVERS[name]
    path = lay_out(name, tmp_path)
    sets = [f"layers.{reader}.batch_size={BATCH}", "solver.display=0", "solver.snapshot=0"]
    sets += ["solver.snapshot_after_train=false", "solver.test_initialization=false"]
    if name.startswith("cifar"):
        write_blob("examples/cifar10/mean.binaryproto", np.full((1, 3, 32, 32), 120, np.float32))
    if name == "mnist_autoencoder":
        sets += ["solver.test_iter=[2, 1]"]
    else:
        sets += ["solver.test_iter=2"]
    with caplog.at_level(logging.ERROR, "minicaffe"):
        spec = read_prototxt(path, REGISTRY, sets)
    settings = {"max_iter": 20, "test_interval": 20}
    solver = Solver(spec, device="cpu", deterministic=True, **settings)
    solver.step(1)
    first = loss(solver)
    solver.solve()
    assert np.isfinite(loss(solver)) and loss(solver) <= left * first
    assert solver.scores
    found = read_text(path, REGISTRY)
    Path("again.yaml").write_text(yaml_text(model(found.root, REGISTRY), REGISTRY, found.comments))
    again = Solver(
        net_model.read("again.yaml", *sets), device="cpu", deterministic=True, **settings
    )
    again.solve()
    assert loss(again) == loss(solver)  # as YAML it is the same


def loss(solver) -> float:
    """The sum of the losses that the training net has just computed."""
    net = solver.net
    return float(
        sum(value.loss_weight * float(net.blobs[value.name].data) for value in net.graph.losses)
    )
