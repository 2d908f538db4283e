"""One net of every row of the contract table, and of the layers that have no row there, for a solver."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from core.layers.rows import ROWS
from core.solver.twins import Quiet

from minicaffe import Net, Solver, parse
from minicaffe.core.layers import REGISTRY

FILES = Path(__file__).parent.parent.parent / "fixtures" / "examples"
# Their tops vary in size: a net of them is not recorded, says tests/core/net/test_again.py
ELSEWHERE = {"BoxOutput", "DecodeBBox", "DetectionEvaluate", "DetectionOutput", "Filter"}
ELSEWHERE |= {"Proposal", "Python", "Yolov3DetectionOutput"}
DIGITS = """
  - {name: digits, type: Data, top: [digit, label], source: digits, batch_size: 4, transform: {crop_size: 6, mirror: true}}
  - {name: norm, type: BatchNorm, bottom: digit, top: normal}
  - {name: scores, type: InnerProduct, bottom: normal, num_output: 10}
  - {name: in place, type: Scale, bottom: scores, top: scores, filler: {type: constant, value: 3}}
  - {name: in place too, type: ELU, bottom: scores, top: scores}
  - {name: right, type: Accuracy, bottom: [scores, label]}
  - {name: wrong, type: SoftmaxWithLoss, bottom: [scores, label], loss_weight: 0.01}
  - {name: own, type: Stretched, bottom: scores}
  - {name: of own, type: Reduction, bottom: own, operation: MEAN, loss_weight: 0.1}
  - {name: of scores, type: Reduction, bottom: scores, operation: ASUM, loss_weight: 0.001}
"""
REST = (
    DIGITS.rstrip()
    + """
  - {name: seen, type: DummyData, top: [regions, of each], shape: [{dim: [4, 5]}, {dim: [4]}], data_filler: {type: gaussian}}
  - {name: hard, type: BoxAnnotatorOHEM, bottom: [regions, of each, of each, regions], top: [hard, pull], roi_per_img: 1}
  - {name: goes on, type: ContinuationIndicator, time_step: 3, batch_size: 2}
  - {name: steps, type: DummyData, top: steps, shape: {dim: [3, 2, 4]}, data_filler: {type: gaussian}}
  - {name: said, type: CTCGreedyDecoder, bottom: [steps, goes on]}
  - {name: learnt, type: Parameter, shape: {dim: [2, 3]}}
  - {name: all of it, type: Reduction, bottom: learnt, operation: SUM, loss_weight: 1}
  - {name: boxes, type: PriorBox, bottom: [image, image], min_size: 2}
  - {name: more boxes, type: PriorBoxClustered, bottom: [image, image], width: 2, height: 3}
  - {name: image, type: ImageData, top: [image, kind], source: FILES/images.txt, batch_size: 4}
  - {name: dense, type: DenseImageData, top: [dense, dense labels], source: FILES/pairs.txt, batch_size: 4, mirror: true}
  - {name: edges, type: ImageLabelmapData, top: [pairs, edges], source: FILES/pairs.txt, batch_size: 4, shuffle: true}
  - {name: clip, type: VideoData, top: [clip, of clip], source: FILES/clips.txt, batch_size: 4, new_length: 2}
  - {name: boxed, type: AnnotatedData, top: [boxed, true boxes], source: FILES/boxes_lmdb, batch_size: 4}
  - {name: seen pixels, type: SegAccuracy, bottom: [dense, edges]}
  - {name: window, type: WindowData, top: [window, of], source: FILES/windows.txt, batch_size: 4, transform: {crop_size: 8}}
  - {name: rows, type: HDF5Data, top: t0, source: FILES/rows.txt, batch_size: 4}
  - {name: given, type: MemoryData, top: [image in memory, its label], batch_size: 4, channels: 2, height: 3, width: 2}
  - {name: learns too, type: InnerProduct, bottom: image in memory, num_output: 3}
  - {name: of memory, type: Reduction, bottom: learns too, operation: ASUM, loss_weight: 0.01}
  - {name: written, type: HDF5Output, bottom: [image in memory, its label], top: [], file_name: OUTPUT}
"""
)


class Every:
    """Makes solvers of the net; `whole`: of all rows, else of the first of each type, or of `names` alone."""

    def __init__(
        self,
        whole: bool,
        device: Any = "cpu",
        dtype: str | None = None,
        names: Collection[str] = ROWS,
        rest: str = REST,
        **solver: Any,
    ):
        self.rest = rest
        self.settings = {"device": device, "dtype": dtype, "report": Quiet()}
        self.given: dict[str, np.ndarray] = {}  # to Input
        self.shapes: dict[str, tuple[int, ...]] = {}  # of what is drawn anew in each pass
        self.layers: list[str] = []
        for name, rows in ROWS.items():
            for i, (keys, bottoms) in enumerate(rows if whole else rows[:1]):
                if name in names and name not in ELSEWHERE:
                    self.layers += self.row(f"{name}{i}", name, dict(keys), bottoms)
        self.made, self.solver = 0, {"max_iter": 1000, "snapshot_after_train": False} | solver

    def row(self, it: str, name: str, keys: dict[str, Any], bottoms: list[Any]) -> Iterator[str]:
        """The layers of a row: what is given, times a number that is learnt; the layer; a loss of each top."""
        names, size = [f"{it} b{i}" for i in range(len(bottoms))], 1.0
        for i, (bottom, given) in enumerate(zip(names, bottoms, strict=True)):
            no_gradient = i in REGISTRY[name].traits.label_bottoms
            source = bottom if no_gradient else f"{bottom} x"
            if isinstance(given, tuple):
                self.shapes[source] = given
            else:
                self.given[source] = np.asarray(given)
            if not no_gradient:
                size = max(size, float(np.abs(self.given.get(source, 1)).max()))
                yield layer(bottom, "Scale", [source], [bottom], num_axes=0)
        tops = [f"{it} {top}" for top in keys.pop("top", ["it"])]
        if REGISTRY[name].traits.is_loss:
            keys["loss_weight"] = [0.01 / size**2, *[0] * (len(tops) - 1)]
        yield layer(it, name, names, tops, **keys)
        for top in tops:
            weight = 0.01 / size ** (4 if REGISTRY[name].traits.is_loss else 2)
            keys = {"operation": "PROD", "loss_weight": weight}
            yield layer(f"{top} squared", "Eltwise", [top, top], [f"{top} squared"], **keys)

    def text(self) -> str:
        """The model."""
        drawn = {"shape": [{"dim": list(shape)} for shape in self.shapes.values()]}
        drawn["data_filler"] = [{"type": "gaussian"}]
        given = {"shape": [{"dim": list(array.shape)} for array in self.given.values()]}
        rest = self.rest.replace("FILES", str(FILES)).replace("OUTPUT", f"out{self.made}.h5")
        self.made += 1
        lines = ["layers:"]
        lines += [layer("drawn", "DummyData", [], list(self.shapes), **drawn)] * bool(self.shapes)
        lines += [layer("inputs", "Input", [], list(self.given), **given)] * bool(self.given)
        lines += self.layers
        lines += sorted(rest.strip("\n").split("\n"), key=lambda line: "PriorBox" in line)
        return "\n".join([*lines, f"solver: {text(self.solver)}"])

    def fill(self, net: Net) -> None:
        """Give a net all that it is given."""
        random = np.random.default_rng(4)
        if "given" in net.layers:
            net.layers["given"].reset(random.normal(size=(12, 2, 3, 2)), np.arange(12) % 3)
        for name, array in self.given.items():
            net.device.copy_from_host(net.blobs[name].data, array)

    def __call__(self) -> Solver:
        """A solver, with all that is given to it."""
        return self.solver_of(parse(self.text()), **self.settings)

    def solver_of(self, model: Any, **settings: Any) -> Solver:
        """A solver of a model, likewise."""
        made = Solver(model, **settings)
        self.fill(made.net)
        return made


def layer(name: str, kind: str, bottoms: list[str], tops: list[str], **keys: Any) -> str:
    """A line of the model."""
    return f"  - {text({'name': name, 'type': kind, 'bottom': bottoms, 'top': tops} | keys)}"


def text(keys: Any) -> str:
    """Keys as YAML."""
    if isinstance(keys, dict):
        return "{" + ", ".join(f"{key}: {text(value)}" for key, value in keys.items()) + "}"
    if isinstance(keys, (list, tuple)):
        return "[" + ", ".join(map(text, keys)) + "]"
    return {True: "true", False: "false"}[keys] if isinstance(keys, bool) else str(keys)
