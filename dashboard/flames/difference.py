"""How much time two profiles of the same workload spend in each frame, and where they differ. Pure, no I/O.

Differences are milliseconds a call, never share points: where the rest of a call became faster, a frame that takes as
long as before has a larger share. Trees and counts of two sides come from `frames.merge`, the baseline first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llama_workbench.harness.store.pass_schema import Profile

from .tree import Counts, Frame, Scale

SURE = 2.0
"""A difference below this many standard errors is drawn grey. Of identical code about one box in twenty exceeds it."""


@dataclass(frozen=True)
class Delta:
    """Time of the second side less that of the first, of one frame, with its standard error."""

    ns: float
    error_ns: float
    only: int | None  # the side that alone has the frame

    @property
    def sure(self) -> bool:
        """True where the difference is at least SURE standard errors."""
        return self.ns != 0 and abs(self.ns) >= SURE * self.error_ns


def delta(counts: Counts, scales: Sequence[Scale]) -> Delta:
    """Second side less first: the difference of share × median; both sides' errors are independent of each other."""
    before, after = counts
    first, second = scales
    only = None if before and after else 0 if before else 1
    return Delta(
        second.time_ns(after) - first.time_ns(before), math.hypot(first.error_ns(before), second.error_ns(after)), only
    )


def colour_limit_ns(root: Frame, scales: Sequence[Scale]) -> float:
    """The difference at which the colour is strongest: the largest sure one of a leaf; 0 where no leaf has any.

    Not of callers: the outermost holds the sum of all, and beside it everything would look pale.
    """
    deltas = (delta(counts, scales) for counts in _leaves(root))
    return max((abs(found.ns) for found in deltas if found.sure), default=0.0)


def _leaves(frame: Frame) -> Iterator[Counts]:
    lines = [counts for _, counts in frame.lines] if len(frame.lines) > 1 else []
    yield from lines
    for child in frame.children:
        yield from _leaves(child)
    if not lines and not frame.children:
        yield frame.counts


def reason_against(sides: Sequence[Profile]) -> str:
    """Why two profiles may not be subtracted, in words; empty where they may."""
    rates = [side.rate_hz for side in sides]
    if not all(rates):
        return "the run does not say at which rate a side was sampled"
    if len(set(rates)) > 1:
        return f"the sides were sampled at {' and '.join(f'{rate:g} Hz' for rate in rates)}"
    if len({side.native for side in sides}) > 1:
        return "one side has the frames of native code and the other does not"
    return "" if all(side.median_ns for side in sides) else "the run has no time of a call for a side"
