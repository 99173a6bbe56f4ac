"""What trials say: how often a verdict was wrong, how often injected work was found, and how often two runs of one
comparison disagree."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ...report.markdown import markdown_cell, markdown_rows
from ...spec.regions import MARGIN_PERCENT, SECOND_MARGIN_PERCENT
from ...spec.words import Word
from ...stats.means import exact_ends
from .known import IDENTICAL, KINDS, PLANTED, TWINS, KnownComparison

# -- a trial and the file of trials ------------------------------------------------------------------------------------

FILE = "calibration.jsonl"
"""Its name in the folder of results."""

FORMAT = 3

DIFFERENT = (Word.FASTER, Word.SLOWER)


class Trial(BaseModel):
    """One run of a comparison of known outcome. Ratios are logs of t_baseline / t_variant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str  # what is compared: functions, allocations or models
    work: str  # twins, identical or planted
    case: str
    percent: int  # more work of one side; 0: none
    number: int  # which comparison; two trials of one number are two runs of it
    clothes: tuple[str, ...]  # what a twin differs in
    called_with: str  # payload or workload
    repeats: int
    log_ratio: float  # the truth
    files: str  # digest of the compared files
    rule: str  # digest of what measures and judges
    machine: str  # in one line
    budget: float  # seconds of rounds
    busy: bool  # beside a busy neighbour on each core
    begun: str  # in UTC
    seed: int | None = None  # of the run
    answer: str  # its word
    estimate: float | None = None
    low: float | None = None  # ends of the interval; null without one
    high: float | None = None
    rounds: int = 0  # that the interval is over
    processes: int = 0  # that gave samples
    fired: int = 0  # controls that called identical code different
    inside: float | None = None  # share of the time of rounds that lies in samples
    seconds: float  # of the whole command
    trouble: str  # why there is no verdict, where something failed; empty otherwise

    @property
    def comparison(self) -> KnownComparison:
        """What was measured."""
        return KnownComparison(self.kind, self.work, self.case, self.percent, self.number)

    @property
    def is_given(self) -> bool:
        """Whether there is a verdict."""
        return self.answer in (*DIFFERENT, Word.SAME)

    @property
    def is_wrong(self) -> bool:
        """Whether the answer is a verdict, and wrong. The same means: within the margin that holds the interval."""
        truth = {
            Word.FASTER: self.log_ratio > 0,
            Word.SLOWER: self.log_ratio < 0,
            Word.SAME: abs(self.log_ratio) <= math.log1p(self._margin() / 100) + 1e-9,
        }
        return not truth.get(Word(self.answer), True)

    def _margin(self) -> float:
        """In percent: the narrow one where the interval lies within it, else the wide one."""
        ends = [abs(end) for end in (self.low, self.high) if end is not None]
        return MARGIN_PERCENT if ends and max(ends) <= math.log1p(MARGIN_PERCENT / 100) else SECOND_MARGIN_PERCENT

    @property
    def is_found(self) -> bool:
        """Whether it says all there is to say: faster or slower, and rightly so, or the same within the narrow margin
        where both sides do the same."""
        if self.percent:
            return self.answer in DIFFERENT and not self.is_wrong
        return self.answer == Word.SAME and self._margin() == MARGIN_PERCENT

    @property
    def half_width(self) -> float | None:
        """Of the interval; None without one."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def misses(self) -> bool | None:
        """Whether the interval leaves out the truth; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= self.log_ratio <= self.high


class CalibrationError(Exception):
    """A file of trials cannot be used, or nothing can be measured; the text says why, and what to do."""


def read_trials(path: Path) -> list[Trial]:
    """The trials of a file, of all machines that made some. A last line that is cut off does not count.

    Raises CalibrationError.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"{path}: cannot be read ({error})") from error
    whole = lines[:-1]  # what follows the last line break was cut off
    try:
        first = json.loads(whole[0])
        if first["format"] != FORMAT:
            raise ValueError(f"format {first['format']}, and this workbench writes {FORMAT}")
        return [Trial.model_validate_json(line) for line in whole[1:]]
    except (ValidationError, ValueError, LookupError, TypeError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CalibrationError(
            f"{path}: not a file of trials ({what}); move it away, or name another --file"
        ) from error


def begin(path: Path) -> None:
    """A new file, with its first line."""
    append(path, [json.dumps({"format": FORMAT})])


def append(path: Path, lines: Sequence[str]) -> None:
    """Add whole lines to a file, on the disk when this returns. A last line that was cut off is dropped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.writelines(f"{line}\n".encode() for line in lines)
        file.flush()
        os.fsync(file.fileno())


CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rate:
    """So many of so many, with the exact (Clopper-Pearson) interval of the rate; all of them where there are none."""

    count: int
    of: int

    @classmethod
    def among(cls, answers: Iterable[bool | None]) -> Rate:
        """How many are true, of those that are decided."""
        decided = [answer for answer in answers if answer is not None]
        return cls(sum(decided), len(decided))

    @property
    def ends(self) -> tuple[float, float]:
        """Its 95 % interval, between 0 and 1."""
        if not self.of:
            return 0.0, 1.0
        return exact_ends(self.count, self.of, 1 - CONFIDENCE)

    @property
    def at_most(self) -> float:
        """The bound that the rate lies below with 95 % confidence, between 0 and 1."""
        if not self.of:
            return 1.0
        return exact_ends(self.count, self.of, 2 * (1 - CONFIDENCE))[1]

    def __str__(self) -> str:
        if not self.of:
            return "none yet"
        low, high = self.ends
        return f"{100 * self.count / self.of:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"

    @property
    def brief(self) -> str:
        """In percent, for a cell of a table: "1 [0.21, 2.9]"."""
        if not self.of:
            return "-"
        rate, low, high = (_figures(100 * share) for share in (self.count / self.of, *self.ends))
        return f"{rate} [{low}, {high}]"

    @property
    def counted(self) -> str:
        """With both counts: "3 of 300: 1.0 % [0.2, 2.9]"."""
        return f"{self.count:,} of {self.of:,}: {self}" if self.of else "none yet"


def _figures(percent: float) -> str:
    """Two figures that count, and three where only the distance from 100 % tells much."""
    return f"{percent:.3g}" if percent >= 90 else f"{percent:.2g}"


@dataclass(frozen=True)
class RateRow:
    """Trials of one sort."""

    name: str
    trials: int
    given: Rate  # trials with a verdict
    wrong: Rate  # wrong ones of these verdicts
    missed: Rate  # intervals that leave out the truth
    found: Rate  # trials that said all there is to say: see `Trial.is_found`
    half_width: float | None  # median of the intervals', of log ratios

    @property
    def cells(self) -> list[str]:
        """The row of a table, below RATE_HEADINGS."""
        width = "-" if self.half_width is None else f"±{100 * math.expm1(self.half_width):.2f} %"
        rates = (self.given, self.wrong, self.missed, self.found)
        return [self.name, str(self.trials), *(rate.brief for rate in rates), width]


def row(name: str, trials: Sequence[Trial]) -> RateRow:
    """Sum up trials."""
    widths = [trial.half_width for trial in trials if trial.half_width is not None]
    return RateRow(
        name,
        len(trials),
        Rate.among(trial.is_given for trial in trials),
        Rate.among(trial.is_wrong for trial in trials if trial.is_given),
        Rate.among(trial.misses for trial in trials),
        Rate.among(trial.is_found for trial in trials),
        statistics.median(widths) if widths else None,
    )


# -- two runs of one comparison ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two runs of one comparison: the same files, rule and machine, other draws."""

    first: Trial
    second: Trial

    @property
    def is_apart(self) -> bool | None:
        """Whether their intervals have no common point; None unless both have one."""
        ends = self.first.low, self.first.high, self.second.low, self.second.high
        if any(end is None for end in ends):
            return None
        low, high, other_low, other_high = (float(end) for end in ends if end is not None)
        return high < other_low or other_high < low

    @property
    def is_contradicted(self) -> bool | None:
        """Whether one verdict is another word than the other; None unless both have one."""
        if not (self.first.is_given and self.second.is_given):
            return None
        return self.first.answer != self.second.answer


def pairs_of(trials: Sequence[Trial]) -> list[Pair]:
    """One pair for each comparison that was measured twice or more: of its first two runs with seeds of their own."""
    runs: dict[tuple[int, str, str, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        earlier = runs[trial.number, trial.files, trial.rule, trial.machine]
        if all(trial.seed != other.seed for other in earlier):
            earlier.append(trial)
    return [Pair(*same[:2]) for same in runs.values() if len(same) > 1]


@dataclass(frozen=True)
class PairRow:
    """Pairs of runs of one sort."""

    name: str
    pairs: int
    apart: Rate  # of those with two intervals: they have no common point
    contradicted: Rate  # of those with two verdicts: other words

    @property
    def cells(self) -> list[str]:
        """The row of a table, below PAIR_HEADINGS."""
        return [self.name, str(self.pairs), self.apart.brief, self.contradicted.brief]


def pair_row(name: str, pairs: Sequence[Pair]) -> PairRow:
    """Sum up pairs of runs."""
    apart = Rate.among(pair.is_apart for pair in pairs)
    return PairRow(name, len(pairs), apart, Rate.among(pair.is_contradicted for pair in pairs))


# -- tables ------------------------------------------------------------------------------------------------------------

Sort = tuple[int, int, int, str]
"""Where a row stands, by three numbers, and its name."""

Item = TypeVar("Item")


def work_text(trial: Trial) -> str:
    """What was done to one side, in words."""
    return f"+{trial.percent} % work" if trial.percent else trial.work.replace(TWINS, "equivalent rewrite")


def _sorts(trial: Trial) -> list[Sort]:
    """The rows in which a trial counts: all, its kind and work, what else ran, and its processor."""
    kind, work = KINDS.index(trial.kind), (TWINS, IDENTICAL, PLANTED).index(trial.work)
    return [
        (0, 0, 0, "all"),
        (1, kind, 0, trial.kind),
        (1, kind, 1 + work + trial.percent, f"{trial.kind}, {work_text(trial)}"),
        (2, int(trial.busy), 0, "busy" if trial.busy else "quiet"),
        (2, 2, 0, f"on {trial.machine.partition(',')[0]}"),
    ]


def rows(trials: Sequence[Trial]) -> list[RateRow]:
    """Rates by sort."""
    return [row(name, some) for name, some in _by_sort(trials, lambda trial: trial).items()]


def pair_rows(trials: Sequence[Trial]) -> list[PairRow]:
    """The same of pairs of runs; a pair is beside busy neighbours where its first run is."""
    return [pair_row(name, some) for name, some in _by_sort(pairs_of(trials), lambda pair: pair.first).items()]


def _by_sort(items: Sequence[Item], trial_of: Callable[[Item], Trial]) -> dict[str, list[Item]]:
    """The items of each row, in the order of the rows."""
    of: dict[Sort, list[Item]] = defaultdict(list)
    for item in items:
        for sort in _sorts(trial_of(item)):
            of[sort].append(item)
    return {sort[-1]: of[sort] for sort in sorted(of)}


RATE_HEADINGS = (
    "trials of",
    "n",
    "verdict given, %",
    "of these wrong, %",
    "truth outside, %",
    "found, %",
    "half width",
)
PAIR_HEADINGS = ("pairs of runs of", "n", "do not overlap, %", "another verdict, %")
EXPLAINED = (
    "In brackets: exact 95 % interval. Truth outside: of the intervals. Found: injected work that was called on the "
    "right side; of the same work, the same within 1 %. Half width: median of the intervals. Another verdict: of two "
    "verdicts."
)


TABLES: tuple[tuple[tuple[str, ...], Callable[[Sequence[Trial]], Sequence[RateRow | PairRow]]], ...] = (
    (RATE_HEADINGS, rows),
    (PAIR_HEADINGS, pair_rows),
)


def in_tables(trials: Sequence[Trial]) -> str:
    """Both tables in Markdown."""
    if not trials:
        return NONE_YET
    parts = [
        markdown_rows(headings, [[*map(markdown_cell, each.cells)] for each in table])
        for headings, rows_of in TABLES
        if (table := rows_of(trials))
    ]
    return "\n\n".join([*parts, EXPLAINED])


NONE_YET = (
    "No comparisons of known outcome have been measured by the present rule yet: `workbench calibrate` makes some."
)


def in_documents(trials: Sequence[Trial]) -> dict[str, str]:
    """What is between the markers of documents, by the name of the block."""
    return {
        "calibration-tables": in_tables(trials),
        "calibration-short": in_one_line(trials),
        "calibration": in_a_paragraph(trials),
    }


def in_one_line(trials: Sequence[Trial]) -> str:
    """How often verdicts are wrong, in a sentence."""
    total = row("all", trials)
    if not total.given.count:
        return NONE_YET
    return (
        f"Of {total.given.count:,} verdicts on comparisons whose outcome was known, {total.wrong.count:,} "
        f"{'was' if total.wrong.count == 1 else 'were'} wrong: {total.wrong} (95 % interval)."
    )


def in_a_paragraph(trials: Sequence[Trial]) -> str:
    """How often verdicts are wrong, and runs disagree, in words."""
    if not trials:
        return NONE_YET
    total, busy = row("all", trials), sum(trial.busy for trial in trials)
    same = [trial for trial in trials if not trial.percent and trial.is_given]
    different = Rate.among(trial.answer in DIFFERENT for trial in same if trial.work == TWINS)
    pairs = pair_row("all", pairs_of(trials))
    return (
        f"{total.trials:,} comparisons had a known outcome; {busy:,} of them ran beside other load. "
        f"{total.given.count:,} got a verdict. Wrong verdicts: {total.wrong.counted} (95 % interval). Equivalent code, "
        f"renamed and reordered, that was reported as different: {different.counted}. {pairs.pairs:,} comparisons were "
        f"measured twice. Pairs of intervals that do not overlap: {pairs.apart.counted}. Pairs of verdicts that "
        f"differ: {pairs.contradicted.counted}."
    )
