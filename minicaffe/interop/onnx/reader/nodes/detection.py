"""DetectionOutput around NonMaxSuppression, as `minicaffe export` writes it."""

from __future__ import annotations

import itertools
from typing import Any

from minicaffe.interop.caffe.forks.ssd import LEAST
from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node, Shape
from minicaffe.interop.onnx.reader.exported import as_exported
from minicaffe.interop.onnx.reader.patterns import Pattern, match, one_number, recognises, short

CODES = ("CENTER_SIZE", "CORNER", "CORNER_SIZE")


@recognises("Unsqueeze")
def detection_output(draft: Draft, node: Node) -> Blob | None:
    """DetectionOutput, as export writes it: decoded boxes, less those that overlap a better one."""
    if match(("Unsqueeze", ("Gather", ("Concat",), ("Squeeze", ("NonZero",)))), node) is None:
        return None
    nodes = _before(node)
    keys = _keys(nodes)
    if keys is None:
        return None
    layer, sizes = keys
    for code, *switches in itertools.product(CODES, (False, True), (False, True)):
        names = ("variance_encoded_in_target", "clip")
        on = {name: True for name, switch in zip(names, switches, strict=True) if switch}
        blob = as_exported(
            draft, node, "DetectionOutput", sizes, {**layer, "code_type": code, **on}
        )
        if blob is not None:
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
    own = any(_is(node, [0, -1, classes, 4]) for node in nodes)
    layer |= {"share_location": False} if own else {}
    boxes = 4 * numbers // classes
    sizes = {"loc": (n, boxes * (classes if own else 1)), "conf": (n, numbers)}
    return layer, {**sizes, "prior": (1, 2, boxes)}


def _first(nodes: list[Node], pattern: Pattern) -> dict[str, Any] | None:
    """What the words of a pattern stand for in the first node that it fits."""
    return next((words for node in nodes if (words := match(pattern, node)) is not None), None)


def _is(node: Node, shape: list[int]) -> bool:
    """Whether a node reshapes to this."""
    wanted = node.const(1) if node.kind == "Reshape" else None
    return wanted is not None and wanted.tolist() == shape


def _limit(top: Node) -> int:
    """How many a TopK keeps at the most; -1 where all there are."""
    count = top.inputs[1].node if top.inputs[1] is not None else None
    most = count.const(1) if count is not None and count.kind == "Min" else None
    return -1 if most is None else int(most.ravel()[0])
