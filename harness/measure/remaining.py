"""What still needs rounds, as the stopping rule says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..spec.comparison import Comparison
from ..spec.experiments import Experiment
from ..spec.sample import Round
from .participants import ExperimentState


class Wait(NamedTuple):
    """An effect that a verdict waits for, about how many rounds until it is settled, how many it has had, and whether
    it is of a headline claim."""

    pair: Comparison
    rounds: float
    done: int
    headline: bool = False


WaitsFor = tuple[Wait, ...]
"""All that one verdict waits for."""


@dataclass(frozen=True)
class Remaining:
    """Effects that still need rounds, and what they need: those of one `pair` that is measured apart, or all others of
    an experiment, which are measured together.

    What is called a round here is what gives one value: a life, in which there may be several. `rounds_next`: until the
    next effect settles; `rounds_all`: until all do. Both are estimates, infinite where nothing can be said. `variants`:
    what takes part in the next round; of a pair that is its two sides, and a control while one is not known well.
    `early`: too few rounds yet for any interval of some effect; `rounds_next` is then until all have one, which is
    known. `effects`: how many are not settled; 0 for a control that only wants its interval. `headline`: whether one of
    them is of a headline claim. `verdicts`: for each verdict that waits for one of these effects, all that it waits
    for. None at all: every verdict is known, and only intervals are still wide. `asked`: how many rounds those had that
    the first screen asks for; None where there is none.
    """

    variants: tuple[str, ...]
    early: bool
    rounds_next: float
    rounds_all: float
    effects: int = 1
    headline: bool = False
    pair: Comparison | None = None
    verdicts: tuple[WaitsFor, ...] = ()
    asked: int | None = None

    @property
    def needs_precision(self) -> bool:
        """Whether the first interval will probably settle less than all: then longer blocks are worth their time."""
        return not self.early or self.rounds_all > self.rounds_next


class Stopping(Protocol):
    """Decides what still needs rounds."""

    def add(self, finished: Round) -> None:
        """Take a finished round in. It counts once its process is over."""

    def end_life(self, process: int | None = None) -> None:
        """The life of this process is over; without a number: every life."""

    def remaining(self, experiment: Experiment, is_apart: Callable[[Comparison], bool]) -> Sequence[Remaining]:
        """What still needs rounds, and about how many. `is_apart`: whether a pair is measured alone."""


Open = tuple[ExperimentState, Remaining]
