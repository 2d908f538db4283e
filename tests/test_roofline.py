"""The model of a step on paper: its arithmetic against hand counts, and the list of operations it is made of."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dry_run.uses
import pytest
from dry_run.uses import uses

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "examples" / "benchmarks"
SCRIPTS = ("costs", "devices", "instructions", "layout", "measured", "tables", "torch")
NEEDED = (
    "measure",
    "machine",
    "peer_tables",
    "tables",
    "forms",
    "zoo_names",
    "zoo_nets",
    "zoo_sizes",
)


@pytest.fixture
def scripts(monkeypatch):
    """Imports a script of the model, and forgets it and what it imports afterwards."""
    for folder in (BENCHMARKS, ROOT / "examples" / "paper_tables"):
        monkeypatch.syspath_prepend(str(folder))
    yield lambda name="": importlib.import_module(f"roofline_{name}".rstrip("_"))
    for name in ("roofline", *(f"roofline_{name}" for name in SCRIPTS), *NEEDED):
        sys.modules.pop(name, None)


def array(use: str, at: int, *shape: int, dtype: str = "float32") -> dict:
    return {"use": use, "at": at, "shape": list(shape), "dtype": dtype}


def op(name: str, arrays: dict, kind: str = "kernel", grid=(1,), **numbers: int) -> dict:
    return {"kind": kind, "name": name, "arrays": arrays, "numbers": numbers, "grid": list(grid)}


def test_the_flops_of_products_are_those_of_a_hand_count(scripts):
    costs = scripts("costs")
    conv1 = {"rows": 20, "columns": 64 * 24 * 24, "depth": 25}  # LeNet's at batch 64
    assert costs.flops(op("implicit", {}, grid=(576, 1, 1), splits=1, **conv1)) == 36_864_000
    of_parts = op("implicit", {}, grid=(1, 1, 256), splits=256, **conv1)
    assert costs.flops(of_parts) == 36_864_000  # parts of the depth are no more of it
    grouped = op("implicit", {}, grid=(14, 1, 18), splits=9, rows=2, columns=3, depth=5)
    assert costs.flops(grouped) == 2 * 2 * (2 * 3 * 5)
    renamed = op("merged", {}, grid=(576, 1, 1), splits=1, **conv1)
    assert costs.flops(renamed) == 36_864_000
    stack = op("gemm", {}, kind="product", m=3, n=4, k=5, batchCount=7)
    assert costs.flops(stack) == 2 * 3 * 4 * 5 * 7


def test_the_bytes_of_element_wise_kernels(scripts):
    costs = scripts("costs")
    apart = {"x": array("r", 0, 10, 10), "y": array("w", 4096, 10, 10)}
    in_place = {"x": array("r", 0, 10, 10), "y": array("w", 0, 10, 10)}
    for arrays in (apart, in_place):
        assert costs.moved(op("elementwise", arrays, total=100)) == 2 * 400
        assert costs.flops(op("elementwise", arrays, total=100)) == 100
    twice = {"x": array("r", 0, 100), "y": array("r", 0, 100), "dx": array("w", 4096, 100)}
    assert costs.moved(op("elementwise_gradient", twice, total=100)) == 2 * 400
    added = {"x": array("r", 0, 100), "out": array("rw", 4096, 100)}
    assert costs.moved(op("any", added)) == 3 * 400
    mask = {
        "x": array("r", 0, 100),
        "mask": array("r", 4096, 100, dtype="bool"),
        "y": array("w", 0, 100),
    }
    assert costs.moved(op("cupy_multiply", mask)) == 2 * 400 + 100
    zeros = op("memset", {"0": array("w", 0, 1000)}, kind="fill", size=12)
    copied = op("memcpy", {"0": array("w", 0, 3), "1": array("r", 64, 3)}, kind="copy", size=12)
    assert (costs.moved(zeros), costs.moved(copied), costs.flops(copied)) == (12, 24, 0)


def test_of_a_large_buffer_the_part_that_is_touched_counts(scripts):
    costs = scripts("costs")
    arrays = {
        "images": array("r", 0, 60000, 1, 28, 28, dtype="uint8"),
        "labels": array("r", 1 << 30, 60000),
        "out": array("w", 2 << 30, 64, 1, 28, 28),
        "out_labels": array("w", 3 << 30, 64),
    }
    assert costs.moved(op("gather", arrays)) == 64 * 784 * (1 + 4) + 64 * (4 + 4)
    product = {
        "left": array("r", 0, 20, 25),
        "entries": array("r", 4096, 64, 28, 28),
        "out": array("w", 1 << 20, 500),
        "partials": array("w", 2 << 20, 800_000),
        "arrived": array("w", 8 << 20, 1024, dtype="int32"),
    }
    sizes = {"rows": 20, "columns": 25, "depth": 36864, "splits": 6, "part": 520}
    assert costs.moved(op("implicit", product, grid=(1, 1, 6), **sizes)) == 4 * (
        500 + 64 * 784 + 500 + 2 * 6 * 520 + 1  # what blocks leave is read again, by the last
    )
    strided = {
        "left": array("r", 0, 8, 4),
        "entries": array("r", 4096, 4, 10, 10),
        "out": array("w", 8192, 8, 25),
    }
    sizes = {"rows": 8, "columns": 25, "depth": 4, "splits": 1}  # 1 x 1 in steps of 2
    assert costs.moved(op("implicit", strided, grid=(1, 1, 1), **sizes)) == 4 * (32 + 100 + 200)


def test_a_loop_over_a_window_is_so_many_turns(scripts):
    costs = scripts("costs")
    arrays = {"images": array("r", 0, 1, 1, 28, 28), "columns": array("w", 4096, 1, 25, 576)}
    assert costs.turns(op("im2col", arrays, total=576)) == 25
    assert costs.turns(op("im2col_loopfree", arrays, total=14400)) == 1
    assert costs.turns(op("sums", arrays)) == 1


def test_rows_are_counted_and_kept_as_lines(scripts):
    costs = scripts("costs")
    one = op("elementwise", {"x": array("r", 0, 10), "y": array("w", 64, 10)}, total=10)
    (row,) = costs.rows([one, one])
    assert row == costs.Row("kernel", "elementwise", 80, 10, 1, launches=2, blocks=1)
    assert costs.read(row.line()) == row
    arrays = {"x": array("r", 0, 32, 64), "y": array("w", 9000, 32, 64)}
    ours = {**op("moments", arrays, grid=(64, 1)), "block": [1024], "template": "float"}
    (row,) = costs.rows([ours])
    assert (row.blocks, row.threads, row.template) == (64, 1024, "float")
    assert row.instructions == 32 * 64 * 123 // 32
    assert costs.read(row.line()) == row
    (fast,) = costs.rows([op("gemm", {}, kind="product", m=3, n=4, k=5, computeType=77)])
    assert fast.tf32 and costs.read(fast.line()) == fast


def test_the_bounds_of_a_made_up_device(scripts):
    costs, devices = scripts("costs"), scripts("devices")
    device = devices.Device("made up", tflops=2.0, gbs=500.0, source="nowhere")
    small = costs.Row("kernel", "small", bytes=500, flops=0, launches=10)  # 0.001 us each
    wide = costs.Row("kernel", "wide", bytes=50_000_000, flops=0)  # 100 us
    dense = costs.Row("product", "dense", bytes=500, flops=400_000_000)  # 200 us
    rows = [small, wide, dense]
    assert devices.ideal(rows, device) == pytest.approx(0.30001)
    assert devices.launched(rows, device) == pytest.approx((10 * devices.LAUNCH + 300) / 1e3)
    waited = devices.launched(rows, device, waited=True)
    assert waited == pytest.approx((12 * devices.LAUNCH + 300.01) / 1e3)
    one = devices.captured(rows, device)
    assert one == pytest.approx((10 * devices.NODE + 300 + devices.LAUNCH) / 1e3)
    sent = devices.captured([*rows, costs.Row("upload", "memcpy", bytes=500, flops=0)], device)
    assert sent == pytest.approx(one + devices.LAUNCH / 1e3)


def test_instructions_and_waves_of_a_product_by_hand(scripts):
    """A 3 x 3 convolution of 128 channels of 28 x 28, 32 samples, in tiles of 128 x 128: 196 blocks."""
    costs, devices, layout = scripts("costs"), scripts("devices"), scripts("layout")
    sizes = {"rows": 128, "columns": 25088, "depth": 1152, "splits": 1}
    one = {**op("implicit", {}, grid=(196, 1, 1), **sizes), "block": [256]}
    by_hand = {"Fma": 16 * (64 + 4) + 16 * 14.3 + 8 * 2, "Tf32": 32 + 16 * 15.7 + 8 * 2}
    for way, each in by_hand.items():
        one["template"] = f"float, float, 8, 8, Packs, Each, Bits, false, {way}"
        (row,) = costs.rows([one])
        assert row.instructions == pytest.approx(196 * 8 * 72 * each)  # 8 warps, 72 slabs of 16
        h100 = devices.DEVICES["h100"]
        us = row.instructions / (4 * 132 * 1.98e3)
        assert devices.parts(row, h100)["instructions"] == pytest.approx(us)
        assert devices.filled(row, h100) == pytest.approx(196 / 264)  # two a multiprocessor
        assert devices.roofline(row, h100) == pytest.approx(us * 264 / 196)
        (packed,) = costs.rows(layout.channels_last([one]))
        assert row.instructions - packed.instructions == 196 * 8 * 72 * 8 * 2
    assert devices.filled(row, devices.DEVICES["k80"]) == 1  # not modelled


def test_what_bounds_a_step_adds_up(scripts):
    costs, devices = scripts("costs"), scripts("devices")
    device = devices.Device("made up", 1.0, 100.0, "nowhere", multiprocessors=10, clock=1.0, sm=90)
    rows = [
        costs.Row("kernel", "copy", bytes=1_000_000, flops=0, blocks=15, threads=1024),
        costs.Row("kernel", "moments", bytes=8, flops=0, instructions=800_000),  # 20 us
        costs.Row("product", "gemm", bytes=8, flops=30_000_000, launches=2),
        costs.Row("upload", "memcpy", bytes=8, flops=0),
    ]
    shares = devices.bounds(rows, device)
    assert shares == pytest.approx(
        {
            "launches": 2 * devices.LAUNCH / 1e3,
            "bytes": 0.01,
            "waves": 0.01 / 3,  # 15 of 20 blocks
            "instructions": 0.02,
            "arithmetic": 0.06,
        }
    )
    assert devices.captured(rows, device) == pytest.approx(sum(shares.values()))


def test_devices_are_as_published(scripts):
    """Each more than the one before, with its source; the K80's is half of the card's."""
    devices = scripts("devices")
    every = list(devices.DEVICES.values())
    assert [one.gbs for one in every] == [480 / 2, 320, 2039, 3350]
    assert [one.tflops for one in every] == [8.74 / 2, 8.1, 19.5, 67]
    assert all("NVIDIA" in one.source for one in every)
    cores = {
        "T4": 64,
        "A100 SXM 80 GB": 64,
        "H100 SXM": 128,
    }  # of a multiprocessor, 2 flops a cycle
    for one in devices.NOW.values():
        peak = 2 * cores[one.name] * one.multiprocessors * one.clock / 1e3
        assert peak == pytest.approx(one.tflops, rel=0.01)


def test_pytorchs_launches_are_counted_from_the_layers(scripts):
    torch = scripts("torch")
    rows = torch.torch_rows("lenet_paper", 64)
    copies = 2
    forward = 2 * 2 + 3 + 2 + 2 + 1 + 2  # convolutions, ReLU, pools, products, Dropout, loss
    backward = (2 + 3) + 3 + 2 + 2 * 3 + 1 + 4
    assert sum(row.launches for row in rows) == copies + forward + backward + 2 * 4
    conv1, conv2 = 20 * 576 * 25, 50 * 64 * 500
    products = 2 * 64 * (2 * conv1 + 3 * conv2 + 3 * (800 * 500 + 500 * 10))
    assert sum(row.flops * row.launches for row in rows if row.name == "product") == products
    with pytest.raises(
        ValueError, match="nothing is known of PyTorch's launches for layers of type Embed"
    ):
        torch.torch_rows("lstm", 1)


def test_the_examples_of_the_scripts(scripts):
    for module in (*map(scripts, SCRIPTS), dry_run.uses):
        assert doctest.testmod(module).failed == 0


def test_products_that_are_not_recognized_are_told(scripts):
    roofline = scripts()
    with pytest.raises(RuntimeError, match=r"products of 0 flops were recognized, .* to DEPTH"):
        roofline.check("lenet_paper", 64, [op("new", {}, height=20, width=36864, inner=25)])


def test_the_tables_say_that_they_are_modelled(scripts):
    tables = scripts("tables")
    found = tables.result("roofline", "cuda")
    every = tables.steps, tables.kernels, tables.channels_last, tables.paper
    for text in (one(found) for one in every):
        assert "Modelled, not measured" in text and "**" not in text
    text = tables.paper(found).split("\n")
    assert "| Caffe's lowering, paper | 85.2 | 44.3 | 22.8 | 11.6 |" in text
    assert "| loop-free lowering, paper | 4.63 | 10.26 | 9.54 | 10.94 |" in text
    assert "| loop-free lowering : Caffe's, paper | 1.17x | 1.20x | 1.19x | 1.18x |" in text
    assert "| saved a sample, us: paper | 10.8 | 9.6 | 10.6 | 23.9 |" in text
    empty = [
        one(None) for one in (tables.steps, tables.kernels, tables.channels_last, tables.paper)
    ]
    assert empty == ["Not yet measured."] * 4
    beside = scripts("measured").beside(found)
    assert "| ResNet-50, 32: minicaffe, TF32 |" in beside and "| 24.8 |" in beside
    section = (ROOT / "docs" / "performance.md").read_text("utf-8").split("\n## ")
    (paper,) = (one for one in section if "<!-- roofline_cuda -->" in one)
    assert paper.startswith("On paper: modelled, not measured\n")
    assert "**What would prove it wrong**" in paper and "<!-- roofline_paper_cuda -->" in paper


def test_what_a_kernel_does_with_an_array_is_read_from_its_source():
    code = """
    __global__ void f(int n, const T* __restrict__ x, S* sums, T* y, O* out, int* bad, T* other) {
      *bad = 1;
      sums[n] = x[n] * 2;
      y[n] = sums[n] == 0 ? y[n] : x[n];
      O* to = out + n;
      *to = O(add ? S(*to) + 1 : 1);
      T* at = other + n;
      *at = x[n];
      at += 1;
    }"""
    assert uses(code)["f"] == {
        "x": "r", "sums": "w", "y": "rw", "out": "rw", "bad": "w", "other": "w",
    }  # fmt: skip
    kernels = ROOT / "minicaffe" / "cuda" / "kernels"
    update = uses((kernels / "update.cu").read_text("utf-8"))["update"]
    assert update == {
        "weight": "rw", "diff": "rw", "first": "rw", "second": "rw", "numbers": "r", "parts": "r", "skip": "r",
    }  # fmt: skip


@pytest.fixture(scope="module")
def real_cupy():
    if "cupy" not in importlib.metadata.packages_distributions():
        pytest.skip("CuPy is not installed; pip install cupy-cuda12x, which needs no GPU")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C preprocessor to read the kernels' declarations with")


def test_a_listed_step_has_the_layers_products(scripts, real_cupy):
    """LeNet's at batch 4, by the sizes of its layers."""
    roofline = scripts()
    found = roofline.operations("lenet_paper", "implicit", 4, "highest", "conv2")
    assert set(found) == {"step", "replayed", "conv2 forward", "conv2 backward"}
    for step in ("step", "replayed"):
        roofline.check("lenet_paper", 4, found[step])
    # Six ReLUs, the gradient of the loss, and a copy of what changes.
    assert len(found["replayed"]) == len(found["step"]) - 8
    conv2 = 2 * 4 * 50 * 64 * 500
    (forward,) = roofline.rows(found["conv2 forward"])
    assert forward.flops == conv2
    (one,), y = found["conv2 forward"], 4 * 50 * 64
    splits, tiles = one["numbers"]["splits"], math.prod(one["grid"][:2])
    lent = math.prod(one["arrays"]["partials"]["shape"]) if splits > 1 else 0
    shared = min(2 * splits * y, lent) + tiles * (splits > 1)  # partial sums, and who has arrived
    assert forward.bytes == 4 * (50 * 500 + 50 + 4 * 20 * 144 + y + shared)
    product = [one for one in found["conv2 backward"] if roofline.sizes(one)]
    assert (
        roofline.flops(product[0]) == conv2
    )  # of the weight; that of the image has the margins' zeros too
    assert roofline.flops(product[1]) == 2 * 4 * 20 * 144 * 1250
    per_sample = roofline.operations("lenet_paper", "caffe", 4, "highest", "conv2")["conv2 forward"]
    rows = roofline.rows(per_sample)
    assert {row.name: row.launches for row in rows if row.turns > 1} == {"im2col": 4}
    assert sum(row.launches * row.flops for row in rows if row.kind == "product") >= conv2


@pytest.mark.parametrize("name", ["lenet_paper", "alexnet", "vgg16", "resnet50", "mobilenet"])
def test_the_result_file_is_of_the_kernels_as_they_are(name, scripts, real_cupy):
    """A model costs no GPU: who changes a kernel makes it anew."""
    roofline, tables = scripts(), scripts("tables")
    stored = tables.result("roofline", "cuda")["nets"][name]
    again = "python examples/benchmarks/roofline.py writes it anew, readme.py beside it the page"
    batch = stored.pop("batch")
    assert roofline.of_net(name, batch) == stored, again


def test_the_command_prints_its_tables():
    command = [sys.executable, str(BENCHMARKS / "roofline_tables.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Table 4: ms, batch 128" in done.stdout
