"""What a claim allows: a `Region` of log ratios where two times are compared, a `Range` of values where one is read.

A ratio is t_baseline / t_variant, so above 1 the variant is the faster side; its logarithm makes "twice as fast" and
"half as fast" mirror images, and makes intervals symmetric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Span:
    """Values from `low` to `high`; either may be infinite."""

    low: float
    high: float

    def contains(self, low: float, high: float) -> bool:
        """True if the whole interval from `low` to `high` lies in it."""
        return self.low <= low and high <= self.high

    def excludes(self, low: float, high: float) -> bool:
        """True if no point of the interval from `low` to `high` lies in it."""
        return high < self.low or self.high < low

    @property
    def boundaries(self) -> tuple[float, ...]:
        """The finite ends."""
        return tuple(end for end in (self.low, self.high) if math.isfinite(end))

    def to_json(self) -> dict[str, float | None]:
        """Both ends; null where there is none."""
        return {name: end if math.isfinite(end) else None for name, end in (("low", self.low), ("high", self.high))}


@dataclass(frozen=True)
class Region(Span):
    """Log ratios from `low` to `high`; either may be infinite. only_inside: whether "it lies outside" is no answer."""

    only_inside: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not self.low < self.high:  # also catches NaN
            raise ValueError(f"a region needs low < high, not {self.low} and {self.high}")

    @property
    def one_sided(self) -> bool:
        """Whether an answer can be wrong at one end of an interval only, whatever is true.

        It is where there is one limit, but not where that is 1: sides that are alike lie there, and "faster" and
        "slower" are both wrong. And it is where being inside is the only answer (two one-sided tests; Schuirmann 1987).
        """
        return self.only_inside or (len(self.boundaries) == 1 and self.boundaries != (0.0,))

    @classmethod
    def faster_than_percent(cls, percent: float) -> Region:
        """The variant is faster by more than `percent`: ratio above 1 + percent/100."""
        return cls(math.log1p(percent / 100), math.inf)

    @classmethod
    def slower_than_percent(cls, percent: float) -> Region:
        """The variant takes more than `percent` more time: ratio below 1 / (1 + percent/100)."""
        return cls(-math.inf, -math.log1p(percent / 100))

    @classmethod
    def not_faster_than_percent(cls, percent: float) -> Region:
        """The variant is not faster by more than `percent`; it may be slower."""
        return cls(-math.inf, math.log1p(percent / 100))

    @classmethod
    def ratio(cls, low: float, high: float) -> Region:
        """The variant is `low` to `high` times as fast."""
        return cls(math.log(low), math.log(high))

    @classmethod
    def gain_percent(cls, low: float, high: float) -> Region:
        """The variant is `low` to `high` percent faster: ratio from 1 + low/100 to 1 + high/100."""
        return cls(math.log1p(low / 100), math.log1p(high / 100))

    @classmethod
    def same_within_percent(cls, percent: float, *, only_inside: bool = False) -> Region:
        """Neither side is more than `percent` faster than the other."""
        return cls(-math.log1p(percent / 100), math.log1p(percent / 100), only_inside=only_inside)

    def describe(self) -> str:
        """The region in words: "more than 1 % faster", "2-3x", "6-11 % faster", "same within ±1 %"."""
        low, high = self.low, self.high
        if math.isinf(low) and math.isinf(high):
            return "any effect"
        if math.isinf(high):
            return "at all faster" if low == 0 else f"more than {_faster(low)}"
        if math.isinf(low) and high > 0:
            return f"at most {_faster(high)}"
        if math.isinf(low):
            return "at all slower" if high == 0 else f"more than {_faster(high)}"
        if math.isclose(low, -high):
            return f"same within ±{_percent(high)} %"
        if low >= math.log(1.5):
            return f"{math.exp(low):.4g}-{math.exp(high):.4g}x"
        if low >= 0:
            return f"{_percent(low)}-{_percent(high)} % faster"
        if high <= 0:
            return f"{_percent(-high)}-{_percent(-low)} % slower"
        return f"from {_faster(low)} to {_faster(high)}"

    def to_json(self) -> dict[str, float | None]:
        """Both ends as ratios; null where there is none."""
        return {name: None if end is None else math.exp(end) for name, end in super().to_json().items()}


MARGIN_PERCENT = 1.0
"""Without a claim, two variants count as the same within this much."""

ANSWERS = (Region(0.0, math.inf), Region.same_within_percent(MARGIN_PERCENT, only_inside=True))
"""What settles a comparison without a claim, whichever comes first: faster or slower at all, or the same."""

SECOND_MARGIN_PERCENT = 2.0
"""Where the time is over before that, they are called the same within this much."""


@dataclass(frozen=True)
class Range(Span):
    """Values from `low` to `high` in `unit` ("%", "MiB", "lines", ...); either may be infinite."""

    unit: str

    def __post_init__(self) -> None:
        if not self.low <= self.high:  # also catches NaN
            raise ValueError(f"a range needs low <= high, not {self.low} and {self.high}")

    def describe(self) -> str:
        """The range in words: "2-55 %", "above 10 %", "at most 50 lines"."""
        unit = f" {self.unit}" if self.unit else ""
        if math.isinf(self.high):
            return f"above {self.low:.4g}{unit}"
        if math.isinf(self.low):
            return f"at most {self.high:.4g}{unit}"
        if self.low == self.high:
            return f"{self.low:.4g}{unit}"
        return f"{self.low:.4g}{' to ' if self.low < 0 else '-'}{self.high:.4g}{unit}"


def _percent(log_ratio: float) -> str:
    return f"{math.expm1(log_ratio) * 100:.4g}"


def _faster(log_ratio: float) -> str:
    """A log ratio as "5 % slower", "1 % faster" or "3x faster"."""
    word = "faster" if log_ratio >= 0 else "slower"
    size = abs(log_ratio)
    return f"{math.exp(size):.4g}x {word}" if size >= math.log(2) else f"{_percent(size)} % {word}"
