"""Training: when to step, test and save."""

from minicaffe.solver.report import Report
from minicaffe.solver.solver import Solver, mean_outputs

__all__ = ["Report", "Solver", "mean_outputs"]
