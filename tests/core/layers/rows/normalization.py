"""Normalisations: of a batch, of a sample, of its groups, of neighbours."""

X = (2, 4, 5, 6)

ROWS = {
    "BatchNorm": [
        ({}, [X]),
        ({"eps": 0.1, "scale_bias": True}, [(5, 3)]),
        ({"use_global_stats": True, "eps": 1.0}, [X]),
        ({"use_global_stats": True, "eps": 1.0, "scale_bias": True}, [(3, 2, 4)]),
        ({"moving_average_fraction": 0.5}, [(6,)]),
    ],
    "MVN": [
        ({}, [X]),
        ({"across_channels": True, "eps": 0.5}, [(3, 2, 4)]),
        ({"normalize_variance": False}, [X]),
    ],
    "LayerNorm": [
        ({}, [X]),
        ({"axis": 1, "bias_term": False}, [(3, 2, 4)]),
        ({"axis": 0, "affine": False, "eps": 0.1}, [(3, 4)]),
    ],
    "GroupNorm": [
        ({"num_groups": 2}, [X]),
        ({"num_groups": 3, "affine": False}, [(4, 3)]),
        ({"num_groups": 1}, [(2, 3, 4)]),
    ],
    "Normalize": [
        ({}, [X]),
        ({"across_spatial": False, "channel_shared": False}, [X]),
        ({"across_spatial": False, "eps": 0.5}, [(3, 4)]),
        ({"channel_shared": False}, [(2, 3, 4)]),
    ],
    "LRN": [
        ({}, [X]),
        ({"local_size": 3, "alpha": 2.0, "beta": 0.6, "k": 1.5}, [X]),
        ({"local_size": 11, "norm_region": "WITHIN_CHANNEL", "alpha": 4.0}, [X]),
        ({"local_size": 1, "norm_region": "WITHIN_CHANNEL"}, [X]),
    ],
}
