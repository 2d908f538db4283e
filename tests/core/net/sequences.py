"""Two worlds of the same nets and solvers, one of which replays nothing, and what a user does in both."""

from __future__ import annotations

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

from minicaffe import Net, parse
from minicaffe.backends.cpu import threads
from minicaffe.core.layers import REGISTRY

NAMES = sorted(set(ROWS) - ELSEWHERE)
COUNT = 16  # groups of layer types: small nets, which together hold all of them
GROUPS = [*(NAMES[i::COUNT] for i in range(COUNT)), []]  # and one of a single parameter: LONE
LONE = """
  - {name: digits, type: Data, top: [digit, label], source: digits, batch_size: 4, transform: {crop_size: 6}}
  - {name: scores, type: InnerProduct, bottom: digit, num_output: 10, bias_term: false, weight_filler: {type: xavier}}
  - {name: loss, type: SoftmaxWithLoss, bottom: [scores, label]}
"""
NONE = (np.nan, np.inf, -np.inf, -7, 1e6)  # labels, indices and images that are none
SETTINGS: list[dict[str, Any]] = [
    {"clip_gradients": 0.5},
    {"clip_gradients": 0.01},
    {"weight_decay": 0.1},
    {"regularization_type": "L1"},
    {"iter_size": 2},
    {"momentum": 0.3},
    {"base_lr": 0.003},
]
KEYS: dict[str, tuple[Any, ...]] = {  # what a user may set of a layer between two passes
    "dropout_ratio": (0.2, 0.7),
    "negative_slope": (0.0, 0.3),
    "use_global_stats": (True, False, None),
    "moving_average_fraction": (0.5, 0.9),
    "eps": (1e-3, 1e-2),
    "ignore_label": (None, 1),
    "top_k": (1, 2),
    "margin": (1.0, 3.0),
    "norm": ("L1", "L2"),
    "scale": (0.5, 2.0),
    "coeff": (0.5, 2.0),
    "alpha": (0.1, 2.0),
    "beta": (0.5, 1.0),
}


class Raising(Stretched):
    """A layer of one's own that may raise in the midst of a pass."""

    when = ""

    def forward(self, x):
        if Raising.when == "forward":
            raise ValueError("in the midst")
        return super().forward(x)

    def backward(self, dy):
        if Raising.when == "backward":
            raise ValueError("in the midst")
        return super().backward(dy)


@functools.cache
def group_of(number: int) -> tuple[Every, Any]:
    """What fills the nets of a group of layer types, and their model."""
    rest = LONE if not GROUPS[number] else REST if number == 0 else DIGITS
    test = {"test_iter": [2], "test_interval": 1000, "test_initialization": False}
    more = {"momentum": 0.9, "weight_decay": 0.001, "average_loss": 3, "snapshot_prefix": "s"}
    every = Every(
        False, names=GROUPS[number], rest=rest, base_lr=0.001, clip_gradients=5, **more, **test
    )
    lines = every.text().replace("type: Stretched", "type: Raising").split("\n")
    return every, parse("\n".join(line for line in lines if "HDF5Output" not in line))


class World:
    """Two solvers and four nets of a group of layers, made when they are first asked for."""

    def __init__(self, group: int, plain: bool):
        self.every, self.model = group_of(group)
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
            for net in [one] if which > 1 else one.test_nets:
                net.passes.guard.never = "asked"
            if which < 2:
                one.iterations.premise.never = "asked"

    def net(self, which: int) -> Net:
        """The net, or a solver's."""
        return self[which] if which > 1 else self[which].net

    def go(self, which: int) -> Any:
        """A pass of a net, or an iteration of a solver."""
        return self[which].forward() if which > 1 else self[which].step(1)

    def numbers(self, which: int) -> dict[str, Any]:
        """All that a solver or a net holds, by name."""
        found: dict[str, Any] = {}
        for number, net in enumerate(self.nets(which)):
            for name, param in net.named_params.items():
                found[f"{number} {name}"] = param.data
                if number == 0 and which < 2:
                    found[f"{number} {name} diff"] = param.diff
            for name, layer in net.layers.items():
                found |= {f"{number} {name} running {i}": x for i, x in enumerate(layer.running)}
            shared = net.memory.sharing if net.memory.sharing.which == "data" else None
            for step in net.steps:
                for value in step.tops:
                    if shared is None or value.root not in shared.lives:
                        found[f"{number} {value.name} of {step.spec.name}"] = value.blob.data
            found[f"{number} passes"] = np.array(net.context.passes)
        if which < 2:
            one = self[which]
            found |= {f"history {i}": x for i, x in enumerate(one.rule.history)}
            found |= {"losses": one.watch.losses, "flags": one.watch.flags}
            found["recorded"] = np.array([one.iterations.recorded, one.iteration])
        return {name: np.array(array) for name, array in found.items()}

    def nets(self, which: int) -> list[Net]:
        """The nets of a solver, or the net."""
        return [self[which]] if which > 1 else [self[which].net, *self[which].test_nets]


def param(world: World, which: int, random: Any) -> Any:
    """One of the parameters of a net."""
    found = list(world.net(which).named_params.values())
    return found[random.integers(len(found))]


def step(world: World, which: int, random: Any) -> Any:
    """One of the layers of a net, in its place."""
    steps = world.net(which).steps
    return steps[random.integers(len(steps))]


def inputs(world: World, which: int) -> list[str]:
    """The names of what an Input gives."""
    net = world.net(which)
    return [v.name for s in net.steps if s.spec.type == "Input" for v in s.tops]


def passes(world, which, random):
    return [world.go(which) for _ in range(1 + random.integers(5))]


def feed(world, which, random):
    net = world.net(which)
    given = {n: net.blobs[n].data * random.choice([-1, 1, 1.5]) for n in inputs(world, which)}
    labels = _labels(world, which)
    given = {name: net.blobs[name].data if name in labels else x for name, x in given.items()}
    return [net.forward(**given) for _ in range(1 + random.integers(5))]


def test(world, which, random):
    return world[which].test() if which < 2 else None


def part(world, which, random):
    """Some of the layers, forward."""
    net = world.net(which)
    names = [step.spec.name for step in net.steps]
    if random.integers(2):  # where something is done in place
        names = names[names.index("scores") :][:5]
    if random.integers(3):
        net.forward()
    first, last = sorted(random.integers(len(names), size=2))
    return net.forward(names[first], names[last])


def by_hand(world, which, random):
    net = world.net(which)
    net.forward()
    if which < 2:
        net.backward()
        if random.integers(2):
            net.clear_param_diffs()
        if random.integers(2):
            world[which].update()


def half(world, which, random):
    """Iterations whose update comes apart."""
    if which < 2:
        for _ in range(1 + random.integers(5)):
            world[which].gradient()
            world[which].update()


def one_half(world, which, random):
    """A gradient, or an update, without the other."""
    if which < 2:
        world[which].gradient() if random.integers(3) else world[which].update()


def pass_of(world, which, random):
    """A pass of a net, an iteration of a solver, or its gradient alone."""
    return world[which].gradient() if which < 2 and random.integers(2) else world.go(which)


def write(world, which, random):
    one = param(world, which, random)
    one.data[...] = one.data + random.normal(size=one.shape) * 0.05


def write_diff(world, which, random):
    if which < 2:
        param(world, which, random).diff[...] = 0.5


def replace(world, which, random):
    """Arrays are others, with the same numbers."""
    one = param(world, which, random)
    if random.integers(2) and which < 4:
        values = [v for s in world.net(which).steps for v in s.tops if v.reuses is None]
        one = values[random.integers(len(values))].blob
    which_array = "diff" if random.integers(2) and which < 2 else "data"
    one.lie_in(getattr(one, which_array).copy(), which_array)


def multiply(world, which, random):
    one = param(world, which, random)
    learns = one.lr_mult != 0 or random.integers(4) == 0
    one.lr_mult = float(random.choice([0, 0.5, 1, 2])) if learns else one.lr_mult
    one.decay_mult = float(random.choice([0, 1, 3]))


def share(world, which, random):
    """Others' parameters, each for some passes."""
    if which > 1:
        others = [world.net(other) for other in range(6) if other != which]
        for _ in range(1 + random.integers(4)):
            for other in random.choice(len(others), 1 + random.integers(2)):
                world[which].share_with(others[other])
            found = [world.go(which) for _ in range(random.integers(5))]
        return found
    return None


def load(world, which, random):
    world.net(which).load(world.net(int(random.integers(6))).weights())


def reshape(world, which, random):
    """Other memory, of the same shape."""
    names = inputs(world, which)
    if names:
        name = names[random.integers(len(names))]
        world.net(which).reshape(**{name: world.net(which).blobs[name].shape})
        world.every.fill(world.net(which))


def watch(world, which, random):
    """Somebody looks at a layer, or ceases to."""
    watchers = step(world, which, random).watchers
    if watchers:
        watchers.clear()
    else:
        watchers["before_forward"] = [lambda: None]


def debug(world, which, random):
    net = world.net(which)
    net.debug = None if net.debug is not None else lambda line: None


def settings(world, which, random):
    """Other settings of a solver, some of them for some iterations."""
    if which > 1:
        return
    for _ in range(1 + random.integers(4)):
        solver, change = world[which], SETTINGS[random.integers(len(SETTINGS))]
        solver.rule.spec = solver.spec = dataclasses.replace(solver.spec, display=0)
        solver.rule.spec = solver.spec = dataclasses.replace(solver.spec, **change)
        solver.step(int(random.integers(5)))


def keys(world, which, random):
    layers = [layer for layer in world.net(which).layers.values() if _settable(layer)]
    if layers:
        layer = layers[random.integers(len(layers))]
        name = random.choice(_settable(layer))
        values = KEYS[name]
        setattr(layer, name, values[random.integers(len(values))])


def bad(world, which, random):
    """Labels, indices and regions that are none."""
    net, names = world.net(which), _labels(world, which)
    names = [name for name in names if name in net.blobs]
    if not names:
        return None
    data = net.blobs[names[random.integers(len(names))]].data.reshape(-1)
    place, before = random.integers(data.size), data.copy()
    data[place] = NONE[random.integers(len(NONE))]
    try:
        return pass_of(world, which, random)
    finally:
        data[...] = before


def diverge(world, which, random):
    """A weight that is no number, for one iteration."""
    one = param(world, which, random)
    before = np.array(one.data)
    one.data.reshape(-1)[:1] = np.nan
    try:
        return world.go(which)
    finally:
        one.data[...] = before


def raises(world, which, random):
    Raising.when = ("forward", "backward")[random.integers(2)]
    try:
        return pass_of(world, which, random)
    finally:
        Raising.when = ""


def thread(world, which, random):
    """In another thread."""
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(outcome(world.go, which)))
    other.start()
    other.join()
    return found


def fewer(world, which, random):
    with threads.at_most(1 + int(random.integers(2))):
        return world.go(which)


def copied(world, which, random):
    if which > 1:
        again = copy.deepcopy if random.integers(2) else lambda x: pickle.loads(pickle.dumps(x))
        world.put(which, again(world[which]))
        world.every.fill(world[which])


def snapshot(world, which, random):
    if which < 2:
        path = world[which].snapshot()
        world[which].step(2)
        world[which].restore(path)


def loss(world, which, random):
    return world[which].loss() if which < 2 else world[which].loss


ACTIONS: list[Callable[[World, int, Any], Any]] = [
    *(
        passes,
        passes,
        passes,
        feed,
        test,
        part,
        by_hand,
        half,
        one_half,
        write,
        write_diff,
        replace,
        multiply,
    ),
    *(
        share,
        share,
        load,
        reshape,
        watch,
        debug,
        settings,
        keys,
        bad,
        bad,
        diverge,
        raises,
        thread,
        fewer,
    ),
    *(copied, snapshot, loss),
]


WHOLE = passes, feed, half, fewer, bad, raises, snapshot  # end with a whole pass or iteration


def _settable(layer: Any) -> list[str]:
    return [name for name in KEYS if name in getattr(layer, "__dataclass_fields__", {})]


def _labels(world: World, which: int) -> set[str]:
    """The names of what is read as labels, indices or regions."""
    net = world.net(which)
    return {
        value.name
        for one in net.steps
        for i, value in enumerate(one.bottoms)
        if i in REGISTRY[one.spec.type].traits.float32_bottoms
        and one.spec.type not in ("LSTM", "RNN")
    }


def outcome(work: Callable[..., Any], *args: Any) -> Any:
    """What work returns, arrays as they are now, or what it raises."""
    try:
        return copy.deepcopy(work(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def run(group: int, actions: list[tuple[int, int, int]]) -> str:
    """Do the same in both worlds; the first difference, or nothing."""
    mine, theirs = both = [World(group, plain) for plain in (False, True)]
    done: list[str] = []
    failed: dict[
        int, set[str]
    ] = {}  # layers at which passes of a solver or a net failed, one after the other
    for which, number, seed in actions:
        action = ACTIONS[number % len(ACTIONS)]
        if action is loss and which > 1 and which in failed:
            continue  # which reads what the layer that failed has left
        done.append(f"{action.__name__}({which}, {seed})")
        outcomes = [outcome(action, one, which, np.random.default_rng(seed)) for one in both]
        if which > 3 and action is part and refused(outcomes[0]) and not refused(outcomes[1]):
            mine[which].context.passes = theirs[which].context.passes  # the other has gone on
            for layer in (*mine[which].layers.values(), *theirs[which].layers.values()):
                if hasattr(layer, "fix_gamma"):
                    layer.gamma = (
                        None  # which is kept of the first pass, that the other alone has run
                    )
            outcomes = [outcome(one[which].forward) for one in both]
        if not (_same(*outcomes) or all(map(refused, outcomes))):
            return f"{'; '.join(done)}: {outcomes[0]} instead of {outcomes[1]}"
        if isinstance(outcomes[0], str):
            name = outcomes[0].partition("layer '")[2].partition("'")[0]
            failed.setdefault(which, set()).add(name)
        elif action in WHOLE and (which < 2 or action not in (half, snapshot)):
            failed.pop(which, None)
        if apart := differences(mine.numbers(which), theirs.numbers(which), which, failed):
            return f"{'; '.join(done)}: {apart[:5]}"
    return ""


def refused(result: Any) -> bool:
    """Whether a pass that begins where numbers were overwritten was refused."""
    return isinstance(result, str) and ("overwritten" in result or "shares memory" in result)


def differences(mine: Any, theirs: Any, which: int, failed: dict[int, set[str]]) -> list[str]:
    """The names of what differs, but for blobs that a pass which failed may have left in any state.

    Those are the tops of the layer that raised, whose rows have all run by then in a replay; and in an
    iteration of a solver all.
    """
    apart = [
        name for name in mine if name in theirs and mine[name].tobytes() != theirs[name].tobytes()
    ]
    if which not in failed:
        return apart
    if which < 2:
        return [name for name in apart if " of " not in name]
    return [name for name in apart if name.rpartition(" of ")[2] not in failed[which]]


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
