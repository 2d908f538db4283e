"""Damaged .onnx files are read or refused in one line: nothing else is raised, nothing half is written."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kit
import numpy as np
import pytest

from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.reader.source import read

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from interop.onnx.reader.mutants import image_net, model_of, normal, other_net  # noqa: E402

HERE = Path(__file__).parent


def refusal(path, **more):
    """Why a file is refused; there is no more in its folder then than before."""
    before = sorted(os.listdir(path.parent))
    told = kit.refusal(from_onnx, path, path.parent / "net", **more)
    assert sorted(os.listdir(path.parent)) == before
    assert "\n" not in told
    return told


def saved(model, path):
    """The model in a file."""
    path.write_bytes(model.SerializeToString())
    return path


def of_graph(graph, opset=17, **more):
    """A model that is not checked; it knows the domain `own`."""
    imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("own", 1)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=8, **more)


def test_damaged_files_are_read_or_refused(request, tmp_path):
    """In processes of their own, whose memory is limited."""
    count = 5000 if request.config.getoption("--long") else 20
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = [sys.executable, str(HERE / "mutants.py"), str(tmp_path), "0", str(count)]
    ran = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=3000)
    assert ran.returncode == 0, (ran.stderr[-2000:], (tmp_path / "seed").read_text())
    result = json.loads(ran.stdout.splitlines()[-1])
    assert not result["faults"]
    assert sum(result["counts"].values()) == count
    assert min(result["counts"][kind] for kind in ("read", "refused")) > count // 20


@pytest.mark.parametrize("model", [image_net, other_net])
def test_a_file_cut_off_anywhere(model, tmp_path):
    data, path = model().SerializeToString(), tmp_path / "it.onnx"
    for end in range(0, len(data) - 1, len(data) // 37):
        path.write_bytes(data[:end])
        refusal(path)


def external(tmp_path, **entries):
    """A model whose weight lies in another file, as `entries` say, and the folder of the model."""
    folder = tmp_path / "folder"
    folder.mkdir()
    node = onnx.helper.make_node("Gemm", ["x", "w"], ["y"], name="fc")
    model = model_of([node], {"x": (1, 3)}, ["y"], {"w": normal(3, 2)})
    tensor = model.graph.initializer[0]
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    for key, value in ({"location": "w.bin"} | entries).items():
        tensor.external_data.add(key=key, value=str(value))
    (folder / "w.bin").write_bytes(data)
    (tmp_path / "outside.bin").write_bytes(data)
    return saved(model, folder / "it.onnx")


@pytest.mark.parametrize("entries", [{"offset": 0, "length": 24}, {"location": "deep/w.bin"}])
def test_numbers_in_a_file_beside_or_below(entries, tmp_path):
    path = external(tmp_path, **entries)
    (path.parent / "deep").mkdir()
    shutil.copy(path.parent / "w.bin", path.parent / "deep/w.bin")
    (array,) = from_onnx(path, path.parent / "net").arrays.values()
    np.testing.assert_array_equal(array, normal(3, 2).T)


PLACES = [
    ({"location": "../outside.bin"}, "outside the model's folder"),
    ({"location": "deep/../../outside.bin"}, "outside the model's folder"),
    ({"location": "/etc/hostname"}, "outside the model's folder"),
    ({"location": "link.bin"}, "outside the model's folder"),
    ({"location": "linked/outside.bin"}, "outside the model's folder"),
    ({"location": ""}, "outside the model's folder"),
    ({"location": "w\0.bin"}, "which is no place"),
    ({"location": "loop"}, "which is no place"),
    ({"location": "missing.bin"}, "which is not there"),
    ({"location": "."}, "folder"),
    ({"location": "pipe"}, "pipe"),
    ({"location": "x" * 5000}, "x"),
    ({"offset": 1}, "ends before its 24 bytes at 1"),
    ({"offset": 2**62}, "ends before"),
    ({"offset": 10**30}, "ends before"),
    ({"offset": -8}, "expected 24 bytes"),
    ({"length": 20}, "expected 24 bytes, got a length of 20"),
    ({"length": 10**30}, "expected 24 bytes"),
    ({"length": -5}, "expected 24 bytes"),
    ({"offset": "one"}, "is no number"),
    ({"length": "9" * 5000}, "is no number"),
]


@pytest.mark.parametrize(("entries", "reason"), PLACES, ids=lambda value: str(value)[:40])
def test_places_that_are_not_read(entries, reason, tmp_path):
    path = external(tmp_path, **entries)
    (path.parent / "link.bin").symlink_to(tmp_path / "outside.bin")
    (path.parent / "linked").symlink_to(tmp_path)
    (path.parent / "loop").symlink_to(path.parent / "loop")
    os.mkfifo(path.parent / "pipe")
    assert reason in refusal(path)


def test_a_model_that_is_a_pipe_a_folder_or_nothing(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "empty.onnx").touch()
    for name in ("pipe", "folder", "empty", "missing"):
        assert f"{name}.onnx: " in refusal(tmp_path / f"{name}.onnx")


LARGE = 10**12
HUGE = {
    "ConstantOfShape": (["s"], {"s": np.array([LARGE])}),
    "Expand": (["one", "s"], {"one": np.float32([1]), "s": np.array([LARGE])}),
    "Expand of x": (["x", "s"], {"s": np.array([LARGE, 3])}),
    "Tile": (["one", "s"], {"one": np.float32([1]), "s": np.array([LARGE])}),
    "Tile of x": (["x", "s"], {"s": np.array([LARGE, 1])}),
    "Range": (["a", "b", "c"], {"a": np.int64(0), "b": np.int64(LARGE), "c": np.int64(1)}),
    "Range by 0": (["a", "b", "c"], {"a": np.int64(0), "b": np.int64(9), "c": np.int64(0)}),
    "Pad": (["x", "s"], {"s": np.array([0, 0, 0, LARGE])}),
    "Pad of one": (["one", "s"], {"one": np.float32([1]), "s": np.array([0, LARGE])}),
    "Resize": (["x", "", "", "s"], {"s": np.array([1, LARGE])}),
    "OneHot": (["i", "s", "v"], {"i": np.array([1]), "s": np.array(LARGE), "v": np.float32([0, 1])}),
}  # fmt: skip


@pytest.mark.parametrize("case", HUGE)
def test_sizes_are_checked_before_memory_is_taken(case, tmp_path):
    inputs, arrays = HUGE[case]
    nodes = [onnx.helper.make_node(case.split()[0], inputs, ["big"], name="huge")]
    nodes.append(onnx.helper.make_node("Cast", ["big"], ["y"], to=1))
    infos = [onnx.helper.make_tensor_value_info("x", 1, (1, 3))]
    initializers = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()]
    result = onnx.helper.make_tensor_value_info("y", 1, ["n"])
    graph = onnx.helper.make_graph(nodes, "huge", infos, [result], initializers)
    text = refusal(saved(of_graph(graph), tmp_path / "it.onnx"))
    assert re.search(r"node 'huge' \(\w+\): .*(larger|constants|no shapes)", text), text


def test_an_array_that_promises_more_than_it_holds(tmp_path):
    model = image_net()
    (tensor,) = (one for one in model.graph.initializer if one.name == "fc.weight")
    tensor.dims[0] = 2**33
    path = tmp_path / "it.onnx"
    told = refusal(saved(model, path))  # by onnx, or where an older one lets it pass by us
    assert "too small for the declared shape" in told or "larger than 2 GiB" in told
    tensor.data_location = tensor.EXTERNAL
    tensor.external_data.add(key="location", value="it.onnx")
    assert "of shape [8589934592, 36] is larger than 2 GiB" in refusal(saved(model, path))


def of_functions(count, calls=2, itself=False):
    """A model whose functions call the one before so often, the first of them Relu, or the last."""
    helper, functions, imports = onnx.helper, [], of_graph(onnx.GraphProto()).opset_import
    for i in range(count):
        kind, domain = (f"f{i - 1}", "own") if i else ("Relu", "")
        kind, domain = (f"f{count - 1}", "own") if itself else (kind, domain)
        names = [f"t{j}" for j in range(calls + 1)]
        pairs = itertools.pairwise(names)
        nodes = [helper.make_node(kind, [one], [two], domain=domain) for one, two in pairs]
        made = helper.make_function("own", f"f{i}", names[:1], names[-1:], nodes, imports)
        functions.append(made)
    graph = helper.make_graph(
        [helper.make_node(f"f{count - 1}", ["x"], ["y"], domain="own")],
        "functions",
        [helper.make_tensor_value_info("x", 1, (1, 3))],
        [helper.make_tensor_value_info("y", 1, (1, 3))],
    )
    return of_graph(graph, functions=functions)


def test_functions_are_put_in_the_place_of_their_calls(tmp_path):
    layers = from_onnx(saved(of_functions(3), tmp_path / "it.onnx"), tmp_path / "net").spec.layers
    assert [layer.type for layer in layers] == ["Input", *["ReLU"] * 8]


@pytest.mark.parametrize("model", [(40, 2), (5000, 1), (1, 1, True)])
def test_functions_without_end(model, tmp_path):
    """Refused before they are written out: 2^40 nodes, 5000 deep, and one that calls itself."""
    reason = refusal(saved(of_functions(*model), tmp_path / "it.onnx"))
    assert "holds more nodes than 100000, or functions within functions without end" in reason


def test_importing_a_model_with_functions_needs_no_other_import(tmp_path):
    """In a process that has not imported onnx.inliner."""
    path = saved(of_functions(1), tmp_path / "it.onnx")
    program = f"from minicaffe.interop.onnx.reader import from_onnx; from_onnx({str(path)!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=600)


def of_nodes(*nodes, shape=(2, 3), kind=1, opset=17, **arrays):
    """A model of nodes of x, unchecked; the domain `own` is known."""
    helper = onnx.helper
    graph = helper.make_graph(
        nodes,
        "nodes",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", 1, (2, 3))],
        [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )
    return of_graph(graph, opset)


def nodes_of(text):
    """Nodes as onnx.parser reads them."""
    return onnx.parser.parse_graph(f"g (float x) => (float y) {{ {text} }}").node


NODE, F = onnx.helper.make_node, np.float32
TWO = onnx.helper.make_tensor("two", 1, [1], [2.0])
SPARSE = onnx.helper.make_sparse_tensor(TWO, onnx.helper.make_tensor("at", 7, [1], [1]), [3])
OPTIONAL = NODE("Optional", ["x"], ["o"], type=onnx.helper.make_tensor_type_proto(1, [2]))
IMAGE = {"shape": (1, 4, 5, 5)}
BATCHES = "BatchNormalization(x, s, s, s, s)"
SEVERAL = ", ".join(f"p{i}" for i in range(1024))
OWN = "it is of the domain 'own', of which nothing is read; nothing"
SIZE = "a node NonZero of 'n': its size depends on the numbers, a blob's does not; nothing"
TAKEN = [  # by onnx's checker: nodes, what of_nodes is given too, and why they are refused
    ("y = own.Relu(x)", {}, f"a node Relu of 'y': {OWN}"),
    ("s = own.Shape(x) c = ConstantOfShape(s) y = Add(x, c)", {}, OWN),
    ([OPTIONAL, NODE("OptionalGetElement", ["o"], ["y"])], {}, "a node Optional of 'o': a blob is a tensor; nothing"),
    ([NODE("Constant", [], ["c"], sparse_value=SPARSE), NODE("Add", ["x", "c"], ["y"])], {}, "a node Constant of 'c': "),
    ("r = Reshape(x, s) y = Relu(r)", {"s": [4, 5]}, "a blob of shape (2, 3) cannot have the shape (4, 5); nothing"),
    ('u = Unsqueeze(x, s) y = MaxPool <kernel_shape = [2, 2], auto_pad = "SAME"> (u)', {"s": [0, 1]},
     "its auto_pad is 'SAME', which ONNX does not have; nothing"),
    ([NODE("Reshape", ["x", "s"], ["y"], name="it")], {"s": [-1, -1]}, "node 'it' (Reshape): onnx finds no shapes for it: "),
    ("y = Div(x, z)", {"z": F([1, 0, 2])}, "a node Div of 'y': it divides by 0; nothing"),
    ("y = Gather <axis = 2> (x, i)", {"shape": (1, 2, 99), "i": np.arange(99)[::-1]},
     "it puts axis 2 into another order, which would take 99 parts; nothing"),
    ("y = DepthToSpace <blocksize = 2> (x)", {"shape": (1, 8192, 1, 1)},
     "it needs numbers of shape (8192, 2048, 2, 2), more than any layer holds; nothing"),
    ("y = Concat <axis = 0> (x, , x)", {}, "a node Concat of 'y': an input is missing; nothing"),
    ("y = LRN <size = 4> (x)", IMAGE, "its window of 4 channels is even; Caffe's is odd; nothing"),
    (f"y = {BATCHES}", {"opset": 9, "s": F([1, 2])}, "numbers of shape (2,) are not one a channel of (2, 3); nothing"),
    (f"y, m, v, a, b = {BATCHES}", {"opset": 9, "s": F([1, 2, 3])},
     "a node BatchNormalization of 'y': it is in training mode: export the model as it infers"),
    ("y = Resize(x, , s)", {"shape": (1, 4, 5), "s": F([1, 1, 2])},
     "from (1, 4, 5) to (1, 4, 10) it resizes other axes than an image's two; nothing"),
    ("y = Resize(x, , , s)", {"shape": (1, 1, 5000, 1), "s": np.array([1, 1, 5001, 1])},
     "from 5000 to 5001 its matrix would be too large; nothing"),
    ('y = Resize <coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, roi, s)',
     {**IMAGE, "opset": 11, "s": F([1, 1, 2, 2]), "roi": F([])},
     "its rule of coordinates 'tf_half_pixel_for_nn' is not read; nothing"),
    ('y = Resize <mode = "area"> (x, , s)', {**IMAGE, "s": F([1, 1, 2, 2])}, "its mode 'area' is not read; nothing"),
    ("z = ArgMax(x) y = Cast <to = 1> (z)", {"shape": ()}, "a node ArgMax of 'z': a number alone has no largest entry; nothing"),
    (f"{SEVERAL}, e = Split <axis = 0> (x, s) y = Relu(e)", {"shape": (1024, 2), "s": [1] * 1024 + [0]},
     "a node Split of 'p0': one of its 1025 parts is empty, and no blob of a net is; nothing"),
    ("b = Cast <to = 9> (x) y = Cast <to = 1> (b)", {"kind": 7},
     "from int64 to bool it changes numbers; blobs are floating point; nothing"),
    ("y = MaxPool <strides = [2, 1], kernel_shape = [5, 1], pads = [1, 0, 4, 0]> (x)", {"shape": (1, 2, 4, 4)},
     "its pads [1, 0, 4, 0] are too large for a Pooling by [5, 1], or differ; nothing"),
    ("n = NonZero(x) s = Shape(n) f = Cast <to = 1> (s) y = Add(f, x)", {}, SIZE),
    ("n = NonZero(x) s = Squeeze(n) c = Concat <axis = 0> (x, x) g = Gather(c, s) y = Unsqueeze(g, at)", {"at": [0]},
     SIZE),  # what ends as a detector
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "more", "reason"), TAKEN, ids=[why[:40] for *_, why in TAKEN])
def test_what_the_checker_takes(nodes, more, reason, tmp_path):
    """Refused in a line, each node once."""
    nodes = nodes_of(nodes) if isinstance(nodes, str) else nodes
    path = saved(of_nodes(*nodes, **more), tmp_path / "it.onnx")
    assert reason in kit.refusal(from_onnx, path)  # before onnxruntime is asked
    assert "other nodes are refused" not in refusal(path)


def unfit():
    """Models whose numbers show, when the net is made or has run, that it is none; and why."""
    node = onnx.helper.make_node
    conv = [node("Conv", ["x", "w", "b"], ["c"]), node("Mul", ["c", "two"], ["y"])]
    bias = of_nodes(
        *conv, shape=(1, 2, 3), w=normal(2, 2, 1), b=normal(3), two=np.float32([[2], [3]])
    )
    group = node("GroupNormalization", ["x", "s", "s"], ["y"], num_groups=2)
    negative = [node("Abs", ["x"], ["a"]), node("Neg", ["a"], ["n"]), node("Sqrt", ["n"], ["y"])]
    fits = "it.onnx: net.caffemodel: does not fit net 'nodes': "
    return [
        (bias, False, f"{fits}c__1 (file (3,), net (2,)); nothing was written"),
        (bias, True, f"{fits}c__1 (file (3,), net (2,)); nothing was written"),
        (of_nodes(group, shape=(1, 6, 2), opset=21, s=normal(3)), False, f"{fits}y__0, y__1 (file (9,), net (6,))"),
        (of_nodes(*negative), False, "it.onnx: output 'y' holds no finite number, of random input"),
    ]  # fmt: skip


@pytest.mark.parametrize(("model", "folded", "reason"), unfit())
def test_numbers_that_fit_no_net(model, folded, reason, tmp_path):
    """Refused by the name of the model, not of a trial's file."""
    assert reason in refusal(saved(model, tmp_path / "it.onnx"), folded=folded)


def unread():
    """Files that hold what is not read, and why."""
    node, helper = onnx.helper.make_node, onnx.helper
    relu = node("Relu", ["x"], ["y"], name="plain")
    sparse = of_nodes(node("Add", ["x", "two"], ["y"]))
    two, at = helper.make_tensor("two", 1, [1], [2.0]), helper.make_tensor("at", 7, [1], [1])
    sparse.graph.sparse_initializer.append(helper.make_sparse_tensor(two, at, [3]))
    deep = of_nodes(relu, c=[1.0])
    deep.graph.initializer[0].dims[:] = [1] * 33
    return {
        "a sparse array": (sparse, "it.onnx: array 'two' is sparse, which is not read"),
        "complex numbers": (
            of_nodes(relu, c=np.complex64([1j])),
            "array 'c': holds complex numbers, which no blob does",
        ),
        "33 axes": (deep, "it.onnx: array 'c': has no shape that is one: [1, 1, "),
        "an opset of old": (
            of_nodes(relu, opset=8),
            "it.onnx: opset 8: expected 9 to 21 (torch.onnx.export takes opset_version=17)",
        ),
        "an opset to come": (of_nodes(relu, opset=22), "it.onnx: opset 22: expected 9 to 21"),
        "an input of any shape": (of_nodes(relu, shape=None), "give it by --shape x=1x3x224x224"),
        "an input of text": (of_nodes(relu, kind=8), "input 'x': is of no type that a blob holds"),
        "of no type": (of_nodes(relu, kind=0), "input 'x': is of no type that a blob holds"),
        "a name of bytes": (
            of_nodes(relu).SerializeToString().replace(b"plain", b"pl\xff\xfen"),
            r"it.onnx: is not a whole .onnx file: b'pl\xff\xfen' is no text",
        ),
    }


@pytest.mark.parametrize("case", unread())
def test_what_a_file_holds_that_is_not_read(case, tmp_path):
    model, reason = unread()[case]
    data = model if isinstance(model, bytes) else model.SerializeToString()
    (tmp_path / "it.onnx").write_bytes(data)
    assert reason in refusal(tmp_path / "it.onnx")


def test_a_file_that_protocol_buffers_do_not_read(tmp_path):
    with open(tmp_path / "it.onnx", "wb") as stream:
        stream.truncate(2**31 + 1)  # a hole, not on the disk
    assert "is larger than 2 GiB" in refusal(tmp_path / "it.onnx")


def test_an_input_at_the_end_that_is_left_out(tmp_path):
    """Of an empty name, which ONNX allows: onnxruntime crashes on this one."""
    norm = onnx.helper.make_node("LayerNormalization", ["x", "s", ""], ["y"])
    path = saved(of_nodes(norm, s=normal(3)), tmp_path / "it.onnx")
    assert [list(node.input) for node in read(path).nodes] == [["x", "s"]]
    assert from_onnx(path, tmp_path / "net").spec.layers[1].type == "LayerNorm"
