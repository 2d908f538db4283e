"""The layers of YOLO's Caffes: Reorg and Yolov3DetectionOutput."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops import arrays
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks import boxes
from minicaffe.interop.caffe.forks.whole import Whole


@register
class Reorg(Layer):
    """Darknet's passthrough: places become channels; with `reverse` channels become places.

    (n, c, h, w) -> (n, c s^2, h / s, w / s), s = stride; with reverse (n, c / s^2, h s, w s), where channel
    (i s + j) c' + k, c' = c / s^2, goes to row s y + i and column s x + j of channel k. Without it the
    numbers are Darknet's: the bottom's memory is read as (c', h, s, w, s) and written as (s, s, c', h, w), so
    c must be a multiple of s^2 here too. Source: Reorg of the Caffes of YOLO v2; J. Redmon, A. Farhadi,
    YOLO9000, 2017.

    Example: (1, 8, 4, 6) -> {type: Reorg, stride: 2} -> (1, 32, 2, 3)
    """

    stride: Annotated[int, "places of a side that become channels", AtLeast(1)]
    reverse: Annotated[bool, "channels become places"] = False

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        s = self.stride
        if len(x) != 4 or x[1] % s**2:
            raise ShapeError(f"needs (n, c, h, w) with c a multiple of {s**2}, got {x}")
        n, c, h, w = x
        self.parts = (n, c // s**2, h, s, w, s)
        self.order = (0, 3, 5, 1, 2, 4)  # n, s, s, c', h, w
        if self.reverse:
            return (n, c // s**2, h * s, w * s)
        if h % s or w % s:
            raise ShapeError(f"needs h and w that are multiples of stride {s}, got {x}")
        return (n, c * s**2, h // s, w // s)

    def forward(self, x: Any) -> Any:
        return self.moved(x, self.out[0], self.reverse)

    def backward(self, dy: Any) -> Any:
        return self.moved(dy, self.grad[0], not self.reverse)

    def moved(self, x: Any, out: Any, reverse: bool) -> Any:
        """To places, if `reverse`, else from there."""
        there, apart = (out, x) if reverse else (x, out)
        places = there.reshape(self.parts).transpose(self.order)
        channels = apart.reshape(places.shape)
        arrays.copy(channels if reverse else places, places if reverse else channels)
        return out


@register
class Yolov3DetectionOutput(Whole):
    """YOLO v3's detections: decodes boxes, and drops those that overlap a better one, of any class.

    Bottoms, one a scale: (n, num_box (5 + num_classes), side, side), of each box x, y, w, h, whether there is
    something, and its classes. Of box b at (i, j): the middle is ((j + sigmoid x) / side, (i + sigmoid y) /
    side), the size exp(w), exp(h) times the anchor, biases[2 m], biases[2 m + 1], over side times the bottom's
    anchors_scale; m = mask[g k + b] of scale k, g = len(mask) / mask_group_num. A class's score, sigmoid times
    sigmoid, must be above confidence_threshold; an overlap of nms_threshold or more is too much.

    Top: (1, 1, kept, 7): image, class + 1, score, x0, y0, x1, y1 as shares of the image; by image, the best
    first; a row of -1 an image if nothing is found. It runs on the host, waits for the device, and has no
    gradient. Source: Yolov3DetectionOutput of eric612's MobileNet-YOLO, which takes all images for one.

    Example: (1, 7, 2, 2) -> {type: Yolov3DetectionOutput, num_classes: 2, num_box: 1, biases: [9, 9],
    mask: 0, mask_group_num: 1, anchors_scale: 32} -> (1, 1, 4, 7)
    """

    num_classes: Annotated[int, "classes, without a background", AtLeast(1)]
    num_box: Annotated[int, "boxes a place", AtLeast(1)] = 3
    confidence_threshold: Annotated[float, "a score must be above it"] = 0.01
    nms_threshold: Annotated[float, "an overlap must be below it"] = 0.45
    biases: Annotated[tuple[float, ...], "widths and heights of the anchors, by turns, in pixels"]
    anchors_scale: Annotated[tuple[int, ...], "pixels between places, of each bottom", AtLeast(1)]
    mask_group_num: Annotated[int, "how many bottoms there are", AtLeast(1)] = 2
    mask: Annotated[tuple[int, ...], "the anchors of each bottom, by their number", AtLeast(0)]

    traits = Traits(capturable=False, sizes_vary=True, float32_tops=(0,))

    def setup(self, first: Shape, *more: Shape) -> Shape:
        bottoms, wide = (first, *more), 5 + self.num_classes
        self.traits = replace(self.traits, label_bottoms=tuple(range(len(bottoms))))
        if len(bottoms) != self.mask_group_num or len(self.anchors_scale) != len(bottoms):
            raise ShapeError(
                f"needs as many bottoms as mask_group_num {self.mask_group_num}, with an anchors_scale "
                f"each, got {len(bottoms)} and {len(self.anchors_scale)}"
            )
        if self.nms_threshold <= 0:
            raise ShapeError(f"nms_threshold: expected above 0, got {self.nms_threshold}")
        for x in bottoms:
            if len(x) != 4 or x[:2] != (first[0], self.num_box * wide) or x[2] != x[3]:
                raise ShapeError(f"needs bottoms (n, {self.num_box * wide}, side, side), got {x}")
        group = len(self.mask) // len(bottoms)
        self.of_bottom = [
            self.mask[k * group : k * group + self.num_box] for k in range(len(bottoms))
        ]
        if any(len(mask) < self.num_box for mask in self.of_bottom):
            raise ShapeError(
                f"mask: expected num_box {self.num_box} a bottom, got {len(self.mask)}"
            )
        if 2 * max(self.mask) + 1 >= len(self.biases):
            raise ShapeError(f"biases: expected two for each of {max(self.mask) + 1} anchors")
        self.count, places = first[0], sum(x[2] ** 2 for x in bottoms)
        return (1, 1, self.count * places * self.num_box * self.num_classes, 7)

    def forward(self, *xs: Any) -> Any:
        parts = [self.decoded(k, self.on_host(x)) for k, x in enumerate(xs)]
        around, scores = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
        rows = np.concatenate([self.of_image(i, around[i], scores[i]) for i in range(self.count)])
        if not len(rows):
            rows = np.full((self.count, 7), -1, self.sum_dtype)
            rows[:, 0] = np.arange(self.count)
        top = self.out[0][:, :, : len(rows)]
        self.context.device.copy_from_host(top, rows.reshape(top.shape))
        return top

    def decoded(self, k: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The corners (n, p, 4) of a bottom's boxes, place by place, and their scores (n, p, num_classes)."""
        n, side = len(x), x.shape[2]
        x = x.reshape(n, self.num_box, -1, side, side).transpose(0, 3, 4, 1, 2)
        anchors = np.array(self.biases, x.dtype).reshape(-1, 2)[list(self.of_bottom[k])]
        at = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1)[:, :, None]
        with np.errstate(over="ignore"):
            chance = 1 / (1 + np.exp(-np.delete(x, (2, 3), axis=-1)))  # x, y, something, classes
            half = np.exp(x[..., 2:4]) * anchors / (2 * side * self.anchors_scale[k])
        middle = (chance[..., :2] + at) / side
        corners = np.concatenate([middle - half, middle + half], axis=-1)
        scores = chance[..., 3:] * chance[..., 2:3]
        both = corners.reshape(n, -1, 4), scores.reshape(n, -1, self.num_classes)
        return both[0].astype(x.dtype), both[1].astype(x.dtype)

    def of_image(self, image: int, around: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The detections of one image: rows (kept, 7)."""
        box, kind = np.nonzero(scores > self.confidence_threshold)
        best = np.argsort(-scores[box, kind], kind="stable")
        box, kind = box[best], kind[best]
        below = np.nextafter(scores.dtype.type(self.nms_threshold), scores.dtype.type(-1))
        kept = boxes.suppress(around[box], float(below))
        rows = np.empty((len(kept), 7), scores.dtype)
        box, kind = box[kept], kind[kept]
        rows[:, 0], rows[:, 1], rows[:, 2] = image, kind + 1, scores[box, kind]
        rows[:, 3:] = around[box]
        return rows
