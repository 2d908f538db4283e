"""The guard of a replay: what its trace assumes, and whether that still holds."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple


class Assumed(NamedTuple):
    """What a trace assumes: objects, which it keeps alive and compares by `is`, and settings by value.

    The objects stay alive, so no new object can have the address of one of them.

    >>> import numpy as np
    >>> x = np.zeros(2)
    >>> Assumed([x], 1).holds(Assumed([x], 1)), Assumed([x], 1).holds(Assumed([x[:]], 1))
    (True, False)
    """

    objects: Sequence[Any]
    settings: Any

    def holds(self, now: Assumed) -> bool:
        """Whether `now` is the same. Settings must not contain arrays: `==` compares their entries."""
        try:
            alike = len(self.objects) == len(now.objects) and self.settings == now.settings
        except ValueError:
            return False
        return alike and all(map(operator.is_, self.objects, now.objects))
