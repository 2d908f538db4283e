"""Files of weights that a command is given: by --weights, or as MODEL."""

from __future__ import annotations

import os
import shlex
from functools import partial
from typing import Annotated

from minicaffe.cli.parser import CommandOptions
from minicaffe.core.net import Net
from minicaffe.core.net import model as net_model
from minicaffe.core.net.model import located
from minicaffe.core.net.weights import LoadReport, listed
from minicaffe.errors import CheckpointError, DataError, MinicaffeError, did_you_mean, note
from minicaffe.interop.caffe.model import is_prototxt
from minicaffe.interop.caffe.weights import is_caffes
from minicaffe.storage.file_kinds import foreign
from minicaffe.tools.data.weights import NAMES, weights_named
from minicaffe.tools.data.weights import WEIGHTS as WEIGHTS_BY_NAME
from minicaffe.tools.training import folder as run_folder

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
    given: str = named(args) or (args.model if net_model.holds_weights(args.model) else "")
    given = given or _shipped(args.model)
    told = foreign(args.model, "models in .yaml and .prototxt")
    if not given and told and not is_prototxt(args.model):
        raise MinicaffeError(told)
    if not given:
        if not os.path.exists(located(args.model)):
            raise MinicaffeError(f"{args.model}: no such file or folder")
        raise MinicaffeError(f"{args.model}: holds no weights; give them by --weights FILE")
    return given


def named(args: CommandOptions) -> str:
    """What --weights says, with the file in the place of a name of published weights; "" without --weights.

    They are fetched if they are not there. A line tells the file and its licence. Raises DataError for a word
    that is neither a file nor such a name.
    """
    return ",".join(map(partial(_file_of, args), (args.weights or "").split(",")))


def _file_of(args: CommandOptions, given: str) -> str:
    """The file that a word of --weights means."""
    if not given or os.path.exists(given) or os.path.exists(args.weights):
        return given
    if shipped := _shipped(given):
        return shipped
    found = weights_named(given)
    if found is None:
        if not set(given) & {os.sep, os.altsep} and not given.endswith(ENDINGS):
            hint = f"{did_you_mean(given, NAMES)} (minicaffe fetch --list lists them)"
            raise DataError(f"{given}: no such file, and no weights of this name{hint}")
        return given
    if not getattr(args, "quiet", False):
        note(f"weights: {found} ({WEIGHTS_BY_NAME[found.stem].licence})")
    return str(found)


def _shipped(name: str) -> str:
    """The weights that come with minicaffe's model of this name; "" if there are none."""
    from minicaffe.tools.deploy import shipped_weights  # which imports all that a classifier needs

    return str(shipped_weights(name) or "")


def load_weights(net: Net, given: str, strict: bool | None = None) -> list[tuple[str, LoadReport]]:
    """Load what --weights names, of a run's folder its best, and tell what became of each file.

    Files separated by commas are loaded one after another, each as far as names fit, as Caffe does. Raises
    CheckpointError if a shape does not; for a single file as Net.load.
    """
    if os.path.isdir(given):
        given = str(run_folder.weights(given))
    files = [given] if os.path.exists(given) else [file for file in given.split(",") if file]
    for file in files:
        run_folder.warn_of_old_reading(file)
    if len(files) <= 1:
        return [(given, net.load(given, strict=strict))]
    found = [(file, net.load(file, strict=False)) for file in files]
    for file, report in found:
        if report.mismatched:
            told = listed(report.wrong(("mismatched",)), {})
            raise CheckpointError(f"{file}: does not fit net {net.name!r}: {told}")
    loaded = {name for _, report in found for name in report.loaded}
    missing = [name for name in net.named_params if name not in loaded]
    if missing and strict is not False and not any(is_caffes(file) for file in files):
        raise CheckpointError(f"{given}: none of them has {', '.join(missing)}")
    return found


def renaming(net: Net, mismatched: str) -> str:
    """How the first layer whose shapes are not the file's would be learnt anew, as in fine-tuning."""
    name = mismatched.partition(" (file ")[0].rpartition("__")[0]
    (spec,) = (step.spec for step in net.steps if step.spec.name == name)
    words = ["--set", f"layers.{name}.top={name}"] if spec.top is None else []
    words += ["--set", f"layers.{name}.name={name}_new"]
    return f"to train layer {name!r} anew, give it another name: {shlex.join(words)}"
