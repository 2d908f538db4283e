"""Layers of face recognition and losses of distances."""

import numpy as np

LABELS = np.array([1.0, 0.0, 3.0])
GROUPS = np.array([2.0, 2.0, 0.0, 0.0, 0.0, 1.0])
PAIRS = [(3, 4), (3, 4)]
WEIGHTS = np.random.default_rng(7).uniform(0.5, 2, (3, 4))
ANSWERS = np.random.default_rng(8).dirichlet([1, 1, 1], 4)
CLASSES = {"num_output": 5, "weight_filler": "gaussian"}

OWN_GRADIENT = {"CenterLoss", "MarginInnerProduct"}
ROWS = {
    "CenterLoss": [
        ({"num_output": 4}, [(3, 4), LABELS]),
        ({"num_output": 4, "center_filler": "gaussian", "axis": -1}, [(1, 3, 2), LABELS]),
    ],
    "MarginInnerProduct": [
        (CLASSES, [(3, 4), LABELS]),
        ({**CLASSES, "margin_type": "DOUBLE", "base": 3.0, "gamma": 0.5}, [(3, 4), LABELS]),
        ({**CLASSES, "margin_type": "TRIPLE", "lambda_min": 0.3, "base": 0.1}, [(3, 4), LABELS]),
        (
            {**CLASSES, "margin_type": "QUADRUPLE", "base": 0.0, "top": ["it", "lambda"]},
            [(3, 2, 2), LABELS],
        ),
    ],
    "InnerDistance": [
        ({"num_output": 5}, [(3, 4)]),
        ({"num_output": 5, "distance_type": "L1"}, [(3, 2, 2)]),
        ({"axis": 2}, [(2, 3, 4), (5, 4)]),
        ({"distance_type": "L1"}, [(3, 4), (2, 4)]),
    ],
    "Flip": [
        ({}, [(2, 3, 4, 5)]),
        ({"flip_height": True}, [(2, 3, 4, 5)]),
        ({"flip_height": True, "flip_width": False}, [(2, 3, 4, 5)]),
    ],
    "L1Loss": [({}, PAIRS), ({}, [(2, 3, 2), (2, 6)])],
    "ManhattanLoss": [({}, PAIRS)],
    "WeightedEuclideanLoss": [({}, [*PAIRS, WEIGHTS]), ({}, [(3, 2, 2), (3, 4), WEIGHTS])],
    "BatchTripletLoss": [  # of which all triplets lose: else the gradient is by its authors' rule
        ({"margin": 90.0, "mu": 0.7}, [(6, 3), GROUPS]),
        ({"margin": 90.0, "top": ["it", "right"]}, [(6, 3), GROUPS]),
        ({"margin": 90.0, "mu": 0.0}, [(6, 3), GROUPS]),
    ],
    "DiceCoefLoss": [  # of one sample: of n the gradient is by n too large, as the authors'
        ({}, [(1, 4), (1, 4)]),
        ({}, [(1, 3, 2), (1, 6)]),
    ],
    "L2Norm": [({}, [(3, 4)]), ({}, [(2, 3, 2)]), ({}, [(1, 4)])],
    "EntropyLoss": [({}, [ANSWERS]), ({"threshold": 0.4}, [ANSWERS.reshape(2, 2, 3)])],
    "JMMDLoss": [
        (
            {"fix_gamma": True, "sigma": 1.68, "label_kernel_num": 1},
            [(4, 3), (5, 3), (4, 2), (5, 2)],
        ),
        (
            {
                "fix_gamma": True,
                "sigma": 0.9,
                "kernel_num": 2,
                "label_kernel_mul": 3.0,
                "label_kernel_num": 4,
            },
            [(5, 2, 2), (3, 4), (5, 3), (3, 3, 1)],
        ),
    ],
    "MMDLoss": [
        ({"fix_gamma": True}, [(4, 3), (5, 3)]),
        ({"fix_gamma": True, "kernel_num": 2, "kernel_mul": 3.0}, [(5, 2, 2), (3, 4)]),
    ],
}
