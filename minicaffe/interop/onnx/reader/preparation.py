"""How an imported net's pictures are made ready, as the first layer of the net, which Caffe runs too."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net import parse
from minicaffe.errors import SpecError, did_you_mean
from minicaffe.tools.inference import PREPARATION


@dataclass(frozen=True)
class Prepares:
    """(pixel - mean) scale, of pixels from 0 to 255: one number, or one a channel, in the net's order."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    red_first: bool

    def of(self, pixels: np.ndarray) -> np.ndarray:
        """Returns pictures (n, c, h, w) as Caffe reads them, blue first, as the net takes them."""
        order = slice(None, None, -1 if self.red_first and pixels.shape[1] == 3 else 1)
        mean, scale = (np.reshape(one, (-1, 1, 1)) for one in (self.mean, self.scale))
        return (pixels[:, order] - mean) * scale


PRESETS = {
    "torchvision": Prepares((123.675, 116.28, 103.53), (1 / 58.395, 1 / 57.12, 1 / 57.375), True),
    "unit": Prepares((0.0,), (1 / 255,), True),
    "signed": Prepares((127.5,), (1 / 127.5,), True),
}


def channels_of(spec: NetSpec) -> int:
    """Returns the channels of the pictures that a net takes, 1 or 3; 0 if it takes none, or other blobs."""
    inputs = [layer for layer in spec.layers if layer.type == "Input"]
    sizes: tuple[int, ...] = inputs[0].options["shape"][0].dim if len(inputs) == 1 else ()
    return sizes[1] if len(sizes) == 4 and sizes[1] in (1, 3) else 0


def prepares(spec: NetSpec, pictures: str | Prepares) -> Prepares:
    """Returns the preset of this name, or what is none. Raises SpecError if it is not for this net."""
    if isinstance(pictures, str) and pictures not in PRESETS:
        hint = did_you_mean(pictures, PRESETS)
        raise SpecError(f"preset {pictures!r}: expected one of {', '.join(PRESETS)}{hint}")
    one = PRESETS[pictures] if isinstance(pictures, str) else pictures
    channels = channels_of(spec)
    if not channels:
        raise SpecError(f"net {spec.name!r}: expected one Input of pictures, of 1 or 3 channels")
    if not {len(one.mean), len(one.scale)} <= {1, channels}:
        raise SpecError(
            f"pictures of {channels} channel{'s' * (channels > 1)}: expected as many means and scales, or one"
        )
    return one


def prepared(spec: NetSpec, pictures: Prepares) -> tuple[NetSpec, dict[str, np.ndarray]]:
    """Returns a net of pixels as Caffe reads them, of one that takes pictures otherwise; and the new arrays.

    Its first layer is a 1 x 1 Convolution that does not learn.
    """
    data = next(layer for layer in spec.layers if layer.type == "Input")
    (top,), c = data.tops, channels_of(spec)
    once: dict[str, Any] = {"lr_mult": 0, "decay_mult": 0}
    layer: dict[str, Any] = {
        "name": PREPARATION,
        "type": "Convolution",
        "bottom": top,
        "top": PREPARATION,
    }
    layer |= {"num_output": c, "kernel_size": 1, "param": [once, once]}
    (first,) = parse({"layers": [layer]}).layers
    rest = []
    for one in spec.layers:
        bottoms = tuple(PREPARATION if name == top else name for name in one.bottom or ())
        rest += [] if one is data else [replace(one, bottom=bottoms)]
    bias = pictures.of(np.zeros((1, c, 1, 1)))[0]
    weight = pictures.of(np.eye(c).reshape(c, c, 1, 1)) - bias  # of each pixel's channel alone
    weight = weight.transpose(1, 0, 2, 3)
    arrays = {f"{PREPARATION}__0": weight, f"{PREPARATION}__1": bias.ravel()}
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
    return replace(spec, layers=(data, first, *rest)), arrays
