"""How the net of a file differs from the one it is to be loaded into: layer by layer, the first few."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from minicaffe.caffe.sparse import implied_bottoms, layer_options, plain
from minicaffe.caffe.yaml_text import flow
from minicaffe.layers import REGISTRY
from minicaffe.spec.declare import LayerSpec, NetSpec
from minicaffe.spec.tree import Mark

MOST = 10  # differences that are told
COMMON = ("param", "loss_weight", "propagate_down", "include", "exclude")


def differences(there: NetSpec, here: NetSpec) -> dict[str, list[str]]:
    """What the text of a net says otherwise than another's, by the names of layers; the latter's first.

    >>> from minicaffe.spec.model import parse_model
    >>> ip = {"name": "ip", "type": "InnerProduct", "bottom": "x"}
    >>> nets = [parse_model({"layers": [{**ip, "num_output": n}]}, REGISTRY) for n in (20, 50)]
    >>> differences(*nets)
    {'ip': ['num_output 20 there, 50 here']}
    """
    theirs, mine = _by_name(there), _by_name(here)
    found: dict[str, list[str]] = {}
    for key in [*mine, *(key for key in theirs if key not in mine)]:
        name, told = key[0], list[str]()
        if key not in theirs or key not in mine:
            told.append(f"no such layer {'here' if key in theirs else 'there'}")
        elif theirs[key]["type"] != mine[key]["type"]:
            told.append(f"type {theirs[key]['type']} there, {mine[key]['type']} here")
        else:
            told += [
                f"{what} {_shown(theirs[key][what])} there, {_shown(value)} here"
                for what, value in mine[key].items()
                if theirs[key][what] != value
            ]
        known = found.setdefault(name, [])  # of a layer that bears the name in the other phase
        known += [one for one in told if one not in known]
    return {name: told for name, told in found.items() if told}


def listed(wrong: Mapping[str, str], text: Mapping[str, list[str]]) -> str:
    """Differences in one line, layer by layer, MOST of them at most.

    `wrong` are parameters and what is wrong with each, "unused" with those that the file alone has; `text` is
    what `differences` returns, if the file holds its net's text.

    >>> listed({"ip__0": "(file (2, 3), net (2, 4))", "fc7__0": "missing", "fc_7__0": "unused"}, {})
    "ip__0 (file (2, 3), net (2, 4)); fc7__0 missing (the file has 'fc_7'); fc_7__0 unused"
    """
    layers: dict[str, dict[str, list[str]]] = {}  # what is wrong in each, and with which parameters
    for name, what in wrong.items():
        layers.setdefault(layer_of(name), {}).setdefault(what, []).append(name)
    free = [layer for layer, whats in layers.items() if "unused" in whats]
    told = [_of_layer(layer, layers[layer], free, text) for layer in layers]
    told += [f"layer {layer!r}: {', '.join(text[layer])}" for layer in text if layer not in layers]
    more = f"; and {len(told) - MOST} more" if len(told) > MOST else ""
    return "; ".join(told[:MOST]) + more


def layer_of(name: str) -> str:
    """The layer of a parameter: conv1 of conv1__0."""
    return name.rpartition("__")[0] or name


def _of_layer(
    layer: str, wrong: Mapping[str, list[str]], free: list[str], text: Mapping[str, list[str]]
) -> str:
    near = difflib.get_close_matches(layer, free, n=1) if "missing" in wrong else []
    parts = [f"{', '.join(names)} {what}" for what, names in wrong.items()]
    told = ", ".join(parts) + "".join(f" (the file has {name!r})" for name in near)
    return told + (f" (layer {layer!r}: {', '.join(text[layer])})" if layer in text else "")


def _by_name(spec: NetSpec) -> dict[tuple[str, int], dict[str, Any]]:
    """What is said of each layer, defaults too, by its name and how many before it bear that."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for layer, implied in zip(spec.layers, implied_bottoms(spec, REGISTRY), strict=True):
        number = sum(name == layer.name for name, _ in found)
        found[layer.name, number] = _said(layer, implied)
    return found


def _said(layer: LayerSpec, implied: set[tuple[str, ...]]) -> dict[str, Any]:
    bottoms = {layer.bottom} if layer.bottom is not None else implied
    ends = {"type": layer.type, "bottom": min(bottoms, default=()), "top": layer.tops}
    common = {key: getattr(layer, key) for key in COMMON}
    return {**ends, **layer_options(layer, REGISTRY), **common}


def _shown(value: Any) -> str:
    """A value as a model file has it, not too long."""
    text = "not given" if value in (None, ()) else flow(plain(value, Mark("")))
    return text if len(text) <= 60 else text[:57] + "..."
