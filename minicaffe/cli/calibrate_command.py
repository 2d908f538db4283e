"""Measure the ranges that compilers to int8 ask for, and write their tables.

The net is run over pictures, prepared as `minicaffe predict` does. Printed are the extremes of each blob and
the threshold from which int8 clips: of the least KL divergence, as TensorRT and ncnn choose it, or the largest
magnitude. --tensorrt, --ncnn and --nvdla write it in the form that each reads.

example:
  minicaffe calibrate lenet --weights lenet_iter_10000.npz --data mnist --ncnn lenet.table
  minicaffe calibrate deploy.prototxt --weights net.caffemodel --data pictures --tensorrt net.cache
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Annotated

from minicaffe.cli.options import Force, Model, OnDevice
from minicaffe.cli.parser import number
from minicaffe.cli.picture_options import Prepared, prepare
from minicaffe.cli.streams import say
from minicaffe.cli.weights import Weighted, load_weights, weights_of
from minicaffe.core.net.summary import table
from minicaffe.errors import MinicaffeError
from minicaffe.interop.chips import calibration
from minicaffe.storage import checkpoint
from minicaffe.tools.inference import for_test


class Options(Model, Weighted, OnDevice, Prepared, Force):
    """The options."""

    data: Annotated[
        str | None,
        "SOURCE",
        "a folder of pictures, or a data set (docs/data.md); default: the model's test data",
    ] = None
    images: Annotated[int, number(1), f"how many pictures; default: {calibration.COUNT}"] = (
        calibration.COUNT
    )
    method: Annotated[calibration.Method, "how thresholds are chosen; default: kl"] = "kl"
    tensorrt: Annotated[str | None, "write TensorRT's calibration cache"] = None
    tensorrt_header: Annotated[
        str,
        "TEXT",
        f"its first line, with the version that reads it; default: {calibration.TENSORRT}",
    ] = calibration.TENSORRT
    ncnn: Annotated[str | None, "write ncnn's table"] = None
    nvdla: Annotated[str | None, "write NVDLA's JSON"] = None


def run(args: Options) -> None:
    """Calibrate."""
    if not args.tensorrt_header.isprintable() or not args.tensorrt_header.strip():
        raise MinicaffeError("--tensorrt-header: expected one line of text")
    writers: dict[str, Callable[[calibration.Calibration], str]] = {
        "tensorrt": partial(calibration.as_tensorrt, header=args.tensorrt_header),
        "ncnn": calibration.as_ncnn,
        "nvdla": calibration.as_nvdla,
    }
    files = {name: getattr(args, name) for name in writers if getattr(args, name) is not None}
    _check(files)
    args.check_free(*files.values())
    weights, spec = weights_of(args), for_test(args.read_model())
    net = calibration.CalibrationNet(spec, device=args.pick_device(spec))
    prepare(args, net.data, weights)
    for file, loaded in load_weights(net.net, weights):
        args.tell(f"weights: {file}: {loaded}")
    measured = calibration.calibrate(net, images=args.data, count=args.images, method=args.method)
    for line in measured.notes:
        args.tell(line)
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
        args.tell(f"written: {file}")


def _check(files: dict[str, str]) -> None:
    """Raise MinicaffeError for files that cannot be, before anything is computed."""
    for name, file in files.items():
        if not file:
            raise MinicaffeError(f"--{name}: expected a file, got ''")
    if len({os.path.realpath(file) for file in files.values()}) < len(files):
        raise MinicaffeError(f"two tables in one file: {', '.join(files.values())}")
