"""Measured gains that other values are computed from (see `inflation` and `scaling`)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ..evidence.effect import Effect
from ..evidence.evidence import Evidence, compare_sides
from ..evidence.verdict import reasons
from ..spec.comparison import Comparison
from ..spec.regions import Region
from ..stats.confidence import Method
from .base import NOT_MEASURABLE, Judged


def measured_gains(
    comparisons: Iterable[Comparison], evidence: Evidence, *, alpha: float, method: Method
) -> list[Effect] | Judged:
    """The effects of all comparisons that the run took on; or the verdict, where one of them has no interval.

    Each interval is as wide as page faults and a control that fired may make it. All hold at once, so that what is
    computed from them needs no alpha.
    """
    anything = Region(-math.inf, math.inf)
    wanted = [comparison for comparison in comparisons if evidence.has(comparison)]
    timed = [compare_sides(evidence, each, anything, "operations", alpha, method) for each in wanted]
    if not timed:
        return Judged(NOT_MEASURABLE, "this run lacks some of its workloads")
    open_ = [
        replace(effect, warnings=("too few rounds for an interval",)) if effect.verdict == "supported" else effect
        for effect in timed
        if not (effect.verdict == "supported" and effect.low > 0 and math.isfinite(effect.high))
    ]
    if open_:
        return Judged("inconclusive", reasons(open_))
    gains = []
    for comparison, effect in zip(wanted, timed, strict=True):
        low, high = evidence.allowance(comparison)
        gains.append(replace(effect, low=effect.low * math.exp(-low), high=effect.high * math.exp(high)))
    return gains
