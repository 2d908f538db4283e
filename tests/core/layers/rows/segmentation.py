"""Layers of segmentation and of edges."""

import numpy as np

EDGES = (np.arange(24).reshape(2, 1, 3, 4) % 5 == 0) * 1.0
SOME = np.where(np.arange(24).reshape(2, 12) % 7 == 3, 0.5, EDGES.reshape(2, 12))

KINDS = np.array([[1.0, 0.0], [2.0, 3.0], [3.0, 1.0]])
WEIGHTS = {"class_weighting": [0.5, 2, 1, 3.5]}
SUMMED = {**WEIGHTS, "ignore_label": 1, "normalize": False, "top": ["it", "prob"]}
MEANS = {"kernel_size": 3, "dilation": [1, 2], "stride": 2, "pad": 1, "pool": "AVE"}

ROWS = {
    "DilatedPooling": [
        ({"kernel_size": 2, "dilation": 2}, [(2, 2, 5, 6)]),
        (MEANS, [(2, 2, 7, 6)]),
        ({"kernel_h": 2, "kernel_w": 3, "pad_h": 1, "pad_w": 0, "dilation": 2}, [(1, 2, 6, 7)]),
        ({"kernel_size": 2, "dilation": 4, "pad": 3, "stride": 3}, [(1, 2, 4, 5)]),
    ],
    "WeightedSoftmaxWithLoss": [
        (WEIGHTS, [(3, 4, 2), KINDS]),
        (SUMMED, [(3, 4, 2), KINDS]),
        ({**WEIGHTS, "ignore_label": 3, "normalization": "FULL", "axis": -1}, [(3, 2, 4), KINDS]),
    ],
    "SigmoidCrossEntropyBalanceLoss": [({}, [(2, 1, 3, 4), EDGES]), ({}, [(2, 12), SOME])],
    "ImResize": [
        ({"factor": 2.5}, [(1, 2, 3, 4)]),
        ({"target_spatial_width": 5, "target_spatial_height": 6, "scale_gap": 0.4}, [(2, 2, 7, 8)]),
    ],
}
WITHOUT_GRADIENT = {"SegAccuracy"}
