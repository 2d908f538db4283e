"""MultiBoxLoss, box by box."""
# ruff: noqa: N802

import math

import numpy as np
from core.layers.references.detection import decoded
from core.layers.references.draws import drawn
from core.layers.references.points import shared


def encoded(code, prior, variance, box, by_variance):
    """What is to be predicted of a box."""
    (px0, py0, px1, py1), (x0, y0, x1, y1) = prior, box
    w, h = px1 - px0, py1 - py0
    if code == "CENTER_SIZE":
        found = [
            ((x0 + x1) / 2 - (px0 + px1) / 2) / w,
            ((y0 + y1) / 2 - (py0 + py1) / 2) / h,
            math.log((x1 - x0) / w),
            math.log((y1 - y0) / h),
        ]
    else:
        found = [b - p for b, p in zip(box, prior, strict=True)]
        if code == "CORNER_SIZE":
            found = [f / s for f, s in zip(found, (w, h, w, h), strict=True)]
    return [f / v for f, v in zip(found, variance, strict=True)] if by_variance else found


def matched(boxes, truth, bipartite_only, threshold, ignore_outside):
    """Of each box the true box it is matched with (-1: none, -2: never), and its largest overlap."""
    found, most = [-1] * len(boxes), [0.0] * len(boxes)
    pairs = []
    for i, box in enumerate(boxes):
        if ignore_outside and any(v < 0 or v > 1 for v in box):
            found[i] = -2
            continue
        for j, true in enumerate(truth):
            much = shared(box, true)
            if much > 1e-6:
                pairs.append((-much, i, j))
                most[i] = max(most[i], much)
    taken = set()
    for _, i, j in sorted(pairs):
        if found[i] == -1 and j not in taken:
            found[i] = j
            taken.add(j)
    if not bipartite_only:
        for less, i, j in sorted(pairs):
            if found[i] == -1 and -less >= threshold:
                found[i] = j
    return found, most


def smooth(d, squares):
    return d * d / 2 if squares or abs(d) < 1 else abs(d) - 0.5


def score_loss(scores, labels, softmax):
    """Of the last label, or of all of them."""
    if softmax:
        top = max(scores)
        return top + math.log(sum(math.exp(s - top) for s in scores)) - scores[labels[-1]]
    total = 0.0
    for c, s in enumerate(scores):
        total += math.log1p(math.exp(-abs(s))) + max(s, 0) - (s if c in labels else 0)
    return total


def MultiBoxLoss(layer, loc, scores, prior, truth):
    """Of each image what is matched, then what its classes and places cost."""
    n, classes, priors, variances = len(loc), layer.num_classes, *prior.reshape(2, -1, 4).tolist()
    p, background, mining = len(priors), layer.background_label_id, layer.mining_type
    kinds = 1 if layer.share_location else classes
    loc, scores = loc.reshape(n, p, kinds, 4).tolist(), scores.reshape(n, p, classes).tolist()
    softmax, squares = layer.conf_loss_type == "SOFTMAX", layer.loc_loss_type == "L2"
    in_loss, nms = layer.encode_variance_in_target, layer.nms_param
    rows = [
        row
        for row in truth[0, 0].tolist()
        if row[0] >= 0 and (layer.use_difficult_gt or not row[7])
    ]
    total_loc, total_conf, matches = 0.0, 0.0, 0

    def box_of(i, j, kind):
        variance = [1] * 4 if in_loss else variances[j]
        return decoded(layer.code_type, priors[j], variance, loc[i][j][kind])

    for i in range(n):
        own = [row for row in rows if row[0] == i]
        found, most = {kind: [-1] * p for kind in range(kinds)}, [0.0] * p
        if own:
            for kind in range(kinds):
                of = [g for g, row in enumerate(own) if kinds == 1 or row[1] == kind]
                limits = layer.match_type == "BIPARTITE", layer.overlap_threshold
                outside = layer.ignore_cross_boundary_bbox
                if layer.use_prior_for_matching:
                    index, most = matched(priors, [r[3:7] for r in own], *limits, outside)
                    found[kind] = [g if g in of or g == -2 else -1 for g in index]
                elif of:
                    boxes = [box_of(i, j, kind) for j in range(p)]
                    index, most = matched(boxes, [own[g][3:7] for g in of], *limits, outside)
                    found[kind] = [of[g] if g >= 0 else g for g in index]

        def labels_of(j, found=found, own=own):
            of = [int(own[found[kind][j]][1]) for kind in range(kinds) if found[kind][j] >= 0]
            of = [background + 1] * len(of) if layer.map_object_to_agnostic else of
            return of or ([] if not softmax and mining == "NONE" else [background])

        def location(j, kind, found=found, own=own, i=i):
            g = found[kind][j]
            want = encoded(layer.code_type, priors[j], variances[j], own[g][3:7], not in_loss)
            at = priors[j] if layer.use_prior_for_matching else box_of(i, j, kind)
            total = 0.0
            for axis in range(4):
                if layer.bp_inside and not 0 <= at[axis] <= 1:
                    continue
                d = loc[i][j][kind][axis] - want[axis]
                total += smooth(d / variances[j][axis] if in_loss else d, squares)
            return total

        conf = [score_loss(scores[i][j], labels_of(j), softmax) for j in range(p)]
        positives = [(kind, j) for kind in range(kinds) for j in range(p) if found[kind][j] >= 0]
        if mining == "NONE":
            total_conf += sum(conf)
        elif own:
            hard = mining == "HARD_EXAMPLE"
            cost = list(conf)
            if hard:
                for _, j in positives:
                    cost[j] += location(j, 0)
            fit = [
                j for j in range(p) if hard or (found[0][j] == -1 and most[j] < layer.neg_overlap)
            ]
            fit.sort(key=lambda j: -cost[j])
            count = layer.sample_size if hard else int(len(positives) * layer.neg_pos_ratio)
            if nms.nms_threshold > 0:
                boxes = [
                    priors[j] if layer.use_prior_for_nms else box_of(i, j, 0) for j in range(p)
                ]
                kept = []
                for j in fit if nms.top_k < 0 else fit[: nms.top_k]:
                    if all(shared(boxes[j], boxes[other]) <= nms.nms_threshold for other in kept):
                        kept.append(j)
                fit = kept
            picked = set(fit[:count])
            if hard:
                positives = [(kind, j) for kind, j in positives if j in picked]
            counted = {j for _, j in positives}
            counted |= {j for j in picked if found[0][j] == -1}
            total_conf += sum(conf[j] for j in counted)
        total_loc += sum(location(j, kind) for kind, j in positives)
        matches += len(positives)
    divisor = {"VALID": matches, "FULL": n * p, "BATCH_SIZE": n, "NONE": 1}[
        layer.normalization or "VALID"
    ]
    return (layer.loc_weight * total_loc + total_conf) / max(1, divisor)


YES = [False, True]


@drawn(
    "MultiBoxLoss", conf_loss_type=["SOFTMAX", "LOGISTIC"], loc_loss_type=["SMOOTH_L1", "L2"],
    loc_weight=[1.0, 0.5], share_location=YES, match_type=["BIPARTITE", "PER_PREDICTION"],
    overlap_threshold=[0.5, 0.2], use_prior_for_matching=YES, use_difficult_gt=YES,
    neg_pos_ratio=[3.0, 1.5], neg_overlap=[0.5, 0.2],
    code_type=["CORNER", "CENTER_SIZE", "CORNER_SIZE"], encode_variance_in_target=YES,
    map_object_to_agnostic=YES, ignore_cross_boundary_bbox=YES, bp_inside=YES,
    mining_type=["NONE", "MAX_NEGATIVE", "HARD_EXAMPLE"], sample_size=[2, 6],
    use_prior_for_nms=YES, normalization=["FULL", "VALID", "BATCH_SIZE", "NONE"],
    nms=[(0.0, -1), (0.3, -1), (0.3, 3)], boxes=[0, 1, 5], count=200
)  # fmt: skip
def multibox_case(random, nms, boxes, **keys):
    """Priors and true boxes, some of which are close to one; the last row is none."""
    keys["share_location"] |= keys["mining_type"] != "NONE"
    n, p, classes = 2, 9, 2 if keys["map_object_to_agnostic"] else 3
    low = random.uniform(-0.1, 0.7, (p, 2))
    prior = np.concatenate([low, low + random.uniform(0.1, 0.4, (p, 2))], axis=1)
    near = low[random.integers(p, size=boxes)].clip(0, 0.7)
    corner = np.where(random.random((boxes, 1)) < 0.6, near, random.uniform(0, 0.7, (boxes, 2)))
    truth = np.full((boxes + 1, 8), -1.0)
    truth[:-1, 0] = random.integers(n, size=boxes)
    truth[:-1, 1] = random.integers(1, classes, size=boxes)
    truth[:-1, 2] = 0
    truth[:-1, 3:5] = corner
    truth[:-1, 5:7] = corner + random.uniform(0.1, 0.3, (boxes, 2))
    truth[:-1, 7] = random.random(boxes) < 0.3
    loc = random.normal(size=(n, p * 4 * (1 if keys["share_location"] else classes)))
    both = np.stack([prior.ravel(), random.uniform(0.1, 0.3, 4 * p)])[None]
    keys |= {"num_classes": classes, "nms_param": {"nms_threshold": nms[0], "top_k": nms[1]}}
    return keys, [loc, random.normal(size=(n, p * classes)) * 2, both, truth[None, None]]
