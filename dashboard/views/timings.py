"""Effects of a run that no claim asked about, from its samples, by the functions that judge claims."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llama_workbench.dashboard.views.data import Effect, Run
from llama_workbench.harness.evidence.judge import Evidence, evidence_from_manifest
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.stats.confidence import running_interval
from llama_workbench.harness.store.folder import RunError, RunFolder

DAMAGE = (AttributeError, KeyError, TypeError, ValueError)
"""What functions of the harness raise over a file that is not in the form they write."""


@dataclass(frozen=True)
class Timing:
    """A speed-up t_baseline / t_variant with its interval (None where open or not known), and how sure that is.

    `judged`: from verdicts.json, where all intervals hold at once. Else from the samples, with confidence 1 - `alpha`
    for this one alone. `warning` is why it counts for nothing or for less.
    """

    ratio: float | None
    low: float | None
    high: float | None
    rounds: int
    judged: bool
    alpha: float
    warning: str = ""


def read_evidence(run: Run) -> Evidence:
    """The samples of a run with what its manifest says about them. Raises RunError, or ValueError for damage."""
    samples = RunFolder(run.path).read_samples()
    try:
        return evidence_from_manifest(run.manifest, samples)
    except DAMAGE as error:
        raise ValueError(f"run.json: not in the form that is read here ({error!r})") from error


def problem_of(error: RunError | ValueError) -> str:
    """One line about a file that cannot be read."""
    return error.brief if isinstance(error, RunError) else str(error)


def judged_effect(run: Run, workload: str, variant: str, baseline: str, metric: str = " time") -> Effect | None:
    """What verdicts.json says of two variants on a workload; of the whole call unless `metric` ends otherwise."""
    for claim in run.claims:
        for effect in claim.effects:
            sides = (effect.workload, effect.variant, effect.baseline)
            if not effect.unit and sides == (workload, variant, baseline) and effect.metric.endswith(metric):
                return effect
    return None


def timing(run: Run, evidence: Evidence | None, workload: str, variant: str, baseline: str) -> Timing:
    """A variant's speed-up: as judged where a claim asked, else from the samples; no ratio where neither has it."""
    if variant == baseline:
        return Timing(1.0, 1.0, 1.0, 0, judged=True, alpha=0.0, warning="the baseline itself")
    alpha = run.alpha or 0.01
    if effect := judged_effect(run, workload, variant, baseline):
        warning = next((note for note in effect.warnings if note.startswith(("confounded", "unstable"))), "")
        return Timing(effect.value, effect.low, effect.high, effect.rounds, judged=True, alpha=alpha, warning=warning)
    nothing = Timing(None, None, None, 0, judged=False, alpha=alpha, warning="not timed against the baseline")
    comparison = Comparison(workload, variant, baseline)
    if evidence is None or not evidence.has(comparison):
        return nothing
    if reason := evidence.not_evidence(comparison, "operations"):
        return Timing(None, None, None, 0, judged=False, alpha=alpha, warning=reason)
    try:
        found = running_interval(evidence.differences(comparison).values, alpha)
    except DAMAGE:
        return nothing
    if not found.n:
        return nothing
    return Timing(
        ratio=math.exp(found.centre),
        low=math.exp(found.low) if math.isfinite(found.low) else None,
        high=math.exp(found.high) if math.isfinite(found.high) else None,
        rounds=found.n,
        judged=False,
        alpha=alpha,
        warning="unstable: the effect moved while it was measured" if found.unstable else "",
    )
