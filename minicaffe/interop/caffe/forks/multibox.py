"""The loss of the SSD detector: MultiBoxLoss."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import Loss
from minicaffe.errors import DataError, ShapeError
from minicaffe.interop.caffe.forks import boxes as ops
from minicaffe.interop.caffe.forks.ssd import Suppression, prior_counts

NONE = Suppression(nms_threshold=0)  # no box is suppressed
LEAST = float(np.finfo(np.float32).tiny)  # of a share whose logarithm is taken, as in Caffe


@register
class MultiBoxLoss(Loss):
    """SSD's loss: loc_weight L_loc + L_conf over the boxes that are matched, divided as `normalization` says.

    Bottoms, for n pictures and p prior boxes: predictions (n, 4 p), or (n, 4 p num_classes) without
    share_location; scores (n, p num_classes); priors (1, 2, 4 p) of PriorBox; true boxes (1, 1, k, 8) as
    AnnotatedData has them: picture, class, instance, x0, y0, x1, y1, difficult; a row of picture -1 is none.
    Top: the loss, of shape (). Predictions and scores have a gradient.

    Each true box is matched with the prior box that it overlaps most, and with PER_PREDICTION each prior box
    with the true box that it overlaps by overlap_threshold. L_loc is the smooth L1 loss, or half the square,
    between what is predicted of a matched box and what its true box is encoded as (code_type, variances).
    L_conf is the cross-entropy of softmax, or of sigmoids, of the matched and of the hardest of the other
    boxes: with MAX_NEGATIVE neg_pos_ratio times as many, of those that overlap nothing by neg_overlap, by the
    size of their loss; with HARD_EXAMPLE the sample_size boxes of largest loss, matched or not; with NONE all.
    A picture without true boxes counts with NONE only. VALID divides by the number of matched boxes.

    Matching and the choice of boxes run on the host, and wait for the device. Raises DataError for a class
    that is not among num_classes, or is the background. Source: MultiBoxLoss of SSD; W. Liu et al., SSD, 2016.

    Example: (2, 8), (2, 6), (1, 2, 8), (1, 1, 3, 8) -> {type: MultiBoxLoss, num_classes: 3} -> ()
    """

    num_classes: Annotated[int, "classes, the background among them", AtLeast(1)]
    loc_loss_type: Annotated[Literal["L2", "SMOOTH_L1"], "the loss of predicted boxes"] = (
        "SMOOTH_L1"
    )
    conf_loss_type: Annotated[Literal["SOFTMAX", "LOGISTIC"], "the loss of scores"] = "SOFTMAX"
    loc_weight: Annotated[float, "factor of the loss of boxes"] = 1.0
    share_location: Annotated[bool, "one predicted box for all classes"] = True
    match_type: Annotated[
        Literal["BIPARTITE", "PER_PREDICTION"], "one prior box for each true box, or more"
    ] = "PER_PREDICTION"
    overlap_threshold: Annotated[float, "the least overlap of PER_PREDICTION"] = 0.5
    use_prior_for_matching: Annotated[bool, "match prior boxes, not predicted ones"] = True
    background_label_id: Annotated[int, "the background's class", AtLeast(0)] = 0
    use_difficult_gt: Annotated[bool, "true boxes that are difficult count, too"] = True
    do_neg_mining: Annotated[bool | None, "SSD's older key: whether mining_type is not NONE"] = None
    neg_pos_ratio: Annotated[float, "boxes of the background for each that is matched"] = 3.0
    neg_overlap: Annotated[float, "the background's boxes overlap true ones by less"] = 0.5
    code_type: Annotated[
        Literal["CORNER", "CENTER_SIZE", "CORNER_SIZE"], "what is predicted of a box"
    ] = "CORNER"
    encode_variance_in_target: Annotated[
        bool, "predictions are not scaled by variances: both sides of the loss are divided by them"
    ] = False
    map_object_to_agnostic: Annotated[bool, "all classes are the one after the background"] = False
    ignore_cross_boundary_bbox: Annotated[
        bool, "boxes that leave the picture are not matched, nor the background"
    ] = False
    bp_inside: Annotated[bool, "coordinates outside the picture have no loss"] = False
    mining_type: Annotated[
        Literal["NONE", "MAX_NEGATIVE", "HARD_EXAMPLE"], "which boxes the scores' loss is of"
    ] = "MAX_NEGATIVE"
    nms_param: Annotated[
        Suppression, "of boxes that overlap, only that of the largest loss is chosen; without eta"
    ] = NONE
    sample_size: Annotated[int, "boxes of a picture that HARD_EXAMPLE chooses", AtLeast(1)] = 64
    use_prior_for_nms: Annotated[bool, "nms_param is of prior boxes, not predicted ones"] = False
    normalization: Annotated[
        Literal["FULL", "VALID", "BATCH_SIZE", "NONE"] | None,
        "what the sum is divided by: n p, matched boxes (default), pictures, or 1",
    ] = None
    normalize: Annotated[
        bool | None, "Caffe's older key, without normalization: true is VALID, false BATCH_SIZE"
    ] = None

    traits = replace(
        Loss.traits,
        recordable=False,
        capturable=False,
        of_whole=False,
        mixes_samples=True,
        label_bottoms=(2, 3),
        float32_bottoms=(2, 3),
    )

    def setup(self, loc: Shape, scores: Shape, prior: Shape, truth: Shape) -> Shape:
        classes, mines = self.num_classes, self.mining_type != "NONE"
        if self.do_neg_mining not in (None, mines):
            raise ShapeError(
                f"do_neg_mining: {str(self.do_neg_mining).lower()} contradicts mining_type {self.mining_type}"
            )
        if self.mining_type == "MAX_NEGATIVE" and self.neg_pos_ratio <= 0:
            raise ShapeError(f"neg_pos_ratio: expected above 0, got {self.neg_pos_ratio:g}")
        if mines and not self.share_location:
            raise ShapeError(f"mining_type {self.mining_type} needs share_location")
        if self.background_label_id >= classes:
            raise ShapeError(
                f"background_label_id: expected below num_classes {classes}, got {self.background_label_id}"
            )
        if self.map_object_to_agnostic and classes != 2:
            raise ShapeError(f"map_object_to_agnostic: expected num_classes 2, got {classes}")
        self.count, self.places, self.kinds = prior_counts(self, loc, scores, prior)
        if not truth or truth[-1] != 8:
            raise ShapeError(f"needs true boxes (1, 1, k, 8) as its fourth bottom, got {truth}")
        return ()

    def forward(self, loc: Any, scores: Any, prior: Any, truth: Any) -> Any:
        xp, device = self.xp, self.context.device
        n, p = self.count, self.places
        self.prior, self.variance = device.to_host(prior).astype(np.float64).reshape(2, p, 4)
        boxes = self.true_boxes(device.to_host(truth))
        predicted = loc.reshape(n, p, self.kinds, 4).astype(self.sum_dtype, copy=False)
        scores = scores.reshape(n, p, self.num_classes).astype(self.sum_dtype, copy=False)
        if self.looks_at_predictions:
            self.shown = device.to_host(predicted).astype(np.float64)
        found, most = self.matches(boxes)
        losses, self.change = self.score_losses(scores, self.targets(found, boxes))
        if self.mining_type == "NONE":
            chosen = np.ones((n, p), bool)
        else:
            chosen = self.mined(found, most, boxes, device.to_host(losses))
        self.chosen = xp.asarray(chosen)
        self.place = tuple(map(xp.asarray, np.nonzero(found >= 0)))
        self.divisor = max(1, self.normalizer(int((found >= 0).sum())))
        total = (losses * self.chosen).sum(dtype=self.sum_dtype)
        self.differences = None
        if len(self.place[0]):
            goal, scale = self.encoded(found, boxes)
            image, kind, j = self.place
            self.scales = xp.asarray(scale, self.sum_dtype)
            goal = xp.asarray(goal, self.sum_dtype)
            self.differences = (predicted[image, j, kind] - goal) * self.scales
            lost = self.location_losses(xp, self.differences)
            total = total + self.loc_weight * lost.sum(dtype=self.sum_dtype)
        self.out[0][...] = total / self.divisor
        return self.out

    def backward(self, dloss: Any) -> Any:
        scale = dloss / self.divisor
        for which, dx in enumerate(self.grad):
            if not self.needs_gradient[which] or which > 1:
                continue
            if which == 1:
                shape = self.count, self.places, self.num_classes
                dx.reshape(shape)[...] = self.change * self.chosen[:, :, None] * scale
                continue
            dx[...] = 0
            if self.differences is not None:
                slope = self.differences
                if self.loc_loss_type == "SMOOTH_L1":
                    slope = slope.clip(-1, 1)
                image, kind, j = self.place
                made = slope * self.scales * (self.loc_weight * scale)
                dx.reshape(self.count, self.places, self.kinds, 4)[image, j, kind] = made
        return [*self.grad[:2], None, None]

    @property
    def looks_at_predictions(self) -> bool:
        """Whether predicted boxes decide what is matched or chosen."""
        nms = self.nms_param.nms_threshold > 0 and not self.use_prior_for_nms
        hard = self.mining_type == "HARD_EXAMPLE"
        return not self.use_prior_for_matching or hard or (nms and self.mining_type != "NONE")

    def true_boxes(self, rows: np.ndarray) -> list[np.ndarray]:
        """Of each picture its true boxes (k, 5): class, x0, y0, x1, y1."""
        rows = rows.reshape(-1, 8).astype(np.float64)
        rows = rows[rows[:, 0] >= 0]
        if not self.use_difficult_gt:
            rows = rows[rows[:, 7] == 0]
        classes = self.num_classes, self.background_label_id, self.map_object_to_agnostic
        ops.check_classes(rows, *classes)
        if (rows[:, 0] >= self.count).any():
            raise DataError(f"a box is of picture {rows[:, 0].max():g} of a batch of {self.count}")
        return [rows[rows[:, 0] == i][:, [1, 3, 4, 5, 6]] for i in range(self.count)]

    def decoded(self, image: int, kind: int) -> np.ndarray:
        """The predicted boxes (p, 4) of a picture."""
        variance = None if self.encode_variance_in_target else self.variance
        return np.asarray(
            ops.decode(self.code_type, self.shown[image, :, kind], self.prior, variance)
        )

    def matches(self, boxes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Which true box each prior box is matched with, (n, kinds, p): -1 is none, -2 never.

        And the largest overlap of each (n, p) with a true box.
        """
        n, p = self.count, self.places
        found, most = np.full((n, self.kinds, p), -1), np.zeros((n, p))
        for i, truth in enumerate(boxes):
            if not len(truth):
                continue
            if self.use_prior_for_matching:
                index, most[i] = self.of_boxes(self.prior, truth)
                of_kind = truth[index.clip(0), 0] if not self.share_location else 0
                kinds = np.arange(self.kinds)[:, None]
                found[i] = np.where((index < 0) | (kinds == of_kind), index, -1)
                continue
            for kind in range(self.kinds):
                own = np.arange(len(truth))
                if not self.share_location:
                    own = np.flatnonzero(truth[:, 0] == kind)
                if len(own):
                    index, most[i] = self.of_boxes(self.decoded(i, kind), truth[own])
                    found[i, kind] = np.where(index < 0, index, own[index.clip(0)])
        return found, most

    def of_boxes(self, boxes: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The match of boxes (p, 4) with true boxes, and how much each overlaps one at most."""
        overlaps = ops.overlap(boxes[:, None], truth[None, :, 1:])
        outside = np.zeros(len(boxes), bool)
        if self.ignore_cross_boundary_bbox:
            outside |= ((boxes < 0) | (boxes > 1)).any(axis=1)
            overlaps[outside] = 0
        threshold = self.overlap_threshold if self.match_type == "PER_PREDICTION" else None
        index = ops.match(overlaps, threshold)
        return np.where(outside, -2, index), overlaps.max(axis=1)

    def targets(self, found: np.ndarray, boxes: list[np.ndarray]) -> Any:
        """What the scores (n, p, classes) should be: 1 for a box's class, 0 for others.

        Boxes matched by several classes are of the last, or with LOGISTIC of each.
        """
        xp, background = self.xp, self.background_label_id
        none = self.conf_loss_type == "LOGISTIC" and self.mining_type == "NONE"
        label = np.full((self.count, self.places), -1 if none else background)
        image, kind, j = np.nonzero(found >= 0)
        index = found[image, kind, j]
        own = np.array([boxes[i][g, 0] for i, g in zip(image, index, strict=True)], np.int64)
        if self.map_object_to_agnostic:
            own[:] = background + 1
        label[image, j] = own
        target = xp.asarray(label)[:, :, None] == xp.arange(self.num_classes)
        if self.conf_loss_type == "LOGISTIC":
            target[tuple(map(xp.asarray, (image, j, own)))] = True
        return target.astype(self.sum_dtype)

    def score_losses(self, scores: Any, target: Any) -> tuple[Any, Any]:
        """The loss (n, p) of the scores of each box, and its gradient (n, p, classes)."""
        xp = self.xp
        if self.conf_loss_type == "SOFTMAX":
            shares = xp.exp(scores - scores.max(axis=2, keepdims=True))
            shares /= shares.sum(axis=2, keepdims=True)
            own = (shares * target).sum(axis=2)
            return -xp.log(xp.maximum(own, LEAST)), shares - target
        shares = 1 / (1 + xp.exp(-xp.abs(scores)))
        losses = xp.maximum(scores, 0) - scores * target - xp.log(shares)
        return losses.sum(axis=2), xp.where(scores >= 0, shares, 1 - shares) - target

    def mined(
        self, found: np.ndarray, most: np.ndarray, boxes: list[np.ndarray], losses: np.ndarray
    ) -> np.ndarray:
        """Which boxes (n, p) the loss of scores is of; of HARD_EXAMPLE others are not matched any more."""
        losses, hard = losses.astype(np.float64), self.mining_type == "HARD_EXAMPLE"
        if hard:
            losses = losses + self.all_location_losses(found, boxes)
        chosen = found[:, 0] >= 0
        for i, truth in enumerate(boxes):
            if not len(truth):
                continue
            own = found[i, 0]
            free = (own == -1) & (most[i] < self.neg_overlap)
            fit = np.arange(len(own)) if hard else np.flatnonzero(free)
            count = self.sample_size if hard else int((own >= 0).sum() * self.neg_pos_ratio)
            order = fit[np.argsort(-losses[i, fit], kind="stable")]
            if self.nms_param.nms_threshold > 0:
                around = self.prior if self.use_prior_for_nms else self.decoded(i, 0)
                seen = order if self.nms_param.top_k < 0 else order[: self.nms_param.top_k]
                order = seen[ops.suppress(around[seen], self.nms_param.nms_threshold)]
            picked = np.zeros(len(own), bool)
            picked[order[:count]] = True
            if hard:
                own[(own >= 0) & ~picked] = -1
                chosen[i] = own >= 0
            chosen[i] |= picked & (own == -1)
        return chosen

    def encoded(self, found: np.ndarray, boxes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Of matched boxes (m, 4) what is to be predicted, and what the difference is multiplied by."""
        image, kind, j = np.nonzero(found >= 0)
        index = found[image, kind, j]
        truth = np.array([boxes[i][g, 1:] for i, g in zip(image, index, strict=True)])
        prior, variance = self.prior[j], self.variance[j]
        inside = not self.encode_variance_in_target
        goal = ops.encode(self.code_type, truth, prior, variance if inside else None)
        scale = np.ones_like(goal) if inside else 1 / variance
        if self.bp_inside:
            at = prior
            if not self.use_prior_for_matching:
                places = zip(image, kind, j, strict=True)
                at = np.array([self.decoded(int(i), int(k))[p] for i, k, p in places])
            scale[(at < 0) | (at > 1)] = 0
        return goal, scale

    def location_losses(self, xp: Any, differences: Any) -> Any:
        """The losses of differences (m, 4) between predicted boxes and what they should be."""
        size = xp.abs(differences)
        square = differences * differences / 2
        return square if self.loc_loss_type == "L2" else xp.where(size < 1, square, size - 0.5)

    def all_location_losses(self, found: np.ndarray, boxes: list[np.ndarray]) -> np.ndarray:
        """The loss of each predicted box (n, p), 0 of those that are not matched."""
        losses = np.zeros((self.count, self.places))
        image, kind, j = np.nonzero(found >= 0)
        if len(image):
            goal, scale = self.encoded(found, boxes)
            given = (self.shown[image, j, kind] - goal) * scale
            losses[image, j] = self.location_losses(np, given).sum(axis=1)
        return losses

    def normalizer(self, matched: int) -> int:
        """What the sum of losses is divided by, before it is made 1 at least."""
        older = "VALID" if self.normalize in (None, True) else "BATCH_SIZE"
        n, p = self.count, self.places
        divisors = {"FULL": n * p, "VALID": matched, "BATCH_SIZE": n, "NONE": 1}
        return divisors[self.normalization or older]
