"""What `convert --fold` writes: a net that infers, less the layers that fold into others, and its weights."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import Any

import numpy as np

from minicaffe import checkpoint
from minicaffe.bridges.onnx import files
from minicaffe.caffe.model import named_prototxt
from minicaffe.caffe.prototxt import prototxt
from minicaffe.caffe.yaml_text import yaml_text
from minicaffe.cli.weights import load_weights, weights_of
from minicaffe.errors import CheckpointError, MinicaffeError, note
from minicaffe.export import check
from minicaffe.export.folding import Folded, folded
from minicaffe.export.onnx import inferring
from minicaffe.layers import REGISTRY
from minicaffe.net import Net
from minicaffe.net.model import holds_weights, read, seen_from


def write(args: argparse.Namespace) -> int:
    """Write TARGET and the weights beside it: .caffemodel beside .prototxt, .npz beside .yaml."""
    model, weights = files(args.target)
    for path in (model, weights):
        if path.exists() and not args.force:
            raise MinicaffeError(f"{path}: is there already; --force writes over it")
    net, lines = inferring(read(args.source, lenient=args.lenient))
    asked = argparse.Namespace(**{**vars(args), "model": args.source})
    for file, loaded in load_weights(net, weights_of(asked)):
        lines.append(f"weights: {file}: {loaded}")
    result = folded(net)
    difference = compared(net, result)
    if named_prototxt(model):  # where paths are from the current folder, as in Caffe
        text = prototxt(dataclasses.replace(result.spec, folder="."), REGISTRY, {})
    else:
        spec = seen_from(result.spec, model.parent) if holds_weights(args.source) else result.spec
        text = yaml_text(spec, REGISTRY, {})
    result.net(device="cpu").save(weights)
    checkpoint.replace(model, lambda stream: stream.write(text.encode("utf-8")))
    for line in (*lines, *result.notes):
        note(line)
    note(f"outputs compared on random numbers: max. relative difference {difference:.0e}")
    note(f"{model} and {os.path.basename(weights)}: {len(result.spec.layers)} layers")
    return 0


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
