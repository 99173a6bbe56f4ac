"""What is measured next: a new comparison of what there is least of, or one that waits for its second run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .known import ALLOCATIONS, CASES, FUNCTIONS, IDENTICAL, KINDS, MODELS, PLANTED, REPEATS, TWINS, KnownComparison
from .rates import Trial

WAITING = 24
"""Comparisons that wait for their second run, at most: half as many on average, so that the runs of one comparison
are as many trials and several minutes apart."""

SHARES = {FUNCTIONS: 3, ALLOCATIONS: 1, MODELS: 1}
"""Comparisons of each kind: one of allocations or models takes several times as long."""

Piece = tuple[str, int]
"""What work, and how much more of it in percent."""

WORKS: dict[Piece, int] = {(TWINS, 0): 5, (IDENTICAL, 0): 3} | {(PLANTED, percent): 1 for percent in REPEATS}
"""Comparisons of each."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Selection:
    """What is measured and summed up: of what kinds, with what work and cases. cases: all where there are none."""

    kinds: Sequence[str] = KINDS
    works: Sequence[Piece] = (*WORKS,)
    cases: Sequence[str] = ()

    def __contains__(self, trial: Trial) -> bool:
        asked = trial.kind in self.kinds and (trial.work, trial.percent) in self.works
        return asked and trial.case in (self.cases or (trial.case,))

    def cases_of(self, kind: str) -> list[str]:
        """Those of a kind."""
        return [case for case in CASES[kind] if case in (self.cases or (case,))]


def waiting(trials: Sequence[Trial]) -> list[KnownComparison]:
    """Comparisons with one run, but for the one that was measured last."""
    runs = Counter(trial.number for trial in trials)
    return [trial.comparison for trial in trials[:-1] if runs[trial.number] == 1]


def following(trials: Sequence[Trial], asked: Selection, draw: random.Random, left: int | None) -> KnownComparison:
    """What to measure next. trials: those that may be one of a pair with it. left: how many will be measured, if that
    is known: the last ones are second runs."""
    again = waiting(trials)
    if again and (draw.random() < len(again) / WAITING or (left is not None and left <= len(again))):
        return draw.choice(again)
    made = [*{trial.number: trial for trial in trials}.values()]
    kinds = [kind for kind in asked.kinds if asked.cases_of(kind)]
    kind = scarcest(kinds, (trial.kind for trial in made), draw, lambda kind: SHARES[kind])
    made = [trial for trial in made if trial.kind == kind]
    done = ((trial.work, trial.percent) for trial in made)
    work, percent = scarcest(asked.works, done, draw, lambda piece: WORKS[piece])
    made = [trial for trial in made if (trial.work, trial.percent) == (work, percent)]
    case = scarcest(asked.cases_of(kind), (trial.case for trial in made), draw)
    return KnownComparison(kind, work, case, percent, draw.getrandbits(48))


def is_busy(trials: Sequence[Trial], comparison: KnownComparison, draw: random.Random) -> bool:
    """Whether neighbours are busy in the next run: half of the time, also of each kind and work."""
    alike = [trial for trial in trials if (trial.kind, trial.work) == (comparison.kind, comparison.work)]
    return scarcest((False, True), (trial.busy for trial in alike), draw)


def scarcest(
    items: Sequence[Item], made: Iterable[Item], draw: random.Random, share: Callable[[Item], int] = lambda item: 1
) -> Item:
    """The item of which there is least, for its share; a random one of several."""
    counts = Counter(made)
    return min(draw.sample(items, len(items)), key=lambda item: counts[item] / share(item))
