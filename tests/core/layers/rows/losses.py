"""Losses."""

from pathlib import Path

import numpy as np

RNG = np.random.default_rng(7)
LABELS = np.array([1.0, 0.0, 3.0])
PLACES = np.array([[1.0, 0.0], [2.0, 3.0], [3.0, 1.0]])
SIMILAR = np.array([1.0, 0.0, 0.0, 1.0])
PAIR, FAR = (4, 3), np.arange(12.0).reshape(4, 3) * 1000  # Caffe's 1e-4 is nothing beside that
PROB = RNG.uniform(0.1, 1, (3, 2, 2))
TARGET = RNG.uniform(0.05, 0.95, (3, 4))
SOME = np.array([[0.0, -1.0, 1.0, 1.0], [-1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, -1.0]])
WEIGHTS = RNG.uniform(0.5, 2, (3, 4))
MATRIX = RNG.uniform(0, 1, (4, 4))
H = str(Path(__file__).parents[3] / "fixtures" / "infogain_H.binaryproto")

ROWS = {
    "EuclideanLoss": [({}, [(3, 4), (3, 4)]), ({}, [(2, 3, 2), (2, 6)])],
    "ContrastiveLoss": [
        ({"legacy_version": True, "margin": 7.0}, [PAIR, PAIR, SIMILAR]),
        ({"margin": 9000.0}, [FAR, FAR[::-1] / 3, SIMILAR]),
        ({"margin": 3000.0}, [FAR, -FAR, SIMILAR]),
    ],
    "SmoothL1Loss": [
        ({}, [(3, 4), (3, 4)]),
        ({"sigma": 2.0}, [(3, 4), (3, 4), WEIGHTS]),
        ({"sigma": 0.5}, [(3, 4), (3, 4), WEIGHTS, WEIGHTS[::-1]]),
    ],
    "SigmoidCrossEntropyLoss": [
        ({}, [(3, 4), TARGET]),
        ({"normalization": "VALID", "ignore_label": -1}, [(3, 4), SOME]),
        ({"normalization": "FULL", "ignore_label": 1}, [(3, 2, 2), SOME]),
        ({"normalize": True, "ignore_label": 0}, [(3, 4), SOME]),
        ({"normalization": "NONE"}, [(12,), TARGET.ravel()]),
    ],
    "HingeLoss": [({}, [(3, 4), LABELS]), ({"norm": "L2"}, [(3, 2, 2), LABELS])],
    "MultinomialLogisticLoss": [({}, [PROB, LABELS]), ({}, [PROB.reshape(3, 4), LABELS])],
    "InfogainLoss": [
        ({}, [(3, 4), LABELS, MATRIX]),
        ({"ignore_label": 0, "normalization": "VALID"}, [(3, 4), LABELS, MATRIX]),
        ({"source": H, "axis": -1, "normalization": "BATCH_SIZE"}, [(3, 2, 5), PLACES]),
        ({"normalization": "FULL", "ignore_label": 1}, [(3, 4, 2), PLACES, MATRIX]),
        ({"normalization": "NONE"}, [(3, 4, 2), PLACES, MATRIX.reshape(1, 1, 4, 4)]),
    ],
    "SoftmaxWithLoss": [
        ({}, [(3, 4), LABELS]),
        ({"ignore_label": 0, "normalization": "VALID"}, [(3, 4), LABELS]),
        ({"normalization": "NONE", "axis": 2}, [(1, 3, 4), LABELS]),
        ({"normalization": "FULL"}, [(1, 4, 3), LABELS]),
        ({"normalization": "BATCH_SIZE"}, [(3, 4), LABELS]),
        ({"normalize": False, "ignore_label": 0}, [(3, 4), LABELS]),
    ],
}
