"""The evidence of a run that lies in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..evidence.evidence import Evidence, evidence_from_manifest
from ..metrics.registry import metrics
from ..store.errors import RESTORE, RunError
from ..store.files import MANIFEST
from ..store.folder import RunFolder
from ..store.forms import Fault
from ..store.parquet import NO_SAMPLES


def evidence_of(folder: RunFolder, manifest: Mapping[str, Any]) -> Evidence:
    """Its samples and what its passes found. Raises RunError where one of its files cannot be read, or the samples are
    gone that its manifest speaks of."""
    experiments = manifest.get("experiments", ())
    timed = bool(folder.finished_rounds()) or any(experiment.get("rounds") for experiment in experiments)
    passes = {metric.names[0]: found for metric in metrics() if (found := metric.read(folder)) is not None}
    samples = folder.read_samples() if timed else NO_SAMPLES
    try:
        return evidence_from_manifest(manifest, samples, passes=passes)
    except Fault as fault:
        raise RunError(folder.path / MANIFEST, str(fault), RESTORE) from fault
