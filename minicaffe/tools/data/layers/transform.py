"""The key `transform` of layers that read pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from minicaffe.core.config.types import AtLeast
from minicaffe.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class ResizedCrop:
    """A part of a picture, of random area and shape in bounds, scaled to the crop (Szegedy et al. 2015)."""

    scale: Annotated[tuple[float, ...], "least and largest share of the area", AtLeast(0)] = (
        0.08,
        1.0,
    )
    ratio: Annotated[tuple[float, ...], "least and largest width / height", AtLeast(0)] = (
        3 / 4,
        4 / 3,
    )

    def __post_init__(self) -> None:
        for name, (least, *most), top in (("scale", self.scale, 1), ("ratio", self.ratio, 1e6)):
            if len(most) != 1 or not 0 < least <= most[0] <= top:
                limit = " at most 1" if top == 1 else ""
                got = ", ".join(map(str, (least, *most)))
                raise SpecError(f"{name}: expected [least, largest] above 0{limit}, got [{got}]")


@dataclass(frozen=True, kw_only=True)
class ColorJitter:
    """How far colours are changed at random: factors from 1 - x to 1 + x, and hue by up to x turns."""

    brightness: Annotated[float, "largest change of the factor of all values", AtLeast(0)] = 0.0
    contrast: Annotated[float, "the same for the distance to the mean grey", AtLeast(0)] = 0.0
    saturation: Annotated[float, "the same for the distance to a pixel's grey", AtLeast(0)] = 0.0
    hue: Annotated[float, "turns of the hue, either way", AtLeast(0)] = 0.0

    def __post_init__(self) -> None:
        if self.hue > 0.5:
            raise SpecError(f"hue: expected at most 0.5, half a turn, got {self.hue}")

    @property
    def most(self) -> tuple[float, float, float, float]:
        """The largest changes of brightness, contrast, saturation and hue."""
        return self.brightness, self.contrast, self.saturation, self.hue


@dataclass(frozen=True, kw_only=True)
class Transform:
    """How an image is changed before the net reads it: Caffe's TransformationParameter, and more.

    In this order: resize, rotation, crop (plain or random_resized_crop), color_jitter, mean, scale, mirror.
    rotation, random_resized_crop and color_jitter are for TRAIN: in TEST the picture is resized and its centre
    cut out.
    """

    scale: Annotated[float, "factor, after the mean is subtracted"] = 1.0
    mean_value: Annotated[tuple[float, ...], "mean to subtract: one number, or one a channel"] = ()
    mean_file: Annotated[
        str | None, "mean image (c, h, w) to subtract: an .npy or .binaryproto file"
    ] = None
    mirror: Annotated[bool, "flip left and right at random"] = False
    crop_size: Annotated[
        int | None,
        "side of a square to cut out: at random in TRAIN, central in TEST; 0 for none",
        AtLeast(0),
    ] = None
    force_color: Annotated[bool, "encoded images: 3 channels, even if grey"] = False
    force_gray: Annotated[bool, "encoded images: 1 channel, even if coloured"] = False
    resize: Annotated[
        int | None,
        "scale the shorter side to so many pixels; with random_resized_crop in TEST only",
        AtLeast(1),
    ] = None
    random_resized_crop: Annotated[
        ResizedCrop | None, "in TRAIN: cut out a part of any area and shape, scaled to crop_size"
    ] = None
    rotation: Annotated[
        float, "in TRAIN: rotate by up to so many degrees, either way", AtLeast(0)
    ] = 0.0
    rotation_fill: Annotated[float, "value of pixels that a rotation leaves empty"] = 0.0
    color_jitter: Annotated[
        ColorJitter | None, "in TRAIN: change brightness, contrast, saturation, hue"
    ] = None

    @property
    def by_pixels(self) -> bool:
        """Whether TRAIN needs more than a plain crop, mirror, mean and scale."""
        changed = self.random_resized_crop, self.color_jitter
        return bool(self.rotation) or any(one is not None for one in changed)
