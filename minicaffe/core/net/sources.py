"""Which data sets a model both trains and tests on."""

import dataclasses
import os
from collections.abc import Iterable

from minicaffe.core.config.declare import LayerSpec, NetSpec, Phase, Rule
from minicaffe.core.layers import Layer

PHASES: tuple[Phase, ...] = ("TRAIN", "TEST")
Source = tuple[str, str]  # the type of a layer, and the path that it reads


def source(layer: LayerSpec) -> Source:
    """The source of a layer; the path is empty if it reads nothing."""
    path = layer.options.get("source")
    return layer.type, os.path.normpath(path) if isinstance(path, str) and path else ""


def in_both(spec: NetSpec) -> dict[Source, frozenset[float]]:
    """The sources that layers of TRAIN and of TEST read, each with the values of `split` that they have.

    Levels and stages are ignored, so that all nets of a model agree. Without a solver one trains on nothing.
    """
    if spec.solver is None:
        return {}
    phases: dict[Source, set[Phase]] = {}
    splits: dict[Source, set[float]] = {}
    for layer in spec.layers:
        split = layer.options.get("split")
        either = {rule.phase for rule in layer.include} or {None}
        taken = [phase for phase in PHASES if either & {None, phase}]
        taken = [p for p in taken if not {Rule(phase=p), Rule()} & {*layer.exclude}]
        phases.setdefault(source(layer), set()).update(taken)
        splits.setdefault(source(layer), set()).update([] if split is None else [split])
    return {key: frozenset(splits[key]) for key in phases if key[1] and len(phases[key]) == 2}


def trained_on(layer: Layer, learning: Iterable[Layer] = ()) -> str:
    """The kind of data that TEST and TRAIN (or `learning`) both read, such as "pictures"; or ""."""
    data, reader = getattr(layer, "dataset", None), getattr(layer, "reader", None)
    if layer.phase != "TEST" or data is None or (reader is not None and reader.own_split):
        return ""
    same = any(type(one) is type(layer) and _origin(one) == _origin(layer) for one in learning)
    if layer.in_both is None and not same:
        return ""
    unit = getattr(data, "unit", "images")
    return "pictures" if unit == "images" else unit


def _origin(layer: Layer) -> tuple[str, str]:
    data = getattr(layer, "dataset", None)
    return os.path.normpath(getattr(data, "name", "")), getattr(data, "origin", "")


def with_classes(spec: NetSpec, layers: Iterable[Layer]) -> NetSpec:
    """A model with the names of its classes, if it has them or the data of its layers does."""
    readers = (getattr(layer, "reader", None) for layer in layers)
    names = next((one.classes for one in readers if one is not None and one.classes), ())
    if spec.classes or not all(name.isprintable() for name in names):
        return spec
    return dataclasses.replace(spec, classes=tuple(names))
