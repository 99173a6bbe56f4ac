"""The port of this slice: verdicts of a run that lies in its folder, of one machine or of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..claims.dispute import SHIPPED, load_dispute, load_folder
from ..claims.model import Claim
from ..claims.reading import stored_claims
from ..claims.words import in_words_of
from ..evidence.controls import SUBJECT, found_text
from ..evidence.verdict import how_many
from ..judge.parts import parts_of
from ..report.standings import write_standings
from ..report.stored import evidence_of
from ..session.judging import judge_run
from ..spec.dispute import Dispute
from ..store.errors import RunError
from ..store.files import CLAIMS, MACHINES, MANIFEST, VERDICTS
from ..store.folder import RunFolder
from ..store.machine_schema import FLEET, Machine, OverMachines
from ..store.schema import Manifest, Noise
from ..store.verdict_schema import Verdict
from .folder import FleetFolder
from .kinds import labels, names
from .verdicts import MachineEvidence, judge_machines


class Rejudged(NamedTuple):
    """Verdicts of a stored run, and its run.json with the noise that was found."""

    verdicts: tuple[Verdict, ...]
    manifest: Manifest


def claims_of(folder: RunFolder, claims_folder: Path | None = None) -> list[Claim]:
    """The claims of a stored run as they were then, or in the words of a folder (`in_words_of`)."""
    claims = stored_claims(folder)
    return in_words_of(claims, load_folder(claims_folder)[0]) if claims_folder else claims


def rejudge(folder: RunFolder, claims_folder: Path | None = None) -> Rejudged:
    """The verdicts of a stored run, from its samples and by the claims as they were then; of
    a fleet those over its machines. What is asked about the claims is as it was then too, and so are their words,
    unless `claims_folder` says them anew (`in_words_of`); where the run does not say, as the claims that ship have it.
    Raises RunError where one of its files cannot be read, ClaimError where its claims are not claims."""
    manifest = folder.manifest()
    if claims_folder is not None or "dispute" not in manifest.model_fields_set:
        manifest = manifest.model_copy(update={"dispute": load_dispute(claims_folder or SHIPPED)})
    if manifest.mode == FLEET:
        judged = verdicts_of(folder)
        return Rejudged(judged.verdicts, judged.manifest(manifest))
    claims = claims_of(folder, claims_folder)
    verdicts, with_noise = judge_run(manifest, claims, folder)  # by the rounds that it says there are
    return Rejudged(verdicts, with_noise.with_rounds(folder.finished_rounds()))


def keep(folder: RunFolder, judged: Rejudged, claims_folder: Path | None = None) -> None:
    """Write what `rejudge` found into the run, and what a folder of claims says of it."""
    verdicts, manifest = judged
    asked_anew = manifest.dispute != folder.manifest().dispute
    if manifest.mode == FLEET:
        judge_fleet(folder.path, manifest.dispute if asked_anew else None)
        return
    folder.write_json(VERDICTS, verdicts)
    folder.renew(VERDICTS, noise=manifest.noise, **({"dispute": manifest.dispute.stored()} if asked_anew else {}))
    if claims_folder:
        folder.write_json(CLAIMS, [claim.stored() for claim in claims_of(folder, claims_folder)])
        folder.renew(CLAIMS)
    if folder.finished_rounds():
        write_standings(folder)


# -- over machines -----------------------------------------------------------------------------------------------------


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
