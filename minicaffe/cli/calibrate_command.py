"""Measure the ranges that compilers to int8 ask for, and write their tables.

The net is run over pictures, prepared as `minicaffe predict` does. Printed are the extremes of each blob and
the threshold from which int8 clips: of the least KL divergence, as TensorRT and ncnn choose it, or the largest
magnitude. --tensorrt, --ncnn and --nvdla write it in the form that each reads.

example:
  minicaffe calibrate lenet --weights lenet_iter_10000.npz --data mnist --ncnn lenet.table
  minicaffe calibrate deploy.prototxt --weights net.caffemodel --data pictures --tensorrt net.cache
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from operator import methodcaller

from minicaffe.cli.options import (
    device_option,
    model_options,
    number,
    pick_device,
    read_model,
    tell,
)
from minicaffe.cli.picture_options import preparation_options, prepare
from minicaffe.cli.streams import say
from minicaffe.cli.weights import load_weights, weights_of, weights_option
from minicaffe.core.net.summary import table
from minicaffe.errors import MinicaffeError
from minicaffe.interop.chips import calibration
from minicaffe.storage import checkpoint
from minicaffe.tools.inference import for_test


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    weights_option(parser)
    device_option(parser)
    parser.add_argument(
        "--data",
        metavar="SOURCE",
        help="a folder of pictures, or a data set (docs/data.md); default: the model's test data",
    )
    parser.add_argument(
        "--images",
        metavar="N",
        type=number(1),
        default=calibration.COUNT,
        help=f"how many pictures; default: {calibration.COUNT}",
    )
    parser.add_argument(
        "--method",
        choices=calibration.METHODS,
        default="kl",
        help="how thresholds are chosen; default: kl",
    )
    preparation_options(parser)
    parser.add_argument("--tensorrt", metavar="FILE", help="write TensorRT's calibration cache")
    parser.add_argument(
        "--tensorrt-header",
        metavar="TEXT",
        default=calibration.TENSORRT,
        help=f"its first line, with the version that reads it; default: {calibration.TENSORRT}",
    )
    parser.add_argument("--ncnn", metavar="FILE", help="write ncnn's table")
    parser.add_argument("--nvdla", metavar="FILE", help="write NVDLA's JSON")
    parser.add_argument("--force", action="store_true", help="write over files that are there")


def run(args: argparse.Namespace) -> int:
    """Calibrate."""
    if not args.tensorrt_header.isprintable() or not args.tensorrt_header.strip():
        raise MinicaffeError("--tensorrt-header: expected one line of text")
    writers: dict[str, Callable[[calibration.Calibration], str]] = {
        "tensorrt": partial(calibration.as_tensorrt, header=args.tensorrt_header),
        "ncnn": calibration.as_ncnn,
        "nvdla": calibration.as_nvdla,
    }
    files = {name: getattr(args, name) for name in writers if getattr(args, name) is not None}
    _check(files, args.force)
    weights, spec = weights_of(args), for_test(read_model(args))
    net = calibration.CalibrationNet(spec, device=pick_device(args, spec))
    prepare(args, net.data, weights)
    for file, loaded in load_weights(net.net, weights):
        tell(args, f"weights: {file}: {loaded}")
    measured = calibration.calibrate(net, images=args.data, count=args.images, method=args.method)
    for line in measured.notes:
        tell(args, line)
    texts = {file: writers[name](measured) for name, file in files.items()}
    rows = [
        (name, f"{one.low:.4g}", f"{one.high:.4g}", f"{one.threshold:.4g}")
        for name, one in measured.blobs.items()
    ]
    say(table(rows, ("blob", "min", "max", f"T by {args.method}")))
    say(f"of {measured.images} pictures")
    for file, text in texts.items():
        data = text.encode("utf-8", "surrogateescape")
        checkpoint.replace(file, methodcaller("write", data))
        tell(args, f"written: {file}")
    return 0


def _check(files: dict[str, str], force: bool) -> None:
    """Raise MinicaffeError for files that cannot be, before anything is computed."""
    for name, file in files.items():
        if not file:
            raise MinicaffeError(f"--{name}: expected a file, got ''")
        if os.path.exists(file) and not force:
            raise MinicaffeError(f"{file}: is there already; --force writes over it")
    if len({os.path.realpath(file) for file in files.values()}) < len(files):
        raise MinicaffeError(f"two tables in one file: {', '.join(files.values())}")
