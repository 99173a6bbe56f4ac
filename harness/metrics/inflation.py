"""How far a promise overshot: promised gain ÷ measured gain, from a timed effect's interval; it spends no alpha of its
own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from ..evidence.evidence import Evidence
from ..evidence.verdict import reasons
from ..spec.experiments import Target
from ..spec.hypotheses import rising
from ..spec.regions import Region
from ..spec.words import Word
from ..store.verdict_schema import Effect
from .base import GainHypothesis, Judged, Metric, measured_gains, no_value


@dataclass(frozen=True)
class Quotient:
    """Values that a quotient may have: pieces from low to high, in order; an infinite end is no bound."""

    pieces: tuple[tuple[float, float], ...]

    def place(self, low: float, high: float) -> str:
        """Where it lies to `low` and `high`: "inside", "below", "above" or "open".

        A gain that may be 0 or a loss leaves a piece below and one above; what the claim promised was not there, which
        is more than any factor: "above".
        """
        if self.pieces and all(low <= start and end <= high for start, end in self.pieces):
            return "inside"
        if any(start <= high and low <= end for start, end in self.pieces):
            return "open"
        return "below" if self.pieces and 0 <= self.pieces[-1][1] < low else "above"

    def describe(self) -> str:
        """In words: "a factor of 12 to 34", "a factor of at least 40, or there is no gain at all"."""
        low, high = self.factors()
        if low == math.inf:
            return "any factor: there is no gain"
        if high < math.inf:
            return f"a factor of {low:.3g} to {high:.3g}"
        return f"a factor of at least {low:.3g}, or there is no gain at all"

    def factors(self) -> tuple[float, float]:
        """The least and the largest factor. Infinite: there is no gain, or a loss, which is beyond any factor."""
        low, high = next(((low, high) for low, high in self.pieces if high > 0), (math.inf, math.inf))
        return low, high if len(self.pieces) == 1 else math.inf


def quotient(numerator: float, low: float, high: float) -> Quotient:
    """All values of numerator / x for x from `low` to `high`, 0 left out; `numerator` > 0, the ends may be infinite.

    Fieller's logic: the quotients that the data allow are those whose x lies in the interval. They hold with its
    confidence and need no normal approximation. An interval with 0 inside gives two pieces without bound: a gain that
    may be 0 may have been inflated by any factor. Raises ValueError for other arguments.
    """
    if not (low <= high and 0 < numerator < math.inf):
        raise ValueError(f"expected a positive numerator and low <= high, not {numerator}, {low} and {high}")
    if low > 0 or high < 0:
        return Quotient(((numerator / high, numerator / low),))
    below = [(-math.inf, numerator / low)] if low < 0 else []
    above = [(numerator / high, math.inf)] if high > 0 else []
    return Quotient((*below, *above))


def inflation(
    claimed: tuple[float, float], low: float, high: float, times: tuple[float, float]
) -> tuple[Word, str, list[Quotient]]:
    """Verdict and reason on "the claim of `claimed` was too high by `times`", and the factors for both its ends.

    "depends": on which end of the claim is meant.

    claimed: the promised ratios t_old / t_new, (2, 3) for "2-3x". low, high: interval of the measured ratio; 0 and
    infinity where there is none yet. times: the factors, (20, 50) for "20-50 times". A gain is the ratio less 1. Raises
    ValueError where a claim promises no gain.
    """
    if not 1 < claimed[0] <= claimed[1] < math.inf:
        raise ValueError(f"claimed = {claimed}: expected ratios above 1, the lower one first")
    if not 0 < times[0] < times[1]:
        raise ValueError(f"times = {times}: expected 0 < low < high")
    ends = [quotient(ratio - 1, low - 1, high - 1) for ratio in claimed]
    match [end.place(*times) for end in ends]:
        case ["open", _] | [_, "open"]:
            verdict = Word.INCONCLUSIVE
        case ["inside", "inside"]:
            verdict = Word.SUPPORTED
        case [one, other]:
            verdict = Word.REFUTED if one == other else Word.DEPENDS
    measured = f"measured gain {_percent(low - 1)} to {_percent(high - 1)}"
    reason = "; ".join(f"{ratio:g}x was too high by {end.describe()}" for ratio, end in zip(claimed, ends, strict=True))
    return verdict, f"{measured}: {reason}", ends


def _percent(gain: float) -> str:
    return "without bound" if math.isinf(gain) else f"{gain * 100:.3g} %"


_AboveOne = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=1)]


class InflationHypothesis(GainHypothesis):
    """A gain of `claimed` was promised, and it was `range` times too high."""

    counted_in = "times"

    metric: Literal["inflation"]
    claimed: Annotated[
        tuple[_AboveOne, _AboveOne],
        Field(description="[low, high] with 1 < low < high, the ratios t_old / t_new that were promised"),
        AfterValidator(rising),
    ]

    def targets(self) -> Iterator[Target]:
        """The gain must be known to lie inside or outside of what the lower end of the promise gives over the factors.

        The upper end's gains are higher, and settled with it wherever there is hardly any gain.
        """
        low, high = self.range or (0.0, math.inf)
        gain = self.claimed[0] - 1
        region = Region(math.log1p(gain / high), math.log1p(gain / low) if low > 0 else math.inf)
        for comparison in self.comparisons():
            yield Target(comparison, (region,), "operations")

    @model_validator(mode="after")
    def _has_factors(self) -> Self:
        if self.range is None:
            raise ValueError('metric = "inflation" needs range = [low, high], the factors')
        return self


class InflationMetric(Metric[InflationHypothesis]):
    """Computed from timed effects; there is no pass."""

    names = ("inflation",)
    about = "How far the promise overshot: promised gain ÷ measured gain."
    page = "scaling"
    hypothesis = InflationHypothesis

    def judge(self, hypothesis: InflationHypothesis, evidence: Evidence, *, alpha: float) -> Judged:
        """One verdict from the factors on all workloads."""
        gains = measured_gains(hypothesis.comparisons(), evidence, alpha=alpha)
        if isinstance(gains, Judged):
            return gains
        effects = tuple(_overshoot(hypothesis, gain) for gain in gains)
        words = {effect.verdict for effect in effects}
        if len(words) == 1:
            return Judged(effects[0].verdict, reasons(effects), effects)
        both = words & {Word.SUPPORTED, Word.DEPENDS} and words & {Word.REFUTED, Word.DEPENDS}
        return Judged(Word.DEPENDS if both else Word.INCONCLUSIVE, reasons(effects), effects)


def _overshoot(hypothesis: InflationHypothesis, gain: Effect) -> Effect:
    """The factor on one workload, from the measured ratio."""
    assert hypothesis.range is not None
    verdict, reason, ends = inflation(hypothesis.claimed, gain.low, gain.high, hypothesis.range)
    least, most = zip(*(end.factors() for end in ends), strict=True)
    return replace(
        no_value(hypothesis, gain.workload, "claimed gain over measured gain"),
        ratio=(sum(hypothesis.claimed) / 2 - 1) / (gain.ratio - 1) if gain.ratio > 1 else math.inf,
        low=min(least),
        high=max(most),
        rounds=gain.rounds,
        seconds=gain.seconds,
        verdict=verdict,
        reason=reason,
    )


METRIC = InflationMetric()
