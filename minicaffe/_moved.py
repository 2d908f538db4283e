"""The names that modules had until 0.2: they stand for the modules of today, for one release.

`minicaffe.pycaffe`, and what else is PUBLIC, stays; any other old name warns when it is imported.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

PUBLIC = {
    "caffe": "interop.caffe",
    "deploy": "tools.deploy",
    "drawing": "tools.visualize.drawing",
    "export": "interop.onnx.writer",
    "parallel": "tools.parallel",
    "pycaffe": "interop.pycaffe",
}
MOVED = {  # of names that begin alike, the longest counts
    "backend": "backends.device",
    "bridges": "interop.onnx.reader",
    "bridges.naming": "interop.onnx.draft",
    "bridges.readers": "interop.onnx.operators",
    "caches": "storage.caches",
    "calibration": "interop.chips.calibration",
    "checkpoint": "storage.checkpoint",
    "communicator": "core.communicator",
    "cpu": "backends.cpu",
    "cuda": "backends.cuda",
    "data": "tools.data",
    "export.table": "interop.onnx.table",
    "export.writers": "interop.onnx.operators",
    "feeding": "tools.data.layers",
    "forks": "interop.caffe.forks",
    "formulas": "backends.formulas",
    "gradient_check": "core.gradient_check",
    "inspect": "tools.visualize",
    "inspect.timing": "tools.training.speed",
    "layers": "core.layers",
    "listener": "backends.launch_listener",
    "net": "core.net",
    "ops": "core.ops",
    "ops.unroll": "tools.im2col",
    "own_data": "tools.own_data",
    "pictures": "tools.data.pictures",
    "replay": "backends.replay",
    "report": "tools.report",
    "runs": "tools.training",
    "solver": "core.solver",
    "spec": "core.config",
    "thread_state": "backends.thread_state",
}
_MERGED = """
bridges interop.chips: chips chips lower chips
caffe core.net: pen yaml_text sparse yaml_text weight_files model yaml_text yaml_text
cpu backends: load load
data storage: blob_file wire hdf5 hdf5 lists lists read_at file_kinds wire wire
data storage: safetensors_file safetensors_file
data tools.data: annotated datum recipe augment resize augment weight_table weights
export interop.onnx.writer: graph model
export interop.torch: torch torch torch_modules torch
export tools: folding folding inference inference preparation deploy
feeding tools.data.layers: image_data data transform pictures fed pictures window_data data
forks interop.caffe.forks: adaptation metrics annotated data between whole bilinear resize deeplab resize
forks interop.caffe.forks: deformable pairs dilated pooling evaluate ssd fast_rcnn pooling flow pairs
forks interop.caffe.forks: hed metrics mnc pooling mscnn proposals openpose resize openvino ssd rfcn pooling
forks interop.caffe.forks: multibox ssd segnet metrics video data yolo resize
forks tools.data.layers: label_maps data
layers storage: files wire
layers core.layers: activation elementwise batch_norm normalization dummy inputs label_loss losses
layers core.layers: loss softmax lrn normalization order context pair_loss losses softmax_loss softmax
layers core.layers: sequence recurrent shape routing share context unknown registry
net backends.replay: guards guards inference_replay inference passes training
net core.net: access net copies net sharing memory
ops core.ops: activation random average update eltwise arrays embed take infogain label_losses stochastic pool
ops core.ops: accuracy softmax labels softmax roi_pool pool statistics rows unpool pool whole_batch normalize
ops.conv core.ops.conv: tiles winograd transforms winograd
ops tools.training: usage speed
ops.conv backends.cpu.conv: depthwise direct panels packed_gemm space_to_depth packed_gemm
ops.conv backends.cpu.conv: strips strips winograd_filters winograd_filters winograd_compiled winograd
solver backends.replay: compare training
solver core.solver: judging scores policies learning_rate recording snapshots rules update_rules
solver core.solver: saving snapshots state snapshots trend scores
solver core: together communicator
drawing tools.visualize.drawing: coordinates ranks text graph
runs tools.training: log_file folder nan_diagnosis divergence resume run replay_step divergence record run
report tools.report: payload make pictures sections
parallel tools.parallel: agreement ranks buckets ranks nccl mpi
spec core.config: blocks settings mark tree schema model solver declare solver_rules declare state declare
"""  # an old folder, that of today, and of each file in it the file that it is in now
for _old, _new, *_words in (line.replace(":", "").split() for line in _MERGED.strip().split("\n")):
    for _name, _file in zip(_words[::2], _words[1::2], strict=True):
        MOVED[f"{_old}.{_name}"] = f"{_new}.{_file}"


def today(name: str) -> str:
    """Returns the name of today of a module's old name; the same if it has not moved."""
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        if (home := _HOMES.get(".".join(parts[1:count]))) is not None:
            return ".".join(["minicaffe", home, *parts[count:]])
    return name


_HOMES = {**MOVED, **PUBLIC}
# `from minicaffe.data import wire` looks for it where `data` is now
for _name, _home in MOVED.items():
    _room, _, _file = _name.rpartition(".")
    if _room:
        _HOMES[f"{today(f'minicaffe.{_room}').partition('.')[2]}.{_file}"] = _home


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its old name, as the module of today itself; and `caffe`, where that was asked for."""

    finds_caffe = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns a spec for a name that has moved, else None."""
        if self.finds_caffe and fullname.split(".")[0] == "caffe":
            return importlib.machinery.ModuleSpec(fullname, self)
        if not fullname.startswith("minicaffe.") or (name := today(fullname)) == fullname:
            return None
        if fullname.split(".")[1] not in PUBLIC:
            warnings.warn(
                f"{fullname} is {name} now; the old name goes with 0.3", DeprecationWarning, 2
            )
        return importlib.machinery.ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> Any:
        """Put the module of today in the place of an empty one."""
        first, dot, rest = (name := module.__name__).partition(".")
        home = f"minicaffe.pycaffe{dot}{rest}" if first == "caffe" else name
        sys.modules[name] = importlib.import_module(today(home))
