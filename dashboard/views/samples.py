"""Whatever pages compute from samples, by the functions that judge a run. No other module of the dashboard reads them.

What comes out is small, one number a round or less: that is what pages keep, and never the samples behind it, a million
of them in a long run. Functions that take a run raise RunError where its samples cannot be read.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_workbench.harness.evidence.effect import UNSTABLE
from llama_workbench.harness.evidence.evidence import Evidence, evidence_from_manifest
from llama_workbench.harness.report.causes import explanations_in
from llama_workbench.harness.report.comparison import Screen, screens
from llama_workbench.harness.spec.comparison import Comparison, EnteredName, Metric
from llama_workbench.harness.spec.words import Cause
from llama_workbench.harness.stats.confidence import Interval, running_bounds, running_interval
from llama_workbench.harness.store.files import JOURNAL, SAMPLES, VERDICTS, RunError, RunWarning
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import Noise
from llama_workbench.harness.store.verdict_schema import Effect
from llama_workbench.variants import REFERENCE_BENCHMARKS

from . import data
from .entries import Entry


def read_evidence(run: data.Run, variants: Collection[str] | None = None) -> Evidence:
    """The samples of a run with what its manifest says about them; of some variants alone, controls are as judged."""
    folder = RunFolder(run.path)
    manifest, samples = folder.manifest(), folder.read_samples(variants)
    noise = None if variants is None else manifest.noise or Noise()
    return evidence_from_manifest(manifest, samples, noise=noise)


def ratios(interval: Interval) -> tuple[float | None, float | None, float | None]:
    """Middle, low and high end of an interval of log ratios as ratios; None where unknown or open."""
    middle, low, high = (
        math.exp(end) if abs(end) < 700 else None for end in (interval.centre, interval.low, interval.high)
    )
    return middle, low, high


# -- two variants --------------------------------------------------------------------------------------------------


def timing(
    run: data.Run, evidence: Evidence | None, workload: str, variant: str, baseline: str
) -> tuple[Effect, float]:
    """A variant's speed-up and the error rate of its interval: as judged where a claim asked, else from the samples.

    Where neither has it there is no value, and the warning says why.
    """
    names: dict[str, Any] = {
        "workload": workload,
        "variant": variant,
        "baseline": baseline,
        "named": run.named(workload),
    }
    own = data.unasked(**names)
    if variant == baseline:
        return replace(own, ratio=1.0, low=1.0, high=1.0), run.alpha
    for claim, effect in [(each, effect) for each in run.claims for effect in each.effects]:
        sides = (effect.workload, effect.variant, effect.baseline)
        if not effect.unit and sides == (workload, variant, baseline) and claim.time == "time":
            return effect, claim.alpha
    comparison, reason = Comparison(workload, variant, baseline), "not timed against the baseline"
    if evidence is not None and evidence.has(comparison):
        if no_evidence := evidence.not_evidence(comparison, "operations"):
            return replace(own, cause=Cause.EXCLUDED, reason=no_evidence), run.alpha
        interval = running_interval(evidence.differences(comparison).values, evidence.design.plan(workload, run.alpha))
        own = data.unasked(interval, **names)
        own = replace(own, cause=Cause.UNSTABLE if interval.unstable else Cause.NONE)
        reason = UNSTABLE if interval.unstable else ""
    return replace(own, reason=reason), run.alpha


@dataclass(frozen=True)
class Paired:
    """One comparison process by process, in the order of measuring. Ratios are t_baseline / t_variant.

    ratios: one a process. lows, highs: the interval after each process, 0 and infinity while there are too few. effect:
    the interval after the last, at 1 - `alpha`.
    baseline_ns: typical time of a call of the baseline. invalid_share: of the processes that were left out.
    """

    effect: Effect
    clock: str
    alpha: float
    ratios: NDArray[np.float64]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    baseline_ns: float | None
    invalid_share: float


def pair(
    run: data.Run,
    workload: str,
    variant: str,
    baseline: str,
    metric: Metric,
    alpha: float,
    one_sided: bool = False,
) -> Paired:
    """The rounds of one comparison, with its interval at `alpha`, or with each end at `alpha`."""
    evidence = read_evidence(run, (variant, baseline))
    plan = replace(evidence.design.plan(workload, alpha), one_sided=one_sided)
    measured = evidence.differences(Comparison(workload, variant, baseline, metric))
    lows, highs = running_bounds(measured.values, plan) if len(measured.values) else (np.empty(0), np.empty(0))
    interval, ns = running_interval(measured.values, plan), measured.call_baseline_ns
    return Paired(
        effect=data.unasked(interval, workload=workload, variant=variant, baseline=baseline),
        clock=evidence.clocks.of(workload, variant, baseline),
        alpha=plan.of_both_ends,
        ratios=np.exp(measured.values),
        lows=np.exp(lows),
        highs=np.exp(highs),
        baseline_ns=ns if ns > 0 and math.isfinite(ns) else None,
        invalid_share=measured.invalid_share,
    )


def claims_of(run: data.Run, baseline: str, variant: str) -> list[data.Claim]:
    """The claims on how much faster one of two sides is than the other."""
    return [
        claim
        for claim in run.claims
        if claim.kind == "time"
        and claim.time == "time"
        and any((effect.variant, effect.baseline) == (variant, baseline) for effect in claim.effects)
    ]


def process_times_ns(run: data.Run, workload: str, sides: Collection[str]) -> dict[str, NDArray[np.float64]]:
    """The median time of a call in each process, by side."""
    calls = np.exp(read_evidence(run, sides).times(workload, *sides).logs)
    known = [[process[np.isfinite(process)] for process in calls[:, :, place]] for place in range(len(sides))]
    return {
        side: np.array([np.median(process) for process in processes if process.size])
        for side, processes in zip(sides, known, strict=True)
    }


def samples_file(run: data.Run, workload: str, sides: Collection[str], kind: str) -> bytes:
    """The samples of these variants on a workload, a row a sample, as a file to keep. kind: "CSV" or "Parquet"."""
    frame = RunFolder(run.path).read_samples(sides).where(workload=workload).frame()
    content: bytes = frame.to_parquet(index=False) if kind == "Parquet" else frame.to_csv(index=False).encode()
    return content


def call_ns(run: data.Run, workload: str, variant: str) -> float | None:
    """The time of a call in the rounds, as every page tells it: that of the workload's baseline, and of another
    variant what its ratio makes of that. None where the two shared no rounds, or these cannot be read."""
    baseline = data.experiment(run, workload).baseline or ""
    asked = [effect.variant for claim in run.claims for effect in claim.effects if effect.workload == workload]
    try:
        groups = RunFolder(run.path).timed_together().get(workload, ())
        names = {name for group in groups if variant in group for name in group}
        others = (name for name in [*asked, *sorted(names)] if name in names and name != baseline)
        other = next(others, "") if variant == baseline else variant
        if baseline not in names or not other:
            return None
        evidence = read_evidence(run, (baseline, other))
        apart = evidence.differences(Comparison(workload, other, baseline))
        effect, _ = timing(run, evidence, workload, other, baseline)
    except (RunError, ValueError):
        return None
    ns = apart.call_baseline_ns if variant == baseline else apart.call_baseline_ns / (effect.value or math.nan)
    return ns if ns > 0 and math.isfinite(ns) else None


SMALL_BYTES = 8 << 20
"""Of the files of a run that is being measured: from larger ones nothing is computed every few seconds."""

FIRST = 3


def so_far(entry: Entry) -> list[Effect]:
    """The first comparisons of a run that is being measured, after the processes that it has; none where there are too
    few, or too much to read."""
    folder = RunFolder(entry.summary.path)
    files = [path for name in (JOURNAL, SAMPLES) if (path := folder.path / name).is_file()]
    if sum(path.stat().st_size for path in files) > SMALL_BYTES:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # its last line may be half written
            manifest, table = folder.manifest(), folder.read_samples()
    except RunError:
        return []
    evidence = evidence_from_manifest(manifest, table, noise=Noise())
    effects = []
    for experiment in manifest.experiments:
        for variant in experiment.variants:
            pair = Comparison(experiment.workload.name, variant, experiment.baseline or "")
            others = variant in (experiment.baseline, *REFERENCE_BENCHMARKS) or EnteredName(variant).is_control
            if others or not evidence.has(pair):
                continue
            plan = evidence.design.plan(pair.workload, manifest.alpha)
            interval = running_interval(evidence.differences(pair).values, plan)
            effects.append(data.unasked(interval, workload=pair.workload, variant=variant, baseline=pair.baseline))
    return effects[:FIRST]


def read_screens(run: data.Run, claim: str, part: str, explained: bool = False) -> list[Screen]:
    """A screen for each effect on a time of the claim of that name and part; none while it has no verdict. `explained`:
    of those alone whose difference was looked into."""
    folder = RunFolder(run.path)
    if explained and not explanations_in(folder):
        return []
    asked = [each for each in folder.read(VERDICTS) if (each.claim, each.part) == (claim, part)]
    sides = {name for verdict in asked for effect in verdict.effects for name in (effect.variant, effect.baseline)}
    if not any(effect.baseline and not effect.unit for verdict in asked for effect in verdict.effects):
        return []
    all_screens = screens(folder, asked, read_evidence(run, sides))
    return [screen for screen in all_screens if screen.explained is not None or not explained]
