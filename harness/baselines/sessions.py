"""By how much do sessions of unchanged code differ, beyond what the lives within each differ by?

Each run is one session. Of each variant and workload the variance between sessions is Paule's and Mandel's estimate,
and its upper bound that of the Q profile (`stats.means`). Of several workloads of one kind the largest counts, so that
the table says of a kind what holds on each of its workloads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Literal

from ..machine.environment import comparable
from ..stats.means import between_variance, most_between_variance
from ..store.schema import Key, Standings
from .regressions import measured_alike, why_not
from .thresholds import TABLE, Shift

LEAST_SESSIONS = 3
TOO_LOW = 0.05
"""Chance that the true standard deviation is larger than what a table calls at most."""


def shifts(runs: Sequence[Standings]) -> list[Shift]:
    """What runs of the same code differ by, by kind of workload and variant.

    Raises ValueError where two of them cannot be compared, or there is nothing that enough of them have over lives.
    """
    for run in runs[1:]:
        if differences := comparable(runs[0].environment, run.environment):
            raise ValueError(f"{runs[0].name} and {run.name} are from different machines: {'; '.join(differences)}")
    by_kind: dict[tuple[str, str], Shift] = {}
    for key in dict.fromkeys(key for run in runs for key, time in run.times.items() if time.over_lives):
        kind = next(str(run.workloads[key[0]].workload.get("kind")) for run in runs if key[0] in run.workloads)
        shift = _shift(key, kind, [run for run in runs if key in run.times])
        widest = by_kind.get((kind, key[1]), shift)
        if shift is not None and (widest is None or shift.at_most >= widest.at_most):
            by_kind[kind, key[1]] = shift
    if not by_kind:
        raise ValueError(
            f"nothing was timed over several processes in {LEAST_SESSIONS} or more of these runs; give more runs"
        )
    return [by_kind[key] for key in sorted(by_kind)]


def _shift(key: Key, kind: str, runs: Sequence[Standings]) -> Shift | None:
    for run in runs[1:]:
        if reason := why_not(key, runs[0], run):
            raise ValueError(f"{key[1]} on {key[0]}, {runs[0].name} and {run.name}: {reason}")
    means = [mean for run in runs if (mean := run.times[key].over_lives)]
    if len(means) < LEAST_SESSIONS:
        return None
    centres, errors = [each.centre for each in means], [each.error for each in means]
    between, most = between_variance(centres, errors), most_between_variance(centres, errors, TOO_LOW)
    between, most = (round(100 * math.expm1(math.sqrt(each)), 3) for each in (between, max(between, most)))
    code: Literal["same", "another"] = "same" if measured_alike(runs) else "another"
    return Shift(variant=key[1], kind=kind, code=code, sessions=len(means), between=between, at_most=most)


def to_toml(differences: Sequence[Shift], runs: Sequence[Standings]) -> str:
    """The tables for a pyproject.toml, or for `sessions.toml`."""
    days = sorted(run.started[:10] for run in runs)
    machine = runs[0].environment
    torch = f"torch {machine['torch']}" if machine.get("torch") else "no torch"
    lines = [
        f"# {len(runs)} runs of unchanged code, {days[0]} to {days[-1]}: {machine.get('cpu_model')}, "
        f"{machine.get('cores')} cores, {torch}; printed by `workbench sessions`.",
    ]
    for shift in differences:
        values = (f"{key} = {json.dumps(value)}" for key, value in shift.model_dump().items())
        lines += ["", f"[[{TABLE}.compare.sessions]]", *values]
    return "\n".join(lines) + "\n"
