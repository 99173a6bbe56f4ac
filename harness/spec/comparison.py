"""What is compared with what, and by which time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

Metric = Literal["time", "time_to_first_token", "time_per_output_token"]
TIMES: tuple[str, ...] = get_args(Metric)
"""Metrics that compare two sides; those of tokens need a workload that generates."""


class Comparison(NamedTuple):
    """One effect that a hypothesis is about: `variant` against `baseline` on `workload`, by one of TIMES."""

    workload: str
    variant: str
    baseline: str
    metric: Metric = "time"

    @property
    def sides(self) -> frozenset[str]:
        """Both variants, whichever is called the baseline."""
        return frozenset((self.variant, self.baseline))


def sides_of(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """All sides of pairs (baseline, variant) with one baseline, which comes first."""
    return tuple(dict.fromkeys(name for pair in pairs for name in pair))


def is_one_table(pairs: int, *, sized: bool) -> bool:
    """Whether so many pairs with one baseline are one question: several sides are, and inputs of several sizes."""
    return pairs > 1 or (sized and pairs == 1)


def held_together(pairs: int, workloads: int, *, sized: bool) -> int:
    """How many intervals share alpha, so that they hold all at once, where so many sides are compared with one: that of
    each two sides on each workload. Two sides on inputs without a size are asked about one by one."""
    return pairs * (pairs + 1) // 2 * workloads if is_one_table(pairs, sized=sized) else 1


# Names under which variants take part: NAME, or NAME once more as a control, `NAME@aa` or `NAME@copy`.
# This is the only place that puts such a name together or takes it apart.


AA, COPY = "aa", "copy"
"""The same variant once more, and an identical copy of it."""


class EnteredName(str):
    """The name of a variant or of a control; a text like any other to whoever writes it down."""

    __slots__ = ()

    @classmethod
    def of_control(cls, original: str, control: str) -> EnteredName:
        """The control of this kind."""
        return cls(f"{original}@{control}")

    @property
    def original(self) -> str:
        """The variant that it is, or is once more."""
        return self.partition("@")[0]

    @property
    def control(self) -> str:
        """The kind of control; "" for the variant itself."""
        return self.partition("@")[2]

    @property
    def is_control(self) -> bool:
        """Whether it is a variant once more. (The reference benchmark has a name of its own.)"""
        return "@" in self

    @property
    def identifier(self) -> str:
        """A name of its own that Python takes for a module's."""
        return self.replace("@", "_")
