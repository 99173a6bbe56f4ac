"""What a comparison of two runs is: a row for each variant and each thing that is compared of it, and one answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from ..spec.words import VerbExit
from .thresholds import What

Answer = Literal["regression", "no regression", "improvement", "inconclusive"]

EXIT_CODES: dict[Answer, VerbExit] = {
    "regression": VerbExit.AGAINST,
    "inconclusive": VerbExit.COULD_NOT,
}
"""Of the answer to the whole comparison; that it is done for all others."""


@dataclass(frozen=True)
class Saved:
    """A ratio t_against / t_variant of one run, with its interval. A missing end is open."""

    ratio: float | None
    low: float | None
    high: float | None
    rounds: int


@dataclass(frozen=True)
class Counted:
    """What was counted in one run: instructions or bytes."""

    value: float
    unit: str


@dataclass(frozen=True)
class Row:
    """One thing of one variant on one workload, in both runs."""

    workload: str
    variant: str
    against: str
    base: Saved | Counted | None
    new: Saved | Counted | None
    change_percent: float | None  # of the variant's time, instructions or bytes: above 0 it became worse
    low_percent: float | None
    high_percent: float | None
    verdict: Answer
    reason: str
    what: What = "time"
    threshold_percent: float = 0.0
    decides: bool = True  # whether the row has a say in the exit code
    between_percent: float | None = None  # what its interval allows for between sessions (SD); None: a tolerance counts

    @property
    def key(self) -> tuple[str, str]:
        """(workload, variant)"""
        return self.workload, self.variant


@dataclass(frozen=True)
class RunComparison:
    """What became of `base` in `new`. `exit_code`: 0 no regression, 1 a regression, 2 inconclusive."""

    base: str
    new: str
    threshold_percent: float
    tolerance_percent: float
    machine_differences: tuple[str, ...]
    rows: tuple[Row, ...]
    only_in_base: tuple[str, ...]
    only_in_new: tuple[str, ...]
    notes: tuple[str, ...]
    gate: tuple[What, ...] = ("time",)

    @property
    def same_machine(self) -> bool:
        """Whether both runs have one machine configuration."""
        return not self.machine_differences

    @property
    def deciding(self) -> tuple[Row, ...]:
        """The rows that have a say in the answer."""
        return tuple(row for row in self.rows if row.decides)

    @property
    def verdict(self) -> Answer:
        """The answer of all rows that decide: the worst of them, "inconclusive" where there are none."""
        answers = {row.verdict for row in self.deciding}
        worst: tuple[Answer, ...] = ("regression", "inconclusive")
        return next((word for word in worst if word in answers), "no regression" if answers else "inconclusive")

    @property
    def exit_code(self) -> VerbExit:
        """Of the command."""
        return EXIT_CODES.get(self.verdict, VerbExit.DONE)

    def summary(self) -> str:
        """The answer in one sentence."""
        counts = {word: sum(row.verdict == word for row in self.deciding) for word in get_args(Answer)}
        parts = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        by = "" if self.gate == ("time",) else f", by {' and '.join(self.gate)}"
        answer = f"{self.verdict} ({parts}{by})"
        if not self.rows:
            answer = "inconclusive: the two runs have nothing in common"
        elif not self.deciding:
            answer = f"inconclusive: the two runs do not both have {' or '.join(self.gate)}"
        return f"{self.new} against {self.base}: {answer}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; the form is described by `workbench compare --help`."""
        answer = {"format": 1, "verdict": self.verdict, "exit_code": self.exit_code, "same_machine": self.same_machine}
        return answer | asdict(self)


def gated(rows: Iterable[Row], gate: Iterable[What]) -> tuple[Row, ...]:
    """The rows in the order of their subjects, with `decides` as the gate has it.

    Where a time cannot tell and the same subject's instructions can, and both are in the gate, the count decides.
    """
    marked = [replace(row, decides=row.what in set(gate)) for row in rows]
    counts = (row for row in marked if row.decides and row.what == "instructions")
    counted = {row.key for row in counts if row.verdict != "inconclusive"}
    return tuple(
        replace(row, decides=False)
        if row.what == "time" and row.verdict == "inconclusive" and row.key in counted
        else row
        for row in marked
    )
