"""Options that several commands share."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minicaffe import backend
from minicaffe.errors import MinicaffeError, SpecError, raised_at
from minicaffe.layers.blob import FLOATS
from minicaffe.net import Net, read
from minicaffe.ops import conv
from minicaffe.spec.declare import NetSpec


def model_options(parser: argparse.ArgumentParser) -> None:
    """MODEL and --import."""
    parser.add_argument("model", metavar="MODEL", help="the model file, such as models/lenet.yaml")
    import_option(parser)


def import_option(parser: argparse.ArgumentParser) -> None:
    """--import."""
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="FILE",
        action="append",
        default=[],
        help="a Python file with own layers",
    )


def device_option(parser: argparse.ArgumentParser) -> None:
    """--device."""
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="cpu, cuda or cuda:N; default: CUDA if it works, else the CPU",
    )


def dtype_option(parser: argparse.ArgumentParser) -> None:
    """--dtype."""
    parser.add_argument(
        "--dtype",
        choices=FLOATS,
        help="the type of numbers, instead of the model's; those of 16 bits need CUDA",
    )


def engine_options(parser: argparse.ArgumentParser) -> None:
    """--dtype, --conv-engine, --workspace and --deterministic."""
    dtype_option(parser)
    parser.add_argument(
        "--conv-engine",
        metavar="NAME",
        default="auto",
        help="how convolutions are computed; default: auto, the fastest measured (see explain)",
    )
    parser.add_argument(
        "--workspace",
        metavar="MIB",
        type=number(1),
        default=conv.CAP >> 20,
        help=f"the most a convolution may take as workspace; default: {conv.CAP >> 20}",
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="choose among engines by a fixed rule, not by the clock",
    )


def engine_settings(args: argparse.Namespace) -> dict[str, Any]:
    """What these options say to Net and Solver."""
    return {
        "dtype": args.dtype,
        "engine": args.conv_engine,
        "workspace_cap": args.workspace << 20,
        "deterministic": args.deterministic,
    }


def weights_option(parser: argparse.ArgumentParser) -> None:
    """--weights, required."""
    parser.add_argument(
        "--weights", metavar="FILE", required=True, help="a snapshot or weight file (.npz)"
    )


def number(least: int) -> Callable[[str], int]:
    """A parser of integers of at least `least`."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"expected an integer of at least {least}, got {text!r}"
            )
        return int(text)

    return parse


def read_model(args: argparse.Namespace) -> NetSpec:
    """The model asked for, after the user's own layers are imported."""
    import_files(args.imports)
    return read(args.model)


def import_files(files: list[str]) -> None:
    """Import Python files by path; what they register is known afterwards."""
    for file in files:
        path = Path(file)
        if not path.is_file():
            raise SpecError(f"--import {file}: no such file")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise SpecError(f"--import {file}: is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
        except MinicaffeError:
            raise
        except (Exception, SystemExit) as error:
            raise SpecError(raised_at(error)) from None


def pick_device(args: argparse.Namespace) -> backend.Device:
    """The device asked for or found, printed with the reason."""
    device = backend.device(args.device)
    print(f"device: {device}", file=sys.stderr)
    return device


def data_lines(nets: Sequence[Net | None]) -> list[str]:
    """Where the data of nets came from."""
    lines = []
    for net in nets:
        for layer in net.layers.values() if net is not None else ():
            data = getattr(layer, "dataset", None)
            if data is None:
                continue
            what = f"images of {data.name}, {data.origin}"
            if data.warning is not None:
                what = f"BUILT-IN DRAWN DIGITS instead of {data.name}"
            size = backend.mib(data.images.nbytes)
            lines.append(f"{layer.phase} data: {len(data.images)} {what} ({size})")
    return lines
