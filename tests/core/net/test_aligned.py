"""On the CPU, what a net and its solver compute with begins where lines of the cache do."""

import copy
import mmap

import numpy as np
import pytest

from minicaffe import Solver, parse
from minicaffe.backends import aligned
from minicaffe.backends.aligned import LINE, LONG, PAGE, empty, zeros
from minicaffe.backends.device import device
from minicaffe.core.ops.conv import ENGINES
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry, Window

MODEL = """
layers:
  - {name: data, type: DummyData, top: [x, label], shape: [{dim: [3, 2, 7, 7]}, {dim: [3]}]}
  - {name: conv, type: Convolution, bottom: x, num_output: 5, kernel_size: 3}
  - {name: relu, type: ReLU}
  - {name: drop, type: Dropout, top: drop}
  - {name: ip, type: InnerProduct, num_output: 3}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.1, momentum: 0.9, ema_decay: 0.9, max_iter: 3}
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_that_a_step_computes_with(dtype):
    solver = Solver(parse(MODEL), device="cpu", dtype=dtype)
    solver.step(1)
    net = solver.net
    values = [value.blob for step in net.steps for value in step.tops]
    blobs = [blob for blob in [*values, *net.named_params.values()] if blob.size > 1]
    found = [array for blob in blobs for array in (blob.data, blob.diff)]
    assert solver.average is not None
    found += [net.context.workspace, net.memory.scratch, *solver.rule.history]
    found += solver.average.means
    assert len(found) > 12 and not [
        array.shape for array in found if array.size and array.ctypes.data % LINE
    ]


@pytest.mark.parametrize("name", ENGINES)
def test_each_thread_has_whole_lines_of_the_workspace(name):
    """Beside what all threads share, each one's part is so many lines."""
    g = ConvGeometry(4, 3, (9, 11), 5, Window((3, 3)))
    one, more = (Case(g, np.dtype("f4"), device("cpu"), 2**20, most=n) for n in (1, 3))
    if more.refuses(name):
        pytest.skip("it does not take this")
    each = (more.workspace(name) - one.workspace(name)) // (more.shares - one.shares)
    assert more.shares == 3 and each * 4 % LINE == 0


def test_shapes_of_nothing_and_of_no_dimension():
    assert empty(np, (0, 3), np.float32).shape == (0, 3)
    assert zeros(np, (), np.float64) == 0 and zeros(np, 5, bool).tolist() == [False] * 5
    assert zeros(np, np.int64(2), "i4").shape == (2,)
    assert empty(np, [2, np.int32(3)], "f4").shape == empty(np, np.array([2, 3]), "f4").shape
    with pytest.raises(TypeError):
        empty(np, 2.5, "f4")


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="the system has no huge pages")
@pytest.mark.parametrize("more", [0, 1, PAGE - LONG, PAGE])
def test_long_arrays_begin_where_a_huge_page_does(more):
    array = empty(np, LONG + more, np.uint8)
    assert array.nbytes == LONG + more and array.ctypes.data % PAGE == 0 and not array.any()
    array[-1] = 7
    assert copy.deepcopy(array)[-1] == 7 and array[1:].base is array[:5].base
    assert empty(np, LONG - 1, np.uint8).ctypes.data % LINE == 0


def test_what_cannot_be_had_is_told_as_numpy_tells_it(monkeypatch):
    """Also by a kernel that knows no huge pages, which is asked but for advice."""
    with pytest.raises((MemoryError, ValueError)):
        empty(np, 10**19, np.float32)

    class Refuses(mmap.mmap):
        def madvise(self, *given):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(aligned.mmap, "mmap", Refuses)
    assert zeros(np, LONG, np.uint8).sum() == 0

    def none(*given):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(aligned.mmap, "mmap", none)
    assert zeros(np, LONG, np.uint8).sum() == 0
