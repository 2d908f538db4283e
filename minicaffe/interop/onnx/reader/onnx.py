"""A model of ONNX as a net of Caffe's: read, said in layers, proven by numbers, then written."""

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import Net
from minicaffe.core.net.model import read as read_model
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.errors import CheckpointError, MinicaffeError, SpecError, did_you_mean
from minicaffe.interop.caffe import weights as caffes
from minicaffe.interop.caffe.model import SUFFIXES, named_prototxt
from minicaffe.interop.caffe.prototxt import prototxt
from minicaffe.interop.chips.chips import CHIPS, Chip, lower
from minicaffe.interop.onnx.draft import SIGNS, Blobs, Layer, give_names, hints, living, plain
from minicaffe.interop.onnx.reader import proof
from minicaffe.interop.onnx.reader.preparation import Prepares, prepared, prepares
from minicaffe.interop.onnx.reader.source import Source, read
from minicaffe.interop.onnx.reader.walk import Walk
from minicaffe.interop.onnx.writer import check
from minicaffe.storage import checkpoint
from minicaffe.storage.caches import TEMPORARY, forget_left
from minicaffe.tools.folding import WEIGHTED, by_outputs, factor_and_term, multiplied

TARGETS = ("minicaffe", *CHIPS)


@dataclass
class Imported:
    """What a model became: a net's spec, its parameters by name, and which blob holds which tensor."""

    spec: NetSpec
    arrays: dict[str, np.ndarray]
    source: Source
    tensors: dict[str, str]  # of the model -> the blob that holds it
    notes: list[str]
    differences: dict[str, float] = field(default_factory=dict)  # by layer, from onnxruntime
    pictures: Prepares | None = None  # how it takes them, if that is to be its first layer

    def net(self) -> Net:
        """The net, on the CPU, in float32."""
        net = Net(self.spec, "TEST", device="cpu", dtype="float32", deterministic=True, keep=None)
        net.load(self.arrays)
        return net


def from_onnx(
    path: str | Path,
    out: str | Path | None = None,
    *,
    target: str = "minicaffe",
    shapes: Mapping[str, Sequence[int]] | None = None,
    folded: bool | None = None,
    images: Sequence[np.ndarray] = (),
    pictures: str | Prepares | None = None,
) -> Imported:
    """Read an .onnx file as a net; with `out` write it, once onnxruntime has computed the same of it.

    `out` is a name without an ending, or in .prototxt, for net.prototxt and net.caffemodel; in .yaml for
    net.yaml and net.npz. `target` is whose layers may be used: minicaffe's, or only those of caffe (BVLC
    1.0) or of a chip's compiler. `shapes` are sizes of inputs that the file leaves open; an open first axis
    is 1. With `folded` BatchNorm and Scale are multiplied into the convolution before them; by default for
    targets but minicaffe. `images` are inputs, beside random ones, on which the two are compared. `pictures`,
    a name in PRESETS, or means, factors and whether the net takes them red first, become the net's first
    layer: it then takes pixels as Caffe reads them, from 0 to 255, blue first.

    Raises CheckpointError for a file that cannot be read, and if a blob differs by more than 1e-4 of its
    largest number, or an entry by more than rounding makes; SpecError for an operator that no layer says.
    Nothing is written then.
    """
    if target not in TARGETS:
        problem = f"expected one of {', '.join(TARGETS)}{did_you_mean(target, TARGETS)}"
        raise SpecError(f"target {target!r}: {problem}")
    source = read(path, shapes)
    chip = CHIPS.get(target)
    walk = Walk(source, chip.layers if chip else None)
    draft = walk.run()
    outputs = walk.outputs()
    folded = chip is not None if folded is None else folded
    notes = []
    if folded and (count := fold(outputs)):
        notes.append(f"{count} layers folded into the one before")
    if chip is not None:
        notes += lower(draft, outputs, chip, source.path)
    tensors = {name: one.blob for name, one in walk.tensors.items() if one.blob is not None}
    computed = {name: blob for name, blob in outputs.items() if name not in source.inputs}
    imported = _imported(walk, outputs, tensors | computed, notes, chip)
    if pictures is not None:
        imported.pictures = prepares(imported.spec, pictures)
    if out is not None:
        write(imported, out, images)
    return imported


def _imported(
    walk: Walk, outputs: Blobs, tensors: Blobs, notes: list[str], chip: Chip | None
) -> Imported:
    """The draft's living layers, named, as a net's spec and parameters."""
    source, draft = walk.source, walk.draft
    signs = chip.signs if chip else SIGNS
    layers = living(outputs)
    inputs = dict(zip(source.inputs, draft.inputs, strict=True))
    weights = {name for name, tensor in walk.tensors.items() if tensor.data is not None}
    notes += give_names(layers, inputs, outputs, tensors, hints(walk.nodes, weights), signs)
    listed: list[dict[str, Any]] = [
        {"name": blob.name, "type": "Input", "top": blob.name, "shape": {"dim": list(blob.shape)}}
        for blob in draft.inputs
    ]
    arrays: dict[str, np.ndarray] = {}
    read_blobs = {blob for layer in layers for blob in layer.bottoms} | set(outputs.values())
    unread = []
    for layer in layers:
        entry: dict[str, Any] = {"name": layer.name, "type": layer.type}
        entry["bottom"] = [blob.name for blob in layer.bottoms]
        entry["top"] = [blob.name for blob in layer.tops]
        listed.append({**entry, **layer.keys})
        arrays |= {f"{layer.name}__{i}": array for i, array in enumerate(layer.arrays)}
        unread += [blob.name for blob in layer.tops if blob not in read_blobs]
    if unread and chip is not None and "Silence" not in chip.layers:
        notes.append(f"{chip.title} has no Silence: outputs beside are {', '.join(unread)}")
    elif unread:
        name = "unread"
        while any(entry["name"] == name for entry in listed):
            name += "_"
        listed.append({"name": name, "type": "Silence", "bottom": unread, "top": []})
    name = source.model.graph.name
    if name in ("", "main_graph", "torch_jit"):  # PyTorch's own words
        name = source.path.stem
    spec = read_model({"name": plain(name, signs), "layers": listed})
    here = {blob for layer in layers for blob in layer.tops} | set(draft.inputs)
    held = {name: blob.name for name, blob in tensors.items() if blob in here}
    return Imported(spec, arrays, source, held, notes)


@np.errstate(all="ignore")  # of numbers that are not finite the comparison tells
def fold(outputs: Blobs) -> int:
    """Fold layers whose bottom nothing else reads, while there are any; returns how many are gone."""
    count = 0
    while _fold_one(living(outputs), outputs):
        count += 1
    return count


def _fold_one(layers: Sequence[Layer], outputs: Blobs) -> bool:
    """Fold the first layer that can be; returns False if there is none."""
    readers = Counter(blob for layer in layers for blob in layer.bottoms)
    readers.update(outputs.values())
    for layer in layers:
        before = layer.bottoms[0].layer if len(layer.bottoms) == 1 else None
        if before is None or before.type not in WEIGHTED or readers[layer.bottoms[0]] > 1:
            continue
        rank = len(layer.bottoms[0].shape)
        numbers = factor_and_term(layer.type, layer.keys.get, layer.arrays, rank)
        if numbers is None or not _fits(before, *numbers):
            continue
        old = before.arrays[1] if len(before.arrays) > 1 else None
        group = before.keys.get("group", 1)
        weight, bias = multiplied(before.type, before.arrays[0], old, *numbers, group)
        before.arrays = [weight]
        if bias.any() or "bias_term" not in before.keys:
            before.arrays.append(bias)
            before.keys.pop("bias_term", None)
        before.tops[0], before.origin = layer.tops[0], layer.origin
        before.tops[0].layer = before
        return True
    return False


def _fits(before: Layer, factor: np.ndarray, term: np.ndarray) -> bool:
    """True if numbers of channels are those of a layer's outputs."""
    count, rank = before.keys["num_output"], len(before.tops[0].shape)
    if any(bias.shape != (count,) for bias in before.arrays[1:]):
        return False  # of a damaged model: it is refused when the net is made
    sizes = {factor.size, term.size}
    return sizes <= {1} or (sizes <= {1, count} and by_outputs(before.type, 1, rank))


def files(out: str | Path) -> tuple[Path, Path]:
    """The model's file and that of its weights.

    >>> [path.name for path in files("nets/net")], [path.name for path in files("net.yaml")]
    (['net.prototxt', 'net.caffemodel'], ['net.yaml', 'net.npz'])
    >>> [path.name for path in files("net.prototxt.txt")]
    ['net.prototxt.txt', 'net.caffemodel']
    """
    out = Path(out)
    if out.suffix.lower() in (".yaml", ".yml"):
        return out, out.with_suffix(".npz")
    for suffix in SUFFIXES:
        if out.name.lower().endswith(suffix):
            return out, out.with_name(out.name[: -len(suffix)] + ".caffemodel")
    return out.with_name(out.name + ".prototxt"), out.with_name(out.name + ".caffemodel")


def write(imported: Imported, out: str | Path, images: Sequence[np.ndarray] = ()) -> None:
    """Write the two files, once what they say, read again, computes what onnxruntime does."""
    model, weights = files(out)
    if not model.parent.is_dir():
        problem = f"cannot be written: there is no folder {str(model.parent)!r}"
        raise CheckpointError(f"{model}: {problem}")
    try:
        forget_left(model)
        folder = tempfile.TemporaryDirectory(
            TEMPORARY, f".{model.name}.", model.parent, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise CheckpointError(f"{model}: cannot be written: {error.strerror or error}") from None
    with folder as beside:
        trial_model, trial_weights = Path(beside) / model.name, Path(beside) / weights.name
        _write(imported, trial_model, trial_weights)
        try:
            kind: dict[str, Any] = {"device": "cpu", "dtype": "float32", "deterministic": True}
            net = Net(trial_model, "TEST", keep=None, **kind)
            if imported.arrays:
                net.load(trial_weights)
        except MemoryError:
            raise CheckpointError(f"{model}: the net is larger than the memory here") from None
        except MinicaffeError as error:  # onnx takes a bias of more numbers than outputs
            reason = str(error).replace(f"{beside}{os.sep}", "")
            why = f"{reason}; nothing was written"
            raise CheckpointError(f"{imported.source.path}: {why}") from None
        lines, imported.differences = proof.proven(imported.source, net, imported.tensors, images)
        imported.notes += lines
        if imported.pictures is not None:
            _prepare(imported, net)
            _write(imported, trial_model, trial_weights)
        if not imported.arrays:
            trial_weights.unlink(missing_ok=True)
        for trial, final in ((trial_weights, weights), (trial_model, model)):
            try:
                if trial.exists():
                    os.replace(trial, final)
            except OSError as error:
                raise CheckpointError(f"{final}: cannot be written: {error.strerror}") from None


def _prepare(imported: Imported, net: Net) -> None:
    """Have the first layer prepare pictures. Raises CheckpointError if the outputs are others then."""
    assert imported.pictures is not None
    imported.spec, arrays = prepared(imported.spec, imported.pictures)
    imported.arrays |= arrays
    (data,) = (layer.tops[0] for layer in imported.spec.layers if layer.type == "Input")
    pixels: Any = np.random.default_rng(0).integers(0, 256, net.blobs[data].shape)
    pictures: Any = imported.pictures.of(pixels)
    wanted = net.forward(**{data: pictures})
    for name, array in imported.net().forward(**{data: pixels}).items():
        if (apart := check.difference(array, wanted[name])) > check.MOST:
            raise CheckpointError(
                f"{imported.source.path}: prepared, {name!r} differs by {apart:.0e}; nothing was written"
            )


def _write(imported: Imported, model: Path, weights: Path) -> None:
    spec = imported.spec
    if named_prototxt(model):
        text = prototxt(spec, REGISTRY, {})
        layers = []
        for one in spec.layers:
            numbers: dict[int, np.ndarray] = {}
            while f"{one.name}__{len(numbers)}" in imported.arrays:
                numbers[len(numbers)] = imported.arrays[f"{one.name}__{len(numbers)}"]
            layers.append(caffes.Layer(one.name, one.type, numbers, one.bottom or (), one.tops))
        caffes.write(weights, layers, spec.name)
    else:
        text = yaml_text(spec, REGISTRY, {})
        checkpoint.write(weights, imported.arrays)
    checkpoint.replace(model, text.encode("utf-8"))
