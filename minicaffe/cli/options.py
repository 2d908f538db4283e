"""CommandOptions that several commands share."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from minicaffe.backends import device as backend
from minicaffe.backends.cpu import threads
from minicaffe.backends.device import PRECISIONS
from minicaffe.cli.parser import Arg, CommandOptions, number
from minicaffe.core.communicator import ALONE, Communicator, device_of
from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.config.state import Phase, State
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.layers.blob import FLOATS
from minicaffe.core.net import read
from minicaffe.core.ops import conv
from minicaffe.errors import MinicaffeError, SpecError, note, raised_at

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
        "a Python file with your own layers, engines or update rules",
    ] = ()

    def import_files(self) -> None:
        """Import Python files by path; what they register is known afterwards."""
        for file in self.imports:
            path = Path(file)
            if not path.is_file():
                raise SpecError(f"--import {file}: no such file")
            is_pythons = (
                path.stem in sys.stdlib_module_names
            )  # which a random.py must not stand for
            name = f"_{path.stem}" if is_pythons else path.stem
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
                caffes = (
                    isinstance(error, ImportError) and (error.name or "").split(".")[0] == "caffe"
                )
                hint = "; leave caffe out: a Python layer needs no base (see docs/from-caffe.md)"
                raise SpecError(raised_at(error) + hint * caffes) from None


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
        int | None,
        number(0),
        "the net's level, with which min_level and max_level of layers are compared",
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

    model: Annotated[str, Arg("model"), "MODEL", MODEL]


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

    def tell(self, text: str) -> None:
        """Put one line on stderr, unless --quiet."""
        if not self.quiet:
            note(text)


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
        "of float32 on CUDA, instead of the model's; tf32 is faster and rounds factors to 10 bits",
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

    def engine_settings(self) -> dict[str, Any]:
        """Returns what these options say to Net and Solver."""
        return {
            "dtype": self.dtype,
            "precision": self.precision,
            "engine": self.conv_engine,
            "workspace_cap": self.workspace << 20,
            "deterministic": self.deterministic,
        }


class Force(CommandOptions):
    """--force."""

    force: Annotated[bool, "write over files that are there"] = False

    def check_free(self, *paths: str | Path) -> None:
        """Raise MinicaffeError for a file that is there, but with --force."""
        for path in paths:
            if os.path.exists(path) and not self.force:
                raise MinicaffeError(f"{path}: is there already; --force writes over it")
