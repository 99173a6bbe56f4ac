"""Ordinary runs, made on several machines by hand or by CI, become one fleet."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ..baselines.saved import left_out
from ..store.errors import RunError
from ..store.files import CLAIMS
from ..store.folder import RunFolder
from ..store.machine_schema import Machine, Spending
from .folder import HOME, FleetFolder, is_fleet
from .judging import judge_fleet
from .kinds import PIECE_FOLDER, slug

COMPUTING = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "candle-nn",
    "mistralrs",
    "llama-cpp-python",
)
"""Packages of which two versions are not one thing measured twice. Of torch the build for a machine may differ."""

SAME = "Measure all machines with one revision, the same packages and the same claims."


@dataclass(frozen=True)
class _Piece:
    """A run that takes part, of a machine or of a piece of the work on a node."""

    folder: RunFolder
    source: int  # the place of the run that was named
    counts: tuple[str, ...] | None = None  # the workloads that count where its fleet split the work; None: all of them

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        return self.folder.read_manifest()

    @cached_property
    def claims(self) -> Sequence[Mapping[str, Any]]:
        return self.folder.records(CLAIMS)

    @property
    def environment(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self.manifest.get("environment") or {}
        return facts

    @property
    def work(self) -> dict[str, Any]:
        """Name of a workload → what it is."""
        return {each["workload"]["name"]: each["workload"] for each in self.manifest.get("experiments", ())}

    @property
    def workloads(self) -> list[str]:
        return [name for name in self.work if self.counts is None or name in self.counts]

    @property
    def node(self) -> tuple[int, str] | None:
        """The node of a cluster that measured it; None for a machine with one run."""
        piece = PIECE_FOLDER.fullmatch(self.folder.path.name) if self.counts is not None else None
        return (self.source, piece[1]) if piece else None


def combine(runs: Sequence[RunFolder], into: Path | None) -> FleetFolder:
    """Copy these runs (a fleet stands for the runs of its machines) into a new fleet at `into`, and judge it.

    Logs, hidden files and links are left out. Two runs of one machine kind are two machines; pieces of the work on a
    node of a cluster are one. Raises RunError where a run cannot be read or did not end, or where claims, code,
    versions or weights differ: it says which.
    """
    members = [piece for place, given in enumerate(runs) for piece in _pieces(place, given)]
    for member in members:
        _check_whole(member)
    if len(members) < 2:
        raise RunError(runs[0].path, "this is a run of one machine", "Name the runs of two machines or more.")
    for index, later in enumerate(members):
        for earlier in members[:index]:
            _check(earlier, later)
    _check_place(into, members)
    fleet = FleetFolder.create(into)
    names = _names(members)
    machines = [Machine(name=name, status="waiting") for name in names]
    manifest = _manifest(members)
    claims = {claim["id"]: claim for run in members for claim in run.claims}  # each once
    fleet.write(machines, claims=[*claims.values()], status="running", **manifest)
    for name, run in zip(names, members, strict=True):
        _copy(run.folder.path, fleet.machine(name))
    machines = [
        Machine(name=name, status=str(run.manifest.get("status")), experiments=run.workloads)
        for name, run in zip(names, members, strict=True)
    ]
    whole = all(run.manifest.get("status") == "complete" for run in members)
    fleet.write(machines, status="complete" if whole else "interrupted", **manifest)
    judge_fleet(fleet.path)
    return fleet


def _pieces(place: int, run: RunFolder) -> list[_Piece]:
    """The run, or those of its machines; without those of which nothing counts."""
    manifest = run.manifest()
    if not is_fleet(manifest):
        return [_Piece(run, place)]
    split = manifest.spending == "split"
    runs = FleetFolder(run.path).runs()
    pieces = [_Piece(each, place, tuple(machine.experiments) if split else None) for machine, each in runs]
    return [piece for piece in pieces if piece.counts != ()]


def _check_whole(piece: _Piece) -> None:
    """Raise RunError where a run cannot be read, goes on, or has no samples."""
    status = piece.manifest.get("status")
    for changed in piece.folder.changed():
        raise changed
    if status == "running":
        fix = "Let it end, or go on with it: workbench resume RUN"
        raise RunError(piece.folder.path, "the run is running, or was killed", fix)
    if not piece.folder.finished_rounds():
        raise RunError(piece.folder.path, "holds no samples", "Leave it out.")


def _check_place(into: Path | None, runs: Sequence[_Piece]) -> None:
    """Raise RunError where the fleet would take the place of one of its runs."""
    for run in runs:
        here, source = (into or Path("results/runs")).resolve(), run.folder.path.resolve()
        if into is not None and (here == source or source in here.parents or here in source.parents):
            raise RunError(into, f"this is where {run.folder.path} lies", "Name a folder of its own with --into.")


def _names(runs: Sequence[_Piece]) -> list[str]:
    """A folder name for each; pieces of one node keep saying so."""
    made: list[str] = []
    nodes = list(dict.fromkeys(run.node for run in runs if run.node))
    for run in runs:
        name, mark = (f"m{nodes.index(run.node) + 1}", ".") if run.node else (slug(run.environment), "_")
        count = sum(each == name or each.startswith(name + mark) for each in made)
        made.append(f"{name}{mark}{count + 1}" if count else name)
    return made


def _copy(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(exist_ok=True)
        # Not what no copy gets, nor runs of other machines: a baseline may have some.
        shutil.copytree(source, target, ignore=lambda folder, names: [*left_out(folder, names), HOME])
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise RunError(target, problem, "Check the folder and the space on its disk.") from error
    for changed in RunFolder(target).changed():
        raise changed


# -- do they belong together? ------------------------------------------------------------------------------------------


def _check(this: _Piece, other: _Piece) -> None:
    """Raise RunError where two runs are not the same measured on two machines."""
    if this.folder.digest() == other.folder.digest():
        raise RunError(other.folder.path, f"this is the same run as {this.folder.path}", "Name each run once.")
    if apart := [*_claims_differ(this, other), *_code_differs(this, other), *_work_differs(this, other)]:
        problem = f"cannot be combined with {this.folder.path}: {'; '.join(apart)}"
        raise RunError(other.folder.path, problem, SAME)


def _claims_differ(this: _Piece, other: _Piece) -> list[str]:
    apart = [
        f"{what}: {_told(a)} against {_told(b)}"
        for what, key in (("mode", "mode"), ("alpha", "alpha"), ("--fail-if", "fail_if"))
        if (a := this.manifest.get(key)) != (b := other.manifest.get(key))
    ]
    ours = {claim.get("id"): claim for claim in this.claims}
    return apart + [
        f"the claim {claim.get('id')} is not the same in both"
        for claim in other.claims
        if claim.get("id") in ours and ours[claim.get("id")] != claim
    ]


def _code_differs(this: _Piece, other: _Piece) -> list[str]:
    """What is known of the code and the packages, where both runs know it."""
    apart = []
    ours, theirs = (run.manifest.get("sources") or {} for run in (this, other))
    commits = [str((run.environment.get("commit") or {}).get("id") or "") for run in (this, other)]
    if ours and theirs:
        if ours.get("harness") != theirs.get("harness"):
            apart.append("the code that measures is not the same in both")
        here, there = (
            {name: source.get("digest") for name, source in of.get("variants", {}).items()} for of in (ours, theirs)
        )
        changed = [name for name in sorted(here.keys() & there.keys()) if here[name] != there[name]]
        apart += [f"the code of {name} is not the same in both" for name in changed]
    elif all(commits) and commits[0] != commits[1]:
        apart.append(f"revision: {commits[0][:10]} against {commits[1][:10]}")
    for name in COMPUTING:
        a, b = (_version(run.environment, name) for run in (this, other))
        if a and b and a != b:
            apart.append(f"{name}: {a} against {b}")
    a, b = (".".join(str(run.environment.get("python") or "").split(".")[:2]) for run in (this, other))
    return apart + ([f"Python: {a} against {b}"] if a and b and a != b else [])


def _version(environment: Mapping[str, Any], package: str) -> str:
    """Without the tag of a build: the same torch has one for each kind of machine."""
    return str((environment.get("packages") or {}).get(package) or "").partition("+")[0]


def _work_differs(this: _Piece, other: _Piece) -> list[str]:
    """Weights and workloads that have one name and are not the same."""
    apart = []
    ours, theirs = (run.manifest.get("checkpoints") or {} for run in (this, other))
    for name in ours.keys() & theirs.keys():
        a, b = (str(each[name].get("digest") or "") for each in (ours, theirs))
        if a and b and a != b:
            apart.append(f"weights of {name}: SHA-256 {a[:12]} against {b[:12]}")
    work, others = this.work, other.work
    shared = work.keys() & others.keys()
    return apart + [f"the workload {name} is not the same in both" for name in shared if work[name] != others[name]]


def _told(value: object) -> str:
    return "nothing" if value in (None, [], "") else json.dumps(value)


# -- what the fleet's own files hold -----------------------------------------------------------------------------------


def _manifest(runs: Sequence[_Piece]) -> dict[str, Any]:
    """What run.json says beside the machines."""
    first = runs[0].manifest
    pairs = dict.fromkeys((base, variant) for run in runs for base, variant in run.manifest.get("ad_hoc", ()))
    measured = [name for run in runs for name in run.workloads]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    is_split = len({*measured}) == len(measured) or any(run.counts is not None for run in runs)
    spending: Spending = "split" if is_split else "replicate"
    return {
        "started": now,  # of this run: its machines have their own times
        "finished": now,
        "command": first.get("command", []),
        "seed": first.get("seed"),
        "alpha": first.get("alpha"),
        "ad_hoc": [list(pair) for pair in pairs],
        "fail_if": first.get("fail_if", []),
        "dispute": first.get("dispute", {}),
        "checkpoints": {name: facts for run in runs for name, facts in (run.manifest.get("checkpoints") or {}).items()},
        "spending": spending,
    }
