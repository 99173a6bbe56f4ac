"""Verdicts of a run that lies in its folder, from its samples and from what its passes found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .claims.dispute import SHIPPED, load_dispute
from .claims.model import Claim
from .claims.reading import check_claim
from .fleet.folder import FleetFolder, is_fleet
from .fleet.judging import verdicts_of
from .judge.verdicts import judge_claims
from .report.stored import evidence_of
from .spec.conditions import conditions_in
from .store.files import CLAIMS
from .store.folder import RunFolder
from .store.forms import plain
from .store.schema import Verdict


def judge_run(
    manifest: Mapping[str, Any], claims: Sequence[Claim], folder: RunFolder
) -> tuple[tuple[Verdict, ...], dict[str, Any]]:
    """Verdicts and noise of a stored run. Raises RunError where one of its files cannot be read, or the samples are
    gone that its manifest speaks of."""
    evidence = evidence_of(folder, manifest)
    pairs = [(baseline, variant) for baseline, variant in manifest.get("ad_hoc", [])]
    verdicts = judge_claims(claims, evidence, ad_hoc=pairs, conditions=conditions_in(manifest))
    return tuple(verdicts), plain(evidence.noise)


def counted(manifest: Mapping[str, Any], folder: RunFolder) -> dict[str, Any]:
    """The manifest with the rounds that lie in the folder: of a killed run it counts those of some time before."""
    rounds = folder.finished_rounds()
    experiments = manifest.get("experiments", ())
    recounted = [each | {"rounds": rounds.get(each["workload"]["name"], 0)} for each in experiments]
    return {**manifest, "experiments": recounted}


def rejudge(folder: RunFolder, claims_folder: Path | None = None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Verdicts and manifest (with its noise) of a stored run, from its samples and by the claims as they were then; of
    a fleet those over its machines. What is asked about the claims is as it was then too, unless `claims_folder` says
    it anew; where the run does not say, as the claims that ship have it.
    Raises RunError where one of its files cannot be read, ClaimError where its claims are not claims."""
    manifest = folder.read_manifest()
    if claims_folder is not None or "dispute" not in manifest:
        manifest = {**manifest, "dispute": load_dispute(claims_folder or SHIPPED).stored()}
    if is_fleet(manifest):
        judged = verdicts_of(FleetFolder(folder.path))
        return plain(judged.verdicts), judged.manifest(manifest)
    path = folder.path / CLAIMS
    claims = [check_claim(table, f"{path}[{index}]") for index, table in enumerate(folder.records(CLAIMS))]
    verdicts, noise = judge_run(manifest, claims, folder)
    return plain(verdicts), counted(manifest, folder) | {"noise": noise}
