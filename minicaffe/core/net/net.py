"""A net: layers connected by the names of their blobs, all buffers, forward and backward."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.backends.device import PRECISIONS
from minicaffe.backends.dispatch import on_its_device, replayed
from minicaffe.core.config.declare import TRAIN, NetSpec, Phase, State
from minicaffe.core.layers import Blob, Context, Param
from minicaffe.core.layers.blob import check_type, float_type
from minicaffe.core.layers.context import Numerics, Share
from minicaffe.core.net import debug, graph, memory, run, weights
from minicaffe.core.net.inputs import diff_targets, fitting, given_to, put
from minicaffe.core.net.model import holds_weights, read
from minicaffe.core.net.step import Step
from minicaffe.core.net.summary import summary
from minicaffe.core.net.weights import fill_params
from minicaffe.core.ops import arrays, sums
from minicaffe.core.plugins import hooks
from minicaffe.errors import SpecError, note

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Access:
    """Who may run a net's passes: the holder of `lock`. `shared`: not only the main thread has run one."""

    lock: Any = field(default_factory=threading.RLock)
    shared: bool = False


def in_turns(work: F) -> F:
    """A method of what has an `access`; arrays by name that it returns are copies once that is shared."""

    @functools.wraps(work)
    def alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        access = self.access
        with access.lock:
            access.shared |= threading.current_thread() is not threading.main_thread()
            answers = work(self, *args, **kwargs)
            if access.shared and isinstance(answers, dict):
                return {name: array.copy() for name, array in answers.items()}
            return answers

    return cast(F, alone)


class Net:
    """A net in one phase, on one device.

    `phase`, by default that of the model's `state`, else TRAIN, `level` and `stages` decide which layers take
    part. `model` is an argument of `read` (a file of any kind, a name, a mapping) or a NetSpec. `blobs` and
    `params` hold blobs and parameters: `net.blobs["conv1"].data`, `net.params["conv1"][0].diff`;
    `first_blobs` holds the blobs before any layer in place. `numerics`, or its fields by name, say how it
    computes: `dtype`, `precision`, `engine`, `workspace_cap`, `deterministic`. The weights of a snapshot or
    of a run's best test are loaded, unless `weights` is false. With `shapes_only` nothing is allocated or
    computed. With `keep`, names of blobs or (), all others share memory if they can: in TEST their data, and
    there is no backward pass; in TRAIN, or with force_backward, their diffs. `share`: this rank's share of
    each batch. Raises SpecError, ShapeError, DataError, DeviceError, and CheckpointError for weights that do
    not fit.

    >>> from minicaffe.core.net import parse
    >>> net = Net(parse('''
    ... layers:
    ...   - {name: data, type: Input, shape: {dim: [2, 3]}}
    ...   - {name: ip, type: InnerProduct, num_output: 4, weight_filler: {type: constant, value: 1}}
    ... '''), device="cpu")
    >>> net.forward(data=np.ones((2, 3)))["ip"][0]
    array([3., 3., 3., 3.], dtype=float32)
    """

    def __init__(
        self,
        model: str | Path | Mapping[str, Any] | NetSpec,
        phase: Phase | None = None,
        *,
        level: int | None = None,
        stages: Sequence[str] = (),
        device: str | backend.Device | None = None,
        numerics: Numerics | None = None,
        seed: int = 1,
        weights: bool = True,
        shapes_only: bool = False,
        keep: Sequence[str] | None = None,
        share: Share | None = None,
        **by_name: Any,
    ):
        if phase not in ("TRAIN", "TEST", None):
            raise SpecError(f"phase: expected TRAIN or TEST, got {phase!r}")
        numerics = replace(numerics or Numerics(), **by_name)
        self.spec = model if isinstance(model, NetSpec) else read(model)
        base = device if isinstance(device, backend.Device) else backend.device(device)
        asked = self.spec.precision
        precision = numerics.precision or (base.precision if asked == PRECISIONS[0] else asked)
        self.precision, self.device = precision, base.of_precision(precision)
        dtype = float_type(self.spec.dtype if numerics.dtype is None else numerics.dtype)
        numerics = replace(numerics, dtype=dtype, precision=precision)
        if not shapes_only:
            check_type(dtype, self.device)
        state = State.given(phase, level, stages).over(self.spec.state).over(TRAIN)
        forward_only = keep is not None and state.phase == "TEST" and not self.spec.force_backward
        more = self.spec.beside, forward_only, share or Share()
        self.context = Context(self.device, numerics, state, seed, *more)
        built = self.graph = graph.build(self.spec, self.context)
        self.steps, self.layers, self.losses = built.steps, built.layers, built.losses
        self.params, self.learnable = built.params, built.learnable
        self.memory = memory.Memory(self.graph, memory.names(self.spec, keep))
        self.blobs, self.first_blobs = self.memory.blobs, self.memory.first_blobs
        self.passes = replayed("inference", run.Forward)(self.graph, self.memory)
        self._left_out: set[Step] = set()  # their tops were inputs of the last forward pass
        # Prints what passes compute; waits for it
        self.debug: debug.Say | None = note if self.spec.debug_info else None
        # Called after a layer has run backward; it may return work to do
        self.then: Callable[[Step], Callable[[], Any] | None] | None = None
        self.loss_scale = 1.0  # a backward pass computes the gradients of the loss times this
        self.access, self.told_of_zeros = Access(), False
        self.lock = self.access.lock  # held by each pass; hold it to do more undisturbed
        if not shapes_only:
            with self.device.current():
                memory.check(self.graph, self.memory.sharing)
                fill_params(self.graph)
                self.memory.take(self.graph)
            if weights and not isinstance(model, NetSpec) and holds_weights(model):
                self.load(model)

    def __repr__(self) -> str:
        return summary(self.graph, self.memory.keep)

    def _repr_html_(self) -> str:
        return hooks().page(self.graph)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles hold spec, inputs' shapes, passes and parameters, not the blobs."""
        context, taken = self.context, bool(self.memory.blobs)
        numerics = replace(context.numerics, dtype=str(context.dtype))
        settings = {
            "phase": context.phase,
            "level": context.state.level,
            "stages": context.state.stage,
            "device": context.device.name,
            "numerics": replace(numerics, precision=context.device.precision),
            "seed": context.seed,
            "shapes_only": not taken,
            "keep": self.memory.keep,
        }
        since = {
            "shapes": {name: value.shape for name, value in memory.resizable(self.graph).items()},
            "params": [(p.to_host(), p.lr_mult, p.decay_mult) for p in self.learnable if taken],
            "passes": context.passes,
        }
        return again, (type(self), self.spec, settings, since)

    @property
    def name(self) -> str:
        """The net's name."""
        return self.spec.name

    @property
    def phase(self) -> Phase:
        """TRAIN or TEST."""
        return self.context.phase

    @property
    def named_params(self) -> dict[str, Param]:
        """Every parameter once, by its name in `load`: `conv1__0`."""
        return weights.named(self.graph)

    @property
    def outputs(self) -> list[str]:
        """Names of the blobs that no layer reads."""
        return list(self.graph.outputs)

    @property
    def warnings(self) -> list[str]:
        """Warnings about the data, for example that it is a stand-in."""
        sets = [getattr(layer, "dataset", None) for layer in self.layers.values()]
        return list(dict.fromkeys(d.warning for d in sets if d is not None and d.warning))

    @in_turns
    @on_its_device
    def forward(
        self, start: str | None = None, end: str | None = None, **inputs: Any
    ) -> dict[str, Any]:
        """Run the layers from `start` through `end` (names; default all) on the device.

        `inputs` are host arrays for blobs, by name: tops of layers without bottoms, and bottoms that no layer
        of these computes. A layer does not run if all its tops are inputs. Returns the blobs that no layer
        reads, or the tops of `end`: the net's own arrays or, once other threads than the main one run passes,
        copies; passes of several threads wait for each other. Raises ShapeError for other blobs, for other
        shapes (see `reshape`), for some but not all tops of a layer that reads data, and for a `start` that
        reads an overwritten blob; SpecError for unknown layers, or layers out of order.
        """
        self.memory.check_taken()
        first, last = self.graph.range(start, end)
        steps = self.steps[first : last + 1]
        blobs: dict[str, Blob] = {}
        if inputs or self._left_out:
            blobs, left_out = given_to(self.graph, first, last, inputs)
            inputs = fitting(inputs, blobs, "data")
            self._left_out = (self._left_out - set(steps)) | left_out
        with self.memory.sharing.over("data", first, last, [blobs[name] for name in inputs]):
            if inputs:
                put(inputs, blobs, "data")
            if self.debug is not None:
                debug.tell_inputs(self.debug, self.steps, self.device)
            self.passes.run(steps, self._left_out, self.debug)
        self.context.passes += last == len(self.steps) - 1  # then the pass is over
        tops = self.graph.outputs.values() if end is None else self.steps[last].tops
        return {value.name: value.blob.data for value in tops}

    @in_turns
    @on_its_device
    def backward(self, start: str | None = None, end: str | None = None, **diffs: Any) -> None:
        """Run the gradient from layer `start` down through `end` (default: from the losses, all).

        `diffs` are host arrays for diffs of outputs and of `start`'s tops, by name. Gradients are added to
        those of readers above `start`, and to the diffs of parameters (see `clear_param_diffs`).
        Raises ShapeError for a diff that no layer reads, and if a layer has not run forward.
        """
        self.memory.check_taken()
        if not (self.losses or self.told_of_zeros):
            debug.tell_of_zeros(self)
        last, first = self.graph.range(end, start)
        begin = None if start is None else first
        targets: dict[str, Blob] = {}
        if diffs:
            targets = diff_targets(self.graph, begin, diffs)
            diffs = fitting(diffs, targets, "diff")
        written = run.written_before(self.steps, begin, diffs)
        more = self.device, written, self.memory.scratch, self.loss_scale, self.debug
        with self.memory.sharing.over("diff", last, first, [targets[name] for name in diffs]):
            if diffs:
                put(diffs, targets, "diff")
            for step in reversed(self.steps[last : first + 1]):
                if step not in self._left_out:
                    run.backward(step, *more)
                if self.then is not None and (work := self.then(step)) is not None:
                    work()
        if self.debug is not None:
            debug.tell_params(self.debug, self.learnable, self.device)

    @on_its_device
    def loss_into(self, total: Any) -> Any:
        """Write the weighted sum of all losses of the last forward pass into `total`, of shape ()."""
        self.memory.check_taken()
        for i, value in enumerate(self.losses):
            data, scratch = value.blob.data, self.memory.scratch
            sums.total(data, total, scratch, scale=value.loss_weight, add=i > 0)
        return total if self.losses else arrays.fill(total, 0)

    @property
    @on_its_device
    def loss(self) -> float:
        """The weighted sum of all losses of the last forward pass; waits for the device."""
        return float(self.loss_into(self.device.xp.empty((), self.context.sum_dtype)))

    @on_its_device
    def clear_param_diffs(self) -> None:
        """Set every parameter's diff to zero."""
        for param in self.learnable:
            param.diff.fill(0)

    @in_turns
    @on_its_device
    def reshape(self, **shapes: tuple[int, ...]) -> None:
        """Set new shapes for the blobs of Input layers and infer all others; parameters do not change.

        Blobs of a Data layer can have another number of samples. Raises ShapeError, and leaves the net
        unchanged, if the shapes do not fit.
        """
        self.passes.forget()
        memory.reshape(self.graph, self.memory, shapes)

    def share_with(self, other: Net) -> None:
        """Use the values of another net's parameters, layer by layer of one name. Raises ShapeError."""
        weights.share(self.graph, other.graph)

    @on_its_device
    def load(
        self,
        source: str | Path | Mapping[str, Any],
        strict: bool | None = None,
        origin: str | None = None,
        finite: bool = True,
    ) -> weights.LoadReport:
        """Load parameters by name: entry `conv1__0` is the first parameter of layer conv1.

        A file is an .npz or .safetensors, or Caffe's .caffemodel or .caffemodel.h5. If `strict`, the default
        for all but Caffe's, raises CheckpointError, before anything is changed, if an entry is missing,
        unused, or of another shape; a net of the phase TEST does without those of losses and of layers that
        the file's net has in TRAIN alone. For Caffe's files the default ignores missing and unused layers, as
        Caffe does, and only layers that both have must match; with `strict` false they need not. It always
        raises if nothing fits, or if an entry is not finite, unless `finite` is false. Entries that begin with
        '@' are no parameters, and are ignored. Errors name the file, or `origin`.
        """
        return weights.load(self.graph, source, strict, origin, finite)

    @on_its_device
    def weights(self) -> dict[str, np.ndarray]:
        """Every parameter as a host array, by its name in `load`; float16 and bfloat16 as float32."""
        self.memory.check_taken()
        return {name: param.to_host() for name, param in self.named_params.items()}

    def save(self, path: str | Path) -> None:
        """Write every parameter, atomically: to .npz or .safetensors, with the net's text, or to Caffe's."""
        weights.save(self.graph, path, self.weights())

    def check(self) -> None:
        """Raise the MinicaffeError that explains a loss that is not finite, if a layer knows one."""
        for step in self.steps:
            with step:
                step.layer.check()


def again(kind: Any, spec: NetSpec, settings: dict[str, Any], since: Mapping[str, Any]) -> Any:
    """Build a net of a class again, and restore the state of the other; what is pickled names this."""
    net = kind(spec, **settings)
    memory.reshape(net.graph, net.memory, since["shapes"])
    net.context.passes = since["passes"]
    for param, (values, *multipliers) in zip(net.learnable, since["params"], strict=False):
        param.load(values)
        param.lr_mult, param.decay_mult = multipliers
    return net
