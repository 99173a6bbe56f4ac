"""Identical code against itself: what the controls of a run showed, and which difference they could have seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import data

SEEN = 0.01
"""The difference of which the page says where it could have been seen."""


@dataclass(frozen=True)
class Control:
    """Identical code against itself: `kind` is "aa" (entered twice) or "copy" (a copy of its source).

    An open interval, of too few rounds, has None for both ends.
    """

    workload: str
    kind: str
    variant: str
    ratio: float | None
    low: float | None
    high: float | None
    rounds: int
    fired: bool

    @property
    def smallest(self) -> float | None:
        """The smallest difference that it could have shown, as a part of 1: its half width on the log scale."""
        if self.low is None or self.high is None:
            return None
        return math.expm1((math.log(self.high) - math.log(self.low)) / 2)


def controls(run: data.Run) -> list[Control]:
    """The controls of a run, what fired first, then the least certain first."""
    rows = []
    for row in run.manifest.noise.controls if run.manifest.noise else []:
        if row is None:
            continue
        bounded = row.low is not None and row.high is not None and row.low <= row.high
        low, high = (row.low, row.high) if bounded else (None, None)
        rows.append(
            Control(row.workload, row.kind, row.variant, row.ratio, low, high, row.rounds or 0, row.fired is True)
        )
    return sorted(rows, key=lambda one: (not one.fired, one.smallest is None, -(one.smallest or 0)))


def smallest(controls: Sequence[Control]) -> dict[str, float | None]:
    """By workload the smallest difference that its least certain control could have shown; None where open."""
    by_workload: dict[str, float | None] = {}
    for control in controls:
        have = by_workload.get(control.workload, 0.0)
        mine = control.smallest
        by_workload[control.workload] = None if have is None or mine is None else max(have, mine)
    return by_workload


def could_see(controls: Sequence[Control], difference: float = SEEN) -> str:
    """What this run could see at all, in a few sentences."""
    by_workload = smallest(controls)
    known = {name: size for name, size in by_workload.items() if size is not None}
    able = sum(size <= difference for size in known.values())
    fired = {control.workload for control in controls if control.fired}
    of = f"{len(by_workload)} workload{'s' * (len(by_workload) != 1)}"
    lines = [f"On {able} of {of} this machine could have seen a difference of {100 * difference:g} %."]
    if known:
        best, middle, worst = (100 * find(list(known.values())) for find in (min, np.median, max))
        lines.append(
            f"The smallest difference that it could have seen was {best:.2g} % at best, {middle:.2g} % in the middle "
            f"and {worst:.2g} % at worst."
        )
    if open_ones := len(by_workload) - len(known):
        lines.append(f"On {open_ones} there were too few rounds to say.")
    lines.append(f"Controls fired on {len(fired)}." if fired else "No control fired.")
    return " ".join(lines)
