"""The element-wise layers. A random bottom is at least 0.05 away from 0; other kinks have arrays."""

import numpy as np

X = (2, 3, 4)
POSITIVE = np.linspace(0.3, 4, 12).reshape(3, 4)
KINKS = np.array([[-9.0, -3.4, -2.2, -0.6], [0.4, 0.9, 2.6, 3.3], [5.7, 6.3, 7.1, 40.0]])

ROWS = {
    "AbsVal": [({}, [X])],
    "BNLL": [({}, [X]), ({}, [KINKS])],
    "Clip": [({"min": -0.5, "max": 6.0}, [KINKS])],
    "ELU": [({}, [X]), ({"alpha": 0.3}, [X]), ({"alpha": -0.5}, [X])],
    "Exp": [({}, [X]), ({"base": 2.0, "scale": 0.5, "shift": -1.0}, [X])],
    "GELU": [({}, [X]), ({"approximate": "tanh"}, [X])],
    "HardSwish": [({}, [X]), ({}, [KINKS])],
    "Log": [({}, [POSITIVE]), ({"base": 10.0, "scale": 2.0, "shift": 0.5}, [POSITIVE])],
    "Power": [
        ({"power": 2.0, "scale": 0.5, "shift": -1.0}, [X]),
        ({"power": 3.0}, [X]),
        ({"power": -0.5, "scale": 2.0, "shift": 0.1}, [POSITIVE]),
        ({"scale": -2.0, "shift": 1.0}, [X]),
        ({"power": 0.0, "scale": 0.5}, [X]),
        ({"power": 0.5, "scale": 0.0}, [X]),
    ],
    "ReLU": [({}, [X]), ({"negative_slope": 0.1}, [X]), ({"negative_slope": -2.0}, [X])],
    "ReLU6": [({}, [X]), ({}, [KINKS])],
    "Sigmoid": [({}, [X])],
    "Swish": [({}, [X]), ({"beta": -1.5}, [X])],
    "TanH": [({}, [X])],
    "Threshold": [({}, [X]), ({"threshold": 0.5}, [X])],
}
