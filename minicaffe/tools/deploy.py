"""A trained model made ready for pictures of one's own: no labels, no loss, probabilities at the end."""

import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.layers.blob import numbers
from minicaffe.core.layers.context import Numerics
from minicaffe.core.net import Net, read
from minicaffe.core.net.model import holds_weights, models
from minicaffe.core.net.sources import with_classes
from minicaffe.core.plugins import label_map
from minicaffe.errors import DataError, ShapeError, SpecError
from minicaffe.storage.lists import find
from minicaffe.tools.data import pictures
from minicaffe.tools.data.augment import nearest, scale
from minicaffe.tools.data.layers.pictures import Pictures, takes_digits
from minicaffe.tools.data.pictures import named
from minicaffe.tools.inference import for_test, inference, inputs, prepares
from minicaffe.tools.training import folder as run_folder

TOGETHER = 16  # pictures that `predict` takes in a pass


class Deployed:
    """A trained model for pictures of one's own; subclasses say which layer's top is the answer."""

    ends: tuple[str, ...]  # types of layers whose top is the answer, the first that there is
    stretches = False  # whether pictures are stretched, whatever the data layer does

    def __init__(
        self,
        model: str | Path | Mapping[str, Any] | NetSpec,
        weights: str | Path | Mapping[str, Any] | None = None,
        *,
        device: str | backend.Device | None = None,
        numerics: Numerics | None = None,
        keep: Sequence[str] | None = (),
        **by_name: Any,
    ):
        self.model = for_test(model if isinstance(model, NetSpec) else read(model))
        spec, self.data = deploy(self.model, ends=self.ends)
        self._input = self.data.top[0]
        end = _ending(spec, self.ends)
        self.output, self.ended = end.tops[0], end.type
        numerics = replace(numerics or Numerics(deterministic=True), **by_name)
        blobs = None if keep is None else [*keep, self.output]
        self.net = Net(spec, "TEST", device=device, numerics=numerics, keep=blobs)
        if weights is None and isinstance(model, (str, Path)):
            weights = model if holds_weights(model) else shipped_weights(model)
        if isinstance(weights, (str, Path)):
            weights = run_folder.weights(weights) if os.path.isdir(weights) else weights
            run_folder.warn_of_old_reading(str(weights))
        if weights is not None:
            self.net.load(weights)

    def predict(self, images: Any) -> Any:
        """The answers to pictures; subclasses say what they are."""
        raise NotImplementedError

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(c, h, w) of a picture, as the data set has it."""
        return self.data.image

    def size_of(self, picture: Any) -> tuple[int, int]:
        """(h, w) of a picture as `predict` takes it."""
        shape = self.image_shape
        if isinstance(picture, np.ndarray) and shape in (picture.shape, (1, *picture.shape)):
            return shape[1:]
        h, w = pictures.pixels_in(picture)[0].shape[:2]
        return h, w

    @property
    def fit(self) -> pictures.Fit:
        """How pictures of other sizes are brought to the net's."""
        return "stretch" if self.stretches else self.data.fit

    def _prepared(self, images: Any) -> tuple[np.ndarray, tuple[int, ...]]:
        """Pictures (n, c, h, w) as the net takes them, and the axes before those of a picture."""
        if isinstance(images, (list, tuple)) and any(map(pictures.is_picture, images)):
            images = np.stack([self._pixels(one) for one in images])
        elif not isinstance(images, np.ndarray) and pictures.is_picture(images):
            images = self._pixels(images)
        shape = self.image_shape
        images = numbers(images, "pictures", shape)
        # The shape of the arrays that it was trained on
        own = tuple(getattr(self.data, "shape", ())) or shape
        if own != shape and own[0] == 1 and images.ndim < 4 and images.shape[-2:] == own[1:]:
            images = images[..., None, :, :]
        if own != shape and images.shape[-3:] == own:
            scaled = [scale(one, *shape[1:]) for one in images.reshape(-1, *own)]
            images = np.reshape(scaled, (*images.shape[:-3], *shape))
        if shape[1:] == (1, 1) and images.ndim in (1, 2) and images.shape[-1] == shape[0]:
            images = images[..., None, None]  # vectors
        axes = 2 if shape[0] == 1 and images.shape[-3:] != shape else 3
        fits = images.shape[-axes:] == shape[-axes:] and images.ndim <= axes + 1
        if not fits and images.ndim == 4 and len(images) and pictures.is_picture(images[0]):
            return self._prepared(list(images))
        if not fits and pictures.is_picture(images):
            images, axes, fits = self._pixels(images), 3, True
        if not fits or images.dtype.kind not in "fiub":
            raise self._no_picture(images)
        return self.data.as_tested(images.reshape(-1, *shape)), images.shape[:-axes]

    def _batches(self, prepared: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """The answers to batches of the model's size, and how many pictures each is of."""
        batch = max(1, min(len(prepared), self.data.batch_size))
        if self.net.first_blobs[self._input].shape[0] != batch:
            self.net.reshape(**{self._input: (batch, *self.net.first_blobs[self._input].shape[1:])})
        for i in range(0, len(prepared), batch):
            images = prepared[i : i + batch]
            blob, device = self.net.first_blobs[self._input], self.net.device
            whole = np.zeros(blob.shape)  # the places that a batch does not fill are zero
            whole[: len(images)] = images.reshape(-1, *whole.shape[1:])
            device.copy_from_host(blob.data, whole)
            self.net.forward()
            yield device.to_host(self.net.blobs[self.output].data), len(images)

    def _pixels(self, picture: Any) -> np.ndarray:
        """One picture as the data set would have it. Raises ShapeError for what is none."""
        shape = self.image_shape
        if isinstance(picture, np.ndarray) and shape in (picture.shape, (1, *picture.shape)):
            return picture.reshape(shape)
        if not pictures.is_picture(picture):
            raise self._no_picture(numbers(picture, "a picture", shape))
        return self.ready(*pictures.pixels_in(picture))[0]

    def ready(self, pixels: np.ndarray, name: str) -> tuple[np.ndarray, list[str]]:
        """A picture of any size as the data set would have it, and notes: what was done, and each Doubt."""
        digit, crop = takes_digits(self.data), self.data.transform.crop_size or 0
        how = self.image_shape, digit, name, self.fit, crop, self.data.inverts
        pixels, notes = pictures.prepared(pixels, *how)
        return pixels[::-1] if self.data.blue_first else pixels, notes

    def _no_picture(self, images: np.ndarray) -> ShapeError:
        return ShapeError(
            f"expected one or several pictures of {self.image_shape}, or bytes (h, w, 3) or (h, w) of any "
            f"size, got {images.dtype} of {images.shape}"
        )


class Classifier(Deployed):
    """A trained model for pictures of one's own: pixels in, probabilities of the classes out.

    `model` is what `read` takes, or a NetSpec, with a Data layer and a softmax, or SoftmaxWithLoss; `weights`
    a file, or arrays by name, as `Net.load` takes them, or a run's folder, for its best snapshot, else the
    newest; a snapshot or a run's folder as `model` is both. `net` is the net that computes, as `deploy` makes
    it; its blobs share memory, but for those of `keep`, unless that is None. `numerics`, or its fields by
    name, are Net's, but `deterministic` by default: so any number of pictures is answered at once. Raises the
    MinicaffeErrors of `deploy`, Net and `Net.load`.

    >>> classifier = Classifier("digits", device="cpu")
    >>> classifier.predict(np.zeros((5, 28, 28), np.uint8)).shape
    (5, 10)
    """

    ends = ("Softmax", "Sigmoid")

    @property
    def several(self) -> bool:
        """Whether a picture may have several of the classes, or none: these do not add up to 1."""
        return self.ended == "Sigmoid"

    def predict(self, images: Any) -> np.ndarray:
        """The probabilities (classes,) of a picture, or (n, classes) of a list or array of n.

        An array (n, c, h, w) of the data set's shape, or (n, h, w) where c is 1, holds pixels as in the data
        set, 0 to 255 in MNIST; one of its pictures may come without the axis n. Anything else is a picture of
        one's own, prepared as `minicaffe predict` does: a path, Pillow's image, or an array of bytes (h, w),
        (h, w, 3) or (h, w, 4), red first, of any size. The model's transform (mean, central crop, scale) is
        applied here. Any number of pictures will do: they are taken in batches of the model's size. Raises
        ShapeError for what is no picture, DataError for a file that cannot be read.
        """
        prepared, axes = self._prepared(images)
        with self.net.lock:
            batches = [prob[:n].astype(np.float64) for prob, n in self._batches(prepared)]
            classes = self.net.blobs[self.output].shape[1:]
        batches = batches or [np.empty((0, *classes))]
        return np.concatenate(batches).reshape(*axes, *classes)


class Detector(Deployed):
    """A trained detector for pictures of one's own: pixels in, boxes out.

    As Classifier, of a model with a DetectionOutput, such as SSD's; the files of its save_output_param are not
    written.
    """

    ends, stretches = ("DetectionOutput",), True

    def predict(self, images: Any) -> Any:
        """The boxes (k, 6) found in a picture, or a list of those found in each of a list or array of n.

        A row is class, score, x0, y0, x1, y1, as fractions of the picture; by falling score. Boxes with a side
        that is NaN are left out. `images` are as `Classifier.predict` takes them, of any size.
        """
        prepared, axes = self._prepared(images)
        boxes = []
        with self.net.lock:
            tops = [(top.astype(np.float64), n) for top, n in self._batches(prepared)]
        for top, n in tops:
            rows = top.reshape(-1, 7)
            rows = rows[(rows[:, 1] >= 0) & (rows[:, 0] < n) & ~np.isnan(rows).any(axis=1)]
            rows = rows[np.argsort(-rows[:, 2], kind="stable")]
            boxes += [rows[rows[:, 0] == image, 1:] for image in range(n)]
        return boxes if axes else boxes[0]


def predict(
    model: Any,
    images: Any,
    weights: str | Path | Mapping[str, Any] | None = None,
    *,
    top: int = 3,
    threshold: float = 0.5,
    device: str | backend.Device | None = None,
) -> list[dict[str, Any]]:
    """What `minicaffe predict` finds in pictures, in one call: the classes of each, its boxes or its mask.

    `model` and `weights` are as Classifier takes them: a run's folder or a snapshot is both; or `model` is a
    Classifier or Detector. `images` is a path, a folder, a pattern such as "new/*.jpg", or a list of these and
    of arrays or Pillow's images. Of a classifier each answer has `image`, the path or None, and `classes`,
    the `top` most probable with `class`, `name` (or None) and `probability`; of a detector `boxes` with
    `class`, `name`, `score` and `box`, sides x0, y0, x1, y1 in pixels, for scores from `threshold` on; of a
    net with a class for each pixel `mask`, these (h, w) as uint8, and `pixels`, the `share` of each class.
    Raises DataError for pictures that are not there or cannot be read, and what Classifier raises.

    >>> [answer] = predict("digits", np.zeros((28, 28), np.uint8), top=1)
    >>> sorted(answer["classes"][0]), answer["image"]
    (['class', 'name', 'probability'], None)
    """
    if isinstance(model, Deployed):
        net = model
    else:
        spec = model if isinstance(model, NetSpec) else read(model)
        boxes = any(layer.type == "DetectionOutput" for layer in for_test(spec).layers)
        net = (Detector if boxes else Classifier)(model, weights, device=device)
    several = isinstance(images, (list, tuple)) or getattr(images, "ndim", 0) == 4
    if isinstance(images, np.ndarray) and images.ndim > 1:  # several of the net's own shape
        c, h, w = net.image_shape
        several |= images.shape[1:] in {
            (c, h, w),
            (h, w) if c == 1 else (c, h, w),
            (c,) * (h * w == 1),
        }
    words = list(images) if several else [images]
    paths = [named(os.fspath(word)) if isinstance(word, (str, Path)) else [word] for word in words]
    some = list(itertools.chain.from_iterable(paths))
    names, answers = label_names(net.model, net.model.beside), []
    if not isinstance(net, Detector):
        names |= dict(enumerate(with_classes(net.model, [net.data]).classes))
    for first in range(0, len(some), TOGETHER):
        batch = some[first : first + TOGETHER]
        for one, result in zip(batch, net.predict(batch), strict=True):
            about = {"image": str(one) if isinstance(one, (str, Path)) else None}
            size = functools.partial(net.size_of, one)
            answers.append(about | answer_of(net, result, size, names, top, threshold))
    return answers


def answer_of(
    net: Deployed,
    result: np.ndarray,
    size: Callable[[], tuple[int, int]],
    names: Mapping[int, str],
    top: int,
    threshold: float,
) -> dict[str, Any]:
    """What a net predicts of a picture of `size` (h, w) as `predict` says it: its classes, boxes or mask."""
    if isinstance(net, Detector):
        h, w = size()
        boxes: list[dict[str, Any]] = []
        for kind, score, *sides in result[result[:, 1] >= threshold]:
            boxes.append({"class": int(kind), "name": names.get(int(kind)), "score": float(score)})
            in_pixels = np.clip(sides, 0, 1) * np.array([w, h, w, h])
            boxes[-1]["box"] = [round(float(side)) for side in in_pixels]
        return {"boxes": boxes}
    if result.size != len(result):  # an answer for each pixel
        mask = result.argmax(axis=0)
        shares = shares_of(mask, len(result), names)[:top]
        return {"pixels": shares, "mask": nearest(mask, *size()).astype(np.uint8)}
    prob = result.ravel()
    classes = [
        {"class": int(k), "name": names.get(int(k)), "probability": float(prob[k])}
        for k in np.argsort(-prob)[:top]
    ]
    return {"classes": classes}


def shares_of(mask: np.ndarray, count: int, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """The share of pixels of each class in a mask of `count` classes, the largest first, none of 0.

    >>> shares_of(np.array([[0, 2], [2, 2]]), 3, {2: "cat"})[0]
    {'class': 2, 'name': 'cat', 'share': 0.75}
    """
    shares = np.bincount(mask.ravel(), minlength=count) / mask.size
    order = [int(k) for k in np.argsort(-shares, kind="stable") if shares[k]]
    return [{"class": k, "name": names.get(k), "share": float(shares[k])} for k in order]


def label_names(model: NetSpec, beside: Path | None) -> dict[int, str]:
    """The names of a detector's classes: of the label map that the model names, if it is there."""
    for layer in model.layers:
        path = layer.options.get("label_map_file")
        if path is None and (saves := layer.options.get("save_output_param")):
            path = saves.label_map_file
        if path:
            try:
                return label_map(find(path, [beside], "label_map_file"))
            except DataError:
                continue
    return {}


def shipped_weights(model: str | Path) -> Path | None:
    """The weights that come with a model of minicaffe, if it is one and has some."""
    file = models().get(str(model)) if not os.path.exists(model) else None
    path = file.with_suffix(".npz") if file is not None else None
    return path if path is not None and path.is_file() else None


def deploy(model: NetSpec, ends: Sequence[str] = Classifier.ends) -> tuple[NetSpec, Pictures]:
    """The TEST net of a model with an Input for its Data layer, and that layer, which knows the transform.

    What else becomes of it `minicaffe.tools.inference` says. For a net whose data is an Input of pictures, a
    deploy net, it is a layer of such pictures that changes nothing: its `transform` and `blue_first` are to be
    set. Raises SpecError for a model without either, or without a layer of the type that it `ends` with.

    >>> spec, data = deploy(read("digits"))
    >>> spec.layers[0].type, spec.layers[-1].type, data.image
    ('Input', 'Softmax', (1, 28, 28))
    """
    model = for_test(model)
    full = Net(model, "TEST", device="cpu", shapes_only=True)
    spec, _ = inference(model)
    data = pictures_of(full)
    if data is None:  # a net whose labels and losses are gone may take pictures, or vectors
        data = pictures_of(Net(spec, "TEST", device="cpu", shapes_only=True), (2, 4))
    if data is None:
        blobs = [f"{v.name} {'x'.join(map(str, v.shape))}" for v in inputs(full)]
        raise SpecError(
            f"net {full.name!r} has no Data layer in the phase TEST to take pictures for, nor one Input of "
            f"pictures (n, c, h, w) or vectors (n, c): its inputs are {', '.join(blobs) or 'none'}; "
            "net.forward(...) takes numbers, from Python"
        )
    _ending(spec, ends)
    layers = list(spec.layers)
    for i, layer in enumerate(layers):
        if layer.type == "DetectionOutput":
            options = {k: v for k, v in layer.options.items() if k != "save_output_param"}
            layers[i] = replace(layer, options=options)
    return replace(spec, layers=tuple(layers)), data


def _ending(spec: NetSpec, ends: Sequence[str]) -> LayerSpec:
    """The last layer of the first type that there is. Raises SpecError if there is none."""
    for kind in ends:
        if layers := [layer for layer in spec.layers if layer.type == kind]:
            return layers[-1]
    lacking = {
        "Softmax": "softmax, so it gives no probabilities; a layer Softmax at its end does"
    }.get(ends[0], ends[0])
    raise SpecError(f"net {spec.name!r} has no {lacking}")


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
        """What a picture goes through, for JSON, a mean image in `mean_file`; None of a net of other data."""
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
    """What a model says of its TEST pictures (of an Input the size alone) and of its classes."""
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
    known["fit"] = "stretch" if boxes else "digit" if c == 1 and takes_digits(data) else data.fit
    mean = np.asarray(data.mean(), np.float64)
    plain = mean.shape[1:] == (1, 1)
    if known["fit"] == "cover" and crop and plain:
        known["size"] = (min(h, w), min(h, w))
    known["mean"] = tuple(map(float, np.broadcast_to(mean.ravel(), c))) if plain else mean
    if c == 3:
        known["channels"] = "bgr" if data.blue_first else "rgb"
    return Preparation(layer=data.name, scale=data.transform.scale, **known)


def pictures_of(net: Net, axes: Sequence[int] = (4,)) -> Pictures | None:
    """The layer that reads a net's pictures; for a lone Input of so many axes one that changes nothing."""
    for step in net.steps:
        if isinstance(step.layer, Pictures):
            return step.layer.alone()
    blobs = list(inputs(net))
    if len(blobs) != 1 or len(blobs[0].shape) not in axes:
        return None
    count, c, h, w = (*blobs[0].shape, 1, 1)[:4]
    data = Pictures(batch_size=count)
    data.name, data.top, data.image = blobs[0].producer.name, (blobs[0].name,), (c, h, w)
    data.blue_first = data.prepared = prepares(net.spec.layers)
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
