"""Models whose layers are of the registered types: read from files of every kind, and their text again."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.caffe import weight_files
from minicaffe.caffe.model import is_prototxt, read_prototxt
from minicaffe.caffe.weight_files import MODEL
from minicaffe.caffe.yaml_text import yaml_text
from minicaffe.errors import SpecError
from minicaffe.layers import REGISTRY
from minicaffe.net.zoo import located
from minicaffe.spec.declare import NetSpec
from minicaffe.spec.model import parse_model, read_model
from minicaffe.spec.tree import MAX_BYTES

IN_RUN = "model.yaml"  # the file of a run's folder that does


def read(path: str | Path | Mapping[str, Any], *settings: str, lenient: bool = False) -> NetSpec:
    """The model in a file or a mapping, its layers of the registered types: what Net, Solver, commands take.

    `path` is a YAML file; a net's or a solver's prototxt; a snapshot, an .npz or .safetensors file with the
    text of its net; the folder of a run; or the name of a model that comes with minicaffe ("lenet"), if no
    file has that name. Where the ending does not say what a file is, its content does. Each of `settings`
    replaces a key, PATH=VALUE as the command line's `--set` has it. With `lenient`, unknown keys of a prototxt
    are left out, with a warning of each. Raises SpecError; CheckpointError for a damaged snapshot, or one
    without a text.

    >>> model = {"layers": [{"name": "ip", "type": "InnerProduct", "bottom": "x", "num_output": 2}]}
    >>> read(model, "layers.ip.num_output=5", "force_backward=true").layers[0].options["num_output"]
    5
    """
    if not isinstance(path, (str, Path)):
        return read_model(path, REGISTRY, settings)
    path = located(path)
    if os.path.isdir(path):
        path, folder = Path(path, IN_RUN), path
        if not path.is_file():
            raise SpecError(
                f"{folder}: is a folder without a {IN_RUN}; "
                "expected a model file, a snapshot or the folder of a run"
            )
    elif weight_files.is_ours(path):
        text, file = weight_files.text_in(path), f"{path}: {MODEL}"
        return parse_model(text, REGISTRY, file, settings, Path(path))
    elif is_prototxt(path):
        return read_prototxt(path, REGISTRY, settings, lenient=lenient)
    return read_model(path, REGISTRY, settings)


def holds_weights(path: str | Path) -> bool:
    """Whether what `read` takes is no model file, but has weights too: a snapshot or a run's folder."""
    return weight_files.is_ours(path) or os.path.isdir(path)


def parse(text: str | Mapping[str, Any], file: str | None = None) -> NetSpec:
    """The model in a YAML text or a mapping, which errors call `file`; as `read` does. Raises SpecError.

    >>> parse("layers: [{name: data, type: Input, shape: {dim: [1, 3]}}]").layers[0].name
    'data'
    """
    return parse_model(text, REGISTRY, file)


def text(spec: NetSpec, folder: str | Path) -> str:
    """A model as YAML, its blocks and settings resolved, to be written into a file in `folder`.

    Relative paths in it mean what they did: it names the model's folder as seen from there.

    >>> print(text(parse("layers: [{name: data, type: Input, shape: {dim: [1, 3]}}]"), "runs/a"))
    layers:
      - {name: data, type: Input, shape: {dim: [1, 3]}}
    <BLANKLINE>
    """
    return yaml_text(seen_from(spec, folder), REGISTRY)


def seen_from(spec: NetSpec, folder: str | Path) -> NetSpec:
    """A model that names its folder as a file in `folder` would have to."""
    tests = tuple(seen_from(net, folder) for net in spec.test_nets)
    return dataclasses.replace(spec, folder=_folder(spec, folder), test_nets=tests)


def _folder(spec: NetSpec, folder: str | Path) -> str:
    """A model's folder as seen from another; by its whole path if they share none but the root."""
    if spec.beside is None:
        return spec.folder
    there, here = os.path.abspath(spec.beside), os.path.abspath(folder)
    if os.path.splitdrive(there)[0] != os.path.splitdrive(here)[0]:
        return there
    near = os.path.dirname(os.path.commonpath([there, here])) != os.path.commonpath([there, here])
    return Path(os.path.relpath(there, here)).as_posix() if near else there


def entry(spec: NetSpec, path: str | Path) -> dict[str, np.ndarray]:
    """What a snapshot at `path` holds of its net: the text, as bytes; nothing if it is too long to be read."""
    data = text(spec, Path(path).parent).encode("utf-8")
    return {MODEL: np.frombuffer(data, np.uint8)} if len(data) <= MAX_BYTES else {}
