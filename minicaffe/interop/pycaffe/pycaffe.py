"""The names that scripts import from `caffe.pycaffe`."""

from minicaffe.interop.pycaffe.mode import Timer
from minicaffe.interop.pycaffe.net import Net
from minicaffe.interop.pycaffe.solver import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
)

__all__ = [
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Net",
    "NesterovSolver",
    "RMSPropSolver",
    "SGDSolver",
    "Timer",
]
