"""What a claim allows: a `Region` of log ratios where two times are compared, a `Range` of values where one is read.

A ratio is t_baseline / t_variant, so above 1 the variant is the faster side; its logarithm makes "twice as fast" and
"half as fast" mirror images, and makes intervals symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from .words import Word


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


# What a comparison of two variants must not come to (`--fail-if slower:5`), so that a build can fail by it.


FAIL_IF = "fail-if"
"""The name under which conditions on a comparison are judged."""

Kind = Literal["slower", "maybe-slower", "not-faster"]
BETWEEN = "not-between"

EXPECTED = (
    f"expected WHAT:PERCENT, where WHAT is {', '.join(get_args(Kind))}, or {BETWEEN}:LOW:HIGH in times as fast, "
    f"for example slower:5 or {BETWEEN}:0.98:1.02"
)


@dataclass(frozen=True)
class Condition:
    """When a comparison fails, by its effects on all workloads.

    slower: more than so many percent slower is proven for one of them. maybe-slower: it is not ruled out for each of
    them. not-faster: more than so many percent faster is not proven for each of them. not-between: `low` to `high`
    times as fast is not proven for each of them."""

    kind: str
    percent: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError, which says what is expected."""
        is_between = self.kind == BETWEEN and 0 < self.low < self.high < math.inf
        if not is_between and not (self.kind in get_args(Kind) and 0 <= self.percent < math.inf):
            raise ValueError(EXPECTED)

    @classmethod
    def parse(cls, text: str) -> Condition:
        """From "slower:5" or "not-between:0.98:1.02". Raises ValueError, which says what is expected."""
        kind, *numbers = text.split(":")
        try:
            values = [float(number) for number in numbers]
        except ValueError:
            values = []
        if len(values) != (2 if kind == BETWEEN else 1):
            raise ValueError(EXPECTED)
        return cls(kind, low=values[0], high=values[1]) if kind == BETWEEN else cls(kind, values[0])

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """In a file or an order it is its text."""
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(
            lambda value, read: value if isinstance(value, cls) else read(value),
            core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema(strict=True)),
            serialization=core_schema.to_string_ser_schema(when_used="always"),
        )

    def __str__(self) -> str:
        numbers = (self.low, self.high) if self.kind == BETWEEN else (self.percent,)
        return ":".join([self.kind, *(repr(each).removesuffix(".0") for each in numbers)])  # as read from run.json

    @property
    def region(self) -> Region:
        """The log ratios that it is about."""
        if self.kind == BETWEEN:
            return Region.ratio(self.low, self.high)
        if self.kind == "not-faster":
            return Region.faster_than_percent(self.percent)
        return Region.slower_than_percent(self.percent)

    def at_once(self, effects: int) -> int:
        """How many intervals must hold at once. One effect is enough to be called slower, so all share alpha. Of the
        others every effect must be proven, and the chance that one is wrongly is that of a single interval."""
        return effects if self.kind == "slower" else 1

    def fails(self, answers: Collection[Word]) -> bool:
        """Whether it does, by the verdict on `region` for each effect. Where there is none, nothing is proven."""
        if self.kind == "slower":
            return Word.SUPPORTED in answers
        proven = Word.REFUTED if self.kind == "maybe-slower" else Word.SUPPORTED
        return not answers or any(answer != proven for answer in answers)
