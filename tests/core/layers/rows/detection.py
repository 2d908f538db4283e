"""The layers of detectors."""

import numpy as np

MAPS = np.random.default_rng(3).permutation(2 * 3 * 5 * 6).reshape(2, 3, 5, 6) / 10  # none alike
REGIONS = np.array([[0, 0, 0, 5, 4], [1, 2, 1, 3, 9], [1, 4, 3, 2, 0], [0, -3, -3, 1, 2]], float)

PRIORS = np.array(
    [[0.1, 0.1, 0.5, 0.5, 0.2, 0.1, 0.6, 0.5, 0.6, 0.6, 0.9, 0.8], [0.1, 0.2, 0.3, 0.4] * 3]
)[None]
TRUTH = np.array(
    [[0, 1, 0, 0.12, 0.1, 0.5, 0.55, 0], [1, 2, 0, 0.5, 0.55, 0.9, 0.9, 1], [-1] * 8], float
)[None, None]

WITHOUT_GRADIENT = {"AnnotatedData", "BoxOutput", "DecodeBBox", "PriorBox", "PriorBoxClustered"}
WITHOUT_GRADIENT |= {"DetectionEvaluate", "DetectionOutput", "Yolov3DetectionOutput"}
EACH_ITS_OWN = {"num_classes": 3, "share_location": False, "code_type": "CENTER_SIZE"}
EACH_ITS_OWN |= {"conf_loss_type": "LOGISTIC"}
PADDED = {"pooled_h": 1, "pooled_w": 1, "spatial_scale": 0.5, "pad_ratio": 0.25}
ROWS = {
    "MultiBoxLoss": [
        ({"num_classes": 3, "neg_pos_ratio": 1.5}, [(2, 12), (2, 9), PRIORS, TRUTH]),
        ({**EACH_ITS_OWN, "mining_type": "NONE"}, [(2, 36), (2, 9), PRIORS, TRUTH]),
    ],
    "ROIAlign": [
        ({"pooled_h": 2, "pooled_w": 3}, [MAPS, REGIONS]),
        (PADDED, [MAPS, REGIONS.reshape(4, 5, 1, 1)]),
    ],
    "ROIPooling": [
        ({"pooled_h": 2, "pooled_w": 2, "pad_ratio": 0.3}, [MAPS, REGIONS]),
        ({"pooled_h": 2, "pooled_w": 3}, [MAPS, REGIONS]),
        ({"pooled_h": 7, "pooled_w": 1, "spatial_scale": 0.5}, [MAPS, REGIONS.reshape(4, 5, 1, 1)]),
    ],
}
