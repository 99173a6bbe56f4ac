"""Verdicts of a run that lies in its folder, of one machine or of several."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..claims.dispute import SHIPPED, load_dispute, load_folder
from ..claims.model import Claim
from ..claims.reading import stored_claims
from ..claims.words import in_words_of
from ..session.judging import judge_run
from ..store.folder import RunFolder
from ..store.schema import Manifest
from ..store.verdict_schema import Verdict
from .folder import FleetFolder, is_fleet
from .judging import verdicts_of


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
    if is_fleet(manifest):
        judged = verdicts_of(FleetFolder(folder.path))
        return Rejudged(judged.verdicts, judged.manifest(manifest))
    claims = claims_of(folder, claims_folder)
    verdicts, with_noise = judge_run(manifest, claims, folder)  # by the rounds that it says there are
    return Rejudged(verdicts, with_noise.with_rounds(folder.finished_rounds()))
