"""From samples to verdicts: pure functions, no files, no clock, no torch.

    samples --differences--> one log ratio a round --running_interval--> Effect --combine--> Verdict

The method in one paragraph. Each round gives one number, the median over its adjacent pairs of
log t_baseline - log t_variant. The confidence sequence of `confidence` turns the series into an interval that may be
looked at after every round. An effect is *supported* when the whole interval lies inside the region that is claimed,
*refuted* when none of it does, and *inconclusive* otherwise; "not significant" is never an answer, and "the same" is
a region like any other. With m effects in a report, each gets alpha/m, so that the chance of any false verdict in the
whole report stays below alpha (Bonferroni; holds under any dependence between effects that share rounds).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..machine.environment import device_kind
from ..spec.comparison import Comparison, Metric
from ..spec.regions import Region as Region
from ..stats.confidence import RESOLUTION, Interval, Method, first_look, half_width, running_interval
from ..store.forms import check
from ..store.pass_schema import Finding, Subject
from ..store.schema import MANIFEST, Control, Effect, Noise

Clock = Literal["cpu", "wall", "device"]

"""What is compared: a whole call, or the two parts of a generation. Throughput needs no word of its own: a generation's
tokens per second are `batch * new_tokens` over its time, so their ratio is that of the times, turned round."""

ALPHA = 0.01
"""Chance of any false verdict in a report."""

AD_HOC_MARGIN_PERCENT = 1.0
"""`--compare`: within this much two variants count as the same."""

INVALID_SHARE_LIMIT = 0.05
"""Share of rounds without a valid time above which an effect is confounded."""

FAULT_COST_NS = 4_000.0
"""Upper figure for one minor fault of a 4 KiB page, in CPU time: 2.1-2.7 us measured on a shared two-core VM, about 1
us where the processor is not shared."""

HUGE_FAULT_COST_NS = 300_000.0
"""The same where the kernel backs any memory with 2 MiB pages: clearing one is most of it."""


# -- from samples to one number a round --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Differences:
    """Rounds of one comparison.

    values: log t_baseline - log t_variant, one a round, in order of (process, round). seconds: wall time of the
    samples behind them, both sides. faults_*: minor page faults a call, counted as time is (median over a round's
    pairs, so that a fault in a few of them counts as little as it weighs), mean over rounds. call_*_ns: typical time
    of a call. invalid_share: share of the rounds with both sides that were left out because a time was not positive.
    """

    values: NDArray[np.float64]
    seconds: float
    faults_baseline: float
    faults_variant: float
    invalid_share: float
    call_baseline_ns: float = math.nan
    call_variant_ns: float = math.nan


def round_value(
    baseline_ns: ArrayLike, baseline_repeats: ArrayLike, variant_ns: ArrayLike, variant_repeats: ArrayLike
) -> float:
    """The one number of a round: median over its pairs of log(time a call, baseline) - log(time a call, variant).

    Arrays of equal length, one entry a sub-round in which both sides occur; all positive. `differences` does the same
    for many rounds at once.
    """
    baseline = np.asarray(baseline_ns, dtype=np.float64) / np.asarray(baseline_repeats)
    variant = np.asarray(variant_ns, dtype=np.float64) / np.asarray(variant_repeats)
    return float(np.median(np.log(baseline) - np.log(variant)))


def call_times_ns(samples: pd.DataFrame, *, clock: Clock, metric: Metric = "time", new_tokens: int = 0) -> pd.Series:
    """Time a call of every sample by one metric, in nanoseconds (float64, the index of `samples`).

    time: a whole call. time_to_first_token: from the start of a generation until its first token was there.
    time_per_output_token: what came after that, over the `new_tokens` - 1 other tokens of each sequence. Not positive
    where the samples' workload generates nothing. `samples` has the columns of samples.parquet.

    Raises ValueError for an unknown clock or metric, and for time_per_output_token without `new_tokens` of 2 or more.
    """
    if clock not in get_args(Clock):
        raise ValueError(f"clock must be one of {', '.join(get_args(Clock))}, not {clock!r}")
    total = samples[f"{clock}_ns"] / samples["repeats"].where(samples["repeats"] > 0)
    if metric == "time":
        return total
    first = samples[f"first_{clock}_ns"].astype(np.float64)
    if metric == "time_to_first_token":
        return first
    if metric != "time_per_output_token":
        raise ValueError(f"metric must be one of {', '.join(get_args(Metric))}, not {metric!r}")
    if new_tokens < 2:
        raise ValueError(f"time_per_output_token needs the workload's new_tokens, 2 or more, not {new_tokens}")
    return ((total - first) / (new_tokens - 1)).where(first > 0, 0.0)


def tokens_per_second(call_ns: float, *, new_tokens: int, batch: int = 1) -> float:
    """Throughput of a generation that takes `call_ns` for `batch` times `new_tokens` tokens, prefill included."""
    return batch * new_tokens / call_ns * 1e9


def differences(
    samples: pd.DataFrame,
    *,
    workload: str,
    baseline: str,
    variant: str,
    clock: Clock,
    metric: Metric = "time",
    new_tokens: int = 0,
) -> Differences:
    """Pair the samples of two variants on one workload. `samples` has the columns of samples.parquet, in any order.

    Rounds in which a side is missing are skipped; a round with a time or a repeat count that is not positive is
    invalid and left out whole. For `metric` and `new_tokens` see `call_times_ns`; page faults are those of the whole
    call by any metric. Raises ValueError where a variant occurs twice in one sub-round.
    """
    key = ["process", "round", "sub_round"]
    here = samples.loc[samples["workload"] == workload]
    here = here[[*key, "variant", "repeats", "wall_ns", "faults"]].assign(
        call_ns=call_times_ns(here, clock=clock, metric=metric, new_tokens=new_tokens)
    )
    sides = [here[here["variant"] == name] for name in (baseline, variant)]
    pairs = sides[0].merge(sides[1], on=key, suffixes=("_b", "_v"), validate="one_to_one")
    if pairs.empty:
        return Differences(np.empty(0), 0.0, 0.0, 0.0, 0.0)
    positive = pairs[["call_ns_b", "call_ns_v", "repeats_b", "repeats_v"]].gt(0).all(axis=1)
    pairs["valid"] = positive.groupby([pairs["process"], pairs["round"]]).transform("all")
    rounds = len(pairs.drop_duplicates(["process", "round"]))
    pairs = pairs[pairs["valid"]]
    table = pd.DataFrame(
        {
            "process": pairs["process"],
            "round": pairs["round"],
            "baseline": np.log(pairs["call_ns_b"]),
            "variant": np.log(pairs["call_ns_v"]),
            "faults_baseline": pairs["faults_b"] / pairs["repeats_b"],
            "faults_variant": pairs["faults_v"] / pairs["repeats_v"],
        }
    )
    table["d"] = table["baseline"] - table["variant"]
    medians = table.groupby(["process", "round"], sort=True).median()
    if medians.empty:
        return Differences(np.empty(0), 0.0, 0.0, 0.0, 1.0)
    return Differences(
        values=medians["d"].to_numpy(dtype=np.float64),
        seconds=float(pairs["wall_ns_b"].sum() + pairs["wall_ns_v"].sum()) / 1e9,
        faults_baseline=float(medians["faults_baseline"].mean()),
        faults_variant=float(medians["faults_variant"].mean()),
        invalid_share=1 - len(medians) / rounds,
        call_baseline_ns=math.exp(medians["baseline"].median()),
        call_variant_ns=math.exp(medians["variant"].median()),
    )


# -- from a series to an effect ----------------------------------------------------------------------------------------


def decided(interval: Interval, region: Region) -> bool:
    """True once the interval answers the claim, either way: the measuring loop may stop.

    For `--compare` ask with `Region.same_within_percent(AD_HOC_MARGIN_PERCENT)`: outside it is faster or slower.
    """
    if interval.unstable:
        return False
    return region.contains(interval.low, interval.high) or region.excludes(interval.low, interval.high)


def remaining_seconds(values: ArrayLike, seconds: float, region: Region, *, alpha: float) -> float:
    """Further seconds of measuring until the interval will be clear of the region's nearest boundary; 0 if it is.

    Rounds shrink the half width h about as 1/sqrt(t), so about t * (h/distance)^2 seconds are needed in all. Computed
    from `half_width` itself instead, because its logarithm adds to that, and because this has an answer before there
    is any interval: by `t` at alpha/2, its share of the default method, and from its first look on. The signs may
    decide sooner, on a busy machine in a fraction of that, so this is more often too long than too short. Infinite
    where fewer than two rounds give no spread, or where the effect lies on a boundary.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.size < 2 or not seconds > 0:
        return math.inf
    centre, sd = float(series.mean()), max(float(series.std(ddof=1)), RESOLUTION)
    distance = min((abs(centre - boundary) for boundary in region.boundaries), default=math.inf)
    rounds = max(series.size, first_look(alpha / 2)) * np.geomspace(1, 1e6, 2000)
    enough = np.flatnonzero(half_width(rounds, sd, alpha / 2) <= distance)
    return seconds * float(rounds[enough[0]] / series.size - 1) if enough.size else math.inf


def judge_effect(
    measured: Differences,
    region: Region,
    *,
    alpha: float,
    workload: str,
    variant: str,
    baseline: str,
    metric: str,
    confounds: Sequence[str] = (),
    not_evidence: str | None = None,
    bias: float = 0.0,
    fault_cost_ns: float = FAULT_COST_NS,
    method: Method = "both",
) -> Effect:
    """Judge one comparison. `confounds` are reasons why no number here can be trusted; `not_evidence` is why the
    comparison says nothing about the claim however well it was measured (gates, traces, a variant that fell out).

    Two disturbances have a known size, and for them "could it have made this verdict?" can be answered instead of
    guessed: the interval is stretched by the most that the disturbance can have done, and the effect is confounded
    if the verdict does not survive that. A fixed limit would be wrong at both ends: 3 faults more are nothing to a
    call of 200 ms, and a tenth of a fault is everything to one of 2 us.

    - Page faults: without them the side that has more would take at most (difference) * `fault_cost_ns` less, so the
      interval is stretched in that side's favour.
    - `bias` (log units): what a control that fired shows that this session can do to two identical sides; stretched
      both ways.
    """
    interval = running_interval(measured.values, alpha, method)
    effect = Effect(
        workload=workload,
        variant=variant,
        baseline=baseline,
        metric=metric,
        ratio=_exp(interval.centre),
        low=_exp(interval.low),
        high=_exp(interval.high),
        rounds=interval.n,
        seconds=measured.seconds,
        verdict="inconclusive",
        warnings=(),
    )
    fault_low, fault_high = _fault_stretch(measured, fault_cost_ns)
    notes = []
    if abs(measured.faults_baseline - measured.faults_variant) > 1:
        notes.append(
            f"page faults a call: {measured.faults_baseline:.1f} in {baseline}, {measured.faults_variant:.1f} in "
            f"{variant} (at most {_percent(-math.expm1(-max(fault_low, fault_high)))} of the time)"
        )
    if (correlation := _correlation(measured.values)) > max(0.3, 3 / math.sqrt(max(interval.n, 1))):
        notes.append(f"each round resembles the one before (correlation {correlation:.1f}): the interval is too narrow")

    def ends(verdict: str, *reasons: str) -> Effect:
        return replace(effect, verdict=verdict, warnings=(*reasons, *notes))

    if not_evidence is not None:
        return ends("not evidence", not_evidence)
    if measured.invalid_share > INVALID_SHARE_LIMIT:
        return ends("inconclusive", f"confounded: {_percent(measured.invalid_share)} of rounds without a valid time")
    if interval.n == 0:
        return ends("inconclusive", "no rounds were measured")
    if confounds:
        return ends("inconclusive", *(f"confounded: {reason}" for reason in confounds))
    if interval.unstable:
        return ends("inconclusive", "unstable: the effect moved while it was measured, or its mean and median differ")
    verdict = _settled(interval.low, interval.high, region)
    if verdict is None:
        return ends("inconclusive", _what_is_missing(measured, interval, region, alpha))
    if _settled(interval.low - fault_low, interval.high + fault_high, region) != verdict:
        return ends("inconclusive", "confounded: the difference in page faults may have made this effect")
    if _settled(interval.low - bias, interval.high + bias, region) != verdict:
        return ends(
            "inconclusive",
            f"confounded: a control fired, and {_percent(math.expm1(bias))} of bias may have made this effect",
        )
    return ends(verdict)


def _settled(low: float, high: float, region: Region) -> Literal["supported", "refuted"] | None:
    if region.contains(low, high):
        return "supported"
    return "refuted" if region.excludes(low, high) else None


def _fault_stretch(measured: Differences, fault_cost_ns: float) -> tuple[float, float]:
    """By how much the true log ratio, freed of page faults, may lie below and above the measured one."""
    more = measured.faults_baseline - measured.faults_variant
    call_ns = measured.call_baseline_ns if more > 0 else measured.call_variant_ns
    if more == 0 or math.isnan(call_ns):
        return 0.0, 0.0
    share = abs(more) * fault_cost_ns / call_ns
    stretch = -math.log1p(-share) if share < 1 else math.inf
    return (stretch, 0.0) if more > 0 else (0.0, stretch)


def _correlation(values: NDArray[np.float64]) -> float:
    """Correlation of each round with the next, which the sequence takes to be nil; 0 for fewer than 20 rounds."""
    if values.size < 20 or np.ptp(values) == 0:
        return 0.0
    centred = values - values.mean()
    return float(centred[:-1] @ centred[1:] / (centred @ centred))


def _what_is_missing(measured: Differences, interval: Interval, region: Region, alpha: float) -> str:
    seconds = remaining_seconds(measured.values, measured.seconds, region, alpha=alpha)
    more = "more time would not help much" if seconds > 86_400 else f"about {_duration(seconds)} more would decide it"
    if math.isinf(interval.low) or math.isinf(interval.high):
        return f"too few rounds for an interval ({interval.n}); {more}"
    crossed = [boundary for boundary in region.boundaries if interval.low < boundary < interval.high]
    nearest = min(crossed or region.boundaries, key=lambda boundary: abs(interval.centre - boundary))
    return f"the interval reaches across {math.exp(nearest):.4g}; {more}"


# -- from effects to a verdict -----------------------------------------------------------------------------------------


def combine(effects: Sequence[Effect]) -> tuple[str, str]:
    """Verdict and reason for a part from its effects (at least one).

    All supported or all refuted: that. Some supported and some refuted: depends, with both lists. None of them
    evidence: not evidence. Otherwise inconclusive, with what is open; one open comparison is enough.
    """
    named = _grouped(effects)
    supported, refuted, excluded = (named.get(word, []) for word in ("supported", "refuted", "not evidence"))
    open_ = named.get("inconclusive", []) + excluded
    if supported and refuted:
        reason = f"supported on {listing(supported)}; refuted on {listing(refuted)}"
        return "depends", reason + (f"; open: {listing(open_)}" if open_ else "")
    if supported and not open_:
        return "supported", f"inside the claimed range on {listing(supported)}"
    if refuted and not open_:
        return "refuted", f"outside the claimed range on {listing(refuted)}"
    if len(excluded) == len(effects):
        return "not evidence", reasons(effects)
    return "inconclusive", _open_reason(effects, {"supported": supported, "refuted": refuted})


def combine_ad_hoc(effects: Sequence[Effect]) -> tuple[str, str]:
    """The same for a comparison without a claim, whose effects are faster, slower or same."""
    named = _grouped(effects)
    settled: dict[str, list[str]] = {word: named[word] for word in ("faster", "slower", "same") if word in named}
    excluded = named.get("not evidence", [])
    open_ = named.get("inconclusive", []) + excluded
    if len(settled) > 1:
        reason = "; ".join(f"{word} on {listing(where)}" for word, where in settled.items())
        return "depends", reason + (f"; open: {listing(open_)}" if open_ else "")
    if len(excluded) == len(effects):
        return "not evidence", reasons(effects)
    if open_:
        return "inconclusive", _open_reason(effects, settled)
    [(word, where)] = settled.items()
    return word, f"{word} on {listing(where)}"


def _grouped(effects: Sequence[Effect]) -> dict[str, list[str]]:
    """Labels of the effects by verdict. A label is the workload, with the baseline where there are several."""
    if not effects:
        raise ValueError("a verdict needs at least one effect")
    several = len({effect.baseline for effect in effects}) > 1
    named: dict[str, list[str]] = {}
    for effect in effects:
        where = effect.workload or effect.metric  # a reading may be of no workload
        label = f"{where} against {effect.baseline}" if several else where
        named.setdefault(effect.verdict, []).append(label)
    return named


def _open_reason(effects: Sequence[Effect], settled: Mapping[str, Sequence[str]]) -> str:
    still_open = [effect for effect in effects if effect.verdict in ("inconclusive", "not evidence")]
    known = "; ".join(f"{word} on {listing(where)}" for word, where in settled.items() if where)
    return f"open: {reasons(still_open)}" + (f"; {known}" if known else "")


def reasons(effects: Sequence[Effect]) -> str:
    """Each effect's own reason, those with the same reason together."""
    by_reason: dict[str, list[Effect]] = {}
    for effect in effects:
        by_reason.setdefault(effect.warnings[0] if effect.warnings else effect.verdict, []).append(effect)
    return "; ".join(
        f"{listing(list(dict.fromkeys(effect.workload or effect.metric for effect in group)))} ({reason})"
        for reason, group in by_reason.items()
    )


# -- what a run knows besides its samples ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What judging takes from a run: its samples, and what its manifest says about them.

    measured: workload → variants that entered it, controls and those that fell out included. wall_variants: workload →
    variants that must be timed by wall, with `wall_default` for workloads that are wall altogether. trace_difference:
    (workload, {baseline, variant}) → "" where the op traces agree, else how they differ; no entry where they were not
    compared. sizes: tokens of each workload (of a decode: its context); new_tokens: that it generates; widths and
    geometries: of its model. phases: the table of phases.parquet, where there is one. loading, roofline: records of the
    files of those names. findings: what other passes found, by subject. unusable: (workload, variant) → why its numbers
    do not count. confirmed: what measuring again from outside gave (`confirmation`). alpha: of the whole report.
    device: what the models computed on, "cpu" or "cuda".
    """

    samples: pd.DataFrame
    measured: Mapping[str, tuple[str, ...]]
    wall_default: frozenset[str] = frozenset()
    wall_variants: Mapping[str, frozenset[str]] = field(default_factory=dict)
    trace_difference: Mapping[tuple[str, frozenset[str]], str] = field(default_factory=dict)
    unusable: Mapping[tuple[str, str], str] = field(default_factory=dict)
    confirmed: Mapping[Comparison, str] = field(default_factory=dict)
    noise: Noise = field(default_factory=lambda: Noise(line=_noise_line(())))
    fault_cost_ns: float = FAULT_COST_NS
    alpha: float = ALPHA
    seed: int = 0
    sizes: Mapping[str, float] = field(default_factory=dict)
    new_tokens: Mapping[str, int] = field(default_factory=dict)
    widths: Mapping[str, int] = field(default_factory=dict)
    geometries: Mapping[str, str] = field(default_factory=dict)
    phases: pd.DataFrame | None = None
    loading: Sequence[Mapping[str, Any]] = ()
    roofline: Sequence[Mapping[str, Any]] = ()
    findings: Mapping[Subject, Finding] = field(default_factory=dict)
    device: str = "cpu"

    def has(self, comparison: Comparison) -> bool:
        """Whether the run took both sides of it on."""
        return {comparison.variant, comparison.baseline} <= set(self.measured.get(comparison.workload, ()))

    def clock(self, workload: str, *variants: str) -> Clock:
        """The clock that serves all of these variants: wall as soon as one needs it; a device's own, if it has one."""
        if self.device != "cpu":
            return "device"
        by_wall = self.wall_variants.get(workload, frozenset())
        return "wall" if workload in self.wall_default or by_wall.intersection(variants) else "cpu"

    def differences(self, comparison: Comparison) -> Differences:
        """The rounds of a comparison, on the clock that serves both sides."""
        workload, variant, baseline, metric = comparison
        return differences(
            self.samples,
            workload=workload,
            baseline=baseline,
            variant=variant,
            clock=self.clock(workload, variant, baseline),
            metric=metric,
            new_tokens=self.new_tokens.get(workload, 0),
        )

    def not_evidence(self, comparison: Comparison, evidence: str) -> str | None:
        """Why the comparison says nothing about a claim of this kind; None where it does."""
        for variant in (comparison.variant, comparison.baseline):
            if reason := self.unusable.get((comparison.workload, variant)):
                return f"{variant}: {reason}"
        if evidence == "architecture":
            pair = (comparison.workload, frozenset((comparison.variant, comparison.baseline)))
            if pair not in self.trace_difference:
                return "op traces were not compared"
            if difference := self.trace_difference[pair]:
                return f"not architecture alone, op traces differ: {difference}"
        return None

    def bias(self, workload: str) -> float:
        """Log units by which this session may shift a ratio here; 0 unless a control fired.

        Twice the largest shift that a fired control allows: one control is one draw of the bias between two sides,
        and another pair may draw more. Controls of other workloads are asked only where this one has none, because
        the bias is larger for small operations.
        """
        here = [control for control in self.noise.controls if control.workload == workload]
        fired = [control for control in here or self.noise.controls if control.fired]
        return 2 * max((control.shift for control in fired), default=0.0)


def evidence_from_manifest(
    manifest: Mapping[str, Any],
    samples: pd.DataFrame,
    *,
    phases: pd.DataFrame | None = None,
    loading: Sequence[Mapping[str, Any]] = (),
    roofline: Sequence[Mapping[str, Any]] = (),
    findings: Sequence[Finding] = (),
    noise: Noise | None = None,
) -> Evidence:
    """Take from run.json (see FORMAT) what judging needs. An unfinished run's manifest, with parts missing, will do.

    `phases`, `loading`, `roofline` and `findings`: what the run's passes found, where it had any. `noise`: its controls
    where they were judged before; without it they are judged from `samples`, which must then have theirs.

    Raises forms.Fault where something in it is not as a run writes it.
    """
    check(MANIFEST, manifest)
    hidden = {name: facts.get("hidden_size") for name, facts in (manifest.get("checkpoints") or {}).items()}
    widths: dict[str, int] = {}
    geometries: dict[str, str] = {}
    sizes: dict[str, float] = {}
    new_tokens: dict[str, int] = {}
    measured: dict[str, tuple[str, ...]] = {}
    wall_default: set[str] = set()
    wall_variants: dict[str, frozenset[str]] = {}
    unusable: dict[tuple[str, str], str] = {}
    traces: dict[tuple[str, frozenset[str]], str] = {}
    confirmed: dict[Comparison, str] = {}
    for experiment in manifest.get("experiments", ()):
        facts = experiment["workload"]
        workload: str = facts["name"]
        new_tokens[workload] = int(facts.get("new_tokens") or 0)
        geometries[workload] = str(facts.get("geometry", ""))
        if width := hidden.get(facts.get("geometry", "")):
            widths[workload] = int(width)
        sizes[workload] = float(facts.get("context", 0) if facts.get("kind") == "decode" else facts.get("tokens", 0))
        fallen = [*experiment.get("excluded", ()), *manifest.get("excluded", ())]
        for entry in fallen:
            unusable[workload, entry["variant"]] = entry["reason"]
        for name, gate in experiment.get("gates", {}).items():
            if not gate["passed"]:
                unusable[workload, name] = f"gates failed: {gate.get('detail') or 'outputs differ from the reference'}"
        # What fell out counts as taken on: it is the reason of a verdict, and it had its share of alpha.
        entered = [*experiment["variants"], *(entry["variant"] for entry in fallen)]
        measured[workload] = tuple(dict.fromkeys([*measured.get(workload, ()), *entered]))
        clock = experiment.get("clock", {})
        if clock.get("default") == "wall":
            wall_default.add(workload)
        wall_variants[workload] = wall_variants.get(workload, frozenset()) | set(clock.get("wall_variants", ()))
        traces.update(_trace_differences(workload, experiment))
        confirmed.update(_confirmed(workload, experiment))
    evidence = Evidence(
        samples=samples,
        measured=measured,
        wall_default=frozenset(wall_default),
        wall_variants=wall_variants,
        trace_difference=traces,
        unusable=unusable,
        confirmed=confirmed,
        fault_cost_ns=_fault_cost_ns(manifest.get("environment", {})),
        alpha=float(manifest.get("alpha", ALPHA)),
        seed=int(manifest.get("seed") or 0),
        sizes=sizes,
        new_tokens=new_tokens,
        widths=widths,
        geometries=geometries,
        phases=phases,
        loading=loading,
        roofline=roofline,
        findings={finding.subject: finding for finding in findings},
        device=device_kind(manifest.get("environment") or {}),
    )
    return replace(evidence, noise=judge_controls(evidence) if noise is None else noise)


def _confirmed(workload: str, experiment: Mapping[str, Any]) -> dict[Comparison, str]:
    """What the effects that were measured again say of it, whichever side is called the baseline."""
    found: dict[Comparison, str] = {}
    for entry in experiment.get("confirmations", ()):
        variant, baseline, ratio = entry["variant"], entry["baseline"], entry["ratio"]
        how = f"measured again, alone in fresh processes and timed from outside ({entry['calls']} calls)"
        found[Comparison(workload, variant, baseline)] = f"{how}: {ratio:.3g}×"
        found[Comparison(workload, baseline, variant)] = f"{how}: {1 / ratio:.3g}×"
    return found


def _trace_differences(workload: str, experiment: Mapping[str, Any]) -> dict[tuple[str, frozenset[str]], str]:
    """How the op traces of each pair differ: by digest for every pair, in words where the run compared it."""
    found: dict[tuple[str, frozenset[str]], str] = {}
    traces = experiment.get("traces", {})
    for name in traces:
        for other in traces:
            if name < other:
                one, two = traces[name], traces[other]
                counts = f"{one['ops']} ops in {name}, {two['ops']} in {other}"
                if one["ops"] == two["ops"]:
                    counts = f"{one['ops']} ops on each side, but not the same"
                found[workload, frozenset((name, other))] = "" if one["digest"] == two["digest"] else counts
    for entry in experiment.get("trace_differences", ()):
        pair = frozenset((entry["baseline"], entry["variant"]))
        found[workload, pair] = "" if entry["same"] else entry.get("detail") or "no detail"
    return found


def _fault_cost_ns(environment: Mapping[str, Any]) -> float:
    return HUGE_FAULT_COST_NS if environment.get("transparent_huge_pages") == "always" else FAULT_COST_NS


def judge_controls(evidence: Evidence, *, method: Method = "both") -> Noise:
    """Judge every `NAME@aa` and `NAME@copy` against NAME, at alpha over the number of controls.

    A control fires where its interval leaves out 0, and where its rounds contradict each other (an empty interval
    misses 0 as well).
    """
    pairs = [
        (workload, kind, variant, name)
        for workload, variants in evidence.measured.items()
        for variant in variants
        for name, _, kind in [variant.partition("@")]
        if kind in ("aa", "copy") and name in variants
    ]
    controls = []
    for workload, kind, variant, name in pairs:
        clock = evidence.clock(workload, variant, name)
        pair = differences(evidence.samples, workload=workload, baseline=name, variant=variant, clock=clock)
        interval = running_interval(pair.values, evidence.alpha / len(pairs), method)
        fired = interval.unstable or not interval.low <= 0 <= interval.high
        ends = interval.centre, interval.low, interval.high, interval.n
        controls.append(Control(workload, kind, variant, *ends, fired))
    return Noise(tuple(controls), _noise_line(controls))


def _noise_line(controls: Sequence[Control]) -> str:
    if not controls:
        return "A/A noise: no controls in this run"
    bounded = [control for control in controls if math.isfinite(control.shift)]
    parts = [f"{len(controls)} control{'s' * (len(controls) > 1)}"]
    if bounded:
        widest = max((control.interval.high - control.interval.low) / 2 for control in bounded)
        shift = max(abs(control.interval.centre) for control in bounded)
        parts += [f"widest interval ±{_percent(math.expm1(widest))}", f"largest shift {_percent(math.expm1(shift))}"]
    if len(bounded) < len(controls):
        parts.append(f"{len(controls) - len(bounded)} with too few rounds")
    fired = [f"{control.variant} on {control.workload}" for control in controls if control.fired]
    return f"A/A noise: {', '.join(parts)}; " + (f"fired: {listing(fired)}" if fired else "none fired")


# -- effects of a run --------------------------------------------------------------------------------------------------


def effect_alpha(comparisons: Iterable[Comparison], alpha: float = ALPHA, *, others: int = 0) -> float:
    """What each effect of a report is judged at: alpha over the number of different comparisons, plus `others`.

    The measuring loop must stop by the same figure. A pair that two claims ask about has one interval, wrong or right
    for both, and counts once, whichever side is called the baseline.
    """
    different = {(c.workload, frozenset((c.variant, c.baseline)), c.metric) for c in comparisons}
    return alpha / max(len(different) + others, 1)


def compare_sides(
    evidence: Evidence, comparison: Comparison, region: Region, kind: str, alpha: float, method: Method = "both"
) -> Effect:
    """Judge one comparison of a run; `kind` is the kind of evidence that the claim takes it for."""
    workload, variant, baseline, _ = comparison
    clock = evidence.clock(workload, variant, baseline)
    effect = judge_effect(
        evidence.differences(comparison),
        region,
        alpha=alpha,
        workload=workload,
        variant=variant,
        baseline=baseline,
        metric=f"{clock} {comparison.metric.replace('_', ' ')}",
        not_evidence=evidence.not_evidence(comparison, kind),
        bias=evidence.bias(workload),
        fault_cost_ns=evidence.fault_cost_ns,
        method=method,
    )
    again = evidence.confirmed.get(comparison)
    return effect if again is None else replace(effect, warnings=(*effect.warnings, again))


def allowance(evidence: Evidence, comparison: Comparison) -> tuple[float, float]:
    """By how much (log units) the true ratio may lie below and above an interval, for what disturbed this run: page
    faults, and the bias that a fired control shows. `judge_effect` asks instead whether a verdict survives it."""
    low, high = _fault_stretch(evidence.differences(comparison), evidence.fault_cost_ns)
    bias = evidence.bias(comparison.workload)
    return low + bias, high + bias


def _exp(log_ratio: float) -> float:
    try:
        return math.exp(log_ratio)
    except OverflowError:
        return math.inf


def _percent(share: float) -> str:
    """0.0042 as "0.42 %", with two figures that count."""
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def listing(words: Sequence[str]) -> str:
    return ", ".join(words)
