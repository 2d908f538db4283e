"""Caffe's binary files of weights, states and blobs: read as Caffe wrote them, written as Caffe reads them."""

import subprocess
import sys
from pathlib import Path

import caffe_cases as cases
import kit
import numpy as np
import pytest
from kit import layer_text, refusal

from minicaffe import CheckpointError, Net, parse
from minicaffe.interop.caffe import state, weights
from minicaffe.interop.caffe.convert_weights import convert_weights, read_blob, write_blob
from minicaffe.storage import wire

LENET = cases.SHARED / "lenet"
NET = """
name: small
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: ip1, type: InnerProduct, num_output: 4}
  - {name: ip2, type: InnerProduct, num_output: 2, bias_term: false}
"""


@pytest.fixture
def net():
    return Net(parse(NET), device="cpu")


def equal(mine, theirs):
    assert list(mine) == list(theirs)
    for name, arrays in mine.items():
        assert len(arrays) == len(theirs[name])
        for a, b in zip(arrays, theirs[name], strict=True):
            assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


# Caffe's own files


def files(kind):
    """(case, what it holds under `kind`_iterN, N) of the solvers that were run in Caffe."""
    for name in cases.names("Solver"):
        case = cases.load(name)
        for key, value in case.items():
            if key.startswith(f"{kind}_iter") and value.ndim == 1:
                yield name, case, value.tobytes(), int(key.removeprefix(f"{kind}_iter"))


def test_caffes_states_are_read_and_written_bit_for_bit(tmp_path):
    count, file = 0, tmp_path / "s.solverstate"
    for name, case, data, iteration in files("solverstate"):
        file.write_bytes(data)
        found = state.read(file)
        assert found.iteration == iteration
        assert found.current_step == int(case[f"solverstate_iter{iteration}_current_step"])
        for i, array in enumerate(found.history):
            assert array.tobytes() == case[f"history_iter{iteration}_{i}"].tobytes()
        assert len(found.history) == int(case[f"solverstate_iter{iteration}_num_history"])
        state.write(file, found)
        assert file.read_bytes() == data, name  # what Caffe itself wrote
        count += 1
    assert count > 15


def test_caffes_lenet_is_read_bit_for_bit(tmp_path):
    if not LENET.exists():
        pytest.skip("lenet_iter_10000 of the reference numbers is not here")
    wanted = np.load(LENET / "lenet_iter_10000.npz")
    found = weights.read(LENET / "lenet_iter_10000.caffemodel")
    named = {f"{name}__{i}": a for name, arrays in found.items() for i, a in enumerate(arrays)}
    equal({n: [a] for n, a in named.items()}, {n: [wanted[n]] for n in wanted.files})
    given = state.read(LENET / "lenet_iter_10000.solverstate")
    assert given.learned_net == "r1/lenet_iter_10000.caffemodel"
    near = state.weights_file(LENET / "x.solverstate", given.learned_net)
    assert near == LENET / "lenet_iter_10000.caffemodel"
    state.write(tmp_path / "s.solverstate", given)
    written = (tmp_path / "s.solverstate").read_bytes()
    assert written == (LENET / "lenet_iter_10000.solverstate").read_bytes()


def test_caffes_binaryproto_is_read(tmp_path):
    found = read_blob(cases.FIXTURES / "infogain_H.binaryproto")
    assert found.dtype == np.float32 and found.size > 1
    write_blob(tmp_path / "H.binaryproto", found)
    assert read_blob(tmp_path / "H.binaryproto").tobytes() == found.tobytes()


def test_an_array_without_axes_is_written_without_a_shape():
    """As Caffe's Blob::ToProto does; OpenCV 4 does not read an empty one (a PReLU's shared slope)."""
    data = b"".join(map(bytes, wire.blob_parts(np.array(0.25, np.float32))))
    assert data == b"\x2a\x04" + np.float32(0.25).tobytes()
    found = wire.parse_blob(memoryview(data)).array()
    assert found.shape == () and found == np.float32(0.25)


# older generations, and other ways to write the same


def field(number, *parts):
    return b"".join(bytes(part) for part in wire.put(number, list(parts)))


def unpacked(number, array):
    tag = wire.number_bytes(number << 3 | {4: 5, 8: 1}[array.itemsize])
    return b"".join(tag + array[i].tobytes() for i in range(len(array)))


def legacy(array, doubles=False, packed=True):
    """A blob as Caffe wrote it until 2014, with num, channels, height, width."""
    shape = (1,) * (4 - array.ndim) + array.shape
    sizes = b"".join(wire.put_integer(1 + i, n) for i, n in enumerate(shape))
    number, flat = (8, array.astype("<f8")) if doubles else (5, array.astype("<f4"))
    flat = flat.ravel()
    return sizes + (field(number, flat.tobytes()) if packed else unpacked(number, flat))


WEIGHT, BIAS = np.arange(12, dtype=np.float32).reshape(4, 3) + 0.5, np.arange(4, dtype=np.float32)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("doubles", [True, False])
@pytest.mark.parametrize("generation", ["V0", "V1", "V2"])
def test_every_generation_is_read(net, tmp_path, generation, doubles, packed):
    blobs = [legacy(array, doubles, packed) for array in (WEIGHT, BIAS)]
    if generation == "V2":
        layer = field(1, b"ip1") + field(2, b"InnerProduct") + b"".join(field(7, b) for b in blobs)
        data = field(100, layer)
    elif generation == "V1":
        layer = wire.put_integer(5, 14) + field(4, b"ip1") + b"".join(field(6, b) for b in blobs)
        data = field(2, field(2, b"x"), layer)
    else:
        inner = field(1, b"ip1") + field(2, b"innerproduct") + b"".join(field(50, b) for b in blobs)
        data = field(2, field(1, inner), field(2, b"x"), field(3, b"ip1"))
    file = tmp_path / "old.caffemodel"
    file.write_bytes(field(1, b"old net") + data)
    first, second = weights.read(file)["ip1"]
    assert (first.shape, second.shape) == ((1, 1, 4, 3), (1, 1, 1, 4))
    assert first.dtype == (np.float64 if doubles else np.float32)
    report = net.load(file)
    assert (report.loaded, report.missing) == (["ip1__0", "ip1__1"], ["ip2__0"])
    np.testing.assert_array_equal(net.params["ip1"][0].data, WEIGHT)
    np.testing.assert_array_equal(net.params["ip1"][1].data, BIAS)


def test_layers_of_v1_make_those_of_v2_be_forgotten(tmp_path):
    """As Caffe upgrades a net that has both."""
    data = field(100, field(1, b"new"), field(7, legacy(BIAS)))
    data += field(2, field(4, b"old"), field(6, legacy(BIAS)))
    (tmp_path / "w.caffemodel").write_bytes(data)
    assert list(weights.read(tmp_path / "w.caffemodel")) == ["old"]


@pytest.mark.parametrize("ending", [".caffemodel", ".caffemodel.h5"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_net_is_saved_and_loaded_as_it_was(tmp_path, ending, dtype):
    if ending.endswith("h5"):
        pytest.importorskip("h5py")
    mine, other = (Net(parse(NET), device="cpu", dtype=dtype, seed=seed) for seed in (1, 2))
    mine.save(tmp_path / f"w{ending}")
    assert str(other.load(tmp_path / f"w{ending}")) == "3 loaded"
    for name, array in mine.weights().items():
        assert other.weights()[name].tobytes() == array.tobytes()
    assert {a.dtype for b in weights.read(tmp_path / f"w{ending}").values() for a in b} == {
        np.dtype(dtype)
    }


@pytest.mark.parametrize("ending", [".solverstate", ".solverstate.h5"])
def test_a_state_is_written_and_read_as_it_was(tmp_path, ending):
    if ending.endswith("h5"):
        pytest.importorskip("h5py")
    random = np.random.default_rng(1)
    shapes = {"a__0": (2, 3), "a__1": (), "b__0": (4,)}
    history = [random.random(s, np.float32) for _ in range(2) for s in shapes.values()]
    given = state.SolverState(12, "x/y_iter_12.caffemodel", 3, history)
    file, weights_file = tmp_path / f"s{ending}", tmp_path / "y_iter_12.caffemodel"
    state.write(file, given)
    found = state.read(file)
    assert (found.iteration, found.learned_net, found.current_step) == (12, given.learned_net, 3)
    weights_file.write_bytes(b"")
    iteration, path, arrays = state.restore(file, shapes, 2)
    assert (iteration, path) == (12, weights_file)
    equal({"history": arrays}, {"history": history})
    for wrong, count, told in (
        (shapes, 1, "holds 6 arrays of history; this net and type of solver have 3"),
        ({**shapes, "a__0": (3, 2)}, 2, "history 0 has shape (2, 3), a__0"),
    ):
        assert told in refusal(state.restore, file, wrong, count, error=CheckpointError)


def test_conversion_there_and_back_is_the_identity(net, here):
    pytest.importorskip("h5py")
    net.save("a.npz")
    assert convert_weights("a.npz", "a.caffemodel") == "a.npz -> a.caffemodel: 3 arrays of 2 layers"
    convert_weights("a.caffemodel", "a.h5")
    convert_weights("a.h5", "b.npz")
    a, b = kit.arrays("a.npz"), kit.arrays("b.npz")
    del a["@model"]
    equal({n: [a[n]] for n in a}, {n: [b[n]] for n in b})
    mean = np.random.default_rng(1).random((3, 4, 5), np.float32)
    np.save("mean.npy", mean)
    convert_weights("mean.npy", "mean.binaryproto")
    convert_weights("mean.binaryproto", "again.npy")
    np.testing.assert_array_equal(np.load("again.npy"), mean)


@pytest.mark.parametrize(
    ("given", "words", "message"),
    [
        ({}, "a.npz m.npy", "a.npz cannot become m.npy"),
        ({}, "a.npz a.txt", "a.npz cannot become a.txt"),
        ({}, "a.npz c.npz", "a.npz and c.npz are of one format: nothing to convert"),
        ({}, "a.npz c.safetensors --model n.prototxt", "--model goes with .caffemodel and .h5"),
        ({}, "a.npz c.caffemodel --model n.prototxt", "a.npz: does not fit net"),
        ({"ip": np.ones(2)}, "a.npz c.caffemodel", "a.npz: entry 'ip' is no parameter of a layer"),
        ({"ip__1": np.ones(2)}, "a.npz c.h5", "a.npz: layer 'ip' lacks some of its parameters"),
        ({}, "a.npy c.binaryproto", "c.binaryproto: holds numbers, not complex128"),
        ({}, "a.npy c.caffemodel", "a.npy cannot become c.caffemodel"),
    ],
)
def test_what_cannot_be_converted(given, words, message, tmp_path, command, here):
    np.savez("a.npz", **(given or {"ip__0": np.ones((2, 3))}))
    np.save("a.npy", np.ones(3) * 1j)
    ip = layer_text("InnerProduct", "inner_product_param { num_output: 2 }", "ip")
    Path("n.prototxt").write_text(f'input: "x" input_shape {{ dim: 1 dim: 3 }} {ip}')
    assert message in command("convert", *words.split(), code=2)
    assert not list(tmp_path.glob("c.*"))


def test_what_caffe_could_not_read_is_not_written(net, tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "LIMIT", 9)
    told = refusal(net.save, tmp_path / "a.caffemodel", error=CheckpointError)
    assert "bytes; Caffe reads at most 9 (write .h5 or .npz)" in told
    assert not list(tmp_path.iterdir())


def test_hdf5_has_a_layer_with_a_slash_within_another(tmp_path):
    """As Caffe writes it where the outer layer is there already; where it is not, Caffe stops."""
    h5py = pytest.importorskip("h5py")
    path, given = tmp_path / "w.h5", np.arange(6, dtype=np.float32).reshape(2, 3)
    with h5py.File(path, "w") as file:
        for name in ("conv", "conv/bn", "conv/relu", "a/b/c"):
            file.require_group(f"data/{name}")
        for name in ("conv/0", "conv/bn/0", "conv/bn/1", "a/b/c/0"):
            file[f"data/{name}"] = given
    wanted = {"a/b/c": [given], "conv": [given], "conv/bn": [given, given]}
    equal(dict(sorted(weights.read(path).items())), wanted)
    with h5py.File(path, "a") as file:
        file["data/conv/conv"] = file["data/conv"]  # a circle
    with pytest.raises(CheckpointError, match="'/data/conv/conv' holds bn, conv, relu, expected"):
        weights.read(path)
    layers = {name: {0: given + i} for i, name in enumerate(("a/b", "a", "a/b/c", "0"))}
    weights.write(path, [weights.Layer(name, "", blobs) for name, blobs in layers.items()])
    read = weights.read(path)
    assert set(read) == set(layers)
    assert all(np.array_equal(read[name][0], blobs[0]) for name, blobs in layers.items())
    for name in ("a/0", "a//b", "/a", "a/./b", ".", "a/" * 40 + "b"):
        one = [weights.Layer(name, "", {0: given})]
        told = refusal(weights.write, path, one, error=CheckpointError)
        assert "no place for a layer named" in told


# what does not fit


def test_shapes_by_caffes_rule():
    assert weights.same_shape((1, 1, 1, 4), (4,))
    assert weights.same_shape((4, 1), (4,)) and weights.same_shape((4,), (4, 1))
    assert weights.same_shape((1, 4, 1, 1), (4,))  # NVCaffe's BatchNorm
    assert not weights.same_shape((2, 1, 4, 1), (2, 4))
    assert not weights.same_shape((4,), (2, 2)) and not weights.same_shape((4, 1), (1, 4))


def layer(name, *arrays):
    return weights.Layer(name, "InnerProduct", dict(enumerate(arrays)))


@pytest.mark.parametrize(
    "given, told",
    [
        ([layer("ip1", WEIGHT[:3], BIAS)], r"ip1__0 \(file \(3, 3\), net \(4, 3\)\)"),
        ([layer("ip1", WEIGHT)], r"ip1__1 \(file none, net \(4,\)\)"),
        ([layer("ip1", WEIGHT, BIAS, BIAS)], r"ip1__2 \(file \(4,\), net none\)"),
        ([layer("fc8", WEIGHT)], "has nothing that fits"),
        ([layer("ip1", WEIGHT * np.nan, BIAS)], "not finite"),
    ],
)
def test_a_layer_that_both_have_must_be_alike(net, tmp_path, given, told):
    before = net.weights()
    weights.write(tmp_path / "w.caffemodel", given)
    with pytest.raises(CheckpointError, match=told):
        net.load(tmp_path / "w.caffemodel")
    assert all((net.weights()[name] == array).all() for name, array in before.items())


BLOB = field(7, field(1, bytes([4])))


@pytest.mark.parametrize(
    "data, told",
    [
        (b"", "holds no layers"),
        (field(100, field(1, b"a"), field(7, BLOB)), "a blob promises 4, holds 0 numbers"),
        (field(100, field(1, b"a"), field(7, wire.put_integer(1, 2**31))), "has the shape"),
        (field(100, b"")[:-1] + b"\x05ab", "promises 5 bytes, 2 are left"),
        (field(100, field(1, b"a\nb"), field(7, legacy(BIAS))), "expected printable text"),
        (field(100, b"\x0b"), "of kind 3"),
        (b"\xff" * 12, "has no end"),
        (field(100, field(7, field(5, b"abc"))), "expected numbers of float32"),
        (field(100, field(7, field(12, b"ab"))), "raw_data of 2 bytes ends within a number"),
        (field(100, field(7, wire.put_integer(10, 3) + field(12, b"ab"))), "raw_data is of type 3"),
        (field(100, field(7, wire.put_integer(10, 2) + field(12, b"abcd"))), "holds 2 numbers"),
        (field(100, field(7, field(7, field(1, b"\1" * 33)))), "at most 32 integers"),
    ],
)
def test_damage_is_one_line(tmp_path, data, told):
    (tmp_path / "w.caffemodel").write_bytes(data)
    with pytest.raises(CheckpointError, match=told) as caught:
        weights.read(tmp_path / "w.caffemodel")
    assert str(caught.value).isprintable()
    assert str(caught.value).startswith(f"{tmp_path}/w.caffemodel: is not a whole .caffemodel: ")


@pytest.mark.parametrize(("number", "kind"), [(0, "<f8"), (1, "<f4"), (2, "<f2")])
def test_raw_data_of_nvcaffe_and_of_opencvs_shrunken_models(tmp_path, number, kind):
    values = np.linspace(-1, 1, 6).reshape(2, 3).astype(kind)
    shape = field(7, field(1, bytes([2, 3])))
    blob = shape + wire.put_integer(10, number) + field(12, values.tobytes())
    path = tmp_path / "w.caffemodel"
    path.write_bytes(field(100, field(1, b"ip") + field(7, blob)))
    (found,) = weights.read(path)["ip"]
    assert found.dtype == (np.float32 if kind == "<f2" else np.dtype(kind))
    assert np.array_equal(found, values)
    with weights.Reader(path) as reader:
        assert reader.shapes == {"ip__0": (2, 3)}
        assert np.array_equal(reader["ip__0"], values)


def test_reading_takes_at_most_twice_the_file(tmp_path):
    """Of a process of its own: the mapped file counts, and the arrays."""
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    layers = [layer(f"l{i}", np.full((1000, 1000), i, np.float32)) for i in range(10)]
    weights.write(tmp_path / "w.caffemodel", layers)
    script = """
import sys
from minicaffe.interop.caffe import weights
def peak():
    return int(next(x.split()[1] for x in open("/proc/self/status") if x.startswith("VmHWM")))
before = peak()
found = weights.read(sys.argv[1])
print(peak() - before)
"""
    words = [sys.executable, "-c", script, str(tmp_path / "w.caffemodel")]
    grown = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    size = (tmp_path / "w.caffemodel").stat().st_size / 1024
    assert size < grown < 2 * size + 4096
