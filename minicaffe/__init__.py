"""minicaffe: the Caffe you can pip install. The public names, imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from minicaffe._moved import PUBLIC, Finder
from minicaffe.core import plugins
from minicaffe.interop.caffe import forks

__version__ = "0.2.0"

_HOMES = {
    "errors": "CheckpointError DataError DeviceError MinicaffeError ShapeError SpecError TrainingError",
    "core.gradient_check": "GradientError gradcheck",
    "core.layers": "Blob Layer Param Traits register",
    "core.net": "Net parse read",
    "core.layers.context": "Numerics",
    "core.ops.conv": "Engine register_engine",
    "tools.im2col": "col2im im2col",
    "core.solver": "Solver",
    "core.solver.own_rules": "Rule register_rule",
    "tools.deploy": "Classifier Detector predict",
    "tools.own_data": "Adapted adapt",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

sys.meta_path.insert(0, Finder())
plugins.HOOKS.append("minicaffe.tools.hooks")
plugins.register_format(
    plugins.MODELS, (".prototxt", ".pbtxt", ".prototxt.txt"), "minicaffe.interop.caffe.model"
)
plugins.register_format(plugins.WEIGHTS, (".caffemodel", ".h5"), "minicaffe.interop.caffe.weights")
plugins.register_format(
    plugins.STATES, (".solverstate", ".solverstate.h5"), "minicaffe.interop.caffe.state"
)
plugins.register_format(plugins.NAMES, ("",), "minicaffe.interop.caffe.label_map")
_DATA_LAYERS = ("data", "hdf5_data", "memory_data")
plugins.LAYERS += [f"minicaffe.tools.data.layers.{name}" for name in _DATA_LAYERS]
plugins.LAYERS += ["minicaffe.interop.pycaffe.python"]
plugins.FORKS |= {
    kind: f"minicaffe.interop.caffe.forks.{fork.file}"
    for fork in forks.FORKS
    for kind in fork.types
}

__all__ = sorted([*_HOME, *PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return importlib.import_module(f"minicaffe.{PUBLIC[name]}")
    if name not in _HOME:
        raise AttributeError(f"module 'minicaffe' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"minicaffe.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
