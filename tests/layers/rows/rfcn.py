"""The layers of R-FCN."""

from __future__ import annotations

import numpy as np
from layers.rows.detection import REGIONS

KEYS = {"output_dim": 2, "group_size": 2, "spatial_scale": 0.5}
WITHOUT_GRADIENT = {"BoxAnnotatorOHEM", "Proposal"}
ROWS = {
    "PSROIPooling": [
        (KEYS, [(2, 8, 5, 6), REGIONS * [1, 2, 2, 2, 2] + 0.3 * np.array([0, 1, 1, 1, 1])]),
        ({"output_dim": 1, "group_size": 3, "spatial_scale": 1}, [(2, 9, 4, 3), REGIONS.reshape(4, 5, 1, 1)]),
    ],
}  # fmt: skip
