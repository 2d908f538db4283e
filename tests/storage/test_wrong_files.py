"""A file of another kind than its reader wants: one line says what it is, and what was expected."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
from kit import refusal, small_net

import minicaffe
from minicaffe import parse
from minicaffe.cli.options import lines_of
from minicaffe.core.net import model
from minicaffe.errors import MinicaffeError
from minicaffe.interop.caffe import state
from minicaffe.interop.caffe.label_map import label_map
from minicaffe.storage.file_kinds import recognised
from minicaffe.storage.wire import read_array
from minicaffe.tools.data import idx, picture_files, pictures, readers
from minicaffe.tools.data.lmdb_file import Lmdb
from minicaffe.tools.training.folder import read_lines

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"
PAGE = b"\n<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n"
CONV = "conv Convolution bottom: data, num_output: 2, kernel_size: 3, weight_filler: xavier"


def packed(kind):
    stream = io.BytesIO()
    if kind == "tar":
        with tarfile.open(fileobj=stream, mode="w") as file:
            file.addfile(tarfile.TarInfo("a"))
    else:
        with zipfile.ZipFile(stream, "w") as file:
            file.writestr(kind, b"")
    return stream.getvalue()


WRONG = {
    LFS: "a Git LFS pointer (git lfs pull fetches the file)",
    PAGE: "a web page (HTML)",
    b"\xef\xbb\xbf<?xml version='1.0'?><!-- x --><html></html>": "a web page (HTML)",
    b"\x1f\x8b\x08\x00": "a gzip archive",
    packed("a.txt"): "a zip archive",
    packed("archive/data.pkl"): "PyTorch's weights (.pt)",
    packed("tar"): "a tar archive",
    b"7z\xbc\xaf\x27\x1c\0\4": "a 7z archive",
    b"%PDF-1.7": "a PDF",
}
READERS = {
    "x.caffemodel": (model.opened, "a whole .caffemodel"),
    "x.caffemodel.h5": (model.opened, "a whole .caffemodel"),
    "x.npz": (model.opened, "a whole .npz file"),
    "x.solverstate": (state.read, "a whole .solverstate"),
    "x.npy": (read_array, "a whole .npy file"),
    "x.binaryproto": (read_array, "a whole BlobProto (.binaryproto)"),
    "x.prototxt": (minicaffe.read, "prototxt"),
    "x.yaml": (minicaffe.read, "model file"),
    "map.prototxt": (label_map, "prototxt"),
    "labels.txt": (lambda path: lines_of(str(path), 2), "text"),
    "list.txt": (lambda path: readers.open(str(path), "train"), "a whole text"),
    "set.csv": (lambda path: readers.open(str(path), "train"), "a whole text"),
    "x.png": (lambda path: picture_files.read(path, "colour"), "a picture that can be read"),
    "x.jpg": (lambda path: pictures.read(str(path)), "a picture that can be read"),
    "data.mdb": (lambda path: Lmdb(path.parent), "a whole LMDB database"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_another_kind_is_told_in_one_line(tmp_path, name):
    read, wanted = READERS[name]
    path = tmp_path / name
    for data, kind in WRONG.items():
        path.write_bytes(data)
        if name == "list.txt" and kind.startswith("a gzip"):
            kind = "found a file"  # and it may be one of four IDX files
        told = refusal(read, path)
        assert told.startswith(f"{path}: ") and told.isprintable()
        if name != "list.txt" or not data.startswith(b"PK"):  # a zip file may be of NumPy's arrays
            assert kind in told
            assert wanted in told or kind == "found a file"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("h.prototxt", "a net or solver as Caffe's text"),
        ("h.caffemodel", "weights in Caffe's format"),
        ("h.solverstate", "a solver's state in Caffe's format"),
        ("h.h5", "weights or state in HDF5, as Caffe or Keras write them"),
        ("h.binaryproto", "a mean image in Caffe's format"),
    ],
)
def test_files_of_other_software_are_known_by_name(name, kind, tmp_path):
    """Where the layer reads a matrix; the mean image is told from a model."""
    (tmp_path / name).write_bytes(b"")
    text = "layers: [{name: x, type: Input, top: [x, y], shape: [{dim: [2, 3]}, {dim: 2}]}, "
    text += f"{{name: l, type: InfogainLoss, bottom: [x, y], source: {tmp_path / name}}}]"
    wanted = "arrays in .npy and .binaryproto"
    with pytest.raises(MinicaffeError) as caught:
        if name == "h.binaryproto":
            wanted = "models in .yaml and .prototxt"
            minicaffe.read(tmp_path / name)
        minicaffe.Net(parse(text), device="cpu")
    assert f"{name}: is {kind}; minicaffe reads {wanted}" in str(caught.value)


def test_packages_readers_tell_it_too(tmp_path):
    pytest.importorskip("safetensors")
    pytest.importorskip("h5py")
    onnx = pytest.importorskip("minicaffe.interop.onnx.reader")
    pytest.importorskip("onnx")
    for name, read in {
        "x.safetensors": model.opened,
        "x.h5": lambda path: readers.open(str(path), "train"),
        "x.onnx": onnx.from_onnx,
    }.items():
        path = tmp_path / name
        for data in (LFS, PAGE):
            path.write_bytes(data)
            told = refusal(read, path)
            assert WRONG[data] in told and told.isprintable()
            assert f"a whole {'HDF5' if name == 'x.h5' else path.suffix} file" in told


def test_each_kind_of_ours_is_known_by_how_it_begins(tmp_path):
    net = small_net({"data": [1, 3, 8, 8]}, CONV)
    for name, kind in (("a.npz", ".npz"), ("a.caffemodel", ".caffemodel")):
        net.save(tmp_path / name)
        assert kind in recognised(tmp_path / name, "picture")
        assert recognised(tmp_path / name, kind) is None
        with pytest.raises(MinicaffeError, match=rf"is no model file: it is .*\{kind}"):
            (tmp_path / "x.yaml").write_bytes((tmp_path / name).read_bytes())
            minicaffe.read(tmp_path / "x.yaml")
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.caffemodel").read_bytes())
    told = refusal(net.load, tmp_path / "b.npz")
    assert "not a whole .npz file: it is weights in a .caffemodel" in told
    state.write(tmp_path / "a.solverstate", state.SolverState(7, "net.caffemodel"))
    np.save(tmp_path / "a.npy", np.zeros(3))
    idx.write(tmp_path / "a.idx", np.zeros((2, 3), np.uint8))
    for name, kind in (("a.solverstate", ".solverstate"), ("a.npy", ".npy"), ("a.idx", "IDX file")):
        assert kind in recognised(tmp_path / name, "picture")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x08\x07\x12\x07pytorch\x1a\x052.1.0:", "a net in an .onnx file"),
        (b"\x08\x01\x10\x03\x18\x80\x02\x20\x80\x02*", "a BlobProto (.binaryproto)"),
        (b"\x10\0\0\0\0\0\0\0{\"a\":{}}", "weights in a .safetensors file"),
        (b"\x80\x02}q\x00.", "Python's pickle, as PyTorch writes"),
        (b"# a net\nname: 'x'\nlayer {\n", "the text of a prototxt"),
        (b"name: x\nlayers:\n", "the text of a model in YAML"),
        ("caf\u00e9\n".encode(), "text"),
        ("layer".encode("utf-16"), "in UTF-16, not UTF-8"),
        (b"", None),
        (bytes(100), None),
        (b"\xff\x9f", None),
    ],
)  # fmt: skip
def test_what_bytes_are(data, kind):
    assert recognised(data, "picture") == kind


NAMES = "\ufeffcat\ndog\n"
LABELS = '\ufeffitem { name: "a" label: 0 display_name: "cat" }\nitem { name: "b" label: 1 display_name: "dog" }'


@pytest.mark.parametrize("text", [NAMES, LABELS])
def test_a_byte_order_mark_in_names_of_classes(tmp_path, text):
    (tmp_path / "names.txt").write_text(text, encoding="utf-8")
    assert lines_of(str(tmp_path / "names.txt"), 2) == ["cat", "dog"]


def test_a_byte_order_mark_in_a_prototxt_that_bears_another_name_and_in_a_log(tmp_path):
    layer = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }'
    (tmp_path / "net.txt").write_text(f'name: "marked" {layer}', encoding="utf-8-sig")
    assert minicaffe.read(tmp_path / "net.txt").name == "marked"
    line = '{"kind": "event", "iteration": 1, "text": "resumed"}\n'
    (tmp_path / "log.jsonl").write_text(line, encoding="utf-8-sig")
    assert read_lines(tmp_path / "log.jsonl")[0]["text"] == "resumed"
