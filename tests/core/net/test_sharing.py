"""Blobs that share memory: nothing in use is overwritten, and every number is as without sharing."""

import copy
import functools
import itertools
import math
import pickle
import random
from pathlib import Path

import caffe_nets
import numpy as np
import pytest
import yaml
from half_nets import BATCH, LENET
from kit import model_of, refusal, registered
from test_random_nets import SHAPE, random_model

from minicaffe import Classifier, Layer, Net, Solver, Traits, parse
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe import read

STEPS = Path(__file__).parent.parent.parent / "nets" / "steps"
DEPLOYED = ("bvlc_alexnet_deploy", "cifar10_quick", "lenet", "ssd_deploy")
SMALL = model_of(
    {"x": [2, 3, 6, 6], "label": [2]},
    "conv1 Convolution bottom: x, num_output: 4, kernel_size: 3, pad: 1",
    "relu1 ReLU top: conv1",
    "conv2 Convolution num_output: 4, kernel_size: 3, pad: 1",
    "sum Eltwise bottom: [conv2, conv1]",
    "pool Pooling kernel_size: 2, stride: 2",
    "ip InnerProduct num_output: 5",
    "loss SoftmaxWithLoss bottom: [ip, label]",
)
RNG = np.random.default_rng(0)
GIVEN = {"x": RNG.normal(size=(2, 3, 6, 6)), "label": [1, 4]}


def poison(net: Net) -> None:
    """NaN wherever values may lie."""
    net.memory.sharing.block.view("u1").fill(255)


def pair(model, phase, keep=(), device="cpu", **settings) -> tuple[Net, Net]:
    """A net that shares nothing and one that shares, of the same parameters."""
    apart, sharing = (
        Net(model, phase, device=device, keep=kept, **settings) for kept in (None, keep)
    )
    for one, other in zip(apart.learnable, sharing.learnable, strict=True):
        if one.learns:  # not the statistics of a BatchNorm
            one.load(one.to_host() + RNG.normal(size=one.shape) / 4)
        other.load(one.to_host())
    return apart, sharing


def assert_same(a: Net, b: Net) -> int:
    """What both show is the same, bit for bit; how many arrays `b` shows."""
    shown = 0
    for blobs, others in ((a.blobs, b.blobs), (a.first_blobs, b.first_blobs)):
        for name, blob in others.items():
            for which in ("data", "diff"):
                try:
                    array = getattr(blob, which)
                except ShapeError:
                    continue
                wanted = a.device.to_host(getattr(blobs[name], which))
                assert b.device.to_host(array).tobytes() == wanted.tobytes(), (name, which)
                shown += 1
    for one, other in zip(a.learnable, b.learnable, strict=True):
        wanted = a.device.to_host(one.diff)
        assert b.device.to_host(other.diff).tobytes() == wanted.tobytes()
    return shown


def given_to(net: Net) -> list:
    """What stands before all layers."""
    return [value for step in net.steps if not step.bottoms for value in step.tops]


@functools.cache
def wired(seed: int, force: bool):
    """A random net, few of whose blobs are outputs."""
    model = random_model(seed) | {"force_backward": force}
    net = Net(parse(yaml.safe_dump(model)), device="cpu", shapes_only=True)
    if len(net.outputs) > 2:
        quiet = {"name": "quiet", "type": "Silence", "bottom": net.outputs[:-1], "top": []}
        model["layers"].append(quiet)
    return parse(yaml.safe_dump(model))


def shapes_only(phase: str):
    models = [wired(seed, False) for seed in range(12)]
    models += [parse(path.read_text()) for path in sorted(STEPS.glob("*.yaml"))]
    models += [read(caffe_nets.NETS / f"{name}.prototxt") for name in DEPLOYED]
    return [Net(model, phase, device="cpu", keep=(), shapes_only=True) for model in models]


class Block:
    """Whose each byte of the block is, as the steps write it."""

    def __init__(self, net: Net):
        self.offsets = net.memory.sharing.offsets
        self.owner = np.zeros(net.memory.sharing.size, np.int16)
        self.number = {value: i for i, value in enumerate(self.offsets, 1)}

    def bytes(self, value):
        start, size = self.offsets[value.root], math.prod(value.shape) * value.dtype.itemsize
        assert start + size <= self.owner.size
        return slice(start, start + size)

    def write(self, value) -> None:
        if value.root in self.offsets:
            self.owner[self.bytes(value)] = self.number[value.root]

    def read(self, value) -> None:
        if value.root in self.offsets:
            assert np.all(self.owner[self.bytes(value)] == self.number[value.root]), value.name


def test_what_a_step_reads_is_still_there():
    saved = 0
    for net in shapes_only("TEST"):
        block = Block(net)
        for step in net.steps:
            over = step.layer.traits.over_a_bottom or step.layer.traits.side_by_side
            for value in step.bottoms:
                block.read(value)
            for value in step.tops:
                block.write(value)
            for value in (*(() if over else step.bottoms), *step.tops):  # no top is over a bottom
                block.read(value)
        assert not set(block.offsets) & {value.root for value in net.graph.outputs.values()}
        assert net.memory.sharing.after <= net.memory.sharing.before + 64 * len(block.offsets)
        saved += net.memory.sharing.after < 0.6 * net.memory.sharing.before
    assert saved >= 5


def test_what_a_step_reads_on_the_way_back_is_still_there():
    saved = 0
    for net in shapes_only("TRAIN"):
        block, written = Block(net), set()
        for step in reversed(net.steps):
            wanted = zip(step.bottoms, step.layer.needs_gradient, strict=True)
            below = [value for value, needs in wanted if needs]
            if not step.layer.runs_backward:
                assert not below
                continue
            for value in (*step.tops, *below):
                if value.root in written:
                    block.read(value)  # to be added to, or handed on
                block.write(value)
                written.add(value.root)
            for value in (*step.tops, *below):
                block.read(value)
        saved += net.memory.sharing.after < 0.8 * net.memory.sharing.before
    assert saved >= 5


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "googlenet"])
def test_inference_of_the_zoo_takes_half_at_most_and_no_byte_too_much(name):
    path = Path(__file__).parent.parent.parent.parent / "models" / f"{name}.yaml"
    sharing = Net(path, "TEST", device="cpu", keep=(), shapes_only=True).memory.sharing
    assert 2 * sharing.after < sharing.before
    written, read = {}, {}  # the steps, found anew
    for i, step in enumerate(sharing.graph.steps):
        for value in (*step.tops, *step.bottoms):
            written.setdefault(value.root, i)
            read[value.root] = i
    busiest = 0
    for i in range(len(sharing.graph.steps)):
        there = [v for v in sharing.offsets if written[v] <= i <= read[v]]
        spans = sorted((sharing.offsets[v], 4 * math.prod(v.shape)) for v in there)
        taken, end = 0, 0
        for start, size in spans:  # of which some lie within others
            taken += max(0, start + size - max(start, end))
            end = max(end, start + size)
        busiest = max(busiest, taken)
    assert busiest <= sharing.size <= busiest + 64 * 10


def kept(net_spec, chance: random.Random) -> list[str]:
    names = sorted({name for layer in net_spec.layers for name in layer.tops})
    return chance.sample(names, chance.randint(0, min(2, len(names))))


class Rows(Layer):
    """Rows of the first bottom times the numbers of the second."""

    traits = Traits(over_a_bottom=True)

    def setup(self, x, factors):
        return x

    def forward(self, x, factors):
        return np.multiply(x, factors, out=self.out[0])


class Half(Layer):
    """The first half of the samples at the second pass."""

    traits = Traits(sizes_vary=True)
    passes = 0

    def setup(self, x):
        return x

    def forward(self, x):
        self.passes += 1
        y = self.out[0][: len(x) // self.passes]
        y[...] = x[: len(y)]
        return y


class Square(Layer):
    """Keeps its bottom, not a copy of it."""

    def setup(self, x):
        return x

    def forward(self, x):
        self.x = x
        return x * x

    def backward(self, dy):
        return 2 * self.x * dy


class Mirror(Layer):
    """Gives views of what it is given."""

    def setup(self, x):
        return x, x

    def forward(self, x):
        return x[:, ::-1], x

    def backward(self, dy, dz):
        dy[:, ::-1] += dz  # where another layer's gradient lies
        return dy[:, ::-1]


class First(Layer):
    """The first of two; the other has no gradient."""

    def setup(self, x, y):
        return x

    def forward(self, x, y):
        return x

    def backward(self, dy):
        return dy, None


@pytest.fixture(autouse=True)
def layers_of_ones_own():
    """Which may write over a bottom, vary in size, keep what they are given, and give views."""
    with registered(Rows, Half, Square, Mirror, First):
        yield


OWN = model_of(
    {"x": [2, 3, 6, 6], "label": [2]},
    "conv1 Convolution bottom: x, num_output: 4, kernel_size: 3, pad: 1",
    "relu1 ReLU top: conv1",
    "s1 Square",
    "m1 Mirror top: [a, b]",
    "s2 Square bottom: a",
    "s3 Square bottom: b",
    "f1 First bottom: [s2, b]",
    "sum Eltwise bottom: [f1, s3, conv1]",
    "m2 Mirror top: [c, d]",
    "f2 First bottom: [d, c]",
    "ip InnerProduct num_output: 5",
    "loss SoftmaxWithLoss bottom: [ip, label]",
)
WIDE, NARROW = "wide Power bottom: x, scale: 3", "narrow InnerProduct bottom: x, num_output: 1"
OVER = "y Rows bottom: [wide, narrow]", "z Power shift: 1"
CONV = "Convolution bottom: x, num_output: 4, kernel_size: 1"
MODELS = {  # and the phases in which they run
    "own": (OWN, "TRAIN TEST"),
    # A top is written over a bottom of its own size alone
    "wide is last": (model_of({"x": [6, 9]}, NARROW, WIDE, *OVER), "TEST"),
    "narrow is last": (model_of({"x": [6, 9]}, WIDE, NARROW, *OVER), "TEST"),
    # A bottom that is read later does not lie in what joins it, which the next layer writes over in place
    "read later": (
        model_of(
            {"x": [2, 4, 8, 8]},
            *(f"a {CONV}", f"b {CONV}", "both Concat bottom: [a, b], axis: 0"),
            *("down Power bottom: both, top: both, shift: -3", "again Eltwise bottom: [a, b]"),
            "ip InnerProduct bottom: both, num_output: 2",
        ),
        "TEST",
    ),
}
SAME = [
    pytest.param(
        functools.partial(wired, seed, phase == "TRAIN"), phase, {"dtype": "float64"}, seed,
        id=f"random-{phase}-{seed}", marks=[pytest.mark.long] * (seed > 11),
    )
    for phase in ("TRAIN", "TEST") for seed in range(300)
]  # fmt: skip
SAME += [
    pytest.param(functools.partial(parse, text), phase, {"dtype": "float64"}, None, id=f"{name}-{phase}")
    for name, (text, phases) in MODELS.items() for phase in phases.split()
]  # fmt: skip
SAME += [
    pytest.param(lambda path=path: parse(path.read_text()), "TEST", {}, None, id=path.stem)
    for path in sorted(STEPS.glob("*.yaml"))
]
SAME += [
    pytest.param(lambda name=name: read(caffe_nets.NETS / f"{name}.prototxt"), "TEST", {}, None, id=name)
    for name in DEPLOYED[1:]
]  # fmt: skip


@pytest.mark.parametrize(("make", "phase", "settings", "seed"), SAME)
def test_a_net_that_shares_gives_the_same_bits(make, phase, settings, seed, few_digits):
    """Also where work and shared blobs hold nothing of the layer, or the pass, before."""
    spec, draws = make(), np.random.default_rng(seed or 0)
    keep = () if seed is None else kept(spec, random.Random(seed))
    a, b = pair(spec, phase, keep, deterministic=True, **settings)
    for debugs in (False, False, True):
        poison(b)
        said = {a: [], b: []}
        drawn = [
            draws.normal(size=v.shape) if v.name == "x" else draws.integers(0, 2, v.shape)
            for v in given_to(a)
        ]
        for net in (a, b):
            net.clear_param_diffs()
            net.context.workspace.view("u1").fill(255)
            for value, numbers in zip(given_to(net), drawn, strict=True):
                value.blob.data[...] = numbers
            net.debug = said[net].append if debugs else None
            net.forward()
            if phase == "TRAIN":
                net.backward()
        assert a.loss == b.loss and said[a] == said[b] and assert_same(a, b)
    assert b.context.workspace_size <= a.context.workspace_size
    assert b.memory.sharing.lives or seed is not None


def test_behind_a_layer_whose_sizes_vary_nothing_is_shared():
    layers = ("a ReLU", "b TanH", "half Half", "c ReLU", "ip InnerProduct num_output: 2")
    a, b = pair(parse(model_of({"x": [4, 3]}, *layers)), "TEST")
    assert {value.name for value in b.memory.sharing.lives} == {"a", "b"}
    for _ in range(2):
        poison(b)
        for net in (a, b):
            net.forward(x=np.ones((4, 3)))
        assert_same(a, b)
    assert b.blobs["ip"].shape == (2, 2)


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_a_pass_of_some_layers_gives_the_same_bits_or_is_refused(phase):
    ran = refused = 0
    for seed in range(12):
        chance = random.Random(seed)
        spec = wired(seed, phase == "TRAIN")
        a, b = pair(spec, phase, kept(spec, chance), dtype="float64")
        poison(b)
        for net in (a, b):
            net.forward(x=np.full(SHAPE, 0.5), label=[0, 1])
            if phase == "TRAIN":
                net.backward()
        for _ in range(6):
            first, last = sorted(chance.choices([step.spec.name for step in a.steps], k=2))
            first, last = sorted((first, last), key=list(a.layers).index)
            back = phase == "TRAIN" and chance.random() < 0.7
            start, end = (last, first) if back else (first, last)
            given = {}
            if not back and chance.random() < 0.5:
                bottoms = a.steps[a.graph.range(first, first)[0]].bottoms
                given = {v.name: RNG.normal(size=v.shape) for v in bottoms if v.name != "label"}
            try:
                (b.backward if back else b.forward)(start, end, **given)
            except ShapeError as error:
                assert "is not there" in str(error)
                refused += 1
                continue
            (a.backward if back else a.forward)(start, end, **given)
            assert_same(a, b)
            ran += 1
    assert ran > 15 and refused > 3


@pytest.mark.parametrize(("phase", "which"), [("TRAIN", "diff"), ("TEST", "data")])
def test_a_pass_in_two_parts_holds_what_it_holds_as_one(phase, which):
    """What the second part was behind, or has written over, is there no longer."""
    net = Net(parse(SMALL), phase, device="cpu", keep=())
    net.forward(**GIVEN)
    run, names = net.forward, list(net.layers)
    if which == "diff":
        run, names = net.backward, names[::-1]

    def held() -> set[str]:
        return {name for name, blob in net.blobs.items() if there(blob, which)}

    for end, last in itertools.combinations(range(len(names)), 2):
        run(end=names[last])
        whole = held()
        run(end=names[end])
        run(start=names[end + 1], end=names[last])
        assert held() == whole


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_from_each_layer_to_go_on_after_each_gives_the_same_bits_or_is_refused(phase):
    """A whole pass, then one of other pictures to some layer, and one that begins anywhere."""
    nets, refused = pair(parse(SMALL), phase), 0
    for end, start in itertools.product(nets[0].layers, repeat=2):
        other = RNG.normal(size=(2, 3, 6, 6))
        try:
            for net in reversed(nets):  # the one that shares may refuse it
                net.clear_param_diffs()
                net.forward(**GIVEN)
                if phase == "TRAIN":
                    net.backward()
                    net.forward(x=other)
                    net.backward(end=end)
                    net.backward(start)
                else:
                    net.forward(end=end, x=other)
                    net.forward(start)
        except ShapeError as error:
            assert any(why in str(error) for why in ("is not there", "overwritten in place"))
            refused += 1
        else:
            assert_same(*nets)
    assert 10 < refused < 54


@pytest.mark.parametrize("path", sorted(STEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_training_takes_the_same_way(path, few_digits):
    solvers = []
    for keep in (None, ()):
        solver = Solver(parse(path.read_text()), device="cpu", keep=keep, deterministic=True)
        solver.step(1)
        if keep is not None:
            poison(solver.net)
        solver.step(1)
        solvers.append(solver)
    a, b = solvers
    assert b.net.memory.sharing.lives
    assert np.array_equal(a.watch.losses, b.watch.losses)
    for one, other in zip(a.net.learnable, b.net.learnable, strict=True):
        assert one.data.tobytes() == other.data.tobytes()


def test_what_only_backward_needs_is_not_taken(device):
    text = model_of(
        {"x": [2, 4, 9, 9], "rois": [3, 5]},
        "first Convolution bottom: x, num_output: 4, kernel_size: 1",
        "lrn LRN",
        "within LRN norm_region: WITHIN_CHANNEL",
        "most Eltwise operation: MAX, bottom: [lrn, within]",
        "pool Pooling kernel_size: 2, stride: 2",
        "roi ROIPooling bottom: [most, rois], pooled_h: 2, pooled_w: 2",
        "spp SPP bottom: pool, pyramid_height: 2",
        "conv Convolution bottom: most, num_output: 8, kernel_size: 3",
        "ip InnerProduct num_output: 50",
    )
    rois = [[0, 0, 0, 4, 4], [1, 2, 2, 8, 8], [1, 0, 3, 5, 8]]
    a, b = pair(parse(text), "TEST", device=device, deterministic=True)
    for net in (a, b):
        net.context.workspace.view("u1").fill(255)
        net.forward(x=np.random.default_rng(1).normal(size=(2, 4, 9, 9)), rois=rois)
    assert assert_same(a, b)
    names = {"lrn": "s", "within": "s", "most": "which"}
    assert all(getattr(a.layers[name], kept) is not None for name, kept in names.items())
    assert all(getattr(b.layers[name], kept) is None for name, kept in names.items())
    assert b.layers["pool"].it.which is None and not b.layers["roi"].scratch
    assert not b.layers["spp"].dy and a.layers["spp"].dy
    assert b.context.workspace_size < a.context.workspace_size / 2


def test_sixteen_bits_share_with_thirty_two(device):
    spec = parse(LENET) if device.is_cuda else parse(LENET.replace("float16", "float32"))
    losses = []
    for keep in (None, ()):
        solver = Solver(spec, device=device, keep=keep, deterministic=True)
        for name, values in BATCH.items():
            device.copy_from_host(solver.net.blobs[name].data, np.asarray(values))
        for _ in range(2):
            poison(solver.net)
            solver.step(1)
        test = Net(spec, "TEST", device=device, keep=keep, deterministic=True)
        test.share_with(solver.net)
        poison(test)
        losses.append((float(solver.loss()), float(test.forward(**BATCH)["loss"])))
    assert losses[0] == losses[1]


def test_what_is_kept_shown_and_not():
    net = Net(parse(SMALL), "TEST", device="cpu", keep=["conv2"])
    assert set(net.forward(**GIVEN)) == {"loss"}
    assert all(np.all(np.isfinite(net.blobs[name].data)) for name in ("x", "conv2", "loss", "ip"))
    assert net.blobs["conv1"].shape == (2, 4, 6, 6)
    said = "the data of blob 'sum' is not there: it shares memory with others; build the net with keep=['sum'], or"
    assert refusal(lambda: net.blobs["sum"].data, error=ShapeError).startswith(said)
    with pytest.raises(ShapeError, match="the data of blob 'conv1' is not there"):
        net.blobs["conv1"].data = 0
    assert net.forward(end="sum", **GIVEN)["sum"] is net.blobs["sum"].data
    assert "shared memory" in repr(net.blobs["sum"])
    net.blobs["sum"].data = 1  # as long as it is there
    net.forward(start="pool")
    with pytest.raises(ShapeError, match="no backward pass.*keep=None"):
        net.backward()


def test_diffs_that_are_kept_shown_and_not():
    net = Net(parse(SMALL), device="cpu", keep=["conv2"])
    net.forward(**GIVEN)
    net.backward()
    assert net.blobs["conv2"].diff.any() and net.blobs["sum"].data.any()
    assert refusal(lambda: net.blobs["ip"].diff).startswith("the diff of blob 'ip' is not there")
    with pytest.raises(ShapeError, match=r"blob 'sum' is not there.*backward\(start=...\)"):
        net.backward(start="sum")
    net.backward(start="sum", sum=np.ones((2, 4, 6, 6)))
    net.backward(end="pool")
    assert net.blobs["sum"].diff.any()
    net.blobs["sum"].diff = 2
    net.backward(start="sum")


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        (["conv2", "conv11"], "keep: there is no blob 'conv11'; did you mean 'conv1'?"),
        ([["conv1"]], "keep: there is no blob ['conv1']; did you mean 'conv1'?"),
        ("conv1", "keep: expected a list of names of blobs, got 'conv1'"),
        (5, "keep: expected a list of names of blobs, got 5"),
    ],
)
def test_names_to_keep_are_of_blobs(keep, said):
    assert refusal(Net, parse(SMALL), device="cpu", keep=keep) == said
    assert Net(parse(SMALL), device="cpu", keep=(n for n in ["ip"])).memory.keep == ("ip",)


def test_reshaped_and_copied_nets_share():
    net = Net(parse(SMALL), "TEST", device="cpu", keep=["pool"])
    before = net.memory.sharing.size
    net.reshape(x=(4, 3, 6, 6), label=(4,))
    assert net.memory.sharing.size == 2 * before
    with pytest.raises(ShapeError):
        net.reshape(x=(4, 3, 6))
    assert net.memory.sharing.size == 2 * before
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.memory.keep == ("pool",) and other.memory.sharing.size == 2 * before
        x = RNG.normal(size=(4, 3, 6, 6))
        results = [one.forward(x=x, label=[0, 1, 2, 3])["loss"] for one in (net, other)]
        assert results[0] == results[1]


def test_the_summary_tells_of_memory_before_and_after():
    net = Net(parse(SMALL), "TEST", device="cpu", keep=(), shapes_only=True)
    sizes = {"x": 216, "label": 2, "conv1": 288, "conv2": 288, "sum": 288, "pool": 72, "ip": 10}
    whole = 4 * (sum(sizes.values()) + 1)
    assert net.memory.sharing.before == whole
    # together at most conv1 and conv2, over which lies the sum; x, label and the loss have memory of their own
    assert net.memory.sharing.size == 2 * 4 * 288
    assert "blobs: 0.0 MiB; forward only, sharing memory: 0.0 MiB" in repr(net)
    net = Net(parse(SMALL), device="cpu", keep=(), shapes_only=True)
    diffs = {name: size for name, size in sizes.items() if name not in ("x", "label")}
    assert net.memory.sharing.before == whole + 4 * (sum(diffs.values()) + 1)
    assert "blobs and diffs: 0.0 MiB; diffs sharing memory: 0.0 MiB" in repr(net)


def test_solvers_and_classifiers_share_all_but_what_is_kept(few_digits):
    text = """
layers:
  - {name: digits, type: Data, top: [data, label], source: digits, batch_size: 4}
  - {name: conv, type: Convolution, bottom: data, num_output: 3, kernel_size: 5}
  - {name: tanh, type: TanH}
  - {name: pool, type: Pooling, kernel_size: 2, stride: 2}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
  - {name: accuracy, type: Accuracy, bottom: [ip, label], include: {phase: TEST}}
solver: {base_lr: 0.01, max_iter: 2, test_iter: 1, test_interval: 9, snapshot_after_train: false}
"""
    scores = []
    for keep, kept in ((("pool",), {"pool"}), ((), set()), (None, {"conv", "tanh", "pool"})):
        also = ("accuracy",) if keep else ()  # of the test net alone
        solver = Solver(parse(text), device="cpu", keep=keep and (*keep, *also))
        solver.solve()
        assert shows(solver.net.blobs, "diff") == kept
        assert shows(solver.test_net.blobs, "data") == kept
        classifier = Classifier(parse(text), device="cpu", keep=keep)
        assert shows(classifier.net.blobs, "data") == kept
        scores.append(classifier.predict(np.full((3, 28, 28), 9, np.uint8)).tobytes())
    assert len(set(scores)) == 1
    assert "did you mean 'pool'" in refusal(Solver, parse(text), device="cpu", keep=["pol"])


def shows(blobs, which: str) -> set[str]:
    """Of three blobs those whose data, or diffs, are there."""
    return {name for name in ("conv", "tanh", "pool") if there(blobs[name], which)}


def there(blob, which: str) -> bool:
    try:
        return getattr(blob, which) is not None
    except ShapeError:
        return False


def test_what_lies_in_shared_memory_takes_no_other():
    apart, sharing = pair(parse(SMALL), "TEST")
    assert "keep=['conv2']" in refusal(sharing.blobs["conv2"].share, apart.blobs["conv2"])


GAUSSIAN = "weight_filler: {type: gaussian, std: 1}"
IN_PLACE = model_of(
    {"x": [1, 4]},
    f"a InnerProduct bottom: x, top: a, num_output: 4, {GAUSSIAN}",
    "s Scale bottom: a, top: a, filler: {type: constant, value: 3}",
    f"b InnerProduct bottom: a, top: b, num_output: 2, {GAUSSIAN}",
)


@pytest.mark.parametrize("passes", [1, 5])
def test_a_start_at_what_was_overwritten_in_place_is_refused(passes):
    """The layer itself wrote over what it would read again."""
    net, ones = Net(parse(IN_PLACE), "TEST", device="cpu", keep=()), np.ones((1, 4))
    for _ in range(passes):
        right = net.forward(x=ones)["b"].copy()
    told = r"^<text>:4:5: layer 's' \(Scale\): the data of blob 'a' that it reads was overwritten in place: "
    with pytest.raises(ShapeError, match=told + "begin at 'a', or give it to"):
        net.forward(start="s")
    assert np.array_equal(net.forward(start="b")["b"], right)
    a = net.forward(end="a", x=ones)["a"].copy()
    with pytest.raises(ShapeError, match=r"layer 'b' .* overwritten in place"):
        net.forward(start="b")
    assert np.array_equal(net.forward(start="s")["b"], right)
    assert np.array_equal(net.forward(start="s", a=a)["b"], right)
    with pytest.raises(ShapeError, match="overwritten in place"):
        net.forward(start="s")


@pytest.mark.parametrize(
    ("text", "given", "layer", "starts"),
    [(IN_PLACE, {"x": np.ones((1, 4))}, "b", "sb"), (SMALL, GIVEN, "pool", ["pool"])],
    ids=["in place", "shared"],
)
def test_after_a_pass_that_failed_nobody_knows_what_is_there(text, given, layer, starts):
    net = Net(parse(text), "TEST", device="cpu", keep=())
    net.forward(**given)
    net.layers[layer].forward = lambda x: 1 / 0
    with pytest.raises(ZeroDivisionError):
        net.forward()
    del net.layers[layer].forward
    for start in starts:
        with pytest.raises(ShapeError, match="overwritten in place|is not there"):
            net.forward(start=start)
    net.forward(start=net.steps[1].spec.name)


def test_a_start_that_is_refused_leaves_all_as_it_was():
    """Whichever of the checks refuses it."""
    text = IN_PLACE + "  - {name: c, type: InnerProduct, bottom: b, top: c2, num_output: 4}\n"
    text += "  - {name: d, type: Eltwise, bottom: [a, c2], top: d, operation: PROD}\n"
    net = Net(parse(text), "TEST", device="cpu", keep=())
    right = net.forward(x=np.ones((1, 4)))["d"].copy()
    with pytest.raises(ShapeError, match="is not there"):
        net.forward(start="c")  # b's memory is another's by now
    with pytest.raises(ShapeError, match="shape"):
        net.forward(start="b", a=np.ones(3))
    assert np.array_equal(net.forward(start="b")["d"], right)  # a is there still
