"""Nets of earlier Caffes as those of today: what upgrade_proto.cpp does, on a tree that keeps its marks."""

from collections.abc import Container, Iterable, Mapping

from minicaffe.core.config.tree import Mark, Node, shown
from minicaffe.errors import SpecError, did_you_mean
from minicaffe.interop.caffe.schema import own_block

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
V0_NAMES = {  # what a key is called in the message of a type
    (old, kind): new or old
    for key, *kinds in map(str.split, V0_KEYS.replace("\n", " / ").split(" / "))
    for old, _, new in [key.partition(">")]
    for kind in kinds
}
V0_MESSAGES = {"conv": "convolution_param", "pool": "pooling_param", "images": "image_data_param"}
V0_MESSAGES |= {"innerproduct": "inner_product_param"}
V0_TRANSFORM = {"scale": "scale", "mirror": "mirror"}
V0_TRANSFORM |= {"meanfile": "mean_file", "cropsize": "crop_size"}
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
    padded_layers = []
    for layer in layers:
        bottoms = layer.value["bottom"].value if "bottom" in layer.value else []
        kind, pad = _text(layer, "type"), [writers.get(bottom.value) for bottom in bottoms]
        padding = (one for one in pad if one is not None and _text(one, "type") == "padding")
        before = next(padding, None)
        if before is not None:
            ends = [len(before.value[k].value) for k in ("bottom", "top") if k in before.value]
            if kind not in ("conv", "pool") or len(bottoms) != 1 or ends != [1, 1]:
                problem = "a padding layer belongs above one conv or pool layer alone"
                raise SpecError(f"{layer.mark}: {problem}")
            inner, source = layer.value["layer"], before.value["layer"]
            if "pad" in source.value:
                padded = {**inner.value, "pad": source.value["pad"]}
                inner = Node(padded, inner.mark, {**inner.keys, "pad": source.keys["pad"]})
            layer = _changed(layer, layer=inner, bottom=before.value["bottom"])
        for top in layer.value["top"].value if "top" in layer.value else []:
            writers[top.value] = layer
        if kind != "padding":
            padded_layers.append(layer)
    return padded_layers


def v1_of_v0(layer: Node) -> Node:
    """A layer of the first Caffe as a V1LayerParameter."""
    if "layer" not in layer.value:
        problem = "expected `layer { ... }` in it, as in the layers of its age"
        raise SpecError(f"{layer.mark}: {problem}")
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
        place = inner.keys[key]
        if key in ("name", "type", "blobs", "blobs_lr", "weight_decay", "hdf5_output_param"):
            fields[key], keys[key] = node, place
            continue
        if key in V0_TRANSFORM:
            home, name = "transform_param", V0_TRANSFORM[key]
        elif (key, own.value) in V0_NAMES:
            home, name = message, V0_NAMES[key, own.value]
        else:
            raise SpecError(f"{place}: {named(inner)}{key} is not of the type {own.value!r}")
        if own.value == "conv" and name in REPEATED:
            node = Node([node], node.mark)
        block = fields.get(home, Node({}, place))
        fields[home] = Node({**block.value, name: node}, block.mark, {**block.keys, name: place})
        keys.setdefault(home, place)
    fields["type"] = Node(types[own.value], own.mark)
    return Node(fields, layer.mark, keys)


V1_TYPES = {
    kind.upper(): kind for kind in ["BN", "BNLL", "LRN", "MVN", "AbsVal", "ArgMax", "ReLU", "TanH"]
}
V1_TYPES |= {"HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output"}
V1_TYPES["SOFTMAX_LOSS"] = "SoftmaxWithLoss"
TRANSFORMED = {kind: f"{kind.lower()}_param" for kind in ("DATA", "IMAGE_DATA", "WINDOW_DATA")}
# Keys of PSPNet's BN that SegNet's does not have; and the keys of both, as BatchNorm and Scale name them
PSPNETS = {"slope_filler", "bias_filler", "momentum", "eps", "frozen"}
SCALES = {"scale_filler": "filler", "shift_filler": "bias_filler"}
BATCH_NORMS = {"momentum": "moving_average_fraction", "eps": "eps"}
BATCH_NORMS |= dict.fromkeys(("scale_filler", "slope_filler"), "scale_filler")
BATCH_NORMS |= dict.fromkeys(("shift_filler", "bias_filler"), "bias_filler")
# SegNet's SoftmaxWithLoss whose classes have weights, by the type it is here; and the key that says so
WEIGHTED, BY_WEIGHT = "WeightedSoftmaxWithLoss", "weight_by_label_freqs"
ND = {  # types of forks for video, and what they are here
    "NdConvolution": ("Convolution", "convolution_param"),
    "NdDeconvolution": ("Deconvolution", "convolution_param"),
    "NdPooling": ("Pooling", "pooling_param"),
    "PoolingND": ("Pooling", "pooling_param"),
}
SHAPES = {"kernel_shape": "kernel_size", "stride_shape": "stride", "pad_shape": "pad"}
DEPTHWISE = ("ConvolutionDepthwise", "DepthwiseConvolution")  # two forks' names


def upgraded_net(net: Node, own: Container[str] = ()) -> Node:
    """A NetParameter of any age as one of today: `layer` alone, no `input`. Raises SpecError."""
    fields, keys = dict(net.value), dict(net.keys)
    old = fields.pop("layers", None)
    if old is not None:
        if "layer" in fields:
            mark = keys["layer"]
            problem = "the net has `layers` too, of an older Caffe; give one of them"
            raise SpecError(f"{mark}: {problem}")
        layers = old.value
        if any("layer" in layer.value for layer in layers):
            layers = [v1_of_v0(layer) for layer in without_padding(layers)]
        fields["layer"] = Node([_v2_of_v1(layer) for layer in layers], old.mark)
        keys["layer"] = keys.pop("layers")
    layers = [*_input_layer(fields, keys), *(fields["layer"].value if "layer" in fields else [])]
    if layers:
        mark = fields["layer"].mark if "layer" in fields else layers[0].mark
        layers = [
            _dilated(_weighted(one) if _type(one) in own else _along_axes(_depthwise(one)))
            for layer in layers
            for one in map(_batch_norm, [layer] if _type(layer) in own else _bn(layer))
        ]
        fields["layer"] = Node(layers, mark)
        keys.setdefault("layer", mark)
    return Node(fields, net.mark, {key: keys[key] for key in fields})


def _type(layer: Node) -> str:
    return layer.value["type"].value if "type" in layer.value else ""


def _changed(node: Node, *without: str, **fields: Node) -> Node:
    """Returns a message with other fields, and without some."""
    rest = {key: one for key, one in node.value.items() if key not in without}
    return Node(rest | fields, node.mark, node.keys)


def _retyped(layer: Node, kind: str, **fields: Node) -> Node:
    return _changed(layer, type=Node(kind, layer.value["type"].mark), **fields)


def _input_layer(fields: Fields, keys: dict[str, Mark]) -> list[Node]:
    """`input` and its shapes, taken out of a net's fields, as the layer that stands for them."""
    names = fields.pop("input", None)
    dims, shapes = fields.pop("input_dim", None), fields.pop("input_shape", None)
    if names is None or (dims is None and shapes is None):
        return []  # without shapes, Caffe drops `input`; whoever reads the blob is told of it
    count = len(names.value)
    if shapes is not None:
        sizes, wanted, what, key = shapes, count, "shapes", "input_shape"
    else:
        assert dims is not None
        sizes, wanted, what, key = dims, 4 * count, "numbers", "input_dim"
    if (got := len(sizes.value)) < wanted:
        problem = f"{key}: expected {wanted} {what} for {count} inputs, got {got}"
        raise SpecError(f"{keys[key]}: {problem}")
    if shapes is None:
        fours = [sizes.value[4 * i : 4 * i + 4] for i in range(count)]
        dims_of = [Node({"dim": Node(f, f[0].mark)}, f[0].mark, {"dim": keys[key]}) for f in fours]
        shapes = Node(dims_of, sizes.mark)
    mark, shape = keys["input"], {"shape": Node(shapes.value[:count], shapes.mark)}
    own = {key: Node(value, mark) for key, value in (("name", "input"), ("type", "Input"))}
    own |= {"top": names, "input_param": Node(shape, shapes.mark, {"shape": keys[key]})}
    return [Node(own, mark, dict.fromkeys(own, mark))]


def _batch_norm(layer: Node) -> Node:
    """The three statistics of a BatchNorm, once declared like weights, are not learnt."""
    params = layer.value.get("param")
    if _type(layer) != "BatchNorm" or params is None or len(params.value) < 3:
        return layer
    fixed = [*map(_fixed, params.value[:3]), *params.value[3:]]  # NVCaffe's scale and bias
    return _changed(layer, param=Node(fixed, params.mark))


def _bn(layer: Node) -> list[Node]:
    """A BN of a fork as layers of BVLC's.

    That of SegNet and ENet scales and shifts what a batch's own statistics normalise, in TEST too (LEARN), or
    scales and shifts alone (INFERENCE: the statistics are in its weights). That of PSPNet and ICNet keeps
    averages, as BatchNorm does, and has a scale and a bias.
    """
    if _type(layer) != "BN":
        return [layer]
    keys = layer.value.get("bn_param", Node({}, layer.mark)).value
    params, mark = layer.value.get("param", Node([], layer.mark)).value, layer.mark
    if "bn_mode" not in keys and (len(params) > 2 or PSPNETS & set(keys)):
        frozen = "frozen" in keys and keys["frozen"].value
        own: dict[str, object] = {"scale_bias": True, "moving_average_fraction": 0.9}
        own |= {"use_global_stats": True} if frozen else {}
        fixed = _fixed(Node({}, mark))
        learnt = [fixed, fixed] if frozen else params[:2]
        params = [*[fixed] * 3, *learnt] if learnt else []
        return [_replaced(layer, "BatchNorm", own, BATCH_NORMS, params)]
    scale = _replaced(layer, "Scale", {"bias_term": True}, SCALES, params)
    if "bn_mode" in keys and keys["bn_mode"].value == "INFERENCE":
        return [scale]
    own = {"use_global_stats": False, "eps": 1e-9}
    batch = _replaced(layer, "BatchNorm", own, {"eps": "eps"}, [])
    if "name" in layer.value:
        batch.value["name"] = Node(f"{layer.value['name'].value}_statistics", mark)
    if "top" in layer.value:  # the scale goes on from there, in place
        scale.value["bottom"] = layer.value["top"]
    return [batch, scale]


def _replaced(
    layer: Node, kind: str, own: Mapping[str, object], names: Mapping[str, str], params: list[Node]
) -> Node:
    """A layer of another type: `own` are its keys, and those of bn_param that `names` gives another name."""
    bn = layer.value.get("bn_param", Node({}, layer.mark))
    keys = {key: Node(value, bn.mark) for key, value in own.items()}
    keys |= {to: bn.value[key] for key, to in names.items() if key in bn.value}
    fields = {key: node for key, node in layer.value.items() if key not in ("bn_param", "param")}
    fields["type"] = Node(kind, layer.value["type"].mark)
    fields[own_block(kind)] = Node(keys, bn.mark, dict.fromkeys(keys, bn.mark))
    if params:
        fields["param"] = Node(params, layer.mark)
    return Node(fields, layer.mark, {key: layer.keys.get(key, layer.mark) for key in fields})


def _along_axes(layer: Node) -> Node:
    """NdConvolution and the like, of forks for video, are layers of today whose sizes stand in a shape."""
    if _type(layer) not in ND:
        return layer
    own, block = ND[_type(layer)]
    message = layer.value.get(block)
    if message is None:
        return _retyped(layer, own)
    values, keys = dict(message.value), dict(message.keys)
    for name, today in SHAPES.items():
        if name in values:
            dims = values.pop(name).value.get("dim", Node([], message.mark))
            values[today], keys[today] = dims, keys.pop(name)
    return _retyped(layer, own, **{block: Node(values, message.mark, keys)})


def _dilated(layer: Node) -> Node:
    """A pooling whose window has gaps is of a type of its own."""
    pool = layer.value.get("pooling_param")
    if _type(layer) != "Pooling" or pool is None or "dilation" not in pool.value:
        return layer
    if _has_gaps(pool):
        return _retyped(layer, "DilatedPooling")
    return _changed(layer, pooling_param=_changed(pool, "dilation"))


def _has_gaps(pool: Node) -> bool:
    """Whether the dilation of a pooling_param is not 1 along each axis; written, it may be one number."""
    dilation = pool.value.get("dilation", Node([], pool.mark))
    each = dilation.value if isinstance(dilation.value, list) else [dilation]
    return any(node.value != 1 for node in each)


def _depthwise(layer: Node) -> Node:
    """A convolution of each channel by itself, which forks have as a type, is one of as many groups."""
    if _type(layer) not in DEPTHWISE:
        return layer
    conv = layer.value.get("convolution_param")
    if conv is None or "num_output" not in conv.value:
        return _retyped(layer, "Convolution")
    own = {"group": conv.value["num_output"], **conv.value}
    keys = {"group": conv.keys["num_output"], **conv.keys}
    return _retyped(layer, "Convolution", convolution_param=Node(own, conv.mark, keys))


def _weighted(layer: Node) -> Node:
    """A SoftmaxWithLoss of SegNet's that is told to weigh its classes is a type of its own."""
    loss = layer.value.get("loss_param", Node({}, layer.mark))
    weighs = loss.value.get(BY_WEIGHT)
    if _type(layer) != "SoftmaxWithLoss" or weighs is None or not weighs.value:
        return layer
    return _retyped(layer, WEIGHTED, loss_param=_changed(loss, BY_WEIGHT))


def as_written(layer: Node) -> Node:
    """A layer as its fork's text has it: the inverse of what `upgraded_net` does to two of them."""
    pool = layer.value.get("pooling_param", Node({}, layer.mark))
    if _type(layer) == "DilatedPooling" and _has_gaps(pool):
        return _retyped(layer, "Pooling")
    if _type(layer) != WEIGHTED:
        return layer
    loss = layer.value["loss_param"]
    keys = {BY_WEIGHT: Node(True, loss.mark), **loss.value}
    return _retyped(layer, "SoftmaxWithLoss", loss_param=Node(keys, loss.mark))


def _fixed(spec: Node) -> Node:
    """A ParamSpec that does not learn."""
    if "lr_mult" in spec.value and spec.value["lr_mult"].value == 0:
        return spec
    zero = dict.fromkeys(("lr_mult", "decay_mult"), Node(0.0, spec.mark))
    return Node({**spec.value, **zero}, spec.mark, {**spec.keys, **dict.fromkeys(zero, spec.mark)})


def type_of_word(word: str) -> str:
    """The type of today that a V1LayerParameter's word names; a type of today, in quotes, is itself.

    >>> type_of_word("RELU"), type_of_word("CENTER_LOSS"), type_of_word("CenterLoss")
    ('ReLU', 'CenterLoss', 'CenterLoss')
    """
    if not word.isupper():
        return word
    return V1_TYPES.get(word) or "".join(part.capitalize() for part in word.split("_"))


def _v2_of_v1(layer: Node) -> Node:
    fields, keys = dict(layer.value), dict(layer.keys)
    if (kind := fields.get("type")) is not None:
        fields["type"] = Node(type_of_word(kind.value), kind.mark)
        if TRANSFORMED.get(kind.value) in fields:
            _move_transform(fields, keys, TRANSFORMED[kind.value])
    specs: list[Node] = []
    renamed = {"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult"}
    for old, new in {**renamed, "weight_decay": "decay_mult"}.items():
        for i, node in enumerate(fields.pop(old).value if old in fields else ()):
            if len(specs) <= i:
                specs.append(Node({}, node.mark))
            specs[i].value[new], specs[i].keys[new] = node, keys[old]
    if specs:
        fields["param"] = Node(specs, specs[0].mark)
        keys["param"] = next(keys[old] for old in (*renamed, "weight_decay") if old in keys)
    return Node(fields, layer.mark, {key: keys[key] for key in fields if key in keys})


def _move_transform(fields: Fields, keys: dict[str, Mark], param: str) -> None:
    """What once stood beside `source` belongs to transform_param."""
    own = fields[param]
    if not isinstance(own.value, dict):  # of a user's class of that name, which refuses it
        return
    moved = [key for key in ("scale", "mean_file", "crop_size", "mirror") if key in own.value]
    if not moved:
        return
    fields[param] = _changed(own, *moved)
    block = fields.get("transform_param", Node({}, own.value[moved[0]].mark))
    places = {**block.keys, **{key: own.keys[key] for key in moved}}
    values = {**block.value, **{key: own.value[key] for key in moved}}
    fields["transform_param"] = Node(values, block.mark, places)
    keys.setdefault("transform_param", own.keys[moved[0]])
