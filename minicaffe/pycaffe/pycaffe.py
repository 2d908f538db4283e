"""The names that scripts import from `caffe.pycaffe`."""

from minicaffe.pycaffe.mode import Timer
from minicaffe.pycaffe.net import Net
from minicaffe.pycaffe.solver import (
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
