"""Layers of segmentation and of edges."""

from __future__ import annotations

import numpy as np

EDGES = (np.arange(24).reshape(2, 1, 3, 4) % 5 == 0) * 1.0
SOME = np.where(np.arange(24).reshape(2, 12) % 7 == 3, 0.5, EDGES.reshape(2, 12))

KINDS = np.array([[1.0, 0.0], [2.0, 3.0], [3.0, 1.0]])
WEIGHTS = {"class_weighting": [0.5, 2, 1, 3.5]}

ROWS = {
    "WeightedSoftmaxWithLoss": [
        (WEIGHTS, [(3, 4, 2), KINDS]),
        (
            {**WEIGHTS, "ignore_label": 1, "normalize": False, "top": ["it", "prob"]},
            [(3, 4, 2), KINDS],
        ),
        ({**WEIGHTS, "ignore_label": 3, "normalization": "FULL", "axis": -1}, [(3, 2, 4), KINDS]),
    ],
    "SigmoidCrossEntropyBalanceLoss": [({}, [(2, 1, 3, 4), EDGES]), ({}, [(2, 12), SOME])],
    "ImResize": [
        ({"factor": 2.5}, [(1, 2, 3, 4)]),
        ({"target_spatial_width": 5, "target_spatial_height": 6, "scale_gap": 0.4}, [(2, 2, 7, 8)]),
    ],
}
WITHOUT_GRADIENT = {"SegAccuracy"}
