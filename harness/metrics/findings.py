"""Finds out what needs no stop-watch: what works (checks) and what can be counted in the source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from ..claims.claims import Reading
from ..measure.participants import Progress
from ..store.pass_schema import Finding
from .check.checks import CheckError, run_check
from .count import CountError, count


def find_out(readings: Sequence[Reading], *, cache: Path, seed: int, log: Path, progress: Progress) -> list[Finding]:
    """One finding for each different check and count among the readings. What fails is a finding with a reason.

    `cache` keeps checkpoints that checks need, `log` takes what they print.
    """
    wanted = {
        (reading.metric, reading.quantity or "", "", reading.variant or "", reading.baseline or ""): reading
        for reading in readings
        if reading.metric in ("check", "count")
    }
    found = []
    for index, (subject, reading) in enumerate(wanted.items()):
        progress.step(f"{reading.metric} {reading.quantity}", index / len(wanted), math.nan)
        looked = _check if reading.metric == "check" else _count
        found.append(looked(subject, cache, seed, log))
    return found


Subject = tuple[str, str, str, str, str]


def _check(subject: Subject, cache: Path, seed: int, log: Path) -> Finding:
    try:
        cases, seconds = run_check(subject[1], cache=cache, seed=seed, log=log)
    except CheckError as error:
        return Finding(*subject, math.nan, 0, reason=str(error))
    failed = [case for case in cases if not case.passed]
    if not cases:
        return Finding(*subject, math.nan, 0, reason="the check tried nothing", seconds=seconds)
    detail = "; ".join(f"{case.name}: {case.detail}" for case in failed) or f"all {len(cases)} cases pass"
    return Finding(*subject, 100 * (1 - len(failed) / len(cases)), len(cases), detail=detail, seconds=seconds)


def _count(subject: Subject, cache: Path, seed: int, log: Path) -> Finding:
    _, quantity, _, variant, baseline = subject
    try:
        value, detail = count(variant, quantity)
        if not baseline:
            return Finding(*subject, value, 1, detail=detail)
        other, said = count(baseline, quantity)
    except CountError as error:
        return Finding(*subject, math.nan, 0, reason=str(error))
    return Finding(*subject, value / other, 1, detail=f"{detail}; {said}")
