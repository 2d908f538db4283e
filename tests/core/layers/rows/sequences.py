"""The layers of sequences that forks have."""

import numpy as np

CLIP = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0])
GO = np.array([[0.0, 0, 0], [1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 1]])
SAID = np.array([[2.0, 0, 1], [0, 0, -1], [0, 1, -1], [-1, -1, -1], [-1, -1, -1]])

WITHOUT_GRADIENT = {"ContinuationIndicator", "CTCGreedyDecoder"}
ROWS = {
    "Lstm": [
        ({"num_output": 4, "batch_size": 2}, [(6, 3), CLIP]),
        ({"num_output": 3}, [(4, 2, 2)]),
    ],
    "Reverse": [({}, [(4, 3, 2)]), ({"axis": 1}, [(2, 3)]), ({"axis": -2}, [(2, 3, 2)])],
    "Transpose": [({"dim": (2, 0, 1)}, [(4, 3, 2)]), ({"dim": (0, 2, 1)}, [(4, 3, 2)])],
    "CTCLoss": [
        ({}, [(5, 3, 4), GO, SAID]),
        ({"blank_index": 3, "output_delay": 1, "preprocess_collapse_repeated": True}, [(5, 3, 4), GO, SAID]),
        ({"ctc_merge_repeated": False}, [(5, 3, 4, 1), GO, SAID]),
    ],
    "CtcLoss": [
        ({"alphabet_size": 3, "time_step": 4, "blank_label": 1}, [(4, 2, 3), np.array([[2.0, 0, 0], [0, 1, 2]])]),
        ({"alphabet_size": 3, "time_step": 2}, [(2, 2, 3), np.array([[2.0, 2, 0], [0, 0, 2]])]),
    ],
}  # fmt: skip
