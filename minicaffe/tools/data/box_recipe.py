"""From a picture and its boxes, as they were read, to what a detector sees of them: SSD's augmentation.

In the order of SSD's AnnotatedData: colours, a larger canvas, a part of the picture, its size, noise, crop,
mirror. Pictures are (c, h, w), uint8; boxes rows (k, 7) as in datum.py. Numbers of [0, 1) decide what is
done at random. SSD packs a picture as JPEG between two steps; here it is not packed.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast, Below
from minicaffe.errors import DataError, SpecError
from minicaffe.tools.data import augment
from minicaffe.tools.data.augment import Recipe
from minicaffe.tools.data.datum import BOX
from minicaffe.tools.data.picture_files import pillow

MOST = 1 << 28  # pixels of a picture that is made
GREY = augment.GREY[::-1]  # of blue, green, red
# Which numbers of a sample decide what; those of the recipe come first, those of samplers last.
_REST = 3
_DISTORT, _EXPAND = slice(_REST, _REST + 11), slice(_REST + 11, _REST + 15)
_PART, _FILTER, _NOISE = _REST + 15, _REST + 16, _REST + 17
_SAMPLERS = _REST + 18
ENDS, MEASURED = ("min", "max"), ("jaccard_overlap", "sample_coverage", "object_coverage")
Share = Annotated[float, "a probability", AtLeast(0)]
FAR = Below(1_000_000)  # changes of colours that float32 holds


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """The sizes of the parts of a picture that are tried, in fractions of the picture."""

    min_scale: Annotated[float, "least square root of the area"] = 1.0
    max_scale: Annotated[float, "largest square root of the area"] = 1.0
    min_aspect_ratio: Annotated[float, "least width over height"] = 1.0
    max_aspect_ratio: Annotated[float, "largest width over height"] = 1.0

    def __post_init__(self) -> None:
        for key, bound, limit in (("scale", 1.0, " <= 1"), ("aspect_ratio", np.inf, "")):
            least, most = (getattr(self, f"{end}_{key}") for end in ENDS)
            if not 0 < least <= most <= bound:
                expected = f"expected 0 < min_{key} <= max_{key}{limit}"
                raise SpecError(f"{expected}, got {least:g} and {most:g}")


@dataclass(frozen=True, kw_only=True)
class SampleConstraint:
    """What a part of a picture must share with some true box, all of it with the same one."""

    min_jaccard_overlap: Annotated[float | None, "least intersection over union"] = None
    max_jaccard_overlap: Annotated[float | None, "largest intersection over union"] = None
    min_sample_coverage: Annotated[float | None, "least share of the part"] = None
    max_sample_coverage: Annotated[float | None, "largest share of the part"] = None
    min_object_coverage: Annotated[float | None, "least share of the box"] = None
    max_object_coverage: Annotated[float | None, "largest share of the box"] = None


@dataclass(frozen=True, kw_only=True)
class BatchSampler:
    """Parts of a picture that are tried; one of all that fit is taken."""

    use_original_image: Annotated[bool, "SSD's: a sampler of no picture finds nothing"] = True
    sampler: Annotated[Sampler, "their sizes"] = Sampler()
    sample_constraint: Annotated[SampleConstraint, "what they must hold"] = SampleConstraint()
    max_sample: Annotated[int | None, "how many are enough", AtLeast(1)] = None
    max_trials: Annotated[int, "how many are tried", AtLeast(1), Below(10_001)] = 100

    def parts(self, objects: np.ndarray, chance: np.ndarray) -> np.ndarray:
        """The parts (k, 4) that hold what they must, of numbers (trials, 4).

        A part's scale is even in that of `sampler`, its width over height too, held to scale^2 and 1 / scale^2
        so that it lies in the picture; with limits some object must be within all of them.
        """
        sizes = self.sampler
        scale = sizes.min_scale + chance[:, 0] * (sizes.max_scale - sizes.min_scale)
        most = sizes.max_aspect_ratio - sizes.min_aspect_ratio
        ratio = sizes.min_aspect_ratio + chance[:, 1] * most
        ratio = np.minimum(np.maximum(ratio, scale**2), 1 / scale**2)
        size = scale[:, None] * np.stack([np.sqrt(ratio), 1 / np.sqrt(ratio)], axis=1)
        corner = chance[:, 2:] * (1 - size).clip(0)
        parts = np.concatenate([corner, corner + size], axis=1)
        if self.sample_constraint != SampleConstraint():
            fits = np.ones((len(parts), len(objects)), bool)
            for what in MEASURED:
                value = _measured(what, parts, objects)
                least, most = (getattr(self.sample_constraint, f"{end}_{what}") for end in ENDS)
                fits &= value >= (-1 if least is None else least)
                fits &= value <= (2 if most is None else most)
            parts = parts[fits.any(axis=1)]
        return parts[: self.max_sample]


def _measured(what: str, parts: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """What parts (k, 4) and objects (m, 4) share, (k, m): over both, the part's area, or the object's."""
    a, b = parts[:, None], objects[None]
    size = (np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])).clip(0)
    shared = size[..., 0] * size[..., 1]
    own, other = ((x[..., 2:] - x[..., :2]).clip(0).prod(axis=-1) for x in (a, b))
    over = dict(zip(MEASURED, (own + other - shared, own, other), strict=True))[what]
    over = np.broadcast_to(over, shared.shape)
    return np.divide(shared, over, out=np.zeros_like(shared), where=over > 0)


@dataclass(frozen=True, kw_only=True)
class Distort:
    """How colours are changed at random (SSD's DistortionParameter)."""

    brightness_prob: Share = 0.0
    brightness_delta: Annotated[float, "most that is added or subtracted", AtLeast(0), FAR] = 0.0
    contrast_prob: Share = 0.0
    contrast_lower: Annotated[float, "least factor", AtLeast(0), FAR] = 0.0
    contrast_upper: Annotated[float, "largest factor", AtLeast(0), FAR] = 0.0
    hue_prob: Share = 0.0
    hue_delta: Annotated[float, "most that the hue is turned, of 180", AtLeast(0), FAR] = 0.0
    saturation_prob: Share = 0.0
    saturation_lower: Annotated[float, "least factor", AtLeast(0), FAR] = 0.0
    saturation_upper: Annotated[float, "largest factor", AtLeast(0), FAR] = 0.0
    random_order_prob: Annotated[float, "that channels change places", AtLeast(0)] = 0.0

    def __post_init__(self) -> None:
        for what in ("contrast", "saturation"):
            least, most = (getattr(self, f"{what}_{end}") for end in ("lower", "upper"))
            if least > most:
                raise SpecError(
                    f"expected {what}_lower <= {what}_upper, got {least:g} and {most:g}"
                )

    def of(self, picture: np.ndarray, chance: np.ndarray) -> np.ndarray:
        """The picture in other colours. Contrast is changed after brightness, or last, as often."""
        likely, amount = chance[0:8:2], chance[1:8:2]
        x = picture.astype(np.float32)

        def contrast(x: np.ndarray) -> np.ndarray:
            least, most = self.contrast_lower, self.contrast_upper
            if likely[1] >= self.contrast_prob:
                return x
            return x * (least + amount[1] * (most - least))

        if likely[0] < self.brightness_prob:
            x = (x + (2 * amount[0] - 1) * self.brightness_delta).clip(0, 255)
        if chance[10] > 0.5:
            x = contrast(x).clip(0, 255)
        if likely[2] < self.saturation_prob:
            least, most = self.saturation_lower, self.saturation_upper
            x = _saturated(x, least + amount[2] * (most - least))
        if likely[3] < self.hue_prob:
            x = _turned(x, (2 * amount[3] - 1) * self.hue_delta / 30)
        if chance[10] <= 0.5:
            x = contrast(x).clip(0, 255)
        if chance[8] < self.random_order_prob:
            orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
            x = x[list(orders[int(chance[9] * 6)])]
        return np.rint(x).astype(np.uint8)


def _saturated(x: np.ndarray, factor: float) -> np.ndarray:
    """Colours whose saturation (of hue, saturation, value) is multiplied, up to 1."""
    value, least = x.max(axis=0), x.min(axis=0)
    most = np.divide(value, value - least, out=np.ones_like(value), where=value > least)
    return np.asarray(value - (value - x) * np.minimum(np.float32(factor), most))


def _turned(x: np.ndarray, turn: float) -> np.ndarray:
    """Colours (blue, green, red) whose hue is turned, by sixths of the circle."""
    blue, green, red = x
    value = x.max(axis=0)
    chroma = value - x.min(axis=0)
    over = np.where(chroma > 0, chroma, 1)
    hue = np.where(value == green, 2 + (blue - red) / over, 4 + (red - green) / over)
    hue = np.where(value == red, (green - blue) / over, hue)
    places = [(n + hue + turn) % 6 for n in (1, 3, 5)]  # of blue, green, red
    turned = [value - chroma * np.minimum(k, 4 - k).clip(0, 1) for k in places]
    return np.stack(turned).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Resize:
    """The size that a picture is made (SSD's ResizeParameter)."""

    prob: Annotated[float, "SSD's: a picture is always resized"] = 1.0
    resize_mode: Annotated[
        Literal["WARP", "FIT_SMALL_SIZE", "FIT_LARGE_SIZE_AND_PAD"],
        "stretch; the shorter side fits, with crop_size; the longer side fits, the rest is padded",
    ] = "WARP"
    height: Annotated[int, "rows", AtLeast(1)]
    width: Annotated[int, "columns", AtLeast(1)]
    pad_mode: Annotated[
        Literal["CONSTANT", "MIRRORED", "REPEAT_NEAREST"], "what is beside a padded picture"
    ] = "CONSTANT"
    pad_value: Annotated[tuple[float, ...], "of CONSTANT: one number, or one a channel"] = ()
    interp_mode: Annotated[
        tuple[Literal["LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4"], ...],
        "filters, one of which is drawn for each picture",
    ] = ("LINEAR",)

    def size(self, h: int, w: int) -> tuple[int, int]:
        """The size of a picture of h x w before it is padded."""
        if self.resize_mode == "WARP":
            return self.height, self.width
        wider = w / h > self.width / self.height
        if wider == (self.resize_mode == "FIT_LARGE_SIZE_AND_PAD"):
            return max(1, int(self.width * h / w)), self.width
        return self.height, max(1, int(self.height * w / h))

    def of(
        self, picture: np.ndarray, boxes: np.ndarray, chance: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The picture in its size, and its boxes there."""
        h, w = self.size(*picture.shape[1:])
        filters = self.interp_mode or ("LINEAR",)
        picture = scaled(picture, h, w, filters[int(chance * len(filters))])
        boxes = boxes.copy()
        boxes[:, BOX] = boxes[:, BOX].clip(0, 1)
        if self.resize_mode != "FIT_LARGE_SIZE_AND_PAD":
            return picture, boxes
        spare = self.height - h, self.width - w
        before = [room // 2 for room in spare]
        pads = [(0, 0), *((b, room - b) for b, room in zip(before, spare, strict=True))]
        corner = np.array([before[1], before[0]] * 2)
        whole = np.array([self.width, self.height] * 2)
        boxes[:, BOX] = (boxes[:, BOX] * np.array([w, h] * 2) + corner) / whole
        if self.pad_mode == "CONSTANT":
            return _on_canvas(picture, (self.height, self.width), before, self.pad_value), boxes
        mode: Any = {"MIRRORED": "reflect", "REPEAT_NEAREST": "edge"}[self.pad_mode]
        return np.pad(picture, pads, mode), boxes


def _fill(values: Sequence[float], channels: int) -> np.ndarray:
    """Returns a number of 8 bits for each channel, of as many or of one for all, 0 of none."""
    return np.broadcast_to(np.rint(values or (0.0,)).clip(0, 255).astype(np.uint8), channels)


def _on_canvas(
    picture: np.ndarray, size: tuple[int, int], corner: Sequence[int], values: Sequence[float]
) -> np.ndarray:
    """Returns a picture on a canvas of a colour, its upper left at `corner`."""
    c, h, w = picture.shape
    canvas = np.empty((c, *size), np.uint8)
    canvas[...] = _fill(values, c)[:, None, None]
    canvas[:, corner[0] : corner[0] + h, corner[1] : corner[1] + w] = picture
    return canvas


def scaled(picture: np.ndarray, h: int, w: int, how: str) -> np.ndarray:
    """A picture of another size: LINEAR and NEAREST as OpenCV's, AREA, CUBIC and LANCZOS4 as Pillow's."""
    if picture.shape[1:] == (h, w):
        return picture
    if how == "LINEAR":
        return augment.bilinear(picture.transpose(1, 2, 0), h, w).transpose(2, 0, 1)
    if how == "NEAREST":
        rows, columns = (
            np.minimum((np.arange(wanted) * (size / wanted)).astype(int), size - 1)
            for wanted, size in zip((h, w), picture.shape[1:], strict=True)
        )
        return picture[:, rows[:, None], columns]
    pillows = {"AREA": "BOX", "CUBIC": "BICUBIC", "LANCZOS4": "LANCZOS"}
    return augment.resampled(picture, h, w, pillows[how])


@dataclass(frozen=True, kw_only=True)
class SaltPepper:
    """Pixels that are set to a value."""

    fraction: Annotated[float, "of the pixels", AtLeast(0)] = 0.0
    value: Annotated[tuple[float, ...], "one number, or one a channel"] = ()

    def __post_init__(self) -> None:
        if self.fraction > 1:
            raise SpecError(f"fraction: expected at most 1, got {self.fraction:g}")


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How pictures are spoilt, each of them (SSD's NoiseParameter)."""

    prob: Annotated[float, "SSD's, which does not look at it: every picture is spoilt"] = 0.0
    hist_eq: Annotated[bool, "spread the brightness evenly"] = False
    inverse: Annotated[bool, "255 - x"] = False
    decolorize: Annotated[bool, "grey, in as many channels"] = False
    gauss_blur: Annotated[bool, "7 x 7, of sigma 1.5"] = False
    jpeg: Annotated[float, "pack as JPEG of this quality; -1: do not"] = -1.0
    posterize: Annotated[bool, "four steps of brightness"] = False
    erode: Annotated[bool, "the least of a pixel and its four neighbours"] = False
    saltpepper: Annotated[bool, "set pixels as saltpepper_param says"] = False
    saltpepper_param: Annotated[SaltPepper, "which"] = SaltPepper()

    def of(self, picture: np.ndarray, chance: float) -> np.ndarray:
        """The picture, spoilt, in SSD's order."""
        for step, spoilt in _SPOILT.items():
            if getattr(self, step) > 0:
                picture = spoilt(picture, self)
        salt = self.saltpepper_param
        if self.saltpepper and salt.value:
            h, w = picture.shape[1:]
            random = np.random.default_rng(int(chance * 2**53))
            y = random.integers(h, size=int(salt.fraction * h * w))
            x = random.integers(w, size=len(y))
            picture = picture.copy()
            picture[:, y, x] = _fill(salt.value, len(picture))[:, None]
        return picture


def _grey(picture: np.ndarray, of: Noise) -> np.ndarray:
    grey = np.rint(np.tensordot(GREY, picture, 1)) if len(picture) == 3 else picture[0]
    return np.broadcast_to(grey.astype(np.uint8), picture.shape)


def _blurred(picture: np.ndarray, of: Noise) -> np.ndarray:
    """By 7 x 7 weights of exp(-d^2 / 2 sigma^2), sigma 1.5; rows and columns beyond the edge are mirrored."""
    weights = np.exp(-(np.arange(-3, 4) ** 2) / (2 * 1.5**2))
    x = picture.astype(np.float64)
    for axis in (1, 2):
        pads: list[tuple[int, int]] = [(0, 0)] * 3
        pads[axis] = (3, 3)
        wide = np.pad(x, pads, "reflect" if x.shape[axis] > 1 else "edge")
        at = np.arange(x.shape[axis])
        parts = [w * wide.take(at + i, axis) for i, w in enumerate(weights / weights.sum())]
        x = np.sum(parts, axis=0)
    return np.rint(x).clip(0, 255).astype(np.uint8)


def _equalized(picture: np.ndarray, of: Noise) -> np.ndarray:
    """Brightness spread evenly; colours keep their distance to it."""
    grey = _grey(picture, of)[0]
    counts = np.bincount(grey.ravel(), minlength=256)
    summed = counts.cumsum()
    least = summed[counts > 0][0]
    if summed[-1] == least:
        return picture
    table = np.rint((summed - least).clip(0) * (255 / (summed[-1] - least)))
    moved = picture + (table[grey] - grey)[None]
    return np.asarray(moved).clip(0, 255).astype(np.uint8)


def _packed(picture: np.ndarray, of: Noise) -> np.ndarray:
    image = pillow("noise of JPEG")
    pixels = np.ascontiguousarray(picture[::-1].transpose(1, 2, 0))
    file = io.BytesIO()
    pixels, quality = pixels[..., 0] if len(picture) == 1 else pixels, min(max(of.jpeg, 1), 100)
    image.fromarray(pixels).save(file, "JPEG", quality=int(quality))
    unpacked = np.asarray(image.open(file))
    unpacked = unpacked[:, :, None] if unpacked.ndim == 2 else unpacked
    return unpacked.transpose(2, 0, 1)[::-1]


def _eroded(picture: np.ndarray, of: Noise) -> np.ndarray:
    wide = np.pad(picture, [(0, 0), (1, 1), (1, 1)], "edge")
    h, w = picture.shape[1:]
    sides = [wide[:, y : y + h, x : x + w] for y, x in ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))]
    return np.minimum.reduce(sides)


_SPOILT = {
    "decolorize": _grey,
    "gauss_blur": _blurred,
    "hist_eq": _equalized,
    "jpeg": _packed,
    "erode": _eroded,
    "posterize": lambda picture, of: picture // 64 * 64 + 32,
    "inverse": lambda picture, of: 255 - picture,
}


@dataclass(frozen=True, kw_only=True)
class Expand:
    """A larger canvas, of the mean's colour, somewhere on which a picture is put."""

    prob: Share = 1.0
    max_expand_ratio: Annotated[float, "largest width over that of the picture", AtLeast(1)] = 1.0


@dataclass(frozen=True, kw_only=True)
class EmitConstraint:
    """Which boxes stay when a part of a picture is taken."""

    emit_type: Annotated[
        Literal["CENTER", "MIN_OVERLAP"], "those whose middle is in it, or enough of whose area"
    ] = "CENTER"
    emit_overlap: Annotated[float, "of MIN_OVERLAP: more than this share of a box"] = 0.0


@dataclass(frozen=True, kw_only=True)
class BoxRecipe:
    """What is done to a picture and its boxes; `rest` crops, mirrors and subtracts the mean.

    `boxes` is the number of rows that a sample's label has; without `emit` any share of a box in a part is
    enough for it to stay.
    """

    rest: Recipe
    boxes: int
    distortion: Distort | None = None
    expand: Expand | None = None
    fill: tuple[float, ...] = ()  # of the larger canvas
    samplers: tuple[BatchSampler, ...] = ()
    resized: Resize | None = None
    noise: Noise | None = None
    emit: EmitConstraint | None = None

    @property
    def numbers(self) -> int:
        """How many random numbers of a sample it looks at, at most."""
        return _SAMPLERS + 4 * sum(one.max_trials for one in self.samplers)

    def sample(
        self, picture: np.ndarray, label: Any, chance: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        """Write what the net sees of a picture into `out`; returns its boxes (boxes, 8).

        A row is -1, class, instance, x0, y0, x1, y1, difficult, or, of no box, all -1.
        """
        if picture.dtype != np.uint8:
            raise DataError(f"expected bytes, got {picture.dtype}")
        if len(picture) != len(out):
            raise DataError(
                f"expected a picture of {len(out)} channels, got {len(picture)}; transform: force_color, or "
                "force_gray, makes encoded pictures alike"
            )
        boxes = np.asarray(label, np.float64)
        if self.distortion is not None:
            picture = self.distortion.of(picture, chance[_DISTORT])
        if self.expand is not None:
            picture, boxes = self._expanded(picture, boxes, chance[_EXPAND])
        picture, boxes = self._sampled(picture, boxes, chance)
        if self.resized is not None:
            picture, boxes = self.resized.of(picture, boxes, chance[_FILTER])
        if self.noise is not None:
            picture = self.noise.of(picture, chance[_NOISE])
        top, left, rows, columns = self.rest.part(picture.shape, out.shape, chance)
        h, w = picture.shape[1:]
        part = [left / w, top / h, (left + columns) / w, (top + rows) / h]
        boxes = self.seen(boxes, np.array(part))
        self.rest.make(picture, chance, out)
        if self.rest.mirror and chance[2] < 0.5:
            boxes[:, [2, 4]] = 1 - boxes[:, [4, 2]]
        padded = np.full((self.boxes, 8), -1.0)
        padded[: len(boxes), 1:] = boxes
        return padded

    def seen(self, boxes: np.ndarray, part: np.ndarray) -> np.ndarray:
        """The boxes of which something is in a part (x0, y0, x1, y1), as fractions of that part."""
        corners = boxes[:, BOX]
        inside = ((corners[:, :2] < part[2:]) & (corners[:, 2:] > part[:2])).all(axis=1)
        if self.emit is not None and self.emit.emit_type == "CENTER":
            middle = (corners[:, :2] + corners[:, 2:]) / 2
            inside &= ((middle >= part[:2]) & (middle <= part[2:])).all(axis=1)
        elif self.emit is not None and len(boxes):
            inside &= _measured("object_coverage", part[None], corners)[0] > self.emit.emit_overlap
        size = part[2:] - part[:2]
        moved = ((corners - np.tile(part[:2], 2)) / np.tile(size, 2)).clip(0, 1)
        inside &= (moved[:, 2:] > moved[:, :2]).all(axis=1)
        remaining = boxes[inside]
        remaining[:, BOX] = moved[inside]
        return remaining

    def _expanded(
        self, picture: np.ndarray, boxes: np.ndarray, chance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The picture somewhere on a canvas up to so many times as wide and high."""
        assert self.expand is not None
        likely, most = self.expand.prob, self.expand.max_expand_ratio
        if chance[0] > likely or abs(most - 1) < 1e-2:
            return picture, boxes
        ratio = 1 + chance[1] * (most - 1)
        h, w = picture.shape[1:]
        rows, columns = int(h * ratio), int(w * ratio)
        if rows * columns > MOST:
            raise DataError(f"expand_param: a canvas of {rows} x {columns} is too large")
        top, left = int(chance[2] * (rows - h)), int(chance[3] * (columns - w))
        canvas = _on_canvas(picture, (rows, columns), (top, left), self.fill)
        whole = np.array([-left / w, -top / h, (columns - left) / w, (rows - top) / h])
        return canvas, self.seen(boxes, whole)

    def _sampled(
        self, picture: np.ndarray, boxes: np.ndarray, chance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One of the parts that the samplers find, if there is one."""
        parts: list[np.ndarray] = []
        at = _SAMPLERS
        for one in self.samplers:
            numbers = chance[at : at + 4 * one.max_trials].reshape(-1, 4)
            parts += [*one.parts(boxes[:, BOX], numbers)]
            at += 4 * one.max_trials
        if not parts:
            return picture, boxes
        part = parts[int(chance[_PART] * len(parts))].clip(0, 1)
        h, w = picture.shape[1:]
        left, top = int(part[0] * w), int(part[1] * h)
        columns, rows = (max(1, int((part[2] - part[0]) * w)), max(1, int((part[3] - part[1]) * h)))
        return picture[:, top : top + rows, left : left + columns], self.seen(boxes, part)
