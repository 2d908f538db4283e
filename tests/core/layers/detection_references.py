"""The slow references of detection, box by box in Python's floats. Nothing here calls minicaffe."""

import math


def prior_boxes(area, image, sizes, larger, ratios, flip, clip, variance, step, offset):
    """The rows of PriorBox's top: coordinates, then variances."""
    (h, w), (high, wide) = area, image
    sh, sw = step or (high / h, wide / w)
    all_ratios = [1.0]
    for ratio in ratios:
        if not any(abs(ratio - known) < 1e-6 for known in all_ratios):
            all_ratios.append(ratio)
            if flip:
                all_ratios.append(1 / ratio)
    coordinates, variances = [], []
    for y in range(h):
        for x in range(w):
            cx, cy = (x + offset) * sw, (y + offset) * sh
            for i, size in enumerate(sizes):
                side = int(size)
                boxes = [(side, side)]
                if larger:
                    mean = math.sqrt(side * int(larger[i]))
                    boxes.append((mean, mean))
                for ratio in all_ratios[1:]:
                    boxes.append((side * math.sqrt(ratio), side / math.sqrt(ratio)))
                for bw, bh in boxes:
                    one = [
                        (cx - bw / 2) / wide,
                        (cy - bh / 2) / high,
                        (cx + bw / 2) / wide,
                        (cy + bh / 2) / high,
                    ]
                    coordinates += [min(max(v, 0.0), 1.0) for v in one] if clip else one
                    variances += variance if len(variance) == 4 else [(variance or [0.1])[0]] * 4
    return coordinates, variances


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


def area(box):
    return 0 if box[2] < box[0] or box[3] < box[1] else (box[2] - box[0]) * (box[3] - box[1])


def overlap(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    return w * h / (area(a) + area(b) - w * h) if w > 0 and h > 0 else 0


def detections(
    loc,
    conf,
    prior,
    *,
    classes,
    share,
    background,
    threshold,
    top_k,
    eta,
    code,
    in_target,
    keep,
    least,
    clip=False,
):
    """The rows of DetectionOutput's top, from arrays (n, p, kinds, 4), (n, p, classes) and (2, p, 4)."""
    rows = []
    for i in range(len(loc)):
        found = []  # (score, class, place)
        boxes = {}
        for c in range(classes):
            if c == background:
                continue
            ranked = [(float(conf[i, p, c]), p) for p in range(conf.shape[1])]
            ranked = [(s, p) for s, p in ranked if s > least]
            ranked.sort(key=lambda pair: -pair[0])
            limit, chosen = threshold, []
            for score, p in ranked[:top_k] if top_k >= 0 else ranked:
                variance = [1] * 4 if in_target else [float(v) for v in prior[1, p]]
                given = [float(v) for v in loc[i, p, 0 if share else c]]
                corners = [float(v) for v in prior[0, p]]
                box = decoded(code, corners, variance, given)
                box = boxes[c, p] = [min(max(v, 0.0), 1.0) for v in box] if clip else box
                if all(overlap(box, boxes[c, other]) <= limit for other in chosen):
                    chosen.append(p)
                    found.append((score, c, p))
                    if eta < 1 and limit > 0.5:
                        limit *= eta
        if 0 <= keep < len(found):
            found = sorted(found, key=lambda one: -one[0])[:keep]
            found.sort(key=lambda one: (one[1], -one[0]))
        rows += [[i, c, score, *boxes[c, p]] for score, c, p in found]
    return rows or [[i] + [-1] * 6 for i in range(len(loc))]
