"""The sections of a page that look into a run's net: each a function of a Study."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.core.net import Net
from minicaffe.core.net.memory import Sharing
from minicaffe.errors import MinicaffeError
from minicaffe.tools.data import png
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.deploy import label_names
from minicaffe.tools.report.study import SAMPLES, LeftOutError, Study, detector
from minicaffe.tools.report.try_ import hand
from minicaffe.tools.training.speed import measure, medians
from minicaffe.tools.visualize import notebook

BOXES, BOXES_SIDE = 24, 192  # pictures with boxes, and pixels of one at the most
LEAST = 0.3  # score of a box that is shown
SIDE = 96  # pixels of a picture at the most
MAP = 48  # pixels of a feature map at the most
MAPS = 16  # of a blob
FILTERS = 96
MATRIX = 32  # classes, up to which a matrix can be read


def filters(study: Study) -> dict[str, Any]:
    """The weights of the first convolution, zero in middle grey."""
    steps = [step for step in study.test_net.steps if step.spec.type == "Convolution"]
    if not steps:
        raise LeftOutError("the net has no Convolution")
    name, net = steps[0].spec.name, study.test_net
    weight = net.params[name][0].to_host().astype(np.float64)
    if weight.ndim != 4 or max(weight.shape[2:]) == 1:
        size = " x ".join(map(str, weight.shape[2:]))
        raise LeftOutError(f"the filters of {name!r} are of {size}")
    most = float(np.abs(weight).max())
    if not np.isfinite(most):
        raise LeftOutError(f"the weights of {name!r} are no finite numbers")
    grey = np.round(127.5 + 127.5 * weight / (most or 1)).astype(np.uint8)
    shape = " x ".join(map(str, weight.shape))
    text = f"{name}: {shape}; black is {-most:.3g}, middle grey 0, white {most:.3g}"
    if weight.shape[1] in (1, 3):
        tiles = _channels_last(grey[:FILTERS], _blue_first(net))
        columns = min(16, len(tiles))
    else:
        tiles = grey[:MAPS, :MAPS].reshape(-1, *grey.shape[2:], 1)
        columns = min(MAPS, weight.shape[1])
        text += "; a row is a filter, a column an input channel"
    if len(weight) > len(tiles) and weight.shape[1] in (1, 3):
        text += f"; the first {len(tiles)}"
    return {**_sheet(tiles, columns), "tile": max(weight.shape[2:]), "text": text}


def features(study: Study) -> dict[str, Any]:
    """The maps of some blobs for samples of each class, each blob stretched from its least to its most."""
    names, ends = study.features, study.ends
    if not names:
        raise LeftOutError("no blob of the net has maps (n, c, h, w)")
    first = study.some(min(max(SAMPLES, study.classes), 2 * SAMPLES))
    rows = []
    for name, blob in ((name, first[name]) for name in names if name in first):
        if name == study.pictures:
            images = [_sheet(picture[None], 1) for picture in as_seen(study.test_net, name, blob)]
        else:
            images = [_maps(one) for one in blob]
        entry = {"name": name, "shape": "x".join(map(str, blob.shape[1:])), "images": images}
        rows.append({**entry, "input": name == study.pictures})
    labels = [int(one.flat[0]) for one in first[ends.labels]] if ends is not None else []
    named = [class_name(classes_of(study.test_net), label) for label in labels]
    return {"rows": rows, "labels": named, "maps": MAPS}


def confusion(study: Study) -> dict[str, Any]:
    """How often each label got each answer; of many classes, the pairs that are confused most."""
    tested = study.tested
    counts, classes = tested.confusion, len(tested.confusion)
    names = [class_name(classes_of(study.test_net), i) for i in range(classes)]
    right, whole = int(np.trace(counts)), int(counts.sum())
    section: dict[str, Any] = {"names": names, "right": right, "whole": whole, **study.seen}
    if classes <= MATRIX:
        return section | {"matrix": counts.tolist()}
    off = counts.copy()
    np.fill_diagonal(off, 0)
    order = np.argsort(-off, axis=None, kind="stable")[:20]
    places = zip(*np.unravel_index(order, off.shape), strict=True)
    pairs = [(int(i), int(j), int(off[i, j])) for i, j in places]
    of_label = counts.sum(axis=1).tolist()
    section["names"] = {i: names[i] for pair in pairs for i in pair[:2]}
    return section | {"pairs": [(*pair, of_label[pair[0]]) for pair in pairs if pair[2]]}


def mistakes(study: Study) -> dict[str, Any]:
    """The samples whose label the net thinks least likely of those that it gets wrong."""
    tested, net = study.tested, study.test_net
    if study.pictures is None:
        raise LeftOutError("the net reads no pictures (n, 1 or 3, h, w)")
    if tested.confusion.sum() > tested.seen:
        raise LeftOutError("a sample has many labels, not one")
    shown, classes = [], classes_of(net)
    for one in tested.mistakes:
        if one.picture is None:
            raise LeftOutError("the pictures of a batch are not as many as its labels")
        (picture,) = as_seen(net, study.pictures, one.picture[None])
        names = {"label": one.label, "answer": one.answer}
        named = {key: class_name(classes, i) for key, i in names.items()}
        image = {"image": png.data_uri(smaller(picture, SIDE))}
        shown.append({**image, **named, "shares": one.shares, "entry": one.entry})
    whole = int(tested.confusion.sum())
    wrong = whole - int(np.trace(tested.confusion))
    return {"shown": shown, "wrong": wrong, "whole": whole, **study.seen}


def classes_of(net: Net) -> tuple[str, ...]:
    """The names of the classes, where the data has any."""
    layers = [step.layer for step in net.steps]
    sources = [getattr(one, name, None) for one in layers for name in ("reader", "dataset")]
    known = [net.spec.classes, *(getattr(one, "classes", ()) for one in sources)]
    return tuple(next(filter(None, known), ()))


def class_name(classes: tuple[str, ...], number: int) -> str:
    """A class as it is called, else its number."""
    return str(classes[number]) if 0 <= number < len(classes) else str(number)


def as_seen(net: Net, blob: str, values: np.ndarray) -> np.ndarray:
    """Pictures (n, h, w, 1 or 3), uint8, without the data's transform; stretched if not from 0 to 255."""
    values = values.astype(np.float64)
    (layer,) = (s.layer for s in net.steps if s.tops and s.tops[0].name == blob and not s.bottoms)
    if isinstance(layer, Pictures) and layer.transform.scale:
        values = values / layer.transform.scale
        mean, size = np.asarray(layer.mean()), values.shape[2:]
        if mean.ndim == 3 and mean.shape[1:] != (1, 1):
            sides = zip(mean.shape[1:], size, strict=True)
            rows, columns = (max(0, (a - b) // 2) for a, b in sides)
            mean = mean[:, rows : rows + size[0], columns : columns + size[1]]
            mean = mean if mean.shape[1:] == size else mean.mean(axis=(1, 2), keepdims=True)
        values = values + mean
    low, high = float(values.min()), float(values.max())
    if low < -0.5 or high > 255.5 or high <= 1:
        values = (values - low) * (255 / ((high - low) or 1))
    return _channels_last(np.clip(np.round(values), 0, 255).astype(np.uint8), _blue_first(net))


def smaller(picture: np.ndarray, side: int) -> np.ndarray:
    """A picture (h, w, channels) of at most `side` pixels a side: means over squares."""
    step = -(-max(picture.shape[:2]) // side)
    if step == 1:
        return picture
    h, w = (max(1, size // step) for size in picture.shape[:2])
    picture = picture[: h * step, : w * step]
    blocks = picture.reshape(h, -1, w, picture.shape[1] // w, picture.shape[2])
    return blocks.mean(axis=(1, 3)).round().astype(np.uint8)


def _maps(blob: np.ndarray) -> dict[str, Any]:
    """The first maps (c, h, w) of a sample, side by side."""
    low, high = float(np.nanmin(blob)), float(np.nanmax(blob))
    part = np.nan_to_num(blob[:MAPS].astype(np.float64), nan=low, posinf=high, neginf=low)
    grey = np.clip(np.round((part - low) * (255 / ((high - low) or 1))), 0, 255).astype(np.uint8)
    tiles = np.stack([smaller(one[..., None], MAP) for one in grey])
    return _sheet(tiles, min(8, len(tiles)))


def _sheet(tiles: np.ndarray, columns: int) -> dict[str, Any]:
    """Tiles as one picture, with its width and height."""
    pixels = png.sheet(tiles, columns)
    return {"image": png.data_uri(pixels), "width": pixels.shape[1], "height": pixels.shape[0]}


def _blue_first(net: Net) -> bool:
    return any(getattr(step.layer, "blue_first", False) for step in net.steps)


def _channels_last(pictures: np.ndarray, blue_first: bool) -> np.ndarray:
    """(n, c, h, w) as (n, h, w, c), red first; of other than three channels the first alone."""
    pictures = pictures.transpose(0, 2, 3, 1)
    if pictures.shape[3] != 3:
        return pictures[..., :1]
    return pictures[..., ::-1] if blue_first else pictures


def boxes(study: Study) -> dict[str, Any]:
    """Pictures of the first test batch with the boxes found in them, and the true ones."""
    blobs = detector(study.shapes("TEST").steps)
    if blobs is None or study.pictures is None:
        raise LeftOutError("the net has no DetectionOutput of pictures (n, 1 or 3, h, w)")
    boxes_blob, truth = blobs
    net = study.test_net
    net.context.passes = 0
    net.forward()
    values = net.device.to_host(net.blobs[study.pictures].data)[:BOXES]
    rows = net.device.to_host(net.blobs[boxes_blob].data).reshape(-1, 7)
    rows = rows[(rows[:, 1] >= 0) & (rows[:, 2] >= LEAST) & ~np.isnan(rows).any(axis=1)]
    true = np.empty((0, 8))
    if truth is not None:
        true = net.device.to_host(net.blobs[truth].data).reshape(-1, 8)
        true = true[true[:, 0] >= 0]
    names = label_names(net.spec, net.context.folder)
    shown = []
    for i, picture in enumerate(as_seen(net, study.pictures, values)):
        entry: dict[str, Any] = {"image": png.data_uri(smaller(picture, BOXES_SIDE))}
        entry["shape"] = list(picture.shape[1::-1])
        entry["found"] = [_box(row[3:7], row[1], names, row[2]) for row in rows[rows[:, 0] == i]]
        entry["true"] = [_box(row[3:7], row[1], names, None) for row in true[true[:, 0] == i]]
        shown.append(entry)
    text = f"Boxes of a score of {LEAST:g} or more, {study.weights_from}"
    return {"shown": shown, "text": text, "warnings": net.warnings}


def _box(corners: np.ndarray, label: float, names: dict[int, str], score: Any) -> dict[str, Any]:
    """A box as the page draws it: x, y, width and height as fractions."""
    x0, y0, x1, y1 = (round(float(v), 4) for v in np.clip(corners, 0, 1))
    text = names.get(int(label), str(int(label)))
    return {
        "at": [x0, y0, round(x1 - x0, 4), round(y1 - y0, 4)],
        "class": int(label),
        "name": text if score is None else f"{text} {score:.2f}",
    }


WORK = {False: 2e10, True: 2e12}  # multiply-adds of a pass, above which a CPU, a GPU is not timed


def graph(study: Study) -> dict[str, Any]:
    """The net that is trained as a drawing, layers as boxes and blobs as arrows with their shapes."""
    return {"svg": notebook.svg(study.shapes("TRAIN").graph, direction="TB")}


def layers(study: Study) -> dict[str, Any]:
    """A row a layer of the net that is trained; memory as `minicaffe summary` plans it."""
    net = study.shapes("TRAIN")
    graph, itemsize = net.graph, net.context.dtype.itemsize
    times, why = _times(study)
    rows = []
    for step in graph.steps:
        own = [value for value in step.tops if value.reuses is None]
        params = sum(param.size for param in step.layer.params if param.owner is param)
        data = sum(math.prod(value.shape) * value.dtype.itemsize for value in own)
        diffs = data if step.layer.runs_backward and any(v.gets_gradient for v in step.tops) else 0
        rows.append(
            {
                "name": step.spec.name,
                "type": step.spec.type,
                "tops": [[value.name, list(value.shape)] for value in step.tops],
                "in_place": bool(step.tops) and not own,
                "params": params,
                "work": step.layer.multiply_adds,
                "blobs": data + diffs,
                "columns": step.layer.column_elements * itemsize,
                "ms": times.get(step.spec.name),
            }
        )
    shared, learnable = Sharing(graph, (), "diff"), sum(param.size for param in graph.learnable)
    notes = [
        why,
        "Memory is as minicaffe summary plans it: data and gradient of what a layer writes (in place: of "
        "the layer whose memory it is), and the columns of a convolution in a buffer that all share.",
    ]
    sums = {
        "parameters": learnable * itemsize,
        "blobs": shared.before,
        "shared": shared.after,
        "columns": net.context.workspace_size * itemsize,
    }
    return {"rows": rows, "bytes": sums, "notes": [note for note in notes if note]}


def _times(study: Study) -> tuple[dict[str, tuple[float, float]], str]:
    """Median ms of every layer, forward and backward; and what they are of, or why there are none."""
    where = study.device.name
    if not study.limits.timing:
        return {}, "Not timed while the net trains; minicaffe report does that afterwards."
    work = sum(step.layer.multiply_adds for step in study.shapes("TRAIN").steps)
    if work > WORK[study.device.is_cuda]:
        why = f"{work:.2g} multiply-adds a pass take long on {where}; see minicaffe time."
        return {}, f"Not timed: {why}"
    try:
        net = study.train_net()
        if not (net.graph.forced or net.losses):
            raise LeftOutError("no layer is a loss")
        measure(net, 1)  # to get warm
        times = measure(net, 20, study.limits.seconds / 4)
    except MinicaffeError as error:
        return {}, f"Not timed: {error}"
    size = net.steps[0].tops[0].shape[:1]
    batch = f", batch {size[0]}" if size else ""
    count = len(times[net.steps[0].spec.name][0])
    taken = f"Medians of {count} passes on {where}{batch}, as minicaffe time takes them,"
    taken += " when this page was made: the run itself may have been faster."
    return medians(times), taken


# Of each section its id and title, and a function: `function(study)` returns what its script,
# report.sections[id], draws; JSON can hold it. A MinicaffeError is shown as the reason why it is not there.
SECTIONS: list[tuple[str, str, Callable[[Study], dict[str, Any]]]] = [
    ("try", "Try it by hand", hand),
    ("boxes", "Boxes found", boxes),
    ("confusion", "Confusion matrix", confusion),
    ("mistakes", "Worst mistakes", mistakes),
    ("net", "Net", graph),
    ("layers", "Layers", layers),
    ("filters", "First filters", filters),
    ("features", "Feature maps", features),
]


def all_of(study: Study) -> list[dict[str, Any]]:
    """Every section, or the line why it is left out."""
    parts = []
    nets = study.spec, *study.spec.test_nets
    detects = any(layer.type == "DetectionOutput" for net in nets for layer in net.layers)
    for name, title, function in SECTIONS:
        if name == "boxes" and not detects:
            continue
        head = {"id": name, "title": title}
        try:
            with np.errstate(all="ignore"):  # weights may have diverged
                parts.append({**head, "data": function(study)})
        except MinicaffeError as error:
            parts.append({**head, "left_out": str(error)})
    return parts


def none_of(why: str) -> list[dict[str, Any]]:
    """All sections left out for one reason."""
    shown = [(name, title) for name, title, _ in SECTIONS if name != "boxes"]
    return [{"id": name, "title": title, "left_out": why} for name, title in shown]


def left_out(parts: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The titles of what is left out, by the reason."""
    titles: dict[str, list[str]] = {}
    for one in parts:
        if "left_out" in one:
            titles.setdefault(one["left_out"], []).append(one["title"])
    return titles
