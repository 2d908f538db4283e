"""The layers of LeNet and its like."""

X = (2, 4, 5, 6)
WIDE = {"num_output": 4, "kernel_size": (3, 2), "stride": (2, 1), "pad": (1, 2), "group": 2}
STEPS = {"num_output": 4, "kernel_size": (3,), "stride": (2,), "pad": (1,), "group": 2}
TALL = {"num_output": 6, "kernel_size": (3, 2), "stride": (1, 3), "pad": (0, 1), "group": 2}

ROWS = {
    "Convolution": [
        ({"num_output": 3, "kernel_size": (3,)}, [X]),
        ({**WIDE, "dilation": (1, 2)}, [X]),
        ({"num_output": 4, "kernel_h": 2, "kernel_w": 3, "bias_term": False, "group": 4}, [X]),
        (STEPS, [(3, 4, 7)]),
        ({"num_output": 2, "kernel_size": (3, 1, 2), "pad": (1, 0, 1)}, [(2, 3, 4, 3, 4)]),
        ({"num_output": 2, "kernel_size": (2,), "axis": 2, "force_nd_im2col": True}, [X]),
        ({"num_output": 2, "kernel_size": (2,), "axis": 0}, [(3, 4, 5)]),
        ({"num_output": 3, "kernel_size": (3,), "top": ["a", "b"]}, [X, X]),
    ],
    "Deconvolution": [
        ({"num_output": 3, "kernel_size": (3,), "stride": (2,), "pad": (1,)}, [X]),
        ({**TALL, "dilation": (2, 1), "bias_term": False}, [X]),
        ({"num_output": 2, "kernel_h": 1, "kernel_w": 3, "axis": -3}, [(1, 2, *X)]),
        ({"num_output": 2, "kernel_size": (4,), "stride": (2,)}, [(3, 4, 5)]),
        ({"num_output": 2, "kernel_size": (2,), "pad": (0, 1, 0)}, [(2, 3, 2, 3, 2)]),
        ({"num_output": 2, "kernel_size": (3,), "stride": 2, "top": ["a", "b", "c"]}, [X, X, X]),
    ],
    "Im2col": [
        ({"kernel_size": (3,), "stride": (2,), "pad": (1,)}, [X]),
        ({"kernel_h": 2, "kernel_w": 3, "dilation": (1, 2)}, [X]),
        ({"kernel_size": (3,), "pad": (2,)}, [(2, 3, 5)]),
        ({"kernel_size": (2, 1, 3), "axis": 0}, [X]),
    ],
    "Pooling": [
        ({"pool": "MAX", "kernel_size": (3,), "stride": (2,), "pad": (1,)}, [X]),
        ({"pool": "AVE", "kernel_size": (3, 2), "stride": (2,), "pad": (1,)}, [X]),
        ({"pool": "AVE", "global_pooling": True}, [X]),
        ({"pool": "MAX", "kernel_size": (2,), "stride": (3,)}, [X]),
        ({"kernel_size": (3, 2), "stride": 2, "pad": 1, "top": ["it", "mask"]}, [X]),
        ({"pool": "STOCHASTIC", "kernel_size": (3, 2), "stride": 2}, [X]),
        ({"pool": "MAX", "kernel_size": (2, 3, 2), "stride": 2, "pad": 1}, [(2, 2, 4, 5, 3)]),
        ({"pool": "AVE", "kernel_size": (2,), "stride": (1, 2, 2)}, [(2, 2, 3, 5, 4)]),
    ],
    "Dropout": [
        ({}, [X]),
        ({"dropout_ratio": 0.2}, [(3, 4)]),
        ({"dropout_ratio": 0.3, "scale_train": False}, [(3, 4)]),
    ],
    "InnerProduct": [
        ({"num_output": 3}, [X]),
        ({"num_output": 3, "axis": 2, "transpose": True}, [X]),
        ({"num_output": 3, "axis": -1, "bias_term": False}, [X]),
    ],
    "Flatten": [({}, [X]), ({"axis": 1, "end_axis": 2}, [X])],
    "Eltwise": [
        ({"coeff": (0.5, -2.0, 1.0)}, [X, X, X]),
        ({"operation": "PROD", "stable_prod_grad": False}, [X, X, X]),
        ({"operation": "MAX"}, [X, X, X]),
    ],
    "Concat": [
        ({}, [X, (2, 1, 5, 6)]),
        ({"axis": -1}, [(2, 3), (2, 1), (2, 2)]),
        ({}, [X]),
        ({"concat_dim": 0}, [X, X]),
    ],
    "Softmax": [({}, [X]), ({"axis": -1}, [(3, 4)])],
}
WITHOUT_GRADIENT = {"Input", "Data", "Accuracy"}
