"""What can be shown of a model some of whose layers are of unknown types: its shapes up to these."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path

from minicaffe.caffe import model as prototxt
from minicaffe.cli.options import import_files, state_of
from minicaffe.errors import SpecError, note
from minicaffe.layers import REGISTRY
from minicaffe.layers.unknown import with_unknown
from minicaffe.net import read
from minicaffe.net.model import holds_weights
from minicaffe.net.zoo import located
from minicaffe.spec import tree
from minicaffe.spec.blocks import expanded
from minicaffe.spec.declare import NetSpec
from minicaffe.spec.model import model
from minicaffe.spec.settings import replaced


def read_known(args: argparse.Namespace) -> NetSpec:
    """The model asked for, less its layers of unknown types and what needs them; a line says so."""
    import_files(args.imports)
    if holds_weights(args.model) or not os.path.isfile(located(args.model)):
        return state_of(args, read(args.model, *args.settings, lenient=args.lenient))
    path = Path(located(args.model))
    if prototxt.is_prototxt(path):
        root = prototxt.read_text(path, REGISTRY, lenient=args.lenient).root
    else:
        file, text = tree.load(path)
        root = expanded(tree.parse(text, file))
    types = with_unknown(root, REGISTRY)
    for setting in args.settings:
        root = replaced(root, setting, types)
    return state_of(args, known_part(model(root, types, path)))


def known_part(spec: NetSpec) -> NetSpec:
    """A model less its layers of unknown types, and less those that need what these write."""
    unknown = [layer for layer in spec.layers if layer.type not in REGISTRY]
    if not unknown:
        return spec
    layers, hidden, above = [], set[str](), False  # blobs; whether the layer above is left out
    for layer in spec.layers:
        reads = above if layer.bottom is None else not hidden.isdisjoint(layer.bottom)
        above = layer in unknown or reads
        hidden = hidden | set(layer.tops) if above else hidden - set(layer.tops)
        layers += [] if above else [layer]
    told = ", ".join(f"{layer.name} ({layer.type})" for layer in unknown)
    if not layers:
        raise SpecError(f"{unknown[0].mark}: no layer's shapes are known: all hang on {told}")
    rest = len(spec.layers) - len(layers) - len(unknown)
    also = f", nor of {rest} layers that read what these write" if rest else ""
    note(f"not shown, since the types are not known: {told}{also}; --import FILE registers them")
    return dataclasses.replace(spec, layers=tuple(layers))
