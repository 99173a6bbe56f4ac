"""The committed runs, judged by today's code, give the verdicts and intervals that they were committed with."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.rejudge import rejudge
from llama_workbench.harness.store.folder import RunFolder

RUNS = sorted(path.parent for path in (ROOT / "results" / "baselines").glob("*/run.json"))
NUMBERS = ("ratio", "value", "low", "high", "seconds")


def exact(effect: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in effect.items() if name not in (*NUMBERS, "warnings")}


def numbers(effect: dict[str, Any]) -> dict[str, float]:
    return {name: math.nan if effect[name] is None else effect[name] for name in NUMBERS if name in effect}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_verdicts_and_intervals_are_those_that_were_committed(run: Path, tmp_path: Path) -> None:
    """Reasons and warnings are words, and may change; all else may not."""
    shutil.copytree(run, tmp_path / "run")
    stored = RunFolder(run).records("verdicts.json")
    found, manifest = rejudge(RunFolder(tmp_path / "run"))
    assert stored
    assert manifest["noise"]["line"] == RunFolder(run).read_manifest()["noise"]["line"]
    assert [(each["claim"], each["part"], each["verdict"]) for each in found] == [
        (each["claim"], each["part"], each["verdict"]) for each in stored
    ]
    for now, then in zip(found, stored, strict=True):
        for name in ("alpha", "claimed", "region"):
            assert now[name] == then[name]
        for effect, before in zip(now["effects"], then["effects"], strict=True):
            assert exact(effect) == exact(before)
            assert numbers(effect) == pytest.approx(numbers(before), rel=1e-9, nan_ok=True), now["claim"]
