"""Lists of runs: what each folder holds, in a few values."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..machine.environment import one_line
from .errors import RunError, as_run_error
from .files import VERDICTS
from .folder import RunFolder


@dataclass(frozen=True)
class RunSummary:
    """What a folder is, for a list of runs. `problem` is None where it can be read as a run.

    verdicts: number of verdicts by word. claims: (claim, part, verdict); a part without a name is "", and an "ad-hoc"
    comparison has its title there. machine: CPU, cores, threads and versions in one line. commit: of the workbench
    that measured. noise: what its controls showed, in one line.
    """

    path: Path
    id: str
    status: str
    mode: str = ""
    started: str = ""
    workloads: tuple[str, ...] = ()
    verdicts: Mapping[str, int] = field(default_factory=dict)
    problem: str | None = None
    claims: tuple[tuple[str, str, str], ...] = ()
    machine: str = ""
    commit: str = ""
    noise: str = ""


def list_runs(folder: Path | str) -> list[RunFolder]:
    """Every folder inside `folder`, newest run first (by the manifest's start, else by the folder's own time).

    Damaged and foreign folders are in the list too: `describe` says what is wrong with each. A missing `folder` has
    no runs.
    """
    return sorted(run_folders(folder), key=lambda run: (_started(run), run.path.name), reverse=True)


def run_folders(folder: Path | str) -> list[RunFolder]:
    """The same in no order, and without reading any of them."""
    root = Path(folder)
    if not root.is_dir():
        return []
    with as_run_error(root), os.scandir(root) as entries:
        return [RunFolder(root / each.name) for each in entries if not each.name.startswith(".") and each.is_dir()]


def describe(run: RunFolder, *, whole: bool = False) -> RunSummary:
    """What a folder is. Never raises for what lies in it: damage and foreign files go into `problem`.

    Checked are the files that the summary is made of; with `whole` every file that has a checksum, by reading it.
    """
    name = run.path.name
    try:
        if not run.looks_like_a_run():
            return RunSummary(run.path, name, "not a run", problem="no run.json and no samples")
        summary = _of_manifest(run, run.read_manifest())
    except OSError as error:
        return RunSummary(run.path, name, "not a run", problem=f"cannot be read ({error.strerror})")
    except RunError as error:
        return RunSummary(run.path, name, "damaged", problem=error.brief)
    problem = ""
    try:
        if run.has(VERDICTS):
            verdicts = run.records(VERDICTS)
            claims = tuple((str(each["claim"]), _part_text(each), str(each["verdict"])) for each in verdicts)
            summary = replace(summary, claims=claims, verdicts=Counter(verdict for _, _, verdict in claims))
        changed = run.changed() if whole else []
        problem = "; ".join(error.brief for error in changed)
        run.check_samples()
    except RunError as error:
        problem = problem or error.brief
    return replace(summary, status="damaged", problem=problem) if problem else summary


def _of_manifest(run: RunFolder, manifest: Mapping[str, Any]) -> RunSummary:
    environment = manifest.get("environment") or {}
    commit = environment.get("commit") or {}
    return RunSummary(
        path=run.path,
        id=str(manifest.get("id", run.path.name)),
        status=str(manifest.get("status", "?")),
        mode=str(manifest.get("mode", "")),
        started=str(manifest.get("started") or ""),
        workloads=tuple(str(item["workload"].get("name", "?")) for item in manifest.get("experiments", [])),
        machine=one_line(environment) if environment else "",
        commit=f"{commit.get('id') or ''}"[:10] + " with changes" * bool(commit.get("dirty")),
        noise=str((manifest.get("noise") or {}).get("line") or ""),
    )


def _started(run: RunFolder) -> float:
    try:
        return datetime.fromisoformat(run.read_manifest()["started"]).timestamp()
    except (RunError, KeyError, TypeError, ValueError):
        return run.path.stat().st_mtime


def _part_text(verdict: Mapping[str, Any]) -> str:
    """The part of a claim; of an ad-hoc comparison, all of which have one name, its title."""
    title = verdict.get("title") if verdict["claim"] == "ad-hoc" else None
    return str(verdict.get("part") or title or "")
