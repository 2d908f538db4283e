"""Layers that move numbers, sum them, resize images."""

from __future__ import annotations

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
    "Permute": [
        ({"order": (0, 2, 3, 1)}, [X]),
        ({"order": (3, 1)}, [X]),
        ({}, [(2, 3)]),
    ],
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
NET = """
name: shapes
layers:
  - {name: dummy, type: DummyData, top: [x, index], shape: [{dim: [64, 16, 12, 12]}, {dim: 64}],
     data_filler: [{type: gaussian, std: 0.1}, {type: constant, value: 1}]}
  - {name: split, type: Split, bottom: x, top: [a, b]}
  - {name: conv, type: Convolution, bottom: [a, b], top: [c, d], num_output: 16, kernel_size: 3, pad: 1}
  - {name: pool, type: Pooling, bottom: c, top: [most, mask], kernel_size: 2, stride: 2}
  - {name: drawn, type: Pooling, bottom: d, pool: STOCHASTIC, kernel_size: 3}
  - {name: up, type: Upsample, bottom: [most, mask], scale: 2}
  - {name: near, type: Upsample, bottom: most, scale_h: 2, scale_w: 2}
  - {name: between, type: Interp, bottom: most, zoom_factor: 2}
  - {name: cropped, type: Crop, bottom: [up, drawn], axis: 2, offset: [1, 2]}
  - {name: tiled, type: Tile, bottom: most, tiles: 2}
  - {name: slice, type: Slice, bottom: tiled, top: [first, second], axis: 1}
  - {name: shuffled, type: ShuffleChannel, bottom: near, group: 4}
  - {name: permuted, type: Permute, bottom: shuffled, order: [0, 2, 3, 1]}
  - {name: reshaped, type: Reshape, bottom: permuted, shape: {dim: [0, -1, 16]}}
  - {name: image, type: Reshape, bottom: reshaped, shape: {dim: [16, 9]}, axis: 1, num_axes: 1}
  - {name: pyramid, type: SPP, bottom: image, pyramid_height: 2}
  - {name: again, type: BatchReindex, bottom: [second, index]}
  - {name: joined, type: Concat, bottom: [first, again], concat_dim: 0}
  - {name: turned, type: Deconvolution, bottom: [cropped, drawn], top: [e, f], num_output: 5, kernel_size: 2}
  - {name: top, type: ArgMax, bottom: e, axis: 1, top_k: 5}
  - {name: silence, type: Silence, bottom: [top, mask], top: []}
  - {name: sum, type: Reduction, bottom: e, loss_weight: 0.001, coeff: 0.5}
  - {name: squares, type: Reduction, bottom: f, operation: SUMSQ, loss_weight: 0.001}
  - {name: magnitudes, type: Reduction, bottom: joined, operation: ASUM, loss_weight: 0.001}
  - {name: mean, type: Reduction, bottom: pyramid, operation: MEAN, axis: 1}
  - {name: means, type: Reduction, bottom: mean, operation: SUMSQ, loss_weight: 0.1}
  - {name: rest, type: Reduction, bottom: between, operation: SUMSQ, loss_weight: 0.001}
solver: {base_lr: 0.0001, momentum: 0.9, max_iter: 100, snapshot_after_train: false}
"""  # trained by test_step_memory.py and the dry run, and small by test_fuzz.py
