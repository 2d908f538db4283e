"""Write a net for other runtimes: as ONNX, or its parameters as PyTorch's state_dict.

The net is written as it infers: in the phase TEST, without losses and what asks for labels; a layer that reads
data becomes an input, a SoftmaxWithLoss a Softmax. Before an .onnx file is written, onnx checks it, and what
onnxruntime makes of random numbers is compared with what minicaffe does: where they differ by more than 1e-4
of an output's largest number the layer is named, and nothing is written. It needs the extra `onnx`. With
--torch a .safetensors file is written, which needs the extra `safetensors`, and it is told what became of
each parameter.

example:
  minicaffe export deploy.prototxt --weights net.caffemodel --onnx net.onnx --dynamic batch
  minicaffe export lenet --weights lenet_iter_10000.npz --torch lenet.safetensors
"""

from __future__ import annotations

import argparse
import os

from minicaffe.cli.options import model_options, read_model
from minicaffe.cli.weights import load_weights, weights_of, weights_option
from minicaffe.data import safetensors_file
from minicaffe.errors import MinicaffeError, note
from minicaffe.export import onnx, torch
from minicaffe.export.library import packages


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    weights_option(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--onnx", metavar="FILE", help="the .onnx file to write")
    target.add_argument("--torch", metavar="FILE", help="the .safetensors file to write")
    parser.add_argument(
        "--dynamic",
        metavar="AXES",
        default="",
        help="ONNX: axes of inputs that may be of any size: batch, height, width, by commas",
    )
    parser.add_argument("--force", action="store_true", help="write over a file that is there")


def run(args: argparse.Namespace) -> int:
    """Export."""
    to_onnx = args.onnx is not None
    target = args.onnx if to_onnx else args.torch
    if not target:
        raise MinicaffeError(f"--{'onnx' if to_onnx else 'torch'}: expected a file, got ''")
    if os.path.exists(target) and not args.force:
        raise MinicaffeError(f"{target}: is there already; --force writes over it")
    if args.dynamic and not to_onnx:
        raise MinicaffeError("--dynamic goes with --onnx: a state_dict holds no inputs")
    _ = packages() if to_onnx else safetensors_file.library()
    net, notes = onnx.inferring(read_model(args))
    for line in notes:
        note(line)
    if net.learnable or args.weights is not None:
        for file, loaded in load_weights(net, weights_of(args)):
            note(f"weights: {file}: {loaded}")
    if to_onnx:
        words = [word for word in args.dynamic.split(",") if word]
        print("\n".join(onnx.save(net, args.onnx, words)))
    else:
        print("\n".join(map(str, torch.write(net, args.torch))))
    return 0
