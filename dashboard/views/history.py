"""Runs over time: a variant's relative time in each, which runs may be compared, and what changed.

The rules are those of `workbench compare` (harness/baselines/regressions.py); here runs are put in order and paired.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from llama_workbench.harness.baselines.course import DatedRun
from llama_workbench.harness.baselines.regressions import compare_standings, why_not
from llama_workbench.harness.baselines.rows import Row
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import SHIPPED, load_folder
from llama_workbench.harness.machine.environment import comparable
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.confidence import Interval
from llama_workbench.harness.store.schema import Key, Standings
from llama_workbench.harness.store.verdict_schema import AD_HOC

from .entries import Entry
from .workloads import distinct


@dataclass(frozen=True)
class Past:
    """One run of a history with its standings."""

    entry: Entry
    standings: Standings

    @property
    def dated(self) -> DatedRun:
        """It in a course."""
        return DatedRun(self.entry.name, self.standings)


@dataclass(frozen=True)
class Point:
    """The relative time of a variant in one run, or the mean over consecutive runs of the same code.

    sound: they ended whole, no control fired, and the effect did not drift. against: the reference of the ratio. runs:
    their names.
    """

    name: str
    runs: tuple[str, ...]
    started: str
    interval: Interval
    against: str
    baseline: bool
    sound: bool


@dataclass(frozen=True)
class Break:
    """Why a point cannot be compared with the point before it: an index into the points, and the reasons in words."""

    index: int
    before: str
    after: str
    reasons: tuple[str, ...]


class Change(NamedTuple):
    """One variant in two runs that may be compared, the later one against the latest such run before it."""

    before: str
    after: str
    started: str
    row: Row


def subjects(pasts: Sequence[Past], workload: str) -> list[str]:
    """Variants that have a number on a workload in any of the runs, those of the newest run first."""
    subjects = (subject for past in reversed(pasts) for subject in past.standings.subjects)
    return list(dict.fromkeys(variant for name, variant in subjects if name == workload))


def points(pasts: Sequence[Past], workload: str, variant: str) -> tuple[list[Point], list[Break]]:
    """One variant on one workload over the runs, oldest first, and where its line must not be drawn through."""
    key = (workload, variant)
    groups: list[list[Past]] = []
    breaks = []
    for past in (past for past in pasts if key in past.standings.times):
        reasons = _reasons(groups[-1][-1], past, key) if groups else ()
        if reasons:
            breaks.append(Break(len(groups), groups[-1][-1].entry.name, past.entry.name, reasons))
        if groups and not reasons and groups[-1][-1].dated.code == past.dated.code:
            groups[-1].append(past)
        else:
            groups.append([past])
    return [_point(group, key) for group in groups], breaks


def _reasons(old: Past, now: Past, key: Key) -> tuple[str, ...]:
    """Why a variant in two runs cannot be compared."""
    reasons = [*comparable(old.standings.environment, now.standings.environment)]
    return tuple(filter(None, [*reasons, why_not(key, old.standings, now.standings)]))


def _point(group: Sequence[Past], key: Key) -> Point:
    first, times = group[0], [past.standings.times[key] for past in group]
    sound = all(
        past.entry.summary.status == "complete" and not past.standings.workloads[key[0]].bias and not time.unstable
        for past, time in zip(group, times, strict=True)
    )
    return Point(
        name=first.entry.name if len(group) == 1 else f"{first.dated.code} ({len(group)} runs)",
        runs=tuple(past.entry.name for past in group),
        started=first.entry.summary.started,
        interval=_mean([time.interval for time in times]),
        against=first.standings.workloads[key[0]].reference or "",
        baseline=any(past.entry.is_baseline for past in group),
        sound=sound,
    )


def _mean(intervals: Sequence[Interval]) -> Interval:
    """Of the mean of independent runs: half widths add as errors do."""
    count, centre = len(intervals), fmean(each.centre for each in intervals)
    below = math.hypot(*(each.centre - each.low for each in intervals)) / count
    above = math.hypot(*(each.high - each.centre for each in intervals)) / count
    return Interval(centre, centre - below, centre + above, sum(each.n for each in intervals))


def changes(pasts: Sequence[Past], workload: str) -> list[Change]:
    """Every variant on a workload in each run against the latest earlier run on the same machine configuration."""
    latest: list[Past] = []  # of each machine configuration
    changes = []
    for past in pasts:
        now = past.standings.of(workload)
        if not now.subjects:
            continue
        same = (i for i, old in enumerate(latest) if not comparable(old.standings.environment, now.environment))
        if (place := next(same, None)) is None:
            latest.append(past)
            continue
        old, latest[place] = latest[place], past
        rows = compare_standings(old.standings.of(workload), now).rows
        changes += [Change(old.entry.name, past.entry.name, past.entry.summary.started, row) for row in rows]
    return changes


class Turn(NamedTuple):
    """A claim whose verdict in the run `after` is another than in the run before that judged it."""

    after: Entry
    part: str
    was: str
    became: str


def verdicts_over_time(entries: Sequence[Entry], claim: str) -> tuple[list[tuple[Entry, dict[str, Word]]], list[Turn]]:
    """What became of a claim in each run that judged it, by part; and where that changed. Oldest first."""
    judged, turns = [], []
    last: dict[str, Word] = {}
    for entry in entries:
        parts = {part: verdict for name, part, verdict in entry.summary.claims if name == claim}
        if parts:
            judged.append((entry, parts))
        for part, verdict in parts.items():
            if last.get(part, verdict) != verdict:
                turns.append(Turn(entry, part, last[part], verdict))
            last[part] = verdict
    return judged, turns


def titles(claims: Collection[str]) -> dict[str, str]:
    """Titles by claim, main claims first, then by title: an id stands for itself where it is not of this register."""
    try:
        register, dispute = load_folder(SHIPPED)
        known = {claim.id: claim.title for claim in register}
        main = [name for name, _ in dispute.headlines()]
    except ClaimError:
        known, main = {}, []

    def place(name: str) -> tuple[int, str]:
        return main.index(name) if name in main else len(main) + (name == AD_HOC), known.get(name, name)

    return distinct({name: known.get(name, name) for name in sorted(claims, key=place)})
