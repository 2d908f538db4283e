"""Write a model file in another language: Caffe's .prototxt as YAML, or YAML as .prototxt.

The net and the solver are the same; what they need not say is left out, and comments are kept where they
stood. A solver's nets are written into it. Of old nets, from prototxt to prototxt, it is the upgrade.

example:
  minicaffe convert deploy.prototxt deploy.yaml
  minicaffe convert models/lenet.yaml lenet.prototxt
"""

from __future__ import annotations

import argparse
import os

from minicaffe import checkpoint
from minicaffe.caffe import model as prototxt
from minicaffe.caffe.prototxt import prototxt as prototxt_of
from minicaffe.caffe.yaml_text import comments_of, yaml_text
from minicaffe.cli.options import import_files, import_option
from minicaffe.errors import MinicaffeError, SpecError, did_you_mean, note
from minicaffe.layers import REGISTRY
from minicaffe.spec import tree
from minicaffe.spec.model import model

YAML = (".yaml", ".yml")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("source", metavar="SOURCE", help="the model file: .prototxt or .yaml")
    parser.add_argument("target", metavar="TARGET", help="the file to write: .yaml or .prototxt")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    import_option(parser)


def run(args: argparse.Namespace) -> int:
    """Convert."""
    import_files(args.imports)
    if not prototxt.is_prototxt(args.target) and not args.target.lower().endswith(YAML):
        endings = (*YAML, *prototxt.SUFFIXES)
        hint = did_you_mean(os.path.splitext(args.target)[1] or args.target, endings)
        raise MinicaffeError(
            f"{args.target}: expected a name that ends in .yaml or .prototxt{hint}"
        )
    if os.path.exists(args.target) and not args.force:
        raise MinicaffeError(f"{args.target}: is there already; --force writes over it")
    if prototxt.is_prototxt(args.source):
        found = prototxt.read_text(args.source, REGISTRY)
    else:
        file, text = tree.load(args.source)
        root = tree.parse(text, file)
        found = prototxt.Text(root, {file: comments_of(text)})
    spec = model(found.root, REGISTRY)
    write = prototxt_of if prototxt.is_prototxt(args.target) else yaml_text
    text = write(spec, REGISTRY, found.comments)
    if len(text) > tree.MAX_BYTES:
        raise SpecError(f"{args.source}: becomes larger than {tree.MAX_BYTES >> 20} MiB")
    checkpoint.replace(args.target, lambda stream: stream.write(text.encode("utf-8")))
    note(f"{args.target}: {len(spec.layers)} layers{' and a solver' if spec.solver else ''}")
    return 0
