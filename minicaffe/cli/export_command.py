"""Write a net for other runtimes: as ONNX, or its parameters as PyTorch's state_dict.

The net is written as it infers: in the phase TEST, without losses and what asks for labels; a layer that reads
data becomes an input, a SoftmaxWithLoss a Softmax. Before an .onnx file is written, onnx checks it, and what
onnxruntime makes of random numbers is compared with what minicaffe does: where they differ by more than 1e-4
of an output's largest number the layer is named, and nothing is written. It needs the extra `onnx`. Beside
net.onnx a net.json says what the classes are called and how pictures are made ready; of a deploy net
--mean, --scale, --channels and --labels say it. With --torch a .safetensors file is written, which needs the
extra `safetensors`, and it is told what became of each parameter.

example:
  minicaffe export deploy.prototxt --weights net.caffemodel --onnx net.onnx --dynamic batch
  minicaffe export --run runs/pets --onnx pets.onnx --tensorrt-safe
  minicaffe export lenet --weights lenet_iter_10000.npz --torch lenet.safetensors
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

from minicaffe.cli.answers import box_names, lines_of
from minicaffe.cli.options import MODEL, Force, OfNet
from minicaffe.cli.parser import Arg
from minicaffe.cli.picture_options import Labelled, mean_of, no_options_of_deploy_nets
from minicaffe.cli.streams import say
from minicaffe.cli.weights import Weighted, load_weights, weights_of
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers.files import read_array
from minicaffe.core.net import Net
from minicaffe.errors import MinicaffeError, SpecError, note
from minicaffe.interop.onnx.table import packages
from minicaffe.interop.onnx.writer import onnx
from minicaffe.interop.torch import torch
from minicaffe.storage import safetensors_file
from minicaffe.tools.folding import folded
from minicaffe.tools.preparation import Preparation, preparation
from minicaffe.tools.training import folder as run_folder

ONNX_ONLY = ("dynamic", "tensorrt_safe", "labels", "mean", "scale", "channels")


class Options(OfNet, Weighted, Labelled, Force):
    """The options."""

    model: Annotated[str, Arg("model", nargs="?"), "MODEL", f"{MODEL}; default: that of --run"]
    run: Annotated[
        str | None, "DIR", "a run's folder, whose best weights are written, else its newest"
    ] = None
    onnx: Annotated[str, Arg(one_of="target", required=True), "the .onnx file to write"]
    torch: Annotated[str, Arg(one_of="target", required=True), "the .safetensors file to write"]
    dynamic: Annotated[
        str, "AXES", "ONNX: axes of inputs that may be of any size: batch, height, width, by commas"
    ] = ""
    tensorrt_safe: Annotated[
        bool, "ONNX: write only what TensorRT 10 reads, or say which layer is in the way"
    ] = False
    fold: Annotated[
        bool,
        "write BatchNorm, Scale, Bias and Power as part of the convolution or product before them",
    ] = False


def run(args: Options) -> None:
    """Export."""
    to_onnx = args.onnx is not None
    target = args.onnx if to_onnx else args.torch
    if not target:
        raise MinicaffeError(f"--{'onnx' if to_onnx else 'torch'}: expected a file, got ''")
    targets = [target, *onnx.files_beside(target).values()] if to_onnx else [target]
    args.check_free(*targets)
    _of_run(args)
    for option in () if to_onnx else ONNX_ONLY:
        if getattr(args, option) not in (None, "", False):
            word = option.replace("_", "-")
            raise MinicaffeError(f"--{word} goes with --onnx: a state_dict holds no inputs")
    _ = packages() if to_onnx else safetensors_file.library()
    spec = args.read_model()
    net, notes = onnx.inferring(spec)
    for line in notes:
        note(line)
    about = _about(args, spec, net) if to_onnx else None
    if net.learnable or args.weights is not None:
        for file, loaded in load_weights(net, weights_of(args)):
            note(f"weights: {file}: {loaded}")
    if args.fold:
        result = folded(net)
        net = result.net(device="cpu", dtype="float32", deterministic=True)
        for line in result.notes:
            note(line)
    if about is not None:
        words = [word for word in args.dynamic.split(",") if word]
        say(*onnx.save(net, args.onnx, about, words, args.tensorrt_safe))
        note(f"classes and pictures: {onnx.files_beside(args.onnx)['json']}")
    else:
        say(*"\n".join(map(str, torch.write(net, args.torch))).split("\n"))


def _of_run(args: Options) -> None:
    """Have --run say the model and the weights that are not given. Raises MinicaffeError without either."""
    if args.run is None:
        if args.model is None:
            raise SpecError("no MODEL: give its file or name, or --run DIR, whose folder holds it")
        return
    if args.weights is not None:
        raise MinicaffeError("--weights cannot be given with --run, whose best weights are taken")
    args.weights = str(run_folder.weights(args.run))
    args.model = args.run if args.model is None else args.model


def _about(args: Options, spec: NetSpec, net: Net) -> Preparation:
    """What the model and the options say of pictures and classes. Raises MinicaffeError if they contradict."""
    about = preparation(spec)
    changed: dict[str, Any] = {}
    given = [one for one in ("mean", "scale", "channels") if getattr(args, one) is not None]
    if about.size is None and given:
        raise MinicaffeError(f"--{given[0]}: net {net.name!r} takes no pictures")
    if about.layer is not None:
        no_options_of_deploy_nets(args, about.layer)
    if about.size is not None and args.mean is not None:
        image = (about.channel_count, *about.size)
        mean = mean_of(args.mean, image)
        if isinstance(mean, str):
            changed["mean"] = read_array(Path(mean)).reshape(image)
        else:
            changed["mean"] = mean * image[0] if len(mean) == 1 else mean
    if args.scale is not None:
        if not math.isfinite(args.scale):
            raise MinicaffeError(f"--scale: expected a number, got {args.scale}")
        changed["scale"] = args.scale
    if args.channels is not None:
        if about.channel_count != 3:
            raise MinicaffeError(f"--channels: pictures have {about.channel_count} channels, not 3")
        changed["channels"] = args.channels
    if classes := _classes(args, spec, net):
        changed["classes"] = classes
    return dataclasses.replace(about, **changed)


def _classes(args: Options, spec: NetSpec, net: Net) -> tuple[str, ...]:
    """The names of classes that --labels or, of a detector, the model's label map says; () if none does."""
    if any(step.spec.type == "DetectionOutput" for step in net.steps):
        names = box_names(args.labels, spec, Path(args.model).parent)
        return tuple(names.get(label, "") for label in range(max(names, default=-1) + 1))
    if args.labels is None:
        return ()
    count = (1, *list(net.graph.outputs.values())[-1].shape)[:3][-1]
    return tuple(lines_of(args.labels, count))
