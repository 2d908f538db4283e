"""Write a file in another format: models as YAML or Caffe's .prototxt, weights as .npz or .caffemodel.

A model stays the same net and solver; what it need not say is left out, and comments are kept where they
stood. A solver's nets are written into it. Of old nets, from prototxt to prototxt, it is the upgrade.
Weights (.npz, .caffemodel, .caffemodel.h5), a solver's state (.solverstate, .solverstate.h5) and arrays (.npy,
.binaryproto) keep their numbers to the bit.

example:
  minicaffe convert deploy.prototxt deploy.yaml
  minicaffe convert models/lenet.yaml lenet.prototxt
  minicaffe convert lenet_iter_10000.caffemodel lenet.npz
"""

from __future__ import annotations

import argparse
import os

from minicaffe import checkpoint
from minicaffe.caffe import model as prototxt
from minicaffe.caffe.convert_weights import convert_weights, kind_of
from minicaffe.caffe.prototxt import prototxt as prototxt_of
from minicaffe.caffe.yaml_text import comments_of, yaml_text
from minicaffe.cli.options import import_files, import_option
from minicaffe.errors import MinicaffeError, SpecError, did_you_mean, note
from minicaffe.layers import REGISTRY
from minicaffe.spec import tree
from minicaffe.spec.blocks import expanded
from minicaffe.spec.model import model

YAML = (".yaml", ".yml")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("source", metavar="SOURCE", help="the file to read")
    parser.add_argument("target", metavar="TARGET", help="the file to write, by its ending")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    import_option(parser)


def run(args: argparse.Namespace) -> int:
    """Convert."""
    import_files(args.imports)
    if os.path.exists(args.target) and not args.force:
        raise MinicaffeError(f"{args.target}: is there already; --force writes over it")
    if kind_of(args.source) is not None:
        note(convert_weights(args.source, args.target))
        return 0
    if not prototxt.is_prototxt(args.target) and not args.target.lower().endswith(YAML):
        endings = (*YAML, *prototxt.SUFFIXES)
        hint = did_you_mean(os.path.splitext(args.target)[1] or args.target, endings)
        raise MinicaffeError(
            f"{args.target}: expected a name that ends in .yaml or .prototxt{hint}"
        )
    if prototxt.is_prototxt(args.source):
        found = prototxt.read_text(args.source, REGISTRY)
    else:
        file, text = tree.load(args.source)
        root = expanded(tree.parse(text, file))
        found = prototxt.Text(root, {file: comments_of(text)})
    spec = model(found.root, REGISTRY)
    write = prototxt_of if prototxt.is_prototxt(args.target) else yaml_text
    text = write(spec, REGISTRY, found.comments)
    if len(text) > tree.MAX_BYTES:
        raise SpecError(f"{args.source}: becomes larger than {tree.MAX_BYTES >> 20} MiB")
    checkpoint.replace(args.target, lambda stream: stream.write(text.encode("utf-8")))
    note(f"{args.target}: {len(spec.layers)} layers{' and a solver' if spec.solver else ''}")
    return 0
