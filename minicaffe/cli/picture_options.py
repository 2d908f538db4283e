"""The options that say how pictures are made ready for a net, and what its classes are called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from minicaffe.cli.parser import CommandOptions
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.tree import load
from minicaffe.core.layers.files import read_array
from minicaffe.errors import DataError, MinicaffeError
from minicaffe.interop.caffe.label_map import is_label_map, names_in
from minicaffe.interop.caffe.model import is_prototxt
from minicaffe.interop.caffe.weights import is_caffes
from minicaffe.storage import lists
from minicaffe.tools.data.layers.pictures import Pictures, Transform
from minicaffe.tools.deploy import label_names


class Prepared(CommandOptions):
    """--mean, --scale and --channels."""

    mean: Annotated[
        str | None,
        "MEAN",
        "deploy nets: what is subtracted: a number, one a channel (104,117,123), or a mean image,"
        " .npy or .binaryproto, of which the channels' means are taken if it is of another size",
    ] = None
    scale: Annotated[
        float | None,
        "deploy nets: what pixels, from 0 to 255, are multiplied by after that",
    ] = None
    channels: Annotated[
        Literal["rgb", "bgr"] | None,
        "the order of three channels; default: the data layer's, of deploy nets, but for export, Caffe's"
        " bgr if the net or its weights are Caffe's, else rgb",
    ] = None


class Labelled(Prepared):
    """--labels too."""

    labels: Annotated[
        str | None,
        "a text file with the name of a class in each line, or SSD's label map; default: the names in"
        " the snapshot, the data set or the label map that the model names",
    ] = None


def no_options_of_deploy_nets(args: CommandOptions, layer: str) -> None:
    """Raise MinicaffeError for --mean and --scale, which the model's layer of data says itself."""
    for option in ("mean", "scale"):
        if getattr(args, option) is not None:
            raise MinicaffeError(
                f"--{option}: the layer {layer!r} says it; give"
                f" --set layers.{layer}.transform.{option + '_value' * (option == 'mean')}=..."
            )


def mean_of(given: str, image: tuple[int, int, int]) -> str | tuple[float, ...]:
    """What --mean subtracts: the path of an image of the net's size, or one number or one a channel."""
    if os.path.isfile(given):
        mean = read_array(Path(given))
        mean = mean.reshape(mean.shape[-3:] if mean.ndim == 4 and len(mean) == 1 else mean.shape)
        if mean.shape == image:
            return given
        values = mean.reshape(len(mean), -1).mean(axis=1) if mean.ndim in (1, 3) else mean
    else:
        try:
            values = np.array([float(word) for word in given.split(",")])
        except ValueError:
            raise MinicaffeError(
                f"--mean {given}: there is no such file, and it is not one number or {image[0]}"
            ) from None
    if values.shape not in ((1,), (image[0],)) or not np.isfinite(values).all():
        raise MinicaffeError(
            f"--mean {given}: expected 1 or {image[0]} numbers, or an image of {image}"
        )
    return tuple(map(float, values))


def prepare(args: CommandOptions, data: Pictures, weights: str) -> None:
    """Have pictures made ready as the options say. Raises MinicaffeError for those a data layer answers."""
    if args.channels is not None:
        data.blue_first = args.channels == "bgr"
    if type(data) is not Pictures:  # a layer of the model's own
        no_options_of_deploy_nets(args, data.name)
        return
    caffes = is_prototxt(args.model) or any(map(is_caffes, weights.split(",")))
    data.blue_first = (args.channels or ("bgr" if caffes else "rgb")) == "bgr"
    scale = 1.0 if args.scale is None else args.scale
    mean = () if args.mean is None else mean_of(args.mean, data.image)
    if isinstance(mean, str):
        data.transform = Transform(scale=scale, mean_file=mean)
    else:
        data.transform = Transform(scale=scale, mean_value=mean)
    order = "blue, green, red" if data.blue_first else "red, green, blue"
    told = [order] * (data.image[0] == 3) + [f"mean {args.mean or 0}", f"scale {scale:g}"]
    args.tell(f"pictures: {', '.join(told)}")


def lines_of(path: str, count: int) -> list[str]:
    """The names in a file, one a line, or of a label map. Raises MinicaffeError for another number of them."""
    text = lists.text(Path(path))
    if is_label_map(text):
        names = names_in(text, path)
        if set(names) != set(range(count)):
            raise MinicaffeError(
                f"--labels {path}: names {len(names)} classes, from {min(names)} to {max(names)}; "
                f"the net has classes 0 to {count - 1}"
            )
        return [names[label] for label in range(count)]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != count:
        raise MinicaffeError(
            f"--labels {path}: has {len(lines)} names; the net has {count} classes"
        )
    for line in lines:
        if not line.isprintable():
            raise DataError(f"{path}: is not a text with a name in each line: found {line[:40]!r}")
    return lines


def box_names(labels: str | None, model: NetSpec, beside: Path | None) -> dict[int, str]:
    """A detector's classes: those of --labels, a label map or a name a line, else of the model's label map."""
    if labels is not None:
        file, text_ = load(labels, "text", own=True)
        if is_label_map(text_):
            return names_in(text_, file)
        lines = [line.strip() for line in text_.splitlines() if line.strip()]
        if not lines or not all(line.isprintable() for line in lines):
            raise MinicaffeError(f"--labels {labels}: expected a label map, or a name in each line")
        return dict(enumerate(lines))
    return label_names(model, beside)
