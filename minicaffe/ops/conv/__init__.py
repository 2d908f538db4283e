"""Ways to lower a convolution to matrix products, all with one signature, and the planner that picks."""

from minicaffe.ops.conv import common
from minicaffe.ops.conv.plan import CAP, Plan, check, check_name, plan
from minicaffe.ops.conv.strategies import STRATEGIES

__all__ = ["CAP", "STRATEGIES", "Plan", "check", "check_name", "common", "plan"]
