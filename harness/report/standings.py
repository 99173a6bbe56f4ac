"""Relative times of a run: the time of each variant over that of the frozen reference benchmark.

Where both were timed in the same processes, each of these gives a ratio. Where pairs were measured apart, the variant
was timed against the baseline and the baseline against the reference benchmark, and the two ratios are multiplied.

These ratios, unlike times, can be compared over days (see `compare`). The samples behind them are large, so the judge
writes them beside the run as `standings.json`, with digests of the run.json and samples that they were made from; where
these do not fit, the samples are read instead. On a workload without a reference benchmark the reference is the
baseline.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import asdict, replace
from functools import reduce

from llama_workbench.variants import REFERENCE_BENCHMARKS

from ..evidence.evidence import Evidence, evidence_from_manifest
from ..metrics.registry import metrics
from ..spec.comparison import Comparison, EnteredName
from ..stats.confidence import RESOLUTION, running_interval
from ..stats.means import Mean, trimmed_mean
from ..store.files import STANDINGS, RunError, RunWarning
from ..store.folder import RunFolder
from ..store.forms import plain
from ..store.schema import Checkpoint, Key, Manifest, OverProcesses, RelativeTime, Standings, WorkloadResult
from ..store.tables import COLUMNS, no_rows


def measure_standings(folder: RunFolder, workloads: Collection[str] | None = None) -> Standings:
    """Take the relative times from a run's samples; with `workloads`, the intervals of these alone.

    Subjects are the variants with a number: no reference benchmark, no controls, none that failed a gate. Raises
    RunError.
    """
    manifest, samples = folder.manifest(), folder.read_samples()
    evidence = evidence_from_manifest(manifest, samples)
    present = set(samples.distinct("workload", "variant"))
    results: dict[str, WorkloadResult] = {}
    baselines: dict[str, str] = {}
    for experiment in manifest.experiments:
        workload, name = experiment.workload, experiment.workload.name
        weights = (manifest.checkpoints or {}).get(workload.geometry or "", Checkpoint())
        likely = (each for each in (*REFERENCE_BENCHMARKS, experiment.baseline) if (name, each) in present)
        baselines.setdefault(name, experiment.baseline or "")
        result = WorkloadResult(plain(workload), weights.digest, next(likely, None), evidence.bias(name))
        results.setdefault(name, result)
    taken_on = list(dict.fromkeys((workload, name) for workload, names in evidence.measured.items() for name in names))
    unmeasured = (key for key in taken_on if key not in present and key not in evidence.unusable)
    reasons = {**evidence.unusable, **dict.fromkeys(unmeasured, "no finished round")}
    numbers = (key for key in taken_on if key not in reasons)
    subjects = tuple(
        (workload, name)
        for workload, name in numbers
        if not EnteredName(name).is_control and name != results[workload].reference
    )
    return Standings(
        name=manifest.id or folder.path.name,
        started=manifest.started or "",
        status=manifest.status or "",
        environment=manifest.machine_facts,
        noise=evidence.noise.line,
        workloads=results,
        subjects=subjects,
        rows=tuple(
            _relative_time(evidence, key, reference, baselines[key[0]])
            for key in subjects
            if (reference := results[key[0]].reference) and (workloads is None or key[0] in workloads)
        ),
        dropped=tuple((*key, reason) for key, reason in reasons.items()),
        measured_by=manifest.sources.harness if manifest.sources else "",
        others=_others(manifest),
        fired=tuple(f"{control.variant} on {control.workload}" for control in evidence.noise.controls if control.fired),
    )


def _others(manifest: Manifest) -> float | None:
    """The largest share of the machine that other programs used in a session of this run; None where one is unknown."""
    shares = [sitting.others for sitting in manifest.sittings]
    return None if not shares or None in shares else max(share for share in shares if share is not None)


def write_standings(folder: RunFolder) -> None:
    """Put standings.json beside a run that has samples, and its checksum into SHA256SUMS. Raises RunError."""
    digest = folder.digest()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # the judge of this run just warned of the same
        standings = measure_standings(folder)
    folder.write_json(STANDINGS, replace(standings, made_from=digest))
    folder.renew(STANDINGS)


def read_standings(folder: RunFolder, workloads: Collection[str] | None = None) -> Standings:
    """The same, from a run's standings.json where that fits the run, else from its samples. Raises RunError."""
    try:
        if (folder.path / STANDINGS).exists():
            stored: Standings = folder.read(STANDINGS)
            if stored.format == Standings.format and stored.made_from == folder.digest():
                return stored
    except RunError as error:
        if error.path.name != STANDINGS:
            raise
        warnings.warn(f"{error}; till then the samples are read instead.", RunWarning, stacklevel=2)
    return measure_standings(folder, workloads)


def _relative_time(evidence: Evidence, key: Key, reference: str, baseline: str) -> RelativeTime:
    workload, variant = key
    steps = [Comparison(workload, variant, reference)]
    if not len(evidence.differences(steps[0]).values):
        apart = [Comparison(workload, variant, baseline), Comparison(workload, baseline, reference)]
        steps = apart if all(len(evidence.differences(each).values) for each in apart) else steps
    measured = [evidence.differences(each) for each in steps]
    # Each interval misses the truth with its share of alpha: then no sum of their ends does more often than alpha.
    plan = evidence.design.plan(workload, evidence.alpha / len(steps))
    intervals = [running_interval(each.values, plan) for each in measured]
    means = [trimmed_mean(each.values, resolution=RESOLUTION) for each in measured]
    taken = [each for each in means if each is not None]
    return RelativeTime(
        workload=workload,
        variant=variant,
        clock=evidence.clocks.of(workload, variant, reference),
        log_ratio=sum(each.centre for each in intervals),
        low=sum(each.low for each in intervals),
        high=sum(each.high for each in intervals),
        rounds=min(each.n for each in intervals),
        unstable=any(each.unstable for each in intervals),
        faults=sum(each.faults_variant - each.faults_baseline for each in measured),
        over_processes=OverProcesses(**asdict(reduce(Mean.plus, taken))) if len(taken) == len(measured) else None,
    )


# The evidence of a run that lies in its folder.


def evidence_of(folder: RunFolder, manifest: Manifest) -> Evidence:
    """Its samples and what its passes found. Raises RunError where one of its files cannot be read, or the samples are
    gone that its manifest speaks of."""
    timed = bool(folder.finished_rounds()) or any(each.rounds for each in manifest.experiments)
    passes = {metric.names[0]: results for metric in metrics() if (results := metric.read(folder)) is not None}
    samples = folder.read_samples() if timed else no_rows(COLUMNS)
    return evidence_from_manifest(manifest, samples, passes=passes)
