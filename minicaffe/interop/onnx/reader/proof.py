"""A written net beside the model it was made of, in onnxruntime: blob by blob, on the same inputs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from minicaffe.core.net import Net
from minicaffe.core.net.step import Value
from minicaffe.errors import CheckpointError, DataError, SpecError
from minicaffe.interop.onnx.draft import FLOATS
from minicaffe.interop.onnx.reader.source import Source
from minicaffe.interop.onnx.table import JUMPS, packages
from minicaffe.interop.onnx.writer import check
from minicaffe.tools.inference import inputs

TRIALS = 3  # random inputs
FAR = 4096  # numbers far apart that are drawn, in 1 to 8 inputs
LEAST = float(np.finfo(np.float32).tiny)
TERMS = 2.0**-20  # of the largest term: how much a sum, or a function that adds 1, may round
_EXACT = """
Abs Clip Concat DepthToSpace Div Expand Flatten Gather GlobalMaxPool LeakyRelu Max MaxPool Min Mul Neg PRelu
Pad Pow Reciprocal ReduceMax ReduceMin Relu Reshape Slice SpaceToDepth Split Sqrt Squeeze ThresholdedRelu Tile
TopK Transpose Unsqueeze
"""
EXACT = frozenset(_EXACT.split())  # operators whose entries are no sums


def proven(
    source: Source, net: Net, tensors: Mapping[str, str], images: Sequence[np.ndarray] = ()
) -> tuple[list[str], dict[str, float]]:
    """Lines on the largest difference of each output and of the worst layer, and that of each layer by name.

    A difference is a part of the largest number that onnxruntime has there. A layer that jumps where its
    bottom changes by a rounding error is compared on onnxruntime's own bottoms. Then each layer is, of numbers
    far apart, entry by entry. Raises CheckpointError for the first blob that differs by more than 1e-4, or
    holds no finite number, and without enough memory.
    """
    try:
        return _compared(source, net, tensors, images)
    except MemoryError:
        problem = "there is not enough memory to compute it; nothing was written"
        raise CheckpointError(f"{source.path}: {problem}") from None


def _compared(
    source: Source, net: Net, tensors: Mapping[str, str], images: Sequence[np.ndarray]
) -> tuple[list[str], dict[str, float]]:
    values = {value.name: value for step in net.steps for value in step.tops}
    last = set(net.graph.outputs.values())
    names: dict[Value, str] = {}
    computed = {name for node in source.nodes for name in node.output}  # not those within a branch
    compared = computed.union(source.outputs).difference(source.inputs)
    for tensor in sorted(tensors, key=lambda one: one not in source.outputs):
        value = values.get(tensors[tensor])
        if value is not None and tensor in compared:
            names.setdefault(value, tensor)
    data = _asked(source, list(names.values()))
    every = {value: names.get(value, "") for value in values.values()}
    apart: dict[Value, float] = {}
    where: dict[Value, str] = {}
    for arrays in _trials(net, images):
        reference = _reference(source, net, arrays, data)
        for step in check.by_step(net, arrays, reference, every, JUMPS):
            for value in step.tops:
                if value not in names:
                    continue
                theirs = reference[names[value]]
                if value in last and theirs.size and not np.isfinite(theirs).any():
                    raise CheckpointError(
                        f"{source.path}: output {names[value]!r} holds no finite number, of random input: "
                        "there is nothing to compare; nothing was written"
                    )
                apart[value] = max(apart.get(value, 0.0), check.difference(value.blob.data, theirs))
                where[value] = step.spec.name
                if apart[value] > check.MOST:
                    raise CheckpointError(
                        f"{source.path}: layer {step.spec.name!r} ({step.spec.type}) differs from "
                        f"{names[value]!r} in onnxruntime by {apart[value]:.1e} of its largest number; "
                        "nothing was written"
                    )
    _entries(source, net, names, data)
    lines = [
        f"{value.name} {value.shape}: checked against onnxruntime: max. relative difference {apart[value]:.0e}"
        for value in net.graph.outputs.values()
        if value in apart
    ]
    if apart:
        worst = max(apart, key=lambda value: apart[value])
        trials = f"{TRIALS} random inputs" + (f" and {len(images)} pictures" if len(images) else "")
        lines.append(
            f"{len(apart)} blobs compared on {trials}; the largest difference is {apart[worst]:.0e}, "
            f"of layer {where[worst]!r}"
        )
    layers: dict[str, float] = {}
    for value, difference in apart.items():
        layers[where[value]] = max(layers.get(where[value], 0.0), difference)
    return lines, layers


def _entries(source: Source, net: Net, names: Mapping[Value, str], data: bytes) -> None:
    """Compare each entry with onnxruntime's by its own size, of numbers far apart, layer by layer.

    Each layer is given onnxruntime's bottoms. A sum may differ by a rounding error of the largest number that
    it is made of, or by as much as it does where the last digits of the bottoms do; what several nodes became
    together by 1e-4 of that number. What is made of numbers that are not normal is not compared, nor is a NaN.
    Raises CheckpointError for an entry that differs by more.
    """
    nodes, computed = {}, set(source.inputs)
    for node in source.nodes:
        nodes.update(dict.fromkeys(node.output, node))
        if node.op_type not in ("Shape", "Size") and computed.intersection(node.input):
            computed.update(node.output)
    every = {value: names.get(value, "") for step in net.steps for value in step.tops}
    every |= zip(inputs(net), source.inputs, strict=True)
    kinds = {step.spec.type for step in net.steps}
    numbers = sum(math.prod(value.shape) for value in inputs(net))
    floats = set(source.types.values()) <= {"float32", "float64"}
    for seed in range(min(max(FAR // numbers, 1), 8) if floats else 0):
        arrays = check.drawn(net, seed, far_apart)
        reference = _reference(source, net, arrays, data)
        terms: dict[Value, float] = {}  # the largest number that a blob is made of
        tensors: dict[Value, set[str]] = {}  # those of the model that it is made of
        doubtful = {}
        for step in check.by_step(net, arrays, reference, every, kinds):
            largest = max((terms[value] for value in step.bottoms), default=0.0)
            read = set[str]().union(*(tensors[value] for value in step.bottoms))
            for value in step.tops:
                ours, theirs = np.array(value.blob.data, np.float64), reference.get(every[value])
                varies = step.layer.traits.sizes_vary  # as of boxes whose scores are nearly equal
                if theirs is None or varies or every[value] not in nodes:
                    terms[value] = max(largest, abs(ours[np.isfinite(ours)]).max(initial=0.0))
                    tensors[value] = read | set(filter(None, [every[value]]))
                    continue
                tensors[value] = {every[value]}
                finite = np.isfinite(theirs)
                size = np.where(finite, abs(theirs.astype(np.float64)), 0.0)
                normal = finite.all() and not ((size > 0) & (size < LEAST)).any()
                terms[value] = size.max(initial=0.0) if normal else math.inf
                node, most, compared = nodes[every[value]], LEAST, ~np.isnan(theirs)
                alone = read == computed.intersection(node.input)
                exact = alone and node.op_type in EXACT
                if not exact:
                    share = TERMS if alone else check.MOST
                    most = share * max(1.0, largest, size.max(initial=0.0))
                    # A sum may overflow by the order of its terms; LRN's is a running one in onnxruntime.
                    compared = finite & (node.op_type != "LRN")
                with np.errstate(invalid="ignore"):
                    near = abs(ours - theirs) <= check.MOST * size + most
                wrong = compared & (ours != theirs) & ~near
                if math.isfinite(largest) and wrong.any():
                    doubtful[value] = ours, theirs, wrong, exact
        if not doubtful:
            continue
        signs = np.random.default_rng(seed)
        for one in (arrays, reference):
            for name, array in one.items():
                one[name] = array * signs.choice([1 - TERMS, 1 + TERMS], array.shape)
        for step in check.by_step(net, arrays, reference, every, kinds):
            for value in doubtful.keys() & set(step.tops):
                ours, theirs, wrong, exact = doubtful[value]
                with np.errstate(invalid="ignore"):
                    moved, apart = abs(value.blob.data - ours), abs(ours - theirs)
                if not exact:  # as where a mean is taken from numbers that are nearly equal
                    wrong &= ~(apart <= moved[np.isfinite(moved)].max(initial=0.0))
                if wrong.any():
                    raise CheckpointError(
                        f"{source.path}: layer {step.spec.name!r} ({step.spec.type}) differs from "
                        f"{every[value]!r} in onnxruntime: it has {ours[wrong][0]:.6g} for "
                        f"{theirs[wrong][0]:.6g}, of numbers far apart; nothing was written"
                    )


def far_apart(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers, 1e-9 to 1e6 of both signs, zeros of both; or normal numbers times one power of ten."""
    normal, signs = random.standard_normal(shape), random.choice([-1.0, 1.0], shape)
    if random.random() < 0.4:
        return normal * 10 ** random.uniform(-4, 6)
    apart = signs * 10 ** random.uniform(-9, 6, shape)
    kind = random.integers(8, size=shape)
    return np.where(kind < 3, normal, np.where(kind < 7, apart, 0.0 * signs))


def _reference(
    source: Source, net: Net, arrays: dict[str, np.ndarray], data: bytes
) -> dict[str, np.ndarray]:
    """What onnxruntime makes of inputs; those of whole numbers are made such in `arrays`."""
    typed = {}
    blobs = [value.name for value in inputs(net)]  # as many, in the same order
    for (name, kind), held in zip(source.types.items(), blobs, strict=True):
        array = arrays[held]
        if kind not in FLOATS:
            array = abs(array) if kind.startswith(("uint", "bool")) else array
            array = np.trunc(array * 2) if np.any(array % 1) else array
        typed[name] = array.astype(kind)
        arrays[held] = typed[name].astype(np.float32)
    return {name: np.asarray(array, np.float32) for name, array in check.run(data, typed).items()}


def _asked(source: Source, names: list[str]) -> bytes:
    """The model, which returns these tensors as well."""
    onnx, _ = packages()
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    known = {value.name for value in (*model.graph.output, *model.graph.input)}
    computed = {name for node in model.graph.node for name in node.output}
    for name in names:
        if name not in known and name in computed:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
    return model.SerializeToString()


def _trials(net: Net, images: Sequence[np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Random inputs, then pictures as the first input that is one."""
    for seed in range(TRIALS):
        yield check.drawn(net, seed)
    for image in images:
        arrays = check.drawn(net)
        name = next(iter(inputs(net))).name
        arrays[name] = np.asarray(image, np.float32).reshape(arrays[name].shape)
        yield arrays


def pictures(folder: str | Path, shape: tuple[int, ...], limit: int = 16) -> list[np.ndarray]:
    """Pictures of a folder stretched to an input (1, c, h, w), red first, 0 to 1. Raises MinicaffeError."""
    from minicaffe.tools.data import pictures as files

    if len(shape) != 4 or shape[0] != 1 or shape[1] not in (1, 3):
        problem = f"the net's input {shape} takes no pictures: expected (1, 1 or 3, h, w)"
        raise SpecError(f"--images: {problem}")
    endings = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
    paths = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in endings)
    if not paths:
        raise DataError(f"{folder}: holds no pictures ({', '.join(endings)})")
    arrays = []
    for path in paths[:limit]:
        pixels, name = files.pixels_in(path)
        array, _ = files.prepared(pixels, shape[1:], False, name, "stretch", 0, False)
        arrays.append((array / 255).reshape(shape).astype(np.float32))
    return arrays
