"""What comparing two revisions in one run came to: a row for each subject and what it was called with, by time and,
where that cannot tell, by instructions; and the summary for a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..report.comparison import Measure, Screen, screen_markdown
from ..report.markdown import markdown_cell, markdown_rows
from ..report.text import digits
from ..spec.words import Cause, VerbExit, Word, of_left_out
from ..store.verdict_schema import Effect
from .text import MARKER, MOST_CHARACTERS
from .thresholds import Thresholds

SLOWER, NOT_SLOWER, INCONCLUSIVE, REFUSED, MISSING = "slower", "not slower", "inconclusive", "refused", "missing"
UNDECIDED = (INCONCLUSIVE, REFUSED)

_WORDS = {Word.SUPPORTED: SLOWER, Word.REFUTED: NOT_SLOWER}
"""By the verdict on whether it may be slower."""


@dataclass(frozen=True)
class RevisionRow:
    """A subject on one of the things that it was called with. screen: None where it could not be measured.
    counts_decide: where the time cannot tell, its instructions do. run: as it is shown. is_missing: whether one of the
    revisions does not have it. why: why it has no screen."""

    subject: str
    screen: Screen | None = None
    counts_decide: bool = False
    run: str | None = None
    is_missing: bool = False
    why: str = ""

    @property
    def by_time(self) -> str:
        """Whether it is slower by more than the limit, by time."""
        if self.is_missing:
            return MISSING
        if self.screen is None:
            return INCONCLUSIVE
        if self.cause in (Cause.BEYOND_ROOF, Cause.REFUSED):
            return REFUSED
        return _WORDS.get(Word(self.screen.effect.verdict), INCONCLUSIVE)

    @property
    def cause(self) -> Cause:
        """Why the time is as it is, where more than its interval says so."""
        return self.screen.effect.cause if self.screen else Cause.NOT_MEASURED

    @property
    def counted(self) -> Measure | None:
        """Its instructions, where they were counted."""
        return self.screen.instructions if self.screen else None

    @property
    def verdict(self) -> str:
        """Whether it is slower: by time, or where that cannot tell and counts decide, by instructions."""
        if self.by_time != INCONCLUSIVE or not self.counts_decide or self.counted is None:
            return self.by_time
        return SLOWER if self.counted.low > 1 + Thresholds().instructions / 100 else NOT_SLOWER

    @property
    def reason(self) -> str:
        """Why it cannot be told, or what told it in the place of the time."""
        if self.screen is None:
            return self.why
        if self.verdict != self.by_time and self.counted is not None:
            return f"the time is inconclusive; instructions: {self.counted.change}"
        return "; ".join(self.screen.effect.said)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """What it was called with, its time in the later revision over that in the earlier one, from how many processes
        that is known, and its instructions."""
        if self.screen is None:
            return "", "not measured", "", ""
        effect, counted = self.screen.effect, self.counted
        return effect.workload, time_text(effect), str(effect.rounds), counted.change if counted else ""

    def to_json(self) -> dict[str, Any]:
        """As `compare-revisions --json` prints it."""
        effect, counted = self.screen.effect if self.screen else None, self.counted
        has_rounds = effect is not None and bool(effect.rounds)
        return {
            "subject": self.subject,
            "workload": effect.workload if effect else None,
            "ratio": effect.ratio if effect and has_rounds else None,
            "low": effect.low if effect and has_rounds else None,
            "high": effect.high if effect and effect.high < float("inf") else None,
            "rounds": effect.rounds if effect else 0,
            "verdict": self.verdict,
            "cause": self.cause,
            "reason": self.reason,
            "instructions_percent": 100 * (counted.ratio - 1) if counted else None,
            "where": self.screen.where if self.screen else "",
            "run": self.run,
        }


def exit_code(rows: Sequence[RevisionRow]) -> VerbExit:
    """Whether one is slower; else, of those that are undecided, the first of: a side is wrong, is refused or has too
    little time, cannot be told. A subject that a revision lacks has no say, as long as there are others."""
    words = {row.verdict for row in rows}
    if SLOWER in words:
        return VerbExit.AGAINST
    if code := of_left_out([row.cause for row in rows if row.verdict in UNDECIDED]):
        return VerbExit(code)
    return VerbExit.COULD_NOT if words & {*UNDECIDED} or words == {MISSING} else VerbExit.DONE


def time_text(effect: Effect) -> str:
    """The time in the later revision over that in the earlier one, with its interval."""
    if not effect.rounds:
        return "not measured"
    ends = "no interval yet" if effect.high == float("inf") else f"{digits(1 / effect.high)}, {digits(1 / effect.low)}"
    return f"{digits(1 / effect.ratio)} [{ends}]"


def revisions_markdown(rows: Sequence[RevisionRow], base: str, new: str, percent: float, environments: str) -> str:
    """The summary for a pull request: the answer, a row each, and each comparison's screen folded away. base, new: both
    revisions in words; environments: that of each side, in words.

    It ends with MARKER. Screens that would make it too long for a comment are left out and counted.
    """
    kinds = ((SLOWER,), UNDECIDED, (MISSING,))
    slower, open_, missing = (sum(row.verdict in words for row in rows) for words in kinds)
    settled = not open_ and missing < len(rows)
    answers = [f"{slower} of {len(rows)} slower" if slower else "nothing is slower" if settled else ""]
    answers += [f"{open_} inconclusive"] if open_ else []
    answers += [f"{missing} missing in one revision"] if missing else []
    title = f"### {markdown_cell(base)} → {markdown_cell(new)}: {', '.join(filter(None, answers))}"
    cells = (
        (
            *(markdown_cell(text) for text in (row.subject, called_with, time, instructions)),
            f"**{row.verdict}**",
            markdown_cell(row.reason),
        )
        for row in rows
        for called_with, time, _, instructions in [row.cells]
    )
    head = ("function", "inputs", "time", "instructions", f"more than {percent:g} % slower?", "")
    blocks = [title, markdown_rows(head, cells)]
    if environments:
        blocks.append(markdown_cell(environments))
    left = MOST_CHARACTERS - sum(map(len, blocks))
    screens = [(row, row.screen) for row in rows if row.screen is not None]
    for number, (row, screen) in enumerate(screens):
        to_do = f"Nothing: it is not {percent:g} % slower." if row.verdict == NOT_SLOWER else ""
        text = screen_markdown(screen, to_do)
        folded = f"<details><summary>{markdown_cell(row.subject)}</summary>\n\n{text}\n</details>"
        left -= len(folded)
        if left < 0:
            blocks.append(f"{len(screens) - number} more do not fit here; `workbench show RUN` prints them.")
            break
        blocks.append(folded)
    return "\n\n".join([*blocks, MARKER]) + "\n"
