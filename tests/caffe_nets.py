"""Stock nets in Caffe's text, and when two models are the same."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from minicaffe.core.config.declare import NOWHERE, LayerSpec, NetSpec
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.yaml_text import implied_bottoms, shuffled, states

NETS = Path(__file__).parent / "interop" / "caffe" / "nets"
STOCK = sorted(path.name for path in NETS.glob("*.prototxt"))


def resolved(spec: NetSpec) -> Any:
    """What a model is, however it was said: its layers in each state, with all their keys."""
    implied = implied_bottoms(spec, REGISTRY)
    nets = []
    for state in states(spec):
        layers = [
            (layer.name, layer.type, said(layer, bottoms), layer.tops, own(layer), common(layer))
            for layer, bottoms in zip(spec.layers, implied, strict=True)
            if layer.included(state)
        ]
        nets.append((state, layers))
    solver = spec.solver and dataclasses.replace(spec.solver, mark=NOWHERE)
    whole = {key: getattr(spec, key) for key in keys_of(NetSpec)}
    return whole, nets, solver, [resolved(net) for net in spec.test_nets]


def said(layer: LayerSpec, implied: set) -> Any:
    return {layer.bottom} if layer.bottom is not None else implied


def own(layer: LayerSpec) -> dict[str, Any]:
    declared = keys_of(REGISTRY[layer.type])
    found = {key: layer.options.get(key, declared[key].default) for key in declared}
    if layer.type == "Data" and found["shuffle"] is None:
        found["shuffle"] = shuffled(layer)
    return found


def common(layer: LayerSpec) -> dict[str, Any]:
    skipped = ("name", "type", "bottom", "top")
    return {key: getattr(layer, key) for key in keys_of(LayerSpec) if key not in skipped}


def sources(net: Path) -> list[str]:
    """The files and folders that the layers of a stock net read."""
    return re.findall(r'source: "(.*?)"', net.read_text())
