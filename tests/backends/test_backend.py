"""The device: which one, whose memory, and how arrays get there."""

import configparser
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu import HAS_GPU

from minicaffe import DeviceError, Net, Solver, parse
from minicaffe.backends import device as backend
from minicaffe.backends.cuda import device as cuda_device
from minicaffe.core.solver import Report

MODEL = """
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [4, 2, 6, 6]}, {dim: [4]}]}
  - {name: conv, type: Convolution, bottom: x, num_output: 3, kernel_size: 3}
  - {name: relu, type: ReLU, top: conv}
  - {name: ip, type: InnerProduct, num_output: 5}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.1, momentum: 0.9, clip_gradients: 1, max_iter: 9, snapshot_after_train: false}
"""


@pytest.fixture
def stand_in(cuda):
    """The stand-in for CuPy, whose knobs tests may turn."""
    if HAS_GPU:
        pytest.skip("only the stand-in has knobs")
    return cuda.xp


@pytest.fixture
def two_devices(stand_in, monkeypatch):
    monkeypatch.setattr(stand_in, "device_count", 2)
    yield [backend.device(f"cuda:{i}") for i in range(2)]
    stand_in.cuda.Device(0).use()


def test_a_device_that_cannot_be_used_is_passed_over(stand_in, monkeypatch):
    """A GPU in exclusive use by another process is listed, and fails when it is set."""

    def fails(self):
        raise stand_in.cuda.runtime.CUDARuntimeError(46)

    monkeypatch.setattr(stand_in.cuda.Device, "use", fails)
    chosen = backend.device()
    assert (chosen.name, chosen.is_cuda) == ("cpu", False)
    assert "CuPy cannot compute: " in repr(chosen)
    with pytest.raises(DeviceError, match="device cuda: CuPy cannot compute: "):
        backend.device("cuda")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (None, "CuPy is not installed; the extra cuda12 or cuda13 brings it"),
        ("import its_library", "CuPy cannot be imported: No module named 'its_library'"),
        ("raise OSError('no folder')", "CuPy cannot be imported: no folder"),
    ],
)
def test_a_cupy_that_cannot_be_imported_is_told_from_none(tmp_path, monkeypatch, module, said):
    if module is None:
        monkeypatch.setattr("minicaffe.backends.cuda.device.has_driver", lambda: True)
        monkeypatch.setitem(sys.modules, "cupy", None)
    else:
        monkeypatch.delitem(sys.modules, "cupy", raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "cupy.py").write_text(module)
    chosen = backend.device()
    assert (chosen.name, said in repr(chosen)) == ("cpu", True)
    with pytest.raises(DeviceError, match=f"^device cuda:0: {said}$"):
        backend.device("cuda:0")


def test_a_device_that_fails_leaves_the_other_current(two_devices, stand_in, monkeypatch):
    two_devices[0].xp.cuda.Device(0).use()

    def fails(*args):
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(stand_in.RawModule, "get_function", fails)
    with pytest.raises(DeviceError, match="no kernel image"):
        backend.device("cuda:1")
    assert stand_in.cuda.runtime.getDevice() == 0


def arrays():
    random = np.random.default_rng(0)
    return {"x": random.normal(size=(4, 2, 6, 6)), "label": random.integers(0, 5, 4)}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("own", [0, 1])
def test_a_net_computes_on_its_own_device_whichever_is_current(two_devices, own, dtype):
    """Nets and solvers of both devices in one thread: each in its own memory, with its own kernels."""
    results = []
    for other in (own, 1 - own):
        solver = Solver(parse(MODEL), device=two_devices[own], dtype=dtype, report=Report())
        solver.device.xp.cuda.Device(other).use()
        net = solver.net
        net.forward(**arrays())
        net.backward()
        net.clear_param_diffs()
        solver.step(2)
        net.blobs["ip"].data = net.blobs["ip"].data
        assert net.blobs["x"].diff.device.id == own
        net.load(net.weights())
        net.reshape(x=(2, 2, 6, 6), label=(2,))
        net.forward()
        results.append([net.loss, solver.loss(), *net.weights().values()])
        assert {param.data.device.id for param in net.learnable} == {own}
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_im2col_runs_where_its_array_is(two_devices):
    import minicaffe

    x = two_devices[1].asarray(np.arange(9.0).reshape(1, 1, 3, 3))
    two_devices[0].xp.cuda.Device(0).use()
    columns = minicaffe.im2col(x, kernel_size=2)
    assert columns.device.id == 1
    np.testing.assert_array_equal(columns.get()[0, 0], [0, 1, 3, 4])
    np.testing.assert_array_equal(
        minicaffe.col2im(columns, x.shape, kernel_size=2).get()[0, 0],
        [[0, 2, 2], [6, 16, 10], [6, 14, 8]],
    )
    out = two_devices[0].asarray(np.zeros((1, 4, 4)))
    with pytest.raises(minicaffe.MinicaffeError, match="out: expected an array on cuda:1, got"):
        minicaffe.im2col(x, kernel_size=2, out=out)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_what_is_copied_arrives(device, shape, dtype):
    source = np.random.default_rng(0).integers(0, 2, shape)
    target = device.asarray(np.ones(shape, dtype))
    device.copy_from_host(target, source.astype(dtype))
    np.testing.assert_array_equal(device.to_host(target), source)


def test_a_copy_under_way_keeps_its_memory(cuda, stand_in, monkeypatch):
    """The device copies when it gets there: the source, and what lies between, may be used again before."""
    monkeypatch.setattr(stand_in, "late_copies", True)
    targets = [cuda.asarray(np.zeros(4, np.float32)) for _ in range(3)]
    before = stand_in.synchronizations
    for i, target in enumerate(targets):
        source = np.full(4, i + 1, np.float32)
        cuda.copy_from_host(target, source)
        source[:] = -1
    assert stand_in.synchronizations == before
    assert [target.get().tolist() for target in targets] == [[1] * 4, [2] * 4, [3] * 4]
    held = len(stand_in.cuda.pinned)
    cuda.copy_from_host(targets[0], np.zeros(4, np.float32))
    assert len(stand_in.cuda.pinned) < held  # given back once the copies were done


def test_a_large_array_takes_no_page_locked_memory(cuda, stand_in):
    large = np.ones(cuda_device.STAGED // 4 + 1, np.float32)
    target = cuda.asarray(np.zeros_like(large))
    before = len(stand_in.cuda.pinned)
    cuda.copy_from_host(target, large)
    assert len(stand_in.cuda.pinned) == before
    assert target.get().all()


def test_a_large_array_takes_two_buffers_by_turns(cuda, stand_in, monkeypatch):
    """The third copy to a place waits for the first, whatever goes elsewhere; none is torn."""
    size = cuda_device.SMALL // 4 + 1
    there, elsewhere = (cuda.asarray(np.zeros(size, np.float32)) for _ in range(2))
    source = np.ones(size, np.float32)
    cuda.synchronize()  # an earlier test may have left a late copy
    cuda.copy_from_host(elsewhere, source)  # is done: its memory is given back by the next
    before, held = stand_in.synchronizations, len(stand_in.cuda.pinned)
    monkeypatch.setattr(stand_in, "late_copies", True)
    for value in (1, 2):
        source[:] = value
        cuda.copy_from_host(there, source)
        cuda.copy_from_host(elsewhere, -source)
    assert stand_in.synchronizations == before
    assert len(stand_in.cuda.pinned) == held + 3
    source[:] = 3
    cuda.copy_from_host(there, source)
    assert stand_in.synchronizations > before
    source[:] = 4
    assert [set(array.get().tolist()) for array in (there, elsewhere)] == [{3.0}, {-2.0}]


def test_all_nets_of_a_device_share_a_stream(two_devices, cuda, stand_in):
    """Whoever was made last; a stream that the caller has entered is kept, a graph's too."""
    current, one = stand_in.cuda.get_current_stream, two_devices[0]
    stand_in.cuda.Device(0).use()
    with cuda.current():
        mine = current()
        with one.current():
            assert current() is mine
    assert mine.ptr and not current().ptr
    with two_devices[1].current():
        assert current().ptr not in (0, mine.ptr)
        with cuda.current():
            assert current() is mine
    with stand_in.cuda.Device(0), stand_in.cuda.Stream() as own, cuda.current():
        assert current() is own


def test_a_net_is_fed_without_a_wait(cuda, stand_in):
    net = Net(parse(MODEL), device=cuda)
    net.forward(**arrays())
    before = stand_in.synchronizations
    net.forward(**arrays())
    assert stand_in.synchronizations == before


def test_the_extras_ask_for_a_cupy_that_has_what_is_used():
    """`ctk` and bfloat16 are there from CuPy 14 on, templates are kept on disk from 14.2 on."""
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parent.parent.parent / "setup.cfg")
    for major in "12", "13":
        extra = setup["options.extras_require"][f"cuda{major}"].split()
        assert extra == [f"cupy-cuda{major}x[ctk]>=14.2", "ml_dtypes"]
