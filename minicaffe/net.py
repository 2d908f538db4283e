"""A net: layers wired by the names of their blobs, every buffer, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe import backend, buffers, checkpoint, graph, steps, weights
from minicaffe.backend import on_its_device
from minicaffe.errors import ShapeError, SpecError, did_you_mean
from minicaffe.layers import REGISTRY, Blob, Context, Param
from minicaffe.layers.blob import check_type, float_type
from minicaffe.ops import conv, sums
from minicaffe.spec.declare import NetSpec, Phase
from minicaffe.spec.model import parse_model, read_model


def read(path: str | Path) -> NetSpec:
    """The model in a YAML file, its layers of the registered types. Raises SpecError."""
    return read_model(path, REGISTRY)


def parse(text: str, file: str = "<text>") -> NetSpec:
    """The model in a YAML text, its layers of the registered types. Raises SpecError.

    >>> parse("layers: [{name: data, type: Input, shape: {dim: [1, 3]}}]").layers[0].name
    'data'
    """
    return parse_model(text, REGISTRY, file)


class Net:
    """A net in one phase, on one device.

    `model` is the path of a YAML file or a NetSpec. `blobs` and `params` give what flows and what is
    learnt: `net.blobs["conv1"].data`, `net.params["conv1"][0].diff`. `dtype` stands in for the model's:
    float32, float64, on CUDA float16 and bfloat16. `engine` is how convolutions are
    computed whose own `engine` is auto, with at most `workspace_cap` bytes of workspace; `deterministic`
    makes auto go by a fixed rule, not by what is faster here. With `shapes_only` nothing is allocated
    and nothing can be computed. Raises SpecError, ShapeError, DataError, DeviceError.

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
        model: str | Path | NetSpec,
        phase: Phase = "TRAIN",
        *,
        device: str | backend.Device | None = None,
        dtype: Any = None,
        seed: int = 1,
        shapes_only: bool = False,
        engine: str = "auto",
        workspace_cap: int = conv.CAP,
        deterministic: bool = False,
    ):
        if phase not in ("TRAIN", "TEST"):
            raise SpecError(f"phase: expected TRAIN or TEST, got {phase!r}")
        conv.check_name(engine)
        self.spec = model if isinstance(model, NetSpec) else read(model)
        self.device = device if isinstance(device, backend.Device) else backend.device(device)
        dtype = float_type(self.spec.dtype if dtype is None else dtype)
        if not shapes_only:
            check_type(dtype, self.device)
        folder = self.spec.path.parent if self.spec.path else None
        self.context = Context(
            self.device,
            dtype,
            phase,
            seed,
            folder=folder,
            engine=engine,
            workspace_cap=workspace_cap,
            deterministic=deterministic,
        )
        self.steps = graph.build(self.spec, self.context)
        self.blobs: dict[str, Blob] = {}
        self.first_blobs: dict[str, Blob] = {}  # of blobs written in place, what is there before
        self.losses: list[graph.Value] = []
        self.scratch: Any = None  # where a gradient is computed that is added to another
        self.loss_scale = 1.0  # a backward pass gives the gradients of so many times the loss
        self.layers = {step.spec.name: step.layer for step in self.steps}
        self.params = {name: layer.params for name, layer in self.layers.items() if layer.params}
        if not shapes_only:
            with self.device.current():
                buffers.check_memory(self)
                weights.fill_params(self)
                buffers.allocate(self)

    @property
    def name(self) -> str:
        """The net's name."""
        return self.spec.name

    @property
    def phase(self) -> Phase:
        """TRAIN or TEST."""
        return self.context.phase

    @property
    def outputs(self) -> list[str]:
        """Names of the blobs that no layer reads."""
        return list(graph.outputs(self.steps))

    @property
    def learnable(self) -> list[Param]:
        """Every parameter once, in the order of the layers."""
        return [
            param for params in self.params.values() for param in params if param.owner is param
        ]

    @property
    def warnings(self) -> list[str]:
        """What the user must know of the data, such as that it is a stand-in."""
        sets = [getattr(layer, "dataset", None) for layer in self.layers.values()]
        return [data.warning for data in sets if data is not None and data.warning]

    @on_its_device
    def forward(
        self, start: str | None = None, end: str | None = None, **inputs: Any
    ) -> dict[str, Any]:
        """Run the layers from `start` through `end` (names; default all) on the device.

        `inputs` are host arrays for blobs, by name. Gives the arrays of the blobs that nothing
        further reads (of `end`'s tops, if given).
        """
        first, last = self._range(start, end)
        read = {} if start is None else {v.name: v.blob for v in self.steps[first].bottoms}
        self._set(inputs, self.first_blobs | read, "data")
        for step in self.steps[first : last + 1]:
            steps.forward(self, step)
        if last == len(self.steps) - 1:
            self.context.passes += 1  # a pass is over when its last layer has run
        if end is not None:
            return {value.name: value.blob.data for value in self.steps[last].tops}
        return {name: value.blob.data for name, value in graph.outputs(self.steps).items()}

    @on_its_device
    def backward(self, start: str | None = None, end: str | None = None, **diffs: Any) -> None:
        """Run the gradient from layer `start` down through `end` (default: from the losses, all).

        `diffs` are host arrays for the diffs of outputs and of `start`'s tops, by name; what a blob's
        readers above `start` have put into its diff before is added to. The diffs of parameters are
        added to: `clear_param_diffs` makes them zero.
        """
        last, first = self._range(end, start)
        targets = {name: value.blob for name, value in graph.outputs(self.steps).items()}
        if start is not None:
            targets |= {value.name: value.blob for value in self.steps[first].tops}
        for name in diffs:
            if name in self.blobs and name not in targets:
                raise ShapeError(
                    f"the diff of blob {name!r} is computed from the layers that read it"
                )
        self._set(diffs, targets, "diff")
        written = steps.written_before(self, start, diffs)
        for step in reversed(self.steps[last : first + 1]):
            steps.backward(self, step, written)

    @on_its_device
    def loss_into(self, total: Any) -> Any:
        """Write the weighted sum of all losses of the last forward pass into `total`, of shape ()."""
        total.fill(0)
        for value in self.losses:
            sums.total(value.blob.data, total, self.scratch, scale=value.loss_weight, add=True)
        return total

    @property
    @on_its_device
    def loss(self) -> float:
        """The weighted sum of all losses of the last forward pass; waits for the device."""
        return float(self.loss_into(self.device.xp.empty((), self.context.sum_dtype)))

    @on_its_device
    def clear_param_diffs(self) -> None:
        """Make every parameter's diff zero."""
        for param in self.learnable:
            param.diff.fill(0)

    @on_its_device
    def reshape(self, **shapes: tuple[int, ...]) -> None:
        """Give Input blobs new shapes and infer all others anew; parameters stay.

        Raises ShapeError, and leaves the net as it was, if the shapes do not fit.
        """
        buffers.reshape(self, shapes)

    @on_its_device
    def load(
        self, source: str | Path | Mapping[str, Any], strict: bool = True
    ) -> weights.LoadReport:
        """Load parameters by name: entry `conv1__0` is the first parameter of layer conv1.

        Strict: raises CheckpointError, before anything is changed, if an entry is missing, unused, or
        of another shape. In any case it raises if nothing fits, or if an entry holds no finite
        numbers. Entries led by '@' are a solver's state, and passed over.
        """
        return weights.load(self, source, strict)

    @on_its_device
    def weights(self) -> dict[str, np.ndarray]:
        """Every parameter as a host array, by the name `load` knows; those of 16 bits in float32."""
        return {name: param.to_host() for name, param in weights.named(self).items()}

    def save(self, path: str | Path) -> None:
        """Write every parameter to an .npz file, atomically."""
        checkpoint.write(path, self.weights())

    def check(self) -> None:
        """Raise the MinicaffeError that explains a loss that is no finite number, if a layer knows one."""
        for step in self.steps:
            with step.named():
                step.layer.check()

    def _set(self, arrays: Mapping[str, Any], blobs: Mapping[str, Blob], which: str) -> None:
        for name, array in arrays.items():
            if name not in blobs:
                raise ShapeError(f"there is no blob {name!r}{did_you_mean(name, blobs)}")
            target = blobs[name]
            if np.shape(array) != target.shape:
                raise ShapeError(
                    f"blob {name!r} has shape {target.shape}, got {np.shape(array)}; "
                    f"net.reshape({name}={np.shape(array)}) would change it"
                )
            if backend.on_cuda(array):
                self.device.xp.copyto(getattr(target, which), array)
            else:
                self.device.copy_from_host(getattr(target, which), np.asarray(array))

    def _range(self, start: str | None, end: str | None) -> tuple[int, int]:
        names = list(self.layers)
        for name in (start, end):
            if name is not None and name not in names:
                raise SpecError(f"there is no layer {name!r}{did_you_mean(name, names)}")
        first = 0 if start is None else names.index(start)
        return first, len(names) - 1 if end is None else names.index(end)
