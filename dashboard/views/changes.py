"""What changed between two runs, as `workbench compare` has it, in the order of what matters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from llama_workbench.harness.baselines.regressions import Answer, Row, RunComparison, Saved, compare
from llama_workbench.harness.baselines.thresholds import WHATS, read_thresholds
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.verdict_schema import Effect

from .. import words
from . import data, entries

PROVEN: Sequence[Answer] = ("regression", "improvement")
"""Answers that say that something changed."""

MARKS: Mapping[Answer, Word] = {
    "regression": Word.SLOWER,
    "improvement": Word.FASTER,
    "no regression": Word.PASSED,
    "inconclusive": Word.INCONCLUSIVE,
}
"""How an answer is drawn."""

MOST_DRAWN = 16


def to_compare_with(name: str, listed: Sequence[entries.Entry]) -> dict[str, entries.Entry]:
    """The other runs by name: first those that timed a variant of this one on the same workload, of these those of the
    same machine and versions (between two processors little is proven), of these those with most of them, the saved
    ones, then the newest. No run of several machines: those of its machines are in the list."""
    readable = [entry for entry in listed if entry.summary.problem is None and not entry.is_fleet]
    shown = [entry for entry in readable if entry.name == name]
    same, machines = {entries.measured(entry) for entry in shown}, {entry.summary.machine for entry in shown}
    others = [entry for entry in entries.without_copies(readable) if entries.measured(entry) not in same]

    def in_common(entry: entries.Entry) -> int:
        return max((_in_common(entry, one) for one in shown), default=0)

    others.sort(
        key=lambda entry: (
            not in_common(entry),
            entry.summary.machine not in machines,
            -in_common(entry),
            not entry.is_baseline,
        )
    )
    return {entry.name: entry for entry in others}


def _in_common(entry: entries.Entry, other: entries.Entry) -> int:
    """How many variants two runs timed on the same workload; the workloads where their variants are not known."""
    a, b = entry.summary, other.summary
    return len({*a.timed} & {*b.timed}) if a.timed and b.timed else len({*a.workloads} & {*b.workloads})


def between(run: data.Run, base: Path, stamp: entries.Stamp) -> RunComparison:
    """The run against an earlier one, by the thresholds of the project in whose folder the dashboard was started.

    Raises RunError, and ValueError for thresholds that cannot be used.
    """
    return compare(RunFolder(base), RunFolder(run.path), thresholds=read_thresholds(Path.cwd()))


def kinds(comparison: RunComparison) -> dict[str, str]:
    """What was compared, in words, with the number of rows."""
    counts = {what: sum(row.what == what for row in comparison.rows) for what in WHATS}
    return {what: f"{what} ({count})" for what, count in counts.items() if count}


def by_impact(comparison: RunComparison, what: str) -> tuple[list[Row], list[Row]]:
    """The rows of a kind that are decided, those first that proved a change, and of these the largest change; and those
    that are not."""
    rows = [row for row in comparison.rows if row.what == what]
    rows.sort(key=lambda row: (row.verdict not in PROVEN, -_size(row)))
    undecided = [row for row in rows if row.verdict == "inconclusive"]
    return [row for row in rows if row.verdict != "inconclusive"], undecided


def _size(row: Row) -> float:
    """How far a change is from none, as a factor; -1 where nobody knows."""
    return -1.0 if row.change_percent is None else abs(math.log(max(1 + row.change_percent / 100, 1e-9)))


def as_claim(run: data.Run, rows: Sequence[Row]) -> data.Claim:
    """The changes of times as rows of a forest plot: how many times as fast each variant is now."""
    return data.figure("What changed", run.alpha, tuple(_as_effect(run, row) for row in rows))


def _as_effect(run: data.Run, row: Row) -> Effect:
    ends = (row.change_percent, row.high_percent, row.low_percent)  # more time is slower
    ratio, low, high = (math.nan if end is None else 1 / max(1 + end / 100, 1e-9) for end in ends)
    return Effect(
        workload=row.workload,
        variant=row.variant,
        baseline="",
        named=f"{row.variant} on {run.named(row.workload)}",
        ratio=ratio,
        low=0.0 if math.isnan(low) else low,
        high=math.inf if math.isnan(high) else high,
        rounds=row.new.rounds if isinstance(row.new, Saved) else 0,
        seconds=0.0,
        verdict=MARKS[row.verdict],
        reason=row.reason,
    )


def sentence(comparison: RunComparison, what: str) -> str:
    """How many rows of a kind have which answer: "time: 1 regression, 4 no regression"."""
    answers = [row.verdict for row in comparison.rows if row.what == what]
    counts = (f"{answers.count(word)} {word}" for word in get_args(Answer) if word in answers)
    return f"{words.capital(what)}: {', '.join(counts)}"
