"""Trials of known outcome that lie beside the runs: how often a verdict was wrong, and two runs disagreed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llama_workbench.harness.calibrate.rates import PairRow, RateRow, in_a_sentence, pair_rows, rows
from llama_workbench.harness.calibrate.record import FILE, read_trials

from .. import words


@dataclass(frozen=True)
class Calibration:
    """What all trials of a file say, and on what machine they were made."""

    sentence: str
    rows: Sequence[RateRow]
    pairs: Sequence[PairRow]
    machine: str


def read(results: Path) -> Calibration | None:
    """The trials in the folder of results; None without any. Raises CalibrationError."""
    path = results / FILE
    if not path.is_file():
        return None
    facts, trials = read_trials(path)
    machine = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    return Calibration(in_a_sentence(trials), rows(trials), pair_rows(trials), words.one_line(machine))
