"""Training: when to step, test and save."""

from minicaffe.core.solver.report import Report
from minicaffe.core.solver.scores import mean_outputs
from minicaffe.core.solver.solver import Solver

__all__ = ["Report", "Solver", "mean_outputs"]
