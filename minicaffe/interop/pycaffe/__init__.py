"""Caffe's Python interface over minicaffe: `import minicaffe.pycaffe as caffe`.

The names are Caffe's own, imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from minicaffe import __version__ as __version__

TRAIN, TEST = 0, 1

_HOMES = {
    "AdaDeltaSolver": "solver",
    "AdaGradSolver": "solver",
    "AdamSolver": "solver",
    "Classifier": "classifier",
    "Detector": "detector",
    "Layer": "host_blob",
    "Net": "net",
    "NetSpec": "net_spec",
    "NesterovSolver": "solver",
    "RMSPropSolver": "solver",
    "SGDSolver": "solver",
    "Timer": "mode",
    "get_solver": "solver",
    "get_solver_from_string": "solver",
    "has_nccl": "mode",
    "init_log": "report",
    "layer_type_list": "net",
    "layers": "net_spec",
    "log": "report",
    "params": "net_spec",
    "set_device": "mode",
    "set_mode_cpu": "mode",
    "set_mode_gpu": "mode",
    "set_multiprocess": "mode",
    "set_random_seed": "mode",
    "set_solver_count": "mode",
    "set_solver_rank": "mode",
    "solver_count": "mode",
    "solver_rank": "mode",
    "to_proto": "net_spec",
}

_MODULES = ("classifier", "coord_map", "detector", "draw", "io", "net_spec", "proto", "pycaffe")

__all__ = sorted([*_HOMES, *_MODULES, "TEST", "TRAIN", "__version__"])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"minicaffe.interop.pycaffe.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'minicaffe.pycaffe' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"minicaffe.interop.pycaffe.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
