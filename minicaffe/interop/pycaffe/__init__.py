"""Caffe's Python interface over minicaffe: `import minicaffe.pycaffe as caffe`.

The names are Caffe's own, imported when they are first used.
"""

import importlib
from typing import Any

from minicaffe import __version__ as __version__

TRAIN, TEST = 0, 1

_NAMES = """
classifier: Classifier
detector: Detector
host_blob: Layer
mode: Timer has_nccl init_log log set_device set_mode_cpu set_mode_gpu set_multiprocess set_random_seed
  set_solver_count set_solver_rank solver_count solver_rank
net: Net layer_type_list
net_spec: NetSpec layers params to_proto
solver: AdaDeltaSolver AdaGradSolver AdamSolver NesterovSolver RMSPropSolver SGDSolver get_solver
  get_solver_from_string
"""
_HOMES = {
    name: home
    for home, _, names in (row.partition(": ") for row in _NAMES.replace("\n  ", " ").split("\n"))
    for name in names.split()
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
