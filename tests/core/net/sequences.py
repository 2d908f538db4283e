"""Two worlds of the same nets and solvers, one of which replays nothing, and what a user does in both."""

import copy
import dataclasses
import functools
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from core.layers.rows import ROWS
from core.layers.test_every_layer import Stretched
from core.solver.every_layer import DIGITS, ELSEWHERE, REST, Every
from core.solver.twins import SMALL, differences, go, numbers, plainly, replays

from minicaffe import Net, parse
from minicaffe.backends.cpu import threads
from minicaffe.core.config.declare import State
from minicaffe.core.layers import REGISTRY

NAMES = sorted(set(ROWS) - ELSEWHERE)
COUNT = 16  # groups of layer types: small nets, which together hold all of them
OF_LABELS = ["Accuracy", "Embed", "SoftmaxWithLoss"]
GROUPS = [*(NAMES[i::COUNT] for i in range(COUNT)), [], OF_LABELS, OF_LABELS]
ONE_PARAMETER, SMALL_NET, TWO_BATCHES = range(COUNT, COUNT + 3)  # three more, of texts of their own
LONE = """
  - {name: digits, type: Data, top: [digit, label], source: digits, batch_size: 4, transform: {crop_size: 6}}
  - {name: scores, type: InnerProduct, bottom: digit, num_output: 10, bias_term: false, weight_filler: {type: xavier}}
  - {name: loss, type: SoftmaxWithLoss, bottom: [scores, label]}
"""
OWN = "  - {name: own, type: Stretched, top: ip}\n  - {name: left,"
TWINS = SMALL.format(more="").partition("layers:\n")[2].partition("solver:")[0]
SMALL_REST = TWINS.replace("  - {name: left,", OWN)
RESTS = {0: REST, ONE_PARAMETER: LONE, SMALL_NET: SMALL_REST, TWO_BATCHES: SMALL_REST}
NONE = (np.nan, np.inf, -np.inf, -7, 1e6)  # labels, indices and images that are none
SETTINGS: list[dict[str, Any]] = [
    {"clip_gradients": 0.5}, {"clip_gradients": 0.01}, {"weight_decay": 0.1}, {"iter_size": 2},
    {"regularization_type": "L1"}, {"momentum": 0.3}, {"base_lr": 0.003},
]  # fmt: skip
KEYS: dict[str, tuple[Any, ...]] = {  # what a user may set of a layer between two passes
    "dropout_ratio": (0.2, 0.7), "negative_slope": (0.0, 0.3), "use_global_stats": (True, False, None),
    "moving_average_fraction": (0.5, 0.9), "eps": (1e-3, 1e-2), "ignore_label": (None, 1), "top_k": (1, 2),
    "margin": (1.0, 3.0), "norm": ("L1", "L2"), "scale": (0.5, 2.0), "coeff": (0.5, 2.0),
    "alpha": (0.1, 2.0), "beta": (0.5, 1.0),
}  # fmt: skip


class Raising(Stretched):
    """A layer of one's own that may raise in the midst of a pass."""

    when, error = "", ValueError

    def forward(self, x):
        if Raising.when == "forward":
            raise Raising.error("in the midst")
        return super().forward(x)

    def backward(self, dy):
        if Raising.when == "backward":
            raise Raising.error("in the midst")
        return super().backward(dy)


@functools.cache
def group_of(number: int, device: Any) -> tuple[Every, Any]:
    """What fills the nets of a group of layer types, and their model."""
    test = {"test_iter": [2], "test_interval": 1000, "test_initialization": False}
    more = {"momentum": 0.9, "weight_decay": 0.001, "average_loss": 3, "snapshot_prefix": "s"}
    more |= {"base_lr": 0.001, "clip_gradients": 5, "iter_size": 1 + (number == TWO_BATCHES)}
    rest = RESTS.get(number, DIGITS)
    every = Every(False, device, names=GROUPS[number], rest=rest, **more, **test)
    lines = every.text().replace("type: Stretched", "type: Raising").split("\n")
    return every, parse("\n".join(line for line in lines if "HDF5Output" not in line))


class World:
    """Two solvers and four nets of a group of layers, made when they are first asked for."""

    def __init__(self, group: int, plain: bool, device: Any = "cpu"):
        self.every, self.model = group_of(group, device)
        self.plain, self.made = plain, {}

    def __getitem__(self, which: int) -> Any:
        """Solvers are 0 and 1, nets of the phase TEST 2 to 5; of those the last two share memory, if it is not plain."""
        if which not in self.made:
            given = {**self.every.settings, "deterministic": True}
            if which < 2:
                one = self.every.solver_of(self.model, random_seed=which + 1, **given)
                nets = [one.net, *one.test_nets]
            else:
                given.pop("report")
                keep = () if which > 3 and not self.plain else None
                one = Net(self.model, "TEST", seed=which, keep=keep, **given)
                nets = [one]
            for net in nets:
                self.every.fill(net)
            self.put(which, one)
        return self.made[which]

    def put(self, which: int, one: Any) -> None:
        """Keep a solver or a net, which replays nothing where the world is plain."""
        self.made[which] = one
        if self.plain:
            plainly(one)

    def net(self, which: int) -> Net:
        """The net, or a solver's."""
        return self[which] if which > 1 else self[which].net


class Worlds:
    """The two of them; what is done in both looks the same in both, or fails."""

    def __init__(self, group: int, device: Any = "cpu"):
        self.both = [World(group, plain, device) for plain in (False, True)]
        self.done: list[str] = []
        # Layers at which passes of a solver or a net failed, one after the other
        self.failed: dict[int, set[str]] = {}

    def do(self, act: Callable[[World, int, Any], Any], which: int, seed: int = 0) -> None:
        """Do something with a solver or a net of both worlds; the first difference fails."""
        (mine, theirs), failed = self.both, self.failed
        if act is loss and which > 1 and which in failed:
            return  # which reads what the layer that failed has left
        self.done.append(f"{act.__name__}({which}, {seed})")
        outcomes = [outcome(act, one, which, np.random.default_rng(seed)) for one in self.both]
        if which > 3 and act is part and refused(outcomes[0]) and not refused(outcomes[1]):
            mine[which].context.passes = theirs[which].context.passes  # the other has gone on
            for layer in (*mine[which].layers.values(), *theirs[which].layers.values()):
                if hasattr(layer, "fix_gamma"):  # kept of the first pass, which the other alone ran
                    layer.gamma = None
            outcomes = [outcome(one[which].forward) for one in self.both]
        if not (_same(*outcomes) or all(map(refused, outcomes))):
            raise AssertionError(f"{self.story}: {outcomes[0]} instead of {outcomes[1]}")
        if isinstance(outcomes[0], str):
            name = outcomes[0].partition("layer '")[2].partition("'")[0]
            failed.setdefault(which, set()).add(name)
        elif act in WHOLE and (which < 2 or act not in (half, snapshot)):
            failed.pop(which, None)
        shown, whole = numbers(mine[which]), numbers(theirs[which])
        seen = {name: whole[name] for name in shown} if which > 3 else whole  # it may share memory
        apart = [name for name in differences(shown, seen) if not self.may_differ(which, name)]
        assert not apart, f"{self.story}: {apart[:5]}"
        assert not replays(theirs[which])

    @property
    def story(self) -> str:
        """What was done."""
        return "; ".join(self.done)

    def may_differ(self, which: int, name: str) -> bool:
        """Whether it is a blob that a pass which failed may have left in any state.

        Those are the tops of the layer that raised, whose rows have all run by then in a replay; and in an
        iteration of a solver all.
        """
        _, is_blob, layer = name.rpartition(" of ")
        failed = self.failed.get(which)
        return failed is not None and bool(is_blob) and (which < 2 or layer in failed)


SOLVER, NET, SHARING = 0, 2, 4  # a net may share memory
ACTS: dict[str, Callable[[World, int, Any], Any]] = {}
CASES: list[tuple[str, int]] = []  # the names of acts, and what each is done with


def act(work: Any, of: tuple[int, ...] = (SOLVER, NET, SHARING)) -> Any:
    """Something that a user does with a solver or a net of a world, or with one of the two alone."""

    @functools.wraps(work)
    def done(world: World, which: int, random: Any) -> Any:
        return work(world, which, random) if which // 2 * 2 in of else None

    ACTS[work.__name__] = done
    CASES.extend((work.__name__, which) for which in of)
    return done


act_of_solver = functools.partial(act, of=(SOLVER,))
act_of_net = functools.partial(act, of=(NET, SHARING))


def param(world: World, which: int, random: Any) -> Any:
    """One of the parameters of a net."""
    return one_of(list(world.net(which).named_params.values()), random)


def one_of(things: Any, random: Any) -> Any:
    """One of some things."""
    return things[random.integers(len(things))]


def inputs(world: World, which: int) -> list[str]:
    """The names of what an Input gives."""
    return [v.name for s in world.net(which).steps if s.spec.type == "Input" for v in s.tops]


@act
def one_pass(world, which, random):
    return go(world[which])


@act
def passes(world, which, random):
    return [go(world[which]) for _ in range(1 + random.integers(5))]


@act
def feed(world, which, random):
    net, labels = world.net(which), _labels(world, which)
    host = {name: net.device.to_host(net.blobs[name].data) for name in inputs(world, which)}
    given = {n: x * (1 if n in labels else random.choice([-1, 1, 1.5])) for n, x in host.items()}
    return [net.forward(**given) for _ in range(1 + random.integers(5))]


@act_of_solver
def test(world, which, random):
    return world[which].test()


@act
def part(world, which, random):
    """Some of the layers, forward."""
    net = world.net(which)
    names = [step.spec.name for step in net.steps]
    if random.integers(2):  # where something is done in place
        in_place = [any(v.reuses is not None for v in step.tops) for step in net.steps]
        names = names[max(0, in_place.index(True) - 1 if any(in_place) else 0) :][:5]
    if random.integers(3):
        net.forward()
    first, last = sorted(random.integers(len(names), size=2))
    return net.forward(names[first], names[last])


@act
def by_hand(world, which, random):
    net = world.net(which)
    net.forward()
    if NET <= which < SHARING:
        net.clear_param_diffs()
        net.backward()
        return [param.diff for param in net.learnable]
    if which < NET:
        net.backward()
        if random.integers(2):
            net.clear_param_diffs()
        if random.integers(2):
            world[which].update()
    return None


@act_of_solver
def half(world, which, random):
    """Iterations whose update comes apart."""
    for _ in range(1 + random.integers(5)):
        world[which].gradient()
        world[which].update()


@act_of_solver
def one_half(world, which, random):
    """A gradient, or an update, without the other."""
    world[which].gradient() if random.integers(3) else world[which].update()


def pass_of(world, which, random):
    """A pass of a net, an iteration of a solver, or its gradient alone."""
    return world[which].gradient() if which < 2 and random.integers(2) else go(world[which])


@act
def write(world, which, random):
    one = param(world, which, random)
    one.load(one.to_host() + random.normal(size=one.shape) * 0.05)


@act_of_solver
def write_diff(world, which, random):
    param(world, which, random).diff[...] = 0.5


@act
def replace(world, which, random):
    """Arrays are others, with the same numbers."""
    one = param(world, which, random)
    if random.integers(2) and which < 4:
        values = [v for s in world.net(which).steps for v in s.tops if v.reuses is None]
        one = one_of(values, random).blob
    which_array = "diff" if random.integers(2) and which < 2 else "data"
    one.lie_in(getattr(one, which_array).copy(), which_array)


@act
def multiply(world, which, random):
    one = param(world, which, random)
    learns = one.lr_mult != 0 or random.integers(4) == 0
    one.lr_mult = float(random.choice([0, 0.5, 1, 2])) if learns else one.lr_mult
    one.decay_mult = float(random.choice([0, 1, 3]))


@act_of_net
def share(world, which, random):
    """Others' parameters, each for some passes."""
    others = [world.net(other) for other in range(6) if other != which]
    for _ in range(1 + random.integers(4)):
        for other in random.choice(len(others), 1 + random.integers(2)):
            world[which].share_with(others[other])
        found = [go(world[which]) for _ in range(random.integers(5))]
    return found


@act
def load(world, which, random):
    world.net(which).load(world.net(int(random.integers(6))).weights())


@act
def reshape(world, which, random):
    """Other memory, of the same shape."""
    names, net = inputs(world, which), world.net(which)
    if names:
        name = one_of(names, random)
        net.reshape(**{name: net.blobs[name].shape})
        world.every.fill(net)


@act
def resize(world, which, random):
    """A batch of another size."""
    net = world.net(which)
    tops = [step.tops[0] for step in net.steps if step.spec.type == "Data"]
    net.reshape(**{tops[0].name: (1 + int(random.integers(6)), *tops[0].shape[1:])})
    world.every.fill(net)


@act
def watch(world, which, random):
    """Somebody looks at a layer, or ceases to."""
    watchers = one_of(world.net(which).steps, random).watchers
    if watchers:
        watchers.clear()
    else:
        watchers["before_forward"] = [lambda: None]


@act
def debug(world, which, random):
    net = world.net(which)
    net.debug = None if net.debug is not None else lambda line: None


@act_of_solver
def settings(world, which, random):
    """Other settings of a solver, some of them for some iterations."""
    for _ in range(1 + random.integers(4)):
        solver, change = world[which], one_of(SETTINGS, random)
        solver.rule.spec = solver.spec = dataclasses.replace(solver.spec, display=0)
        solver.rule.spec = solver.spec = dataclasses.replace(solver.spec, **change)
        solver.step(int(random.integers(5)))


@act
def keys(world, which, random):
    layers = [layer for layer in world.net(which).layers.values() if _settable(layer)]
    if layers:
        layer = one_of(layers, random)
        name = random.choice(_settable(layer))
        setattr(layer, name, one_of(KEYS[name], random))


@act
def bad(world, which, random):
    """Labels, indices and regions that are none."""
    net = world.net(which)
    names = [name for name in _labels(world, which) if name in inputs(world, which)]
    if not names:
        return None
    data = net.blobs[one_of(sorted(names), random)].data.reshape(-1)
    place, before = random.integers(data.size), data.copy()
    data[place] = one_of(NONE, random)
    try:
        return pass_of(world, which, random)
    finally:
        data[...] = before


@act
def diverge(world, which, random):
    """A weight that is no number, for one iteration."""
    one = param(world, which, random)
    before = one.data.copy()
    one.data.reshape(-1)[:1] = np.nan
    try:
        with np.errstate(invalid="ignore"):
            return go(world[which])
    finally:
        one.data[...] = before


@act
def raises(world, which, random):
    Raising.when = one_of(("forward", "backward"), random)
    Raising.error = one_of((ValueError, KeyboardInterrupt), random)
    try:
        return pass_of(world, which, random)
    finally:
        Raising.when = ""


@act
def thread(world, which, random):
    """In another thread."""
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(outcome(go, world[which])))
    other.start()
    other.join()
    return found


@act
def fewer(world, which, random):
    with threads.at_most(1 + int(random.integers(2))):
        return go(world[which])


@act_of_net
def copied(world, which, random):
    again = copy.deepcopy if random.integers(2) else lambda x: pickle.loads(pickle.dumps(x))
    world.put(which, again(world[which]))
    world.every.fill(world[which])


@act_of_solver
def snapshot(world, which, random):
    path = world[which].snapshot()
    world[which].step(2)
    world[which].restore(path)


@act
def loss(world, which, random):
    return world[which].loss() if which < 2 else world[which].loss


ACTIONS = [*ACTS.values(), passes, passes, share, bad]  # some of them more often
WHOLE = one_pass, passes, feed, half, fewer, bad, raises, snapshot  # end with a whole pass


def other_class(net):
    class Doubled(type(net.layers["relu"])):
        def forward(self, x):
            y = super().forward(x)
            y *= 2
            return y

    net.layers["relu"].__class__ = Doubled


def other_array(which):
    return lambda net: net.params["ip"][0].lie_in(getattr(net.params["ip"][0], which).copy(), which)


def other_engine(net):
    net.layers["conv"].engine = "caffe"
    net.memory.take(net.graph)


def other_top(net):
    net.steps[4].tops[0].blob.lie_in(net.steps[4].tops[0].blob.data.copy())


def no_gradient(net):
    net.layers["left"].needs_gradient[0] = False


def setting(of: Callable[[Any], Any], name: str, value: Any) -> Callable[[Any], None]:
    """To set an attribute of what `of` finds in a net."""
    return lambda net: setattr(of(net), name, value)


# What a user may change of the small net: a replay ends, for nets of both phases or for training alone
CHANGES: dict[str, Callable[[Any], None]] = {
    "array": other_array("data"),
    "array of a top": other_top,
    "batch": lambda net: net.reshape(x=(4, 1, 20, 20)),
    "class": other_class,
    "engine": other_engine,
    "forward": setting(lambda net: net.layers["own"], "forward", lambda x: 0.1 * x),
    "key": setting(lambda net: net.layers["relu"], "negative_slope", 0.2),
    "shared weights": lambda net: net.share_with(Net(net.spec, "TRAIN", device=net.device, seed=5)),
}
CHANGES_OF_TRAINING: dict[str, Callable[[Any], None]] = {
    "array of a gradient": other_array("diff"),
    "decay": setting(lambda net: net.params["ip"][1], "decay_mult", 3.0),
    "dropout": setting(lambda net: net.layers["drop"], "dropout_ratio", 0.2),
    "gradient": no_gradient,
    "multiplier": setting(lambda net: net.params["ip"][0], "lr_mult", 0.5),
    "phase": setting(lambda net: net.context, "state", State(phase="TEST")),
    "scale of the loss": setting(lambda net: net, "loss_scale", 3.0),
    "weight of the loss": setting(lambda net: net.graph.losses[1], "loss_weight", 2.0),
}


def _settable(layer: Any) -> list[str]:
    return [name for name in KEYS if name in getattr(layer, "__dataclass_fields__", {})]


def _labels(world: World, which: int) -> set[str]:
    """The names of what is read as labels, indices or regions."""
    return {
        value.name
        for one in world.net(which).steps
        for i, value in enumerate(one.bottoms)
        if i in REGISTRY[one.spec.type].traits.float32_bottoms
        and one.spec.type not in ("LSTM", "RNN")
    }


def outcome(work: Callable[..., Any], *args: Any) -> Any:
    """What work returns, arrays as they are now, or what it raises."""
    try:
        return on_the_host(work(*args))
    except (Exception, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"


def on_the_host(result: Any) -> Any:
    """A copy, whose arrays are the host's."""
    if isinstance(result, dict):
        return {name: on_the_host(one) for name, one in result.items()}
    if isinstance(result, list):
        return [on_the_host(one) for one in result]
    return result.get() if hasattr(result, "get") else copy.deepcopy(result)


def refused(result: Any) -> bool:
    """Whether a pass that begins where numbers were overwritten was refused."""
    return isinstance(result, str) and ("overwritten" in result or "shares memory" in result)


def _same(mine: Any, theirs: Any) -> bool:
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, dict):
        return mine.keys() == theirs.keys() and all(_same(x, theirs[k]) for k, x in mine.items())
    if isinstance(mine, (list, tuple)):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    if isinstance(mine, (np.ndarray, np.generic, float)):
        return np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
    return bool(mine == theirs)
