"""SSD's layers: PriorBox, and DetectionOutput around NonMaxSuppression.

NonMaxSuppression says which boxes are kept, in no order that the standard would promise. So the candidates
are put in order first, the best of each class before the others, of equal scores that of the lower number;
what is kept of them is marked in a tensor of that order, by its score, what is not by LEAST.

No tensor is ever empty, for OpenCV 5 does not bear that: NonMaxSuppression is given one more box, without an
area and better than all, and behind the candidates' rows stand those that say that nothing was found.
"""

import itertools
from typing import Any

import numpy as np

from minicaffe.errors import SpecError
from minicaffe.interop.caffe.forks.ssd import LEAST
from minicaffe.interop.onnx.draft import Blob, Draft, Node, Shape, differing
from minicaffe.interop.onnx.exported import as_exported
from minicaffe.interop.onnx.patterns import Pattern, match, one_number, recognises, short
from minicaffe.interop.onnx.table import draws, writes
from minicaffe.interop.onnx.writer.model import Graph, Written

CODES = ("CENTER_SIZE", "CORNER", "CORNER_SIZE")


@recognises(("Unsqueeze", ("Gather", ("Concat",), ("Squeeze", ("NonZero",)))))
def find_detection_output(draft: Draft, node: Node) -> Blob | None:
    """DetectionOutput, as export writes it: decoded boxes, less those that overlap a better one."""
    keys = _keys(_before(node))
    if keys is None:
        return None
    layer, sizes = keys
    for code, encoded, clip in itertools.product(CODES, (False, True), (False, True)):
        more = differing(variance_encoded_in_target=(encoded, False), clip=(clip, False))
        tried = {**layer, "code_type": code, **more}
        if (blob := as_exported(draft, node, "DetectionOutput", sizes, tried)) is not None:
            return blob
    return None


def _before(node: Node) -> list[Node]:
    """All nodes that a node's output is computed of, the last first."""
    nodes, waiting = dict[Node, None](), [node]
    while waiting:
        one = waiting.pop(0)
        if one not in nodes:
            nodes[one] = None
            waiting += [tensor.node for tensor in one.inputs if tensor is not None and tensor.node]
    return list(nodes)


def _keys(nodes: list[Node]) -> tuple[dict[str, Any], dict[str, Shape]] | None:
    """The keys and the sizes of bottoms that single nodes tell; None where one that would is not there."""
    scored = _first(nodes, ("Transpose", ("Reshape", "scores", "*shape")))
    ranked = _first(nodes, ("TopK:top", [("Gather", ("Transpose",), "*labels"), ("Transpose",)]))
    best = _first(nodes, ("TopK:top", ("Flatten",)))
    boxed = _first(nodes, ("NonMaxSuppression:suppression",))
    if scored is None or ranked is None or boxed is None or len(scored["scores"].shape) != 2:
        return None
    (n, numbers), classes = scored["scores"].shape, int(scored["*shape"][-1])
    overlap, least = (one_number(boxed["suppression"].const(i)) for i in (3, 4))
    if classes < 1 or numbers % classes or overlap is None or least is None:
        return None
    labels = set(ranked["*labels"].ravel().tolist()) if "*labels" in ranked else range(classes)
    others = sorted(set(range(classes)) - set(labels))
    layer: dict[str, Any] = {"num_classes": classes, "background_label_id": (*others, -1)[0]}
    layer["nms_param"] = {"nms_threshold": short(overlap), "top_k": _limit(ranked["top"])}
    layer["keep_top_k"] = -1 if best is None else _limit(best["top"])
    layer |= {} if least == LEAST else {"confidence_threshold": short(least)}
    shapes = [node.const(1) for node in nodes if node.kind == "Reshape"]
    own = any(one is not None and one.tolist() == [0, -1, classes, 4] for one in shapes)
    layer |= {"share_location": False} if own else {}
    boxes = 4 * numbers // classes
    sizes = {"loc": (n, boxes * (classes if own else 1)), "conf": (n, numbers)}
    return layer, {**sizes, "prior": (1, 2, boxes)}


def _first(nodes: list[Node], pattern: Pattern) -> dict[str, Any] | None:
    """What the words of a pattern stand for in the first node that it fits."""
    return next((words for node in nodes if (words := match(pattern, node)) is not None), None)


def _limit(top: Node) -> int:
    """How many a TopK keeps at the most; -1 where all there are."""
    count = top.inputs[1].node if top.inputs[1] is not None else None
    most = count.const(1) if count is not None and count.kind == "Min" else None
    return -1 if most is None else int(most.ravel()[0])


FLOAT = 1  # ONNX's number of that type


@writes("DetectionOutput", jumps=True)
def write_detection_output(graph: Graph, step: Written, loc: str, scores: str, prior: str) -> str:
    """Rows (1, 1, count, 7) as our layer returns them: decoded, ranked, thinned out, the best kept."""
    layer = step.layer
    nms, classes = layer.nms_param, len(layer.classes)
    if nms.eta < 1 and nms.nms_threshold > 0.5:
        raise SpecError(f"nms_param: eta {nms.eta}: ONNX's threshold stays as it is; expected 1")
    graph.open[step.tops[0]] = [2]
    images = graph.size(loc, 0)
    number = graph.op("Unsqueeze", _counted(graph, images), [1])
    rest = graph.op("Expand", -1.0, graph.op("Concat", images, [6], axis=0))
    nothing = graph.op("Concat", number, rest, axis=1)  # the rows (n, 7) that say so
    if not classes or nms.top_k == 0 or layer.keep_top_k == 0:
        return graph.op("Unsqueeze", nothing, [0, 1])
    boxes = _decoded(graph, layer, loc, prior)
    if layer.clip:
        boxes = graph.op("Clip", boxes, 0.0, 1.0)
    scores = graph.op("Reshape", scores, [0, -1, layer.num_classes])
    scores = graph.op("Transpose", scores, perm=(0, 2, 1))
    if classes < layer.num_classes:
        scores = graph.op("Gather", scores, list(layer.classes), axis=1)
    scores, which = graph.ops("TopK", 2, scores, _at_most(graph, nms.top_k, scores, 2))
    batch_axes = 1 if layer.share_location else 2
    which = graph.op("Unsqueeze", which, [3])
    boxes = graph.op("GatherND", boxes, which, batch_dims=batch_axes)  # (n, classes, ranks, 4)
    marks = _suppressed(graph, layer, boxes, scores)
    if layer.keep_top_k > 0:
        marks = _best(graph, marks, layer.keep_top_k)
    candidates = _rows(graph, layer, images, scores, boxes)
    is_kept = graph.op("Reshape", graph.op("Greater", marks, LEAST), [-1])
    none = graph.op("LessOrEqual", graph.op("ReduceMax", marks, keepdims=0), LEAST)
    either = graph.op("Concat", is_kept, graph.op("Expand", none, images), axis=0)
    rows = graph.op("Squeeze", graph.op("NonZero", either), [0])
    table = graph.op("Concat", candidates, nothing, axis=0)
    return graph.op("Unsqueeze", graph.op("Gather", table, rows, axis=0), [0, 1])


def _rows(graph: Graph, layer: Any, images: str, scores: str, boxes: str) -> str:
    """The rows of all candidates, by image, by class, the best first."""
    number = graph.op("Unsqueeze", _counted(graph, images), [1, 2])
    labels = np.array(layer.classes, np.float32)[:, None]
    shape = graph.op("Shape", scores)
    columns = [graph.op("Expand", number, shape), graph.op("Expand", labels, shape), scores]
    columns = [graph.op("Unsqueeze", column, [3]) for column in columns]
    return graph.op("Reshape", graph.op("Concat", *columns, boxes, axis=3), [-1, 7])


def _at_most(graph: Graph, count: int, x: str, axis: int) -> str:
    """The size of an axis, or `count` where that is less; below 0 it is no limit."""
    size = graph.size(x, axis)
    return size if count < 0 else graph.op("Min", size, [count])


def _decoded(graph: Graph, layer: Any, loc: str, prior: str) -> str:
    """Boxes (n, p, 4), or (n, classes, p, 4) of classes that have their own: `boxes.decode` in ONNX."""
    prior = graph.op("Reshape", prior, [2, -1, 4])
    corners, variance = (graph.op("Gather", prior, i, axis=0) for i in (0, 1))
    if layer.share_location:
        moves = graph.op("Reshape", loc, [0, -1, 4])
    else:
        moves = graph.op("Reshape", loc, [0, -1, layer.num_classes, 4])
        moves = graph.op("Transpose", moves, perm=(0, 2, 1, 3))
        moves = graph.op("Gather", moves, list(layer.classes), axis=1)
    moved = moves if layer.variance_encoded_in_target else graph.op("Mul", moves, variance)
    if layer.code_type == "CORNER":
        return graph.op("Add", corners, moved)
    low, high = _halves(graph, corners)
    size = graph.op("Sub", high, low)
    if layer.code_type == "CORNER_SIZE":
        sizes = graph.op("Concat", size, size, axis=-1)
        return graph.op("Add", corners, graph.op("Mul", moved, sizes))
    shift, grow = _halves(graph, moved)
    half = graph.op("Mul", graph.op("Mul", graph.op("Exp", grow), size), 0.5)
    middle = graph.op("Mul", graph.op("Add", low, high), 0.5)
    middle = graph.op("Add", graph.op("Mul", shift, size), middle)
    return graph.op("Concat", graph.op("Sub", middle, half), graph.op("Add", middle, half), axis=-1)


def _halves(graph: Graph, x: str) -> list[str]:
    """The first and the last two of each four numbers."""
    return graph.ops("Split", 2, x, axis=-1)


def _suppressed(graph: Graph, layer: Any, boxes: str, scores: str) -> str:
    """Scores (n, classes, ranks), LEAST where a box overlaps a better one or is not good enough."""
    least = LEAST if layer.confidence_threshold is None else layer.confidence_threshold
    if layer.code_type != "CENTER_SIZE":  # a box turned inside out overlaps none
        low, high = _halves(graph, boxes)
        smaller = graph.op("ReduceMin", graph.op("Sub", high, low), axes=[-1])
        boxes = graph.op("Where", graph.op("Less", smaller, 0.0), 0.0, boxes)
    ranks = graph.size(scores, 2)
    each = graph.op("Reshape", boxes, graph.op("Concat", [-1], ranks, [4], axis=0))
    each = graph.op("Pad", each, [0, 0, 0, 0, 1, 0])
    own = graph.op("Reshape", scores, graph.op("Concat", [-1, 1], ranks, axis=0))
    own = graph.op("Pad", own, [0, 0, 0, 0, 0, 1], -LEAST)
    limits = [min(layer.nms_param.nms_threshold, 1.0)], [max(least, LEAST)]
    indices = graph.op("NonMaxSuppression", each, own, graph.size(own, 2), *limits)
    marks = graph.op("Expand", LEAST, graph.op("Shape", own))
    marks = graph.op("ScatterND", marks, indices, graph.op("GatherND", own, indices))
    marks = graph.op("Slice", marks, [0], [-1], [2])
    return graph.op("Reshape", marks, graph.op("Shape", scores))


def _best(graph: Graph, scores: str, count: int) -> str:
    """Scores (n, classes, ranks), LEAST where an image has `count` better ones."""
    flat = graph.op("Flatten", scores, axis=1)
    best, which = graph.ops("TopK", 2, flat, _at_most(graph, count, flat, 1))
    marks = graph.op("Expand", LEAST, graph.op("Shape", flat))
    marks = graph.op("ScatterElements", marks, which, best, axis=1)
    return graph.op("Reshape", marks, graph.op("Shape", scores))


@draws("DetectionOutput", 2)
def drawn_priors(random: Any, step: Written, shape: tuple[int, ...]) -> Any:
    """Boxes that have an area, and variances."""
    middle = random.uniform(0.2, 0.8, (shape[2] // 4, 2))
    half = random.uniform(0.05, 0.2, middle.shape)
    corners = np.concatenate([middle - half, middle + half], axis=1)
    return np.stack([corners.ravel(), np.full(shape[2], 0.1)])[None]


@writes("PriorBox", "PriorBoxClustered")
def write_prior_box(graph: Graph, step: Written, x: str, image: str) -> str:
    """The boxes and their variances: a constant, unless the map's or the image's size is dynamic."""
    layer = step.layer
    of_image = layer.pair("img", "img_size") is None and graph.varies(step.bottoms[1], 2, 3)
    variance = np.array(layer.variance or (0.1,), np.float32)
    if not of_image and not graph.varies(step.bottoms[0], 2, 3):
        numbers = layer.corners().ravel(), np.resize(variance, step.tops[0].shape[2])
        return graph.const(np.stack(numbers)[None].astype(np.float32), f"{step.spec.name}/priors")
    sizes = [graph.size(x, axis) for axis in (2, 3)]
    if of_image:
        whole = [_floats(graph, graph.size(image, axis)) for axis in (2, 3)]
    else:
        whole = [graph.const([float(size)]) for size in layer.image]
    steps = layer.pair("step", "step") or [
        graph.op("Div", side, _floats(graph, size)) for side, size in zip(whole, sizes, strict=True)
    ]
    rows, columns = (
        graph.op("Mul", graph.op("Add", _counted(graph, size), float(layer.offset)), step_)
        for size, step_ in zip(sizes, steps, strict=True)
    )
    y = graph.op("Mul", graph.op("Unsqueeze", rows, [1, 2, 3]), [0.0, 1.0, 0.0, 1.0])
    x = graph.op("Mul", graph.op("Unsqueeze", columns, [0, 2, 3]), [1.0, 0.0, 1.0, 0.0])
    half = layer.boxes / 2
    corners = graph.op("Add", graph.op("Add", x, y), np.concatenate([-half, half], axis=1))
    share = graph.op("Concat", whole[1], whole[0], whole[1], whole[0], axis=0)
    corners = graph.op("Div", corners, share)
    if layer.clip:
        corners = graph.op("Clip", corners, 0.0, 1.0)
    spread = graph.op("Expand", variance, graph.op("Shape", corners))
    both = [graph.op("Reshape", part, [1, 1, -1]) for part in (corners, spread)]
    return graph.op("Concat", *both, axis=1)


def _floats(graph: Graph, size: str) -> str:
    return graph.op("Cast", size, to=FLOAT)


def _counted(graph: Graph, size: str) -> str:
    """The numbers from 0 to below a size."""
    return _floats(graph, graph.op("Range", 0, graph.op("Squeeze", size, [0]), 1))
