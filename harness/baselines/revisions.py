"""What comparing two revisions in one run came to: a row for each subject and what it was called with, by time and,
where that cannot tell, by instructions; and the summary for a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..report.comparison import Measure, Screen, screen_markdown
from ..report.markdown import markdown_cell, markdown_rows
from ..report.text import digits
from ..spec.words import Cause, Word
from .text import MARKER, MOST_CHARACTERS
from .thresholds import Thresholds

SLOWER, NOT_SLOWER, CANNOT_TELL, REFUSED = "slower", "not slower", "cannot tell", "refused"
UNDECIDED = (CANNOT_TELL, REFUSED)

_WORDS = {Word.SUPPORTED: SLOWER, Word.REFUTED: NOT_SLOWER}
"""By the verdict on whether it may be slower."""


@dataclass(frozen=True)
class RevisionRow:
    """A subject on one of the things that it was called with. counts_decide: where the time cannot tell, its
    instructions do. run: as it is shown."""

    subject: str
    screen: Screen
    counts_decide: bool
    run: str

    @property
    def by_time(self) -> str:
        """Whether it is slower by more than the limit, by time."""
        if self.screen.effect.cause == Cause.BEYOND_ROOF:
            return REFUSED
        return _WORDS.get(Word(self.screen.effect.verdict), CANNOT_TELL)

    @property
    def counted(self) -> Measure | None:
        """Its instructions, where they were counted."""
        return self.screen.instructions

    @property
    def verdict(self) -> str:
        """Whether it is slower: by time, or where that cannot tell and counts decide, by instructions."""
        if self.by_time != CANNOT_TELL or not self.counts_decide or self.counted is None:
            return self.by_time
        return SLOWER if self.counted.low > 1 + Thresholds().instructions / 100 else NOT_SLOWER

    @property
    def reason(self) -> str:
        """Why it cannot be told, or what told it in the place of the time."""
        if self.verdict != self.by_time and self.counted is not None:
            return f"the time cannot tell; instructions: {self.counted.change}"
        return "; ".join(self.screen.effect.said)

    def to_json(self) -> dict[str, Any]:
        """As `compare-revisions --json` prints it."""
        effect, counted = self.screen.effect, self.counted
        return {
            "subject": self.subject,
            "workload": effect.workload,
            "ratio": effect.ratio if effect.rounds else None,
            "low": effect.low if effect.rounds else None,
            "high": effect.high if effect.high < float("inf") else None,
            "rounds": effect.rounds,
            "verdict": self.verdict,
            "cause": effect.cause,
            "reason": self.reason,
            "instructions_percent": 100 * (counted.ratio - 1) if counted else None,
            "where": self.screen.where,
            "run": self.run,
        }


def exit_code(rows: Sequence[RevisionRow]) -> int:
    """1 where one is slower, 2 where one cannot be told or is refused, 0 where none is."""
    words = {row.verdict for row in rows}
    return 1 if SLOWER in words else 2 if words & {*UNDECIDED} else 0


def time_text(row: RevisionRow) -> str:
    """The time in the later revision over that in the earlier one, with its interval."""
    effect = row.screen.effect
    if not effect.rounds:
        return "not measured"
    ends = "no interval yet" if effect.high == float("inf") else f"{digits(1 / effect.high)}, {digits(1 / effect.low)}"
    return f"{digits(1 / effect.ratio)} [{ends}]"


def revisions_markdown(rows: Sequence[RevisionRow], base: str, new: str, percent: float, environments: str) -> str:
    """The summary for a pull request: the answer, a row each, and each comparison's screen folded away. base, new: both
    revisions in words; environments: that of each side, in words.

    It ends with MARKER. Screens that would make it too long for a comment are left out and counted.
    """
    slower, open_ = (sum(row.verdict in words for row in rows) for words in ((SLOWER,), UNDECIDED))
    answers = [f"{slower} of {len(rows)} slower" if slower else "nothing is slower" if not open_ else ""]
    answers += [f"{open_} cannot be told"] if open_ else []
    title = f"### {markdown_cell(base)} → {markdown_cell(new)}: {', '.join(filter(None, answers))}"
    cells = (
        (
            *(markdown_cell(text) for text in (row.subject, row.screen.effect.workload, time_text(row))),
            markdown_cell(row.counted.change if row.counted else ""),
            f"**{row.verdict}**",
            markdown_cell(row.reason),
        )
        for row in rows
    )
    head = ("subject", "called with", "time", "instructions", f"more than {percent:g} % slower?", "")
    blocks = [title, markdown_rows(head, cells)]
    if environments:
        blocks.append(markdown_cell(environments))
    left = MOST_CHARACTERS - sum(map(len, blocks))
    for number, row in enumerate(rows):
        folded = (
            f"<details><summary>{markdown_cell(row.subject)}</summary>\n\n{screen_markdown(row.screen)}\n</details>"
        )
        left -= len(folded)
        if left < 0:
            blocks.append(f"{len(rows) - number} more do not fit here: `workbench show` has them.")
            break
        blocks.append(folded)
    return "\n\n".join([*blocks, MARKER]) + "\n"
