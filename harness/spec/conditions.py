"""What a comparison of two variants must not come to (`--fail-if slower:5`), so that a build can fail by it."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .regions import Region
from .words import Word

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
    times as fast is not proven for each of them.
    """

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
