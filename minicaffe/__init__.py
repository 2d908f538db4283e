"""minicaffe: the Caffe you can pip install. The public names, imported when they are first used."""

from __future__ import annotations

import importlib
from typing import Any

from minicaffe import forks, plugins

__version__ = "0.2.0"

_HOMES = {
    "Adapted": "own_data",
    "Blob": "layers",
    "CheckpointError": "errors",
    "Classifier": "deploy",
    "Engine": "ops.conv",
    "DataError": "errors",
    "Detector": "deploy",
    "DeviceError": "errors",
    "Layer": "layers",
    "MinicaffeError": "errors",
    "Net": "net",
    "Param": "layers",
    "Rule": "solver.rules",
    "ShapeError": "errors",
    "Solver": "solver",
    "SpecError": "errors",
    "TrainingError": "errors",
    "Traits": "layers",
    "GradientError": "gradient_check",
    "col2im": "ops.unroll",
    "gradcheck": "gradient_check",
    "adapt": "own_data",
    "im2col": "ops.unroll",
    "parse": "net",
    "predict": "deploy",
    "read": "net",
    "register": "layers",
    "register_engine": "ops.conv",
    "register_rule": "solver.rules",
}

_MODULES = {"caffe": "caffe", "deploy": "deploy", "drawing": "inspect.drawing", "export": "export"}


plugins.HOOKS.append("minicaffe.runs.hooks")
plugins.register_format(
    plugins.MODELS, (".prototxt", ".pbtxt", ".prototxt.txt"), "minicaffe.caffe.model"
)
plugins.register_format(plugins.WEIGHTS, (".caffemodel", ".h5"), "minicaffe.caffe.weights")
plugins.register_format(
    plugins.STATES, (".solverstate", ".solverstate.h5"), "minicaffe.caffe.state"
)
plugins.register_format(plugins.NAMES, ("",), "minicaffe.caffe.label_map")
plugins.LAYERS += [
    *(f"minicaffe.feeding.{name}" for name in ("data", "hdf5_data", "image_data", "memory_data")),
    "minicaffe.feeding.window_data",
    "minicaffe.pycaffe.python",
]
plugins.FORKS |= {
    kind: f"minicaffe.forks.{file}" for file, fork in forks.FORKS.items() for kind in fork.types
}

__all__ = sorted([*_HOMES, *_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"minicaffe.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module 'minicaffe' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"minicaffe.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
