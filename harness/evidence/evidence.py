"""What judging takes from a run: its samples, and what its manifest says about them. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from llama_workbench.datasets.lengths import PERCENTILES
from llama_workbench.variants.phase_map import VIEWS

from ..spec.comparison import AA, Comparison, EnteredName, Metric
from ..spec.regions import Region
from ..spec.table import Table
from ..spec.words import Cause
from ..stats.confidence import EqualSides, LookPlan, chance_of_no_difference, running_interval, typical_difference
from ..stats.means import is_dependent
from ..stats.samples import (
    Clock,
    Clocks,
    Differences,
    LogTimes,
    differences,
    log_times,
    whole_processes,
)
from ..store.schema import Control, Environment, ExperimentRecord, Manifest, Noise
from ..store.verdict_schema import Effect
from .effect import ALPHA, FAULT_COST_NS, HUGE_FAULT_COST_NS, Further, fault_stretch, half_width, judge_effect, percent

# What was fixed about a run's series before any was measured: how many values they will have, and of what.


@dataclass(frozen=True)
class Design:
    """How the series of a run are looked at. Each value is of a process of its own.

    horizons: workload → how many values its budget is expected to give; none where nobody knows. statistics: workload →
    the percentile of its calls that is compared, where it is not their median. early: workloads that are looked at
    early (see `stats.confidence`).
    """

    horizons: Mapping[str, int] = field(default_factory=dict)
    statistics: Mapping[str, str] = field(default_factory=dict)
    early: frozenset[str] = frozenset()

    @classmethod
    def of(cls, manifest: Manifest) -> Design:
        """That of a run, by its run.json."""
        horizons = {each.workload.name: each.horizon for each in manifest.experiments if each.horizon}
        workloads = [each.workload for each in manifest.experiments]
        statistics = {each.name: each.statistic for each in workloads if each.statistic}
        early = frozenset(each.workload.name for each in manifest.experiments if each.early)
        return cls(horizons, statistics, early)

    def quantile(self, workload: str) -> float | None:
        """Of the times of a workload's calls, the one that is compared; None for the median."""
        return PERCENTILES.get(self.statistics.get(workload, ""))

    def plan(self, workload: str, alpha: float, region: Region | None = None) -> LookPlan:
        """How a series of this workload is looked at. `region`: about which it is asked; None: for its interval."""
        one_sided = region is not None and region.one_sided
        return LookPlan(alpha, self.horizons.get(workload), one_sided, workload in self.early)


# What a run knows about its own noise: controls, two sides that are the same.


SUBJECT = "Identical code"
"""What the line about noise begins with."""


def judge_controls(
    measured: Mapping[str, Sequence[str]],
    differences: Callable[[Comparison], Differences],
    alpha: float,
    design: Design,
    processes: Callable[[Comparison], Sequence[int]],
) -> Noise:
    """Judge every `NAME@aa` and `NAME@copy` against NAME, at alpha over the number of controls, and all together.

    measured: workload → participants. processes: the number of the process of each difference. A control fires where
    its interval leaves out 0, and where its values contradict each other (an empty interval misses 0 as well). A copy
    that took part in no process is none.
    """
    pairs = []
    for workload, variant in ((workload, variant) for workload, names in measured.items() for variant in names):
        entered = EnteredName(variant)
        if entered.is_control and entered.original in measured[workload]:
            pairs.append((Comparison(workload, variant, entered.original), entered.control))
    values = {pair: differences(pair).values for pair, _ in pairs}
    pairs = [(pair, kind) for pair, kind in pairs if kind == AA or len(values[pair])]
    controls = []
    for pair, kind in pairs:
        interval = running_interval(values[pair], design.plan(pair.workload, alpha / len(pairs)))
        fired = interval.unstable or not interval.low <= 0 <= interval.high
        ends = interval.centre, interval.low, interval.high, interval.n
        controls.append(Control(pair.workload, kind, pair.variant, *ends, fired))
    series = [EqualSides(processes(pair), values[pair]) for pair, _ in pairs]
    typical = typical_difference(series) if chance_of_no_difference(series) <= alpha else 0.0
    return Noise(tuple(controls), noise_line(controls, typical), typical=typical)


def noise_line(controls: Sequence[Control], typical: float) -> str:
    """What the controls showed, in one line. `typical`: by how much all together differ."""
    if not controls:
        return f"{SUBJECT}: not checked in this run"
    fired = [f"{control.variant} on {control.workload}" for control in controls if control.fired]
    bounded = [control for control in controls if math.isfinite(control.shift)]
    line = f"{SUBJECT}: {found_text(controls, fired)}"
    if typical and not fired:
        together = (
            f"{checks_text(_able(controls))} together show a difference, typically {percent(math.expm1(typical))}"
        )
        line = f"{SUBJECT}: {together}, too small for one alone to show"
    if bounded:
        shift = max(abs(control.interval.centre) for control in bounded)
        widest = max((control.interval.high - control.interval.low) / 2 for control in bounded)
        line += f"; all within {percent(math.expm1(shift))} of 1 (widest interval {half_width(math.expm1(widest))})"
    short = len(controls) - _able(controls)
    return f"{line}; {short} more had too few rounds" if 0 < short < len(controls) else line


def _able(controls: Sequence[Control]) -> int:
    """How many of them had rounds enough to say something."""
    return sum(math.isfinite(control.shift) or control.fired for control in controls)


def found_text(controls: Sequence[Control], fired: Sequence[str], where: str = "") -> str:
    """What those of these controls found that can say something. `fired`: the names of what fired. `where`: what the
    checks were made on."""
    if not (able := _able(controls)):
        return f"{checks_text(len(controls))}{where} had too few rounds to say"
    looked = f"in {checks_text(able)}{where}"
    return f"{looked} a difference was found: {', '.join(fired)}" if fired else f"no difference found {looked}"


def checks_text(count: int) -> str:
    """How many controls there are, in words."""
    return f"{count} check{'s' * (count != 1)}"


QUEUEING: Final = "launching, not kernels: the GPU waits while the host queues them"
QUEUEING_SHARE = 0.9
"""From this part of a call's time on that the host spends queueing kernels, it is the host that is measured."""

MOST_QUEUED = 1000
"""Operations of a sample. A GPU's queue holds some 1,024 kernels; a host that finds it full computes while it waits."""


@dataclass(frozen=True)
class Evidence:
    """What judging takes from a run: its samples, and what its manifest says about them.

    measured: workload → participants, controls and excluded ones included. clocks: which clock counts for whom.
    trace_difference: (workload, {baseline, variant}) → "" where the op traces agree, else how they differ; no entry
    where they were not compared. sizes: tokens of each workload (of a decode: its context), or the size of its inputs;
    input_sizes: the latter alone; new_tokens: that it generates; layers: of its model. passes: name of a metric → what
    its pass left, as the metric reads it. queued: (workload, variant) → operations of its longest sample that compute,
    from its op trace.
    wall_seconds: workload → seconds of the clock that its rounds took, with all that they needed. first_seconds:
    workload → seconds of the clock that its first intervals should take, as estimated before its rounds.
    unusable: (workload, variant) → why its numbers do not count; causes: the kind of that, where it is one of
    its own. alpha: chance that a verdict is wrong.
    design: how its series are looked at. as_it_runs: workloads of which page faults are a part of what is measured, and
    disturb nothing.
    """

    samples: Table
    measured: Mapping[str, tuple[str, ...]]
    clocks: Clocks = field(default_factory=Clocks)
    trace_difference: Mapping[tuple[str, frozenset[str]], str] = field(default_factory=dict)
    unusable: Mapping[tuple[str, str], str] = field(default_factory=dict)
    causes: Mapping[tuple[str, str], Cause] = field(default_factory=dict)
    noise: Noise = field(default_factory=lambda: Noise((), "Identical code: not checked in this run"))
    fault_cost_ns: float = FAULT_COST_NS
    as_it_runs: frozenset[str] = frozenset()
    alpha: float = ALPHA
    design: Design = field(default_factory=Design)
    seed: int = 0
    sizes: Mapping[str, float] = field(default_factory=dict)
    input_sizes: Mapping[str, int] = field(default_factory=dict)
    new_tokens: Mapping[str, int] = field(default_factory=dict)
    layers: Mapping[str, int] = field(default_factory=dict)
    passes: Mapping[str, Any] = field(default_factory=dict)
    queued: Mapping[tuple[str, str], int] = field(default_factory=dict)
    wall_seconds: Mapping[str, float] = field(default_factory=dict)
    first_seconds: Mapping[str, float] = field(default_factory=dict)
    _arrays: dict[tuple[str, Clock, Metric], LogTimes] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _differences: dict[Comparison, Differences] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def device(self) -> str:
        """What the models computed on, "cpu" or "cuda"."""
        return self.clocks.device

    def has(self, comparison: Comparison) -> bool:
        """Whether both sides of it took part in the run."""
        return comparison.sides <= set(self.measured.get(comparison.workload, ()))

    def times(self, workload: str, *variants: str, metric: Metric = "time", clock: Clock | None = None) -> LogTimes:
        """The log times of these variants on a workload; without a `clock`, by the one that serves them all."""
        key = (workload, clock or self.clocks.of(workload, *variants), metric)
        if key not in self._arrays:  # made once for all variants of a workload
            new_tokens = self.new_tokens.get(workload, 0)
            self._arrays[key] = log_times(
                self.samples,
                workload=workload,
                clock=key[1],
                metric=metric,
                new_tokens=new_tokens,
                quantile=self.design.quantile(workload),
            )
        return self._arrays[key].of(variants)

    def differences(self, comparison: Comparison) -> Differences:
        """A comparison, a number a process, on the clock that serves both sides."""
        if comparison not in self._differences:  # many ask for the same
            workload, variant, baseline, metric = comparison
            times = self.times(workload, variant, baseline, metric=metric)
            self._differences[comparison] = differences(times, baseline=baseline, variant=variant)
        return self._differences[comparison]

    def is_dependent(self, comparison: Comparison) -> bool:
        """Whether its processes depend on each other or on the time, so that no interval over them can be trusted."""
        return is_dependent(self.differences(comparison).values)

    def processes(self, comparison: Comparison) -> tuple[int, ...]:
        """The number of the process of each of the same."""
        workload, variant, baseline, metric = comparison
        starts = whole_processes(self.times(workload, variant, baseline, metric=metric)).starts
        return tuple(process for process, _ in starts)

    def queueing(self, comparison: Comparison) -> str | None:
        """That a GPU waited for the host to queue its kernels, during both sides' calls; None where it did not, on a
        CPU, and for parts of a generation."""
        workload, variant, baseline, metric = comparison
        if self.clocks.of(workload, variant, baseline) != "device" or metric != "time":
            return None
        sides = (baseline, variant)
        if any(self.queued.get((workload, side), math.inf) > MOST_QUEUED for side in sides):
            return None  # or the host may have waited for room in the queue, which takes its time as well
        host, device = (np.exp(self.times(workload, *sides, clock=clock).logs) for clock in ("cpu", "device"))
        shares = (host / device)[np.all(np.isfinite(host) & np.isfinite(device) & (device > 0), axis=2)]
        if not len(shares) or np.median(shares, axis=0).min() < QUEUEING_SHARE:
            return None
        in_baseline, in_variant = (percent(min(float(share), 1.0)) for share in np.median(shares, axis=0))
        return f"{QUEUEING} ({in_baseline} of the time in {baseline}, {in_variant} in {variant})"

    def not_evidence(self, comparison: Comparison, evidence: str) -> str | None:
        """Why the comparison says nothing about a claim of this kind; None where it does."""
        sides = [(comparison.workload, side) for side in (comparison.variant, comparison.baseline)]
        for side in sorted(sides, key=lambda side: side not in self.causes):  # where one has a cause, it is the other's
            if reason := self.unusable.get(side):
                return f"{side[1]}: {reason}"
        if evidence == "architecture":
            pair = (comparison.workload, comparison.sides)
            if pair not in self.trace_difference:
                return "op traces were not compared"
            if difference := self.trace_difference[pair]:
                return f"not architecture alone, op traces differ: {difference}"
        return None

    def seconds_each(self, workload: str, values: int) -> float:
        """Seconds of the clock for a further value of a series that has so many: starting processes, controls and
        whatever else shares the workload's time included. NaN where nobody knows."""
        seconds = self.wall_seconds.get(workload, 0.0)
        return seconds / values if seconds and values else math.nan

    def bias(self, workload: str) -> float:
        """Log units by which this run may shift a ratio here; 0 unless a control fired, or all together show one.

        Where only all together do it is twice the typical difference. Else it is twice the largest shift that a fired
        control allows: one control is one draw of the bias between two sides, and another pair may draw more. Controls
        of other workloads are asked only where this one has none, because the bias is larger for small operations.
        """
        here = [control for control in self.noise.controls if control.workload == workload]
        fired = [control for control in here or self.noise.controls if control.fired]
        return 2 * max([control.shift for control in fired], default=self.noise.typical)

    def fault_cost(self, workload: str) -> float:
        """What a page fault on a workload may have added to what is measured, in nanoseconds."""
        return 0.0 if workload in self.as_it_runs else self.fault_cost_ns

    def allowance(self, comparison: Comparison) -> tuple[float, float]:
        """By how much (log units) the true ratio may lie below and above an interval, for what disturbed this run:
        page faults, and the bias that a fired control shows. `judge_effect` asks whether a verdict survives it."""
        low, high = fault_stretch(self.differences(comparison), self.fault_cost(comparison.workload))
        bias = self.bias(comparison.workload)
        return low + bias, high + bias


def fault_cost_ns(environment: Environment | None) -> float:
    """What a page fault costs at most, on the machine of a run."""
    is_huge = environment is not None and environment.transparent_huge_pages == "always"
    return HUGE_FAULT_COST_NS if is_huge else FAULT_COST_NS


def evidence_from_manifest(
    manifest: Manifest,
    samples: Table,
    *,
    passes: Mapping[str, Any] | None = None,
    noise: Noise | None = None,
) -> Evidence:
    """Take from run.json what judging needs. An unfinished run's manifest, with parts missing, will do.

    `passes`: what the run's passes left, by metric. `noise`: its controls where they were judged before; without it
    they are judged from `samples`, which must then have theirs.
    """
    experiments = manifest.experiments
    workloads = {each.workload.name: each.workload for each in experiments}
    models = manifest.checkpoints or {}
    shapes = {name: models[each.geometry] for name, each in workloads.items() if each.geometry in models}
    measured, unusable = _participants(manifest)
    evidence = Evidence(
        samples=samples,
        measured=measured,
        clocks=clocks_of(manifest),
        trace_difference={key: said for each in experiments for key, said in _trace_differences(each).items()},
        unusable=unusable,
        causes=_causes(manifest),
        fault_cost_ns=fault_cost_ns(manifest.environment),
        as_it_runs=frozenset(name for name, each in workloads.items() if not each.calm),
        alpha=manifest.alpha,
        design=Design.of(manifest),
        seed=manifest.seed or 0,
        sizes={
            name: float(workload.size or (workload.context if workload.kind == "decode" else workload.tokens))
            for name, workload in workloads.items()
        },
        input_sizes={name: each.size for name, each in workloads.items() if each.size},
        new_tokens={name: each.new_tokens or 0 for name, each in workloads.items()},
        layers={name: shape.layers for name, shape in shapes.items() if shape.layers},
        passes=passes or {},
        queued=_queued(manifest, samples) if manifest.device_kind == "cuda" else {},
        first_seconds={each.workload.name: each.first_seconds for each in experiments if each.first_seconds},
        wall_seconds={each.workload.name: each.wall_seconds or each.seconds or 0.0 for each in experiments},
    )
    if noise is None:
        noise = judge_controls(measured, evidence.differences, evidence.alpha, evidence.design, evidence.processes)
    judged = replace(evidence, noise=noise)
    judged._arrays.update(evidence._arrays)  # the same samples
    return judged


def _participants(manifest: Manifest) -> tuple[dict[str, tuple[str, ...]], dict[tuple[str, str], str]]:
    """Workload → participants, and (workload, variant) → why its numbers do not count.

    An excluded variant is a participant: it is the reason of a verdict, and it had its share of alpha.
    """
    measured: dict[str, tuple[str, ...]] = {}
    unusable: dict[tuple[str, str], str] = {}
    for experiment in manifest.experiments:
        workload = experiment.workload.name
        excluded = [*experiment.excluded, *manifest.excluded]
        for entry in excluded:
            unusable[workload, entry.variant] = entry.reason
        for name, gate in experiment.gates.items():
            if not gate.passed:
                unusable[workload, name] = f"gates failed: {gate.detail or 'outputs differ from the reference'}"
        names = [*experiment.variants, *(entry.variant for entry in excluded)]
        measured[workload] = tuple(dict.fromkeys([*measured.get(workload, ()), *names]))
    return measured, unusable


def _causes(manifest: Manifest) -> dict[tuple[str, str], Cause]:
    """(workload, variant) → why it was excluded, where that is a cause of its own."""
    return {
        (experiment.workload.name, entry.variant): entry.cause
        for experiment in manifest.experiments
        for entry in experiment.excluded
        if entry.cause is not Cause.EXCLUDED
    }


def _queued(manifest: Manifest, samples: Table) -> dict[tuple[str, str], int]:
    """(workload, variant) → operations that compute something in its longest sample."""
    queued = {}
    for experiment in manifest.experiments:
        workload = experiment.workload.name
        here = samples.where(workload=workload)
        names, repeats = here.names("variant"), here["repeats"]
        for name, trace in experiment.traces.items():
            views = sum(count for op, count in (trace.counts or {}).items() if op.partition(".")[0] in VIEWS)
            queued[workload, name] = (trace.ops - views) * int(repeats[names.are(name)].max(initial=0))
    return queued


def clocks_of(manifest: Manifest) -> Clocks:
    """Which clock counts for whom in a run, by its run.json."""
    wall_default: set[str] = set()
    wall_variants: dict[str, frozenset[str]] = {}
    for experiment in manifest.experiments:
        workload, clock = experiment.workload.name, experiment.clock
        if clock.default == "wall":
            wall_default.add(workload)
        wall_variants[workload] = wall_variants.get(workload, frozenset()) | set(clock.wall_variants)
    return Clocks(manifest.device_kind, frozenset(wall_default), wall_variants)


def _trace_differences(experiment: ExperimentRecord) -> dict[tuple[str, frozenset[str]], str]:
    """How the op traces of each pair differ: by digest for every pair, in words where the run compared it."""
    workload, traces = experiment.workload.name, experiment.traces
    details: dict[tuple[str, frozenset[str]], str] = {}
    for name, other in combinations(sorted(traces), 2):
        first, second = traces[name], traces[other]
        counts = f"{first.ops} ops in {name}, {second.ops} in {other}"
        if first.ops == second.ops:
            counts = f"{first.ops} ops on each side, but not the same"
        details[workload, frozenset((name, other))] = "" if first.digest == second.digest else counts
    for entry in experiment.trace_differences:
        pair = frozenset((entry.baseline, entry.variant))
        details[workload, pair] = "" if entry.same else entry.detail or "no detail"
    return details


def compare_sides(
    evidence: Evidence, comparison: Comparison, region: Region, kind: str, alpha: float, or_else: Sequence[Region] = ()
) -> Effect:
    """Judge one comparison of a run; `kind` is the kind of evidence that the claim takes it for. or_else: other regions
    that would settle it too."""
    workload, variant, baseline, _ = comparison
    clock = evidence.clocks.of(workload, variant, baseline)
    measured = evidence.differences(comparison)
    effect = judge_effect(
        measured,
        region,
        alpha=evidence.design.plan(workload, alpha, region),
        workload=workload,
        variant=variant,
        baseline=baseline,
        metric=f"{clock} {evidence.design.statistics.get(workload) or comparison.metric.replace('_', ' ')}",
        not_evidence=evidence.not_evidence(comparison, kind),
        bias=evidence.bias(workload),
        fault_cost_ns=evidence.fault_cost(workload),
        further=Further(
            evidence.seconds_each(workload, measured.values.size),
            evidence.first_seconds.get(workload, 0.0),
            sum(evidence.first_seconds.values()),
            [(other, evidence.design.plan(workload, alpha, other)) for other in or_else],
        ),
    )
    causes = [cause for side in (variant, baseline) if (cause := evidence.causes.get((workload, side)))]
    if effect.cause is Cause.EXCLUDED and causes:
        effect = replace(effect, cause=causes[0])
    queueing = evidence.queueing(comparison) if effect.rounds else None
    return replace(effect, clock=clock, notes=(*effect.notes, *filter(None, [queueing])))
