"""The sections of a page that look into a run's net: each a function of a Study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.errors import MinicaffeError
from minicaffe.tools.report.boxes import boxes
from minicaffe.tools.report.layers import graph, layers
from minicaffe.tools.report.pictures import confusion, features, filters, mistakes
from minicaffe.tools.report.study import Study
from minicaffe.tools.report.try_ import hand


@dataclass(frozen=True)
class Section:
    """A section: `function(study)` returns what its script, report.sections[id], draws; JSON can hold it.

    Whatever MinicaffeError it raises, LeftOutError above all, is shown as the reason why it is not there.
    """

    id: str
    title: str
    function: Callable[[Study], dict[str, Any]]


SECTIONS = [
    Section("try", "Try it by hand", hand),
    Section("boxes", "Boxes found", boxes),
    Section("confusion", "Confusion matrix", confusion),
    Section("mistakes", "Worst mistakes", mistakes),
    Section("net", "Net", graph),
    Section("layers", "Layers", layers),
    Section("filters", "First filters", filters),
    Section("features", "Feature maps", features),
]


def all_of(study: Study) -> list[dict[str, Any]]:
    """Every section, or the line why it is left out."""
    found = []
    nets = study.spec, *study.spec.test_nets
    detects = any(layer.type == "DetectionOutput" for net in nets for layer in net.layers)
    for section in SECTIONS:
        if section.id == "boxes" and not detects:
            continue
        head = {"id": section.id, "title": section.title}
        try:
            with np.errstate(all="ignore"):  # weights may have diverged
                found.append({**head, "data": section.function(study)})
        except MinicaffeError as error:
            found.append({**head, "left_out": str(error)})
    return found


def none_of(why: str) -> list[dict[str, Any]]:
    """All sections left out for one reason."""
    shown = [one for one in SECTIONS if one.id != "boxes"]
    return [{"id": one.id, "title": one.title, "left_out": why} for one in shown]


def left_out(parts: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The titles of what is left out, by the reason."""
    found: dict[str, list[str]] = {}
    for one in parts:
        if "left_out" in one:
            found.setdefault(one["left_out"], []).append(one["title"])
    return found
