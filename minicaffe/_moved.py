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
    "bridges.chips": "interop.chips.chips",
    "bridges.lower": "interop.chips.chips",
    "bridges.naming": "interop.onnx.draft",
    "bridges.readers": "interop.onnx.operators",
    "caches": "storage.caches",
    "caffe.pen": "core.net.yaml_text",
    "caffe.sparse": "core.net.yaml_text",
    "caffe.weight_files": "core.net.model",
    "caffe.yaml_text": "core.net.yaml_text",
    "calibration": "interop.chips.calibration",
    "checkpoint": "storage.checkpoint",
    "communicator": "core.communicator",
    "cpu": "backends.cpu",
    "cuda": "backends.cuda",
    "data": "tools.data",
    "data.blob_file": "storage.wire",
    "data.hdf5": "storage.hdf5",
    "data.lists": "storage.lists",
    "data.read_at": "storage.file_kinds",
    "data.resize": "tools.data.augment",
    "data.safetensors_file": "storage.safetensors_file",
    "data.weight_table": "tools.data.weights",
    "data.wire": "storage.wire",
    "export.folding": "tools.folding",
    "export.inference": "tools.inference",
    "export.preparation": "tools.preparation",
    "export.torch": "interop.torch.torch",
    "export.torch_modules": "interop.torch.torch",
    "export.table": "interop.onnx.table",
    "export.writers": "interop.onnx.operators",
    "feeding": "tools.data.layers",
    "forks": "interop.caffe.forks",
    "forks.label_maps": "tools.data.layers.label_maps",
    "formulas": "backends.formulas",
    "gradient_check": "core.gradient_check",
    "inspect": "tools.visualize",
    "layers": "core.layers",
    "listener": "backends.launch_listener",
    "net": "core.net",
    "ops": "core.ops",
    "own_data": "tools.own_data",
    "pictures": "tools.data.pictures",
    "replay": "backends.replay",
    "report": "tools.report",
    "runs": "tools.training",
    "solver": "core.solver",
    "solver.policies": "core.solver.learning_rate",
    "solver.rules": "core.solver.update_rules",
    "spec": "core.config",
    "spec.solver": "core.config.declare",
    "spec.solver_rules": "core.config.declare",
    "thread_state": "backends.thread_state",
}


def today(name: str) -> str:
    """Returns the name of today of a module's old name; the same if it has not moved.

    >>> today("minicaffe.data.wire"), today("minicaffe.data.idx"), today("minicaffe.core.net")
    ('minicaffe.storage.wire', 'minicaffe.tools.data.idx', 'minicaffe.core.net')
    """
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        if (home := _HOMES.get(".".join(parts[1:count]))) is not None:
            return ".".join(["minicaffe", home, *parts[count:]])
    return name


_HOMES = {**MOVED, **PUBLIC}
# `from minicaffe.data import wire` looks for it where `data` is now
_HOMES |= {
    f"{_HOMES[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}": home
    for name, home in MOVED.items()
    if "." in name
}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its old name, as the module of today itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns a spec for a name that has moved, else None."""
        if not fullname.startswith("minicaffe.") or (name := today(fullname)) == fullname:
            return None
        if fullname.split(".")[1] not in PUBLIC:
            warnings.warn(
                f"{fullname} is {name} now; the old name goes with 0.3", DeprecationWarning, 2
            )
        return importlib.machinery.ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> Any:
        """Put the module of today in the place of an empty one."""
        sys.modules[module.__name__] = importlib.import_module(today(module.__name__))
