"""A trial and the file of trials: one line for the format, then one for each trial."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ...spec.regions import MARGIN_PERCENT, SECOND_MARGIN_PERCENT
from ...spec.words import Word
from .known import KnownComparison

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
    seed: int | None  # of the run
    answer: str  # its word
    estimate: float | None
    low: float | None  # ends of the interval; null without one
    high: float | None
    rounds: int  # that the interval is over
    processes: int  # that gave samples
    fired: int  # controls that called identical code different
    inside: float | None  # share of the time of rounds that lies in samples
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
