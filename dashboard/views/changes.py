"""What changed between two runs, as `workbench compare` has it, in the order of what matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from llama_workbench.harness.baselines.regressions import compare
from llama_workbench.harness.baselines.rows import Answer, Row, RunComparison
from llama_workbench.harness.baselines.thresholds import WHATS, read_thresholds
from llama_workbench.harness.store.folder import RunFolder

from . import data, entries

PROVEN: Sequence[Answer] = ("regression", "improvement")
"""Answers that say that something changed."""


def to_compare_with(name: str, listed: Sequence[entries.Entry]) -> dict[str, entries.Entry]:
    """The other runs by name: first those with a workload of this one, of these those of the same machine and versions
    (between two processors little is proven), of these the saved ones, then the newest. No run of several machines:
    those of its machines are in the list."""
    readable = [entry for entry in listed if entry.summary.problem is None and not entry.is_fleet]
    shown = {entries.measured(entry) for entry in readable if entry.name == name}
    ours = {workload for entry in readable if entry.name == name for workload in entry.summary.workloads}
    machines = {entry.summary.machine for entry in readable if entry.name == name}
    others = [entry for entry in entries.without_copies(readable) if entries.measured(entry) not in shown]
    others.sort(
        key=lambda entry: (
            ours.isdisjoint(entry.summary.workloads),
            entry.summary.machine not in machines,
            not entry.is_baseline,
        )
    )
    return {entry.name: entry for entry in others}


def between(run: data.Run, base: Path, stamp: entries.Stamp) -> RunComparison:
    """The run against an earlier one, by the thresholds of the project in whose folder the dashboard was started.

    Raises RunError, and ValueError for thresholds that cannot be used.
    """
    return compare(RunFolder(base), RunFolder(run.path), thresholds=read_thresholds(None, start=Path.cwd()))


def kinds(comparison: RunComparison) -> dict[str, str]:
    """What was compared, in words, with the number of rows."""
    counts = {what: sum(row.what == what for row in comparison.rows) for what in WHATS}
    return {what: f"{what} ({count})" for what, count in counts.items() if count}


def by_impact(comparison: RunComparison, what: str, *, only_proven: bool) -> list[Row]:
    """The rows of a kind: those first that proved a change, and of these the largest change."""
    rows = [row for row in comparison.rows if row.what == what and (row.verdict in PROVEN or not only_proven)]
    return sorted(rows, key=lambda row: (row.verdict not in PROVEN, -_size(row)))


def _size(row: Row) -> float:
    """How far a change is from none, as a factor; -1 where nobody knows."""
    return -1.0 if row.change_percent is None else abs(math.log(max(1 + row.change_percent / 100, 1e-9)))


def sentence(comparison: RunComparison, what: str) -> str:
    """How many rows of a kind have which answer: "time: 1 regression, 4 no regression"."""
    answers = [row.verdict for row in comparison.rows if row.what == what]
    return f"{what}: {', '.join(f'{answers.count(word)} {word}' for word in get_args(Answer) if word in answers)}"
