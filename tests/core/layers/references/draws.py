"""Random cases of a layer: what is drawn from tables, and the arrays made of it."""

from collections.abc import Callable
from typing import Any

import numpy as np

DRAWN: dict[str, tuple[Callable[[int], Any], int, bool]] = {}


def drawn(kind: str, count: int = 30, sloped: bool = True, **parts: Any) -> Callable[..., Any]:
    """What it decorates gives (keys, the bottoms of a pass, perhaps of the next, ...) of a layer type.

    It is given NumPy's generator and a choice of each part: of a list one member, of a pair a number from the
    first to the second, of a tuple of those a tuple. What it gives may be None: then another case is drawn.
    The reference has no slope at what is not `sloped`, such as points that lie on pixels.
    """

    def chosen(random: np.random.Generator, part: Any) -> Any:
        if isinstance(part, list):
            return part[random.integers(len(part))]
        if all(isinstance(one, int) for one in part):
            return int(random.integers(part[0], part[1] + 1))
        return tuple(chosen(random, one) for one in part)

    def case(make: Callable[..., Any]) -> Callable[..., Any]:
        def draw(seed: int) -> Any:
            random = np.random.default_rng(seed)
            made = None
            while made is None:
                made = make(random, **{name: chosen(random, part) for name, part in parts.items()})
            return made

        DRAWN[kind] = draw, count, sloped
        return make

    return case


def normalizer(layer: Any, samples: int, places: int, valid: int) -> float:
    """What the sum over samples of places, of which `valid` count, is divided by."""
    way = layer.normalization
    if way is None:
        way = "VALID" if layer.normalize in (None, True) else "BATCH_SIZE"
    counts = {"FULL": samples * places, "VALID": valid, "BATCH_SIZE": samples, "NONE": 1}
    return max(layer.pre_fixed_normalizer if way == "PRE_FIXED" else counts[way], 1)
