"""Training: when to step, test and save."""

from minicaffe.solver.report import Report
from minicaffe.solver.scores import mean_outputs
from minicaffe.solver.solver import Solver

__all__ = ["Report", "Solver", "mean_outputs"]
