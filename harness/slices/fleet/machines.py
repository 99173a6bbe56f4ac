"""The port of this slice: runs of several machines are judged, measured on a cluster, and gone on with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...baselines.saved import left_out
from ...claims.reading import stored_claims
from ...evidence.effect import how_many
from ...evidence.evidence import SUBJECT, found_text
from ...judge.parts import parts_of
from ...plan.options import Options, Request
from ...report.standings import evidence_of
from ...spec.dispute import Dispute
from ...store.files import CLAIMS, MACHINES, MANIFEST, VERDICTS, RunError
from ...store.folder import RunFolder
from ...store.schema import Manifest, Noise
from ...store.verdict_schema import FLEET, HOME, Machine, OverMachines, Verdict
from .folder import FleetFolder
from .kinds import PIECE_FOLDER, labels, names, slug
from .verdicts import MachineEvidence, judge_machines

if TYPE_CHECKING:
    from .session import FleetRun


def measured_on(
    on: str,
    request: Request,
    options: Options,
    *,
    on_each_kind: bool = False,
    earlier: RunFolder | None = None,
    budget: float | None = None,
) -> FleetRun:
    """A new run over a cluster, or `earlier`, which goes on (see `session.spread` and `session.again`)."""
    from .session import again, spread

    if earlier is not None:
        return again(earlier, request, options, on=on, budget=budget)
    return spread(request, options, on=on, on_each_kind=on_each_kind)


@dataclass(frozen=True)
class FleetVerdicts:
    """What the runs of the machines come to."""

    verdicts: tuple[Verdict, ...]  # over machines
    over: list[OverMachines]  # each effect over machines
    machines: list[Machine]  # for run.json, with their kinds
    noise: str  # what their controls show, in one line

    def manifest(self, earlier: Manifest) -> Manifest:
        """run.json with what was found."""
        judged = {"machines": self.machines, "noise": Noise(line=self.noise)}
        return earlier.model_copy(update=judged)


def verdicts_of(folder: RunFolder) -> FleetVerdicts:
    """Judge the machines' runs over machines. Writes nothing.

    Each run is read as it lies there, also one that was cut off. Raises RunError, and ClaimError for claims that are
    none.
    """
    fleet, manifest = FleetFolder(folder.path), folder.manifest()
    split = manifest.spending == "split"
    runs = [(machine, run, _counted(machine, run.manifest(), split)) for machine, run in fleet.runs()]
    # A machine that was lost before its first round says nothing, and leaves nothing open.
    measured = [each for each in runs if each[1].finished_rounds() or each[2].status == "complete"]
    if not measured:
        raise RunError(fleet.path, "no machine of this fleet has finished a round", "Measure again: nothing was kept.")
    environments = [each.machine_facts for *_, each in measured]
    named = labels(environments, [machine.name for machine, *_ in measured])
    labelled = zip(named, names(environments), measured, strict=True)
    machines = [MachineEvidence(label, kind, evidence_of(run, one)) for label, kind, (_, run, one) in labelled]
    parts = parts_of(stored_claims(folder), manifest.ad_hoc, manifest.fail_if)
    verdicts, over = judge_machines(parts, machines, manifest.alpha)
    kinds = {each.name: machine.name for (each, *_), machine in zip(measured, machines, strict=True)}
    listed = [each.model_copy(update={"kind": kinds.get(each.name, each.kind)}) for each in fleet.machines()]
    return FleetVerdicts(tuple(verdicts), over, listed, _noise_line(machines))


def _counted(machine: Machine, manifest: Manifest, split: bool) -> Manifest:
    """The run.json of a machine with the experiments that count: where the work was split those it is listed with, for
    an experiment that another machine took over is judged there."""
    if not split or not (machine.experiments or machine.status == "interrupted"):
        return manifest
    kept = [each for each in manifest.experiments if each.workload.name in machine.experiments]
    return manifest.model_copy(update={"experiments": kept})


def _noise_line(machines: Sequence[MachineEvidence]) -> str:
    """What the controls of all machines show together; how far each is off is in the runs."""
    controls = [control for machine in machines for control in machine.evidence.noise.controls]
    fired = [machine.name for machine in machines if any(each.fired for each in machine.evidence.noise.controls)]
    places = how_many(machine.name for machine in machines)
    where = f" on {places} machine{'s' * (places != 1)}"
    return f"{SUBJECT}: {found_text(controls, fired, where)}"


def judge_fleet(path: Path | str, dispute: Dispute | None = None) -> tuple[Verdict, ...]:
    """Judge a fleet over its machines; write verdicts.json and machines.json, and name the kinds in run.json, with
    what is asked about its claims where that is told anew.

    Where run.json says that the fleet is "complete", "interrupted" or "failed", its files are sealed. Raises as
    `verdicts_of` does.
    """
    fleet = FleetFolder(Path(path))
    judged = verdicts_of(fleet.run)
    manifest = judged.manifest(fleet.run.manifest())
    if dispute is not None:
        manifest = manifest.model_copy(update={"dispute": dispute})
    fleet.run.write_json(VERDICTS, judged.verdicts)
    fleet.run.write_json(MACHINES, judged.over)
    if manifest.status == "running":
        fleet.run.write_json(MANIFEST, manifest)
    else:
        fleet.run.seal(manifest)
    return judged.verdicts


# -- ordinary runs, made on several machines by hand or by CI, become one fleet ----------------------------------------

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
