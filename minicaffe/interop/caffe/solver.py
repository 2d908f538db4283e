"""A SolverParameter as the tree of a model file: its nets, and its keys as ours are."""

from __future__ import annotations

from collections.abc import Callable

from minicaffe.core.config.solver import SolverSpec
from minicaffe.core.config.solver_keys import MEANS, unused
from minicaffe.core.config.tree import Mark, Node
from minicaffe.core.config.types import keys_of
from minicaffe.errors import SpecError
from minicaffe.interop.caffe.layer import FREE, warn
from minicaffe.interop.caffe.schema import schema

TRAIN = ("net", "net_param", "train_net", "train_net_param")
TESTS = ("test_net_param", "test_net")
TYPES = {kind.upper(): kind for kind in ("Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")}
# Keys of SSD's solver, which are of the layer DetectionEvaluate here.
EVALUATED = ("eval_type", "ap_version", "show_per_class_result")
NO_EFFECT = {"snapshot_diff": "snapshots hold no gradients", "layer_wise_reduce": ""}


def root(
    solver: Node,
    net_in: Callable[[str, Mark], Node],
    net_of: Callable[[Node], Node],
    kind: str | None = None,
) -> Node:
    """The tree: the net to train, `test_nets`, and `solver`, of the type `kind` if it is given.

    `net_in` returns the tree of the net in a file, `net_of` that of a NetParameter. Raises SpecError.
    """
    given = [key for key in TRAIN if key in solver.value]
    if len(given) != 1:
        told = " and ".join(given)
        where = solver.keys[given[-1]] if given else solver.mark
        raise SpecError(
            f"{where}: solver: expected one of {', '.join(TRAIN)}, got {told or 'none'}"
        )

    def nets(key: str) -> list[Node]:
        node = solver.value.get(key, Node([], solver.mark))
        items = node.value if isinstance(node.value, list) else [node]
        return [
            net_of(one) if key.endswith("_param") else net_in(one.value, one.mark) for one in items
        ]

    (train,) = nets(given[0])
    tests = [net for key in TESTS for net in nets(key)]
    count = len(solver.value["test_iter"].value) if "test_iter" in solver.value else 0
    if count < len(tests) or (count > len(tests) and given[0].startswith("train")):
        key = next((key for key in ("test_iter", *TESTS) if key in solver.value), given[0])
        raise SpecError(
            f"{solver.keys[key]}: solver: expected a test_iter for each test net:"
            f" there are {len(tests)} nets and {count} test_iter"
        )
    if given[0] == "train_net" and "test_net_param" not in solver.value:
        train_file = solver.value["train_net"].value
        others = solver.value.get("test_net", Node([], solver.mark)).value
        if all(one.value == train_file for one in others):  # one net with the layers of both phases
            tests = []
    own = dict(solver.value)
    of_layers = {key: own.pop(key) for key in EVALUATED if key in own}
    solver = Node(own, solver.mark, solver.keys)
    _evaluated([train, *tests], of_layers, solver)
    values = {**train.value, "solver": _solver(solver, kind)}
    keys = {**train.keys, "solver": solver.mark}
    if tests:
        values["test_nets"] = Node(tests, tests[0].mark)
        keys["test_nets"] = next(solver.keys[key] for key in TESTS if key in solver.value)
    return Node(values, train.mark, keys)


def _evaluated(nets: list[Node], given: dict[str, Node], solver: Node) -> None:
    """Give the keys of SSD's solver to the DetectionEvaluate layers of its nets."""
    layers = [
        layer
        for net in nets
        for layer in (net.value["layers"].value if "layers" in net.value else [])
        if "type" in layer.value and layer.value["type"].value == "DetectionEvaluate"
    ]
    fields = schema().messages["SolverParameter"]
    for key, node in given.items():
        if node.value == fields[key].default:
            continue
        if not layers:
            warn(solver.keys[key], f"solver: {key} has no effect: no net has a DetectionEvaluate")
        for layer in layers if key != "eval_type" else []:
            layer.value.setdefault(key, node)
            layer.keys.setdefault(key, solver.keys[key])


def _solver(solver: Node, kind: str | None) -> Node:
    """The solver's own keys, less those that have no effect here."""
    fields = schema().messages["SolverParameter"]
    values, keys, known = dict(solver.value), dict(solver.keys), keys_of(SolverSpec)
    for key in (*TRAIN, *TESTS):
        values.pop(key, None)
    free = values.pop(FREE, Node({}, solver.mark))
    old = values.pop("solver_type", None)
    if old is not None and "type" in values:
        raise SpecError(f"{keys['solver_type']}: solver: give either type or solver_type, not both")
    if kind is not None:
        values["type"], keys["type"] = Node(kind, solver.mark), solver.mark
    elif old is not None:
        values["type"] = Node(TYPES.get(old.value, old.value), old.mark)
        keys["type"] = keys["solver_type"]
    _device(values, keys)
    seed = values.get("random_seed")
    if seed is not None and seed.value == -1:  # the clock, in Caffe; here as if it were not given
        del values["random_seed"]
    for key in [key for key in values if key not in known and key in NO_EFFECT]:
        if values[key].value != fields[key].default and NO_EFFECT[key]:
            warn(keys[key], f"solver: {key} has no effect: {NO_EFFECT[key]}")
        del values[key]
    if "test_interval" in values and "test_iter" not in values:
        warn(keys["test_interval"], "solver: test_interval has no effect: there is no test_iter")
        del values["test_interval"]
    kind = values["type"].value if "type" in values else SolverSpec.type
    for key, why in unused(values).items():
        if values[key].value != (fields[key].default or 0):
            warn(keys[key], f"solver: {key} has no effect: it {why}")
        del values[key]
    if kind in MEANS and "momentum" not in values:
        values["momentum"], keys["momentum"] = Node(0.0, solver.mark), solver.mark
    if "snapshot_format" not in values:  # as in Caffe; ours is another
        values["snapshot_format"] = Node("BINARYPROTO", solver.mark)
        keys["snapshot_format"] = solver.mark
    for key in free.value:
        if key in solver.value:
            raise SpecError(f"{free.keys[key]}: solver: {FREE}: {key} is given twice")
    values |= free.value
    keys |= free.keys
    return Node(values, solver.mark, {key: keys[key] for key in values})


def _device(values: dict[str, Node], keys: dict[str, Mark]) -> None:
    """solver_mode and device_id as `device`. GPU, Caffe's default, is CUDA where it works, as here without."""
    mode, number = values.pop("solver_mode", None), values.pop("device_id", None)
    if mode is not None and mode.value == "CPU":
        values["device"], keys["device"] = Node("cpu", mode.mark), keys["solver_mode"]
    elif number is not None and number.value > 0:
        values["device"] = Node(f"cuda:{number.value}", number.mark)
        keys["device"] = keys["device_id"]
