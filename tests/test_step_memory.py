"""After the first iteration a training step allocates no array and never waits for the device."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from minicaffe import Net, Solver, parse
from minicaffe.data import idx, known

ROOT = Path(__file__).parent.parent
CAST_BUFFERS = 128 << 10  # NumPy's own, of fixed size, where an operation mixes types
EVERY_LAYER = """
layers:
  - {name: data, type: Data, top: [x, label], source: digits, batch_size: 100, transform: {scale: 0.01, mirror: true, crop_size: 24}}
  - {name: conv1, type: Convolution, bottom: x, num_output: 16, kernel_size: 5, pad: 2}
  - {name: relu1, type: ReLU, top: conv1}
  - {name: pool1, type: Pooling, kernel_size: 2, stride: 2}
  - {name: a, type: Convolution, bottom: pool1, num_output: 16, kernel_size: 3, pad: 1, group: 2, bias_term: false}
  - {name: leaky, type: ReLU, bottom: pool1, negative_slope: 0.1}
  - {name: sum, type: Eltwise, bottom: [a, leaky, pool1]}
  - {name: most, type: Eltwise, bottom: [a, leaky], operation: MAX}
  - {name: cat, type: Concat, bottom: [sum, most]}
  - {name: pool2, type: Pooling, pool: AVE, kernel_size: 3, stride: 2}
  - {name: flat, type: Flatten}
  - {name: drop, type: Dropout, top: flat}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: prob, type: Softmax, loss_weight: 0.001}
  - {name: accuracy, type: Accuracy, bottom: [ip, label], top_k: 2}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], ignore_label: 3}
solver: {base_lr: 0.001, momentum: 0.9, weight_decay: 0.001, clip_gradients: 5, iter_size: 2, max_iter: 100, snapshot_after_train: false}
"""
ELEMENTWISE = """
layers:
  - {name: data, type: Data, top: [x, label], source: digits, batch_size: 100, transform: {scale: 0.01}}
  - {name: conv, type: Convolution, bottom: x, num_output: 12, kernel_size: 5, stride: 2}
  - {name: abs, type: AbsVal, bottom: conv}
  - {name: softplus, type: BNLL, bottom: conv}
  - {name: clip, type: Clip, bottom: conv, min: -1, max: 1}
  - {name: elu, type: ELU, bottom: conv}
  - {name: exp, type: Exp, bottom: clip, base: 2}
  - {name: log, type: Log, bottom: softplus, shift: 1}
  - {name: gelu, type: GELU, bottom: conv}
  - {name: gelus, type: GELU, bottom: conv, approximate: tanh}
  - {name: hard, type: HardSwish, bottom: conv}
  - {name: square, type: Power, bottom: clip, power: 2}
  - {name: root, type: Power, bottom: exp, power: 0.5}
  - {name: line, type: Power, bottom: conv, scale: 0.5, shift: 1}
  - {name: none, type: Power, bottom: conv, power: 0}
  - {name: six, type: ReLU6, bottom: conv}
  - {name: sigmoid, type: Sigmoid, bottom: conv}
  - {name: swish, type: Swish, bottom: conv}
  - {name: tanh, type: TanH, bottom: conv}
  - {name: tanh2, type: TanH, bottom: tanh, top: tanh}
  - {name: threshold, type: Threshold, bottom: conv}
  - {name: sum, type: Eltwise, bottom: [abs, clip, elu, log, gelu, gelus, hard, square, root, line, none, six, sigmoid, swish, tanh, threshold]}
  - {name: norm, type: Scale, bottom: sum, filler: {type: constant, value: 0.1}, bias_term: true}
  - {name: norm2, type: Scale, top: norm, axis: 0, num_axes: -1}
  - {name: bias, type: Bias, top: norm}
  - {name: prelu, type: PReLU, top: norm}
  - {name: prelu1, type: PReLU, channel_shared: true}
  - {name: pool, type: Pooling, pool: AVE, global_pooling: true}
  - {name: gate, type: Axpy, bottom: [pool, prelu1, conv]}
  - {name: offset, type: Parameter, shape: {dim: [12]}}
  - {name: moved, type: Bias, bottom: [gate, offset]}
  - {name: stretched, type: Scale, bottom: [moved, offset]}
  - {name: words, type: Embed, bottom: label, input_dim: 10, num_output: 350}
  - {name: flat, type: Flatten, bottom: stretched}
  - {name: both, type: Concat, bottom: [flat, words]}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.001, momentum: 0.9, max_iter: 100, snapshot_after_train: false}
"""
NETS = pytest.mark.parametrize("text", [EVERY_LAYER, ELEMENTWISE], ids=["LeNet's", "element-wise"])


@pytest.fixture
def few_digits(monkeypatch, tmp_path):
    from minicaffe.data import datasets

    monkeypatch.setattr(datasets, "_COUNTS", {"train": 3000, "test": 20})
    monkeypatch.setattr(datasets, "_DRAWING", "few-3000")  # kept apart from the whole set


@NETS
def test_a_step_on_the_cpu_allocates_no_array(few_digits, text):
    solver = Solver(parse(text), device="cpu")
    smallest = min(
        v.blob.data.nbytes for s in solver.net.steps for v in s.tops if v.blob.size > 2000
    )
    assert smallest > CAST_BUFFERS
    solver.step(3)
    tracemalloc.start()
    try:
        solver.step(21)  # then all is there that Python keeps of its own
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        solver.step(20)  # through the end of an epoch
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < CAST_BUFFERS, f"a step takes {peak - before} bytes at its peak"
    assert after - before < 8_000


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
def test_a_step_on_cuda_allocates_nothing_and_never_waits(few_digits, cuda, text):
    if not getattr(cuda.xp, "is_stand_in", False):
        pytest.skip("the counters are the stand-in's")
    import cupy

    solver = Solver(parse(text.replace("batch_size: 100", "batch_size: 10")), device=cuda)
    solver.step(2)
    before, uploads = (cupy.allocations, cupy.synchronizations), cupy.uploads
    solver.step(3)
    assert (cupy.allocations, cupy.synchronizations) == before
    assert cupy.uploads == uploads + 3 * solver.spec.iter_size  # which images of the data set
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
    for place, file in enumerate(known.FILES):
        shape = ((60000, 10000)[place // 2], *((28, 28) if place % 2 == 0 else ()))
        idx.write(home / file, np.zeros(shape, np.uint8))
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "MINICAFFE_NUMBA": numba},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(result.stdout) / 1024 < limit


def test_one_workspace_serves_the_whole_net():
    net = Net(
        parse(EVERY_LAYER.replace("source: digits", "source: mnist")),
        device="cpu",
        shapes_only=True,
    )
    columns = [layer.column_elements for layer in net.layers.values()]
    assert net.context.workspace_size >= max(columns)
    assert net.context.workspace_size < 3 * max(max(columns), 100 * 16 * 24 * 24)
    assert np.count_nonzero(columns) == 2
