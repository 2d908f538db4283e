"""Names of layers and blobs: those of the model's tensors and weights, as far as they can be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from minicaffe.interop.onnx.draft import Blob, Draft, Layer, readable

SIGNS = r"\w./:+-"  # what a name may hold, as between the brackets of a regular expression


def living(draft: Draft, outputs: Mapping[str, Blob]) -> list[Layer]:
    """The layers that an output is computed of, each behind those that it reads."""
    live: list[Layer] = []
    seen = set[Layer]()
    stack = [(blob.layer, False) for blob in reversed(list(outputs.values())) if blob.layer]
    while stack:
        layer, done = stack.pop()
        if done:
            live.append(layer)
        elif layer not in seen:
            seen.add(layer)
            stack.append((layer, True))
            stack += [(blob.layer, False) for blob in reversed(layer.bottoms) if blob.layer]
    return live


def plain(name: str, signs: str = SIGNS) -> str:
    """A name whose characters are all of `signs`, as between the brackets of a regular expression.

    >>> plain("main graph!"), plain("é:0+", "A-Za-z0-9_./-")
    ('main_graph_', '__0_')
    """
    return re.sub(f"[^{signs}]", "_", name) or "net"


def name(
    layers: list[Layer],
    inputs: Mapping[str, Blob],
    outputs: Mapping[str, Blob],
    tensors: Mapping[str, Blob],
    hints: Mapping[str, str],
    signs: str = SIGNS,
) -> list[str]:
    """Name blobs and layers: inputs and outputs as the model does, a layer as its top.

    `tensors` are the blobs that hold a tensor of the model, `hints` readable names of some of these tensors.
    A layer that holds a weight `conv1.weight` is conv1; any other is called after the tensor it computes, and
    one that a node needs beside, after the layer that it leads to. A name holds only characters of `signs`; no
    two are the same. Returns a line on the inputs and outputs that could not keep their names.
    """
    taken, numbers = set[str](), Counter[str]()

    def unique(wanted: str) -> str:
        base = free = plain(wanted, signs)
        while free in taken:
            numbers[base] += 1
            free = f"{base}_{numbers[base] + 1}"
        taken.add(free)
        return free

    renamed = []
    for word, ends in (("input", inputs), ("output", outputs)):
        for wanted, blob in ends.items():
            blob.name = unique(wanted)
            if blob.name != wanted:
                renamed.append(f"{word} {wanted!r} is called {blob.name!r}")
    live = {blob for layer in layers for blob in layer.tops}
    tensors = {tensor: blob for tensor, blob in tensors.items() if blob in live}
    for tensor, blob in tensors.items():
        if not blob.name and blob.layer is not None and len(blob.layer.tops) == 1:
            blob.name = unique(hints.get(tensor) or readable(tensor) or "blob")
    for tensor, blob in tensors.items():
        if not blob.name:
            blob.name = unique(readable(tensor) or "blob")
    last: dict[str, str] = {}
    for layer in layers:
        for blob in layer.tops:
            if blob.name:
                last.setdefault(layer.origin, blob.name)
    for layer in layers:
        for blob in layer.tops:
            if not blob.name:
                word = "part" if layer.type == "Slice" else layer.type.lower()
                blob.name = unique(f"{last.get(layer.origin, '') or 'net'}_{word}")
        layer.name = layer.tops[0].name if len(layer.tops) == 1 else ""
    for layer in layers:
        if not layer.name:
            layer.name = unique(f"{layer.tops[0].name}_{layer.type.lower()}")
    return [", ".join(renamed)] if renamed else []


def hints(nodes: Sequence[Any], weights: Container[str]) -> dict[str, str]:
    """A readable name of each node's first output: that of its weight, or of its node."""
    names = {}
    for node in nodes:
        weight = next((one for one in node.input[1:] if one in weights), "")
        named = re.fullmatch(r"(.*[^.])\.weight", weight)
        names[node.output[0]] = readable(named[1] if named else node.output[0], node.op_type)
    return names
