"""Files of models and of weights, told by their names and contents; and models as text."""

import dataclasses
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, cast

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.model import parse_model
from minicaffe.core.config.tree import MAX_BYTES, load, shown
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.core.plugins import MODELS, WEIGHTS, ModelFormat, format_of, hooks, loaded
from minicaffe.errors import CheckpointError, SpecError, did_you_mean
from minicaffe.storage import checkpoint, safetensors_file
from minicaffe.storage.checkpoint import ArrayFile
from minicaffe.storage.safetensors_file import MODEL

OURS = (".npz", safetensors_file.ENDING)


def is_ours(path: Any) -> bool:
    """Whether a name is that of a file which may hold the net's text beside its weights.

    >>> is_ours("lenet_iter_500.npz"), is_ours("lenet.caffemodel"), is_ours("lenet.yaml")
    (True, False, False)
    """
    return isinstance(path, (str, Path)) and str(path).lower().endswith(OURS)


def opened(path: str | Path) -> ArrayFile:
    """A file's arrays, or a run's best weights, by name; shapes need no reading. Raises CheckpointError."""
    path = hooks().best_weights(path) if os.path.isdir(path) else path
    if (plugged := format_of(WEIGHTS, path)) is not None:
        return cast(ArrayFile, plugged.Reader(path))
    if safetensors_file.is_one(path):
        return safetensors_file.Reader(path)
    return checkpoint.Reader(path)


def write(path: str | Path, arrays: Mapping[str, Any], net: str = "") -> None:
    """Write arrays by name to an .npz or .safetensors file, atomically. Raises CheckpointError."""
    if safetensors_file.is_one(path):
        checkpoint.replace(path, safetensors_file.encoded(arrays, net))
    else:
        checkpoint.write(path, arrays)


def text_among(arrays: Any, shapes: Mapping[str, tuple[int, ...]], path: str | Path) -> str:
    """The text in the entry `@model` of a file's arrays. Raises CheckpointError for what is none."""
    if len(shapes[MODEL]) != 1 or shapes[MODEL][0] > MAX_BYTES:
        problem = f"entry {MODEL!r} of shape {shapes[MODEL]} is no model's text"
        raise CheckpointError(f"{path}: {problem}")
    entry = np.asarray(arrays[MODEL])
    if entry.dtype != np.uint8:
        raise CheckpointError(f"{path}: entry {MODEL!r} holds {entry.dtype}, expected bytes")
    try:
        return entry.tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"(byte {error.start})"
        raise CheckpointError(f"{path}: entry {MODEL!r} is not UTF-8 text {where}") from None


def models() -> dict[str, Path]:
    """The file of each model by its name, in the order of names.

    >>> models()["lenet"].name
    'lenet.yaml'
    """
    folder = Path(str(resources.files("minicaffe") / "models"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def located(model: str | Path) -> str | Path:
    """The path to read for MODEL: a file or folder, else that of a model so named. Raises SpecError."""
    word = str(model)
    if os.path.exists(model) or not word.isidentifier():
        return model
    if word not in (known := models()):
        raise SpecError(
            f"{word}: no such file, and no model of this name{did_you_mean(word, known)}"
            " (minicaffe models lists them)"
        )
    return known[word]


YAML = (".yaml", ".yml", ".json")
IN_RUN = "model.yaml"  # the model's file in a run's folder


def read(path: str | Path | Mapping[str, Any], *settings: str, lenient: bool = False) -> NetSpec:
    """The model in a file or a mapping, with layers of the registered types, for Net, Solver and commands.

    `path` is a YAML file; a net's or a solver's prototxt; a snapshot, an .npz or .safetensors file with the
    text of its net; the folder of a run; or the name of a model that comes with minicaffe ("lenet"), if no
    file has that name. If the suffix does not tell a file's kind, its content does. Each of `settings`
    replaces a key, PATH=VALUE as in `--set`. With `lenient`, unknown keys of a prototxt are left out, with a
    warning for each. Raises SpecError; CheckpointError for a damaged snapshot, or one without a text.

    >>> model = {"layers": [{"name": "ip", "type": "InnerProduct", "bottom": "x", "num_output": 2}]}
    >>> read(model, "layers.ip.num_output=5", "force_backward=true").layers[0].options["num_output"]
    5
    """
    if isinstance(path, Mapping):
        return parse_model(path, REGISTRY, None, settings)
    if not isinstance(path, (str, os.PathLike)):
        raise SpecError(f"expected the path of a model file or a mapping, got {shown(path)}")
    path = located(path)
    if os.path.isdir(path):
        path, folder = Path(path, IN_RUN), path
        if not path.is_file():
            problem = "expected a model file, a snapshot or the folder of a run"
            raise SpecError(f"{folder}: is a folder without a {IN_RUN}; {problem}")
    elif is_ours(path):
        with opened(path) as reader:
            if MODEL not in reader.shapes:
                why = "give the model file, and this one by --weights"
                raise CheckpointError(f"{path}: does not hold its net's text ({MODEL}): {why}")
            text = text_among(reader, reader.shapes, path)
        return parse_model(text, REGISTRY, f"{path}: {MODEL}", settings, Path(path))
    elif (plugged := model_format(path)) is not None:
        return cast(NetSpec, plugged.read(path, REGISTRY, settings, lenient=lenient))
    name, written = load(path)
    return parse_model(written, REGISTRY, name, settings, Path(path))


def model_format(path: str | Path) -> ModelFormat | None:
    """Returns the plugged-in format of a model's file, by its name, else by what it holds; None for YAML."""
    plugged = format_of(MODELS, path)
    if plugged is None and not str(path).lower().endswith(YAML):
        formats = map(loaded, dict.fromkeys(MODELS.values()))
        plugged = next((one for one in formats if one.is_one(path)), None)
    return cast("ModelFormat | None", plugged)


def holds_weights(path: Any) -> bool:
    """True if an argument of `read` has weights too, and is no model file: a snapshot or a run's folder."""
    return is_ours(path) or (isinstance(path, (str, Path)) and os.path.isdir(path))


def parse(text: str | Mapping[str, Any], file: str | None = None) -> NetSpec:
    """The model in a YAML text or a mapping, which errors call `file`; as `read` does. Raises SpecError.

    >>> parse("layers: [{name: data, type: Input, shape: {dim: [1, 3]}}]").layers[0].name
    'data'
    """
    return parse_model(text, REGISTRY, file)


def text(spec: NetSpec, folder: str | Path) -> str:
    """A model as YAML, its blocks and settings resolved, to be written into a file in `folder`.

    Relative paths keep their meaning: the text names the model's folder relative to `folder`.

    >>> print(text(parse("layers: [{name: data, type: Input, shape: {dim: [1, 3]}}]"), "runs/a"))
    layers:
      - {name: data, type: Input, shape: {dim: [1, 3]}}
    <BLANKLINE>
    """
    return yaml_text(seen_from(spec, folder), REGISTRY)


def seen_from(spec: NetSpec, folder: str | Path) -> NetSpec:
    """A model that names its folder relative to `folder`, in full if they have only the root in common."""
    tests = tuple(seen_from(net, folder) for net in spec.test_nets)
    if spec.beside is None:
        return dataclasses.replace(spec, test_nets=tests)
    path, start = os.path.abspath(spec.beside), os.path.abspath(folder)
    if os.path.splitdrive(path)[0] == os.path.splitdrive(start)[0]:
        common = os.path.commonpath([path, start])
        if os.path.dirname(common) != common:  # not the root
            path = Path(os.path.relpath(path, start)).as_posix()
    return dataclasses.replace(spec, folder=path, test_nets=tests)


def entry(spec: NetSpec, path: str | Path) -> dict[str, np.ndarray]:
    """The entry of a snapshot at `path` with its net's text, as bytes; {} if it is too long to be read."""
    data = text(spec, Path(path).parent).encode("utf-8")
    return {MODEL: np.frombuffer(data, np.uint8)} if len(data) <= MAX_BYTES else {}
