"""Claims about gains themselves: how far one was inflated, and whether it grows with size. Pure functions.

Both start from intervals that a report holds at once, and spend no alpha of their own: whenever those intervals hold,
so does what is concluded here, however they depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..spec.regions import Region

RISE_PERCENT = 1.0
"""A gain that rises by less than this from the smallest size to the largest counts as not growing."""


# -- claimed gain over measured gain -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quotient:
    """Values that a quotient may have: pieces from low to high, in order; infinite ends mean that there is no bound."""

    pieces: tuple[tuple[float, float], ...]

    def __contains__(self, value: float) -> bool:
        return any(low <= value <= high for low, high in self.pieces)

    def inside(self, low: float, high: float) -> bool:
        """True if all of it lies from `low` to `high`."""
        return bool(self.pieces) and all(low <= start and end <= high for start, end in self.pieces)

    def outside(self, low: float, high: float) -> bool:
        """True if none of it lies from `low` to `high`."""
        return all(end < low or high < start for start, end in self.pieces)

    def describe(self) -> str:
        """In words: "12 to 34", "at least 40, or at most -300"."""
        return ", or ".join(_piece(low, high) for low, high in reversed(self.pieces)) or "beyond all bounds"


def quotient(numerator: float, low: float, high: float) -> Quotient:
    """All values of numerator / x for x from `low` to `high`, 0 left out; `numerator` > 0, the ends may be infinite.

    Fieller's logic: the quotient is c if x is numerator / c, so the values that the data allow are those whose x lies
    in the interval. They hold with the interval's own confidence and need no normal approximation. An interval with 0
    inside gives two pieces without bound: a gain that may be nil may have been inflated by any factor, and one that may
    be a loss has the wrong sign. Raises ValueError for other arguments.
    """
    if not (low <= high and 0 < numerator < math.inf):
        raise ValueError(f"expected a positive numerator and low <= high, not {numerator}, {low} and {high}")
    if low > 0 or high < 0:
        return Quotient(((numerator / high, numerator / low),))
    pieces = []
    if low < 0:
        pieces.append((-math.inf, numerator / low))
    if high > 0:
        pieces.append((numerator / high, math.inf))
    return Quotient(tuple(pieces))


@dataclass(frozen=True)
class Inflation:
    """How many times too high a claim was: claimed gain over measured gain, for the low and the high end of the claim.

    verdict on "too high by `times`": supported, refuted, depends (on which end of the claim is meant) or inconclusive.
    """

    low_end: Quotient
    high_end: Quotient
    times: tuple[float, float]
    verdict: str
    reason: str


def inflation(claimed: tuple[float, float], low: float, high: float, times: tuple[float, float]) -> Inflation:
    """Judge "the claim of `claimed` was too high by `times`".

    claimed: the ratios t_old / t_new that were promised, (2, 3) for "2-3x". low, high: interval of the measured ratio;
    0 and infinity where there is none yet. times: the factors, (20, 50) for "20-50 times". A gain is the ratio less 1,
    so "2-3x" is a gain of 100 to 200 %. Raises ValueError where a claim promises no gain.
    """
    if not 1 < claimed[0] <= claimed[1] < math.inf:
        raise ValueError(f"claimed = {claimed}: expected ratios above 1, the lower one first")
    if not 0 < times[0] < times[1]:
        raise ValueError(f"times = {times}: expected 0 < low < high")
    ends = [quotient(ratio - 1, low - 1, high - 1) for ratio in claimed]
    words = []
    for end in ends:
        if end.inside(*times):
            words.append("inside")
        elif not end.outside(*times):
            words.append("open")
        else:
            # A gain that may be nil or a loss leaves a piece below and one above; what the claim promised was not
            # there, which is more than any factor.
            words.append("below" if end.pieces and 0 <= end.pieces[-1][1] < times[0] else "above")
    if "open" in words:
        verdict = "inconclusive"
    elif words[0] == words[1]:
        verdict = "supported" if words[0] == "inside" else "refuted"
    else:
        verdict = "depends"
    measured = f"measured gain {_percent(low - 1)} to {_percent(high - 1)}"
    reason = "; ".join(
        f"{ratio:g}x was too high by a factor of {end.describe()}" for ratio, end in zip(claimed, ends, strict=True)
    )
    return Inflation(ends[0], ends[1], times, verdict, f"{measured}: {reason}")


# -- does the gain grow? -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SizedGain:
    """A gain at one size (number of tokens), as the ratio t_old / t_new with its interval."""

    size: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Trend:
    """How a gain changes with size.

    rise: the fitted ratio at the largest size over that at the smallest, with its interval; above 1 the gain grows.
    per_doubling: the same for twice the size. falls: pairs of sizes between which the gain falls for certain. verdict
    on "the gain grows": supported, refuted, depends (grows as a whole, falls in between) or inconclusive.
    """

    rise: float
    low: float
    high: float
    per_doubling: float
    falls: tuple[tuple[float, float], ...]
    verdict: str
    reason: str


def trend(gains: Sequence[SizedGain], region: Region | None = None) -> Trend:
    """Judge "the gain grows with size" from two or more sizes; `region` is for the rise (default: more than 1 %).

    The rise is the slope of the least-squares line of log ratio over log size, times the range of log size: a linear
    contrast, whose weights sum to nil. Why linear: "it scales" is said of the whole range, one number with an interval
    answers it, and its largest weights are at the ends, where growth shows most. Why not isotonic alone: "never falls"
    is refuted by one dip between neighbours, however strongly the gain grows over all, and can be supported only by
    intervals that do not touch. It is asked all the same, as the second question: a rise with a certain fall in it is
    "depends". Why a margin: a gain that does not change at all could never be told from one that grows by nothing.

    The interval of the rise takes every gain's interval at its worst end. That is wider than independence would allow
    (for four sizes in equal steps of log size by a factor of 1.8), and holds without it. Raises ValueError for fewer
    than two sizes.
    """
    ordered = sorted(gains, key=lambda gain: gain.size)
    sizes = [gain.size for gain in ordered]
    if len(set(sizes)) < 2 or len(set(sizes)) < len(sizes) or not sizes[0] > 0:
        raise ValueError(f"a trend needs two or more different sizes above 0, each once, not {sizes}")
    region = region or Region.faster_than_percent(RISE_PERCENT)
    logs = [math.log(size) for size in sizes]
    centre = sum(logs) / len(logs)
    scale = (logs[-1] - logs[0]) / sum((x - centre) ** 2 for x in logs)
    weights = [scale * (x - centre) for x in logs]
    rise = sum(w * _log(gain.ratio) for w, gain in zip(weights, ordered, strict=True))
    weighted = [(w, gain) for w, gain in zip(weights, ordered, strict=True) if w]
    low = sum(w * _log(gain.low if w > 0 else gain.high) for w, gain in weighted)
    high = sum(w * _log(gain.high if w > 0 else gain.low) for w, gain in weighted)
    falls = tuple(
        (one.size, other.size) for one in ordered for other in ordered if one.size < other.size and other.high < one.low
    )
    if region.contains(low, high):
        verdict = "depends" if falls else "supported"
    else:
        verdict = "refuted" if region.excludes(low, high) else "inconclusive"
    reason = (
        f"from {sizes[0]:g} to {sizes[-1]:g} the gain changes by a factor of {_exp(rise):.4g} "
        f"[{_exp(low):.4g}, {_exp(high):.4g}]"
    )
    if falls:
        reason += "; it falls for certain from " + ", ".join(f"{one:g} to {other:g}" for one, other in falls)
    doubling = rise * math.log(2) / (logs[-1] - logs[0])
    return Trend(_exp(rise), _exp(low), _exp(high), _exp(doubling), falls, verdict, reason)


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else -math.inf


def _exp(log_ratio: float) -> float:
    return math.exp(log_ratio) if log_ratio < 700 else math.inf


def _percent(gain: float) -> str:
    return "without bound" if math.isinf(gain) else f"{gain * 100:.3g} %"


def _piece(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "anything"
    if math.isinf(high):
        return f"at least {low:.3g}"
    if math.isinf(low):
        return f"at most {high:.3g}"
    return f"{low:.3g} to {high:.3g}"
