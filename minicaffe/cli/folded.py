"""What `convert --fold` writes: a net that infers, less the layers that fold into others, and its weights."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import Any

import numpy as np

from minicaffe.cli.weights import load_weights, weights_of
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import Net
from minicaffe.core.net.model import holds_weights, read, seen_from
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.errors import CheckpointError, note
from minicaffe.interop.caffe.model import named_prototxt
from minicaffe.interop.caffe.prototxt import prototxt
from minicaffe.interop.onnx.reader.onnx import files
from minicaffe.interop.onnx.writer import check
from minicaffe.interop.onnx.writer.onnx import inferring
from minicaffe.storage import checkpoint
from minicaffe.tools.folding import Folded, folded


def write(args: argparse.Namespace) -> int:
    """Write TARGET and the weights beside it: .caffemodel beside .prototxt, .npz beside .yaml."""
    model, weights = files(args.target)
    args.check_free(model, weights)
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
