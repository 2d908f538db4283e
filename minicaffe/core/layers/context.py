"""What the layers of one net share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.device import Device
from minicaffe.backends.step_constants import Slots
from minicaffe.core.config.state import TRAIN, Phase, State
from minicaffe.core.layers.share import Share
from minicaffe.core.ops.conv import CAP
from minicaffe.errors import note

FLOAT32 = np.dtype("float32")


@dataclass
class Context:
    """What the layers of one net share: device, dtype, state, seed, folder of the model, workspace.

    `passes` counts the forward passes so far: data and dropout are functions of (seed, layer, passes).
    `engine` is the engine of convolutions that do not name one, with at most `workspace_cap` bytes of
    workspace; `deterministic` chooses it without timing. With `forward_only` no layer runs backward. A
    backward pass is of `loss_scale` times the loss. `tell` receives messages about the data for the user.
    `share` is this rank's share of a batch. `taken` counts how often layers allocated buffers. `slots` hold
    the step constants. `refused` has an int32 for each layer that may refuse labels, indices or regions: see
    Layer.refused.
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
    loss_scale: float = 1.0
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
        """Ask for a workspace of at least this many elements."""
        self.workspace_size = max(self.workspace_size, elements)

    @property
    def sum_dtype(self) -> Any:
        """The type of labels, sums and losses, which need more than 16 bits: float32, or the net's."""
        return FLOAT32 if self.dtype.itemsize == 2 else self.dtype

    def scratch(self, shape: tuple[int, ...], dtype: Any = None, start: int = 0) -> Any:
        """An array in the workspace, from byte `start` on; of the net's type by default."""
        kind = np.dtype(self.dtype if dtype is None else dtype)
        part = self.workspace.view(np.uint8)[start : start + math.prod(shape) * kind.itemsize]
        return part.view(kind).reshape(shape)

    @property
    def workspace(self) -> Any:
        """One flat buffer, shared by all layers; its content lasts for one call of a layer."""
        if self._workspace is None or self._workspace.size < self.workspace_size:
            self._workspace = aligned.empty(self.device.xp, self.workspace_size, self.dtype)
        return self._workspace
