"""After the first iteration a training step allocates no array and never waits for the device."""

import gc
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from kit import few_digits

from minicaffe import Net, Solver, parse
from minicaffe.backends import cpu
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.elementwise import Dropout
from minicaffe.interop.caffe.forks.whole import Whole
from minicaffe.tools.data import fetch, idx
from minicaffe.tools.data.layers.data import Data

ROOT = Path(__file__).parent.parent
CAST_BUFFERS = 128 << 10  # NumPy's own, of fixed size, where an operation mixes types
# Nets of every layer that learns
STEPS = sorted((ROOT / "tests" / "nets" / "steps").glob("*.yaml"))
NETS = pytest.mark.parametrize("text", [pytest.param(p.read_text(), id=p.stem) for p in STEPS])
FEWER = {  # for a device that runs one thread after the other
    "batch_size: 100": "batch_size: 10",
    "24, 24": "8, 8",
    "[16, 5]": "[2, 5]",
    "[16, 16, 12": "[2, 16, 12",
    "3136": "400",
    "14, 14": "5, 5",
}
EVERY_LAYER = (ROOT / "tests" / "nets" / "steps" / "lenet.yaml").read_text()

ELSEWHERE = {  # types that no such net holds, and why
    "AnnotatedData": "a batch comes from a file, whose decoder takes memory",
    "DetectionEvaluate": "nothing learns from it; tests/tools/dry_run walks its rows",
    **{
        name: "it computes with NumPy's own operators, which take arrays"
        for name, layer in REGISTRY.items()
        if layer.traits.capturable is False
    },
    "DetectionOutput": "nothing learns from detections; tests/tools/dry_run walks its rows",
    "Filter": "how many entries it keeps is the host's to know: each pass waits for the selectors",
    "HDF5Data": "a batch comes from a file, whose reader takes memory",
    "HDF5Output": "what it keeps grows with each batch",
    "ImageData": "a batch comes from files, whose decoder takes memory",
    "MemoryData": "a batch is copied from arrays of the user's",
    "MultiBoxLoss": "it matches boxes on the host, and takes memory for what matches",
    "Python": "the user's class takes what memory it likes",
    "WindowData": "a batch comes from files, whose decoder takes memory",
    **{
        name: "of a fork: what it computes with whole arrays takes memory in each pass"
        for name, cls in REGISTRY.items()
        if issubclass(cls, Whole) and not cls.traits.recordable
    },
}


def test_the_nets_hold_every_type_of_layer():
    held = {layer.type for path in STEPS for layer in parse(path.read_text()).layers}
    assert not held & set(ELSEWHERE)
    assert held | set(ELSEWHERE) == set(REGISTRY)


@pytest.mark.skipif(not cpu.available(), reason="needs Numba")
@NETS
def test_a_step_on_the_cpu_allocates_no_array(text, monkeypatch):
    few_digits(monkeypatch, 1500)  # 15 batches
    solver = Solver(parse(text), device="cpu")
    smallest = min(
        v.blob.data.nbytes for s in solver.net.steps for v in s.tops if v.blob.size > 5000
    )
    assert smallest > CAST_BUFFERS
    solver.step(3)
    tracemalloc.start()
    try:
        solver.step(9)  # then all is there that Python keeps of its own
        begun, _ = tracemalloc.get_traced_memory()
        before = traced()
        tracemalloc.reset_peak()
        solver.step(10)  # through the end of an epoch
        _, peak = tracemalloc.get_traced_memory()
        after = traced()
    finally:
        tracemalloc.stop()
    assert peak - begun < CAST_BUFFERS, f"a step takes {peak - begun} bytes at its peak"
    more = after.compare_to(before, "lineno")
    assert sum(one.size_diff for one in more) < 8_000, "\n".join(map(str, more[:8]))


def traced():
    """What is allocated, but for what pytest-xdist's own threads are told meanwhile."""
    gc.collect()  # which Python does whenever it likes
    theirs = "*/execnet/*", "*/xdist/*", tracemalloc.__file__
    return tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, f) for f in theirs])


def test_the_count_sees_an_allocation(few_digits):
    """The test above can fail: an array the size of a blob shows."""
    solver = Solver(parse(EVERY_LAYER), device="cpu")
    layer = solver.net.layers["leaky"]
    whole = layer.forward
    layer.forward = lambda x: whole(x + 0)
    solver.step(2)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        solver.step(1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before > CAST_BUFFERS


@NETS
@pytest.mark.parametrize("graph", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_step_on_cuda_allocates_nothing_and_never_waits(few_digits, cuda, text, graph):
    """As it is, and replayed."""
    if not getattr(cuda.xp, "is_stand_in", False):
        pytest.skip("the counters are the stand-in's")
    import cupy

    few = re.sub(r"dim: \[[246]0\b", "dim: [2", text)
    for many, less in FEWER.items():
        few = few.replace(many, less)
    solver = Solver(parse(few), device=cuda, graph=graph)  # which is slow
    solver.step(6 if graph else 1)
    assert bool(solver.iterations.recordings["iteration"]) == graph
    before, uploads = (cupy.allocations, cupy.synchronizations), cupy.uploads
    solver.step(1)
    assert (cupy.allocations, cupy.synchronizations) == before
    # which images of the data set, Dropout's keys, a rate that changes: in a replayed pass one copy for all
    own = sum(isinstance(layer, (Data, Dropout)) for layer in solver.net.layers.values())
    each = max(1, solver.spec.iter_size * bool(own)) if graph else 1 + solver.spec.iter_size * own
    assert int(own > 0 or solver.spec.lr_policy != "fixed") <= cupy.uploads - uploads <= each
    solver.loss()
    assert cupy.synchronizations == before[1] + 1


@pytest.mark.parametrize("numba, limit", [("0", 200), ("1", 300)])
def test_lenet_needs_little_memory(tmp_path, numba, limit):
    """Peak memory of LeNet's training at batch 64, of the whole process; Numba itself takes 100 MiB."""
    script = f"""
import minicaffe
solver = minicaffe.Solver({str(ROOT / "models" / "lenet.yaml")!r}, device="cpu", test_initialization=False)
solver.step(3)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    home = tmp_path / "data" / "mnist"
    home.mkdir(parents=True)
    for place, file in enumerate(fetch.FILES):
        shape = ((60000, 10000)[place // 2], *((28, 28) if place % 2 == 0 else ()))
        idx.write(home / file, np.zeros(shape, np.uint8))
    for _ in range(1 + int(numba)):  # the first may compile, which takes memory of its own
        own = {"cwd": tmp_path, "env": {**os.environ, "MINICAFFE_NUMBA": numba}, "text": True}
        result = subprocess.check_output([sys.executable, "-c", script], **own)
    assert int(result) / 1024 < limit


def test_one_workspace_serves_the_whole_net():
    text = EVERY_LAYER.replace("source: digits", "source: mnist")
    net = Net(parse(text), device="cpu", shapes_only=True)
    columns = [layer.column_elements for layer in net.layers.values()]
    assert net.context.workspace_size >= max(columns)
    assert net.context.workspace_size < 3 * max(max(columns), 100 * 16 * 24 * 24)
    assert np.count_nonzero(columns) == 2
