"""Show how each convolution is computed: its sizes, the engines' speed and error, the choice and why.

Times that are not known yet are measured and stored, and if the machine was busy then, measured again the
next time that it is quiet; --measure measures all again. It times the engines that `auto` chooses from and the
one that you select by name; with --all, it times every engine that can compute the convolution, and does not
store these times. The choice (*) is the one that training with the same options would make. A Deconvolution is
the adjoint of the convolution shown: its forward pass is that one's input gradient. On CUDA an InnerProduct is
a convolution of images of one place: `implicit` is our kernel, `batched` is cuBLAS.
With --net it shows which layers of a net that infers are computed with others, in one pass over memory.
With --step it shows, row by row, what a training iteration runs, and what it does in Python, and why; with
--phase TEST, what a forward pass runs.

example:
  minicaffe explain lenet
  minicaffe explain lenet --batch 256 --workspace 64
  minicaffe explain lenet --measure
  minicaffe explain lenet --all
  minicaffe explain resnet50 --net
  minicaffe explain lenet --step
  minicaffe explain lenet --step --phase TEST
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Annotated, Any

import numpy as np

from minicaffe.cli.explain_step import explain_net, explain_pass, explain_step
from minicaffe.cli.options import Computed, Model, Phased
from minicaffe.cli.parser import number
from minicaffe.cli.streams import say
from minicaffe.core.layers.blob import check_type
from minicaffe.core.layers.convolution import Filtered
from minicaffe.core.net import Net
from minicaffe.core.net.step import Step
from minicaffe.core.net.summary import table
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv import autotune_cache
from minicaffe.core.ops.conv.autotune import DIRECTIONS, Finding, measure
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry
from minicaffe.errors import MinicaffeError, mib

HEAD = ("engine", "forward", "input gradient", "weight gradient", "errors", "workspace")


class Options(Model, Computed, Phased):
    """The options."""

    batch: Annotated[int | None, number(1), "samples, instead of the model's"] = None
    measure: Annotated[bool, "measure again, instead of using stored times"] = False
    all: Annotated[bool, "time every engine that can compute the convolution"] = False
    net: Annotated[bool, "explain which layers of inference are computed as one"] = False
    step: Annotated[bool, "explain an iteration or a pass, not the convolutions"] = False


def run(args: Options) -> None:
    """Explain; no blob is allocated, but for --step and --net."""
    if (args.step or args.net) and (args.batch or args.measure or args.all):
        which = "--step" if args.step else "--net"
        raise MinicaffeError(f"{which} is of the net as it is: no --batch, --measure or --all")
    if args.net and (args.step or args.phase == "TRAIN"):
        raise MinicaffeError("--net is of inference: no --step, and no --phase but TEST")
    spec = args.read_model()
    device = args.pick_device(spec)
    if args.net:
        explain_net(spec, device, args.engine_settings())
        return
    if args.step:
        tell = explain_pass if args.phase == "TEST" else explain_step
        tell(spec, device, args.engine_settings())
        return
    net = Net(spec, args.phase, device=device, shapes_only=True, **args.engine_settings())
    check_type(net.context.dtype, device)
    say(f"{net.name or args.model}, phase {net.phase}, {net.context.dtype}, on {device.name}")
    count = 0
    anew: list[Case] = []
    for step in net.steps:
        layer: Any = step.layer
        if not isinstance(getattr(layer, "plan", None), conv.Plan):
            continue
        if args.batch is not None:
            resize(step, args.batch)
        with step.named():
            plan(layer, anew if args.measure else None)
            adjoint = "the adjoint of " if step.spec.type == "Deconvolution" else ""
            print(f"\n{step.spec.name}: {adjoint}{sizes(layer.plan.case.g, net.context.dtype)}")
            if not layer.plan.case.too_large:
                compare(layer.plan, args.all)
            for title, way in zip(HEAD[1:4], DIRECTIONS, strict=True):
                print(f"  {title}: {layer.plan.names[way]} ({layer.plan.reasons[way]})")
        count += 1
    print(
        f"\nmeasurements: {autotune_cache.path(device)}"
        if count
        else "there is no convolution in it"
    )


def plan(layer: Any, anew: list[Case] | None) -> None:
    """Plan a layer's convolution; given a list of those measured anew, measure it too, unless it is in it."""
    layer.choose(deterministic=True)  # its case, with no measurement
    if anew is not None and layer.plan.case not in anew:
        anew.append(layer.plan.case)
        autotune_cache.forget(layer.plan.case)
    layer.allocate()


def resize(step: Step, batch: int) -> None:
    """Give a layer so many samples."""
    layer: Any = step.layer
    if isinstance(layer, Filtered):
        layer.geometry = dataclasses.replace(layer.geometry, n=batch)
    else:
        layer.m = layer.m * batch // step.bottoms[0].shape[0]


def sizes(g: ConvGeometry, dtype: np.dtype) -> str:
    """Shapes, and what follows from them."""
    x, y, weight = ("x".join(map(str, s)) for s in (g.x_shape, g.y_shape, g.weight_shape))
    elements = sum(map(math.prod, (g.x_shape, g.y_shape, g.weight_shape)))
    columns, moved = g.n * g.column_elements, elements * dtype.itemsize
    times = columns / max(1, math.prod(g.x_shape))
    window = [(name, getattr(g.window, name)) for name in ("stride", "pad", "dilation")]
    shown = [f"{name} {'x'.join(map(str, size))}" for name, size in window]
    return "\n  ".join(
        [
            f"{x} -> {y}, weight {weight}, {', '.join(shown)}, group {g.group}",
            f"{g.multiply_adds:,} multiply-adds, {mib(moved)} moved (x, weight and y), "
            f"{2 * g.multiply_adds / max(1, moved):.1f} flop/byte",
            f"column matrix {mib(columns * dtype.itemsize)}, each entry of x {times:.1f} times",
        ]
    )


def compare(plan: conv.Plan, everything: bool) -> None:
    """Print the engines of one convolution, those taken with a star."""
    case, rows, out = plan.case, [], []
    names = {*(case.able if everything else case.candidates), *plan.names.values()}
    known = names == set(case.candidates)
    found = autotune_cache.findings(case)[0] if known else timed(case, tuple(sorted(names)))
    for name in conv.ENGINES:
        if why := case.refuses(name):
            out.append(f"  {name}: {why}")
        elif name not in names:
            out.append(f"  {name}: {case.passes_over(name)}")
        else:
            error = " ".join(f"{found[way].error[name]:.0e}" for way in DIRECTIONS)
            times = [_ms(found[way].ms.get(name), plan.names[way] == name) for way in DIRECTIONS]
            work = mib(case.workspace(name) * case.dtype.itemsize)
            rows.append((f"  {name}", *times, error, work))
    print(table(rows, ("  engine", *(f"{way} ms" for way in HEAD[1:4]), *HEAD[4:])))
    most = " ".join(f"{case.tolerance(way):.0e}" for way in DIRECTIONS)
    print(f"  errors of the three against float64, root mean squares; at most {most}")
    for line in out:
        print(line)


@functools.cache
def timed(case: Case, names: tuple[str, ...]) -> dict[str, Finding]:
    """The times of some engines side by side, measured once for all layers of a shape."""
    return measure(case, names)


def _ms(value: float | None, chosen: bool) -> str:
    return "inaccurate" if value is None else f"{'* ' if chosen else ''}{value:.3f}"
