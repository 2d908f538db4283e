"""Options that several commands share, with the files of weights and the pictures that they name."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe._moved import Finder
from minicaffe.backends import device as backend
from minicaffe.backends.cpu import threads
from minicaffe.backends.device import PRECISIONS
from minicaffe.cli.parser import Arg, CommandOptions, number
from minicaffe.core.communicator import ALONE, Communicator, device_of
from minicaffe.core.config.declare import LayerSpec, NetSpec, Phase, State
from minicaffe.core.config.tree import load
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.layers.blob import FLOATS
from minicaffe.core.layers.context import Numerics
from minicaffe.core.net import Net, read
from minicaffe.core.net import model as net_model
from minicaffe.core.net.model import located
from minicaffe.core.net.weights import LoadReport, listed
from minicaffe.core.ops import conv
from minicaffe.errors import (
    CheckpointError,
    DataError,
    MinicaffeError,
    SpecError,
    did_you_mean,
    note,
    raised_at,
)
from minicaffe.interop.caffe.label_map import is_label_map, names_in
from minicaffe.interop.caffe.model import is_prototxt
from minicaffe.interop.caffe.weights import is_caffes
from minicaffe.interop.pycaffe import python
from minicaffe.storage.file_kinds import foreign
from minicaffe.storage.wire import read_array
from minicaffe.tools.data.layers.pictures import Pictures, Transform
from minicaffe.tools.data.weights import NAMES, weights_named
from minicaffe.tools.data.weights import WEIGHTS as WEIGHTS_BY_NAME
from minicaffe.tools.deploy import label_names, shipped_weights
from minicaffe.tools.training import folder as run_folder

MODEL = (
    "the model file, YAML or Caffe's .prototxt; a snapshot, or a run's folder; or a name that"
    " `minicaffe models` lists, such as lenet"
)


def is_source(layer: LayerSpec) -> bool:
    """Whether a layer reads no blob."""
    if layer.bottom is None and layer.type in REGISTRY:
        return bottom_counts(REGISTRY[layer.type])[1] == 0
    return not layer.bottom


class Imports(CommandOptions):
    """--import."""

    imports: Annotated[
        Sequence[str],
        Arg("--import"),
        "PATH",
        "a Python file with your own layers, engines or update rules; or a folder, whose modules Python"
        " layers may import",
    ] = ()

    def import_files(self) -> None:
        """Import Python files by path; what they register is known afterwards."""
        Finder.finds_caffe |= bool(self.imports)
        for file in self.imports:
            path = Path(file)
            if path.is_dir():
                python.FOLDERS.append(str(path))
                continue
            if not path.is_file():
                raise SpecError(f"--import {file}: no such file")
            # Python's own, which a random.py must not stand for
            name = f"_{path.stem}" if path.stem in sys.stdlib_module_names else path.stem
            spec = importlib.util.spec_from_file_location(name, path)
            if spec is None or spec.loader is None:
                raise SpecError(f"--import {file}: is not a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except MinicaffeError:
                raise
            except (Exception, SystemExit) as error:
                raise SpecError(raised_at(error)) from None


class Lenient(CommandOptions):
    """--lenient."""

    lenient: Annotated[
        bool, "leave out keys of a prototxt that are not known, with a warning for each"
    ] = False


class OfNet(Imports, Lenient):
    """CommandOptions that say which net a model file means."""

    settings: Annotated[
        Sequence[str],
        Arg("--set"),
        "PATH=VALUE",
        "replace a key of the model, such as solver.base_lr=0.02 or layers.conv1.num_output=50",
    ] = ()
    threads: Annotated[
        int | None,
        number(1, threads.MOST),
        f"threads of the CPU; default: ${threads.VARIABLE}, else all processors",
    ] = None
    level: Annotated[
        int | None, "the net's level, with which min_level and max_level of layers are compared"
    ] = None
    stage: Annotated[str, "NAMES", "stages of the net, with commas between them"] = ""

    def read_model(self) -> NetSpec:
        """The model asked for, with its settings, after the user's own layers are imported."""
        self.begin()
        return self.state_of(read(self.model, *self.settings, lenient=self.lenient))

    def begin(self) -> None:
        """Use as many threads as were asked for, and import the user's own layers."""
        if self.threads is not None:
            os.environ[threads.VARIABLE] = str(self.threads)
            threads.count.cache_clear()
        threads.count()
        self.import_files()

    def state_of(self, spec: NetSpec) -> NetSpec:
        """A model in the level and for the stages asked for."""
        asked = State(level=self.level, stage=tuple(filter(None, self.stage.split(","))))
        return dataclasses.replace(spec, state=asked.over(spec.state))


class Model(OfNet):
    """MODEL, and what changes it."""

    model: Annotated[str, Arg("model"), MODEL]


class Phased(CommandOptions):
    """--phase."""

    phase: Annotated[
        Literal["TRAIN", "TEST"] | None,
        "default: the model's state, else TRAIN; TEST if no layer of TRAIN has data",
    ] = None

    def phase_of(self, spec: NetSpec) -> Phase | None:
        """The phase that a command builds a net for: --phase; TEST, and a line, where TRAIN has no data."""
        if self.phase is not None or spec.state.phase is not None:
            phase: Phase | None = self.phase
            return phase

        def has_data(phase: Phase) -> bool:
            state = dataclasses.replace(spec.state, phase=phase)
            return any(layer.included(state) and is_source(layer) for layer in spec.layers)

        if has_data("TRAIN") or not has_data("TEST"):
            return None
        note("phase: TEST (no layer that has data is part of TRAIN)")
        return "TEST"


class OnDevice(CommandOptions):
    """--device and --quiet."""

    device: Annotated[
        str | None, "NAME", "cpu, cuda or cuda:N; default: CUDA if it works, else the CPU"
    ] = None
    quiet: Annotated[bool, "print only results, warnings and errors"] = False

    def pick_device(self, spec: NetSpec, communicator: Communicator = ALONE) -> backend.Device:
        """The device asked for, by the command or the solver, or found; told with the reason."""
        asked = spec.solver.device if spec.solver is not None else None
        precision = getattr(self, "precision", None) or spec.precision
        device = device_of(self.device or asked, communicator).of_precision(precision)
        self.tell(f"device: {device}")
        return device

    def tell(self, *lines: str) -> None:
        """Put lines on stderr, unless --quiet."""
        if not self.quiet:
            note(*lines)


class Typed(CommandOptions):
    """--dtype."""

    dtype: Annotated[
        str | None,
        Arg(choices=FLOATS),
        "the type of numbers, instead of the model's; those of 16 bits need CUDA",
    ] = None


class Computed(OnDevice, Typed):
    """How a net is computed."""

    precision: Annotated[
        str | None,
        Arg(choices=PRECISIONS),
        "of float32, instead of the model's: highest rounds least, tf32 is CUDA's, of factors of 10 bits",
    ] = None
    conv_engine: Annotated[
        str,
        "NAME",
        "how convolutions are computed; default: auto, the fastest measured (see explain)",
    ] = "auto"
    workspace: Annotated[
        int,
        number(1),
        "MIB",
        f"the largest workspace that a convolution may use; default: {conv.CAP >> 20}",
    ] = conv.CAP >> 20
    deterministic: Annotated[bool, "select engines by a fixed rule, not by measured times"] = False

    def numerics(self) -> Numerics:
        return Numerics(
            dtype=self.dtype,
            precision=self.precision,
            engine=self.conv_engine,
            workspace_cap=self.workspace << 20,
            deterministic=self.deterministic,
        )


class Force(CommandOptions):
    """--force."""

    force: Annotated[bool, "write over files that are there"] = False

    def check_free(self, *paths: str | Path) -> None:
        """Raise MinicaffeError for a file that is there, but with --force."""
        for path in paths:
            if os.path.exists(path) and not self.force:
                raise MinicaffeError(f"{path}: is there already; --force writes over it")


WEIGHTS = (
    "a snapshot or weight file: .npz, .safetensors, .caffemodel, .caffemodel.h5, several by commas; a run's"
    " folder: its best snapshot, else the newest; or a name that `minicaffe fetch` lists"
)


ENDINGS = (".npz", ".safetensors", ".caffemodel", ".h5")


class Weighted(CommandOptions):
    """--weights, which `weights_of` reads."""

    weights: Annotated[str | None, f"{WEIGHTS}; default: MODEL's own"] = None


def weights_of(args: CommandOptions) -> str:
    """The files of weights to load: those of --weights or, if MODEL is a snapshot or a run, its own."""
    files: str = named(args) or (args.model if net_model.holds_weights(args.model) else "")
    if files := files or str(shipped_weights(args.model) or ""):
        return files
    problem = foreign(args.model, "models in .yaml and .prototxt")
    if problem and not is_prototxt(args.model):
        raise MinicaffeError(problem)
    if not os.path.exists(located(args.model)):
        raise MinicaffeError(f"{args.model}: no such file or folder")
    raise MinicaffeError(f"{args.model}: holds no weights; give them by --weights FILE")


def named(args: CommandOptions) -> str:
    """What --weights says, with the file in the place of a name of published weights; "" without --weights.

    They are fetched if they are not there. A line tells the file and its licence. Raises DataError for a word
    that is neither a file nor such a name.
    """
    files = (args.weights or "").split(",")
    for i, word in enumerate(files):
        if not word or os.path.exists(word) or os.path.exists(args.weights):
            continue
        if shipped := shipped_weights(word):
            files[i] = str(shipped)
        elif (published := weights_named(word)) is not None:
            files[i] = str(published)
            if not getattr(args, "quiet", False):
                note(f"weights: {published} ({WEIGHTS_BY_NAME[published.stem].licence})")
        elif not set(word) & {os.sep, os.altsep} and not word.endswith(ENDINGS):
            hint = f"{did_you_mean(word, NAMES)} (minicaffe fetch --list lists them)"
            raise DataError(f"{word}: no such file, and no weights of this name{hint}")
    return ",".join(files)


def load_weights(net: Net, names: str, strict: bool | None = None) -> list[tuple[str, LoadReport]]:
    """Load what --weights names, of a run's folder its best, and tell what became of each file.

    Files separated by commas are loaded one after another, each as far as names fit, as Caffe does. Raises
    CheckpointError if a shape does not; for a single file as Net.load.
    """
    if os.path.isdir(names):
        names = str(run_folder.weights(names))
    files = [names] if os.path.exists(names) else [file for file in names.split(",") if file]
    for file in files:
        run_folder.warn_of_old_reading(file)
    if len(files) <= 1:
        return [(names, net.load(names, strict=strict))]
    reports = [(file, net.load(file, strict=False)) for file in files]
    for file, report in reports:
        if report.mismatched:
            wrong = listed(report.wrong(("mismatched",)), {})
            raise CheckpointError(f"{file}: does not fit net {net.name!r}: {wrong}")
    loaded = {name for _, report in reports for name in report.loaded}
    missing = [name for name in net.named_params if name not in loaded]
    if missing and strict is not False and not any(is_caffes(file) for file in files):
        raise CheckpointError(f"{names}: none of them has {', '.join(missing)}")
    return reports


def renaming(net: Net, mismatched: str) -> str:
    """How the first layer whose shapes are not the file's would be learnt anew, as in fine-tuning."""
    name = mismatched.partition(" (file ")[0].rpartition("__")[0]
    (spec,) = (step.spec for step in net.steps if step.spec.name == name)
    words = ["--set", f"layers.{name}.top={name}"] if spec.top is None else []
    words += ["--set", f"layers.{name}.name={name}_new"]
    return f"to train layer {name!r} anew, give it another name: {shlex.join(words)}"


class Prepared(CommandOptions):
    """--mean, --scale and --channels."""

    mean: Annotated[
        str | None,
        "MEAN",
        "deploy nets: what is subtracted: a number, one a channel (104,117,123), or a mean image,"
        " .npy or .binaryproto, of which the channels' means are taken if it is of another size",
    ] = None
    scale: Annotated[
        float | None, "deploy nets: what pixels, from 0 to 255, are multiplied by after that"
    ] = None
    channels: Annotated[
        Literal["rgb", "bgr"] | None,
        "the order of three channels; default: the data layer's, of deploy nets, but for export, Caffe's"
        " bgr if the net or its weights are Caffe's, else rgb",
    ] = None


class Labelled(Prepared):
    """--labels too."""

    labels: Annotated[
        str | None,
        "a text file with the name of a class in each line, or SSD's label map; default: the names in"
        " the snapshot, the data set or the label map that the model names",
    ] = None


def no_options_of_deploy_nets(args: CommandOptions, layer: str) -> None:
    """Raise MinicaffeError for --mean and --scale, which the model's layer of data says itself."""
    for option in ("mean", "scale"):
        if getattr(args, option) is not None:
            raise MinicaffeError(
                f"--{option}: the layer {layer!r} says it; give"
                f" --set layers.{layer}.transform.{option + '_value' * (option == 'mean')}=..."
            )


def mean_of(text: str, image: tuple[int, int, int]) -> str | tuple[float, ...]:
    """What --mean subtracts: the path of an image of the net's size, or one number or one a channel."""
    if os.path.isfile(text):
        mean = read_array(Path(text))
        mean = mean.reshape(mean.shape[-3:] if mean.ndim == 4 and len(mean) == 1 else mean.shape)
        if mean.shape == image:
            return text
        values = mean.reshape(len(mean), -1).mean(axis=1) if mean.ndim in (1, 3) else mean
    else:
        try:
            values = np.array([float(word) for word in text.split(",")])
        except ValueError:
            why = f"there is no such file, and it is not one number or {image[0]}"
            raise MinicaffeError(f"--mean {text}: {why}") from None
    if values.shape not in ((1,), (image[0],)) or not np.isfinite(values).all():
        problem = f"expected 1 or {image[0]} numbers, or an image of {image}"
        raise MinicaffeError(f"--mean {text}: {problem}")
    return tuple(map(float, values))


def prepare(args: CommandOptions, data: Pictures, weights: str) -> None:
    """Have pictures made ready as the options say. Raises MinicaffeError for those a data layer answers."""
    if args.channels is not None:
        data.blue_first = args.channels == "bgr"
    if type(data) is not Pictures:  # a layer of the model's own
        no_options_of_deploy_nets(args, data.name)
        return
    caffes = data.blue_first or is_prototxt(args.model) or any(map(is_caffes, weights.split(",")))
    data.blue_first = (args.channels or ("bgr" if caffes else "rgb")) == "bgr"
    scale = 1.0 if args.scale is None else args.scale
    mean: Any = () if args.mean is None else mean_of(args.mean, data.image)
    key = "mean_file" if isinstance(mean, str) else "mean_value"
    data.transform = Transform(scale=scale, **{key: mean})
    order = "blue, green, red" if data.blue_first else "red, green, blue"
    words = [order] * (data.image[0] == 3) + [f"mean {args.mean or 0}", f"scale {scale:g}"]
    args.tell(f"pictures: {', '.join(words)}")


def _names_of(path: str) -> dict[int, str]:
    """Returns the names in a file of --labels, a label map or a name a line. Raises MinicaffeError."""
    file, text = load(path, "text", own=True)
    if is_label_map(text):
        return names_in(text, file)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or not all(line.isprintable() for line in lines):
        raise MinicaffeError(f"--labels {path}: expected a label map, or a name in each line")
    return dict(enumerate(lines))


def lines_of(path: str, count: int) -> list[str]:
    """The names in a file of --labels in their order. Raises MinicaffeError for another number of them."""
    names = _names_of(path)
    if set(names) != set(range(count)):
        raise MinicaffeError(
            f"--labels {path}: names {len(names)} classes, from {min(names)} to {max(names)}; "
            f"the net has classes 0 to {count - 1}"
        )
    return [names[label] for label in range(count)]


def box_names(labels: str | None, model: NetSpec, beside: Path | None) -> dict[int, str]:
    """A detector's classes: those of --labels, else of the model's label map."""
    return label_names(model, beside) if labels is None else _names_of(labels)
