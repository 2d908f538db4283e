"""A net's parameters: how they are filled, shared with another net, and loaded by name with a report."""

import difflib
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.config.declare import NetSpec, State
from minicaffe.core.config.tree import Mark
from minicaffe.core.layers import REGISTRY, Param
from minicaffe.core.layers.fillers import fill_parts
from minicaffe.core.net import model
from minicaffe.core.net.model import MODEL, entry, parse
from minicaffe.core.net.sources import with_classes
from minicaffe.core.net.step import Graph
from minicaffe.core.net.yaml_text import flow, implied_bottoms, layer_options, plain
from minicaffe.core.ops.random import random_stream
from minicaffe.core.plugins import WEIGHTS, format_of
from minicaffe.errors import ByName, CheckpointError, MinicaffeError, ShapeError
from minicaffe.storage.checkpoint import ArrayFile, check_finite

MOST = 10  # differences that are reported
COMMON = ("param", "loss_weight", "propagate_down", "include", "exclude")


def differences(other: NetSpec, own: NetSpec) -> dict[str, list[str]]:
    """The differences between the texts of two nets by the names of layers; those of `own` come first.

    >>> from minicaffe.core.config.model import parse_model
    >>> ip = {"name": "ip", "type": "InnerProduct", "bottom": "x"}
    >>> nets = [parse_model({"layers": [{**ip, "num_output": n}]}, REGISTRY) for n in (20, 50)]
    >>> differences(*nets)
    {'ip': ['num_output 20 there, 50 here']}
    """
    theirs, mine = _by_name(other), _by_name(own)
    by_layer: dict[str, list[str]] = {}
    for key in [*mine, *(key for key in theirs if key not in mine)]:
        name, lines = key[0], list[str]()
        if key not in theirs or key not in mine:
            lines.append(f"no such layer {'here' if key in theirs else 'there'}")
        elif theirs[key]["type"] != mine[key]["type"]:
            lines.append(f"type {theirs[key]['type']} there, {mine[key]['type']} here")
        else:
            lines += [
                f"{what} {_shown(theirs[key][what])} there, {_shown(value)} here"
                for what, value in mine[key].items()
                if theirs[key][what] != value
            ]
        known = by_layer.setdefault(name, [])  # may hold those of the other phase's layer
        known += [line for line in lines if line not in known]
    return {name: lines for name, lines in by_layer.items() if lines}


def listed(wrong: Mapping[str, str], text: Mapping[str, list[str]]) -> str:
    """Differences in one line, layer by layer, MOST of them at most.

    `wrong` is each parameter's error, "unused" if only the file has it; `text` is of `differences`, or {}.

    >>> listed({"ip__0": "(file (2, 3), net (2, 4))", "fc7__0": "missing", "fc_7__0": "unused"}, {})
    "ip__0 (file (2, 3), net (2, 4)); fc7__0 missing (the file has 'fc_7'); fc_7__0 unused"
    """
    layers: dict[str, dict[str, list[str]]] = {}  # the errors of each, and their parameters
    for name, what in wrong.items():
        layers.setdefault(name.rpartition("__")[0] or name, {}).setdefault(what, []).append(name)
    free = [layer for layer, whats in layers.items() if "unused" in whats]
    parts = []
    for layer, whats in layers.items():
        near = difflib.get_close_matches(layer, free, n=1) if "missing" in whats else []
        line = ", ".join(f"{', '.join(names)} {what}" for what, names in whats.items())
        line += "".join(f" (the file has {name!r})" for name in near)
        line += f" (layer {layer!r}: {', '.join(text[layer])})" if layer in text else ""
        parts.append(line)
    parts += [f"layer {layer!r}: {', '.join(text[layer])}" for layer in text if layer not in layers]
    more = f"; and {len(parts) - MOST} more" if len(parts) > MOST else ""
    return "; ".join(parts[:MOST]) + more


def _by_name(spec: NetSpec) -> dict[tuple[str, int], dict[str, Any]]:
    """The keys of each layer, defaults too, by its name and the number of layers of that name before it."""
    by_name: dict[tuple[str, int], dict[str, Any]] = {}
    for layer, implied in zip(spec.layers, implied_bottoms(spec, REGISTRY), strict=True):
        number = sum(name == layer.name for name, _ in by_name)
        bottoms = {layer.bottom} if layer.bottom is not None else implied
        ends = {"type": layer.type, "bottom": min(bottoms, default=()), "top": layer.tops}
        common = {key: getattr(layer, key) for key in COMMON}
        by_name[layer.name, number] = {**ends, **layer_options(layer, REGISTRY), **common}
    return by_name


def _shown(value: Any) -> str:
    """A value as it is written in a model file, shortened if it is long."""
    text = "not given" if value in (None, ()) else flow(plain(value, Mark("")))
    return text if len(text) <= 60 else text[:57] + "..."


Fits = Callable[[tuple[int, ...], tuple[int, ...]], bool]  # a blob's shape, a parameter's
KINDS = ("missing", "unused", "mismatched")


@dataclass
class LoadReport:
    """The result for each entry of a weight file, by name."""

    loaded: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "; ".join([f"{len(self.loaded)} loaded", *self.problems()])

    def problems(self, kinds: Sequence[str] = KINDS) -> list[str]:
        """The problems of these kinds in words; a strict load refuses all kinds."""
        return [f"{one}: {', '.join(getattr(self, one))}" for one in kinds if getattr(self, one)]

    def wrong(self, kinds: Sequence[str] = KINDS) -> dict[str, str]:
        """The problem of each parameter, of these kinds, by its name."""
        problems = {name: "missing" for name in self.missing if "missing" in kinds}
        for line in self.mismatched if "mismatched" in kinds else ():
            name, file, rest = line.partition(" (file ")
            problems[name] = f"{file[1:]}{rest}"
        return problems | {name: "unused" for name in self.unused if "unused" in kinds}


def named(graph: Graph, owned: bool = True) -> dict[str, Param]:
    """The parameters of a net by name, `conv1__0`; with `owned`, a shared one only by its owner's name."""
    params_by_name = {
        f"{layer}__{i}": param
        for layer, params in graph.params.items()
        for i, param in enumerate(params)
        if param.owner is param or not owned
    }
    return ByName("parameter", params_by_name)


def fill_params(graph: Graph) -> None:
    """Fill the parameters, each from its own stream of (seed, layer, index)."""
    for step in graph.steps:
        for i, param in enumerate(step.layer.params):
            if param.owner is not param:
                param.share(param.owner)
                continue
            with step:
                random = random_stream(graph.context.seed, step.spec.name, i)
                for rows, values in fill_parts(param.filler, param.shape, random):
                    param.load(values, rows)


def share(mine: Graph, theirs: Graph) -> None:
    """Let a net use the parameters of another's layers of the same names, not gradients. Raises ShapeError."""
    for name, params in mine.params.items():
        for one, other in zip(params, theirs.params.get(name, []), strict=False):
            if one.shape != other.shape:
                raise ShapeError(
                    f"layer {name!r}: a parameter has shape {one.shape} in the phase {mine.context.phase}, "
                    f"{other.shape} in {theirs.context.phase}"
                )
            one.share(other, diff=False)
    for params in mine.params.values():
        for param in params:
            if param.owner is not param:
                param.share(param.owner)


def load(
    graph: Graph,
    source: str | Path | ArrayFile | Mapping[str, Any],
    strict: bool | None = None,
    origin: str | None = None,
    finite: bool = True,
) -> LoadReport:
    """Load from `source`, a file, an open file of Caffe's, or arrays by name; see Net.load."""
    if not isinstance(source, (ArrayFile, Mapping)):
        with model.opened(source) as opened:
            return load(graph, opened, strict, origin, finite)
    layers: Collection[str] | None = None
    fits: Fits = operator.eq
    if isinstance(source, ArrayFile):
        origin, shapes = origin or str(source.path), source.shapes
        layers, fits = source.layers, source.fits
    else:
        origin = origin or "weights"
        shapes = {name: np.shape(array) for name, array in source.items()}
    if layers is None:  # a file of Caffe's may lack layers
        strict = strict is not False
    report = _compared(graph, source, shapes, strict, origin, layers or (), fits)
    params = named(graph, owned=False)
    values = {name: np.asarray(source[name]).reshape(params[name].shape) for name in report.loaded}
    for name, array in values.items():
        if array.dtype.kind not in "fiu":
            raise CheckpointError(f"{origin}: entry {name!r} holds {array.dtype}, expected numbers")
        if finite:
            check_finite(array, params[name].dtype, f"{origin}: entry {name!r}")
    for name, array in values.items():
        params[name].owner.load(array)
    return report


def check(graph: Graph, source: ArrayFile) -> None:
    """Raise CheckpointError if names or shapes of an open file are not the net's; nothing is loaded."""
    _compared(graph, source, source.shapes, True, str(source.path))


def _compared(
    graph: Graph,
    arrays: Any,
    shapes: Mapping[str, tuple[int, ...]],
    strict: bool | None,
    origin: str,
    layers: Collection[str] = (),
    fits: Fits = operator.eq,
) -> LoadReport:
    """What to load, by name. Raises CheckpointError; those of Caffe's `layers` must all match."""
    params = named(graph, owned=False)
    report = LoadReport()
    for name, param in params.items():
        if name not in shapes:
            if param.owner is not param:
                continue
            known = name.rpartition("__")[0] in layers
            line = f"{name} (file none, net {param.shape})" if known else name
            (report.mismatched if known else report.missing).append(line)
        elif fits(shapes[name], param.shape):
            report.loaded.append(name)
        else:
            report.mismatched.append(f"{name} (file {shapes[name]}, net {param.shape})")
    for name in shapes:
        if name in params or name.startswith("@"):
            continue
        if layers and name.rpartition("__")[0] in graph.params:
            report.mismatched.append(f"{name} (file {shapes[name]}, net none)")
        else:
            report.unused.append(name)
    refused: Sequence[str] = {True: KINDS, None: ("mismatched",), False: ()}[strict]
    wanted, state = report, graph.context.state
    if strict and report.unused and state.phase == "TEST":
        spec = _spec_in(arrays, shapes, origin)
        others = _of_training(spec, state) if spec is not None else set[str]()
        unused = [one for one in report.unused if one.rpartition("__")[0] not in others]
        wanted = replace(report, unused=unused)
    problems = wanted.problems(refused)
    if problems or (params and not report.loaded):
        spec = _spec_in(arrays, shapes, origin)
        text = differences(spec, graph.spec) if spec is not None else {}
        wrong = wanted.wrong(refused if problems else KINDS)
        order = {name: i for i, name in enumerate(params)}
        in_order = dict(sorted(wrong.items(), key=lambda one: order.get(one[0], len(order))))
        what = "does not fit" if problems else "has nothing that fits"
        raise CheckpointError(f"{origin}: {what} net {graph.name!r}: {listed(in_order, text)}")
    return report


def _spec_in(arrays: Any, shapes: Mapping[str, tuple[int, ...]], origin: str) -> NetSpec | None:
    """The net whose text lies among arrays; None if there is none, or it cannot be read."""
    try:
        text = model.text_among(arrays, shapes, origin) if MODEL in shapes else None
        return None if text is None else parse(text, f"{origin}: {MODEL}")
    except MinicaffeError:  # what is wrong with the weights is told
        return None


def _of_training(spec: NetSpec, state: State) -> set[str]:
    """The layers of a net that it does without in a state: losses, and those of TRAIN."""
    losses = {kind for kind in {one.type for one in spec.layers} if REGISTRY[kind].traits.is_loss}
    own = [one for one in spec.layers if one.included(state) and one.type not in losses]
    return {one.name for one in spec.layers} - {one.name for one in own}


def save(graph: Graph, path: str | Path, arrays: Mapping[str, np.ndarray], form: str = "") -> None:
    """Write a net's arrays by name, in the `form` .caffemodel or .h5, by default by the file's suffix."""
    plugged = format_of(WEIGHTS, form or path)
    if plugged is not None:
        plugged.save(path, graph, arrays, form)
        return
    text = entry(with_classes(graph.spec, graph.layers.values()), path)
    model.write(path, {**arrays, **text}, graph.name)
