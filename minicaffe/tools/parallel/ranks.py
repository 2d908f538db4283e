"""What the solvers of several ranks do together: sum gradients, bucket by bucket, agree on how to go on.

Before that, whether they can: no layer may take samples of a batch together; model, data, version and settings
are compared, and all begin with one state.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from minicaffe import __version__
from minicaffe.backends.replay.inference import OURS
from minicaffe.backends.replay.training import left_behind
from minicaffe.core.communicator import Communicator, OneRank, Parts, Work, agree, together
from minicaffe.core.config.declare import State
from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.net import Net
from minicaffe.core.net.model import text
from minicaffe.core.net.step import Step, Value
from minicaffe.core.ops import arrays
from minicaffe.core.ops.nan_guard import BAD
from minicaffe.core.solver.flat_parameters import Laid, Stretch, lies_in
from minicaffe.core.solver.nan_guard import Watch
from minicaffe.errors import CheckpointError, MinicaffeError, ShapeError, SpecError, note
from minicaffe.tools.data.layers.data import WindowData
from minicaffe.tools.data.layers.hdf5_data import HDF5Data
from minicaffe.tools.data.layers.pictures import Fed

LOOKED_AT = 16  # entries of a data set that is not in memory
ACROSS = ("Reduction", "Reshape")  # whose first axis may be the batch: see below


def refused(net: Net, whole: Net) -> str:
    """Why they cannot, if so; `whole` has the shapes of a net with all of the batch."""
    of_batch: set[Value] = set()
    for step, other in zip(net.steps, whole.steps, strict=True):
        layer, ours = step.layer, type(step.layer).__module__.startswith(OURS)
        own = not ours or step.spec.type == "Python"
        if not step.bottoms and not layer.params and not layer.traits.takes_share:
            return (
                f"{step.place}: gives every rank the same batch; a layer of one's own gives the samples that "
                "self.context.share.of(batch_size) tells, and says traits = Traits(takes_share=True)"
            )
        if layer.traits.takes_share or any(value in of_batch for value in step.bottoms):
            of_batch |= set(step.tops)
            if why := _mixes(step, other, net):
                return f"{step.place}: {why}"
        for value in step.tops:
            if value.loss_weight and value not in of_batch:
                return f"{step.place}: is a loss of no batch, which every rank would add"
            if value.loss_weight and own and not layer.traits.of_whole:
                return (
                    f"{step.place}: a loss of one's own divides by the samples that are here; let it divide "
                    "by self.context.share.of_whole(n), and say traits = Traits(of_whole=True)"
                )
    return "" if net.context.share.told else "no layer of the phase TRAIN gives a batch to share"


def _mixes(step: Step, whole: Step, net: Net) -> str:
    """Why a layer has no part of its own for each rank, if so."""
    layer, share = step.layer, net.context.share
    together = "takes samples of a batch together, which lie on several ranks"
    if layer.traits.sizes_vary:
        return "the size of a top varies, and with it what a rank's part is"
    axis: Any = getattr(layer, "axis", None)
    if layer.traits.mixes_samples or (isinstance(axis, int) and _first(axis, step)):
        return together
    if step.spec.type == "Reduction" and any(top.readers and not top.shape for top in step.tops):
        return together
    batch = share.count if share.per_rank else share.whole
    for value, other in zip(step.tops, whole.tops, strict=True):
        mine, theirs = tuple(value.shape), tuple(other.shape)
        parts = mine[1:] == theirs[1:] and mine[:1] and mine[0] * batch == theirs[0] * share.count
        if mine != theirs and not parts:
            return together
    both = zip(layer.params, whole.layer.params, strict=True)
    return "" if all(one.shape == other.shape for one, other in both) else together


def _first(axis: int, step: Step) -> bool:
    """Whether a layer's axis is the first of a bottom: the batch's."""
    if step.spec.type in ACROSS or not step.bottoms or not step.bottoms[0].shape:
        return False
    try:
        return canonical_axis(axis, step.bottoms[0].shape) == 0
    except ShapeError:  # of another bottom, then
        return False


def check_parts(communicator: Communicator, net: Net, built: State) -> None:
    """Raise SpecError, on all ranks, for a net of which each cannot compute a part of the batch."""

    def why_not() -> str:
        settings = {"dtype": net.context.dtype, "level": built.level, "stages": built.stage}
        return refused(net, Net(net.spec, "TRAIN", device=net.device, shapes_only=True, **settings))

    if why := communicator.bcast_obj(why_not() if communicator.rank == 0 else ""):
        raise SpecError(why).on_all()


def check_alike(solver: Any) -> None:
    """Raise SpecError, on all ranks, unless all have the same."""
    agreed = solver.communicator.allgather_obj(facts(solver))
    for rank, theirs in enumerate(agreed):
        for what, value in agreed[0].items():
            if theirs[what] != value:
                values = f": {theirs[what]}, not {value}" if len(f"{value}") < 30 else ""
                raise SpecError(f"rank {rank} has another {what} than rank 0{values}").on_all()


def facts(solver: Any) -> dict[str, Any]:
    """What must be the same on all ranks, by its name; of what is long a digest."""
    net, spec = solver.net, solver.net.spec
    shapes = {name: param.shape for name, param in net.named_params.items()}
    model = dataclasses.replace(spec, solver=dataclasses.replace(solver.spec, snapshot_prefix=None))
    compared = {
        "version of minicaffe": __version__,
        "version of NumPy": np.__version__,
        "model": digest(text(model, spec.beside or ".").encode()),
        "dtype": net.context.dtype.name,
        "precision": net.device.precision,
        "seed": net.context.seed,
        "engine": net.context.numerics.engine,
        "batch_per_rank": net.context.share.per_rank,
        "reduce_dtype": solver.ranks.rounding is not None,
        "device": "cuda" if solver.device.is_cuda else "cpu",
        "shapes of parameters": digest(str(shapes).encode()),
    }
    for each in (net, *solver.test_nets):
        for name, layer in each.layers.items():
            if isinstance(layer, (Fed, HDF5Data, WindowData)):
                compared[f"data set for layer {name!r} of {each.phase}"] = of_data(layer)
    return compared


def of_data(layer: Fed | HDF5Data | WindowData) -> str:
    """A digest of a data set: of all of it in memory, else of its size and some entries, or its files'."""
    if isinstance(layer, WindowData):
        return digest(str(layer.windows).encode())
    if isinstance(layer, HDF5Data):
        sizes = [path.stat().st_size for path in layer.paths or ()]
        return digest(str((sizes, layer.rows)).encode())
    reader = layer.reader
    assert reader is not None
    held = getattr(layer.dataset, "images", None)
    if held is not None:
        return digest(np.ascontiguousarray(held).data, layer.dataset.labels.tobytes())
    count = len(reader)
    parts: list[Any] = [str(count).encode()]
    for entry in range(0, count, max(1, count // LOOKED_AT)):
        try:
            picture, label = reader[entry]
        except MinicaffeError as error:  # damaged: for who reads it to tell
            parts.append(type(error).__name__.encode())
        else:
            parts += [np.ascontiguousarray(picture).data, str(label).encode()]
    return digest(*parts)


def digest(*parts: Any) -> str:
    """A digest of bytes."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()


def begin_alike(solver: Any) -> None:
    """Have all ranks begin with rank 0's state. Raises CheckpointError if they are not at one iteration."""
    at = solver.communicator.allgather_obj(solver.iteration)
    for rank, iteration in enumerate(at):
        if iteration != at[0]:
            problem = f"rank {rank} goes on from iteration {iteration}, rank 0 from {at[0]}"
            raise CheckpointError(problem).on_all()
    solver.ranks.before_snapshot()
    for array in left_behind(solver.net, solver.rule, solver.watch, solver.average).values():
        solver.communicator.bcast(array)
    solver._alike = True


BUCKET = 2**20  # bytes that are worth a message of their own while a backward pass goes on
BEHIND = 2**22  # and behind it: longer ones leave the caches


class Bucket(NamedTuple):
    """Gradients that are summed in one message: neighbours in memory, and the parameters that lie there."""

    array: Any
    whole: Any  # it lies there,
    start: int  # from there on
    params: list[tuple[Any, Any]]  # each with where it lies
    step: int  # the number of the layer behind whose backward pass they are complete

    def clear(self, parts: Parts) -> None:
        """Make zero what is to be before it is summed: nothing lies there, or no layer has written it."""
        empty = []
        for param, lies in self.params:
            here = param.learns and lies_in(param._diff, self.whole)
            if not here or param.stale:
                empty.append(lies)
            if here:
                param.stale = False
        clear(parts, empty)


def clear(parts: Parts, diffs: Sequence[Any]) -> None:
    """Make arrays zero."""
    for array in diffs:
        parts.do("zeros", partial(arrays.fill, array, 0))


def buckets(steps: Sequence[Step], laid: Laid, late: bool) -> list[Bucket]:
    """The gradients that lie together, cut where so many bytes are full, in the order in which they begin.

    Those that are summed `late`, behind the backward passes, begin with `finish`.
    """
    # Of a parameter: the first layer that has it, the last to run backward
    first: dict[int, int] = {}
    for number, step in enumerate(steps):
        for param in step.layer.params:
            first.setdefault(id(param.owner), number)
    result: list[Bucket] = []
    last, full = len(steps), BEHIND if late else BUCKET
    for whole, parts in laid.gradient_parts():
        mine: list[tuple[Any, Any]] = []
        start = before = 0
        for i, (param, end) in enumerate(parts):
            mine.append((param, whole[before:end]))
            before = end
            if (end - start) * whole.itemsize >= full or i == len(parts) - 1:
                last = min(last, -1 if late else min(first[id(one)] for one, _ in mine))
                result.append(Bucket(whole[start:end], whole, start, mine, last))
                mine, start = [], end
    return result


class Rounded:
    """Gradients summed in fewer bits; what rounding loses of this rank's is added to its next ones.

    Source: F. Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014 (error feedback).
    """

    def __init__(self, array: Any, dtype: Any, xp: Any):
        self.array, self.lost = array, xp.zeros(array.shape, array.dtype)
        self.sent = xp.empty(array.shape, dtype)

    def round(self) -> None:
        """Have what is to be summed be in `sent`."""
        arrays.add(self.array, self.lost)
        arrays.copy(self.lost, self.sent)
        arrays.minus(self.lost, self.sent, self.lost)

    def take(self) -> None:
        """The gradients are the sum."""
        arrays.copy(self.sent, self.array)


# Bytes of gradients from which sharing the update pays for handing out the weights
WORTH = 2**20
MEASURED = 3  # sums: of squares, of gradients that are not finite, of losses


class Shard(NamedTuple):
    """Entries `first` to `last` of the arrays of a type, of which `whole` are the gradients."""

    whole: Any
    first: int
    last: int


class Shared:
    """What a rank has of an update: of each bucket of gradients a part, which alone is summed.

    It steps there, and hands out the weights that come of it: all ranks have the same, to the bit. What the
    rule remembers of the other parts the other ranks know, until it is gathered.
    Source: S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,
    SC 2020, the first of its stages; memory is not saved here.
    """

    def __init__(self, communicator: Communicator, laid: Laid, buckets: Sequence[Any]):
        self.communicator, self.laid, self.buckets = communicator, laid, buckets
        rank, self.parts = communicator.rank, []
        for bucket in buckets:
            first, last = communicator.bounds(bucket.array.size)[rank : rank + 2]
            self.parts.append(Shard(bucket.whole, bucket.start + first, bucket.start + last))

    @property
    def gradients(self) -> list[Any]:
        """Those of this rank, summed."""
        return [part.whole[part.first : part.last] for part in self.parts]

    def tell(self, watch: Watch, sums: memoryview) -> None:
        """Say what was measured here, and the loss, for all ranks to add up: MEASURED numbers."""
        seen = watch.at_hand
        assert seen is not None  # ranks of GPUs share no update
        sums[0], sums[1], sums[2] = seen.squares[0], seen.flags[BAD], seen.loss[0]

    def hear(self, watch: Watch, sums: memoryview) -> None:
        """Make of it what that of all parts is, and of the loss the sum: one too large is not finite."""
        seen = watch.at_hand
        assert seen is not None
        seen.squares[0], seen.flags[BAD], seen.loss[0] = sums[0], sums[1] > 0, sums[2]

    def stretches(self, apart: bool) -> list[Stretch]:
        """What is to be stepped here, as `Laid.stretches` has it."""
        pairs = [(one, part) for one in self.laid.stretches(apart) for part in self.parts]
        return [piece for one, part in pairs if (piece := cut(one, part)) is not None]

    @functools.cached_property
    def gathers(self) -> list[Work]:
        """What has the weights of all parts from the ranks that stepped there."""
        return self._gathers(1)

    def gather_history(self) -> None:
        """Have what the rule remembers of all parts, too."""
        for i in range(2, 2 + self.laid.memory):
            for work in self._gathers(i):
                work()

    def _gathers(self, which: int) -> list[Work]:
        works = []
        for bucket in self.buckets:
            array = self.laid.beside(bucket.whole)[which]
            part = array[bucket.start : bucket.start + bucket.array.size]
            works.append(self.communicator.allgather_init(part))
        return works


def cut(stretch: Stretch, part: Shard) -> Stretch | None:
    """What lies of a stretch in a part, if anything does."""
    first = max(part.first, stretch.start)
    last = min(part.last, stretch.start + stretch.diff.size)
    if stretch.whole is not part.whole or first >= last:
        return None
    here = slice(first - stretch.start, last - stretch.start)
    starts = [0, *(end for end, _ in stretch.ends)]
    ends = [
        (min(end, here.stop) - here.start, group)
        for (end, group), start in zip(stretch.ends, starts, strict=False)
        if start < here.stop and end > here.start
    ]
    history = [array[here] for array in stretch.history]
    return Stretch(stretch.weight[here], stretch.diff[here], history, ends, part.whole, first)


class Ranks(OneRank):
    """The gradients of a net are summed over all ranks, bucket by bucket, while its backward pass goes on.

    A bucket's message begins once the layers that its parameters are of have run backward; messages begin in
    one order on all ranks. Where the communicator overlaps nothing, or gradients come `late`, behind the
    backward pass, they are summed there. `finish` waits for all, and sums the loss, as `agree` does where the
    update is shared; of what forward passes change for good, such as BatchNorm's sums, it makes the mean,
    weighted by the samples of each rank. Gradients are summed in another `dtype`, if one is given.
    """

    several = True
    check_alike = staticmethod(check_alike)
    begin_alike = staticmethod(begin_alike)

    def __init__(
        self,
        communicator: Communicator,
        net: Net,
        laid: Laid,
        watch: Watch,
        late: bool = False,
        dtype: Any = None,
    ):
        self.communicator, self.net, self.watch = communicator, net, watch
        self.laid, self.share = laid, net.context.share
        # That is asked to stop, to save, and what failed; and what is measured, of a shared update
        self.said = np.zeros(3 + MEASURED)
        self.flags, self.measured = self.said[:3].data, self.said[3:].data
        self.sum_said = communicator.allreduce_init(self.said)
        self.stop = self.save = False  # whether any rank was asked to
        self.stopped_by: list[int] = []
        self.late = late or not communicator.overlaps
        self.buckets = buckets(net.steps, laid, self.late)
        self.ready: dict[Step, int] = {}  # how many are complete behind a layer, by its step
        for number, step in enumerate(net.steps):
            if any(bucket.step == number for bucket in self.buckets):
                self.ready[step] = sum(bucket.step >= number for bucket in self.buckets)
        self.under_way: list[Work] = []
        self.begun = 0
        self.agreed = False  # whether all have heard what happened in this iteration
        self.shared: Shared | None = None  # the update, where all lies in the memory of one machine
        size = sum(bucket.array.nbytes for bucket in self.buckets)
        if not communicator.overlaps and laid.complete and size >= WORTH:
            self.shared = Shared(communicator, laid, self.buckets)
        self.rounding: list[Rounded] | None = None
        if dtype is not None and np.dtype(dtype) != net.context.sum_dtype:
            xp = net.device.xp
            zeros = xp.zeros(communicator.size, dtype)
            together(communicator, lambda: communicator.allreduce(zeros))
            self.rounding = [Rounded(bucket.array, dtype, xp) for bucket in self.buckets]

    @functools.cached_property
    def sums(self) -> list[Work]:
        """What sums each bucket: made by all ranks together, once they know that they are alike."""
        if self.rounding is not None:
            return [self._sum(one.sent) for one in self.rounding]
        return [self._sum(bucket.array) for bucket in self.buckets]

    def _sum(self, array: Any) -> Work:
        if self.shared is not None:
            return self.communicator.reduce_scatter_init(array)
        if self.late:
            return self.communicator.allreduce_init(array)
        return lambda: self.under_way.append(self.communicator.iallreduce(array))

    def begin(self) -> None:
        """An iteration begins: nothing is under way."""
        self.begun, self.under_way, self.agreed = 0, [], False
        if self.shared is not None:
            self.watch.bad.fill(0)

    def then(self, step: Step) -> Callable[[], Any] | None:
        """What comes once a layer has run backward: messages that may begin, or nothing."""
        ready = None if self.net.debug is not None else self.ready.get(step)
        return None if ready is None else partial(self.start, ready)

    def start(self, count: int, parts: Parts | None = None) -> None:
        """Begin messages until so many have begun."""
        if parts is None:
            self.communicator.progress()
        parts = parts or Parts()
        while self.begun < count:
            self.buckets[self.begun].clear(parts)
            if self.rounding is not None:
                parts.do("rounding", self.rounding[self.begun].round)
            parts.sum(self.sums[self.begun])
            self.begun += 1

    def reduce(self, iteration: Parts) -> None:
        """Sum the gradients and the loss over all ranks, behind the backward passes."""
        loose = self.loose()
        if not self.late:
            iteration.sum(partial(self.start, len(self.buckets)), restores=True)
        self.finish(loose, iteration)
        if (shared := self.shared) is not None:
            iteration.do("squares", partial(self.watch.measure, shared.gradients))

    def step(self, iteration: Any) -> None:
        """Do the rule's step; of a shared update this rank's part, and have the weights of the others'."""
        rule, shared = iteration.rule, self.shared
        step = rule.step if shared is None else partial(rule.step, shared)
        iteration.do(iteration.spec.type, step)
        for work in () if shared is None else shared.gathers:
            iteration.sum(work, what="weights of other ranks")

    def loose(self) -> list[Any]:
        """The parameters whose gradients lie in no bucket now; the update is not shared, if there are any."""
        if self.shared is not None and not self.laid.complete:
            self.share_no_more()
        return [] if self.shared is not None else self.laid.loose()

    def finish(self, loose: Sequence[Any], parts: Parts | None = None) -> None:
        """Sum what is not summed yet, and wait for all."""
        self.start(len(self.buckets), parts)
        parts = parts or Parts()
        if self.shared is None:  # else the loss is summed where all agree
            clear(parts, [param.diff for param in loose if param.stale])
            for array in (self.watch.loss, *(param.diff for param in loose)):
                parts.sum(self.communicator.allreduce_init(array))
        for array in self.watch.running_arrays():
            part = self.share.count / self.share.whole
            parts.do("means", partial(arrays.scale, array, part, array))
            parts.sum(self.communicator.allreduce_init(array))
        if not self.late:
            parts.sum(self._wait)
        for one in self.rounding or ():
            parts.do("rounding", one.take)
        self.begun = 0

    def _wait(self) -> None:
        while self.under_way:
            self.under_way.pop(0)()
        self.begun = 0

    def share_no_more(self) -> None:
        """Have each rank take the whole update from now on."""
        if self.shared is not None:
            self.shared.gather_history()
            self.shared = None
            self.said[3:] = 0
            vars(self).pop("sums", None)

    def before_snapshot(self) -> None:
        """Have all that a snapshot holds be here; of what was lost in rounding it holds nothing."""
        if self.shared is not None:
            self.shared.gather_history()
        for one in self.rounding or ():  # as it is for who goes on from the snapshot
            arrays.fill(one.lost, 0)

    def asked(self, solver: Any) -> bool:
        """True if any rank was asked for a snapshot; also notes whether any was asked to stop."""
        solver._asked_to_stop = self.stop
        if self.stop:
            who = ", ".join(map(str, self.stopped_by))
            solver.report.event(f"asked to stop: rank {who} of {self.communicator.size}")
        return self.save

    def iterate(self, work: Callable[[], None]) -> None:
        """Have all ranks do a whole iteration; on CUDA they agree once all work is launched."""
        if not self.net.device.is_cuda:
            self.run(work)
        else:
            work()
            self.agree()

    def agree_between(self, iteration: Parts) -> None:
        """Agree on the CPU, between passes and update, whether to go on."""
        if not self.net.device.is_cuda:
            iteration.sum(self.agree, what="what all ranks ask for")

    def run(self, work: Callable[[], None]) -> None:
        """Have all ranks do work in which they `agree`, after their passes; raise on all what fails on any."""
        self.begin()
        try:
            work()
        except MinicaffeError as error:
            if error.everywhere or self.agreed:
                raise
            if self.share.sums:  # others wait for a sum that this rank will not add to
                note(f"minicaffe: rank {self.communicator.rank}: {error}")
                self.communicator.abort(error.exit_code)
            self.finish(self.loose())
            self.agree(error)
        finally:
            self.net.then = None

    def agree(self, error: MinicaffeError | None = None) -> None:
        """Tell the others what happened here, and hear what happened there. Raises what failed anywhere."""
        asked = self.signals is not None and self.signals.asked
        save = self.signals is not None and self.signals.snapshot_asked()
        said = self.flags
        said[0], said[1], said[2] = asked, save, error is not None
        if self.shared is not None:
            self.shared.tell(self.watch, self.measured)
        self.sum_said()
        self.agreed = True
        if self.shared is not None:
            self.shared.hear(self.watch, self.measured)
        stop, self.save, failed = said[0] > 0, said[1] > 0, said[2] > 0
        if stop and not self.stop:
            all_asked = enumerate(self.communicator.allgather_obj(asked))
            self.stopped_by = [rank for rank, one in all_asked if one]
        self.stop = stop
        if failed:
            agree(self.communicator, error)


class Several(Communicator):
    """The ranks of a run of which there are several: what their solvers do together."""

    check_net = check_parts

    def solver_ranks(self, net: Net, laid: Laid, watch: Watch, late: bool, dtype: Any) -> Ranks:
        """Returns the sums and agreements of an iteration."""
        return Ranks(self, net, laid, watch, late, dtype)
