"""The layers of R-FCN."""

import numpy as np
from core.layers.rows.detection import REGIONS

KEYS = {"output_dim": 2, "group_size": 2, "spatial_scale": 0.5}
WITHOUT_GRADIENT = {"BoxAnnotatorOHEM", "Proposal"}
PULL = np.random.default_rng(4).uniform(0.5, 2, (4, 3))
KINDS = np.array([1.0, 0.0, 2.0, 1.0])
ROWS = {
    "SmoothL1LossOHEM": [
        ({}, [(4, 3), (4, 3)]),
        ({"normalization": "PRE_FIXED", "pre_fixed_normalizer": 7.0}, [(4, 3), (4, 3), PULL]),
        ({"normalize": False, "top": ["it", "each"]}, [(2, 3, 2, 1), (2, 6), PULL.reshape(2, 6)]),
        ({"normalization": "NONE"}, [(4, 3), (4, 3), PULL]),
    ],
    "SoftmaxWithLossOHEM": [
        ({"top": ["it", "prob"]}, [(4, 3), KINDS]),
        ({"ignore_label": 2, "normalization": "PRE_FIXED", "pre_fixed_normalizer": 5.0,
          "top": ["it", "prob", "each"]}, [(4, 3), KINDS.reshape(4, 1, 1, 1)]),
        ({"normalize": False, "axis": -2, "top": ["it", "prob", "each"]}, [(2, 3, 2), KINDS]),
        ({"normalization": "FULL", "ignore_label": 1, "top": ["it", "prob", "each"]}, [(2, 3, 2), KINDS]),
    ],
    "PSROIPooling": [
        (KEYS, [(2, 8, 5, 6), REGIONS * [1, 2, 2, 2, 2] + 0.3 * np.array([0, 1, 1, 1, 1])]),
        ({"output_dim": 1, "group_size": 3, "spatial_scale": 1}, [(2, 9, 4, 3), REGIONS.reshape(4, 5, 1, 1)]),
    ],
}  # fmt: skip
