"""The slow reference of MultiBoxLoss: box by box, in Python's floats. Nothing here calls minicaffe."""

import math

from core.layers.detection_references import area, decoded, overlap


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
            much = overlap(box, true)
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


def suppressed(boxes, order, threshold, top_k):
    """The boxes that are kept, the best first."""
    kept = []
    for i in order if top_k < 0 else order[:top_k]:
        if all(overlap(boxes[i], boxes[k]) <= threshold for k in kept):
            kept.append(i)
    return kept


def loss(loc, scores, priors, variances, truth, *, classes, **k):
    """loc[i][p][kind][4], scores[i][p][c], truth rows of 8; the keys as the layer's."""
    n, p = len(loc), len(priors)
    softmax, squares = k["conf_loss_type"] == "SOFTMAX", k["loc_loss_type"] == "L2"
    kinds = 1 if k["share_location"] else classes
    background, mining = k["background_label_id"], k["mining_type"]
    in_loss = k["encode_variance_in_target"]
    rows = [row for row in truth if row[0] >= 0 and (k["use_difficult_gt"] or not row[7])]
    total_loc, total_conf, matches = 0.0, 0.0, 0

    def box_of(i, j, kind):
        variance = [1] * 4 if in_loss else variances[j]
        return decoded(k["code_type"], priors[j], variance, loc[i][j][kind])

    for i in range(n):
        own = [row for row in rows if row[0] == i]
        found, most = {}, [0.0] * p
        for kind in range(kinds):
            found[kind] = [-1] * p
        if own:
            for kind in range(kinds):
                of = [g for g, row in enumerate(own) if kinds == 1 or row[1] == kind]
                limits = k["match_type"] == "BIPARTITE", k["overlap_threshold"]
                outside = k["ignore_cross_boundary_bbox"]
                if k["use_prior_for_matching"]:
                    index, most = matched(priors, [r[3:7] for r in own], *limits, outside)
                    found[kind] = [g if g in of or g == -2 else -1 for g in index]
                elif of:
                    boxes = [box_of(i, j, kind) for j in range(p)]
                    index, most = matched(boxes, [own[g][3:7] for g in of], *limits, outside)
                    found[kind] = [of[g] if g >= 0 else g for g in index]

        def labels_of(j, found=found, own=own):
            of = [int(own[found[kind][j]][1]) for kind in range(kinds) if found[kind][j] >= 0]
            of = [background + 1] * len(of) if k["map_object_to_agnostic"] else of
            nothing = [] if not softmax and mining == "NONE" else [background]
            return of or nothing

        def location(j, kind, found=found, own=own, i=i):
            g = found[kind][j]
            want = encoded(k["code_type"], priors[j], variances[j], own[g][3:7], not in_loss)
            at = priors[j] if k["use_prior_for_matching"] else box_of(i, j, kind)
            total = 0.0
            for axis in range(4):
                if k["bp_inside"] and not 0 <= at[axis] <= 1:
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
                j for j in range(p) if hard or (found[0][j] == -1 and most[j] < k["neg_overlap"])
            ]
            fit.sort(key=lambda j: -cost[j])
            count = k["sample_size"] if hard else int(len(positives) * k["neg_pos_ratio"])
            if k["nms"][0] > 0:
                boxes = [priors[j] if k["use_prior_for_nms"] else box_of(i, j, 0) for j in range(p)]
                fit = suppressed(boxes, fit, *k["nms"])
            picked = set(fit[:count])
            if hard:
                positives = [(kind, j) for kind, j in positives if j in picked]
            counted = {j for _, j in positives}
            counted |= {j for j in picked if found[0][j] == -1}
            total_conf += sum(conf[j] for j in counted)
        total_loc += sum(location(j, kind) for kind, j in positives)
        matches += len(positives)
    divisor = {"VALID": matches, "FULL": n * p, "BATCH_SIZE": n, "NONE": 1}[k["normalization"]]
    assert area((0, 0, 1, 1)) == 1
    return (k["loc_weight"] * total_loc + total_conf) / max(1, divisor)
