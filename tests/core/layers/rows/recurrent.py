"""Recurrent layers, whose streams begin anew at the first step: what a pass gives is not of the one before."""

import numpy as np

X = (4, 3, 2, 3)  # steps, streams, ...
CONT = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.5, 1.0]])
STATE = np.linspace(-1, 1, 12).reshape(1, 3, 4)

ROWS = {
    "LSTM": [
        ({"num_output": 4}, [X, CONT]),
        ({"num_output": 4}, [(1, 2, 5), np.zeros((1, 2))]),
        ({"num_output": 3}, [X, CONT, (3, 5)]),
    ],
    "RNN": [
        ({"num_output": 4}, [X, CONT]),
        ({"num_output": 4}, [(1, 2, 5), np.zeros((1, 2))]),
        ({"num_output": 3}, [X, CONT, (3, 2, 2)]),
    ],
    "LSTMUnit": [({"top": ("it", "h")}, [(1, 3, 2), (1, 3, 8), np.array([[1.0, 0.0, 0.5]])])],
}
