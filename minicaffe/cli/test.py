"""The command test, and what it and train say of their data first."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Annotated

from minicaffe.backends import device as backend
from minicaffe.cli.options import Computed, Model, Weighted, load_weights, weights_of
from minicaffe.cli.parser import number
from minicaffe.core.config.declare import ANY, NetSpec, Phase, State
from minicaffe.core.net import Net, sources
from minicaffe.core.solver import mean_outputs
from minicaffe.core.solver.report import banner
from minicaffe.core.solver.scores import score_suffixes
from minicaffe.errors import SpecError, say
from minicaffe.tools.data.reader.base import Subset
from minicaffe.tools.inference import for_test, is_scored
from minicaffe.tools.training.progress import score_table


def data_lines(nets: Sequence[Net | None]) -> list[str]:
    """Where the data of nets came from."""
    lines = []
    for net in nets:
        for layer in net.layers.values() if net is not None else ():
            data = getattr(layer, "dataset", None)
            if data is None:
                continue
            what = f"{getattr(data, 'unit', 'images')} of {data.name}"
            what += f", {data.origin}" if os.path.normpath(data.name) != data.origin else ""
            if data.warning is not None:
                what = f"BUILT-IN DRAWN DIGITS instead of {data.name}"
            images = getattr(data, "images", None)  # where it is in memory
            size = "" if images is None else f" ({backend.mib(images.nbytes)})"
            part = f", the training {unit}" if (unit := sources.trained_on(layer)) else ""
            if isinstance(reader := getattr(layer, "reader", None), Subset):
                part = f", {reader.which}"
            lines.append(f"{layer.phase} data: {len(data)} {what}{size}{part}")
        lines += _classes(net) if net is not None else []
    return list(dict.fromkeys(lines))


def _classes(net: Net) -> list[str]:
    """Where a net scores more classes than its data set names."""
    lines = []
    for step in net.steps:
        if not (is_scored(step.spec) or step.spec.type == "Accuracy") or len(step.bottoms) < 2:
            continue
        scores, label = step.bottoms[:2]
        reader = getattr(label.producer, "reader", None)
        if reader is None or label.producer.top.index(label.name) != 1 or len(scores.shape) < 2:
            continue
        count = len(reader.classes)
        if 0 < count < scores.shape[1]:
            lines.append(
                f"{reader.name} has {count} classes, {scores.name!r} scores for {scores.shape[1]}: the others"
                f" are learnt never to occur; --set layers.{scores.producer.name}.num_output={count}"
            )
    return lines


def check_filled(spec: NetSpec, phase: Phase, built: State) -> None:
    """Raise SpecError if a net of a phase, `built` so beside what the model says, has an Input."""
    state = dataclasses.replace(built, phase=phase).over(spec.state)
    empty = [layer for layer in spec.layers if layer.type == "Input" and layer.included(state)]
    if not empty:
        return
    rules = [rule for layer in spec.layers for rule in (*layer.include, *layer.exclude)]
    hint = ""
    for stage in dict.fromkeys(name for rule in rules for name in (*rule.stage, *rule.not_stage)):
        other = dataclasses.replace(state, stage=(*state.stage, stage))
        if not any(layer.type == "Input" and layer.included(other) for layer in spec.layers):
            hint = f"with --stage {stage} the net reads a data set instead; "
            break
    shapes = empty[0].options.get("shape", ())
    if phase == "TRAIN" and not hint and shapes and len(shapes[0].dim) == 4:
        hint = "with --data SOURCE the net is trained on your own data; "
    blobs = f"net.blobs[{', '.join(map(repr, empty[0].tops[:1]))}].data"
    raise SpecError(
        f"{empty[0].place()}: nothing on the command line fills an Input; {hint}"
        f"in Python, {blobs} is filled before each step"
    )


class Test(Model, Weighted, Computed):
    """Score weights on the test data of a model.

    example:
      minicaffe test lenet_iter_10000.npz
      minicaffe test lenet --weights lenet_iter_10000.npz
    """

    batches: Annotated[int | None, number(1), "default: the whole test set once"] = None

    def __call__(self) -> None:
        weights, spec = weights_of(self), for_test(self.read_model())
        check_filled(spec, "TEST", ANY)
        device, numerics = self.pick_device(spec), self.numerics()
        net = Net(spec, "TEST", device=device, numerics=numerics, keep=())
        self.tell(*data_lines([net]))
        for file, loaded in load_weights(net, weights):
            self.tell(f"weights: {file}: {loaded}")
        print(score_table(mean_outputs(net, self.batches), score_suffixes([net])))
        for warning in net.warnings:
            say(*banner(warning).split("\n"))
