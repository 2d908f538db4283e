"""The section of a detector: what it finds in the first pictures of its test, beside what is there."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.core.plugins import label_map
from minicaffe.errors import DataError
from minicaffe.storage.lists import find
from minicaffe.tools.data import png
from minicaffe.tools.report.ends import LeftOutError
from minicaffe.tools.report.pictures import as_seen, smaller
from minicaffe.tools.report.study import Study, detector

PICTURES = 24
SIDE = 192  # pixels of a picture at the most
LEAST = 0.3  # score of a box that is shown


def boxes(study: Study) -> dict[str, Any]:
    """Pictures of the first test batch with the boxes found in them, and the true ones."""
    there = detector(study.shapes("TEST").steps)
    if there is None or study.pictures is None:
        raise LeftOutError("the net has no DetectionOutput of pictures (n, 1 or 3, h, w)")
    found, truth = there
    net = study.test_net
    net.context.passes = 0
    net.forward()
    values = net.device.to_host(net.blobs[study.pictures].data)[:PICTURES]
    rows = net.device.to_host(net.blobs[found].data).reshape(-1, 7)
    rows = rows[(rows[:, 1] >= 0) & (rows[:, 2] >= LEAST) & ~np.isnan(rows).any(axis=1)]
    true = np.empty((0, 8))
    if truth is not None:
        true = net.device.to_host(net.blobs[truth].data).reshape(-1, 8)
        true = true[true[:, 0] >= 0]
    names = _names(study)
    shown = []
    for i, picture in enumerate(as_seen(net, study.pictures, values)):
        entry: dict[str, Any] = {"image": png.data_uri(smaller(picture, SIDE))}
        entry["shape"] = list(picture.shape[1::-1])
        entry["found"] = [_box(row[3:7], row[1], names, row[2]) for row in rows[rows[:, 0] == i]]
        entry["true"] = [_box(row[3:7], row[1], names, None) for row in true[true[:, 0] == i]]
        shown.append(entry)
    told = f"Boxes of a score of {LEAST:g} or more, {study.weights_from}"
    return {"shown": shown, "text": told, "warnings": net.warnings}


def _box(corners: np.ndarray, label: float, names: dict[int, str], score: Any) -> dict[str, Any]:
    """A box as the page draws it: x, y, width and height as fractions."""
    x0, y0, x1, y1 = (round(float(v), 4) for v in np.clip(corners, 0, 1))
    told = names.get(int(label), str(int(label)))
    return {
        "at": [x0, y0, round(x1 - x0, 4), round(y1 - y0, 4)],
        "class": int(label),
        "name": told if score is None else f"{told} {score:.2f}",
    }


def _names(study: Study) -> dict[int, str]:
    """The classes' names, if the test net names a label map that is there."""
    for step in study.test_net.steps:
        given = step.spec.options.get("label_map_file")
        if given:
            try:
                return label_map(find(given, [study.test_net.context.folder], "label_map_file"))
            except DataError:
                break
    return {}
