"""What a comparison of two variants must not come to (`--fail-if slower:5`), so that a build can fail by it."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from .regions import Region

FAIL_IF = "fail-if"
"""The name under which conditions on a comparison are judged."""

Kind = Literal["slower", "maybe-slower", "not-faster"]

EXPECTED = f"expected WHAT:PERCENT, where WHAT is {', '.join(get_args(Kind)[:-1])} or {get_args(Kind)[-1]}"


@dataclass(frozen=True)
class Condition:
    """When a comparison fails, by its effects on all workloads.

    slower: more than so many percent slower is proven for one of them. maybe-slower: it is not ruled out for each of
    them. not-faster: more than so many percent faster is not proven for each of them.
    """

    kind: Kind
    percent: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """From "slower:5". Raises ValueError, which says what is expected."""
        kind, separator, number = text.partition(":")
        try:
            percent = float(number)
        except ValueError:
            percent = math.nan
        for known in get_args(Kind):
            if kind == known and separator and 0 <= percent < math.inf:
                return cls(known, percent)
        raise ValueError(f"{EXPECTED}, for example slower:5")

    def __str__(self) -> str:
        return f"{self.kind}:{repr(self.percent).removesuffix('.0')}"  # as judged again from run.json

    @property
    def region(self) -> Region:
        """The log ratios that it is about."""
        if self.kind == "not-faster":
            return Region.faster_than_percent(self.percent)
        return Region.slower_than_percent(self.percent)

    def at_once(self, effects: int) -> int:
        """How many intervals must hold at once. One effect is enough to be called slower, so all share alpha. Of the
        others every effect must be proven, and the chance that one is wrongly is that of a single interval."""
        return effects if self.kind == "slower" else 1

    def fails(self, answers: Collection[str]) -> bool:
        """Whether it does, by the verdict on `region` for each effect. Where there is none, nothing is proven."""
        if self.kind == "slower":
            return "supported" in answers
        proven = "supported" if self.kind == "not-faster" else "refuted"
        return not answers or any(answer != proven for answer in answers)


def checked(text: str) -> str:
    """The text, if it is a condition. Raises ValueError."""
    Condition.parse(text)
    return text
