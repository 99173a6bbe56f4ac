"""Runs over time: those of the same code put together, and at which commit the time of a variant changed.

Runs of one commit on one machine configuration are one stage of a course. Whether the time changed between two stages
is asked of all their runs at once (`stats.change_points`), so that a slow-down that no two runs prove is found in the
long run. Everything here is relative to the reference benchmark, as in `workbench compare`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..evidence.effect import ALPHA
from ..machine.environment import comparable
from ..stats.change_points import change_points
from ..stats.means import trimmed_mean
from ..store.schema import Key, Standings
from .regressions import why_not

MOST_RUNS = 300
"""Of a longer course the newest so many runs are looked at: time and memory grow by the square of their number."""


@dataclass(frozen=True)
class DatedRun:
    """One run of a history, with its relative times."""

    name: str
    standings: Standings

    @property
    def code(self) -> str:
        """What runs of the same code share: its commit. Where that is unknown, or files differed from it, the name of
        the run, which nothing shares."""
        commit = self.standings.environment.get("commit") or {}
        return str(commit["id"])[:10] if commit.get("id") and commit.get("dirty") is False else self.name


@dataclass(frozen=True)
class ChangePoint:
    """Where the time of a variant changed: between two stages of its course.

    before, after: the code of the stages beside the step. first_run: the first run behind it. The change of the time in
    percent, above 0 slower, is from all runs since the step before, or the beginning, to all until the next one, or the
    end. Its interval says how well that is known, given that there is a step.
    """

    workload: str
    variant: str
    before: str
    after: str
    first_run: str
    change_percent: float
    low_percent: float
    high_percent: float
    runs_before: int
    runs_after: int

    def change_text(self) -> str:
        """The size with its interval: "+5.1 % [+4.2, +6.0]"."""
        return f"{self.change_percent:+.1f} % [{self.low_percent:+.1f}, {self.high_percent:+.1f}]"


def stages(runs: Iterable[DatedRun], key: Key) -> list[list[list[DatedRun]]]:
    """The runs that have a (workload, variant), oldest first: by what they may be compared with, then by their code.

    Within a course stages stand in the order in which their code was first measured. What drifted is left out.
    """
    courses: list[list[list[DatedRun]]] = []
    for run in runs:
        time = run.standings.times.get(key)
        if time is None or not time.rounds or time.unstable:
            continue
        course = next((each for each in courses if not _apart(each[0][0].standings, run.standings, key)), None)
        if course is None:
            courses.append(course := [])
        stage = next((each for each in course if each[0].code == run.code), None)
        if stage is None:
            course.append(stage := [])
        stage.append(run)
    return courses


def change_points_of(runs: Sequence[DatedRun], key: Key) -> list[ChangePoint]:
    """Where a variant changed on a workload. A course without any change gets one with probability ALPHA at most."""
    return [step for course in stages(runs[-MOST_RUNS:], key) for step in _steps(course, key)]


def all_change_points(runs: Sequence[DatedRun]) -> list[ChangePoint]:
    """Of all that the runs have: of each variant on each workload at the same level, whatever the others do."""
    keys = dict.fromkeys(key for run in runs for key in run.standings.times)
    return [step for key in keys for step in change_points_of(runs, key)]


def _apart(old: Standings, now: Standings, key: Key) -> bool:
    return bool(comparable(old.environment, now.environment) or why_not(key, old, now))


def _steps(course: Sequence[Sequence[DatedRun]], key: Key) -> Iterator[ChangePoint]:
    in_order = [run for stage in course for run in stage]
    logs = [run.standings.times[key].log_ratio for run in in_order]
    borders = [sum(map(len, course[:number])) for number in range(1, len(course))]
    cuts = change_points(logs, at=borders, alpha=ALPHA)
    for first, cut, last in zip([0, *cuts], cuts, [*cuts[1:], len(logs)], strict=False):
        before, after = trimmed_mean(logs[first:cut]), trimmed_mean(logs[cut:last])
        assert before is not None and after is not None
        slow_down = before.minus(after)
        low, high = slow_down.ends(ALPHA)
        yield ChangePoint(
            workload=key[0],
            variant=key[1],
            before=in_order[cut - 1].code,
            after=in_order[cut].code,
            first_run=in_order[cut].name,
            change_percent=_percent(slow_down.centre),
            low_percent=_percent(low),
            high_percent=_percent(high),
            runs_before=cut - first,
            runs_after=last - cut,
        )


def _percent(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)
