"""Verdicts of a run that lies in its folder, of one machine or of several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..claims.dispute import SHIPPED, load_dispute
from ..claims.reading import check_claim
from ..session.judging import counted, judge_run
from ..store.files import CLAIMS
from ..store.folder import RunFolder
from ..store.forms import plain
from .folder import FleetFolder, is_fleet
from .judging import verdicts_of


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
