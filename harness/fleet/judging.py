"""Verdicts over the machines of a fleet, from what each of them measured."""

from __future__ import annotations

from pathlib import Path

from ..store.schema import Verdict


def judge_fleet(path: Path | str) -> tuple[Verdict, ...]:
    """Judge a fleet over its machines; write verdicts.json and machines.json, and name the kinds in run.json.

    Each machine's run is read as it lies there, also one that was cut off. Where run.json says that the fleet is
    "complete", "interrupted" or "failed", its files are sealed. Raises RunError, and ClaimError
    for claims that are none.
    """
    raise NotImplementedError(path)  # follows at once; the signature stands
