"""Every CUDA kernel that a net can ask for, as NVRTC compiles it, without a GPU. Skipped without NVRTC's wheel."""

import importlib
import importlib.metadata
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from minicaffe.backends.formulas import RULES

BENCHMARKS = Path(__file__).parents[3] / "examples" / "benchmarks"


@pytest.fixture
def kernels(scripts):
    """The script that compiles them."""
    return scripts("kernels")


def needed(kernels):
    lacking = kernels.nvrtc.lacking()
    if "cupy" not in importlib.metadata.packages_distributions():
        lacking.append("cupy-cuda12x or cupy-cuda13x")
    if lacking:
        pytest.skip(f"not installed: {', '.join(lacking)}")


@pytest.mark.parametrize("sm", [90])
def test_every_kernel_compiles_and_none_spills(kernels, sm, request):
    """Of those that the result file has NVRTC 12 compiles a third and NVRTC 13 the others; with --long all."""
    needed(kernels)
    known = [row for row in kernels.rows_of(kept()) if row["sm"] == sm]
    every = sorted({(row["file"], row["kernel"].partition("<")[2][:-1]) for row in known})
    new = kernels.nvrtc.version().startswith("13")
    some = [one for i, one in enumerate(every) if (i % 3 != 0) == new]
    rows = kernels.compiled(every if request.config.getoption("--long") else some, sm)
    assert rows and {row["kernel"] for row in rows} <= {row["kernel"] for row in known}
    assert [row["kernel"] for row in rows if row["spilled"]] == []


def kept():
    """The result file; that it has every kernel test_dry_run.py sees."""
    return json.loads((BENCHMARKS / "results" / "kernels_cuda.json").read_text())


def test_nvrtc_13_is_taken_before_12(kernels, tmp_path, monkeypatch):
    """Each version's wheels have folders of their own."""
    wheel = kernels.nvrtc.wheel.__wrapped__  # which remembers nothing
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: package)
    assert wheel(*kernels.nvrtc.LIBRARY) is None
    for name in reversed(kernels.nvrtc.LIBRARY):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.touch()
        assert wheel(*kernels.nvrtc.LIBRARY) == path
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert wheel(*kernels.nvrtc.LIBRARY) is None


def test_what_does_not_compile_is_told(kernels):
    needed(kernels)
    with pytest.raises(ValueError, match="NVRTC, sm_90, wrong<float>: .*undefined"):
        code = "template <typename T> __global__ void wrong(T* x) { *x = nothing; }"
        kernels.nvrtc.built(code, ["wrong<float>"], ("-std=c++17",), 90)


def test_all_tiles_of_the_implicit_product_are_asked_for(kernels):
    tiles = kernels.with_tiles([("implicit.cu", "double, double, 1, 2"), ("pool.cu", "float")], 90)
    assert ("pool.cu", "float") in tiles and len(tiles) == 1 + 6 * 4 + 1
    half = [("implicit.cu", "__half, float, 1, 2, F16")]
    assert {tile[1].split(", ")[-1] for tile in kernels.with_tiles(half, 90)} == {"F16"}
    assert len(kernels.with_tiles(half, 75)) == 9 * 4 + 1
    assert ("implicit.cu", "double, double, 8, 8") not in tiles


def test_all_rules_of_an_update_are_asked_for(kernels):
    wanted = {("update.cu", f"float, {rule}") for rule in RULES}
    assert set(kernels.with_tiles([("update.cu", "float, sgd")], 90)) == wanted
