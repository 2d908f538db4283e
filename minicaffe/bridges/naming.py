"""Names of layers and blobs: those of the model's tensors and weights, as far as they can be read."""

from __future__ import annotations

import re
from collections.abc import Mapping

from minicaffe.bridges.draft import Blob, Draft, Layer, readable
from minicaffe.bridges.source import Source


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


def plain(name: str) -> str:
    """A name of letters, digits and few signs.

    >>> plain("main graph!")
    'main_graph_'
    """
    return re.sub(r"[^\w./:+-]", "_", name) or "net"


def name(
    source: Source,
    draft: Draft,
    layers: list[Layer],
    outputs: Mapping[str, Blob],
    tensors: Mapping[str, Blob],
) -> None:
    """Name blobs and layers: inputs and outputs as the model does, a layer as its top.

    A layer that holds a weight `conv1.weight` is conv1; any other is called after the tensor it computes, and
    one that a node needs beside, after the layer that it leads to.
    """
    taken = set[str]()

    def unique(wanted: str) -> str:
        free, number = wanted, 1
        while free in taken:
            number += 1
            free = f"{wanted}_{number}"
        taken.add(free)
        return free

    inputs = dict(zip(source.inputs, draft.inputs, strict=True))
    for blob_name, blob in (*inputs.items(), *outputs.items()):
        blob.name = unique(plain(blob_name))
    hints = _hints(source)
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


def _hints(source: Source) -> dict[str, str]:
    """A readable name of each node's first output: that of its weight, or of its node."""
    hints = {}
    for node in source.nodes:
        if not node.output:
            continue
        weight = next((one for one in node.input[1:] if one in source.arrays), "")
        named = re.fullmatch(r"(.*[^.])\.weight", weight)
        hints[node.output[0]] = readable(named[1] if named else node.output[0], node.op_type)
    return hints
