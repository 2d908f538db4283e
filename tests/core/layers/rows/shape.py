"""Layers that move numbers, sum them, resize images."""

import numpy as np

X = (2, 4, 5, 6)
MASK = np.stack([np.random.default_rng(i).permutation(42)[:6] for i in range(4)]) * 1.0
MASK[1, 2] = -1  # the window held no pixel

ROWS = {
    "Reshape": [
        ({"shape": {"dim": [0, -1, 3]}}, [X]),
        ({"shape": {"dim": [2, 10]}, "axis": 1, "num_axes": 2}, [X]),
        ({"shape": {"dim": 1}, "axis": -1, "num_axes": 0}, [(2, 3)]),
        ({"axis": 1}, [(3, 1, 1)]),
    ],
    "Permute": [({"order": (0, 2, 3, 1)}, [X]), ({"order": (3, 1)}, [X]), ({}, [(2, 3)])],
    "ShuffleChannel": [({"group": 2}, [X]), ({"group": 3}, [(2, 6)])],
    "Crop": [
        ({"offset": (1, 2)}, [X, (2, 4, 3, 4)]),
        ({"axis": -3, "offset": 1}, [X, (9, 2, 3, 4)]),
        ({"axis": 0}, [(3, 2), (1, 2)]),
    ],
    "Tile": [
        ({"tiles": 3}, [X]),
        ({"tiles": 2, "axis": 0}, [(2, 3)]),
        ({"tiles": 4, "axis": -1}, [X]),
    ],
    "Slice": [
        ({"slice_point": (1, 3), "top": ["a", "b", "c"]}, [X]),
        ({"slice_dim": 3, "top": ["a", "b"]}, [X]),
        ({"axis": -2, "top": ["it"]}, [X]),
    ],
    "Split": [({"top": ["a", "b", "c"]}, [X]), ({"top": ["it"]}, [(2, 3)])],
    "Silence": [({"top": []}, [X, (2, 3)])],
    "BatchReindex": [
        ({}, [X, np.array([1.0, 0.0, 1.0, 1.0, 0.0])]),
        ({}, [(3,), np.array([2.0, 2.0])]),
    ],
    "Reduction": [
        ({"axis": 1, "coeff": 0.3}, [X]),
        ({"operation": "ASUM", "axis": -1}, [X]),
        ({"operation": "SUMSQ", "axis": 2, "coeff": -2.0}, [X]),
        ({"operation": "MEAN"}, [X]),
    ],
    "ArgMax": [
        ({"top_k": 3, "out_max_val": True}, [X]),
        ({"axis": 1, "top_k": 2}, [X]),
        ({"axis": -1, "out_max_val": True}, [(3, 4)]),
    ],
    "SPP": [
        ({"pyramid_height": 3}, [(2, 2, 8, 9)]),
        ({"pyramid_height": 2, "pool": "AVE"}, [(2, 2, 5, 7)]),
        ({"pyramid_height": 2, "pool": "STOCHASTIC"}, [(2, 2, 4, 6)]),
        ({"pyramid_height": 1}, [X]),
    ],
    "Interp": [
        ({"zoom_factor": 3}, [X]),
        ({"height": 4, "width": 11, "pad_beg": -1, "pad_end": -2}, [X]),
        ({"shrink_factor": 2, "zoom_factor": 3}, [X]),
        ({"height": 1, "width": 1}, [X]),
        ({}, [X, (1, 1, 3, 8)]),
    ],
    "Upsample": [
        ({"upsample_h": 6, "upsample_w": 7}, [(2, 2, 2, 3), MASK.reshape(2, 2, 2, 3)]),
        ({"scale": 4, "pad_out_h": True}, [(1, 4, 2, 3), MASK.reshape(1, 4, 2, 3)]),
        ({"scale_h": 2, "scale_w": 3}, [X]),
        ({}, [X]),
    ],
}
WITHOUT_GRADIENT = {"DummyData", "Filter"}
