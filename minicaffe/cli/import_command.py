"""Read a model of ONNX as a Caffe net: net.prototxt and net.caffemodel, or net.yaml and net.npz.

Each operator becomes layers that compute exactly the same; one that has none is refused, with the reason, and
nothing is written. Before the two files are, they are read again, and what they compute of random inputs is
compared with onnxruntime, blob by blob: a difference of more than 1e-4 of a blob's largest number is refused
too, and of numbers far apart one of more than rounding makes. With --images pictures of a folder are compared
as well, stretched to the input, red first, from 0 to 1; --layers prints the largest difference of each layer.
It needs the extra `onnx`. --operators prints what is read, and what is not and why.

example:
  minicaffe import model.onnx --out net
  minicaffe import model.onnx --out net.yaml --shape input=1x3x320x320
  minicaffe import model.onnx --out net --target ascend --images pictures/
  minicaffe import --operators
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from minicaffe.cli.options import Force
from minicaffe.cli.parser import Arg
from minicaffe.cli.streams import say
from minicaffe.errors import MinicaffeError, SpecError, note
from minicaffe.interop.onnx.patterns import listed
from minicaffe.interop.onnx.reader import onnx, proof


class Options(Force):
    """The options."""

    model: Annotated[str | None, Arg("model", nargs="?"), "MODEL", "the .onnx file"] = None
    out: Annotated[
        str | None, "NET", "the files to write: NET.prototxt and NET.caffemodel; or NET.yaml"
    ] = None
    shape: Annotated[
        Sequence[str],
        "INPUT=SIZES",
        "the sizes of an input that the file leaves open, such as input=1x3x224x224",
    ] = ()
    target: Annotated[
        str,
        Arg(choices=onnx.TARGETS),
        "whose layers may be used; caffe is BVLC's 1.0, the others are chips' compilers",
    ] = "minicaffe"
    fold: Annotated[
        bool | None,
        "multiply BatchNorm and Scale into the convolution before them; the default for --target",
    ] = None
    layers: Annotated[bool, "print the largest difference of each layer"] = False
    images: Annotated[str | None, "FOLDER", "pictures to compare, at most 16"] = None
    operators: Annotated[bool, "print which operators are read, and leave"] = False


def run(args: Options) -> None:
    """Import."""
    if args.operators:
        print("\n".join(listed()))
        return
    if args.model is None or args.out is None:
        raise MinicaffeError("expected MODEL.onnx and --out NET (see minicaffe import --help)")
    targets = onnx.files(args.out)
    args.check_free(*targets)
    imported = onnx.from_onnx(
        args.model, shapes=_shapes(args.shape), folded=args.fold, target=args.target
    )
    images = []
    if args.images is not None:
        if not imported.source.inputs:
            raise SpecError(f"{args.model}: has no input for --images")
        images = proof.pictures(args.images, next(iter(imported.source.inputs.values())))
    onnx.write(imported, args.out, images)
    if args.layers:
        types = {layer.name: layer.type for layer in imported.spec.layers}
        wide = max(map(len, imported.differences), default=0)
        for name, apart in imported.differences.items():
            print(f"{name:<{wide}}  {types[name]:<16} {apart:.0e}")
    if imported.notes:
        say(*imported.notes)
    written = " and ".join(str(path) for path in targets if imported.arrays or path == targets[0])
    note(f"{written}: {len(imported.spec.layers)} layers of {len(imported.source.nodes)} nodes")


def _shapes(given: Sequence[str]) -> dict[str, list[int]]:
    """--shape NAME=AxBxC, as sizes by name. Raises MinicaffeError for what is none."""
    shapes = {}
    for text in given:
        name, _, sizes = text.rpartition("=")
        if not name or not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*", sizes):
            raise MinicaffeError(f"--shape: expected INPUT=1x3x224x224, got {text!r:.80}")
        shapes[name] = [int(size) for size in sizes.split("x")]
    return shapes
