"""Paired rounds: what the samples of a run say about two variants, by the judge's own functions. No Streamlit.

What comes out is the aggregate, one number a round: that is what pages keep, and never the samples behind it, a million
of them in a long run. Raises RunError where they cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from llama_workbench.dashboard.views import data, values
from llama_workbench.harness.evidence.judge import Differences, Evidence, Noise, evidence_from_manifest
from llama_workbench.harness.judge.verdicts import judge_ad_hoc
from llama_workbench.harness.spec.comparison import Comparison, Metric
from llama_workbench.harness.stats.confidence import Interval, running_bounds, running_interval
from llama_workbench.harness.store.folder import MANIFEST, RunError, RunFolder


@dataclass(frozen=True)
class Paired:
    """One comparison round by round, in the order of measuring. Ratios are t_baseline / t_variant.

    ratios: one a round. estimates: their running mean, geometric, held inside the interval. lows, highs: the interval
    after each round, 0 and infinity while there are too few. low, high, ratio: the interval after the last, at
    1 - `alpha`. baseline_ns, variant_ns: typical time of a call. invalid_share: of the rounds that were left out.
    """

    clock: str
    metric: str
    alpha: float
    ratios: NDArray[np.float64]
    estimates: NDArray[np.float64]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    ratio: float | None
    low: float | None
    high: float | None
    unstable: bool
    baseline_ns: float | None
    variant_ns: float | None
    invalid_share: float

    @property
    def median(self) -> float | None:
        """The median over rounds; None without any."""
        return float(np.median(self.ratios)) if len(self.ratios) else None


@dataclass(frozen=True)
class Versus:
    """Two variants on every workload that has both, judged like `--compare`; rounds by workload."""

    claim: data.Claim
    rounds: Mapping[str, Paired]


def pair(folder: RunFolder, workload: str, variant: str, baseline: str, metric: str, alpha: float) -> Paired:
    """The rounds of one comparison. `metric` is one of `harness.claims.TIMES`."""
    return _paired(_evidence(folder, variant, baseline), _comparison(workload, variant, baseline, metric), alpha)


def versus(folder: RunFolder, baseline: str, variant: str) -> Versus:
    """Judge two variants against each other: alpha of the report over the number of workloads that have both."""
    found = _evidence(folder, variant, baseline)
    timed = found.samples.groupby("workload", observed=True)["variant"].unique()
    # Who entered a workload and fell out, or entered for another pass only, was not timed against anybody.
    measured = {name: tuple(timed[name]) for name in found.measured if name in timed.index}
    evidence = _Once(**{item.name: getattr(found, item.name) for item in fields(found)} | {"measured": measured})
    verdict = judge_ad_hoc(evidence, baseline=baseline, variant=variant)
    shown = {effect.workload for effect in verdict.effects}
    return Versus(
        data.claim_of(verdict.to_json()),
        {workload: _paired(evidence, Comparison(workload, variant, baseline), verdict.alpha) for workload in shown},
    )


@dataclass(frozen=True)
class _Once(Evidence):
    """Evidence that pairs the rounds of a comparison once, for the judge and for the picture."""

    paired: dict[Comparison, Differences] = field(default_factory=dict)

    def differences(self, comparison: Comparison) -> Differences:
        if comparison not in self.paired:
            self.paired[comparison] = super().differences(comparison)
        return self.paired[comparison]


def metric_of(effect: data.Effect) -> str:
    """Which of `harness.claims.TIMES` an effect compares: "cpu time to first token" → time_to_first_token."""
    metric = effect.metric.partition(" ")[2].replace(" ", "_")
    return metric if metric in get_args(Metric) else "time"


def _comparison(workload: str, variant: str, baseline: str, metric: str) -> Comparison:
    [known] = [name for name in get_args(Metric) if name == metric]
    return Comparison(workload, variant, baseline, known)


def _evidence(folder: RunFolder, *variants: str) -> Evidence:
    manifest, samples = folder.read_manifest(), folder.read_samples(variants)
    try:
        noise = Noise.from_json(values.mapping(manifest.get("noise")))
        return evidence_from_manifest(manifest, samples, noise=noise)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            folder.path / MANIFEST,
            f"not in the form that is read here ({error})",
            f"Judge the run again: workbench judge {folder.path}",
        ) from error


def _paired(evidence: Evidence, comparison: Comparison, alpha: float) -> Paired:
    measured = evidence.differences(comparison)
    lows, highs = running_bounds(measured.values, alpha) if len(measured.values) else (np.empty(0), np.empty(0))
    means = np.cumsum(measured.values) / np.arange(1, len(measured.values) + 1)
    interval = running_interval(measured.values, alpha)
    return Paired(
        clock=evidence.clock(comparison.workload, comparison.variant, comparison.baseline),
        metric=comparison.metric,
        alpha=alpha,
        ratios=np.exp(measured.values),
        estimates=np.exp(np.minimum(np.maximum(means, lows), np.maximum(highs, lows))),
        lows=np.exp(lows),
        highs=np.exp(highs),
        **_ends(interval),
        unstable=interval.unstable,
        **_calls(measured),
        invalid_share=measured.invalid_share,
    )


def _ends(interval: Interval) -> dict[str, float | None]:
    ends = {"ratio": interval.centre, "low": interval.low, "high": interval.high}
    return {name: math.exp(end) if math.isfinite(end) else None for name, end in ends.items()}


def _calls(measured: Differences) -> dict[str, float | None]:
    calls = {"baseline_ns": measured.call_baseline_ns, "variant_ns": measured.call_variant_ns}
    return {name: values.positive(call) for name, call in calls.items()}
