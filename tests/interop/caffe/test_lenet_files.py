"""Caffe's LeNet as its users have it: prototxt, LMDB and caffemodel, from the command line."""

import shutil

import caffe_cases as cases
import pytest
from reading_files import write_lmdb

from minicaffe.cli import main
from minicaffe.interop.caffe.convert_weights import convert_weights
from minicaffe.tools.data import datasets, datum


def test_lenet_from_caffes_files_has_caffes_accuracy(tmp_path, mnist_folder, monkeypatch, capsys):
    pytest.importorskip("lmdb")
    found = datasets.load(str(mnist_folder / "mnist"), "test")
    pairs = zip(found.images, found.labels, strict=True)
    values = [datum.write(image, int(label)) for image, label in pairs]
    write_lmdb(tmp_path / "examples" / "mnist" / "mnist_test_lmdb", values)
    nets = cases.FIXTURES.parent / "interop" / "caffe" / "nets"
    shutil.copy(nets / "lenet_train_test.prototxt", tmp_path)
    monkeypatch.chdir(tmp_path)
    convert_weights(cases.FIXTURES / "lenet_iter_10000.npz", "lenet.caffemodel")
    words = ["test", "lenet_train_test.prototxt", "--weights", "lenet.caffemodel"]
    assert main([*words, "--device", "cpu"]) == 0
    out = capsys.readouterr().out.split()
    assert out[out.index("accuracy") + 1] == "0.9904"
    assert out[out.index("loss") + 1] == "0.0289"
