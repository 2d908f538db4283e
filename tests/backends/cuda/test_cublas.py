"""cuBLAS's own functions: called as NVIDIA declares them, and in a graph with memory of its own."""

import ctypes
import importlib.util
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from core.ops.cases import as_strided, blank, close, numbers, put

from minicaffe.backends.cuda import capture, cublas
from minicaffe.core.ops.gemm import gemm
from minicaffe.errors import ShapeError

BY_NAME = """
import ctypes, sys
from minicaffe.backends.cuda import cublas
ctypes.CDLL(sys.argv[1])  # as CuPy loads it, wherever it lies
found = ctypes.CDLL(sys.argv[2])  # from now on its name will do
for name, types in cublas.SIGNATURES.items():
    function = found[name]
    function.argtypes, function.restype = types, cublas.INT
    print(name, function(*[0] * len(types)))
"""


def wheel():
    """The folder of NVIDIA's wheel, if it is installed."""
    found = importlib.util.find_spec("nvidia")
    folders = (
        [Path(place) / "cublas" for place in found.submodule_search_locations] if found else []
    )
    if not (here := [folder for folder in folders if (folder / "include").exists()]):
        pytest.skip("needs nvidia-cublas-cu12, or -cu13")
    return here[0]


def test_functions_are_called_as_they_are_declared():
    header = (wheel() / "include" / "cublas_api.h").read_text()
    kinds = {"int": ctypes.c_int, "long long int": ctypes.c_longlong, "size_t": ctypes.c_size_t}
    kinds |= dict.fromkeys(("cublasHandle_t", "cudaStream_t"), ctypes.c_void_p)
    for name, types in cublas.SIGNATURES.items():
        (declared,) = re.findall(
            rf"CUBLASAPI cublasStatus_t CUBLASWINAPI\s+{name}\(([^)]*)\);", header
        )
        given = [" ".join(one.split()[:-1]) for one in declared.split(",")]
        wanted = [
            ctypes.c_void_p if "*" in one else kinds.get(one, ctypes.c_int)  # others are enums
            for one in given
        ]
        assert list(types) == wanted, name


def test_the_library_is_found_by_its_name_and_takes_the_calls():
    """Without a handle it says that it is not initialized, which is 1, and reads nothing."""
    (library,) = (wheel() / "lib").glob("libcublas.so.*")
    call = [sys.executable, "-c", BY_NAME, str(library), library.name]
    run = subprocess.run(call, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert [line.split()[1] for line in run.stdout.splitlines()] == ["1"] * len(cublas.SIGNATURES)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_a_product_in_a_graph_is_that_outside(cuda, dtype):
    a, b = numbers(1, (2, 5, 7), (2, 7, 3), dtype=np.float32)
    there = [put(cuda, array, dtype) for array in (a, b)]
    out, wanted = (blank(cuda, (2, 5, 3), dtype) for _ in range(2))
    with cuda.current():
        gemm(*there, wanted)
        launch = capture.captured(cuda, lambda: gemm(*there, out), [cublas.work])
    assert np.isnan(cuda.to_host(out).astype(np.float32)).all()  # it is not done yet
    for _ in range(2):
        out.fill(np.nan)
        launch()
        assert cuda.to_host(out).tobytes() == cuda.to_host(wanted).tobytes()


def test_a_graph_works_in_memory_of_its_own(cuda):
    """Whoever multiplies meanwhile on another stream works in another part."""
    a, b = numbers(1, (5, 7), (7, 3), dtype=np.float64)
    there, out = [put(cuda, array) for array in (a, b)], blank(cuda, (5, 3), np.float64)
    places = []

    def multiply():
        gemm(*there, out)
        places.append(capture.kept(cublas.work).data.ptr)

    with cuda.current():
        multiply()
        launch = capture.captured(cuda, multiply, [cublas.work])
        multiply()
    assert places[0] == places[2] != places[1]
    launch()
    close(cuda, out, a @ b)


def test_what_cublas_refuses_is_its_error(cuda, monkeypatch):
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("a GPU would be asked for what it cannot read")
    a, b = (put(cuda, array) for array in numbers(1, (5, 7), (7, 3), dtype=np.float32))
    monkeypatch.setitem(cublas.KINDS, "float32", "CUDA_R_64F")
    with pytest.raises(cuda.xp.cuda.cublas.CUBLASError, match="CUBLAS_STATUS_INVALID_VALUE"):
        gemm(a, b, blank(cuda, (5, 3), np.float32))


def test_a_matrix_without_whole_rows_or_columns(cuda):
    a, b = (put(cuda, array) for array in numbers(1, (5, 14), (7, 3), dtype=np.float32))
    with cuda.current(), pytest.raises(ShapeError) as caught:
        cublas.multiply(a[:, ::2], b, blank(cuda, (5, 3), np.float32), False)
    assert str(caught.value) == "cuBLAS cannot read a matrix 5 x 7 of strides 14 and 2"


def test_a_graph_is_captured_by_a_thread_that_has_not_multiplied_yet(cuda):
    a, b = numbers(1, (5, 7), (7, 3), dtype=np.float64)
    there, out, launches = [put(cuda, array) for array in (a, b)], blank(cuda, (5, 3), "f8"), []

    def capturing():
        with cuda.current():
            launches.append(capture.captured(cuda, lambda: gemm(*there, out), [cublas.work]))

    thread = threading.Thread(target=capturing)
    thread.start()
    thread.join()
    launches[0]()
    close(cuda, out, a @ b)


def test_memory_of_threads_that_have_ended_is_let_go(cuda):
    there = [put(cuda, array) for array in numbers(1, (5, 7), (7, 3), dtype=np.float64)]
    others = capture._kept.keys() | set()

    def multiplying():
        with cuda.current():
            gemm(*there, blank(cuda, (5, 3), "f8"))

    for _ in range(3):
        thread = threading.Thread(target=multiplying)
        thread.start()
        thread.join()
    assert len(capture._kept.keys() - others) <= 1


def test_what_is_beyond_32_bits_is_refused(cuda):
    """By ctypes it would be another number."""
    far = as_strided(put(cuda, np.ones((2, 3))), (2, 3), (2**34, 8))
    with pytest.raises(ShapeError, match="cuBLAS: 2147483648 elements are more than"):
        gemm(far, put(cuda, np.ones((3, 2))), blank(cuda, (2, 2), "f8"))
