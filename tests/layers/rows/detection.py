"""The layers of detectors."""

from __future__ import annotations

import numpy as np

MAPS = np.random.default_rng(3).permutation(2 * 3 * 5 * 6).reshape(2, 3, 5, 6) / 10  # none alike
REGIONS = np.array([[0, 0, 0, 5, 4], [1, 2, 1, 3, 9], [1, 4, 3, 2, 0], [0, -3, -3, 1, 2]], float)

WITHOUT_GRADIENT = {"PriorBox", "DetectionOutput", "PriorBoxClustered", "Yolov3DetectionOutput"}
ROWS = {
    "ROIPooling": [
        ({"pooled_h": 2, "pooled_w": 3}, [MAPS, REGIONS]),
        ({"pooled_h": 7, "pooled_w": 1, "spatial_scale": 0.5}, [MAPS, REGIONS.reshape(4, 5, 1, 1)]),
    ],
}
