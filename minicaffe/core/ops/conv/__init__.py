"""Engines that lower a convolution to matrix products, and the planner that selects one."""

from minicaffe.core.ops.conv import common
from minicaffe.core.ops.conv.engine import ENGINES, Engine, hint, names, register_engine
from minicaffe.core.ops.conv.plan import CAP, Plan, check, check_name, plan

__all__ = [
    "CAP",
    "ENGINES",
    "Engine",
    "Plan",
    "check",
    "check_name",
    "common",
    "hint",
    "names",
    "plan",
    "register_engine",
]
