"""How pictures are made ready for a net and what its classes are called, as data beside an exported net."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net import Net
from minicaffe.core.net.sources import with_classes
from minicaffe.tools.data.layers.pictures import Pictures, takes_digits
from minicaffe.tools.inference import for_test, inputs

FILTERS = {"stretch": "opencv linear", "cover": "pillow bilinear", "contain": "pillow lanczos"}
GREY = "grey"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What is known of a net's pictures and classes; None is what nobody says.

    A picture is brought to `size` (h, w) by `fit`: `stretch` scales height and width apart; `cover` scales it
    in proportion to the least size that covers `size`, and cuts out the centre; `contain` to the largest that
    fits into it, centred on black; `digit` looks for a digit, as `minicaffe predict` does. Of that the
    central `crop` (h, w) is the input, its channels in the order of `channels`, as (pixel - mean) scale, of
    pixels from 0 to 255. `mean` is one number a channel, or an image (c, h, w) of `size`. `layer` is the
    model's own layer of pictures, if it has one.
    """

    classes: tuple[str, ...] = ()
    input: str | None = None
    layer: str | None = None
    channel_count: int = 0
    size: tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    fit: str | None = None
    channels: str | None = None
    mean: tuple[float, ...] | np.ndarray | None = None
    scale: float | None = None
    inverts: bool = False  # whether a picture with a light border is inverted

    @property
    def mean_image(self) -> np.ndarray | None:
        """The image that is subtracted, if it is one."""
        return self.mean if isinstance(self.mean, np.ndarray) else None

    def preprocessing(self, mean_file: str) -> dict[str, Any] | None:
        """What a picture goes through, for JSON; None if the net takes no pictures.

        The mean image, if there is one, lies in `mean_file`.
        """
        if self.input is None:
            return None
        image = self.mean_image is not None
        return {
            "input": self.input,
            "fit": self.fit,
            "filter": FILTERS.get(self.fit or ""),
            "size": self.size,
            "crop": self.crop,
            "channels": self.channels,
            "invert_light_border": self.inverts,
            "mean": None if image else self.mean,
            "mean_image": mean_file if image else None,
            "scale": self.scale,
        }


def preparation(model: NetSpec) -> Preparation:
    """What a model says of its pictures and classes: its layer of pictures of the phase TEST, and `classes`.

    Of a net whose pictures are an Input it is the size alone.

    >>> from minicaffe.core.net import parse
    >>> found = preparation(parse('''
    ... layers:
    ...   - {name: mnist, type: Data, top: [data, label], source: digits, batch_size: 64,
    ...      transform: {scale: 0.00390625}}
    ...   - {name: ip, type: InnerProduct, num_output: 10}
    ...   - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
    ... '''))
    >>> found.input, found.channels, found.size, found.mean, found.scale
    ('data', 'grey', (28, 28), (0.0,), 0.00390625)
    """
    net = Net(for_test(model), "TEST", device="cpu", shapes_only=True)
    data = pictures_of(net)
    classes = with_classes(model, [] if data is None else [data]).classes
    if data is None or len(data.image) != 3:
        return Preparation(classes=classes)  # numbers, or frames of a video
    c, h, w = data.image
    crop = data.transform.crop_size
    known: dict[str, Any] = {"classes": classes, "input": data.top[0], "channel_count": c}
    known |= {"size": (h, w), "crop": (crop, crop) if crop else (h, w)}
    known["channels"] = GREY if c == 1 else None
    known["inverts"] = c == 1 and data.inverts
    if type(data) is Pictures:  # a deploy net, which says no more
        return Preparation(**known)
    boxes = any(step.spec.type == "DetectionOutput" for step in net.steps)
    digits = c == 1 and takes_digits(data)
    known["fit"] = "stretch" if boxes else "digit" if digits else data.fit
    mean = np.asarray(data.mean(), np.float64)
    plain = mean.shape[1:] == (1, 1)
    if known["fit"] == "cover" and crop and plain:
        known["size"] = (min(h, w), min(h, w))
    known["mean"] = tuple(map(float, np.broadcast_to(mean.ravel(), c))) if plain else mean
    if c == 3:
        known["channels"] = "bgr" if data.blue_first else "rgb"
    return Preparation(layer=data.name, scale=data.transform.scale, **known)


def pictures_of(net: Net) -> Pictures | None:
    """The layer that reads a net's pictures; None if it takes none.

    For a net whose only Input is of pictures (n, c, h, w) it is a layer that changes nothing.
    """
    for step in net.steps:
        if isinstance(step.layer, Pictures):
            return step.layer.alone()
    blobs = list(inputs(net))
    if len(blobs) != 1 or len(blobs[0].shape) != 4:
        return None
    count, c, h, w = blobs[0].shape
    data = Pictures(batch_size=count)
    data.name, data.top, data.image = blobs[0].producer.name, (blobs[0].name,), (c, h, w)
    return data


def metadata(about: Preparation, mean_file: str) -> dict[str, str]:
    """What an .onnx file holds of it: `classes` and `preprocessing`, as JSON, where they are known."""
    entries = {"classes": about.classes, "preprocessing": about.preprocessing(mean_file)}
    return {key: json.dumps(value, ensure_ascii=False) for key, value in entries.items() if value}


def described(
    about: Preparation, shapes: Mapping[str, Mapping[str, Sequence[Any]]], mean_file: str
) -> bytes:
    """The JSON file beside an .onnx file: the shapes of its inputs and outputs, classes, preprocessing."""
    preprocessing = about.preprocessing(mean_file)
    content = {**shapes, "classes": list(about.classes) or None, "preprocessing": preprocessing}
    return json.dumps(content, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
