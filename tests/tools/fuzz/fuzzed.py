"""What is fuzzed: every reader of files, as whole files to begin with, words, and a function of a file's bytes.

A file is read, or refused by a MinicaffeError of one line; anything else is a find. harness.py has a fuzzer
guided by coverage write the bytes; test_fuzzed.py reads the whole files, and what was found.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import test_fuzz
import test_fuzz_files
import test_fuzz_sets
from caffe_nets import resolved
from interop.caffe import test_fuzz_text
from test_fuzz_files import EXAMPLES, FIXTURES

from minicaffe import Net, parse, read
from minicaffe.core.config import tree
from minicaffe.core.config.model import model
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.core.ops.conv import autotune_cache
from minicaffe.errors import MinicaffeError
from minicaffe.interop.caffe import model as prototxt_model
from minicaffe.interop.caffe.label_map import is_label_map, names_in
from minicaffe.interop.caffe.prototxt import prototxt
from minicaffe.interop.onnx.reader.onnx import from_onnx
from minicaffe.tools.data import readers
from minicaffe.tools.training import folder as runs

onnx = pytest.importorskip("onnx")
compile_cache = pytest.importorskip("minicaffe.backends.cpu.compile_cache")

NET = {
    "layers": [
        {"name": "x", "type": "Input", "shape": {"dim": [1, 3]}},
        {"name": "ip", "type": "InnerProduct", "bottom": "x", "num_output": 2},
    ]
}
RUN = {"name": "a", "command": ["minicaffe", "train"], "model": "a.yaml", "snapshot_prefix": "a"}
RUN |= {"started": "2026-01-01 00:00", "state": "finished", "cwd": "/", "iteration": 2}
RUN |= {"imports": [], "tests_on": []}
LOG = [
    {"kind": "train", "iteration": 1, "loss": 0.5, "outputs": {"loss": [0.5, [1]]}, "lr": 0.1},
    {"kind": "test", "iteration": 2, "outputs": {"accuracy": 1}, "seconds": 3},
    {"kind": "snapshot", "iteration": 2, "path": "a.npz", "best": True},
    {"kind": "event", "iteration": 2, "text": "done"},
]
FINDING = {"ms": {"b": 1.5}, "error": {"b": 0.1}, "date": "2026-01-01", "busy": False}
WAYS = ("forward", "input_gradient", "weight_gradient")
PLANS = {"plans": {"a": dict.fromkeys(WAYS, FINDING)}}


@dataclass(frozen=True)
class Reader:
    """Whole files, and what reads the bytes of one."""

    seeds: list[bytes]
    use: Callable[[bytes], object]


def in_file(name: str, seeds: Callable[[], Sequence[bytes]], read: Callable[[Path], object]):
    """A reader of a file of such a name."""

    def made(folder: Path) -> Reader:
        path = folder / name

        def use(data: bytes) -> None:
            path.write_bytes(data)
            read(path)

        return Reader(list(seeds()), use)

    return made


def in_text(seeds: Callable[[], Sequence[str]], read: Callable[[str], object]):
    """A reader of a text."""
    return lambda folder: Reader(
        [text.encode() for text in seeds()], lambda data: read(data.decode("utf-8", "replace"))
    )


def of_kind(kind: str):
    """A reader of the weights, states and databases that test_fuzz_files spoils."""
    return lambda folder: Reader(
        test_fuzz_files.seeds(kind, folder), functools.partial(test_fuzz_files.use, kind, folder)
    )


def of_set(kind: str, name: str):
    """A reader of a data set, one of whose files is another one."""

    def made(folder: Path) -> Reader:
        whole = test_fuzz_sets.files(kind)
        for each, content in whole.items():
            (folder / each).parent.mkdir(exist_ok=True, parents=True)
            (folder / each).write_bytes(content)
        return Reader([whole[name]], lambda data: test_fuzz_sets.use(kind, folder, name, data))

    return made


def shapes(path: Path) -> None:
    """A model file, and the shapes of its nets."""
    spec = read(path)
    for phase in ("TRAIN", "TEST"):
        Net(spec, phase, device="cpu", shapes_only=True)


def prototxts() -> list[bytes]:
    """Nets of every layer and old nets."""
    return [text.encode() for text in test_fuzz_text.texts().values()]


def there_and_back(path: Path) -> None:
    """A prototxt, as YAML and as prototxt again, which mean the same."""
    found = prototxt_model.read_text(path, REGISTRY)
    spec = model(found.root, REGISTRY, path)
    in_yaml = tree.parse(yaml_text(spec, REGISTRY, found.comments))
    again = prototxt_model.text_of(prototxt(spec, REGISTRY, found.comments), "out", REGISTRY).root
    for root in (in_yaml, again):
        assert resolved(model(root, REGISTRY)) == resolved(spec)


def settings(text: str) -> None:
    """A model with settings, a line each, as the command line's --set gives them."""
    Net(read(NET, *text.split("\n")), device="cpu", shapes_only=True)


def label_map(text: str) -> None:
    """SSD's names of classes."""
    is_label_map(text)
    names_in(text, "map")


def hdf5_list(path: Path) -> None:
    """A list of HDF5 files, all of which are read."""
    keys = f"top: [data, label], source: {path}, batch_size: 9"
    Net(parse(f"layers: [{{name: d, type: HDF5Data, {keys}}}]"), device="cpu").forward()


def image_list(path: Path) -> None:
    """A list of pictures and labels, all of which are read."""
    found = readers.open(str(path), "train")
    for i in range(len(found)):
        found[i]


def graphs() -> list[bytes]:
    """Models of ONNX."""
    rng, helper = np.random.default_rng(0), onnx.helper
    node = helper.make_node
    tensors = [
        onnx.numpy_helper.from_array(rng.normal(size=shape).astype("f"), name)
        for name, shape in {"w": (2, 3, 3, 3), "b": (2,), "v": (4, 8), "c": (4,)}.items()
    ]
    nodes = [
        node("Conv", ["x", "w", "b"], ["1"], kernel_shape=[3, 3]),
        node("Relu", ["1"], ["2"]),
        node("MaxPool", ["2"], ["3"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["3"], ["4"]),
        node("Gemm", ["4", "v", "c"], ["5"], transB=1),
        node("Softmax", ["5"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    ends = (
        [value("x", onnx.TensorProto.FLOAT, [1, 3, 6, 6])],
        [value("y", onnx.TensorProto.FLOAT, [1, 4])],
    )
    graph = helper.make_graph(nodes, "g", *ends, tensors)
    return [
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString()
    ]


def run_folder(name: str):
    """A reader of a run's folder, one of whose files is another one."""

    def made(folder: Path) -> Reader:
        log = "\n".join(map(json.dumps, LOG)) + "\n"
        whole = {"run.json": json.dumps(RUN).encode(), "log.jsonl": log.encode()}
        for each, content in whole.items():
            (folder / each).write_bytes(content)

        def use(data: bytes) -> None:
            (folder / name).write_bytes(data)
            record = runs.read(folder)
            for kind in ("train", "test", "snapshot", "event"):
                record.of(kind)
            with contextlib.suppress(FileNotFoundError):
                assert record.state and record.newest != record.folder

        return Reader([whole[name]], use)

    return made


def plans(path: Path) -> None:
    """Plans that the autotuner kept: whatever is in there, what is valid is taken."""
    for directions in autotune_cache._read(path).values():
        for finding in directions.values():
            assert all(ms >= 0 for ms in finding.ms.values())


def compiled(path: Path) -> None:
    """Loops that were compiled: nothing is unpickled whose digest is not that of loop and code."""
    key = b"key"
    try:
        code = compile_cache._read(path, key)
    except ValueError as error:
        raise MinicaffeError(str(error)) from error
    assert path.read_bytes() == compile_cache.digest(key, code) + code


def kept() -> list[bytes]:
    return [compile_cache.digest(b"key", b"code") + b"code"]


READERS: dict[str, Callable[[Path], Reader]] = {
    "yaml": in_file("x.yaml", lambda: [t.encode() for t in test_fuzz.texts().values()], shapes),
    "prototxt": in_file("x.prototxt", prototxts, there_and_back),
    "set": in_text(lambda: ["layers.ip.num_output=5\nforce_backward=true", "name=a"], settings),
    "label_map": in_text(lambda: ['item { name: "a" label: 1 display_name: "b" }'], label_map),
    "image_list": in_file(
        "x.txt",
        lambda: ["".join(f"{EXAMPLES}/{i}.png {i}\n" for i in range(5)).encode()],
        image_list,
    ),
    "hdf5_list": in_file(
        "x.txt", lambda: [f"{FIXTURES}/f0.h5\n{FIXTURES}/f1.h5\n".encode()], hdf5_list
    ),
    "onnx": in_file("x.onnx", graphs, from_onnx),
    "log": run_folder("log.jsonl"),
    "run": run_folder("run.json"),
    "plans": in_file("x.json", lambda: [json.dumps(PLANS).encode()], plans),
    "compiled": in_file("x.loop", kept, compiled),
    **{kind: of_kind(kind) for kind in test_fuzz_files.KINDS if kind != "entry.npz"},
    "idx": of_set("idx", "train-images-idx3-ubyte"),
    "idx.gz": of_set("idx", "t10k-images-idx3-ubyte.gz"),
    "cifar10": of_set("cifar10", "data_batch_1.bin"),
    "tar.gz": of_set("tar.gz", "x.tar.gz"),
    "arrays.npz": of_set("npz", "b.npz"),
    "png": of_set("pictures", "a/0.png"),
    "jpeg": of_set("pictures", "a/0.jpeg"),
}


def words(name: str) -> list[bytes]:
    """A dictionary for a reader: words of its format that chance would not find."""
    if name not in {"yaml", "prototxt", "set", "label_map", "log", "run", "plans"}:
        return [
            number.to_bytes(width, "little") for width in (4, 8) for number in (1, 2**31 - 1, 2**31)
        ]
    found = [word for word in test_fuzz.NASTY if len(word) < 60]
    if name == "prototxt":
        found += test_fuzz_text.SAID.split()
    return [word.encode("utf-8", "surrogatepass") for word in dict.fromkeys(found)]
