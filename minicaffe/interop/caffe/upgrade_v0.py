"""Nets of the first Caffe, whose layers had one message for all keys, as V1LayerParameters."""

from __future__ import annotations

from collections.abc import Iterable

from minicaffe.core.config.tree import Node, shown
from minicaffe.errors import SpecError, did_you_mean

# Of the first Caffe's types, the V1 type; and of its keys, for each type that has it, the message it went to.
V0_TYPES = """accuracy bnll concat conv:CONVOLUTION data dropout euclidean_loss flatten hdf5_data hdf5_output
im2col images:IMAGE_DATA infogain_loss innerproduct:INNER_PRODUCT lrn multinomial_logistic_loss pool:POOLING
relu sigmoid softmax softmax_loss split tanh window_data"""
V0_KEYS = """num_output conv innerproduct / biasterm>bias_term conv innerproduct
weight_filler conv innerproduct / bias_filler conv innerproduct
pad conv pool / kernelsize>kernel_size conv pool / group conv / stride conv pool
pool pool / dropout_ratio dropout / local_size lrn / alpha lrn / beta lrn / k lrn
source data hdf5_data images window_data infogain_loss / batchsize>batch_size data hdf5_data images window_data
rand_skip data images / shuffle_images>shuffle images / new_height images / new_width images
concat_dim concat / det_fg_threshold>fg_threshold window_data / det_bg_threshold>bg_threshold window_data
det_fg_fraction>fg_fraction window_data / det_context_pad>context_pad window_data
det_crop_mode>crop_mode window_data"""
V0_MESSAGES = {
    "conv": "convolution_param",
    "innerproduct": "inner_product_param",
    "pool": "pooling_param",
    "images": "image_data_param",
}
V0_TRANSFORM = {
    "scale": "scale",
    "meanfile": "mean_file",
    "cropsize": "crop_size",
    "mirror": "mirror",
}
REPEATED = ("pad", "kernel_size", "stride")  # in a convolution of today, one an axis
Fields = dict[str, Node]


def named(layer: Node) -> str:
    """A layer as errors call it."""
    name = layer.value["name"].value if "name" in layer.value else ""
    return f"layer {shown(name)}: " if name else "layer: "


def _text(layer: Node, key: str) -> str:
    inner = layer.value.get("layer", Node({}, layer.mark))
    return inner.value[key].value if key in inner.value else ""


def without_padding(layers: Iterable[Node]) -> list[Node]:
    """Layers of the first Caffe, each `padding` layer become the `pad` of the one that reads it."""
    writers: dict[str, Node] = {}
    found = []
    for layer in layers:
        bottoms = layer.value["bottom"].value if "bottom" in layer.value else []
        kind, pad = _text(layer, "type"), [writers.get(bottom.value) for bottom in bottoms]
        before = next(
            (one for one in pad if one is not None and _text(one, "type") == "padding"), None
        )
        if before is not None:
            ends = [
                len(before.value[key].value) for key in ("bottom", "top") if key in before.value
            ]
            if kind not in ("conv", "pool") or len(bottoms) != 1 or ends != [1, 1]:
                raise SpecError(
                    f"{layer.mark}: a padding layer belongs above one conv or pool layer alone"
                )
            inner, source = layer.value["layer"], before.value["layer"]
            if "pad" in source.value:
                padded = {**inner.value, "pad": source.value["pad"]}
                inner = Node(padded, inner.mark, {**inner.keys, "pad": source.keys["pad"]})
            own = {**layer.value, "layer": inner, "bottom": before.value["bottom"]}
            layer = Node(own, layer.mark, layer.keys)
        for top in layer.value["top"].value if "top" in layer.value else []:
            writers[top.value] = layer
        if kind != "padding":
            found.append(layer)
    return found


def v1_of_v0(layer: Node) -> Node:
    """A layer of the first Caffe as a V1LayerParameter."""
    if "layer" not in layer.value:
        raise SpecError(
            f"{layer.mark}: expected `layer {{ ... }}` in it, as in the layers of its age"
        )
    for key in layer.value:
        if key not in ("layer", "bottom", "top"):
            raise SpecError(f"{layer.keys[key]}: {key}: beside `layer` stand only bottom and top")
    inner = layer.value["layer"]
    own: Node = inner.value.get("type", Node("", inner.mark))
    named_types = (pair.partition(":") for pair in V0_TYPES.split())
    types = {old: new or old.upper() for old, _, new in named_types}
    if own.value not in types:
        hint = did_you_mean(own.value, types)
        raise SpecError(f"{own.mark}: {named(inner)}unknown type {shown(own.value)}{hint}")
    message = V0_MESSAGES.get(own.value, f"{own.value}_param")
    fields: Fields = {key: layer.value[key] for key in ("bottom", "top") if key in layer.value}
    keys = {key: layer.keys[key] for key in fields}
    for key, node in inner.value.items():
        home, name = message, key
        if key in V0_TRANSFORM:
            home, name = "transform_param", V0_TRANSFORM[key]
        elif key in ("name", "type", "blobs", "blobs_lr", "weight_decay", "hdf5_output_param"):
            fields[key], keys[key] = node, inner.keys[key]
            continue
        else:
            name = _v0_key(key, own.value)
            if not name:
                raise SpecError(
                    f"{inner.keys[key]}: {named(inner)}{key} is not of the type {own.value!r}"
                )
        if own.value == "conv" and name in REPEATED:
            node = Node([node], node.mark)
        there = fields.get(home, Node({}, inner.keys[key]))
        places = {**there.keys, name: inner.keys[key]}
        fields[home] = Node({**there.value, name: node}, there.mark, places)
        keys.setdefault(home, inner.keys[key])
    fields["type"] = Node(types[own.value], own.mark)
    return Node(fields, layer.mark, keys)


def _v0_key(key: str, kind: str) -> str:
    """What a key of the first Caffe is called in the message of a type; "" where it has no place."""
    for row in V0_KEYS.replace("\n", " / ").split(" / "):
        old, *kinds = row.split()
        old, _, new = old.partition(">")
        if old == key and kind in kinds:
            return new or old
    return ""
