"""Measure the ranges that compilers to int8 ask for, and what a simulated int8 net loses.

The net is run over pictures, prepared as `minicaffe predict` does. For each blob a threshold is chosen by
the largest magnitude, a percentile, the KL divergence and the mean squared error, for weights in each output
channel; all are written as JSON. --method says which threshold --tensorrt, --ncnn, --nvdla and the
simulation use. Then Convolution, Deconvolution and InnerProduct are computed as int8 would, all of them and
one at a time: printed are the signal-to-noise ratio of the output and, where there are labels, the accuracy.

example:
  minicaffe calibrate lenet --weights lenet_iter_10000.npz --data mnist --images 500
  minicaffe calibrate deploy.prototxt --weights net.caffemodel --data pictures --tensorrt net.cache
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import IO, Any

from minicaffe import checkpoint
from minicaffe.calibration import CalibrationNet, calibrate, tables
from minicaffe.calibration.calibrate import COUNT, Calibration
from minicaffe.calibration.ranges import METHODS, PERCENTILE
from minicaffe.calibration.simulate import Score
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
from minicaffe.errors import MinicaffeError
from minicaffe.export.inference import for_test
from minicaffe.net.summary import table

OUTPUT = "calibration.json"
WRITERS = {"tensorrt": tables.as_tensorrt, "ncnn": tables.as_ncnn, "nvdla": tables.as_nvdla}


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
        default=COUNT,
        help=f"pictures, evenly over classes; default: {COUNT}",
    )
    parser.add_argument(
        "--method",
        choices=METHODS,
        default="kl",
        help="the threshold of other people's tables and of the simulation; default: kl",
    )
    parser.add_argument(
        "--percentile",
        metavar="P",
        type=float,
        default=PERCENTILE,
        help=f"that of the method percentile; default: {PERCENTILE}",
    )
    parser.add_argument(
        "--fold",
        action="store_true",
        help="multiply BatchNorm, Scale, Bias and Power into the layers before them first, as compilers do",
    )
    preparation_options(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", default=OUTPUT, help=f"the JSON; default: {OUTPUT}"
    )
    parser.add_argument("--tensorrt", metavar="FILE", help="write TensorRT's calibration cache")
    parser.add_argument(
        "--tensorrt-header",
        metavar="TEXT",
        default=tables.TENSORRT,
        help=f"its first line, with the version that reads it; default: {tables.TENSORRT}",
    )
    parser.add_argument("--ncnn", metavar="FILE", help="write ncnn's table")
    parser.add_argument("--nvdla", metavar="FILE", help="write NVDLA's JSON")
    parser.add_argument("--force", action="store_true", help="write over files that are there")


def run(args: argparse.Namespace) -> int:
    """Calibrate."""
    files = {"output": args.output} | {
        name: getattr(args, name) for name in WRITERS if getattr(args, name) is not None
    }
    _check(args, files)
    weights, spec = weights_of(args), for_test(read_model(args))
    net = CalibrationNet(spec, device=pick_device(args, spec))
    prepare(args, net.data, weights)
    for file, loaded in load_weights(net.net, weights):
        tell(args, f"weights: {file}: {loaded}")
    options: dict[str, Any] = {
        "count": args.images,
        "method": args.method,
        "percentile": args.percentile,
        "fold": args.fold,
    }
    calibration = calibrate(net, images=args.data, **options)
    for line in calibration.notes:
        tell(args, line)
    texts = {args.output: tables.as_json(calibration)}
    for name, file in files.items():
        if name == "tensorrt":
            texts[file] = tables.as_tensorrt(calibration, args.tensorrt_header)
        elif name != "output":
            texts[file] = WRITERS[name](calibration)
    say(*report(calibration))
    _write([(file, text.encode("utf-8", "surrogateescape")) for file, text in texts.items()])
    for file in texts:
        tell(args, f"written: {file}")
    return 0


def _write(files: Sequence[tuple[str, bytes]]) -> None:
    """Write files: all of them beside their places first, so that a full disk leaves none changed."""
    if not files:
        return
    (path, data), *rest = files

    def save(file: IO[bytes]) -> None:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        _write(rest)

    checkpoint.replace(path, save)


def _check(args: argparse.Namespace, files: dict[str, str]) -> None:
    """Raise MinicaffeError for files that cannot be, before anything is computed."""
    for name, file in files.items():
        if not file:
            raise MinicaffeError(f"--{name}: expected a file, got ''")
        if os.path.exists(file) and not args.force:
            raise MinicaffeError(f"{file}: is there already; --force writes over it")
    if len({os.path.realpath(file) for file in files.values()}) < len(files):
        raise MinicaffeError(f"two tables in one file: {', '.join(files.values())}")
    if not args.tensorrt_header.isprintable() or not args.tensorrt_header.strip():
        raise MinicaffeError("--tensorrt-header: expected one line of text")


def report(calibration: Calibration) -> list[str]:
    """What is printed: ranges of blobs, then what int8 loses."""
    rows = [
        (name, f"{one.low:.4g}", f"{one.high:.4g}", *(f"{one.thresholds[m]:.4g}" for m in METHODS))
        for name, one in calibration.blobs.items()
    ]
    lines = [table(rows, ("blob", "min", "max", *(f"T {method}" for method in METHODS))), ""]
    loss = calibration.loss
    whole = "-" if loss.accuracy is None else f"{100 * loss.accuracy:.2f} %"
    scores = [
        ("floating point", "", "", whole),
        ("int8, all", *_cells(loss.whole)),
        *((f"int8, {one.layer} alone", *_cells(one)) for one in loss.layers),
    ]
    lines.append(table(scores, ("net", "SQNR", "same answer", "accuracy")))
    lines.append(f"of {calibration.images} pictures, thresholds by {calibration.method}")
    return lines


def _cells(one: Score) -> tuple[str, str, str]:
    shares = ("-" if s is None else f"{100 * s:.2f} %" for s in (one.agreement, one.accuracy))
    return (f"{one.sqnr:.1f} dB", *shares)  # type: ignore[return-value]
