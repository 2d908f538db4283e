"""A graph of ONNX, walked node by node: shapes inferred, constants computed away, the rest said in layers."""

import copy
import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minicaffe.errors import SpecError, did_you_mean, reason
from minicaffe.interop.onnx.draft import Blob, Draft, Node, Tensor
from minicaffe.interop.onnx.patterns import RECOGNISERS
from minicaffe.interop.onnx.reader.source import ENTRIES, Source, array_of, graphs
from minicaffe.interop.onnx.table import LOOKS_BACK, READERS, UNREAD, RefusedError, packages, reads

WHOLE = ("int64", "int32", "uint8", "int8", "int16", "uint16", "uint32", "uint64")
# Operators whose whole numbers are exact as floating point: they move, or count.
MOVES = {
    *("Identity", "Dropout", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Concat"),
    *("Split", "Slice", "Gather", "Expand", "Tile", "Cast", "CastLike", "ArgMax", "ArgMin", "Pad"),
    *("TopK", "DepthToSpace", "SpaceToDepth", "MaxPool"),
}
# Operators that are never computed away: their numbers are drawn, or their bodies are graphs.
NEVER = {
    *("If", "Loop", "Scan", "SequenceMap", "RandomNormal", "RandomUniform", "RandomNormalLike"),
    *("RandomUniformLike", "Bernoulli", "Multinomial"),
}
STANDARD = ("", "ai.onnx")  # the domain of ONNX's own operators
# What the arithmetic of a reader raises for attributes and shapes that no sound node has.
MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Walk:
    """The tensors of a graph by name, and the draft that its nodes become."""

    def __init__(self, source: Source, types: Collection[str] | None = None):
        self.source, self.draft = source, Draft(types)
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Any] = []  # as they are walked: those of a branch in the place of its If
        self.names = {name for node in source.nodes for name in node.output}
        self.names |= source.arrays.keys() | source.inputs.keys()
        for name, array in source.arrays.items():
            self.tensors[name] = Tensor(name, array.shape, array.dtype.name, array)
        for name, shape in source.inputs.items():
            blob = Blob(shape)
            self.draft.inputs.append(blob)
            self.tensors[name] = Tensor(name, shape, source.types[name], blob=blob)

    def run(self) -> Draft:
        """The draft. Raises SpecError for the first node that is refused, which counts the others."""
        outputs = self.source.outputs
        nodes = deque(_needed(self.source.nodes, outputs))
        readers = _readers(nodes)
        readers.update(outputs)
        while nodes:
            proto = nodes.popleft()
            branch = self._branch(proto, readers)
            if branch is not None:
                nodes.extendleft(reversed(branch))
            else:
                self._walk(proto, readers)
        if reasons := _reasons([self.tensors[name] for name in outputs]):
            others = len(reasons) - 1
            words = "another node is" if others == 1 else f"{others} other nodes are"
            more = f" (and {words} refused)" if others else ""
            raise SpecError(f"{self.source.path}: {reasons[0]}{more}; nothing was written")
        return self.draft

    def _walk(self, proto: Any, readers: Mapping[str, int]) -> None:
        """Compute a node away, or have it said in layers."""
        self.nodes.append(proto)
        node = self._node(proto, readers)
        self.draft.origin = node.name or f"{node.kind} {len(self.nodes) - 1}"
        if proto.domain not in STANDARD:
            self._refuse(node, f"it is of the domain {proto.domain!r}, of which nothing is read")
        elif self._infer(node, proto) and not self._computed_away(node, proto):
            self._said(node)

    def _branch(self, proto: Any, readers: Counter[str]) -> list[Any] | None:
        """The nodes of the branch that an If takes whose condition is a constant; None of another node."""
        onnx, _ = packages()
        if proto.op_type != "If" or proto.domain not in STANDARD or len(proto.input) != 1:
            return None
        condition = self.tensors.get(proto.input[0])
        if condition is None or condition.data is None:
            return None
        try:
            nodes, arrays = taken(proto, condition.data, self.names)
        except RefusedError as error:
            self.nodes.append(proto)
            self._refuse(self._node(proto, readers), str(error))
            return []
        for one in arrays:
            array = array_of(onnx, self.source.path, one)
            self.tensors[one.name] = Tensor(one.name, array.shape, array.dtype.name, array)
        nodes = _needed(nodes, filter(None, proto.output))
        own = {name for node in nodes for name in node.output}
        readers.update({name: count for name, count in _readers(nodes).items() if name in own})
        return nodes

    def outputs(self) -> dict[str, Blob]:
        """The blob of each output by name. One that is a constant, or an input, is a layer of its own."""
        blobs: dict[str, Blob] = {}
        for name in self.source.outputs:
            blob = self.draft.blob(self.tensors[name])
            if blob in self.draft.inputs or blob in blobs.values():
                blob = self.draft.layer("Split", blob)
            blobs[name] = blob
        return blobs

    def _node(self, proto: Any, readers: Mapping[str, int]) -> Node:
        onnx, _ = packages()
        attributes = {one.name: _attribute(onnx, one) for one in proto.attribute}
        inputs = [self.tensors.get(name) if name else None for name in proto.input]
        outputs = [Tensor(name, None, "", readers=readers[name]) for name in proto.output]
        node = Node(
            proto.op_type, proto.name, inputs, outputs, attributes, self.source.opset, self.tensors
        )
        for tensor in outputs:
            tensor.node = node
            if tensor.name:
                self.tensors[tensor.name] = tensor
        return node

    def _infer(self, node: Node, proto: Any) -> bool:
        """Fill in shapes and types of a node's outputs, as far as onnx can tell; False if it refuses them."""
        onnx, _ = packages()
        if proto.op_type == "If":  # its branches read of the graph around
            return True
        try:
            schema = onnx.defs.get_schema(proto.op_type, self.source.opset, "")
            types, data = {}, {}
            for tensor in node.known:
                kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
                types[tensor.name] = onnx.helper.make_tensor_type_proto(kind, tensor.shape)
                if tensor.data is not None and tensor.data.size <= 1024:
                    data[tensor.name] = onnx.numpy_helper.from_array(tensor.data, tensor.name)
            opset = [onnx.helper.make_opsetid("", self.source.opset)]
            infer = onnx.shape_inference.infer_node_outputs
            inferred = infer(schema, proto, types, data, opset_imports=opset)
        except Exception as error:  # of onnx's own classes; TypeError for types that NumPy lacks
            self._refuse(node, f"onnx finds no shapes for it: {reason(error)[:200]}")
            return False
        for tensor in node.outputs:
            if tensor.name not in inferred or not inferred[tensor.name].HasField("tensor_type"):
                continue
            info = inferred[tensor.name].tensor_type
            if info.elem_type:
                tensor.dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(info.elem_type)).name
            dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in info.shape.dim]
            if info.HasField("shape") and None not in dims:
                # onnx infers sizes below 0 for windows that do not fit.
                tensor.shape = tuple(max(int(size or 0), 0) for size in dims)
        return True

    def _computed_away(self, node: Node, proto: Any) -> bool:
        """Whether a node's outputs are constants: computed of constants, or of shapes alone."""
        if node.kind in ("Shape", "Size"):
            shape = node.inputs[0].shape if node.inputs and node.inputs[0] else None
            if shape is None:
                return False
            start, end = node.get("start", 0), node.get("end", len(shape))
            value = shape[start:end] if node.kind == "Shape" else math.prod(shape)
            _set(node.outputs[0], np.array(value, np.int64))
            return True
        if node.kind in NEVER or any(one.data is None for one in node.known):
            return False
        sizes = [math.prod(one.shape) for one in node.outputs if one.shape is not None]
        before = sum(one.data.size for one in node.known if one.data is not None)
        if not all(one.shape is not None for one in node.outputs if one.name):
            sizes.append(0 if node.kind in ("NonZero", "Unique", "Compress") else ENTRIES + 1)
        if max([*sizes, before], default=0) > ENTRIES:
            self._refuse(node, "its constants are larger than any net's")
            return True
        self._compute(node, proto)
        return True

    def _compute(self, node: Node, proto: Any) -> None:
        """The outputs of a node of constants, by onnx's reference, which is NumPy."""
        onnx, _ = packages()
        from onnx.reference import ReferenceEvaluator

        helper, arrays = onnx.helper, {one.name: one.data for one in node.known}
        outputs = [one.name for one in node.outputs if one.name]
        infos, results = (
            [helper.make_value_info(name, onnx.TypeProto()) for name in names]
            for names in (arrays, outputs)
        )
        graph = helper.make_graph([proto], "constants", infos, results)
        try:
            with np.errstate(all="ignore"):
                evaluator = ReferenceEvaluator(graph, opsets={"": self.source.opset})
                values = evaluator.run(outputs, arrays)
        except Exception as error:  # whatever the formula of an operator makes of damaged numbers
            self._refuse(node, f"its constants cannot be computed: {reason(error)[:200]}")
            return
        for name, value in zip(outputs, values, strict=True):
            _set(self.tensors[name], np.asarray(value))

    def _said(self, node: Node) -> None:
        """Have a node said in layers, with those before it where it ends a pattern, or by its reader."""
        try:
            with np.errstate(all="ignore"):
                recognised = (one(self.draft, node) for one in RECOGNISERS.get(node.kind, ()))
                blobs = next(filter(None, recognised), None) or self._read(node)
        except RefusedError as error:
            self._refuse(node, str(error))
        except MISFITS as error:
            what = "its attributes and inputs do not fit together"
            self._refuse(node, f"{what}: {reason(error)[:200]}")
        else:
            self._holds(node, blobs if isinstance(blobs, list) else [blobs])

    def _read(self, node: Node) -> Any:
        """What a node's reader makes of it. Raises RefusedError where there is none, or no blob holds it."""
        if _reasons(node.inputs) and node.kind not in LOOKS_BACK:
            raise RefusedError("what it reads is refused")
        reader = READERS.get(node.kind)
        if reader is None:
            hint = did_you_mean(node.kind, READERS)
            raise RefusedError(UNREAD.get(node.kind) or f"there is no layer for it{hint}")
        if any(one.shape is not None and 0 in one.shape for one in node.outputs):
            raise RefusedError("its output holds no number, and no blob of a net is empty")
        whole = [one.dtype for one in node.outputs if one.dtype in WHOLE and one.readers]
        counts = node.kind in ("Add", "Sub") and whole == ["int64"]  # of places: exact below 2^24
        if whole and node.kind not in MOVES and not counts:
            raise RefusedError("it computes whole numbers, and a blob's are floating point")
        large = [one for one in node.outputs if one.shape and math.prod(one.shape) > ENTRIES]
        if large:
            raise RefusedError(f"its output {large[0].shape} is larger than any net's")
        return reader(self.draft, node)

    def _holds(self, node: Node, blobs: Sequence[Blob | np.ndarray]) -> None:
        """Note what holds a node's outputs."""
        for tensor, blob in zip(node.outputs, blobs, strict=False):
            if isinstance(blob, np.ndarray):
                _set(tensor, blob)
                continue
            if tensor.shape is not None and blob.shape != tensor.shape:
                self._refuse(node, f"becomes {blob.shape}, expected {tensor.shape}")
                return
            blob.refused = tuple(f"{_where(node)}: {reason}" for reason in blob.refused)
            tensor.blob, tensor.shape = blob, blob.shape
            tensor.dtype = tensor.dtype or "float32"

    def _refuse(self, node: Node, reason: str) -> None:
        """Note why a node is refused, and go on, as if a blob held its outputs."""
        reasons = () if node.kind in LOOKS_BACK else _reasons(node.inputs)
        # what reads a refused node's output is no mistake of its own
        reasons = reasons or (f"{_where(node)}: {reason}",)
        for tensor in node.outputs:
            tensor.blob = Blob(tensor.shape or (), refused=reasons)


def _where(node: Node) -> str:
    """How a node is called in a refusal."""
    if node.name:
        return f"node {node.name!r} ({node.kind})"
    wanted = [one.name for one in node.outputs if one.name]
    return f"a node {node.kind}" + (f" of {wanted[0]!r}" if wanted else "")


def _reasons(tensors: Sequence[Tensor | None]) -> tuple[str, ...]:
    """Why tensors are not held by any blob, each reason once."""
    blobs = [one.blob for one in tensors if one is not None and one.blob is not None]
    return tuple(dict.fromkeys(reason for blob in blobs for reason in blob.refused))


def _set(tensor: Tensor, value: np.ndarray) -> None:
    tensor.data, tensor.shape, tensor.dtype = value, value.shape, value.dtype.name


def _needed(nodes: Sequence[Any], outputs: Iterable[str]) -> list[Any]:
    """The nodes that an output is computed of, in their order."""
    wanted, needed = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            needed.append(node)
            wanted |= {name for name in node.input if name} | outer_reads(node).keys()
    return needed[::-1]


def _readers(nodes: Iterable[Any]) -> Counter[str]:
    """How often nodes, and the graphs within them, read each name."""
    counts = Counter[str]()
    for node in nodes:
        counts.update(filter(None, node.input))  # "" is an input that is left out
        counts.update(outer_reads(node))
    return counts


def _attribute(onnx: Any, proto: Any) -> Any:
    """An attribute's value: numbers, text, arrays, and lists of them; a graph, or what else, as it is."""
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    single = int, float, str, onnx.GraphProto, onnx.TypeProto, onnx.SparseTensorProto
    if isinstance(value, single):
        return value
    items = list(value)
    return [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in items]


@reads("If")
def if_(draft: Draft, node: Node) -> Blob:
    """The branch that a constant condition takes, in its place; another condition is refused."""
    raise RefusedError(
        "its condition is computed of the input; a net of Caffe's is the same for all inputs"
    )


def outer_reads(node: Any) -> Counter[str]:
    """How often the graphs within a node read each name of the graph around it; of two branches, the most."""
    counts = Counter[str]()
    for graph in graphs(node):
        own = Counter(value.name for value in graph.output)
        own.update(_readers(graph.node))
        for name in _own_names(graph):
            own.pop(name, None)
        counts |= own
    return counts


def _own_names(graph: Any) -> list[str]:
    """The names that a graph makes its own: of its inputs, its arrays, and what its nodes compute."""
    names = [one.name for one in (*graph.input, *graph.initializer)]
    names += [one.values.name for one in graph.sparse_initializer]
    return names + [name for node in graph.node for name in node.output if name]


def taken(proto: Any, condition: Any, names: set[str]) -> tuple[list[Any], list[Any]]:
    """Copies of the nodes and arrays of the branch that an If takes, to stand in its place.

    What the branch returns is called as the If's outputs, and nothing else as any of `names`, to which the
    new names are added. Raises RefusedError for a branch that cannot stand there.
    """
    if condition.size != 1 or condition.dtype != bool:
        raise RefusedError(
            f"its condition is {condition.dtype} of shape {list(condition.shape)}, expected one bool"
        )
    key = "then_branch" if condition.item() else "else_branch"
    branch = next(one.g for one in proto.attribute if one.name == key)  # onnx's checker wants one
    results = [value.name for value in branch.output]  # of its own, as onnx's checker demands
    if len(results) != len(proto.output):
        raise RefusedError(
            f"its {key} returns {len(results)} tensors, expected {len(proto.output)}"
        )
    if branch.input or branch.sparse_initializer:
        what = "inputs" if branch.input else "sparse arrays"
        raise RefusedError(f"its {key} has {what}, which are not read")
    new = dict[str, str]()
    computed = {name for node in branch.node for name in node.output}
    for inner, outer in zip(results, proto.output, strict=True):
        if outer and inner in computed:
            new.setdefault(inner, outer)
    for name in _own_names(branch):
        if name not in new:
            new[name] = _free(name, proto.output[0], names)
    arrays, nodes = (list(map(copy.deepcopy, own)) for own in (branch.initializer, branch.node))
    for array in arrays:
        array.name = new[array.name]
    for node in nodes:
        node.output[:] = [new.get(name, name) for name in node.output]
        _rename_inputs(node, new)
    onnx, _ = packages()
    for inner, outer in zip(results, proto.output, strict=True):
        if outer and new[inner] != outer:  # an array, or a result twice
            nodes.append(onnx.helper.make_node("Identity", [new[inner]], [outer]))
    return nodes, arrays


def _free(name: str, prefix: str, names: set[str]) -> str:
    """The name, or one that tells where it stands, that nothing else has."""
    free, number = name, 1
    while free in names:
        free = f"{prefix}/{name}" if number == 1 else f"{prefix}/{name}_{number}"
        number += 1
    names.add(free)
    return free


def _rename_inputs(node: Any, new: dict[str, str]) -> None:
    """Rename what a node reads, and what the graphs within it read of the graph around."""
    node.input[:] = [new.get(name, name) for name in node.input]
    for graph in graphs(node):
        own = set(_own_names(graph))
        outer = {name: other for name, other in new.items() if name not in own}
        for value in graph.output:
            value.name = outer.get(value.name, value.name)
        for inner in graph.node:
            _rename_inputs(inner, outer)
