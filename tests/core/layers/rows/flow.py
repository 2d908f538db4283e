"""Layers of forks that read images between pixels, compare them, or move what they hold."""

IMAGE = (2, 3, 4, 5)
WIDE = {"kernel_h": 2, "kernel_w": 3, "pad_h": 0, "pad_w": 1, "stride_h": 1, "stride_w": 2}

ROWS = {
    "FlowWarp": [({}, [IMAGE, (2, 2, 4, 5)])],
    "Correlation": [
        ({"pad": 2, "kernel_size": 1, "max_displacement": 2, "stride_2": 2}, [IMAGE, IMAGE]),
        ({"pad": 1, "kernel_size": 3, "max_displacement": 1, "stride_1": 2}, [(1, 2, 5, 7)] * 2),
        ({"kernel_size": 1, "max_displacement": 1, "correlation_type": "SUBTRACT"}, [IMAGE, IMAGE]),
    ],
    "BilinearInterpolation": [({"interpolation_factor": 2}, [IMAGE]), ({}, [IMAGE, (1, 1, 3, 7)])],
    "CompactBilinear": [
        ({"num_output": 6}, [(2, 4, 2, 3), (2, 3, 2, 3)]),
        ({"num_output": 5, "sum_pool": False}, [(1, 2, 2, 1), (1, 4, 2, 1)]),
    ],
    "DeformableConvolution": [
        ({"num_output": 3, "kernel_size": 3, "pad": 1, "deformable_group": 2}, [(2, 4, 4, 3), (2, 36, 4, 3)]),
        ({"num_output": 4, "kernel_size": 2, "dilation": 2, "group": 2}, [(1, 2, 4, 5), (1, 8, 2, 3)]),
        ({"num_output": 2, "bias_term": False, **WIDE}, [(1, 3, 3, 5), (1, 12, 2, 3)]),
    ],
    "Reorg": [({"stride": 2}, [(2, 8, 4, 6)]), ({"stride": 2, "reverse": True}, [(1, 8, 2, 3)])],
}  # fmt: skip
