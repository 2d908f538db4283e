"""The nets that the dry run walks; without CuPy, so that the tests can list them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.layers.rows import ROWS, net_of
from half_nets import LENET
from test_step_memory import EVERY_LAYER, STEPS

from minicaffe.core.layers import REGISTRY
from minicaffe.core.ops.conv import ENGINES

MODELS = Path(__file__).parents[3] / "models"
ON_THE_HOST = {  # whose passes wait for the device, or take memory, as their documentation says
    "Python",
    "HDF5Output",
}
ON_THE_HOST |= {  # or that compute with CuPy's own operators, which take arrays
    name for name, layer in REGISTRY.items() if layer.traits.capturable is False
}
TYPES = ("float32", "float64", "float16", "bfloat16")
FEW = EVERY_LAYER.replace("batch_size: 100", "batch_size: 6")
WINDOWS = """
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [4, 6, SIZES]}, {dim: [4]}]}
  - {name: conv, type: Convolution, bottom: x, num_output: 8, kernel_size: 3, pad: 1, stride: STRIDE, group: 2}
  - {name: turned, type: Deconvolution, num_output: 4, kernel_size: 2}
  - {name: columns, type: Im2col, kernel_size: 2}
  - {name: ip, type: InnerProduct, num_output: 5}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
force_backward: true
solver: {base_lr: 0.001, momentum: 0.9, average_loss: 3, max_iter: 9}
"""
GIVEN_ARRAYS = """
layers:
  - {name: data, type: MemoryData, top: [x, label], batch_size: 4, channels: 2, height: 5, width: 4}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 5}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.001, max_iter: 9}
"""
FILES = Path(__file__).parents[2] / "fixtures" / "examples"
FROM_FILES = f"""
layers:
  - {{name: lmdb, type: Data, top: [a, al], source: {FILES}/lmdb, batch_size: 4}}
  - {{name: images, type: ImageData, top: [b, bl], source: {FILES}/images.txt, batch_size: 4}}
  - {{name: windows, type: WindowData, top: [c, cl], source: {FILES}/windows.txt, batch_size: 4,
     transform: {{crop_size: 8}}}}
  - {{name: rows, type: HDF5Data, top: t0, source: {FILES}/rows.txt, batch_size: 4}}
  - {{name: boxes, type: AnnotatedData, top: [d, dl], source: {FILES}/boxes_lmdb, batch_size: 4}}
  - {{name: ip, type: InnerProduct, bottom: a, num_output: 5}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, al]}}
solver: {{base_lr: 0.001, max_iter: 9}}
"""
POINTS = """
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [4, 6, 5, 4]}, {dim: [4]}]}
  - {name: conv, type: Convolution, bottom: x, num_output: 8, kernel_size: 1, group: 2}
  - {name: ip, type: InnerProduct, num_output: 5}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
force_backward: true
solver: {base_lr: 0.001, average_loss: 3, max_iter: 9, regularization_type: L1, weight_decay: 0.1, ema_decay: 0.99}
"""


@dataclass(frozen=True)
class Case:
    """A net by its text or its file; with a solver it is trained, else run forward and backward."""

    net: str | Path
    engine: str = "auto"
    types: tuple[str, ...] = TYPES
    phases: tuple[str, ...] = ("TRAIN", "TEST")


def cases() -> dict[str, Case]:
    """All of them by name."""
    return dict([*_nets(), *_engines(), *_layers()])


def _nets() -> Iterator[tuple[str, Case]]:
    for engine in ("auto", "implicit", "batched", "caffe"):
        yield f"net of every layer, {engine}", Case(FEW, engine)
    yield "net of given arrays", Case(GIVEN_ARRAYS)
    yield "net of files", Case(FROM_FILES)
    for path in STEPS:
        text = path.read_text().replace("batch_size: 100", "batch_size: 6")
        yield f"net {path.name}", Case(re.sub(r"dim: \[[26]0", "dim: [2", text))
    for name in ("lenet", "lenet_paper", "mnist_siamese"):  # the large ones' layers have rows
        model = MODELS / f"{name}.yaml"
        for engine in ("auto", "implicit"):
            yield f"{model.name}, {engine}", Case(model, engine)
    yield "small LeNet", Case(LENET)


def _engines() -> Iterator[tuple[str, Case]]:
    """Each engine on images of one, two and three axes, in steps of 1 where it wants that; 1 x 1 filters."""
    yield "batched, 1 x 1", Case(POINTS, "batched")
    for window in (f"kernel_size: {k}, stride: {s}" for k in (3, 5) for s in (1, 2)):
        text = POINTS.replace("8, kernel_size: 1, group: 2", f"6, {window}, group: 6, pad: 2")
        yield f"direct, depthwise, {window}", Case(text, "direct")
    for engine in (*ENGINES, "auto"):
        stride = "1" if engine.startswith("winograd") else "2"
        for sizes in ("11", "9, 8", "7, 6, 5"):
            if stride == "1" and sizes.count(",") > 1:
                continue  # Winograd's has two axes at the most
            text = WINDOWS.replace("SIZES", sizes).replace("STRIDE", stride)
            yield f"engine {engine} on {sizes}", Case(text, engine)


def _layers() -> Iterator[tuple[str, Case]]:
    """Each row of the table of every layer, its output read twice and made a loss."""
    for name, rows in ROWS.items():
        if name in ON_THE_HOST:
            continue
        for number, (keys, bottoms) in enumerate(rows):
            yield f"layer {name}, row {number}", Case(net_of(name, keys, bottoms))
