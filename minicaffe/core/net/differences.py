"""The differences between the net of a file and the net that loads it: layer by layer, the first few."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.config.tree import Mark
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.sparse import implied_bottoms, layer_options, plain
from minicaffe.core.net.yaml_text import flow

MOST = 10  # differences that are reported
COMMON = ("param", "loss_weight", "propagate_down", "include", "exclude")


def differences(there: NetSpec, here: NetSpec) -> dict[str, list[str]]:
    """The differences between the texts of two nets by the names of layers; those of `here` come first.

    >>> from minicaffe.core.config.model import parse_model
    >>> ip = {"name": "ip", "type": "InnerProduct", "bottom": "x"}
    >>> nets = [parse_model({"layers": [{**ip, "num_output": n}]}, REGISTRY) for n in (20, 50)]
    >>> differences(*nets)
    {'ip': ['num_output 20 there, 50 here']}
    """
    theirs, mine = _by_name(there), _by_name(here)
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

    `wrong` is the error of each parameter, "unused" for parameters that only the file has; `text` is
    the result of `differences`, if the file holds its net's text.

    >>> listed({"ip__0": "(file (2, 3), net (2, 4))", "fc7__0": "missing", "fc_7__0": "unused"}, {})
    "ip__0 (file (2, 3), net (2, 4)); fc7__0 missing (the file has 'fc_7'); fc_7__0 unused"
    """
    layers: dict[str, dict[str, list[str]]] = {}  # the errors of each, and their parameters
    for name, what in wrong.items():
        layers.setdefault(layer_of(name), {}).setdefault(what, []).append(name)
    free = [layer for layer, whats in layers.items() if "unused" in whats]
    parts = [_of_layer(layer, layers[layer], free, text) for layer in layers]
    parts += [f"layer {layer!r}: {', '.join(text[layer])}" for layer in text if layer not in layers]
    more = f"; and {len(parts) - MOST} more" if len(parts) > MOST else ""
    return "; ".join(parts[:MOST]) + more


def layer_of(name: str) -> str:
    """The layer of a parameter: conv1 of conv1__0."""
    return name.rpartition("__")[0] or name


def _of_layer(
    layer: str, wrong: Mapping[str, list[str]], free: list[str], text: Mapping[str, list[str]]
) -> str:
    near = difflib.get_close_matches(layer, free, n=1) if "missing" in wrong else []
    parts = [f"{', '.join(names)} {what}" for what, names in wrong.items()]
    line = ", ".join(parts) + "".join(f" (the file has {name!r})" for name in near)
    return line + (f" (layer {layer!r}: {', '.join(text[layer])})" if layer in text else "")


def _by_name(spec: NetSpec) -> dict[tuple[str, int], dict[str, Any]]:
    """The keys of each layer, defaults too, by its name and the number of layers of that name before it."""
    by_name: dict[tuple[str, int], dict[str, Any]] = {}
    for layer, implied in zip(spec.layers, implied_bottoms(spec, REGISTRY), strict=True):
        number = sum(name == layer.name for name, _ in by_name)
        by_name[layer.name, number] = _said(layer, implied)
    return by_name


def _said(layer: LayerSpec, implied: set[tuple[str, ...]]) -> dict[str, Any]:
    bottoms = {layer.bottom} if layer.bottom is not None else implied
    ends = {"type": layer.type, "bottom": min(bottoms, default=()), "top": layer.tops}
    common = {key: getattr(layer, key) for key in COMMON}
    return {**ends, **layer_options(layer, REGISTRY), **common}


def _shown(value: Any) -> str:
    """A value as it is written in a model file, shortened if it is long."""
    text = "not given" if value in (None, ()) else flow(plain(value, Mark("")))
    return text if len(text) <= 60 else text[:57] + "..."
