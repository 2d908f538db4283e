"""Layers with a number for each channel, and Embed. Parameter, without a bottom, is in test_channels.py."""

import numpy as np

X = (2, 3, 4, 2)

ROWS = {
    "Axpy": [({}, [(2, 3), X, X]), ({}, [(2, 3, 1, 1), X, X]), ({}, [(2, 3), (2, 3), (2, 3)])],
    "Bias": [
        ({}, [X]),
        ({"axis": 0, "num_axes": 2}, [X]),
        ({"axis": 1, "num_axes": -1}, [X]),
        ({"num_axes": 0}, [X]),
        ({"axis": -2}, [X, (4, 2)]),
        ({}, [X, ()]),
    ],
    "Embed": [
        ({"num_output": 3, "input_dim": 4}, [np.array([[0.0, 3.0, 0.0], [2.0, 0.0, 3.0]])]),
        ({"num_output": 2, "input_dim": 5, "bias_term": False}, [np.array([4.0, 1.0])]),
    ],
    "PReLU": [({}, [X]), ({"channel_shared": True}, [X]), ({}, [(3, 4)])],
    "Scale": [
        ({"bias_term": True}, [X]),
        ({}, [X]),
        ({"axis": 0, "num_axes": -1, "bias_term": True}, [X]),
        ({"num_axes": 0, "bias_term": True}, [X]),
        ({"axis": -1}, [X]),
        ({"axis": 0}, [X, (2, 3)]),
        ({"bias_term": True}, [X, (3, 4)]),
        ({}, [X, ()]),
    ],
}
WITHOUT_GRADIENT = {"Parameter"}  # of bottoms, since it has none
