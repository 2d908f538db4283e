"""The displayed losses and test results of a solver, as arrays to plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Shown = tuple[int, float, float]
Tested = tuple[int, Mapping[str, Any]]


def columns(shown: Sequence[Shown], tests: Sequence[Tested]) -> dict[str, np.ndarray]:
    """A column for each number: `iteration`, `loss`, `lr`; of tests `test_iteration`, and `test_` and output.

    >>> log = columns([(0, 2.5, 0.1), (10, 1.5, 0.01)], [(10, {"accuracy": 0.5})])
    >>> log["loss"], log["test_accuracy"]
    (array([2.5, 1.5]), array([0.5]))
    """
    numbers = np.array(shown, np.float64).reshape(-1, 3).T
    log = dict(zip(("iteration", "loss", "lr"), numbers, strict=True))
    log["iteration"] = log["iteration"].astype(int)
    log["test_iteration"] = np.array([iteration for iteration, _ in tests], int)
    for name in tests[0][1] if tests else ():
        log[f"test_{name}"] = np.array([scores[name] for _, scores in tests])
    return log
