"""caffe.Net: a net of ours under the names of pycaffe, whose passes are as Caffe runs them.

A name is one blob, shapes may have changed, scripts may have written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

import minicaffe
from minicaffe.core import net as nets
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.blob import numbers
from minicaffe.core.net import memory
from minicaffe.core.net import weights as files
from minicaffe.core.net.net import in_turns
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import ByName, DataError, LayerError, MinicaffeError, ShapeError, SpecError
from minicaffe.interop.caffe.model import YAML, read_prototxt
from minicaffe.interop.caffe.weights import Reader
from minicaffe.interop.pycaffe import mode
from minicaffe.interop.pycaffe.blob import Blob, FlowBlob, ParamBlob, push
from minicaffe.interop.pycaffe.host_blob import HostBlob
from minicaffe.interop.pycaffe.python import Python
from minicaffe.tools.data.layers.memory_data import MemoryData

Arrays = dict[str, np.ndarray]
Parts = dict[str, list[Any]]  # of arrays, batch by batch
Watcher = Callable[[int], Any]
FREE = ("Input", "DummyData")  # whose tops stay as a script has reshaped them


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Within it, what the user's own layers raise comes out as it was raised, as from pycaffe."""
    try:
        yield
    except LayerError as error:
        cause: BaseException | None = error
        while isinstance(cause, LayerError):  # it has been given its place
            cause = cause.__cause__ or cause.__context__
        raise cause or error from None


def model(source: str | Path | NetSpec, solver_type: str | None = None) -> NetSpec:
    """The model in a file: ours by the endings of YAML, else Caffe's text. Raises SpecError.

    Of a solver in Caffe's text the keys are read that one of `solver_type` takes, if that is given.
    """
    if isinstance(source, NetSpec):
        return source
    if str(source).lower().endswith(YAML):
        return nets.read(source)
    return read_prototxt(source, REGISTRY, solver_type=solver_type)


def _watcher(when: str, moment: str) -> Callable[[Net, Watcher], None]:
    def watch(self: Net, function: Watcher) -> None:
        for number, step in enumerate(self.net.steps):
            step.watchers.setdefault(when, []).append(partial(tell, self, function, number, step))

    def tell(net: Net, function: Watcher, number: int, step: Step) -> None:
        if when.startswith("after"):
            net._passed("data" if when == "after_forward" else "diff", [step])
        function(number)
        push()

    watch.__name__, watch.__doc__ = when, f"Call a function with the number of each layer {moment}."
    return watch


class Net:
    """A net in a phase, caffe.TRAIN or caffe.TEST, for which `level` and `stages` choose layers too.

    `network_file` is a prototxt, whatever its name, or a model of ours (.yaml); `weights` a file of Caffe's
    or an .npz of ours. Net(file, weights, phase), as of 2014, will do too. It is built where `set_mode_cpu`,
    `set_mode_gpu` and `set_device` say, and stays there. By name, in the order of the layers: `blobs`,
    `blob_loss_weights`, `params` (the lists of each layer's), `layer_dict`, `top_names`, `bottom_names`;
    `layers` is the list of layers, `inputs` and `outputs` are names of blobs. Caffe's split layers are not
    there. Raises SpecError, ShapeError, DataError, DeviceError, CheckpointError, and what a layer in Python
    raises.

    >>> from minicaffe import caffe as text, pycaffe as caffe
    >>> net = caffe.Net(text.parse('''
    ... input: "x" input_shape { dim: 2 dim: 3 }
    ... layer { type: "Power" name: "twice" bottom: "x" top: "twice" power_param { scale: 2 } }
    ... '''), caffe.TEST)
    >>> net.blobs["x"].data[...] = [[1, 2, 3], [4, 5, 6]]
    >>> net.forward()["twice"].tolist()
    [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]
    """

    def __init__(
        self,
        network_file: str | Path | NetSpec,
        phase: Any = None,
        level: Any = None,
        stages: Sequence[str] | None = None,
        weights: str | Path | None = None,
    ):
        if isinstance(phase, (str, os.PathLike)):
            phase, weights, level = level, phase, None
        if phase not in (0, 1):
            raise SpecError(f"phase: expected caffe.TRAIN or caffe.TEST, got {phase!r}")
        settings: dict[str, Any] = {"device": mode.device_name(), "seed": mode.random_seed(1)}
        settings |= {"level": level or 0, "stages": stages or ()}
        with own_errors():
            self._show(minicaffe.Net(model(network_file), "TEST" if phase else "TRAIN", **settings))
        if weights is not None:
            self.copy_from(weights)

    @classmethod
    def of(cls, net: minicaffe.Net) -> Net:
        """A net of ours under these names; the same net."""
        self = cls.__new__(cls)
        self._show(net)
        return self

    def _show(self, net: minicaffe.Net) -> None:
        if net.context.dtype.itemsize == 2:
            raise SpecError(
                f"dtype {net.context.dtype}: blobs are NumPy arrays here, of 32 or 64 bits; "
                "minicaffe.Net and minicaffe.Solver take it"
            )
        self.net, steps = net, net.steps
        values: dict[str, list[Any]] = {}
        for step in steps:
            for value in step.tops:
                values.setdefault(value.name, []).append(value)
        self.blobs = ByName("blob", {name: FlowBlob(some) for name, some in values.items()})
        self.blob_loss_weights = {name: some[-1].loss_weight for name, some in values.items()}
        params = {name: [ParamBlob(p) for p in some] for name, some in net.params.items()}
        self.params = ByName("layer with parameters", params)
        self.layer_dict = ByName("layer", {s.spec.name: shown(s, params) for s in steps})
        self.layers, self._layer_names = list(self.layer_dict.values()), list(self.layer_dict)
        self._numbers = ByName("layer", {name: i for i, name in enumerate(self.layer_dict)})
        self.top_names = {s.spec.name: [v.name for v in s.tops] for s in steps}
        self.bottom_names = {s.spec.name: [v.name for v in s.bottoms] for s in steps}
        self._blob_names, self._blobs = list(self.blobs), list(self.blobs.values())
        self.inputs = [v.name for s in steps if s.spec.type == "Input" for v in s.tops]
        self.outputs = sorted(net.outputs)

    def __repr__(self) -> str:
        return repr(self.net)

    @in_turns
    def forward(
        self,
        blobs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **inputs: Any,
    ) -> dict[str, Any]:
        """Run the layers from `start` through `end`; returns the outputs, or the tops of `end`, and `blobs`.

        `inputs` are arrays for all inputs of the net, by name. What is given are the blobs' own arrays, which
        the next pass writes into. Raises ShapeError for other inputs or another batch, KeyError for a layer.
        """
        first = 0 if start is None else self._numbers[start]
        last = len(self.layers) - 1 if end is None else self._numbers[end]
        self._put("data", inputs, self.inputs)
        self._run(first, last)
        wanted = self.outputs if end is None else self.top_names[end]
        return {name: self.blobs[name].data for name in [*wanted, *(blobs or ())]}

    @in_turns
    def backward(
        self,
        diffs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **given: Any,
    ) -> dict[str, Any]:
        """Run the gradient from `start` down through `end`; returns that of inputs, or of `end`'s bottoms.

        And that of the blobs `diffs`. `given` are arrays for the gradients of all outputs, by name; without
        them it begins with what `diff` of the outputs holds, which of a loss is its weight. Gradients of
        parameters are added to. Raises as `forward` does.
        """
        first = len(self.layers) - 1 if start is None else self._numbers[start]
        last = 0 if end is None else self._numbers[end]
        self._put("diff", given, self.outputs)
        self._backward(first, last)
        wanted = self.inputs if end is None else self.bottom_names[end]
        return {name: self.blobs[name].diff for name in [*wanted, *(diffs or ())]}

    def _put(self, which: str, arrays: Mapping[str, Any], names: Sequence[str]) -> None:
        what = "inputs" if which == "data" else "outputs"
        if arrays and set(arrays) != set(names):
            takes = f"the net's {what} are {', '.join(names) or 'none'}"
            raise ShapeError(f"{takes}; arrays were given for {', '.join(arrays)}")
        for name, array in arrays.items():
            shape = self.blobs[name].shape
            values = numbers(array, f"blob {name!r}", shape)
            if values.shape[:1] != shape[:1]:
                raise ShapeError(f"{name}: expected a batch of {shape}, got {values.shape}")
            getattr(self.blobs[name], which)[...] = values

    def _run(self, first: int, last: int) -> None:
        """Run the layers of these numbers, once they have taken the shapes of their blobs."""
        self._take_shapes(last)
        steps = self.net.steps[first : last + 1]
        self._ready("data", steps)
        self.net.memory.sharing.holds = {}  # Caffe goes by what the data hold
        with own_errors():
            self.net.forward(self.net.steps[first].spec.name, self.net.steps[last].spec.name)
        self._passed("data", steps)

    def _forward(self, first: int, last: int) -> float:
        """Run the layers of these numbers; returns what they add to the loss, and waits for the device."""
        self._run(first, last)
        host = self.net.device.to_host
        values = [value for step in self.net.steps[first : last + 1] for value in step.tops]
        return sum(v.loss_weight * float(host(v.blob.data).sum()) for v in values if v.loss_weight)

    def _backward(self, first: int, last: int) -> None:
        """Run the gradient from layer `first` down to `last`, from what blobs and diffs hold."""
        net = self.net
        if net.memory.fits is not None:
            self._take_shapes(first)
        steps = [step for step in net.steps[last : first + 1][::-1] if step.layer.runs_backward]
        self._ready("diff", steps)
        outputs = [value for step in steps for value in step.tops if not value.readers]
        gradients = {value.name: value.blob.diff for value in outputs}
        with own_errors(), net.device.current():
            for step in steps[::-1]:
                if not step.ran:
                    self._prime(step)
            net.backward(net.steps[first].spec.name, net.steps[last].spec.name, **gradients)
        self._passed("diff", steps)

    def _prime(self, step: Step) -> None:
        """Have a layer that has not run know what its gradient needs; what its blobs hold stays."""
        push()
        for value in (*step.bottoms, *step.tops):
            self.blobs[value.name].bring("data", value)
        layer, bottoms = step.layer, [value.blob.data for value in step.bottoms]
        if isinstance(layer, Python):
            layer.show(*bottoms)  # and not run, as in Caffe
        else:
            changed = [*(value.blob.data for value in step.tops), *layer.running]
            before = [array.copy() for array in changed]
            with step:
                layer.prepare()
                self.net.context.slots.send()
                layer.forward(*bottoms)
            for array, held in zip(changed, before, strict=True):
                self.net.device.xp.copyto(array, held)
        step.ran = True

    def _ready(self, which: str, steps: Iterable[Step]) -> None:
        """Before these steps run: have the net hold what scripts see, and have written."""
        push()
        done: set[Value] = set()
        for step in steps:
            # A step without bottoms may leave its tops as they are
            for value in step.tops if which == "diff" else step.bottoms or step.tops:
                if value not in done:
                    self.blobs[value.name].bring(which, value)
            done.update(_written(which, step))

    def _passed(self, which: str, steps: Iterable[Step]) -> None:
        """After these steps have run: show what they have written."""
        for step in steps:
            for value in _written(which, step):
                self.blobs[value.name].show(which, value)

    def _top_ids(self, layer: int) -> list[int]:
        """The numbers, in `_blobs`, of the tops of a layer of this number."""
        return list(map(self._blob_names.index, self.top_names[self._layer_names[layer]]))

    def _bottom_ids(self, layer: int) -> list[int]:
        """The numbers, in `_blobs`, of the bottoms of a layer of this number."""
        return list(map(self._blob_names.index, self.bottom_names[self._layer_names[layer]]))

    def forward_all(self, blobs: Sequence[str] | None = None, **inputs: Any) -> Arrays:
        """`forward` of any number of samples, by batches; returns new arrays. Raises ShapeError."""
        parts: Parts = {}
        with self.net.lock:
            for batch in self._batch(inputs):
                _keep(parts, self.forward(blobs=blobs, **batch))
        return self._whole(parts, [*self.outputs, *(blobs or ())], _count(inputs))

    def forward_backward_all(
        self, blobs: Sequence[str] | None = None, diffs: Sequence[str] | None = None, **arrays: Any
    ) -> tuple[Arrays, Arrays]:
        """`forward` and `backward` for any number of samples; `arrays` are inputs and gradients of outputs."""
        data: Parts = {}
        gradients: Parts = {}
        parts = [{k: arrays[k] for k in ks if k in arrays} for ks in (self.inputs, self.outputs)]
        ways = [self._batch(part) if part else iter(()) for part in parts]
        with self.net.lock:
            for forward, backward in zip_longest(*ways, fillvalue={}):
                _keep(data, self.forward(blobs=blobs, **forward))
                _keep(gradients, self.backward(diffs=diffs, **backward))
        whole = self._whole(data, [*self.outputs, *(blobs or ())], _count(arrays))
        return whole, self._whole(gradients, [*self.inputs, *(diffs or ())], _count(arrays))

    def _batch(self, arrays: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Arrays cut into batches of the net's size, the last filled with zeros. Raises ShapeError by axes."""
        for name in [name for name in arrays if name in self.blobs]:
            wanted = self.blobs[name].shape
            got = numbers(arrays[name], f"blob {name!r}", wanted).shape
            if len(got) != len(wanted):
                expected = f"expected samples of {wanted[1:]} along a first axis"
                raise ShapeError(f"{name}: {expected}, got an array of {got}")
        size = self._blobs[0].shape[0]
        for first in range(0, _count(arrays), size):
            rows = slice(first, first + size)
            batch = {name: np.asarray(array[rows]) for name, array in arrays.items()}
            for name, part in batch.items():
                if len(part) < size:
                    padding = np.zeros((size - len(part), *part.shape[1:]), part.dtype)
                    batch[name] = np.concatenate([part, padding])
            yield batch

    def _whole(self, batches: Parts, names: Sequence[str], count: int) -> Arrays:
        """Batches put together, what was computed of padding left out; of no sample, none of `names`."""
        if not count:  # as Caffe's forward_all returns it
            return {n: np.empty((0, *self.blobs[n].shape[1:]), np.float32) for n in names}
        return {name: np.concatenate(parts)[:count] for name, parts in batches.items()}

    @in_turns
    def reshape(self) -> None:
        """Have all layers take the shapes that blobs were given; `forward` does so too. Raises ShapeError."""
        self._take_shapes()

    def _take_shapes(self, last: int | None = None) -> None:
        """Have the net take the shapes that its blobs were given; what was written into its inputs stays.

        Raises ShapeError, and leaves the net as it was, if they do not fit. Layers above the number `last`
        need not fit: they take them when they run.
        """
        net, held = self.net, self.net.memory
        above = None if last in (None, len(net.steps) - 1) else last + 1
        blobs = self.blobs.items()
        waiting = {name: blob.waiting for name, blob in blobs if blob.waiting is not None}
        if not waiting and (held.fits is None or (above or len(net.steps)) <= held.fits):
            return
        push()
        net.passes.forget()
        shapes, arrays, before = _free(net, waiting)

        def take(fits: int | None) -> None:
            if waiting:
                memory.reshape(net.graph, held, shapes, fits, arrays)
            else:
                memory.extend(net.graph, held, fits, arrays)

        with own_errors(), net.device.current():
            try:
                take(None)
            except MinicaffeError:
                if above is None:
                    raise
                take(above)
        steps = net.steps[: held.fits] if waiting else []
        fresh = {value for step in steps for value in step.tops}
        for value, blob in before.items():
            value.blob.data = blob.data
        for _, flowing in blobs:
            flowing.settle(fresh)

    access = property(lambda self: self.net.access, doc="Who may run the net's passes.")

    def clear_param_diffs(self) -> None:
        """Make every parameter's gradient zero."""
        push()
        self.net.clear_param_diffs()

    def copy_from(self, file: str | Path) -> None:
        """Load parameters, by the names of layers: those that only one of file and net has are passed over.

        Raises CheckpointError, before any change, if a layer that both have is of another shape, or if
        nothing fits.
        """
        push()
        if str(file).lower().endswith((".npz", ".safetensors")):
            self.net.load(file)
            return
        with self.net.device.current(), Reader(file) as reader:
            files.load(self.net.graph, reader)

    load_hdf5 = copy_from

    def save(self, file: str | Path) -> None:
        """Write the parameters as a .caffemodel, whatever the name; a name of ours or .h5 as that."""
        own = str(file).lower().endswith((".npz", ".safetensors", ".h5"))
        self._write(file, str(file) if own else ".caffemodel")

    def save_hdf5(self, file: str | Path) -> None:
        """Write the parameters as HDF5, whatever the name."""
        self._write(file, ".h5")

    def _write(self, file: str | Path, form: str) -> None:
        push()
        files.save(self.net.graph, file, self.net.weights(), form)

    def share_with(self, other: Net) -> None:
        """Use the values of another net's parameters, layer by layer of one name. Raises ShapeError."""
        push()
        self.net.share_with(other.net)

    def set_input_arrays(self, data: Any, labels: Any) -> None:
        """Give the MemoryData layer that comes first its images and labels. Raises DataError, ShapeError."""
        layer = self.net.steps[0].layer
        if not isinstance(layer, MemoryData):
            kind = self.net.steps[0].spec.type
            raise DataError(f"set_input_arrays is for MemoryData; the first layer is {kind}")
        layer.reset(data, labels)

    before_forward = _watcher("before_forward", "before it runs forward")
    after_forward = _watcher("after_forward", "after it has run forward")
    before_backward = _watcher("before_backward", "before the gradient runs through it")
    after_backward = _watcher("after_backward", "after the gradient has run through it")


def _free(net: minicaffe.Net, waiting: Mapping[str, HostBlob]) -> Any:
    """Of blobs that keep what scripts wrote: new shapes, arrays that go on as their data, and others' blobs.

    On the CPU a view of a blob that is `waiting` stays one; DummyData fills its memory when that is taken.
    """
    shapes: dict[str, Any] = {}
    arrays: dict[Value, Any] = {}
    before: dict[Value, Any] = {}
    for step in net.steps:
        for value in step.tops if step.spec.type in FREE else ():
            new = waiting.get(value.name)
            if new is not None:
                shapes[value.name] = new.shape
            if step.spec.type == "Input" and not (new is not None and net.device.is_cuda):
                arrays[value] = value.blob.data if new is None else new.data
            elif new is None:
                before[value] = value.blob
    return shapes, arrays, before


def _written(which: str, step: Step) -> Sequence[Value]:
    if which == "data":
        return step.tops
    wanted = zip(step.bottoms, step.layer.needs_gradient, strict=True)
    return [value for value, needs in wanted if needs]


def _count(arrays: Mapping[str, Any]) -> int:
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ShapeError(f"expected arrays of as many samples each, got {listed or 'none'}")
    return next(iter(counts.values()))


def _keep(parts: Parts, arrays: Mapping[str, Any]) -> None:
    for name, array in arrays.items():
        parts.setdefault(name, []).append(np.atleast_1d(array).copy())


class BuiltIn:
    """A layer of a net: its `type` and its parameters, `blobs`. One in Python is shown as its own object."""

    def __init__(self, kind: str, blobs: Sequence[Blob]):
        self.type, self.blobs = kind, list(blobs)

    def __repr__(self) -> str:
        return f"<{self.type} with {len(self.blobs)} blobs>"


def shown(step: Step, params: Mapping[str, Sequence[Blob]]) -> Any:
    """A layer as scripts see it; in Python its own object, with the net's parameters, on CUDA copies."""
    own = params.get(step.spec.name, [])
    if not isinstance(step.layer, Python):
        return BuiltIn(step.spec.type, own)
    user: Any = step.layer.user
    if own and not step.layer.context.device.is_cuda:
        user.blobs[:] = own
    return user


def layer_type_list() -> list[str]:
    """The types of layers that there are, those that the script has registered included."""
    return sorted(REGISTRY)
