"""What a net is built for, and the rules by which layers take part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Annotated, ClassVar, Literal

from minicaffe.errors import SpecError

Phase = Literal["TRAIN", "TEST"]


@dataclass(frozen=True, kw_only=True)
class State:
    """What a net is built for: rules of layers are held against it (Caffe's NetState).

    >>> State(phase="TEST", level=1).over(State(stage=("deploy",)))
    State(phase='TEST', level=1, stage=('deploy',))
    """

    word: ClassVar[str] = "phase"
    phase: Annotated[Phase | None, "TRAIN or TEST; whoever builds the net decides otherwise"] = None
    level: Annotated[int | None, "what min_level and max_level are compared with; 0"] = None
    stage: Annotated[tuple[str, ...], "the stages it is for"] = ()

    @classmethod
    def given(cls, phase: Phase | None, level: int | None, stages: Sequence[str]) -> State:
        """A state as a program gives it. Raises SpecError for a level or stages that are none."""
        if isinstance(stages, str) or not all(isinstance(stage, str) for stage in stages):
            raise SpecError(f"stages: expected a list of names, got {stages!r}")
        try:
            return cls(phase=phase, level=level and index(level), stage=tuple(stages))
        except TypeError:
            raise SpecError(f"level: expected an integer, got {level!r}") from None

    def __str__(self) -> str:
        level = f", level {self.level}" if self.level else ""
        stages = f", stage {' and '.join(self.stage)}" if self.stage else ""
        return f"phase {self.phase}{level}{stages}"

    def over(self, other: State) -> State:
        """This state, with what it leaves open as in another, and the stages of both."""
        return State(
            phase=self.phase or other.phase,
            level=other.level if self.level is None else self.level,
            stage=tuple(dict.fromkeys((*other.stage, *self.stage))),
        )


ANY = State()  # says nothing
TRAIN = State(phase="TRAIN")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When a layer is part of the net: all that is given must hold (Caffe's NetStateRule)."""

    word: ClassVar[str] = "phase"
    phase: Annotated[Phase | None, "TRAIN or TEST"] = None
    min_level: Annotated[int | None, "the net's level is at least this"] = None
    max_level: Annotated[int | None, "the net's level is at most this"] = None
    stage: Annotated[tuple[str, ...], "stages that the net is all for"] = ()
    not_stage: Annotated[tuple[str, ...], "stages that the net is for none of"] = ()

    def holds(self, state: State) -> bool:
        """Whether a net of this state meets the rule."""
        level = state.level or 0
        return (
            self.phase in (None, state.phase)
            and (self.min_level is None or level >= self.min_level)
            and (self.max_level is None or level <= self.max_level)
            and all(stage in state.stage for stage in self.stage)
            and all(stage not in state.stage for stage in self.not_stage)
        )
