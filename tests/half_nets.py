"""Small nets of 16 bits, and solvers that learn them from one batch."""

from importlib.util import find_spec

import numpy as np
import pytest
from kit import Heard

from minicaffe import Solver, parse

LENET = """
dtype: float16
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [16, 1, 12, 12]}, {dim: [16]}]}
  - {name: conv1, type: Convolution, bottom: x, num_output: 6, kernel_size: 3}
  - {name: pool1, type: Pooling, kernel_size: 2, stride: 2}
  - {name: conv2, type: Convolution, num_output: 8, kernel_size: 3}
  - {name: relu2, type: ReLU, top: conv2}
  - {name: pool2, type: Pooling, pool: AVE, kernel_size: 3}
  - {name: ip1, type: InnerProduct, num_output: 20}
  - {name: relu3, type: ReLU, top: ip1}
  - {name: ip2, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip2, label]}
solver: {base_lr: 0.05, momentum: 0.9, weight_decay: 0.0005, max_iter: 9, snapshot_after_train: false}
"""
LINE = """
dtype: float16
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [2, 3]}, {dim: [2]}]}
  - {name: ip, type: InnerProduct, num_output: 4, bottom: x}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], loss_weight: 0.00000001}
solver: {base_lr: 1000000, momentum: 0.5, max_iter: 9, snapshot_after_train: false}
"""
RNG = np.random.default_rng(0)
BATCH = {"x": RNG.normal(size=(16, 1, 12, 12)), "label": RNG.integers(0, 10, 16)}
FEW = {"x": np.array([[1.0, -2.0, 0.5], [0.25, 1.0, -1.0]]), "label": [1, 2]}
LACKED = pytest.mark.skipif(find_spec("ml_dtypes") is None, reason="ml_dtypes is not installed")
# Its kernels are those of float16, compiled once more
BFLOAT16 = pytest.param("bfloat16", marks=[LACKED, pytest.mark.slow])
TYPES = pytest.mark.parametrize("dtype", ["float16", BFLOAT16])


def solver(text, device, batch, **options):
    """A solver of a net whose Inputs hold a batch."""
    made = Solver(parse(text), device=device, report=Heard(), **options)
    feed(made, batch)
    return made


def feed(made, batch):
    for name, array in batch.items():
        made.device.copy_from_host(made.net.blobs[name].data, np.asarray(array))


def state(made):
    """The bits that decide how training goes on."""
    return [
        made.device.to_host(array).tobytes()
        for param, history in zip(made.net.learnable, made.rule.history, strict=True)
        for array in (param.master, history, param.data)
    ]
