"""Write a file in another format: models as YAML or Caffe's .prototxt, weights as .npz and others.

A model stays the same net and solver; defaults are left out, and comments keep their places. The nets that a
solver names are written into its file. From prototxt to prototxt, it upgrades old nets.
Weights (.npz, .safetensors, .caffemodel, .caffemodel.h5), a solver's state (.solverstate, .solverstate.h5) and
arrays (.npy, .binaryproto) keep their numbers to the bit. A snapshot can become a model file too, and so can
a run's folder; as weights, a folder stands for its best snapshot.

With --model, Caffe's weights of any age become those of a net, in today's form: each of its layers in TEST
stands in the file with its name, type, bottoms and tops, and its weights in the net's shapes. Weights that do
not fit are refused.

With --fold a net is written as it infers, and its weights beside it, once both compute the same: BatchNorm,
Scale, Bias and Power are multiplied into the convolution or product before them.

example:
  minicaffe convert deploy.prototxt deploy.yaml
  minicaffe convert lenet lenet.prototxt
  minicaffe convert lenet_iter_10000.caffemodel lenet.npz
  minicaffe convert lenet.npz lenet.safetensors
  minicaffe convert lenet_iter_10000.npz lenet.yaml
  minicaffe convert old.prototxt new.prototxt
  minicaffe convert old.caffemodel new.caffemodel --model old.prototxt
  minicaffe convert deploy.prototxt folded.prototxt --fold --weights net.caffemodel
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from minicaffe.cli.known import built, tree_of
from minicaffe.cli.options import Force, Imports, Lenient
from minicaffe.cli.parser import Arg
from minicaffe.cli.weights import Weighted, load_weights, weights_of
from minicaffe.core.config import tree
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.mark import Comment
from minicaffe.core.config.model import model
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import Net
from minicaffe.core.net.model import holds_weights, read, seen_from
from minicaffe.core.net.weight_files import is_ours
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.core.net.zoo import located
from minicaffe.errors import (
    CheckpointError,
    DataError,
    MinicaffeError,
    SpecError,
    did_you_mean,
    note,
)
from minicaffe.interop.caffe import model as prototxt
from minicaffe.interop.caffe.convert_weights import convert_weights, kind_of
from minicaffe.interop.caffe.prototxt import prototxt as prototxt_of
from minicaffe.interop.caffe.unknown import with_unknown
from minicaffe.interop.caffe.weights import ENDINGS, is_caffes
from minicaffe.interop.onnx.reader.onnx import files
from minicaffe.interop.onnx.writer import check
from minicaffe.interop.onnx.writer.onnx import inferring
from minicaffe.storage import checkpoint
from minicaffe.tools.folding import Folded, folded
from minicaffe.tools.training import folder as run_folder

YAML = (".yaml", ".yml")


class Options(Force, Weighted, Imports, Lenient):
    """The options."""

    source: Annotated[str, Arg("source"), "SOURCE", "the file to read, or a run's folder"]
    target: Annotated[str, Arg("target"), "TARGET", "the file to write, by its ending"]
    model: Annotated[
        str | None,
        "NET",
        "of weights for Caffe: the net that they are for, as other commands take it as MODEL",
    ] = None
    fold: Annotated[
        bool,
        "write a model and its weights, BatchNorm, Scale, Bias and Power in the layer before them",
    ] = False


def run(args: Options) -> None:
    """Convert."""
    args.import_files()
    args.check_free(args.target)
    to_model = prototxt.named_prototxt(args.target) or args.target.lower().endswith(YAML)
    source = args.source
    if run_folder.is_run(source) and not to_model:
        source = str(run_folder.weights(source))
    if args.weights is not None and not args.fold:
        raise MinicaffeError("--weights goes with --fold")
    if args.fold:
        if args.model is not None:
            raise MinicaffeError("--model does not go with --fold, which writes a model")
        if not to_model:
            raise MinicaffeError(
                f"{args.target}: --fold writes a model, .prototxt or .yaml, and its weights"
            )
        _write_folded(args)
        return
    if kind_of(source) is not None and not (is_ours(source) and to_model):
        if args.model is None:
            note(convert_weights(source, args.target))
        else:
            note(_as_weights_of(args.model, source, args.target, args.lenient))
        return
    if args.model is not None:
        raise MinicaffeError(f"{args.target}: --model goes with weights, not with a model")
    if not to_model:
        endings = (*YAML, *prototxt.SUFFIXES)
        hint = did_you_mean(os.path.splitext(args.target)[1] or args.target, endings)
        raise MinicaffeError(
            f"{args.target}: expected a name that ends in .yaml or .prototxt{hint}"
        )
    spec, types, comments = _model(args.source, os.path.dirname(args.target), args.lenient)
    text = _text(args.target, spec, types, comments)
    if len(text) > tree.MAX_BYTES:
        raise SpecError(f"{args.source}: becomes larger than {tree.MAX_BYTES >> 20} MiB")
    checkpoint.replace(args.target, lambda stream: stream.write(text.encode("utf-8")))
    note(f"{args.target}: {len(spec.layers)} layers{' and a solver' if spec.solver else ''}")


def _as_weights_of(model: str, source: str, target: str, lenient: bool) -> str:
    """Write weights as those of a net, in the phase that it says, else in TEST; returns a line of it."""
    if kind_of(source) != "weights" or not is_caffes(target):
        raise MinicaffeError(f"{target}: --model goes with {' and '.join(ENDINGS)}")
    spec = read(model, lenient=lenient)
    try:
        phase = spec.state.phase or "TEST"
        net = built(spec, phase, keep=(), shapes_only=False, dtype="float32")
    except DataError as error:
        raise DataError(f"{error}; the deploy net needs no data") from None
    report = net.load(source, strict=True)
    net.save(target)
    return f"{source} -> {target}: {report}"


def _model(
    source: str, folder: str, lenient: bool
) -> tuple[NetSpec, Mapping[str, type], Mapping[str, Sequence[Comment]]]:
    """The model in a file, all types of its layers, and the comments of each text it is of.

    A snapshot's is seen from a folder. Layers of unknown types are kept as they are.
    """
    if holds_weights(source):
        return seen_from(read(source), folder), REGISTRY, {}
    root, comments = tree_of(located(source), lenient)
    types = with_unknown(root, REGISTRY)
    return model(root, types), types, comments


def _text(
    path: str | Path,
    spec: NetSpec,
    types: Mapping[str, type],
    comments: Mapping[str, Sequence[Comment]],
) -> str:
    """A model as a file of this name has it."""
    if prototxt.named_prototxt(path):  # where paths are from the current folder, as in Caffe
        return prototxt_of(dataclasses.replace(spec, folder="."), types, comments)
    return yaml_text(spec, types, comments)


def _write_folded(args: Options) -> None:
    """Write TARGET and the weights beside it: .caffemodel beside .prototxt, .npz beside .yaml."""
    model, weights = files(args.target)
    args.check_free(model, weights)
    net, lines = inferring(read(args.source, lenient=args.lenient))
    args.model = args.source
    for file, loaded in load_weights(net, weights_of(args)):
        lines.append(f"weights: {file}: {loaded}")
    result = folded(net)
    difference = compared(net, result)
    spec = seen_from(result.spec, model.parent) if holds_weights(args.source) else result.spec
    text = _text(model, spec, REGISTRY, {})
    result.net(device="cpu").save(weights)
    checkpoint.replace(model, lambda stream: stream.write(text.encode("utf-8")))
    for line in (*lines, *result.notes):
        note(line)
    note(f"outputs compared on random numbers: max. relative difference {difference:.0e}")
    note(f"{model} and {os.path.basename(weights)}: {len(result.spec.layers)} layers")


def compared(net: Net, result: Folded) -> float:
    """The largest difference of an output. Raises CheckpointError if it is more than rounding."""
    arrays: dict[str, Any] = dict(check.drawn(net))
    kind: dict[str, Any] = {"device": "cpu", "dtype": "float32", "deterministic": True}
    with np.errstate(all="ignore"):
        wanted = net.forward(**arrays)
        ours = result.net(**kind).forward(**arrays)
    worst = 0.0
    for name, array in wanted.items():
        apart = check.difference(np.asarray(ours[name]), np.asarray(array))
        if apart > check.MOST:
            raise CheckpointError(
                f"folded, output {name!r} differs by {apart:.0e}: nothing was written"
            )
        worst = max(worst, apart)
    return worst
