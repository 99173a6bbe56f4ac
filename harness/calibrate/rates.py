"""What trials say: the rates of false verdicts, of intervals that hold the truth, and of verdicts given in time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

from .record import Trial

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rate:
    """So many of so many, with the exact (Clopper-Pearson) interval of the rate; all of them where there are none."""

    count: int
    of: int

    @property
    def ends(self) -> tuple[float, float]:
        """Its 95 % interval, between 0 and 1."""
        if not self.of:
            return 0.0, 1.0
        interval = binomtest(self.count, self.of).proportion_ci(CONFIDENCE, method="exact")
        return float(interval.low), float(interval.high)

    def __str__(self) -> str:
        if not self.of:
            return "none yet"
        low, high = self.ends
        return f"{100 * self.count / self.of:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


@dataclass(frozen=True)
class RateRow:
    """Trials of one kind."""

    name: str
    trials: int
    false: Rate  # wrong verdicts
    covered: Rate  # intervals that hold the truth
    decided: Rate  # trials with a verdict
    seconds: float | None  # how long half of those with a verdict took at most; None without one


def row(name: str, trials: Sequence[Trial]) -> RateRow:
    """Sum up trials."""
    covered = [each.is_covered for each in trials if each.is_covered is not None]
    decided = [each.seconds for each in trials if each.is_decided]
    return RateRow(
        name,
        len(trials),
        Rate(sum(each.is_false for each in trials), len(trials)),
        Rate(sum(covered), len(covered)),
        Rate(len(decided), len(trials)),
        statistics.median(decided) if decided else None,
    )


def rows(trials: Sequence[Trial]) -> list[RateRow]:
    """All trials, then by what else ran, by method, and by the work that was planted."""
    kinds: list[tuple[str, Callable[[Trial], bool]]] = [
        ("all", lambda each: True),
        ("no neighbours of ours", lambda each: not each.busy),
        ("busy neighbours", lambda each: each.busy),
        ("blocks of a pair", lambda each: each.method == "blocks"),
        ("rounds", lambda each: each.method == "rounds"),
    ]
    for percent in sorted({each.percent for each in trials}):
        name = f"{percent} % more work" if percent else "identical code"
        kinds.append((name, lambda each, percent=percent: each.percent == percent))  # type: ignore[misc]
    return [row(name, [each for each in trials if is_kind(each)]) for name, is_kind in kinds]


def in_a_sentence(trials: Sequence[Trial]) -> str:
    """The rate of false verdicts in words, for people."""
    busy, total = sum(each.busy for each in trials), row("all", trials)
    given = Rate(total.false.count, total.decided.count)
    return (
        f"Of {len(trials):,} comparisons whose outcome was known ({busy:,} beside busy neighbours), "
        f"{total.false.count} got a wrong verdict: {total.false} (95 % interval). "
        f"{total.decided} of them got a verdict at all; of these verdicts, {given} were wrong. "
        f"{total.covered} of the intervals held the truth."
    )
