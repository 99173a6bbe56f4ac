"""How gains scale: whether a gain grows with size, or with the number of layers.

A trend needs the intervals of all its lengths to hold at once, so they share alpha: whenever they hold, so does what is
concluded from them, however they depend on each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from ..evidence.effect import DEPENDENT, TOO_FEW, exp, reasons
from ..evidence.evidence import Evidence, compare_sides
from ..spec.experiments import Target
from ..spec.hypotheses import Names
from ..spec.regions import Region
from ..spec.words import Word
from ..stats.confidence import Interval
from ..store.verdict_schema import Effect
from .base import GainHypothesis, Judged, Metric, no_value


@dataclass(frozen=True)
class Trend:
    """How a gain changes with size.

    rise: the fitted ratio at the largest size over that at the smallest, with its interval; above 1 the gain grows.
    falls: pairs of sizes between which it falls for certain. verdict: on "the gain grows".
    """

    rise: float
    low: float
    high: float
    falls: tuple[tuple[float, float], ...]
    verdict: Word
    reason: str


def trend(gains: Sequence[tuple[float, Interval]], region: Region) -> Trend:
    """Judge "the gain grows with size" from two or more (size, its log ratio t_old / t_new); `region` is for the rise.

    The rise is the slope of the least-squares line of log ratio over log size, times the range of log size. Why linear:
    "it scales" is said of the whole range, and the largest weights are at the ends, where growth shows most. "Never
    falls" alone would be refuted by one dip between neighbours: a rise with a certain fall in it is "depends", unless
    the region has room for a fall. Why a margin: a gain that does not change could never be distinguished from one
    that grows by nothing.

    The interval of the rise takes every gain's interval at its worst end: wider than independence would allow (for four
    sizes in equal steps of log size by a factor of 1.8), and valid without it. Raises ValueError for fewer than two
    sizes.
    """
    sizes, ordered = zip(*sorted(gains, key=lambda gain: gain[0]), strict=True)
    if len(set(sizes)) < 2 or len(set(sizes)) < len(sizes) or not sizes[0] > 0:
        raise ValueError(f"a trend needs two or more different sizes above 0, each once, not {sizes}")
    logs = [math.log(size) for size in sizes]
    centre = sum(logs) / len(logs)
    scale = (logs[-1] - logs[0]) / sum((x - centre) ** 2 for x in logs)
    weighted = [(w, gain) for x, gain in zip(logs, ordered, strict=True) if (w := scale * (x - centre))]
    rise = sum(w * gain.centre for w, gain in weighted)
    low = sum(w * (gain.low if w > 0 else gain.high) for w, gain in weighted)
    high = sum(w * (gain.high if w > 0 else gain.low) for w, gain in weighted)
    pairs = itertools.combinations(zip(sizes, ordered, strict=True), 2)
    falls = tuple((size, larger) for (size, one), (larger, other) in pairs if other.high < one.low)
    if region.contains(low, high):
        verdict = Word.DEPENDS if falls and region.low >= 0 else Word.SUPPORTED
    else:
        verdict = Word.REFUTED if region.excludes(low, high) else Word.INCONCLUSIVE
    reason = (
        f"from {sizes[0]:g} to {sizes[-1]:g} the gain changes by a factor of {exp(rise):.4g} "
        f"[{exp(low):.4g}, {exp(high):.4g}]"
    )
    if falls:
        reason += "; it falls for certain from " + ", ".join(f"{one:g} to {other:g}" for one, other in falls)
    return Trend(exp(rise), exp(low), exp(high), falls, verdict, reason)


class TrendHypothesis(GainHypothesis):
    """The gain of `variant` over `baseline` rises from the smallest workload to the largest: by their lengths, or by
    the layers of their models where all lengths are the same. `evidence` is "context" where both are code of one
    engine."""

    counted_in = "% rise"
    least_workloads = 2

    metric: Literal["trend"]
    evidence: Annotated[Literal["operations", "context"], Field(description='"operations" or "context"')] = "operations"
    workloads: Annotated[Names, Field(min_length=2, description="a list of two or more names without repeats")]

    def targets(self) -> Iterator[Target]:
        at_once = len(self.workloads)
        return (replace(target, at_once=at_once, evidence=self.evidence) for target in super().targets())


class TrendMetric(Metric[TrendHypothesis]):
    """Computed from timed effects; there is no pass."""

    names = ("trend",)
    about = "How the gain rises from the smallest to the largest workload, and the gain at each of them."
    inside = "workloads"
    hypothesis = TrendHypothesis

    def judge(self, hypothesis: TrendHypothesis, evidence: Evidence, *, alpha: float) -> Judged:
        """One verdict from the gains on all workloads together."""
        gains = _gains(hypothesis, evidence, alpha / len(hypothesis.workloads))
        if isinstance(gains, Judged):
            return gains
        sizes = evidence.sizes if len({evidence.sizes.get(gain.workload) for gain in gains}) > 1 else evidence.layers
        sized = [
            (
                float(sizes.get(gain.workload, 0)),
                Interval(math.log(gain.ratio), math.log(gain.low), math.log(gain.high), gain.rounds),
            )
            for gain in gains
        ]
        ends = (hypothesis.region.low, hypothesis.region.high)  # percent of rise, to log ratios
        rising = trend(sized, Region(*(math.log1p(end / 100) if math.isfinite(end) else end for end in ends)))
        effect = no_value(hypothesis, f"{gains[0].workload} to {gains[-1].workload}", "rise of the gain")
        ratio, low, high = ((end - 1) * 100 for end in (rising.rise, rising.low, rising.high))
        rounds, seconds = min(gain.rounds for gain in gains), sum(gain.seconds for gain in gains)
        effect = replace(effect, ratio=ratio, low=low, high=high, rounds=rounds, seconds=seconds)
        effect = replace(effect, verdict=rising.verdict, reason=rising.reason)
        return Judged(rising.verdict, rising.reason, (effect,))


def _gains(hypothesis: TrendHypothesis, evidence: Evidence, alpha: float) -> list[Effect] | Judged:
    """The gain on each workload; or the verdict, where one of them has no interval.

    Each interval is as wide as page faults and a control that fired may make it, and holds with 1 - alpha.
    """
    wanted = list(hypothesis.comparisons())
    if not all(map(evidence.has, wanted)):
        return Judged(Word.NOT_MEASURABLE, "this run lacks some of its workloads")
    anything, gains = Region(-math.inf, math.inf), []
    for comparison in wanted:
        gain = compare_sides(evidence, comparison, anything, hypothesis.evidence, alpha)
        if gain.verdict == Word.SUPPORTED:
            if gain.low <= 0 or math.isinf(gain.high):
                gain = replace(gain, verdict=Word.INCONCLUSIVE, reason=TOO_FEW)
            elif evidence.is_dependent(comparison):
                gain = replace(gain, verdict=Word.INCONCLUSIVE, reason=DEPENDENT)
            else:
                low, high = evidence.allowance(comparison)
                gain = replace(gain, low=gain.low * math.exp(-low), high=gain.high * math.exp(high))
        gains.append(gain)
    for word, verdict in ((Word.NOT_EVIDENCE, Word.NOT_MEASURABLE), (Word.INCONCLUSIVE, Word.INCONCLUSIVE)):
        if without := [gain for gain in gains if gain.verdict == word]:
            return Judged(verdict, reasons(without))
    return gains


METRIC = TrendMetric()
