"""Layers of MNC, R-FCN, MS-CNN and Cascade R-CNN: regions of maps, what is found in them, which are proposed."""
# ruff: noqa: N802

import math

import numpy as np
from core.layers.references.draws import drawn
from core.layers.references.points import nearest, regions, suppressed, within

AREA = ((1, 2), (1, 7), (1, 8))
SCALES = [1.0, 0.5, 0.25, 0.0625]


def of_regions(name, **parts):
    """Cases of a pooling of regions, of maps of two channels or as many as its bins read."""

    def case(random, area, number, **keys):
        n, h, w = area
        rois = regions(random, n, h, w, number, keys["spatial_scale"])
        channels = keys["output_dim"] * keys["group_size"] ** 2 if "group_size" in keys else 2
        return keys, [random.normal(size=(n, channels, h, w)), rois]

    drawn(name, count=40, area=AREA, spatial_scale=SCALES, **parts)(case)


GRID = {"pooled_h": (1, 4), "pooled_w": (1, 3)}


def ROIWarping(layer, x, rois):
    """Of each bin the largest of the points that are in the map."""
    ph, pw = layer.pooled_h, layer.pooled_w
    y = np.zeros((len(rois), x.shape[1], ph, pw))
    for r, (image, *ends) in enumerate(rois.reshape(-1, 5)):
        x0, y0, x1, y1 = (nearest(v * layer.spatial_scale) for v in ends)
        high, wide = max(y1 - y0, 0) / ph, max(x1 - x0, 0) / pw
        sy, sx = max(math.ceil(high), 1), max(math.ceil(wide), 1)
        for k, i, j in np.ndindex(y.shape[1:]):
            points = [
                (y0 + (i + p / sy) * high, x0 + (j + q / sx) * wide)
                for p, q in np.ndindex(sy + 1, sx + 1)
            ]
            read = [within(x[int(image), k], *point) for point in points]
            y[r, k, i, j] = max((v for v in read if v is not None), default=0)
    return y


def MaskPooling(layer, x, mask):
    return x * mask


def MaskResize(layer, x):
    """Where a larger mask's last entries lie behind the last pixel, they are 0."""
    (h, w), out = x.shape[2:], (layer.output_height, layer.output_width)
    y = np.zeros((*x.shape[:2], *out))
    for n, k, i, j in np.ndindex(y.shape):
        y[n, k, i, j] = within(x[n, k], i * (h / out[0]), j * (w / out[1])) or 0
    return y


@drawn("MaskResize", area=((1, 7), (1, 8)), output_height=(1, 9), output_width=(1, 9), count=40)
def mask_case(random, area, **keys):
    return keys, [random.normal(size=(2, 2, *area))]


def PSROIPooling(layer, x, rois):
    """Each bin is the mean of the pixels that it has in channels of its own."""
    g, scale = layer.group_size, layer.spatial_scale
    y = np.zeros((len(rois), layer.output_dim, g, g))
    for r, (image, *ends) in enumerate(rois.reshape(-1, 5)):
        x0, y0 = (nearest(v) * scale for v in ends[:2])
        x1, y1 = ((nearest(v) + 1) * scale for v in ends[2:])
        high, wide = max(y1 - y0, 0.1) / g, max(x1 - x0, 0.1) / g
        for k, i, j in np.ndindex(y.shape[1:]):
            rows = slice(max(math.floor(i * high + y0), 0), max(math.ceil((i + 1) * high + y0), 0))
            columns = slice(
                max(math.floor(j * wide + x0), 0), max(math.ceil((j + 1) * wide + x0), 0)
            )
            inside = x[int(image), (k * g + i) * g + j, rows, columns]
            y[r, k, i, j] = inside.mean() if inside.size else 0
    return y


def widened(layer, rois):
    """Regions with a margin, which is a share of their size."""
    for image, x0, y0, x1, y1 in rois.reshape(-1, 5):
        pw, ph = (x1 - x0 + 1) * layer.pad_ratio, (y1 - y0 + 1) * layer.pad_ratio
        yield int(image), x0 - pw, y0 - ph, x1 + pw, y1 + ph


def ROIAlign(layer, x, rois):
    """The corners of a grid, which are 0 outside the map."""
    ph, pw = layer.pooled_h, layer.pooled_w
    y = np.zeros((len(rois), x.shape[1], ph + 1, pw + 1))
    for r, (image, *ends) in enumerate(widened(layer, rois)):
        x0, y0, x1, y1 = (v * layer.spatial_scale - 0.5 for v in ends)
        for k, i, j in np.ndindex(y.shape[1:] if x1 > x0 and y1 > y0 else (0,)):
            at = y0 + i * (y1 - y0) / ph, x0 + j * (x1 - x0) / pw
            y[r, k, i, j] = within(x[image, k], *at) or 0
    return y


def ROIPooling(layer, x, rois):
    """Of each bin the largest pixel, or 0 if it has none."""
    grid = layer.pooled_h, layer.pooled_w
    y = np.zeros((len(rois), x.shape[1], *grid))
    for r, (image, *ends) in enumerate(widened(layer, rois)):
        x0, y0, x1, y1 = (nearest(v * layer.spatial_scale) for v in ends)
        sizes = [(y0, max(y1 - y0 + 1, 1), x.shape[2]), (x0, max(x1 - x0 + 1, 1), x.shape[3])]
        for k, *place in np.ndindex(y.shape[1:]):
            spans = []
            for at, count, (first, size, end) in zip(place, grid, sizes, strict=True):
                ends_of = math.floor(at * size / count), math.ceil((at + 1) * size / count)
                spans.append(slice(*(min(max(v + first, 0), end) for v in ends_of)))
            y[(r, k, *place)] = x[(image, k, *spans)].max(initial=-np.inf)
    return np.where(y == -np.inf, 0, y)


of_regions("ROIWarping", number=(1, 5), **GRID)
of_regions("PSROIPooling", number=(1, 6), output_dim=(1, 3), group_size=(1, 4))
of_regions("ROIAlign", number=(1, 5), pad_ratio=[0.0, 0.25], **GRID)
of_regions("ROIPooling", number=(1, 5), pad_ratio=[0.25, 1.0], **GRID)


def BoxAnnotatorOHEM(layer, rois, loss, labels, weights):
    """The labels and weights of each image's hardest regions; the others are ignored."""
    area = loss.shape[2:] or (1, 1)
    flat = [one.reshape(len(one), -1, math.prod(area)) for one in (rois, loss, labels, weights)]
    new_labels, new_weights = np.full(flat[2].shape, layer.ignore_label), np.zeros(flat[3].shape)
    left = {}
    for r, s in sorted(
        np.ndindex(len(rois), math.prod(area)), key=lambda at: -flat[1][at[0], 0, at[1]]
    ):
        image = flat[0][r, 0, s]
        left[image] = left.get(image, layer.roi_per_img) - 1
        if left[image] >= 0:
            new_labels[r, :, s] = flat[2][r, :, s]
            new_weights[r, :, s] = flat[3][r, :, s]
    return tuple(one.reshape(*one.shape[:2], *area) for one in (new_labels, new_weights))


@drawn("BoxAnnotatorOHEM", r=(1, 9), area=[(), (1, 1), (2, 3)], roi_per_img=(1, 4))
def hardest_case(random, r, area, **keys):
    """Some losses are equal."""
    rois, loss, labels = (
        random.integers(most, size=(r, c, *area)) for most, c in ((3, 5), (4, 1), (9, 1))
    )
    keys |= {"ignore_label": -7, "top": ["a", "b"]}
    return keys, [rois, loss / 4, labels, random.normal(size=(r, 8, *area))]


def Proposal(layer, scores, given, info):
    """Anchor by anchor."""
    rows, k, base = [], len(layer.ratio) * len(layer.scale), layer.base_size
    sides = []
    for ratio in layer.ratio:
        wide = int(math.sqrt(base**2 / ratio) + 0.5)
        high = int(wide * ratio + 0.5)
        sides += [(wide * scale, high * scale) for scale in layer.scale]
    height, width, scale = info.ravel()[:3]
    for y, x, i in np.ndindex(*scores.shape[2:], k):
        cx, cy = (at * layer.feat_stride + (base - 1) / 2 + 0.5 for at in (x, y))
        dx, dy, dw, dh = given[0, 4 * i : 4 * i + 4, y, x]
        cx, cy = cx + dx * sides[i][0], cy + dy * sides[i][1]
        bw, bh = sides[i][0] * math.exp(dw), sides[i][1] * math.exp(dh)
        ends = [cx - bw / 2, cy - bh / 2, cx + bw / 2, cy + bh / 2]
        ends = [max(min(v, size - 1), 0) for v, size in zip(ends, (width, height) * 2, strict=True)]
        least = min(ends[2] - ends[0], ends[3] - ends[1]) + 1
        score = scores[0, k + i, y, x] if least >= layer.min_size * scale else 0
        rows.append([*ends, score])
    rows.sort(key=lambda row: -row[4])
    kept = suppressed(rows[: layer.pre_nms_topn], layer.nms_thresh, last=1)[: layer.post_nms_topn]
    return [[0, *row[:4]] for row in kept], [row[4] for row in kept]


@drawn(
    "Proposal", area=((1, 4), (1, 4)), ratio=[[0.5], [1.0, 2.0], [3.0, 0.5]],
    scale=[[1.0], [2.0, 8.0], [8.0, 1.0]], feat_stride=[4, 16], base_size=[8, 16],
    min_size=[0, 16, 40], pre_nms_topn=[1, 5, 6000], post_nms_topn=[1, 3, 300],
    nms_thresh=[0.0, 0.3, 0.7, 1.0], count=40
)  # fmt: skip
def proposal_case(random, area, **keys):
    k = len(keys["ratio"]) * len(keys["scale"])
    scores = random.permutation(2 * k * math.prod(area)).reshape(1, 2 * k, *area) + 1.0
    keys["top"] = ["rois", "scores"]
    return keys, [scores, random.normal(size=(1, 4 * k, *area)) / 3, [[50.0, 70.0, 1.5]]]


def overlap(a, b, kind):
    """By how much two boxes x, y, width, height overlap."""
    if min(*a[2:], *b[2:]) <= 0:
        return 0.0
    w = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    h = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    both, one, other = max(w, 0) * max(h, 0), a[2] * a[3], b[2] * b[3]
    return both / {"IOU": one + other - both, "IOMU": min(one, other), "IOFU": one}[kind]


def normal_of(layer):
    return layer.bbox_std or [1] * 4, layer.bbox_mean or [0] * 4


def BoxOutput(layer, *xs):
    """Place by place; of equal scores the last place comes first, and where nothing is found there is a dummy."""
    rows, far, large = [], 1 / layer.field_xyr, math.log(layer.field_whr)
    for image in range(len(xs[0])):
        found = []
        for k, x in enumerate(xs):
            rate, wide, high = (
                getattr(layer, key)[k] for key in ("downsample_rate", "field_w", "field_h")
            )
            _, c, h, w = x.shape
            for i, j in np.ndindex(h, w):
                here = x[image, :, i, j]
                score = max(here[1 : c - 4]) - here[0]
                dx, dy, dw, dh = (
                    v * s + m for v, s, m in zip(here[-4:], *normal_of(layer), strict=True)
                )
                dx, dy = (min(max(v, -far), far) for v in (dx, dy))
                bw, bh = (
                    size * math.exp(min(max(v, -large), large))
                    for size, v in ((wide, dw), (high, dh))
                )
                x0 = max(dx * wide + (j + 0.5) * rate - bw / 2, 0)
                y0 = max(dy * high + (i + 0.5) * rate - bh / 2, 0)
                bw, bh = min(bw, w * rate - x0), min(bh, h * rate - y0)
                if score >= layer.fg_thr and min(bw, bh) >= layer.min_size:
                    found.append((score, len(found), x0, y0, bw, bh))
        kept = []
        for one in sorted(found, reverse=True)[: layer.max_nms_num or None]:
            if all(overlap(o[2:], one[2:], layer.nms_type) <= layer.iou_thr for o in kept):
                kept.append(one)
        for score, _, x0, y0, bw, bh in kept[: layer.max_post_nms_num or None]:
            rows.append([image, x0, y0, x0 + bw, y0 + bh, score])
    regions_of = [row[:5] for row in rows] or [[0, 1, 1, 10, 10]]
    return np.reshape(regions_of, (-1, 5, 1, 1)), np.reshape(rows or [[0] * 6], (-1, 6, 1, 1))


NORMAL = {"bbox_mean": [0.1, -0.1, 0.2, 0.3], "bbox_std": [0.5, 0.7, 1.5, 0.25]}


@drawn(
    "BoxOutput", n=(1, 2), areas=[[(1, 3)], [(4, 4), (2, 1)], [(3, 4), (2, 2), (1, 1)]],
    classes=(2, 4), normal=[{}, NORMAL], fg_thr=[-9.0, -1.0, 0.5, 99.0], iou_thr=[0.0, 0.3, 0.65],
    nms_type=["IOU", "IOMU", "IOFU"], field_whr=[1.0, 2.0, 4.0], field_xyr=[0.5, 2.0],
    max_nms_num=[0, 1, 7], max_post_nms_num=[0, 2], min_size=[0.0, 9.0, 15.0], count=60
)  # fmt: skip
def output_case(random, n, areas, classes, normal, **keys):
    """Some scores are equal; the second pass has another number of regions."""
    xs = [random.normal(size=(n, classes + 4, *area)) for area in areas]
    for x in xs:
        x[:, :classes] = np.round(x[:, :classes])
    keys["field_w"], keys["field_h"] = random.integers(8, 40, size=(2, len(xs))).tolist()
    keys |= {"downsample_rate": [8, 16, 32][: len(xs)], "top": ["a", "b"], **normal}
    return keys, xs, [x * 0.5 for x in xs]


def DecodeBBox(layer, moves, rois, *boxes):
    """Regions that are moved; training leaves out those that are inside out or match too well."""
    rows = []
    for i, (image, x0, y0, x1, y1) in enumerate(rois):
        dx, dy, dw, dh = (
            v * s + m for v, s, m in zip(moves[i, 4:], *normal_of(layer), strict=True)
        )
        w, h = x1 - x0 + 1, y1 - y0 + 1
        cx, cy = dx * w + (x0 + x1) / 2, dy * h + (y0 + y1) / 2
        bw, bh = w * math.exp(dw), h * math.exp(dh)
        one = [image, cx - (bw - 1) / 2, cy - (bh - 1) / 2]
        one += [one[1] + bw - 1, one[2] + bh - 1]
        left_out = (
            one[1] > one[3] or one[2] > one[4] or (boxes and boxes[0][i, -1] >= layer.gt_iou_thr)
        )
        if not (layer.train and left_out):
            rows.append(one)
    return rows


@drawn(
    "DecodeBBox", r=(1, 6), normal=[{}, NORMAL], matched=(0, 1), gt_iou_thr=[0.5, 0.95],
    phase=["TRAIN", "TEST"], count=50
)  # fmt: skip
def decode_case(random, r, normal, matched, **keys):
    """Some regions are inside out, and one is left."""
    moves, rois = random.normal(size=(r, 8)) / 2, random.uniform(0, 20, (r, 5))
    rois[:, 3:] += rois[:, 1:3] * random.uniform(-1, 1, (r, 1))
    rois[0, 3:], matches = rois[0, 1:3] + 9, random.uniform(size=(r, 6))
    matches[0] = 0
    return keys | normal, [moves, rois, *[matches] * (matched and keys["phase"] == "TRAIN")]
