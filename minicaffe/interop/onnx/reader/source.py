"""An .onnx file as it lies on disk: checked, its sizes fixed, and its arrays read.

Nothing in a file is trusted. A file is read whole or not at all; an array that lies in another file is read
only from the folder of the model or below it; what an array promises is compared with what is there before
memory is taken.
"""

import math
import os
import re
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import CheckpointError, SpecError, did_you_mean, reason
from minicaffe.interop.onnx.table import packages
from minicaffe.storage import checkpoint, wire
from minicaffe.storage.file_kinds import reading

OPSETS = range(9, 22)  # of the domain ai.onnx
ENTRIES = 2**27  # of an input, a constant or a blob: 512 MiB in float32
NODES = 100_000  # of a graph: no net has as many
DEPTH = 100  # of graphs and functions within others
AXES = 32  # of an array, as in Caffe


@dataclass
class Source:
    """A model's graph whose input sizes are known, and its arrays by name."""

    path: Path
    model: Any  # onnx.ModelProto, whose arrays are all in it
    opset: int
    inputs: dict[str, tuple[int, ...]]  # name -> shape; of what is no constant
    types: dict[str, str]  # of inputs: float32, int64 ...
    arrays: dict[str, np.ndarray]

    @property
    def nodes(self) -> Sequence[Any]:
        """The nodes, each behind those that it reads."""
        return list(self.model.graph.node)

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [value.name for value in self.model.graph.output]


def read(path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None) -> Source:
    """Read an .onnx file. `shapes` are the sizes of inputs whose axes the file leaves open.

    An open first axis is 1 sample. Raises CheckpointError for a file that is not whole, that onnx's checker
    refuses, or whose arrays lie outside its folder; SpecError for an opset, a domain, or a size that is not
    known.
    """
    onnx, _ = packages()
    path = Path(path)
    model = _parsed(onnx, path)
    _check_names(path, model.graph)
    versions = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
    opset = int(versions[0]) if versions else 1
    if opset not in OPSETS:
        problem = f"expected {OPSETS[0]} to {OPSETS[-1]} (torch.onnx.export takes opset_version=17)"
        raise SpecError(f"{path}: opset {opset}: {problem}")
    if _count(model) > NODES:
        problem = f"holds more nodes than {NODES}, or functions within functions without end"
        raise SpecError(f"{path}: {problem}")
    if model.functions:
        from onnx import inliner

        model = _called(inliner.inline_local_functions, path, model)
    for tensor in _tensors(model.graph):
        _fill(path, tensor)
    inputs = _inputs(path, model, dict(shapes or {}))
    _called(onnx.checker.check_model, path, model)
    _widen(onnx, path, model)
    arrays = {one.name: array_of(onnx, path, one) for one in model.graph.initializer}
    for one in model.graph.sparse_initializer:
        raise SpecError(f"{path}: array {one.values.name!r} is sparse, which is not read")
    return Source(path, model, opset, inputs, _types(onnx, path, model, inputs), arrays)


def _widen(onnx: Any, path: Path, model: Any) -> None:
    """Have a float16 or bfloat16 model compute in float32; drops inputs at a node's end that are left out."""
    halves = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    single = onnx.TensorProto.FLOAT
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop()
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in halves:
                value.type.tensor_type.elem_type = single
        for node in graph.node:
            waiting += graphs(node)
            while node.input and not node.input[-1]:  # left out: onnxruntime may crash on it
                node.input.pop()
            for attribute in node.attribute:
                if node.op_type == "Cast" and attribute.name == "to" and attribute.i in halves:
                    attribute.i = single
    for tensor in _tensors(model.graph):
        if tensor.data_type in halves:
            array = array_of(onnx, path, tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _called(function: Any, path: Path, *args: Any) -> Any:
    """What a function of onnx returns. Raises CheckpointError for whatever it raises, in one line."""
    try:
        return function(*args)
    except Exception as error:  # of several classes, which have no base of theirs
        raise CheckpointError(f"{path}: onnx refuses it: {reason(error)[:300]}") from None


def _parsed(onnx: Any, path: Path) -> Any:
    damage = (Exception,)  # protobuf's own, of one class in Python and another in C
    with reading(path, ".onnx file", CheckpointError, damage):
        checkpoint.check_regular(path)
        if os.path.getsize(path) > wire.LIMIT:
            problem = "is larger than 2 GiB, which Protocol Buffers do not read"
            raise CheckpointError(f"{path}: {problem}")
        model = onnx.ModelProto.FromString(path.read_bytes())
        if not model.graph.node and not model.graph.output:
            raise ValueError("it holds no graph")
    return model


def _check_names(path: Path, graph: Any) -> None:
    """Raise CheckpointError for a name that is no UTF-8 text: protobuf returns it as bytes."""
    names = [graph.name, *(one.name for one in (*graph.input, *graph.output, *graph.initializer))]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
        for inner in graphs(node):
            _check_names(path, inner)
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise CheckpointError(f"{path}: is not a whole .onnx file: {wrong!r:.80} is no text")


def graphs(node: Any) -> Iterator[Any]:
    """The graphs that a node's attributes hold."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _count(model: Any) -> int:
    """How many nodes a model has once its functions stand where they are called; no more than NODES + 1."""
    functions = {(one.domain, one.name): one for one in model.functions}
    counts = dict[tuple[str, str], int]()

    def of(nodes: Iterable[Any], depth: int) -> int:
        if depth > DEPTH:
            return NODES + 1
        total = 0
        for node in nodes:
            key = node.domain, node.op_type
            if key in functions and key not in counts:
                counts[key] = NODES + 1  # while it is counted: one that calls itself has no end
                counts[key] = of(functions[key].node, depth + 1)
            total += counts.get(key, 1)
            total += sum(of(inner.node, depth + 1) for inner in graphs(node))
            if total > NODES:
                return NODES + 1
        return total

    return of(model.graph.node, 0)


def _tensors(graph: Any) -> Iterator[Any]:
    """All arrays of a graph and of those within it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for inner in graphs(node):
            yield from _tensors(inner)


def _fill(path: Path, tensor: Any) -> None:
    """Bring an array that lies in a file of its own into the model. Raises CheckpointError."""
    if tensor.data_location != tensor.EXTERNAL:
        return
    what = f"{path}: array {tensor.name!r}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    folder = path.parent.resolve()
    try:
        file = (folder / location).resolve()
    except (OSError, RuntimeError, ValueError):  # a circle of links, a name that is none
        raise CheckpointError(f"{what} lies in {location!r:.80}, which is no place") from None
    if not location or not file.is_relative_to(folder):
        raise CheckpointError(f"{what} lies in {location!r}, outside the model's folder: not read")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
    except ValueError:
        raise CheckpointError(f"{what}: its place in {location!r} is no number") from None
    size = _bytes(what, tensor)
    length = size if length == -1 else length
    if length != size or offset < 0:
        problem = f"expected {size} bytes, got a length of {length} at {offset}"
        raise CheckpointError(f"{what}: {problem}")
    try:
        checkpoint.check_regular(file)
        if offset + length > os.path.getsize(file):
            why = f"{location!r} ends before its {length} bytes at {offset}"
            raise CheckpointError(f"{what}: {why}")
        with open(file, "rb") as stream:
            stream.seek(offset)
            tensor.raw_data = stream.read(length)
    except FileNotFoundError:
        raise CheckpointError(f"{what} lies in {location!r}, which is not there") from None
    except OSError as error:
        raise CheckpointError(f"{what}: {location!r} cannot be read: {error.strerror}") from None
    tensor.data_location = tensor.DEFAULT
    del tensor.external_data[:]


def _bytes(what: str, tensor: Any) -> int:
    """The bytes that an array's type and sizes promise. Raises CheckpointError for impossible ones."""
    import onnx

    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{what}: is of no type that is read ({tensor.data_type})") from None
    if dtype.kind == "c":
        raise CheckpointError(f"{what}: holds complex numbers, which no blob does")
    dims = list(tensor.dims)
    if any(size < 0 for size in dims) or len(dims) > AXES:
        raise CheckpointError(f"{what}: has no shape that is one: {dims[:AXES]}")
    size = math.prod(dims) * dtype.itemsize
    if re.match("u?int4|float4", dtype.name):  # two of them are in a byte
        size = -(-size // 2)
    if size > wire.LIMIT:
        raise CheckpointError(f"{what}: of shape {dims} is larger than 2 GiB")
    return size


def array_of(onnx: Any, path: Path, tensor: Any) -> np.ndarray:
    """The numbers of an array. Raises CheckpointError if it holds others than its shape promises."""
    _bytes(f"{path}: array {tensor.name!r}", tensor)
    return _called(onnx.numpy_helper.to_array, path, tensor)


def _word(name: str) -> str:
    """A name as a shell takes it; one with characters that cannot be printed as Python writes it."""
    return shlex.quote(name) if name.isprintable() else repr(name)


def _inputs(path: Path, model: Any, shapes: dict[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The shapes of what the user fills; those that were open are written into the model."""
    inputs = dict[str, tuple[int, ...]]()
    arrays = {one.name for one in model.graph.initializer}
    for value in model.graph.input:
        if value.name in arrays:
            continue
        what = f"{path}: input {value.name!r}"
        if not value.type.HasField("tensor_type"):
            raise SpecError(f"{what}: is no tensor, which a blob is")
        tensor = value.type.tensor_type
        wanted = shapes.pop(value.name, None)
        if not tensor.HasField("shape") and wanted is None:
            problem = f"its shape is not known; give it by --shape {_word(value.name)}=1x3x224x224"
            raise SpecError(f"{what}: {problem}")
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        if wanted is not None and tensor.HasField("shape"):
            fits = len(wanted) == len(dims) and all(
                d in (None, w) for d, w in zip(dims, wanted, strict=True)
            )
            if not fits:
                known = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]
                raise SpecError(f"{what}: expected a shape that fits {known}, got {list(wanted)}")
        sizes: list[Any] = list(wanted) if wanted is not None else list(dims)
        if sizes and sizes[0] is None:
            sizes[0] = 1
        if None in sizes:
            axis = sizes.index(None)
            named = tensor.shape.dim[axis].dim_param
            which = f"{axis} ({_word(named) if named else '?'})"
            raise SpecError(
                f"{what}: the size of its axis {which} is not known; give all of them, such as "
                f"--shape {_word(value.name)}={'x'.join(str(s or 224) for s in sizes)}"
            )
        if any(size < 1 for size in sizes) or len(sizes) > AXES or math.prod(sizes) > ENTRIES:
            raise SpecError(f"{what}: {sizes} is no shape of a blob")
        del tensor.shape.dim[:]
        for size in sizes:
            tensor.shape.dim.add().dim_value = size
        inputs[value.name] = tuple(sizes)
    if shapes:
        name = next(iter(shapes))
        raise SpecError(f"{path}: has no input {name!r}{did_you_mean(name, inputs)}")
    return inputs


def _types(onnx: Any, path: Path, model: Any, inputs: Container[str]) -> dict[str, str]:
    """The types of what the user fills. Raises SpecError for others than NumPy's numbers."""
    types = dict[str, str]()
    known = onnx.helper.get_all_tensor_dtypes()
    for value in model.graph.input:
        if value.name in inputs:
            kind = value.type.tensor_type.elem_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind) if kind in known else np.dtype("O")
            if dtype.kind not in "biuf":  # text, complex numbers, fewer than 8 bits
                raise SpecError(f"{path}: input {value.name!r}: is of no type that a blob holds")
            types[value.name] = dtype.name
    return types
