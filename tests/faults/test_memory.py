"""Memory that ends: each large array in turn cannot be had, when a net is built, reshaped, loaded or trained."""

import contextlib

import numpy as np
import pytest
from kit import same_numbers

import minicaffe.interop.pycaffe as caffe
from minicaffe import Net, Solver, parse
from minicaffe.backends import aligned
from minicaffe.cli import main
from minicaffe.storage import checkpoint

NET = """
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [4, 3, 12, 12]}, {dim: [4]}]}
  - {name: conv, type: Convolution, bottom: x, num_output: 6, kernel_size: 3}
  - {name: norm, type: BatchNorm, top: conv}
  - {name: pool, type: Pooling, kernel_size: 2, stride: 2}
  - {name: ip, type: InnerProduct, num_output: 5}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.01, momentum: 0.9, max_iter: 10, random_seed: 1}
"""
LEAST = 256  # bytes of an array that counts


@contextlib.contextmanager
def memory_ends(at=None):
    """The arrays of a device from here on, counted; the one of number `at` cannot be had."""
    make, count = aligned._made, [0]

    def made(how, shape, dtype):
        count[0] += int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize >= LEAST
        if count[0] == at:
            count[0] += 1
            raise MemoryError
        return make(how, shape, dtype)

    aligned._made = made
    try:
        yield count
    finally:
        aligned._made = make


@contextlib.contextmanager
def no_setup(layer):
    """The shapes of a layer's tops cannot be had, once."""

    def ends(*_):
        del layer.setup
        raise MemoryError

    layer.setup = ends
    yield
    assert "setup" not in vars(layer)


def given(n, seed=0):
    chance = np.random.default_rng(seed)
    x = chance.standard_normal((n, 3, 12, 12)).astype("f")
    return {"x": x, "label": chance.integers(0, 5, n).astype("f")}


def numbers(net, n=4):
    return {name: array.copy() for name, array in net.forward(**given(n)).items()}


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_reshaping_leaves_the_net_as_it_was(phase):
    net = Net(parse(NET), phase, device="cpu")
    wanted = numbers(net)
    with memory_ends() as count:
        net.reshape(x=(9, 3, 12, 12), label=(9,))
    assert count[0] > 1
    larger = numbers(net, 9)
    net.reshape(x=(4, 3, 12, 12), label=(4,))
    ends = [lambda at=at: memory_ends(at) for at in range(1, count[0] + 1)]
    ends += [lambda step=step: no_setup(step.layer) for step in net.steps[1:]]
    for end in ends:
        with end(), pytest.raises(MemoryError):
            net.reshape(x=(9, 3, 12, 12), label=(9,))
        assert net.blobs["x"].data.shape == (4, 3, 12, 12)
        same_numbers(numbers(net), wanted)
        if phase == "TRAIN":
            net.backward()
    net.reshape(x=(9, 3, 12, 12), label=(9,))
    same_numbers(numbers(net, 9), larger)


VARYING = NET.replace("top: [x, label]", "top: [all, label]").replace(
    "  - {name: conv,",
    "  - {name: some, type: Filter, bottom: [all, label], top: x}\n  - {name: conv,",
)
VARYING = "force_backward: true" + VARYING[: VARYING.index("  - {name: loss")]


def test_a_pass_in_which_sizes_change_leaves_a_net_that_goes_on():
    """With the size for which there was no memory, with that before, and with others."""

    def passed(net, n):
        x = np.random.default_rng(2).standard_normal((4, 3, 12, 12))
        tops = {"ip": net.forward(all=x, label=np.arange(4) < n)["ip"].copy()}
        net.clear_param_diffs()
        net.backward(ip=np.ones_like(tops["ip"]))
        return tops | {name: param.diff.copy() for name, param in net.named_params.items()}

    net = Net(parse(VARYING), device="cpu")
    wanted = {n: passed(net, n) for n in (3, 2, 4)}
    with memory_ends() as count:
        passed(net, 3)
    ends = [lambda at=at: memory_ends(at) for at in range(1, count[0] + 1)]
    ends += [lambda step=step: no_setup(step.layer) for step in net.steps[2:]]
    assert len(ends) > 8
    for end in ends:
        passed(net, 4)
        with end(), pytest.raises(MemoryError):
            passed(net, 3)
        for n in (3, 4, 2):
            same_numbers(passed(net, n), wanted[n])


def test_a_layer_that_takes_a_new_shape_when_it_runs_is_tried_again(tmp_path):
    """In pycaffe: the last layer does not take it, and the one before it only when it is asked for."""
    shapes = "[{dim: [1, 3, 6, 6]}, {dim: [1]}]"
    (tmp_path / "net.yaml").write_text(NET.replace("[{dim: [4, 3, 12, 12]}, {dim: [4]}]", shapes))
    x, outs = given(1)["x"], []
    for at in (None, 1):
        net = caffe.Net(str(tmp_path / "net.yaml"), caffe.TEST)
        for param in net.params["conv"]:
            param.data[...] = 0.5
        net.forward(end="pool")
        net.blobs["x"].reshape(*x.shape)
        net.blobs["x"].data[...] = x
        net.forward(end="conv")
        if at is not None:
            with memory_ends(at), pytest.raises(MemoryError):
                net.forward(start="norm", end="pool")
        outs.append(net.forward(start="norm", end="pool")["pool"].copy())
        np.testing.assert_array_equal(outs[-1], outs[0])


def test_loading_changes_all_or_nothing(tmp_path, monkeypatch):
    net, other = (Net(parse(NET), "TEST", device="cpu") for _ in range(2))
    other.save(tmp_path / "other.npz")
    wanted, read = numbers(net), checkpoint.Reader.__getitem__
    for at in range(len(net.named_params)):
        names = list(net.named_params)

        def ends(reader, name, last=names[at]):
            if name == last:
                raise MemoryError
            return read(reader, name)

        monkeypatch.setattr(checkpoint.Reader, "__getitem__", ends)
        with pytest.raises(MemoryError):
            net.load(tmp_path / "other.npz")
        same_numbers(numbers(net), wanted)
    monkeypatch.setattr(checkpoint.Reader, "__getitem__", read)
    net.load(tmp_path / "other.npz")
    same_numbers(numbers(net), numbers(other))


def test_building_is_tried_again():
    with memory_ends() as count:
        wanted = numbers(Net(parse(NET), "TEST", device="cpu"))
    for at in range(1, count[0] + 1):
        with memory_ends(at), contextlib.suppress(MemoryError):
            numbers(Net(parse(NET), "TEST", device="cpu"))
    same_numbers(numbers(Net(parse(NET), "TEST", device="cpu")), wanted)


def test_a_step_that_has_no_memory_changes_nothing_that_is_kept():
    """What the first steps allocate: they may be tried again."""

    def solver():
        found = Solver(parse(NET), device="cpu")
        found.net.forward(**given(4))
        return found

    with memory_ends() as count:
        one = solver()
        one.step(3)
    for at in range(1, count[0] + 1):
        with memory_ends(at):
            try:
                other = solver()
            except MemoryError:
                continue
            with contextlib.suppress(MemoryError):
                other.step(3)
        other.step(3 - other.iteration)
        for name, param in one.net.named_params.items():
            np.testing.assert_array_equal(
                other.net.named_params[name].data, param.data, err_msg=name
            )


def test_the_command_line_says_it_in_a_line(tmp_path, here, capsys):
    (tmp_path / "net.yaml").write_text(NET)
    words = ["time", "net.yaml", "--device", "cpu", "--iterations", "1"]
    with memory_ends() as count:
        assert main(words) == 0
    for at in (1, 2, count[0] // 2, count[0]):
        capsys.readouterr()
        with memory_ends(at):
            code = main(words)
        lines = [line for line in capsys.readouterr().err.splitlines() if "minicaffe: " in line]
        assert code == 0 or (code == 2 and len(lines) == 1 and "out of memory" in lines[0]), lines
