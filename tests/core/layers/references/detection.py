"""The layers of SSD and YOLO, box by box."""
# ruff: noqa: N802

import math

import numpy as np
from core.layers.references.draws import drawn
from core.layers.references.points import shared, sigmoid, suppressed


def places(layer, x, image):
    """The middle of each place of the maps, and the image's size, all in pixels."""
    h, w = x.shape[2:]
    high, wide = image.shape[2:]
    if layer.img_size or layer.img_h:
        high, wide = layer.img_h or layer.img_size, layer.img_w or layer.img_size
    sh, sw = layer.step_h or layer.step or high / h, layer.step_w or layer.step or wide / w
    for i, j in np.ndindex(h, w):
        yield (j + layer.offset) * sw, (i + layer.offset) * sh, wide, high


def priors(layer, x, image, sides):
    """Boxes of these sides at each place, and their variances."""
    rows = []
    for cx, cy, wide, high in places(layer, x, image):
        for w, h in sides:
            first = [(cx - w / 2) / wide, (cy - h / 2) / high]
            one = [*first, (cx + w / 2) / wide, (cy + h / 2) / high]
            rows += [min(max(v, 0.0), 1.0) for v in one] if layer.clip else one
    variance = [*layer.variance] if len(layer.variance) == 4 else [*(layer.variance or [0.1])] * 4
    return [[rows, variance * (len(rows) // 4)]]


def PriorBox(layer, x, image):
    ratios = [1.0]
    for ratio in layer.aspect_ratio:
        if not any(abs(ratio - known) < 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if layer.flip else [ratio]
    sides = []
    for i, size in enumerate(map(int, layer.min_size)):
        sides.append((size, size))
        if layer.max_size:
            sides.append((math.sqrt(size * int(layer.max_size[i])),) * 2)
        sides += [(size * math.sqrt(ratio), size / math.sqrt(ratio)) for ratio in ratios[1:]]
    return priors(layer, x, image, sides)


def PriorBoxClustered(layer, x, image):
    return priors(layer, x, image, list(zip(layer.width, layer.height, strict=True)))


PLACED = {
    "clip": [False, True],
    "variance": [[], [0.3], [0.1, 0.1, 0.2, 0.3]],
    "step": [{}, {"step": 7.5}, {"step_h": 4.0, "step_w": 9.0}],
    "image": [{}, {"img_size": 55}, {"img_h": 20, "img_w": 90}],
    "offset": [0.5, 0.25],
    "area": ((1, 4), (1, 5)),
}


@drawn(
    "PriorBox", between=[False, True], ratios=[[], [2.0], [1.0, 3.0, 0.5], [2.0, 2.0]],
    flip=[False, True], many=(1, 2), **PLACED
)  # fmt: skip
def prior_case(random, many, between, ratios, step, image, area, **keys):
    sizes = random.uniform(1, 60, size=many).round(2).tolist()
    keys |= {"min_size": sizes, "max_size": [size + 1.5 for size in sizes if between]}
    return keys | step | image | {"aspect_ratio": ratios}, [
        np.zeros((2, 3, *area)),
        np.zeros((2, 1, 30, 40)),
    ]


@drawn("PriorBoxClustered", many=(1, 3), **PLACED)
def clustered_case(random, many, step, image, area, **keys):
    keys["width"], keys["height"] = random.uniform(2, 40, size=(2, many)).tolist()
    return keys | step | image, [np.zeros((2, 3, *area)), np.zeros((2, 1, 30, 40))]


def decoded(code, prior, variance, given):
    """One box."""
    x0, y0, x1, y1 = prior
    g = [v * p for v, p in zip(variance, given, strict=True)]
    w, h = x1 - x0, y1 - y0
    if code == "CORNER":
        return [x0 + g[0], y0 + g[1], x1 + g[2], y1 + g[3]]
    if code == "CORNER_SIZE":
        return [x0 + g[0] * w, y0 + g[1] * h, x1 + g[2] * w, y1 + g[3] * h]
    cx, cy = (x0 + x1) / 2 + g[0] * w, (y0 + y1) / 2 + g[1] * h
    w, h = w * math.exp(g[2]), h * math.exp(g[3])
    return [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]


def chosen(layer, i, c, loc, conf, prior):
    """The boxes (score, class, box) of a class that stay in an image."""
    limit, eta, top_k = layer.nms_param.nms_threshold, layer.nms_param.eta, layer.nms_param.top_k
    least = -math.inf if layer.confidence_threshold is None else layer.confidence_threshold
    ranked = sorted(
        (p for p in range(len(conf[i])) if conf[i, p, c] > least), key=lambda p: -conf[i, p, c]
    )
    kept = []
    for p in ranked[:top_k] if top_k >= 0 else ranked:
        variance = [1] * 4 if layer.variance_encoded_in_target else prior[1, p]
        box = decoded(
            layer.code_type, prior[0, p], variance, loc[i, p, 0 if layer.share_location else c]
        )
        box = [min(max(v, 0.0), 1.0) for v in box] if layer.clip else box
        if all(shared(box, other[2]) <= limit for other in kept):
            kept.append((conf[i, p, c], c, box))
            if eta < 1 and limit > 0.5:
                limit *= eta
    return kept


def DetectionOutput(layer, loc, conf, prior):
    n, classes, prior = len(loc), layer.num_classes, prior.reshape(2, -1, 4)
    loc, conf = loc.reshape(n, prior.shape[1], -1, 4), conf.reshape(n, -1, classes)
    rows = []
    for i in range(n):
        kinds = [c for c in range(classes) if c != layer.background_label_id]
        found = [one for c in kinds for one in chosen(layer, i, c, loc, conf, prior)]
        if 0 <= layer.keep_top_k < len(found):
            found = sorted(found, key=lambda one: -one[0])[: layer.keep_top_k]
            found.sort(key=lambda one: (one[1], -one[0]))
        rows += [[i, c, score, *box] for score, c, box in found]
    return [[rows or [[i] + [-1] * 6 for i in range(n)]]]


@drawn(
    "DetectionOutput", shape=((1, 3), (1, 12), (1, 4)), share_location=[False, True],
    background_label_id=[0, 0, 1, -1], nms=[(0.45, 1.0), (0.7, 0.8), (0.0, 1.0), (0.95, 0.6)],
    top_k=[-1, 0, 1, 4, 100], code_type=["CORNER", "CENTER_SIZE", "CORNER_SIZE"],
    variance_encoded_in_target=[False, True], keep_top_k=[-1, 0, 2, 5, 100],
    least=[None, 0.01, 0.5, 0.99], clip=[False, True], count=60
)  # fmt: skip
def detection_case(random, shape, nms, top_k, least, **keys):
    n, p, c = shape
    middle, size = random.uniform(0, 1, (p, 2)), random.uniform(0.05, 0.5, (p, 2))
    corners = np.concatenate([middle - size / 2, middle + size / 2], axis=1)
    prior = np.stack([corners, np.tile([0.1, 0.1, 0.2, 0.3], (p, 1))]).reshape(1, 2, -1)
    far = 0.1 if keys["variance_encoded_in_target"] else 0.7
    loc = random.normal(size=(n, 4 * p * (1 if keys["share_location"] else c))) * far
    keys["nms_param"] = {"nms_threshold": nms[0], "eta": nms[1], "top_k": top_k}
    keys |= {"num_classes": c} | ({} if least is None else {"confidence_threshold": least})
    return keys, [loc, random.random((n, p * c)), prior]


def Yolov3DetectionOutput(layer, *xs):
    rows, classes = [], layer.num_classes
    for image in range(len(xs[0])):
        found = []
        for k, x in enumerate(xs):
            side, boxes = x.shape[2], x[image].reshape(layer.num_box, 5 + classes, *x.shape[2:])
            for i, j, b in np.ndindex(side, side, layer.num_box):
                given, m = boxes[b, :, i, j], layer.mask[k * layer.num_box + b]
                cx, cy = (j + sigmoid(given[0])) / side, (i + sigmoid(given[1])) / side
                w, h = (
                    math.exp(given[2 + a])
                    * layer.biases[2 * m + a]
                    / (side * layer.anchors_scale[k])
                    for a in (0, 1)
                )
                corners = [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]
                scores = [sigmoid(given[4]) * sigmoid(one) for one in given[5:]]
                found += [[image, c, score, *corners] for c, score in enumerate(scores, 1)]
        found = [row for row in found if row[2] > layer.confidence_threshold]
        found.sort(key=lambda row: -row[2])
        rows += suppressed(found, layer.nms_threshold, slice(3, 7), equal=False)
    return [[rows or [[i, *[-1] * 6] for i in range(len(xs[0]))]]]


@drawn(
    "Yolov3DetectionOutput", n=(1, 2), sides=[[1], [3], [2, 3], [1, 2]], classes=(1, 3),
    many=(1, 2), confidence_threshold=[0.01, 0.3, 0.6, 0.999], nms_threshold=[0.1, 0.45, 1.0]
)  # fmt: skip
def yolo_case(random, n, sides, classes, many, **keys):
    """The second pass has another number of boxes."""
    keys |= {"num_classes": classes, "num_box": many, "mask_group_num": len(sides)}
    keys["biases"] = random.integers(10, 60, size=2 * many * len(sides)).tolist()
    keys["mask"] = random.permutation(many * len(sides)).tolist()
    keys["anchors_scale"] = [32, 16][: len(sides)]
    xs = [random.normal(size=(n, many * (5 + classes), side, side)) for side in sides]
    return keys, xs, [-x for x in xs]


def DetectionEvaluate(layer, found, truth):
    """How many true boxes each class has, then whether each detection, the best first, is right or wrong."""
    truth, limit = truth[0, 0], layer.overlap_threshold
    counted = [t[1] for t in truth if t[0] >= 0 and (layer.evaluate_difficult_gt or not t[7])]
    rows = [[-1, c, counted.count(c), -1, -1] for c in range(1, layer.num_classes)]
    found = [d for d in found[0, 0] if d[1] >= 0]
    for image, label in sorted({(d[0], d[1]) for d in found}):
        true, had = [t for t in truth if t[0] == image and t[1] == label], set()
        for d in sorted([d for d in found if (d[0], d[1]) == (image, label)], key=lambda d: -d[2]):
            overlaps, right, wrong = [shared(d[3:7], t[3:7]) for t in true], 0, 1
            if overlaps and max(overlaps) >= limit:
                best, right, wrong = overlaps.index(max(overlaps)), 0, 0
                if layer.evaluate_difficult_gt or not true[best][7]:
                    right, wrong = best not in had, best in had
                    had.add(best)
            rows.append([image, label, d[2], right, wrong])
    return [[rows]]


def found_and_true(random, images=3, classes=4):
    """Detections (k, 7) and true boxes (m, 8), some of which are alike."""
    truth, found = [], []
    for image in range(images):
        for _ in range(random.integers(0, 4)):
            corner, label = random.uniform(0, 0.6, 2), random.integers(1, classes)
            box = np.array([*corner, *(corner + random.uniform(0.1, 0.4, 2))])
            truth.append([image, label, 0, *box, random.random() < 0.3])
            for _ in range(random.integers(0, 3)):
                label = label if random.random() < 0.8 else random.integers(1, classes)
                moved = box + random.normal(size=4) * 0.03
                found.append([image, label, random.integers(1, 50) / 50, *moved])
        for _ in range(random.integers(0, 2)):
            corner = random.uniform(0, 0.6, 2)
            found.append(
                [image, random.integers(1, classes), random.random(), *corner, *(corner + 0.2)]
            )
    return np.array(found or [[0, *[-1] * 6]], float), np.array([*truth, [-1] * 8], float)


@drawn(
    "DetectionEvaluate", overlap_threshold=[0.5, 0.8], evaluate_difficult_gt=[False, True], count=80
)
def evaluate_case(random, **keys):
    return keys | {"num_classes": 4}, [array[None, None] for array in found_and_true(random)]
