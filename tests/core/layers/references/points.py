"""What references share of images: points between pixels, boxes, regions to draw."""

import math

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def of_axes(layer, name, count=2):
    """A key of a window for each of so many axes: of each, or of all, or none."""
    each = [getattr(layer, f"{name}_{axis}", None) for axis in "hw"]
    key = [*getattr(layer, "kernel_size" if name == "kernel" else name, ())] or [int(name != "pad")]
    return each if None not in each else key * (count if len(key) == 1 else 1)


def between(plane, y, x):
    """A point of a plane (h, w) or (h, w, c), of one outside the nearest edge's."""
    (h, w), y, x = plane.shape[:2], max(y, 0), max(x, 0)
    y, x = min(y, h - 1), min(x, w - 1)
    a, b = int(y), int(x)
    c, d = min(a + 1, h - 1), min(b + 1, w - 1)
    top = plane[a, b] * (1 - x + b) + plane[a, d] * (x - b)
    return top * (1 - y + a) + (plane[c, b] * (1 - x + b) + plane[c, d] * (x - b)) * (y - a)


def within(plane, y, x):
    """A point of a plane whose pixels are squares; None outside."""
    h, w = plane.shape
    return between(plane, y, x) if -0.5 <= y <= h - 0.5 and -0.5 <= x <= w - 0.5 else None


def nearest(value):
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def shared(a, b, last=0):
    """The intersection over union of two boxes; `last` is 1 where the last pixel is of the box."""
    w = min(a[2], b[2]) - max(a[0], b[0]) + last
    h = min(a[3], b[3]) - max(a[1], b[1]) + last
    both = w * h if w > 0 and h > 0 else 0
    area = [max(c[2] - c[0] + last, 0) * max(c[3] - c[1] + last, 0) for c in (a, b)]
    return both / (sum(area) - both) if both else 0


def suppressed(rows, threshold, box=slice(0, 4), last=0, equal=True):
    """The rows whose boxes overlap no kept one before them by more than the threshold."""
    kept = []
    for row in rows:
        much = [shared(row[box], other[box], last) for other in kept]
        if all(v <= threshold if equal else v < threshold for v in much):
            kept.append(row)
    return kept


def regions(random, n, h, w, count, scale):
    """Regions of images, some of which reach beyond the maps or end before they begin."""
    rois = random.uniform(-0.4, 1.4, (count, 5)) * np.array([1, w, h, w, h]) / scale
    rois[:, 0] = random.integers(n, size=count)
    return rois
