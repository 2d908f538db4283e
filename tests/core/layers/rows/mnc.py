"""The layers of Multi-task Network Cascades."""

from core.layers.rows.detection import MAPS, REGIONS

ROWS = {
    "MaskResize": [
        ({"output_height": 3, "output_width": 7}, [(2, 2, 5, 4)]),
        ({"output_height": 6, "output_width": 1}, [(1, 2, 2, 3)]),
    ],
    "ROIWarping": [
        ({"pooled_h": 2, "pooled_w": 3}, [MAPS, REGIONS]),
        ({"pooled_h": 4, "pooled_w": 1, "spatial_scale": 0.5}, [MAPS, REGIONS.reshape(4, 5, 1, 1)]),
    ],
    "MaskPooling": [({}, [(2, 3, 4, 2), (2, 1, 4, 2)])],
}
