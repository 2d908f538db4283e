"""A model adapted to data of one's own: what `minicaffe train MODEL --data SOURCE` and `minicaffe new` decide.

The result is the text of a model file, which anybody may read, change and train again: the model's own
layers, with data layers for what stands at the source in the place of its own, as many outputs as there are
classes, and a solver that counts in epochs. Nothing else of the model is changed.
"""

import math
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.core.config.declare import (
    LayerSpec,
    NetSpec,
    ParamSpec,
    Phase,
    Rule,
    SolverSpec,
    State,
)
from minicaffe.core.config.model import parse_model
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.net import Net, parse, read
from minicaffe.core.net.memory import Sharing
from minicaffe.core.net.model import holds_weights, is_ours, opened, text
from minicaffe.core.plugins import label_map
from minicaffe.core.solver import Solver
from minicaffe.errors import DataError, MinicaffeError, SpecError, mib, printable
from minicaffe.tools.data import lmdb_file, picture_files, readers
from minicaffe.tools.data.datum import AnnotatedSet
from minicaffe.tools.data.layers.pictures import Transform
from minicaffe.tools.data.reader.array_set import HELD, ArraySet
from minicaffe.tools.data.reader.base import SHARE, Reader, class_counts, same_bytes, sides
from minicaffe.tools.data.reader.picture_set import PairSet, PictureSet, holds_pairs, inner_hint
from minicaffe.tools.data.weights import lookup
from minicaffe.tools.inference import PREPARATION, is_scored, picture_said, prepares, reads_data
from minicaffe.tools.training import folder as run_folder

# One class a picture; several labels, or none; a class for each pixel; boxes
Kind = Literal["classes", "labels", "masks", "boxes"]
PHASES: tuple[Phase, ...] = ("TRAIN", "TEST")
EPOCHS = 20
BATCH = 32  # pictures, if memory allows it and there are enough of them
LARGEST_BATCH = 256
# A net may take one of so many parts of the memory of the CPU, or (True) of a GPU
PARTS = {False: 4, True: 2}
# What may end a classifier without a softmax
LOGITS = ("InnerProduct", "Flatten", "Reshape", "Pooling")
NEW = 10.0  # how many times as fast layers learn that begin anew beside weights that do not
# (c, h, w) of the data sets that models name
SHAPES = {"mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "digits": (1, 28, 28)}
SHAPES |= {"cifar10": (3, 32, 32)}
IMAGENET = (104.0, 117.0, 123.0)  # the mean of ImageNet's pictures, blue first
SCALE = 1 / 64  # of pictures of 256 steps, where no weights expect another
MARGIN = 8 / 7  # pictures are scaled to so many times the side that is cut out of them: 256 to 224
SMALL = 64  # pixels a side: pictures that are smaller are not cut
LOOKED_AT = 100  # entries of an array that its mean and deviation are computed from
MOST = 100_000  # classes that are believed of few pictures
FEW = 30  # pictures to test with: of fewer it is said what one weighs
IGNORED = 255  # the label of pixels that belong to no class
# What `convert-images --boxes` writes, in one folder, beside the names of the classes
DATABASES = {"TRAIN": "train_lmdb", "TEST": "test_lmdb"}
LABEL_MAP = "labelmap.prototxt"
ERROR = "label_error"  # the output by which the tests of a net for several labels are judged
BLANK = {"name": "data", "type": "Input", "shape": {"dim": 1}}  # where there must be a layer


@dataclass(frozen=True)
class Adapted:
    """A model for some data: its name, the text of its file, and what was decided, in lines."""

    name: str
    source: str
    text: str
    lines: tuple[str, ...]
    arrays: ArraySet | None = None  # what it was adapted to, if that is no file

    def spec(self, *settings: str) -> NetSpec:
        """The model as it is trained, with keys replaced as by `--set`; paths start in the current folder."""
        path = Path(f"{self.name}.yaml")
        return parse_model(self.text, REGISTRY, f"{path} (adapted)", settings, path)

    def solver(self, *settings: str, **options: Any) -> Solver:
        """A Solver of it, with options as Solver takes them, that begins with the weights."""
        solver = Solver(self.spec(*settings), **options)
        for file in solver.spec.weights:
            solver.net.load(file, strict=False)
        return solver


@dataclass(frozen=True)
class DataSet:
    """What stands at a source: how many pictures to train with, their classes, and their shape if known."""

    source: str
    count: int
    outputs: int
    classes: tuple[str, ...]
    shape: tuple[int, int, int] | None
    in_files: bool  # pictures in files of their own, which new_height and new_width scale
    split: float | None  # what a data layer must say to hold a part out for tests
    kind: Kind
    spread: tuple[float, float] | None  # mean and standard deviation of values that are no bytes
    line: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Body:
    """A model without its data layers: the blobs of pictures and labels, and how it wants its pictures."""

    layers: list[LayerSpec]
    data: list[LayerSpec]  # its data layers
    picture: str
    label: str
    image: tuple[int, int, int] | None
    transform: Transform | None


def adapt(
    model: str | Path,
    data: str | Path | tuple[Any, Any],
    *,
    validation: tuple[Any, Any] | None = None,
    weights: str | None = None,
    epochs: int | None = None,
    max_iter: int | None = None,
    batch_size: int | None = None,
    most: int = BATCH,
    size: tuple[int, int] | None = None,
    device: backend.Device | None = None,
    skip_damaged: bool = False,
) -> Adapted:
    """The model file that trains a model on one's own data.

    `model` is what `read` takes; `data` is a source of the layer Data: a folder with a folder of pictures for
    each class, a list or table of pictures, arrays, an LMDB; or NumPy arrays (x, y) of pictures, or of
    vectors (n, c), and their labels, with `validation`, (x, y), for the tests. `weights` is the file that
    training begins with: layers whose number of outputs changes then have a new name, and learn at ten times
    the rate; a snapshot as `model` is its own weights. `epochs` counts passes over the training pictures
    (20), unless `max_iter` counts iterations; `batch_size` is by default `most`, 32, or fewer if there are
    few pictures or if the memory of `device` is small; `size` is (h, w) of pictures, by default the model's.
    With `skip_damaged` pictures that cannot be read are warned of, and the next ones taken in their place.
    Raises DataError for them otherwise, and for a source without classes, SpecError for a model that is no
    classifier.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = str(Path(folder, "set.npz"))
    ...     np.savez(file, images=np.zeros((9, 28, 28), np.uint8), labels=np.arange(9) % 3)
    ...     adapted = adapt("lenet", file, epochs=2)
    >>> print(adapted.lines[2])
    outputs: layer 'ip2' has 3, not 10
    """
    arrays = None
    if not isinstance(data, (str, Path)):
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            kind = type(data).__name__
            raise DataError(f"data: expected a path, or a pair of arrays (x, y), got a {kind}")
        arrays = ArraySet(*data, validation)
        HELD[arrays.name] = arrays
        data = arrays.name
    elif validation is not None:
        raise DataError(f"validation: is for arrays; {data} is a path")
    data = str(data)
    base, data_set = read(model), survey(data, skip_damaged)
    for name, number in (("epochs", epochs), ("batch_size", batch_size)):
        if number is not None and number < 1:
            raise SpecError(f"{name}: expected at least 1, got {number}")
    own = weights is None and holds_weights(model)
    weights = str(model) if own else weights
    body = _body(base)
    if weights is not None:
        if os.path.isdir(weights):
            weights = str(run_folder.weights(weights))
        if not all(map(os.path.isfile, weights.split(","))):
            raise DataError(f"{weights}: no such file of weights")
        body = replace(body, transform=_transform_of(weights) or body.transform)
    files = filter(None, (weights or "").split(","))
    if prepares(body.layers) and not any(map(_has_preparation, files)):
        raise SpecError(
            f"the model's layer {PREPARATION!r} makes pictures ready by weights that do not learn;"
            " give those that were imported with it: --weights FILE"
        )
    known = own and _answers_alike(base, body, data_set)
    heads, outputs = _with_outputs(body, data_set, weights is not None and not known)
    head, seen = _data_layers(data_set, body, size, weights is not None)
    name = base.path.stem if base.path is not None else base.name or "model"
    name = re.sub(r"_(best|iter_\d+)$", "", name)  # of a snapshot
    name = Path(data_set.source).name if name == "model" else name

    usual = 0.01 if data_set.shape is not None and data_set.shape[1:] == (1, 1) else 0.001

    def built(batch: int) -> NetSpec:
        per_epoch = math.ceil(data_set.count / batch)
        rounds = per_epoch * (epochs or EPOCHS) if max_iter is None else max_iter
        solver = _solver(base.solver, per_epoch, rounds, weights, _score(heads), usual)
        spec = parse({"name": base.name or name, "layers": [BLANK], "solver": solver})
        skips = {"on_error": "skip"} if skip_damaged else {}
        layers = [replace(one, options={**one.options, **skips}) for one in head(batch)]
        return replace(spec, dtype=base.dtype, classes=data_set.classes, layers=(*layers, *heads))

    if batch_size is not None:
        batch, why = batch_size, "as asked for"
    else:
        batch, why = fitting(built, min(most, data_set.count), device)
    spec = built(batch)
    assert spec.solver is not None and spec.solver.max_iter is not None
    per_epoch = math.ceil(data_set.count / batch)
    lines = [data_set.line, seen, *outputs]
    if weights is not None:
        lines.append(f"weights: {weights}")
    elif lookup(str(model)) is not None:
        lines.append(
            f"weights: none; with few pictures begin with published ones: --weights {model}"
        )
    passes = spec.solver.max_iter / per_epoch
    rising = f"rising for {spec.solver.warmup_iter} iterations, then " * (
        spec.solver.warmup_iter > 0
    )
    lines.append(
        f"training: {passes:.4g} epoch{'s' * (passes != 1)} of {per_epoch}"
        f" iteration{'s' * (per_epoch != 1)}, batches of {batch} ({why});"
        f" {spec.solver.type}, rate {spec.solver.base_lr:g}, {rising}falling to 0 (cosine)"
    )
    lines += [f"WARNING: {warning}" for warning in data_set.warnings]
    return Adapted(name, data, text(spec, "."), tuple(lines), arrays)


def _has_preparation(file: str) -> bool:
    """True if a file of weights has those of a net's preparation."""
    with opened(file) as arrays:
        return f"{PREPARATION}__0" in arrays.shapes


def _transform_of(weights: str) -> Transform | None:
    """How the net that a snapshot was saved from took its pictures; None of a file of weights alone."""
    try:
        return _body(read(weights)).transform if is_ours(weights) else None
    except MinicaffeError:  # without the text of its net
        return None


def _answers_alike(base: NetSpec, body: Body, data_set: DataSet) -> bool:
    """Whether a snapshot's net has the classes of a data set: the same names or, without any, as many."""
    if base.classes or data_set.classes:
        return base.classes == data_set.classes
    layers = body.layers
    if data_set.kind == "boxes":
        losses = [layer for layer in layers if layer.type == "MultiBoxLoss"]
        return any(layer.options["num_classes"] == data_set.outputs for layer in losses)
    ends = [i for i, layer in enumerate(layers) if is_scored(layer)]
    places = [place for end in ends for place in _scoring(layers, end, 0)]
    return bool(places) and all(layers[i].options["num_output"] == data_set.outputs for i in places)


def survey(source: str, skip_damaged: bool = False) -> DataSet:
    """What stands at a source. Raises DataError for what has no classes, or one only, or damaged pictures."""
    if holds_pairs(Path(source)):
        return _of_masks(source, skip_damaged)
    if all(lmdb_file.is_one(Path(source, name)) for name in DATABASES.values()):
        return _of_boxes(source)
    reader = readers.open(source, "train")
    several = bool(reader.label_shape)
    labels = np.array([reader.label(i) for i in range(len(reader))], np.int64)
    if not len(labels):
        raise DataError(f"{reader.origin}: holds no pictures")
    if labels.min() < 0 and not several:
        raise DataError(f"{reader.origin}: expected labels from 0 on, found {labels.min()}")
    outputs = len(reader.classes) or int(labels.max()) + 1
    if outputs > max(MOST, 10 * len(labels)):
        raise DataError(
            f"{reader.origin}: expected numbers of classes from 0 on, found {outputs - 1}"
        )
    if outputs < 2 and not several:
        name, hint = "".join(map(", {!r}".format, reader.classes)), inner_hint(Path(reader.origin))
        one = f"{reader.origin}: has one class{name}"
        raise DataError(f"{one}; a classifier needs two or more{hint}")
    both = [reader, readers.open(source, "test")] if reader.own_split else [reader]
    warnings = _look_at(both, source, skip_damaged) if isinstance(reader, PictureSet) else ()
    parts = None if reader.own_split else sides(reader, SHARE)
    train, test = parts or (reader, both[-1])
    counts, tested = class_counts(train), class_counts(test)
    line = f"data: {source}: {len(train)} to train with"
    if parts is not None or reader.own_split:
        line += f", {len(test)} {'to test with' if parts is None else 'held out for tests'}"
    named = [(name, counts[label]) for label, name in enumerate(reader.classes)]
    listed = ", ".join(f"{name} {count}" for name, count in named[:12])
    line += f", {outputs} {'labels' if several else 'classes'}"
    line += f" ({listed}{', ...' * (outputs > 12)})" if listed else ""
    names = reader.classes or [str(label) for label in range(outputs)]
    if empty := [name for label, name in enumerate(names) if not counts[label]]:
        line += f"; THERE IS NO PICTURE OF {', '.join(empty[:12])} to train with"
    line += _duplicates(both, several, parts is not None)
    split = SHARE if parts is not None and reader.in_order else None
    kind: Kind = "labels" if several else "classes"
    about = reader.classes, reader.shape, isinstance(reader, PictureSet), split
    warnings += _weight_of_one(len(test), "label_error" if several else "the accuracy")
    if untested := sorted(counts.keys() - tested.keys())[:12]:
        names = [reader.classes[label] if reader.classes else str(label) for label in untested]
        warnings += (f"never tested: {', '.join(names)}",)
    return DataSet(source, len(train), outputs, *about, kind, _spread(reader), line, warnings)


def _weight_of_one(count: int, score: str) -> tuple[str, ...]:
    """Returns the warning of a test of few pictures, if it is one."""
    pictures = "1 picture: it is" if count == 1 else f"{count} pictures: one of them is"
    return (f"the test has {pictures} {100 / count:.2g} % of {score}",) if 0 < count < FEW else ()


def _duplicates(both: Sequence[Reader], several: bool, divided: bool) -> str:
    """What is to be said of pictures of the same bytes, of one reader or of those of training and of tests."""
    groups = same_bytes(both)
    copies = sum(len(places) - 1 for places in groups)
    said = f"; {copies} duplicates" if copies else ""
    if leaked := [p for p in groups if {which for which, _ in p} == {0, 1}]:
        count, such = sum(which for p in leaked for which, _ in p), _places(both, leaked[0])
        said += f", {count} OF THE TEST PICTURES ARE IN TRAINING, such as {such}"
    elif copies:
        said += ", kept on one side" if divided else ""
    unlike = [p for p in groups if len({both[which].label(i) for which, i in p}) > 1]
    if unlike and not several:
        said += (
            f"; {len(unlike)} PICTURES ARE IN SEVERAL CLASSES, such as {_places(both, unlike[0])}"
        )
    return said


def _places(both: Sequence[Reader], places: Sequence[tuple[int, int]]) -> str:
    first, *_, last = (both[which].place(i) for which, i in places)
    return " and ".join(map(printable, (first, last)))


def _look_at(both: Sequence[Reader], source: str, skip_damaged: bool) -> tuple[str, ...]:
    """Returns a warning of damaged pictures, which are looked for before training begins.

    Raises DataError for them unless `skip_damaged`, and where no picture of some class can be read.
    """
    damaged, sound = [], set[int]()
    for reader in both:
        for i in range(len(reader)):
            try:
                picture_files.check(reader.place(i))
                sound.add(reader.label(i))
            except DataError as error:
                if isinstance(error.__context__, ImportError):  # of Pillow: no picture can be read
                    raise
                damaged.append(str(error))
    if not damaged:
        return ()
    check = f"minicaffe data {shlex.quote(source)} --check{' [--split test]' * (len(both) > 1)}"
    problem = f"{source}: {len(damaged)} of {sum(map(len, both))} pictures cannot be read; {check} lists them"
    if not skip_damaged:
        raise DataError(f"{problem}, --skip-damaged trains with the rest; the first: {damaged[0]}")
    if len(sound) < len(class_counts(both[0])) and not both[0].label_shape:
        raise DataError(f"{problem}; among them are all of a class")
    return (f"{problem}; the next ones take their places",)


def _spread(reader: Reader) -> tuple[float, float] | None:
    """Mean and standard deviation of some pictures in floating point; None of pictures in bytes."""
    if isinstance(reader, PictureSet) or reader[0][0].dtype == np.uint8:
        return None
    places = np.linspace(0, len(reader) - 1, min(LOOKED_AT, len(reader))).astype(int)
    values = np.stack([reader[int(i)][0] for i in places]).astype(np.float64)
    return float(values.mean()), float(values.std())


def _of_masks(source: str, skip_damaged: bool) -> DataSet:
    """What stands in a folder of pictures and masks: the classes are the numbers in its masks."""
    both = [PairSet(Path(source), source, nearest=True, split=split) for split in ("train", "test")]
    reader, largest = both[0], 0
    warnings = _look_at(both[: 1 + reader.own_split], source, skip_damaged)
    for mask in dict.fromkeys(mask for one in both for _, mask in one.pairs):
        with suppress(DataError) if skip_damaged else nullcontext():
            pixels = picture_files.read(mask, "labels")
            largest = max(largest, int(pixels[pixels != IGNORED].max(initial=0)))
    if not largest:
        raise DataError(
            f"{reader.origin}: its masks hold no class but 0; {IGNORED} counts for none, so a mask of 0 and"
            f" {IGNORED} is to be one of 0 and 1"
        )
    parts = None if reader.own_split else sides(reader, SHARE)
    train, test = parts or both
    line = f"data: {source}: {len(train)} pictures with masks to train with"
    line += f", {len(test)} {'to test with' if parts is None else 'held out for tests'}"
    line += f", {largest + 1} classes of pixels; {IGNORED} counts for none"
    warnings += _weight_of_one(len(test), "the accuracy")
    about: Any = None, True, None, "masks", None, line, warnings
    return DataSet(source, len(train), largest + 1, (), *about)


def _of_boxes(source: str) -> DataSet:
    """What stands in a folder of two databases of pictures with boxes, and a label map."""
    home = Path(source)
    names = label_map(home / LABEL_MAP)
    reader = AnnotatedSet(home / DATABASES["TRAIN"], source)
    outputs = max(names) + 1
    known = ", ".join(name for number, name in sorted(names.items()) if number)
    line = f"data: {source}: {len(reader)} pictures with boxes to train with"
    line += f", {len(names) - 1} classes ({known})"
    return DataSet(source, len(reader), outputs, (), None, True, None, "boxes", None, line)


def fitting(built: Any, most: int, device: backend.Device | None) -> tuple[int, str]:
    """The largest power of two, up to `most`, as a batch whose net fits into a part of the memory; and why.

    `built` is a function of the batch that returns the model. Blobs and their gradients count, parameters
    four times: with their gradient and what a solver keeps of them.
    """
    device = device or backend.device("cpu")
    most = 1 << max(0, most.bit_length() - 1)
    net = Net(built(most), "TRAIN", device="cpu", shapes_only=True)
    fixed = 4 * net.context.dtype.itemsize * sum(param.size for param in net.graph.learnable)
    each = Sharing(net.graph, (), "diff").before / most
    room = device.memory() // PARTS[device.is_cuda] or math.inf  # where the system does not tell
    batch = most
    while batch > 1 and fixed + each * batch > room:
        batch //= 2
    needs = f"its net takes about {mib(int(fixed + each * batch))}"
    return batch, needs if batch == most else f"{needs}, of {mib(device.memory())}"


def _body(spec: NetSpec) -> Body:
    """A model's layers in both phases, with a rule only for those of one phase, and without data layers."""
    state = spec.state if spec.solver is None else spec.solver.train_state.over(spec.state)
    stages = [name for layer in spec.layers for rule in layer.include for name in rule.stage]
    alone = [(), *((name,) for name in dict.fromkeys(stages))]
    nets = (_merged(spec, State(stage=stage).over(state)) for stage in alone)
    layers = next((net for net in nets if any(map(reads_data, net))), None)
    layers = _merged(spec, state) if layers is None else layers
    data = [layer for layer in layers if reads_data(layer)]
    inputs = [layer for layer in layers if layer.type == "Input"]
    sources = data or inputs
    if not sources:
        raise SpecError(
            f"{spec.path or spec.name}: reads no pictures: it has no data layer or Input"
        )
    tops = [top for layer in sources for top in layer.tops]
    others = [layer for layer in spec.layers if reads_data(layer) or layer.type == "Input"]
    image = next((shape for layer in (*sources, *others) if (shape := _image(layer))), None)
    transform = next((layer.options.get("transform") for layer in data), None)
    label = next((top for top in tops[1:] if top != tops[0]), "label")
    rest = [layer for layer in layers if layer not in data and layer not in inputs]
    return Body(rest, data, tops[0], label, image, transform)


def _merged(spec: NetSpec, state: State) -> list[LayerSpec]:
    """The layers of TRAIN and TEST in a state, each with its bottoms."""
    states = {phase: replace(state, phase=phase) for phase in PHASES}
    above: dict[Phase, str | None] = dict.fromkeys(PHASES)
    layers = []
    for layer in spec.layers:
        phases = [phase for phase in PHASES if layer.included(states[phase])]
        if not phases:
            continue
        bottom = layer.bottom
        reads = layer.type not in REGISTRY or bottom_counts(REGISTRY[layer.type])[1] != 0
        first = above[phases[0]]
        if bottom is None and reads and first is not None:
            bottom = (first,)
        rule = () if len(phases) == len(PHASES) else (Rule(phase=phases[0]),)
        for phase in phases:
            above[phase] = layer.tops[0] if layer.tops else above[phase]
        layers.append(replace(layer, bottom=bottom, include=rule, exclude=()))
    return layers


def _image(layer: LayerSpec) -> tuple[int, int, int] | None:
    """(c, h, w) of the pictures that a data layer or an Input writes into its first top, if it says them."""
    options = layer.options
    if layer.type == "Input":
        sizes: tuple[int, ...] = options["shape"][0].dim if options.get("shape") else ()
        return (sizes[1], sizes[2], sizes[3]) if len(sizes) == 4 else None
    said, known = picture_said(layer), SHAPES.get(options.get("source", ""))
    return (min(said[0], known[0]), *said[1:]) if said and known else said or known


def _with_outputs(
    body: Body, data_set: DataSet, begin_anew: bool
) -> tuple[list[LayerSpec], list[str]]:
    """The layers with as many outputs as there are classes, and lines of it."""
    if data_set.kind == "boxes":
        return _with_box_classes(body.layers, data_set, begin_anew)
    layers, lines = _ends(body.layers, body.label), []
    losses = [i for i, layer in enumerate(layers) if is_scored(layer)]
    places = sorted({place for loss in losses for place in _scoring(layers, loss, 0)})
    if data_set.kind != "masks" and any(layers[i].type == "Deconvolution" for i in places):
        raise SpecError(
            f"the model labels each pixel: expected in {data_set.source} a folder images and a folder masks"
        )
    for i in places:
        layers[i], line = _outputs(layers[i], data_set.outputs, begin_anew)
        lines.append(line)
    several = data_set.kind == "labels"
    most = 0 if several else data_set.outputs
    layers = [one for one in layers if one.type != "Accuracy" or one.options.get("top_k", 1) < most]
    if not several and all(layer.type != "Accuracy" for layer in layers):
        scores = ([layer for layer in layers if is_scored(layer)][-1].bottom or ())[:1]
        bottom, test = (*scores, body.label), (Rule(phase="TEST"),)
        layers.append(LayerSpec(name="accuracy", type="Accuracy", bottom=bottom, include=test))
    if data_set.kind == "masks":
        for i, layer in enumerate(layers):
            if is_scored(layer) or layer.type == "Accuracy":
                layers[i] = replace(layer, options={"ignore_label": IGNORED, **layer.options})
    if several:
        layers = _of_labels(layers, body.label)
        lines.append(
            f"several labels a picture: a score each, by a sigmoid; {ERROR} is the share that is wrong"
        )
    return layers, lines


def _outputs(layer: LayerSpec, outputs: int, begin_anew: bool) -> tuple[LayerSpec, str]:
    """A layer with so many outputs, under a new name if it is to begin anew; and a line of it."""
    before, options = layer.options["num_output"], dict(layer.options)
    options["num_output"] = outputs
    if options.get("group") == before:
        options["group"] = outputs
    changed = replace(layer, options=options)
    line = f"outputs: layer {layer.name!r} has {outputs}"
    line += f", not {before}" if before != outputs else ""
    if begin_anew:
        name = f"{layer.name}_new"
        usual = (ParamSpec(lr_mult=1, decay_mult=1), ParamSpec(lr_mult=2, decay_mult=0))
        own = layer.param or usual[: 1 + layer.options.get("bias_term", True)]
        rates = (1 if one.lr_mult is None else one.lr_mult for one in own)
        faster = (replace(one, lr_mult=NEW * rate) for one, rate in zip(own, rates, strict=True))
        changed = replace(changed, name=name, top=layer.tops, param=tuple(faster))
        line += f"; it begins anew, as {name!r}"
        if any(one.lr_mult for one in changed.param):
            line += f", and learns at {NEW:g} times the rate"
    return changed, line


def _with_box_classes(
    layers: list[LayerSpec], data_set: DataSet, begin_anew: bool
) -> tuple[list[LayerSpec], list[str]]:
    """A detector's layers for as many classes as there are, the background among them."""
    layers, lines = list(layers), []
    losses = [i for i, layer in enumerate(layers) if layer.type == "MultiBoxLoss"]
    if not losses:
        raise SpecError(
            "the model is no detector: expected a MultiBoxLoss, as SSD's training nets have it"
        )
    before = layers[losses[0]].options["num_classes"]
    for i in sorted({place for loss in losses for place in _scoring(layers, loss, 1)}):
        outputs = layers[i].options["num_output"] // before * data_set.outputs
        layers[i], line = _outputs(layers[i], outputs, begin_anew)
        lines.append(line)
    for i, layer in enumerate(layers):
        options = dict(layer.options)
        if options.get("num_classes") == before:
            options["num_classes"] = data_set.outputs
        shape = options.get("shape")
        if layer.type == "Reshape" and shape is not None and shape.dim[-1:] == (before,):
            options["shape"] = replace(shape, dim=(*shape.dim[:-1], data_set.outputs))
        layers[i] = replace(layer, options=options)
    return layers, lines


def _of_labels(layers: list[LayerSpec], label: str) -> list[LayerSpec]:
    """The layers with a sigmoid for each label in the place of one softmax, and the share of wrong labels."""
    scores = [layer for layer in layers if is_scored(layer)][-1]
    layers = [
        replace(layer, type="SigmoidCrossEntropyLoss", options={}) if is_scored(layer) else layer
        for layer in layers
    ]
    test, blob = (Rule(phase="TEST"),), (scores.bottom or ("",))[0]
    rows: tuple[tuple[str, str, tuple[str, ...], dict[str, Any]], ...] = (
        ("Flatten", "scores", (blob,), {}),
        ("Threshold", "labels_found", ("scores",), {}),
        ("Eltwise", "labels_wrong", ("labels_found", label), {"coeff": (1.0, -1.0)}),
        ("AbsVal", "labels_apart", ("labels_wrong",), {}),
        ("Reduction", ERROR, ("labels_apart",), {"operation": "MEAN"}),
    )
    return layers + [
        LayerSpec(name=name, type=kind, bottom=bottom, include=test, options=options)
        for kind, name, bottom, options in rows
    ]


def _ends(layers: list[LayerSpec], label: str) -> list[LayerSpec]:
    """The layers with a loss at the end, in both phases. Raises SpecError if there are no classes."""
    scored = any(map(is_scored, layers))
    if not scored and ERROR in [layer.name for layer in layers]:  # without what `_of_labels` added
        names = ("scores", "labels_found", "labels_wrong", "labels_apart", ERROR)
        layers = [
            replace(one, type="SoftmaxWithLoss") if one.type == "SigmoidCrossEntropyLoss" else one
            for one in layers
            if one.name not in names
        ]
    if not any(map(is_scored, layers)):
        read = {bottom for layer in layers for bottom in layer.bottom or ()}
        last = [layer for layer in layers if layer.tops and not read.intersection(layer.tops)]
        softmaxes = [layer for layer in last if layer.type == "Softmax"]
        if not softmaxes and (len(last) != 1 or last[0].type not in LOGITS):
            raise SpecError(
                "the model is no classifier: expected a SoftmaxWithLoss, or a Softmax or scores at its end"
            )
        (scores,) = (softmaxes[-1].bottom or ())[:1] if softmaxes else last[0].tops
        loss = LayerSpec(name="loss", type="SoftmaxWithLoss", bottom=(scores, label), top=("loss",))
        layers = [layer for layer in layers if layer not in softmaxes[-1:]] + [loss]
    losses = [layer for layer in layers if is_scored(layer)]
    read = {bottom for layer in layers for bottom in layer.bottom or ()}
    for_tests = (Rule(phase="TEST"),)
    return [
        replace(layer, include=()) if layer in losses else layer
        for layer in layers
        if (layer.type, layer.include) != ("Softmax", for_tests)
        or read.intersection(set(layer.tops) - set(layer.bottom or ()))
    ]


def _scoring(layers: Sequence[LayerSpec], loss: int, which: int) -> set[int]:
    """The places of the layers that compute the scores of classes, which a loss reads as one of its bottoms.

    Of a detector they have outputs for each prior box of a place, and so need not be equally many.
    """
    places, left, outputs = set[int](), [(loss, (layers[loss].bottom or ())[which])], None
    detects = layers[loss].type == "MultiBoxLoss"
    while left:
        behind, blob = left.pop()
        i = next((i for i in reversed(range(behind)) if blob in layers[i].tops), None)
        if i is None:
            continue
        layer = layers[i]
        bottoms = layer.bottom or ()
        if "num_output" in layer.options:
            outputs = outputs or layer.options["num_output"]
            if layer.options["num_output"] != outputs and not detects:
                continue
            places.add(i)
            bottoms = bottoms if layer.type == "Deconvolution" else ()
        left += [(i, bottom) for bottom in bottoms[: 1 if layer.type == "Crop" else None]]
    return places


def _data_layers(
    data_set: DataSet, body: Body, size: tuple[int, int] | None, tuned: bool
) -> tuple[Any, str]:
    """The data layers of both phases as a function of the batch, and what they do to pictures, as a line."""
    c, h, w = body.image or (3, 0, 0)
    h, w = size or (h, w)
    vectors = data_set.shape is not None and data_set.shape[1:] == (1, 1)
    h, w = (1, 1) if vectors else (h, w)
    if vectors and (convs := [one for one in body.layers if one.type == "Convolution"]):
        raise DataError(
            f"{data_set.source}: holds vectors; expected pictures, for {convs[0]}, or a model without"
            " convolutions"
        )
    if not h:
        raise SpecError("the model does not say how large its pictures are: give --size WxH")
    mean, scale = _mean_and_scale(body, c, tuned)
    if data_set.spread is not None and not tuned:
        middle, spread = data_set.spread
        mean, scale = (float(f"{middle:.4g}"),), float(f"{1 / (spread or 1):.4g}")
    if data_set.shape is not None and data_set.shape[0] != c:
        if tuned and not vectors:
            raise DataError(
                f"{data_set.source}: has {data_set.shape[0]} channels; the weights are for pictures of {c}"
            )
        c, mean = data_set.shape[0], (float(round(np.mean(mean), 3)),)
    if data_set.kind == "boxes":
        if size is not None:
            raise SpecError("--size: a detector's boxes are made for its own size of pictures")
        return _box_layers(data_set, body, (c, h, w))
    prepared = f"; less a mean of {', '.join(f'{one:g}' for one in mean)}, times {scale:g}"
    if data_set.kind == "masks":
        seen = f"pictures: 3 x {h} x {w}, half of them mirrored with their masks{prepared}"
        return _mask_layers(data_set, body, (h, w), mean, scale), seen
    layer: dict[str, Any] = {"name": "data", "type": "Data", "source": data_set.source}
    layer["top"] = [body.picture, body.label]
    transform: dict[str, Any] = {"scale": scale} if scale != 1 else {}
    transform |= {"mean_value": list(mean) if len(mean) > 1 else mean[0]} if any(mean) else {}
    cut = h == w and h >= SMALL
    whole = (round(h * MARGIN), round(w * MARGIN)) if cut else (h, w)
    seen = f"inputs: {c} numbers" if vectors else f"pictures: {c} x {h} x {w}"
    if data_set.in_files:
        layer |= {"new_height": whole[0], "new_width": whole[1]}
        transform |= {"force_gray": True} if c == 1 else {}
    elif data_set.shape is None or data_set.shape[1:] != (h, w):
        if h != w:
            raise DataError(f"{data_set.source}: only pictures in files are scaled to {h} x {w}")
        transform["resize"] = whole[0]
        cut = True
    if cut:
        transform["crop_size"] = h
        seen += f", cut out of {whole[0]} x {whole[1]}"
    mirror = {"mirror": True} if c > 1 and not vectors else {}
    seen += ", half of them mirrored" * bool(mirror) + prepared
    layer |= {"shape": list(data_set.shape or ())} if data_set.source in HELD else {}
    layer |= {"split": data_set.split} if data_set.split is not None else {}
    train = {"include": "TRAIN", "transform": transform | mirror}
    return partial(_in_both, layer, train, {"include": "TEST", "transform": transform}), seen


def _in_both(
    layer: dict[str, Any], train: dict[str, Any], test: dict[str, Any], batch: int
) -> Sequence[LayerSpec]:
    """The data layers of TRAIN and TEST, each with keys of its own."""
    whole = layer | {"batch_size": batch}
    return parse({"layers": [whole | train, whole | test]}).layers


def _mask_layers(
    data_set: DataSet, body: Body, size: tuple[int, int], mean: tuple[float, ...], scale: float
) -> Any:
    """The layers that read pictures and masks, as a function of the batch."""
    h, w = size
    layer: dict[str, Any] = {"name": "data", "type": "DenseImageData", "source": data_set.source}
    layer |= {"top": [body.picture, body.label], "new_height": h, "new_width": w}
    layer["transform"] = {"mean_value": list(mean), "scale": scale}
    train = {"shuffle": True, "mirror": True, "include": "TRAIN"}
    return partial(_in_both, layer, train, {"include": "TEST"})


def _box_layers(data_set: DataSet, body: Body, image: tuple[int, int, int]) -> tuple[Any, str]:
    """The model's own layers of pictures and boxes, which know how it augments, with other sources."""
    c, h, w = image
    home = Path(data_set.source)
    plain: dict[str, Any] = {"name": "data", "type": "AnnotatedData", "source": data_set.source}
    plain |= {"top": [body.picture, body.label], "batch_size": 1, "shuffle": True}
    plain["transform"] = {"resize_param": {"height": h, "width": w}, "mean_value": [*IMAGENET]}

    def layers(batch: int) -> Iterator[LayerSpec]:
        for phase in PHASES:
            own = [one for one in body.data if one.included(State(phase=phase))]
            layer = (own or parse({"layers": [plain]}).layers)[0]
            options = {**layer.options, "batch_size": batch, "source": str(home / DATABASES[phase])}
            options["label_map_file"] = str(home / LABEL_MAP)
            yield replace(layer, options=options, include=(Rule(phase=phase),), exclude=())

    augments = any(one.included(State(phase="TRAIN")) for one in body.data)
    how = "as the model has it" if augments else "scaled, without augmentation"
    return layers, f"pictures: {c} x {h} x {w}, {how}"


def _mean_and_scale(body: Body, channels: int, tuned: bool) -> tuple[tuple[float, ...], float]:
    """What is subtracted from pictures, and their factor: as the model has it, or as is usual.

    Without weights, pictures of 256 steps begin at about -2 to 2: from 0.001 on, Adam kills ReLUs otherwise.
    """
    own = body.transform
    if prepares(body.layers):
        return (0.0,), 1.0
    if own is not None and own.mean_file is None and (own.mean_value or own.scale != 1):
        scale = own.scale if tuned or own.scale != 1 else SCALE
        return own.mean_value or (0.0,), scale
    return (IMAGENET, 1.0) if tuned and channels == 3 else ((128.0,), SCALE)


def _score(layers: Sequence[LayerSpec]) -> str | dict[str, str]:
    """The output by which tests are better or worse: the accuracy of the last classifier."""
    if layers[-1].name == ERROR:
        return {"output": ERROR, "mode": "min"}
    if judged := [layer for layer in layers if layer.type == "DetectionEvaluate"]:
        return judged[-1].tops[0]
    scored = [layer for layer in layers if layer.type == "Accuracy"]
    first = [layer for layer in scored if layer.options.get("top_k", 1) == 1] or scored
    return first[-1].tops[0]


def _solver(
    own: SolverSpec | None,
    per_epoch: int,
    rounds: int,
    weights: str | None,
    score: Any,
    usual: float,
) -> dict[str, Any]:
    """How it is trained: a test and a snapshot an epoch, and a rate that falls to 0."""
    rate = own.base_lr if own is not None and own.type == "Adam" else usual
    rule: dict[str, Any] = {"type": "Adam", "base_lr": rate, "momentum": 0.9}
    if weights is not None:
        rule = {"type": "SGD", "base_lr": 0.001, "momentum": 0.9, "weight_decay": 0.0005}
        rule["weights"] = weights
    return rule | {
        "lr_policy": "cosine",
        "warmup_iter": min(per_epoch, rounds // 10),
        "max_iter": rounds,
        "test_interval": per_epoch,
        "test_initialization": False,
        "best": score,
        "display": per_epoch,
        "average_loss": min(per_epoch, 20),
        "snapshot": per_epoch,
        "snapshot_keep": 1,
    }
