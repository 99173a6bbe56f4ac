"""The evidence of a run that lies in its folder."""

from __future__ import annotations

from ..evidence.evidence import Evidence, evidence_from_manifest
from ..metrics.registry import metrics
from ..store.folder import RunFolder
from ..store.parquet import COLUMNS, no_rows
from ..store.schema import Manifest


def evidence_of(folder: RunFolder, manifest: Manifest) -> Evidence:
    """Its samples and what its passes found. Raises RunError where one of its files cannot be read, or the samples are
    gone that its manifest speaks of."""
    timed = bool(folder.finished_rounds()) or any(each.rounds for each in manifest.experiments)
    passes = {metric.names[0]: results for metric in metrics() if (results := metric.read(folder)) is not None}
    samples = folder.read_samples() if timed else no_rows(COLUMNS)
    return evidence_from_manifest(manifest, samples, passes=passes)
