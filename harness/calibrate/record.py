"""A trial and the file of trials: one line for the machine, then one for each trial."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ..spec.regions import MARGIN_PERCENT, SECOND_MARGIN_PERCENT

FILE = "calibration.jsonl"
"""Its name in the folder of results."""


class Trial(BaseModel):
    """One comparison of known outcome. log_ratio: the true log t_baseline - log t_variant; low and high: its interval
    as judged, null without one. seconds: what measuring took."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    percent: int
    method: str
    busy: bool
    log_ratio: float
    answer: str
    low: float | None
    high: float | None
    rounds: int
    seconds: float

    @property
    def is_false(self) -> bool:
        """Whether the answer is a verdict, and wrong. The same means: within the margin that holds the interval."""
        narrow, wide = (math.log1p(percent / 100) for percent in (MARGIN_PERCENT, SECOND_MARGIN_PERCENT))
        ends = [abs(end) for end in (self.low, self.high) if end is not None]
        margin = narrow if ends and max(ends) <= narrow else wide
        truth = {
            "faster": self.log_ratio > 0,
            "slower": self.log_ratio < 0,
            "same": abs(self.log_ratio) <= margin + 1e-9,
        }
        return not truth.get(self.answer, True)

    @property
    def is_decided(self) -> bool:
        """Whether there is a verdict."""
        return self.answer in ("faster", "slower", "same")

    @property
    def is_covered(self) -> bool | None:
        """Whether the interval holds the truth; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.log_ratio <= self.high


TRIAL: TypeAdapter[Trial] = TypeAdapter(Trial)


class CalibrationError(Exception):
    """A file of trials cannot be used; the text says why, and what to do."""


def read_trials(path: Path) -> tuple[dict[str, Any], list[Trial]]:
    """The machine that a file of trials was made on, and the trials. A last line that is cut off does not count.

    Raises CalibrationError.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"{path}: cannot be read ({error})") from error
    whole = lines[:-1]  # what follows the last line break was cut off
    try:
        machine = json.loads(whole[0])["machine"]
        return dict(machine), [TRIAL.validate_json(line) for line in whole[1:]]
    except (ValidationError, ValueError, LookupError, TypeError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CalibrationError(
            f"{path}: not a file of trials ({what}); move it away, or name another --file"
        ) from error


def append(path: Path, lines: Sequence[str]) -> None:
    """Add whole lines to a file, on the disk when this returns. A last line that was cut off is dropped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.writelines(f"{line}\n".encode() for line in lines)
        file.flush()
        os.fsync(file.fileno())
