"""The port of this slice: runs of several machines are judged, measured on a cluster, gone on with, and combined."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from .folder import FleetFolder, labels
from .node import kind_of
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


class FleetVerdicts(NamedTuple):
    """What the runs of the machines come to. over: each effect over machines. manifest: run.json, with what the
    machines are and what their controls show."""

    verdicts: tuple[Verdict, ...]
    over: list[OverMachines]
    manifest: Manifest


def verdicts_of(folder: RunFolder) -> FleetVerdicts:
    """Judge the machines' runs over machines. Writes nothing.

    Each run is read as it lies there, also one that was cut off. Raises RunError, and ClaimError for claims that are
    none.
    """
    fleet, manifest = FleetFolder(folder.path), folder.manifest()
    runs = [(each, run, _counted(each, run.manifest(), manifest.spending == "split")) for each, run in fleet.runs()]
    # A machine that was lost before its first round says nothing, and leaves nothing open.
    runs = [each for each in runs if each[1].finished_rounds() or each[2].status == "complete"]
    if not runs:
        raise RunError(fleet.path, "no machine of this fleet has finished a round", "Measure again: nothing was kept.")
    kinds = [kind_of(counted.machine_facts) for *_, counted in runs]
    named = labels(kinds, [machine.name for machine, *_ in runs])
    machines = [
        MachineEvidence(name, kind, evidence_of(run, counted))
        for name, kind, (_, run, counted) in zip(named, kinds, runs, strict=True)
    ]
    parts = parts_of(stored_claims(folder), manifest.ad_hoc, manifest.fail_if)
    verdicts, over = judge_machines(parts, machines, manifest.alpha)
    names = {machine.name: name for (machine, *_), name in zip(runs, named, strict=True)}
    listed = [each.model_copy(update={"kind": names.get(each.name, each.kind)}) for each in fleet.machines()]
    controls = [control for machine in machines for control in machine.evidence.noise.controls]
    fired = [machine.name for machine in machines if any(each.fired for each in machine.evidence.noise.controls)]
    where = f" on {(count := how_many(named))} machine{'s' * (count != 1)}"
    noise = Noise(line=f"{SUBJECT}: {found_text(controls, fired, where)}")
    changed = manifest.model_copy(update={"machines": listed, "noise": noise})
    return FleetVerdicts(tuple(verdicts), over, changed)


def _counted(machine: Machine, manifest: Manifest, split: bool) -> Manifest:
    """The run.json of a machine with the experiments that count: where the work was split those it is listed with, for
    an experiment that another machine took over is judged there."""
    if not split or not (machine.experiments or machine.status == "interrupted"):
        return manifest
    kept = [each for each in manifest.experiments if each.workload.name in machine.experiments]
    return manifest.model_copy(update={"experiments": kept})


def judge_fleet(path: Path | str, dispute: Dispute | None = None) -> tuple[Verdict, ...]:
    """Judge a fleet over its machines; write verdicts.json and machines.json, and name the kinds in run.json, with
    what is asked about its claims where that is told anew.

    Where run.json says that the fleet is "complete", "interrupted" or "failed", its files are sealed. Raises as
    `verdicts_of` does.
    """
    fleet = FleetFolder(Path(path))
    verdicts, over, manifest = verdicts_of(fleet.run)
    if dispute is not None:
        manifest = manifest.model_copy(update={"dispute": dispute})
    fleet.run.write_json(VERDICTS, verdicts)
    fleet.run.write_json(MACHINES, over)
    if manifest.status == "running":
        fleet.run.write_json(MANIFEST, manifest)
    else:
        fleet.run.seal(manifest)
    return verdicts


# -- ordinary runs, made on several machines by hand or by CI, become one fleet ----------------------------------------

COMPUTING = (
    "torch", "transformers", "tokenizers", "safetensors", "numpy", "candle-nn", "llama-cpp-python",
)  # fmt: skip
"""Packages of which two versions are not one thing measured twice. Of torch the build for a machine may differ."""

SAME = "Measure all machines with one revision, the same packages and the same claims."


def combine(runs: Sequence[RunFolder], into: Path | None) -> FleetFolder:
    """Copy these runs into a new fleet at `into`, and judge it.

    Logs, hidden files and links are left out. Two runs of one machine kind are two machines. Raises RunError where a
    run cannot be read or did not end, or where claims, code, versions or weights differ: it says which.
    """
    for run in runs:
        _check_whole(run)
    if len(runs) < 2:
        raise RunError(runs[0].path, "this is a run of one machine", "Name the runs of two machines or more.")
    for index, later in enumerate(runs):
        for earlier in runs[:index]:
            _check(earlier, later)
    here = (into or Path("results/runs")).resolve()
    for source in (run.path.resolve() for run in runs):
        if into is not None and (here == source or source in here.parents or here in source.parents):
            raise RunError(into, f"this is where {source} lies", "Name a folder of its own with --into.")
    fleet, machines = FleetFolder.create(into), list[Machine]()
    manifests = [run.manifest() for run in runs]
    for manifest in manifests:
        name = re.sub(r"[^a-z0-9]+", "-", kind_of(manifest.machine_facts).lower()).strip("-")[:60]
        count = sum(each.name == name or each.name.startswith(f"{name}_") for each in machines)
        measured = [each.workload.name for each in manifest.experiments]
        named = f"{name}_{count + 1}" if count else name
        machines.append(Machine(name=named, status=manifest.status or "", experiments=measured))
    claims = {claim["id"]: claim for run in runs for claim in run.records(CLAIMS)}
    every, first = [name for machine in machines for name in machine.experiments], manifests[0]
    fleet.write(
        [machine.model_copy(update={"status": "waiting"}) for machine in machines],
        claims=[*claims.values()],
        started=datetime.now(UTC).isoformat(timespec="seconds"),  # of this run: its machines have their own times
        command=first.command,
        seed=first.seed,
        alpha=first.alpha,
        ad_hoc=[*dict.fromkeys(pair for manifest in manifests for pair in manifest.ad_hoc)],
        fail_if=[str(condition) for condition in first.fail_if],
        dispute=first.dispute.stored(),
        checkpoints={name: facts for manifest in manifests for name, facts in (manifest.checkpoints or {}).items()},
        spending="split" if len({*every}) == len(every) else "replicate",
    )
    for run, machine in zip(runs, machines, strict=True):
        _copy(run.path, fleet.machine(machine.name))
    whole = all(machine.status == "complete" for machine in machines)
    fleet.update(machines, "complete" if whole else "interrupted")
    judge_fleet(fleet.path)
    return fleet


def _check_whole(run: RunFolder) -> None:
    """Raise RunError where a run cannot be read, goes on, has no samples, or is of several machines."""
    if run.manifest().mode == FLEET:
        fix = f"Name the runs in its folder {HOME}, and those of other machines."
        raise RunError(run.path, "this is a run of several machines", fix)
    for changed in run.changed():
        raise changed
    if run.manifest().status == "running":
        fix = "Let it end, or go on with it: pytest --benchmark --continue RUN"
        raise RunError(run.path, "the run is running, or was killed", fix)
    if not run.finished_rounds():
        raise RunError(run.path, "holds no samples", "Leave it out.")


def _check(this: RunFolder, other: RunFolder) -> None:
    """Raise RunError where two runs are not the same measured on two machines."""
    if this.digest() == other.digest():
        raise RunError(other.path, f"this is the same run as {this.path}", "Name each run once.")
    ours, theirs = _rests_on(this), _rests_on(other)
    if ours.keys() & theirs.keys() & {THE_CODE}:  # else the revision is all that is known of it
        ours.pop("revision:", None)
    apart = [
        f"{name} is not the same in both" if name.startswith("the ") else f"{name} {value} against {theirs[name]}"
        for name, value in ours.items()
        if name in theirs and value != theirs[name]
    ]
    if apart:
        raise RunError(other.path, f"cannot be combined with {this.path}: {'; '.join(apart)}", SAME)


THE_CODE = "the code that measures"


def _rests_on(run: RunFolder) -> dict[str, Any]:
    """What must be the same in another run that knows it too, by what it is called. Of what begins with "the" it is
    only said that it differs."""
    manifest = run.manifest()
    environment = manifest.machine_facts
    packages = environment.get("packages") or {}
    facts = {
        "revision:": str((environment.get("commit") or {}).get("id") or "")[:10],
        "Python:": ".".join(str(environment.get("python") or "").split(".")[:2]),
        # Without the tag of a build: the same torch has one for each kind of machine.
        **{f"{name}:": str(packages.get(name) or "").partition("+")[0] for name in COMPUTING},
        **{f"the claim {claim['id']}": claim for claim in run.records(CLAIMS)},
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
