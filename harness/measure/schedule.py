"""Whose turn it is: what each experiment still needs, as a stopping rule says it, and which comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..spec.experiments import Experiment
from ..spec.sample import Round
from .participants import ExperimentState


@dataclass(frozen=True)
class Remaining:
    """What an experiment still needs. `rounds_next`: until the next effect settles; `rounds_all`: until all do.

    Both are estimates, infinite where nothing can be said. No variants: all is settled. `early`: too few rounds yet
    for any interval of some effect; `rounds_next` is then until all have one, which is known. `effects`: how many are
    not settled.
    """

    variants: tuple[str, ...]
    early: bool
    rounds_next: float
    rounds_all: float
    effects: int = 1


class Stopping(Protocol):
    """Decides what still needs rounds."""

    def add(self, finished: Round) -> None:
        """Take a finished round in."""

    def remaining(self, experiment: Experiment) -> Remaining:
        """Variants and pairs that still need rounds, and about how many."""


def next_to_measure(open_: Sequence[tuple[ExperimentState, Remaining]], seconds_left: float) -> ExperimentState:
    """Whose turn it is among experiments that need rounds: one that has no interval yet and still can have one, that
    with the least time for each effect first; when none is left, the one where an effect can be settled soonest.

    What cannot get its first interval any more comes last, whatever it was promised: its rounds would say nothing,
    and others would go without.
    """

    def order(entry: tuple[ExperimentState, Remaining]) -> tuple[int, float, float]:
        book, remaining = entry
        seconds = remaining.rounds_next * book.round_seconds()
        if not remaining.early:
            return 1, seconds, book.seconds
        return 0 if seconds <= seconds_left else 2, seconds / remaining.effects, book.seconds

    return min(open_, key=order)[0]
