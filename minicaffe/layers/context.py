"""What the layers of one net share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.backend import Device
from minicaffe.cpu import aligned
from minicaffe.errors import note
from minicaffe.layers.share import Share
from minicaffe.ops.conv import CAP
from minicaffe.replay.step_constants import Slots
from minicaffe.spec.state import TRAIN, Phase, State

FLOAT32 = np.dtype("float32")


@dataclass
class Context:
    """What the layers of one net share: device, dtype, state, seed, folder of the model, workspace.

    `passes` counts the forward passes so far: data and dropout are functions of (seed, layer, passes).
    `engine` is how convolutions are lowered that leave it open, with at most `workspace_cap` bytes of
    workspace; `deterministic`, without asking a clock. With `forward_only` no layer runs backward. `tell`
    is told what the user should know of the data. `share` is what of each batch is here. `taken` counts how
    often a layer has taken its buffers. `slots` hold what changes from pass to pass. `refused` has an int32
    for each layer that may refuse labels, indices or regions: see Layer.refused.
    """

    device: Device
    dtype: Any = FLOAT32
    state: State = TRAIN
    seed: int = 1
    passes: int = 0
    folder: Any = None
    engine: str = "auto"
    workspace_cap: int = CAP
    deterministic: bool = False
    forward_only: bool = False
    tell: Callable[[str], None] = note
    share: Share = field(default_factory=Share)
    workspace_size: int = 0
    taken: int = 0
    _workspace: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.slots = Slots(self.device)
        self.refused = np.zeros(0, np.int32)
        self.refusals: memoryview = self.refused.data  # the same, read without NumPy

    @property
    def phase(self) -> Phase:
        """TRAIN or TEST."""
        return self.state.phase or "TRAIN"

    def reserve(self, elements: int) -> None:
        """Ask for a workspace of at least so many elements."""
        self.workspace_size = max(self.workspace_size, elements)

    @property
    def sum_dtype(self) -> Any:
        """The type of what 16 bits would round too far, labels, sums and losses: float32, or the net's."""
        return FLOAT32 if self.dtype.itemsize == 2 else self.dtype

    def scratch(self, shape: tuple[int, ...], dtype: Any = None, start: int = 0) -> Any:
        """An array in the workspace, from byte `start` on; of the net's type unless told otherwise."""
        kind = np.dtype(self.dtype if dtype is None else dtype)
        part = self.workspace.view(np.uint8)[start : start + math.prod(shape) * kind.itemsize]
        return part.view(kind).reshape(shape)

    @property
    def workspace(self) -> Any:
        """One flat buffer, shared by all layers; its content lasts for one call of a layer."""
        if self._workspace is None or self._workspace.size < self.workspace_size:
            self._workspace = aligned.empty(self.device.xp, self.workspace_size, self.dtype)
        return self._workspace
