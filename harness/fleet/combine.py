"""Ordinary runs, made on several machines by hand or by CI, become one fleet."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ..baselines.saved import left_out
from ..store.errors import RunError
from ..store.files import CLAIMS
from ..store.folder import RunFolder
from ..store.machine_schema import FLEET, HOME, Machine
from ..store.schema import Manifest
from .folder import FleetFolder
from .kinds import PIECE_FOLDER, slug
from .rejudge import judge_fleet

COMPUTING = (
    "torch", "transformers", "tokenizers", "safetensors", "numpy", "candle-nn", "mistralrs", "llama-cpp-python",
)  # fmt: skip
"""Packages of which two versions are not one thing measured twice. Of torch the build for a machine may differ."""

SAME = "Measure all machines with one revision, the same packages and the same claims."


@dataclass(frozen=True)
class _Member:
    """A run that takes part, of a machine or of a piece of the work on a node."""

    folder: RunFolder
    source: int  # the place of the run that was named
    counts: tuple[str, ...] | None = None  # the workloads that count where its fleet split the work; None: all of them

    @cached_property
    def manifest(self) -> Manifest:
        return self.folder.manifest()

    @cached_property
    def claims(self) -> dict[str, Any]:
        return {claim["id"]: claim for claim in self.folder.records(CLAIMS)}

    @property
    def workloads(self) -> list[str]:
        names = (each.workload.name for each in self.manifest.experiments)
        return [name for name in names if self.counts is None or name in self.counts]

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
    members = [member for place, given in enumerate(runs) for member in _members(place, given)]
    for member in members:
        _check_whole(member)
    if len(members) < 2:
        raise RunError(runs[0].path, "this is a run of one machine", "Name the runs of two machines or more.")
    for index, later in enumerate(members):
        for earlier in members[:index]:
            _check(earlier, later)
    here = (into or Path("results/runs")).resolve()
    for source in (member.folder.path.resolve() for member in members):
        if into is not None and (here == source or source in here.parents or here in source.parents):
            raise RunError(into, f"this is where {source} lies", "Name a folder of its own with --into.")
    fleet = FleetFolder.create(into)
    names = _names(members)
    fleet.write([Machine(name=name, status="waiting") for name in names], **_facts(members))
    for name, member in zip(names, members, strict=True):
        _copy(member.folder.path, fleet.machine(name))
    machines = [
        Machine(name=name, status=member.manifest.status or "", experiments=member.workloads)
        for name, member in zip(names, members, strict=True)
    ]
    whole = all(machine.status == "complete" for machine in machines)
    fleet.update(machines, "complete" if whole else "interrupted")
    judge_fleet(fleet.path)
    return fleet


def _members(place: int, run: RunFolder) -> list[_Member]:
    """The run, or those of its machines; without those of which nothing counts."""
    manifest = run.manifest()
    if manifest.mode != FLEET:
        return [_Member(run, place)]
    split = manifest.spending == "split"
    runs = FleetFolder(run.path).runs()
    members = [_Member(each, place, tuple(machine.experiments) if split else None) for machine, each in runs]
    return [member for member in members if member.counts != ()]


def _check_whole(member: _Member) -> None:
    """Raise RunError where a run cannot be read, goes on, or has no samples."""
    for changed in member.folder.changed():
        raise changed
    if member.manifest.status == "running":
        fix = "Let it end, or go on with it: workbench resume RUN"
        raise RunError(member.folder.path, "the run is running, or was killed", fix)
    if not member.folder.finished_rounds():
        raise RunError(member.folder.path, "holds no samples", "Leave it out.")


def _check(this: _Member, other: _Member) -> None:
    """Raise RunError where two runs are not the same measured on two machines."""
    if this.folder.digest() == other.folder.digest():
        raise RunError(other.folder.path, f"this is the same run as {this.folder.path}", "Name each run once.")
    ours, theirs = _rests_on(this), _rests_on(other)
    if ours.keys() & theirs.keys() & {THE_CODE}:  # else the revision is all that is known of it
        ours.pop("revision:", None)
    apart = [
        f"{name} is not the same in both" if name.startswith("the ") else f"{name} {value} against {theirs[name]}"
        for name, value in ours.items()
        if name in theirs and value != theirs[name]
    ]
    if apart:
        problem = f"cannot be combined with {this.folder.path}: {'; '.join(apart)}"
        raise RunError(other.folder.path, problem, SAME)


THE_CODE = "the code that measures"


def _rests_on(member: _Member) -> dict[str, Any]:
    """What must be the same in another run that knows it too, by what it is called. Of what begins with "the" it is
    only said that it differs."""
    manifest, environment = member.manifest, member.manifest.machine_facts
    packages = environment.get("packages") or {}
    facts = {
        "revision:": str((environment.get("commit") or {}).get("id") or "")[:10],
        "Python:": ".".join(str(environment.get("python") or "").split(".")[:2]),
        # Without the tag of a build: the same torch has one for each kind of machine.
        **{f"{name}:": str(packages.get(name) or "").partition("+")[0] for name in COMPUTING},
        **{f"the claim {name}": claim for name, claim in member.claims.items()},
        **{f"the workload {each.workload.name}": each.workload for each in manifest.experiments},
    }
    if manifest.sources is not None:
        facts |= {f"the code of {name}": source.digest for name, source in manifest.sources.variants.items()}
        facts[THE_CODE] = manifest.sources.harness
    for name, weights in (manifest.checkpoints or {}).items():
        facts[f"weights of {name}: SHA-256"] = (weights.digest or "")[:12]
    conditions = [str(condition) for condition in manifest.fail_if]
    choices = {"mode:": manifest.mode, "alpha:": manifest.alpha, "--fail-if:": conditions}
    chosen = {name: json.dumps(value) if value else "nothing" for name, value in choices.items()}
    return chosen | {name: value for name, value in facts.items() if value}


def _names(members: Sequence[_Member]) -> list[str]:
    """A folder name for each; pieces of one node keep saying so."""
    made: list[str] = []
    nodes = list(dict.fromkeys(member.node for member in members if member.node))
    for member in members:
        node, facts = member.node, member.manifest.machine_facts
        name, mark = (f"m{nodes.index(node) + 1}", ".") if node else (slug(facts), "_")
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


def _facts(members: Sequence[_Member]) -> dict[str, Any]:
    """What claims.json holds, and run.json beside the machines."""
    first = members[0].manifest
    measured = [name for member in members for name in member.workloads]
    is_split = len({*measured}) == len(measured) or any(member.counts is not None for member in members)
    return {
        "claims": [*{name: claim for member in members for name, claim in member.claims.items()}.values()],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),  # of this run: its machines have their own times
        "command": first.command,
        "seed": first.seed,
        "alpha": first.alpha,
        "ad_hoc": [*dict.fromkeys(pair for member in members for pair in member.manifest.ad_hoc)],
        "fail_if": [str(condition) for condition in first.fail_if],
        "dispute": first.dispute.stored(),
        "checkpoints": {
            name: facts for member in members for name, facts in (member.manifest.checkpoints or {}).items()
        },
        "spending": "split" if is_split else "replicate",
    }
