"""Commands that write a net in another format: convert, import, export and calibrate."""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from minicaffe.cli import options
from minicaffe.cli.nets import built, tree_of
from minicaffe.cli.parser import Arg, number
from minicaffe.core.config import tree
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.model import model
from minicaffe.core.config.tree import Comment
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import Net
from minicaffe.core.net.model import holds_weights, is_ours, located, read, seen_from
from minicaffe.core.net.summary import table
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.errors import (
    CheckpointError,
    DataError,
    MinicaffeError,
    SpecError,
    did_you_mean,
    note,
    say,
)
from minicaffe.interop.caffe import model as prototxt
from minicaffe.interop.caffe.convert_weights import convert_weights, kind_of
from minicaffe.interop.caffe.prototxt import prototxt as prototxt_of
from minicaffe.interop.caffe.unknown import with_unknown
from minicaffe.interop.caffe.weights import ENDINGS, is_caffes
from minicaffe.interop.chips import calibration
from minicaffe.interop.onnx.patterns import listed
from minicaffe.interop.onnx.reader import onnx as reader
from minicaffe.interop.onnx.reader import proof
from minicaffe.interop.onnx.reader.preparation import PRESETS, Prepares, channels_of, prepares
from minicaffe.interop.onnx.table import packages
from minicaffe.interop.onnx.writer import check
from minicaffe.interop.onnx.writer import onnx as writer
from minicaffe.interop.torch import torch
from minicaffe.storage import checkpoint, safetensors_file
from minicaffe.storage.wire import read_array
from minicaffe.tools.deploy import Preparation, preparation
from minicaffe.tools.folding import Folded, folded
from minicaffe.tools.inference import for_test
from minicaffe.tools.training import folder as run_folder

YAML = (".yaml", ".yml")


class Convert(options.Force, options.Weighted, options.Imports, options.Lenient):
    """Write a file in another format: models as YAML or Caffe's .prototxt, weights as .npz and others.

    A model stays the same net and solver; defaults are left out, and comments keep their places. The nets that
    a solver names are written into its file. From prototxt to prototxt, it upgrades old nets. Weights (.npz,
    .safetensors, .caffemodel, .caffemodel.h5), a solver's state (.solverstate, .solverstate.h5) and arrays
    (.npy, .binaryproto) keep their numbers to the bit. A snapshot can become a model file too, and so can a
    run's folder; as weights, a folder stands for its best snapshot.

    With --model, Caffe's weights of any age become those of a net, in today's form: each of its layers in TEST
    stands in the file with its name, type, bottoms and tops, and its weights in the net's shapes. Weights that
    do not fit are refused.

    With --fold a net is written as it infers, and its weights beside it, once both compute the same:
    BatchNorm, Scale, Bias and Power are multiplied into the convolution or product before them.

    example:
      minicaffe convert deploy.prototxt deploy.yaml
      minicaffe convert lenet lenet.prototxt
      minicaffe convert lenet_iter_10000.caffemodel lenet.npz
      minicaffe convert lenet.npz lenet.safetensors
      minicaffe convert lenet_iter_10000.npz lenet.yaml
      minicaffe convert old.prototxt new.prototxt
      minicaffe convert old.caffemodel new.caffemodel --model old.prototxt
      minicaffe convert deploy.prototxt folded.prototxt --fold --weights net.caffemodel
    """

    source: Annotated[str, Arg("source"), "the file to read, or a run's folder"]
    target: Annotated[
        str,
        Arg("target", nargs="?", one_of="to", required=True),
        "the file to write, by its ending",
    ]
    output: Annotated[str | None, Arg("-o", "--output", one_of="to"), "the same"] = None
    model: Annotated[
        str | None,
        "NET",
        "of weights for Caffe: the net that they are for, as other commands take it as MODEL",
    ] = None
    fold: Annotated[
        bool,
        "write a model and its weights, BatchNorm, Scale, Bias and Power in the layer before them",
    ] = False

    def __call__(self) -> None:
        self.import_files()
        self.target = self.output or self.target
        self.check_free(self.target)
        to_model = prototxt.named_prototxt(self.target) or self.target.lower().endswith(YAML)
        source = self.source
        if run_folder.is_run(source) and not to_model:
            source = str(run_folder.weights(source))
        if self.weights is not None and not self.fold:
            raise MinicaffeError("--weights goes with --fold")
        if self.fold:
            if self.model is not None:
                raise MinicaffeError("--model does not go with --fold, which writes a model")
            if not to_model:
                why = "--fold writes a model, .prototxt or .yaml, and its weights"
                raise MinicaffeError(f"{self.target}: {why}")
            _write_folded(self)
            return
        if kind_of(source) is not None and not (is_ours(source) and to_model):
            if self.model is None:
                note(convert_weights(source, self.target))
            else:
                if kind_of(source) != "weights" or not is_caffes(self.target):
                    raise MinicaffeError(
                        f"{self.target}: --model goes with {' and '.join(ENDINGS)}"
                    )
                spec = read(self.model, lenient=self.lenient)
                phase = spec.state.phase or "TEST"
                try:
                    net = built(spec, phase, keep=(), shapes_only=False, dtype="float32")
                except DataError as error:
                    raise DataError(f"{error}; the deploy net needs no data") from None
                report = net.load(source, strict=True)
                net.save(self.target)
                note(f"{source} -> {self.target}: {report}")
            return
        if self.model is not None:
            raise MinicaffeError(f"{self.target}: --model goes with weights, not with a model")
        if not to_model:
            endings = (*YAML, *prototxt.SUFFIXES)
            hint = did_you_mean(os.path.splitext(self.target)[1] or self.target, endings)
            problem = f"expected a name that ends in .yaml or .prototxt{hint}"
            raise MinicaffeError(f"{self.target}: {problem}")
        types: Mapping[str, type] = REGISTRY
        comments: Mapping[str, Sequence[Comment]] = {}
        if holds_weights(self.source):
            spec = seen_from(read(self.source), os.path.dirname(self.target))
        else:  # layers of unknown types are kept as they are
            root, comments = tree_of(located(self.source), self.lenient)
            types = with_unknown(root, REGISTRY)
            spec = model(root, types)
        text = _text(self.target, spec, types, comments)
        if len(text) > tree.MAX_BYTES:
            raise SpecError(f"{self.source}: becomes larger than {tree.MAX_BYTES >> 20} MiB")
        checkpoint.replace(self.target, text.encode("utf-8"))
        note(f"{self.target}: {len(spec.layers)} layers{' and a solver' if spec.solver else ''}")


def _text(
    path: str | Path,
    spec: NetSpec,
    types: Mapping[str, type],
    comments: Mapping[str, Sequence[Comment]],
) -> str:
    """A model as a file of this name has it."""
    if prototxt.named_prototxt(path):  # where paths are from the current folder, as in Caffe
        return prototxt_of(dataclasses.replace(spec, folder="."), types, comments)
    return yaml_text(spec, types, comments)


def _write_folded(args: Convert) -> None:
    """Write TARGET and the weights beside it: .caffemodel beside .prototxt, .npz beside .yaml."""
    model, weights = reader.files(args.target)
    args.check_free(model, weights)
    net, lines = writer.inferring(read(args.source, lenient=args.lenient))
    args.model = args.source
    for file, loaded in options.load_weights(net, options.weights_of(args)):
        lines.append(f"weights: {file}: {loaded}")
    result = folded(net)
    difference = compared(net, result)
    spec = seen_from(result.spec, model.parent) if holds_weights(args.source) else result.spec
    text = _text(model, spec, REGISTRY, {})
    result.net(device="cpu").save(weights)
    checkpoint.replace(model, text.encode("utf-8"))
    note(*lines, *result.notes)
    note(f"outputs compared on random numbers: max. relative difference {difference:.0e}")
    note(f"{model} and {os.path.basename(weights)}: {len(result.spec.layers)} layers")


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


class Import(options.Force, options.Prepared):
    """Read a model of ONNX as a Caffe net: net.prototxt and net.caffemodel, or net.yaml and net.npz.

    Each operator becomes layers that compute exactly the same; one that has none is refused, with the reason,
    and nothing is written. Before the two files are, they are read again, and what they compute of random
    inputs is compared with onnxruntime, blob by blob: a difference of more than 1e-4 of a blob's largest
    number is refused too, and of numbers far apart one of more than rounding makes. With --images pictures of
    a folder are compared as well, stretched to the input, red first, from 0 to 1; --layers prints the largest
    difference of each layer. How pictures are made ready the file does not say: --preset, or --mean, --scale
    and --channels, make it the net's first layer, for predict and train. It needs the extra `onnx`.
    --operators prints what is read, and what is not and why.

    example:
      minicaffe import model.onnx --out net
      minicaffe import resnet18.onnx --out resnet18 --preset torchvision
      minicaffe import model.onnx --out net.yaml --shape input=1x3x320x320
      minicaffe import model.onnx --out net --target ascend --images pictures/
      minicaffe import --operators
    """

    model: Annotated[str | None, Arg("model", nargs="?"), "the .onnx file"] = None
    out: Annotated[
        str | None,
        Arg("-o", "--out", "--output"),
        "NET",
        "the files to write: NET.prototxt and NET.caffemodel; or NET.yaml",
    ] = None
    shape: Annotated[
        Sequence[str],
        "INPUT=SIZES",
        "the sizes of an input that the file leaves open, such as input=1x3x224x224",
    ] = ()
    target: Annotated[
        str,
        Arg(choices=reader.TARGETS),
        "whose layers may be used; caffe is BVLC's 1.0, the others are chips' compilers",
    ] = "minicaffe"
    fold: Annotated[
        bool | None,
        "multiply BatchNorm and Scale into the convolution before them; the default for --target",
    ] = None
    preset: Annotated[
        str | None,
        Arg(choices=tuple(PRESETS)),
        "how pictures are made ready: torchvision's mean and deviation, unit from 0 to 1, signed from -1 to 1",
    ] = None
    layers: Annotated[bool, "print the largest difference of each layer"] = False
    images: Annotated[str | None, "FOLDER", "pictures to compare, at most 16"] = None
    operators: Annotated[bool, "print which operators are read, and leave"] = False

    def __call__(self) -> None:
        if self.operators:
            print("\n".join(listed()))
            return
        if self.model is None or self.out is None:
            raise MinicaffeError("expected MODEL.onnx and --out NET (see minicaffe import --help)")
        targets = reader.files(self.out)
        self.check_free(*targets)
        shapes = {}
        for text in self.shape:
            name, _, sizes = text.rpartition("=")
            if not name or not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*", sizes):
                raise MinicaffeError(f"--shape: expected INPUT=1x3x224x224, got {text!r:.80}")
            shapes[name] = [int(size) for size in sizes.split("x")]
        imported = reader.from_onnx(self.model, shapes=shapes, folded=self.fold, target=self.target)
        images = []
        if self.images is not None:
            if not imported.source.inputs:
                raise SpecError(f"{self.model}: has no input for --images")
            images = proof.pictures(self.images, next(iter(imported.source.inputs.values())))
        imported.pictures = self._pictures(imported.spec)
        if imported.pictures is None and channels_of(imported.spec):
            imported.notes.append(
                "how pictures are made ready is not known: --preset torchvision, or --mean, --scale and"
                " --channels, make it the net's first layer"
            )
        reader.write(imported, self.out, images)
        if self.layers:
            types = {layer.name: layer.type for layer in imported.spec.layers}
            wide = max(map(len, imported.differences), default=0)
            for name, apart in imported.differences.items():
                print(f"{name:<{wide}}  {types[name]:<16} {apart:.0e}")
        if imported.notes:
            say(*imported.notes)
        written = " and ".join(
            str(path) for path in targets if imported.arrays or path == targets[0]
        )
        note(f"{written}: {len(imported.spec.layers)} layers of {len(imported.source.nodes)} nodes")

    def _pictures(self, spec: NetSpec) -> Prepares | None:
        """What the options say of pictures. Raises MinicaffeError if they contradict."""
        asked = [one for one in ("mean", "scale", "channels") if getattr(self, one) is not None]
        if self.preset is not None and asked:
            raise MinicaffeError(f"--{asked[0]}: --preset {self.preset} says it")
        if self.preset is not None or not asked:
            return None if self.preset is None else prepares(spec, self.preset)
        mean: Any = options.mean_of(self.mean or "0", (max(1, channels_of(spec)), 1, 1))
        scale = 1.0 if self.scale is None else self.scale
        return prepares(spec, Prepares(mean, (scale,), self.channels != "bgr"))


ONNX_ONLY = ("dynamic", "tensorrt_safe", "labels", "mean", "scale", "channels")


class Export(options.OfNet, options.Weighted, options.Labelled, options.Force):
    """Write a net for other runtimes: as ONNX, or its parameters as PyTorch's state_dict.

    The net is written as it infers: in the phase TEST, without losses and what asks for labels; a layer that
    reads data becomes an input, a SoftmaxWithLoss a Softmax. Before an .onnx file is written, onnx checks it,
    and what onnxruntime makes of random numbers is compared with what minicaffe does: where they differ by
    more than 1e-4 of an output's largest number the layer is named, and nothing is written. It needs the extra
    `onnx`. Beside net.onnx a net.json says what the classes are called and how pictures are made ready; of a
    deploy net --mean, --scale, --channels and --labels say it. With --torch a .safetensors file is written,
    which needs the extra `safetensors`, and it is told what became of each parameter.

    example:
      minicaffe export deploy.prototxt --weights net.caffemodel --onnx net.onnx --dynamic batch
      minicaffe export --run runs/pets --onnx pets.onnx --tensorrt-safe
      minicaffe export lenet --weights lenet_iter_10000.npz --torch lenet.safetensors
    """

    model: Annotated[str, Arg("model", nargs="?"), f"{options.MODEL}; default: that of --run"]
    run: Annotated[
        str | None, "DIR", "a run's folder, whose best weights are written, else its newest"
    ] = None
    onnx: Annotated[str, Arg(one_of="target", required=True), "the .onnx file to write"]
    torch: Annotated[str, Arg(one_of="target", required=True), "the .safetensors file to write"]
    output: Annotated[
        str,
        Arg("-o", "--output", one_of="target", required=True),
        "FILE",
        "the file to write: as --torch does one that ends in .safetensors, any other as --onnx",
    ]
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

    def __call__(self) -> None:
        if self.output is not None:
            is_torch = self.output.lower().endswith(safetensors_file.ENDING)
            setattr(self, "torch" if is_torch else "onnx", self.output)
        to_onnx = self.onnx is not None
        target = self.onnx if to_onnx else self.torch
        if not target:
            raise MinicaffeError(f"--{'onnx' if to_onnx else 'torch'}: expected a file, got ''")
        self.check_free(target, *(writer.files_beside(target).values() if to_onnx else ()))
        if self.run is None and self.model is None:
            raise SpecError("no MODEL: give its file or name, or --run DIR, whose folder holds it")
        if self.run is not None:
            if self.weights is not None:
                raise MinicaffeError(
                    "--weights cannot be given with --run, whose best weights are taken"
                )
            self.weights = str(run_folder.weights(self.run))
            self.model = self.run if self.model is None else self.model
        for option in () if to_onnx else ONNX_ONLY:
            if getattr(self, option) not in (None, "", False):
                word = option.replace("_", "-")
                raise MinicaffeError(f"--{word} goes with --onnx: a state_dict holds no inputs")
        _ = packages() if to_onnx else safetensors_file.library()
        spec = self.read_model()
        net, notes = writer.inferring(spec)
        note(*notes)
        about = _about(self, spec, net) if to_onnx else None
        if net.learnable or self.weights is not None:
            for file, loaded in options.load_weights(net, options.weights_of(self)):
                note(f"weights: {file}: {loaded}")
        if self.fold:
            result = folded(net)
            net = result.net(device="cpu", dtype="float32", deterministic=True)
            note(*result.notes)
        if about is not None:
            words = [word for word in self.dynamic.split(",") if word]
            say(*writer.save(net, self.onnx, about, words, self.tensorrt_safe))
            note(f"classes and pictures: {writer.files_beside(self.onnx)['json']}")
        else:
            say(*"\n".join(map(str, torch.write(net, self.torch))).split("\n"))


def _about(args: Export, spec: NetSpec, net: Net) -> Preparation:
    """What the model and the options say of pictures and classes. Raises MinicaffeError if they contradict."""
    about = preparation(spec)
    changed: dict[str, Any] = {}
    asked = [one for one in ("mean", "scale", "channels") if getattr(args, one) is not None]
    if about.size is None and asked:
        raise MinicaffeError(f"--{asked[0]}: net {net.name!r} takes no pictures")
    if about.layer is not None:
        options.no_options_of_deploy_nets(args, about.layer)
    if about.size is not None and args.mean is not None:
        image = (about.channel_count, *about.size)
        mean = options.mean_of(args.mean, image)
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
    classes: Iterable[str] = ()
    if any(step.spec.type == "DetectionOutput" for step in net.steps):
        names = options.box_names(args.labels, spec, Path(args.model).parent)
        classes = (names.get(label, "") for label in range(max(names, default=-1) + 1))
    elif args.labels is not None:
        count = (1, *list(net.graph.outputs.values())[-1].shape)[:3][-1]
        classes = options.lines_of(args.labels, count)
    if classes := tuple(classes):
        changed["classes"] = classes
    return dataclasses.replace(about, **changed)


class Calibrate(options.Model, options.Weighted, options.OnDevice, options.Prepared, options.Force):
    """Measure the ranges that compilers to int8 ask for, and write their tables.

    The net is run over pictures, prepared as `minicaffe predict` does. Printed are the extremes of each blob
    and the threshold from which int8 clips: of the least KL divergence, as TensorRT and ncnn choose it, or the
    largest magnitude. --tensorrt, --ncnn and --nvdla write it in the form that each reads.

    example:
      minicaffe calibrate lenet --weights lenet_iter_10000.npz --data mnist --ncnn lenet.table
      minicaffe calibrate deploy.prototxt --weights net.caffemodel --data pictures --tensorrt net.cache
    """

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

    def __call__(self) -> None:
        if not self.tensorrt_header.isprintable() or not self.tensorrt_header.strip():
            raise MinicaffeError("--tensorrt-header: expected one line of text")
        writers: dict[str, Callable[[calibration.Calibration], str]] = {
            "tensorrt": partial(calibration.as_tensorrt, header=self.tensorrt_header),
            "ncnn": calibration.as_ncnn,
            "nvdla": calibration.as_nvdla,
        }
        files = {name: getattr(self, name) for name in writers if getattr(self, name) is not None}
        for name, file in files.items():
            if not file:
                raise MinicaffeError(f"--{name}: expected a file, got ''")
        if len({os.path.realpath(file) for file in files.values()}) < len(files):
            raise MinicaffeError(f"two tables in one file: {', '.join(files.values())}")
        self.check_free(*files.values())
        weights, spec = options.weights_of(self), for_test(self.read_model())
        net = calibration.CalibrationNet(spec, device=self.pick_device(spec))
        options.prepare(self, net.data, weights)
        for file, loaded in options.load_weights(net.net, weights):
            self.tell(f"weights: {file}: {loaded}")
        measured = calibration.calibrate(
            net, images=self.data, count=self.images, method=self.method
        )
        self.tell(*measured.notes)
        texts = {file: writers[name](measured) for name, file in files.items()}
        rows = [
            (name, f"{one.low:.4g}", f"{one.high:.4g}", f"{one.threshold:.4g}")
            for name, one in measured.blobs.items()
        ]
        say(table(rows, ("blob", "min", "max", f"T by {self.method}")))
        say(f"of {measured.images} pictures")
        for file, text in texts.items():
            checkpoint.replace(file, text.encode("utf-8", "surrogateescape"))
            self.tell(f"written: {file}")
