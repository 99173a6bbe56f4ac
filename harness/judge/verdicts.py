"""From claims to verdicts: one for each part of each claim, from what a run measured and found out. Pure functions.

A hypothesis about times is the comparisons of `judge`, combined. A reading is a value with its interval, computed from
a run's phases (`shares`), its timed effects (`gains`), its grid (`attribution`) or what was found out without a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from ..claims.claims import Claim, Hypothesis, Reading, elsewhere
from ..evidence.effect import AD_HOC_MARGIN_PERCENT
from ..evidence.evidence import Evidence, compare_sides, effect_alpha
from ..evidence.numbers import listing
from ..evidence.verdict import combine, combine_ad_hoc, reasons
from ..metrics.attribution import FactorEffect, attribute, effect_count, measured_grid, verdict_on
from ..metrics.gains import SizedGain, inflation, trend
from ..metrics.loading.loading import LEAST_ROUNDS, load_shares
from ..metrics.roofline.roofline import reached
from ..metrics.share.shares import share
from ..metrics.trends import crossover, interval_of
from ..spec.comparison import Comparison
from ..spec.regions import Range, Region
from ..stats.confidence import Method
from ..store.schema import Effect, Ends, Verdict


def own_intervals(claims: Iterable[Claim]) -> int:
    """Intervals of readings, each with its part of alpha: of a share one a workload, of a grid one an effect."""
    shares = {
        (workload, reading.variant, frozenset(reading.phases), reading.of)
        for claim in claims
        for reading in claim.readings()
        if reading.metric == "share"
        for workload in reading.workloads
    }
    grids = {
        workload
        for claim in claims
        for reading in claim.readings()
        if reading.metric == "attribution"
        for workload in reading.workloads
    }
    loads = {
        (workload, reading.quantity, reading.of)
        for claim in claims
        for reading in claim.readings()
        if reading.metric == "loading"
        for workload in reading.workloads
    }
    roofs = {
        (workload, reading.variant)
        for claim in claims
        for reading in claim.readings()
        if reading.metric == "roofline"
        for workload in reading.workloads
    }
    return len(shares) + len(loads) + len(roofs) + effect_count() * len(grids)


def judge_claims(claims: Sequence[Claim], evidence: Evidence, *, method: Method = "both") -> list[Verdict]:
    """One verdict for each part of each claim, in order.

    Comparisons that the run did not take on (`--workloads`, `--variants`) are left out and named in the reason; a part
    of which none is left is "not measurable here", and so is one that is about another device than the run's.
    """
    here = [part for claim in claims if (part := claim.on(evidence.device))]
    timed = [c for claim in here for c in claim.comparisons() if evidence.has(c)]
    alpha = effect_alpha(timed, evidence.alpha, others=own_intervals(here))
    return [
        _judge_part(claim, hypothesis, evidence, alpha, method)
        if isinstance(hypothesis, Hypothesis)
        else _judge_reading(claim, hypothesis, evidence, alpha, method)
        for claim in claims
        for hypothesis in claim.hypothesis
    ]


def _judge_part(claim: Claim, hypothesis: Hypothesis, evidence: Evidence, alpha: float, method: Method) -> Verdict:
    region = hypothesis.region
    away = elsewhere(hypothesis, evidence.device)
    wanted = [] if away else list(hypothesis.comparisons())
    effects = tuple(
        compare_sides(evidence, comparison, region, hypothesis.evidence, alpha, method)
        for comparison in wanted
        if evidence.has(comparison)
    )
    verdict, reason = (
        combine(effects) if effects else ("not measurable here", away or "this run has none of its comparisons")
    )
    left_out = [f"{c.variant} against {c.baseline} on {c.workload}" for c in wanted if not evidence.has(c)]
    if effects and left_out:
        reason += f"; not in this run: {listing(left_out)}"
    if by_width := _by_width(effects, evidence, region):
        reason += f"; by width: {by_width}"
    return _verdict(claim, hypothesis, alpha, verdict, reason, effects)


def _verdict(
    claim: Claim, part: Hypothesis | Reading, alpha: float, verdict: str, reason: str, effects: Iterable[Effect] = ()
) -> Verdict:
    return Verdict(
        claim=claim.id,
        part=part.part,
        who=claim.who,
        title=claim.title,
        statement=claim.statement,
        verdict=verdict,
        reason=reason,
        alpha=alpha,
        claimed=part.describe(),
        region=Ends(**part.region.to_json()),
        effects=tuple(effects),
    )


def _by_width(effects: Sequence[Effect], evidence: Evidence, region: Region) -> str:
    """Where along the width of the model an effect enters or leaves the region; empty for fewer than three widths."""
    known = [effect for effect in effects if effect.workload in evidence.widths and effect.rounds]
    widths = {float(evidence.widths[effect.workload]): interval_of(effect) for effect in known}
    return crossover(widths, region).describe() if len(widths) > 2 and len(widths) == len(effects) else ""


# -- readings ----------------------------------------------------------------------------------------------------------


def _judge_reading(claim: Claim, reading: Reading, evidence: Evidence, alpha: float, method: Method) -> Verdict:
    ends = partial(_verdict, claim, reading, alpha)

    if reading.metric == "none":
        return ends("not measurable here", reading.reason or "")
    if away := elsewhere(reading, evidence.device):
        return ends("not measurable here", away)
    if reading.metric in ("trend", "inflation"):
        return _judge_gains(reading, evidence, alpha, method, ends)
    if reading.metric == "attribution":
        return _judge_grid(reading, evidence, alpha, method, ends)
    if reading.metric == "loading":
        effects = [_loading_effect(reading, workload, evidence, alpha) for workload in reading.workloads]
    elif reading.metric == "roofline":
        effects = [_roofline_effect(reading, workload, evidence, alpha) for workload in reading.workloads]
    elif reading.metric == "share":
        effects = [_share_effect(reading, workload, evidence, alpha) for workload in reading.workloads]
    else:
        effects = [_found_effect(reading, workload, evidence) for workload in reading.workloads or ("",)]
    missing = [effect for effect in effects if effect.verdict == "not measurable here"]
    if len(missing) == len(effects):
        return ends("not measurable here", reasons(effects), effects)
    verdict, reason = combine([effect for effect in effects if effect not in missing])
    return ends(verdict, f"{reason}; not measured: {reasons(missing)}" if missing else reason, effects)


def _read(reading: Reading, workload: str, metric: str) -> Effect:
    """An effect of a reading before it has a value."""
    return Effect(
        workload=workload,
        variant=reading.variant or "",
        baseline=reading.baseline or "",
        metric=metric,
        ratio=math.nan,
        low=-math.inf,
        high=math.inf,
        rounds=0,
        seconds=0.0,
        verdict="not measurable here",
        warnings=(),
        unit=reading.unit,
    )


def _in_range(effect: Effect, region: Range, *notes: str) -> Effect:
    if region.contains(effect.low, effect.high):
        return replace(effect, verdict="supported", warnings=notes)
    if region.excludes(effect.low, effect.high):
        return replace(effect, verdict="refuted", warnings=notes)
    crossed = ", ".join(f"{end:.4g}" for end in region.boundaries if effect.low < end < effect.high)
    told = (f"the interval reaches across {crossed} {region.unit}".rstrip(), *notes)
    return replace(effect, verdict="inconclusive", warnings=told)


def _share_effect(reading: Reading, workload: str, evidence: Evidence, alpha: float) -> Effect:
    """A share of time in percent, with the interval over rounds."""
    assert reading.variant is not None and reading.of is not None
    effect = _read(reading, workload, f"share of {reading.of}: {' + '.join(reading.phases)}")
    if reason := evidence.unusable.get((workload, reading.variant)):
        return replace(effect, verdict="not evidence", warnings=(f"{reading.variant}: {reason}",))
    if evidence.phases is None:
        return replace(effect, warnings=("this run has no phases",))
    try:
        found = share(evidence.phases, workload, reading.variant, reading.phases, reading.of, alpha=alpha)
    except ValueError as error:
        return replace(effect, warnings=(str(error),))
    value, low, high = (100 * part for part in (found.value, found.low, found.high))
    effect = replace(effect, ratio=value, low=low, high=high, rounds=found.rounds, seconds=found.seconds)
    return _in_range(effect, reading.region)


def _roofline_effect(reading: Reading, workload: str, evidence: Evidence, alpha: float) -> Effect:
    """What a variant reaches of this machine's roof, in percent, with the interval over rounds."""
    assert reading.variant is not None
    effect = _read(reading, workload, "share of the roofline")
    if reason := evidence.unusable.get((workload, reading.variant)):
        return replace(effect, verdict="not evidence", warnings=(f"{reading.variant}: {reason}",))
    if not evidence.roofline:
        return replace(effect, warnings=("this run has not measured the roofline",))
    try:
        found = reached(evidence.roofline, workload, reading.variant, alpha=alpha)
    except ValueError as error:
        return replace(effect, warnings=(str(error),))
    value, low, high = found.share
    metric = f"share of the roofline ({found.binds} binds)"
    effect = replace(effect, metric=metric, ratio=value, low=low, high=high, rounds=found.rounds, seconds=found.seconds)
    above = ["more than the roof: what it is measured with does not reach this machine's peak"] if low > 100 else []
    return _in_range(effect, reading.region, *above)


def _loading_effect(reading: Reading, workload: str, evidence: Evidence, alpha: float) -> Effect:
    """What loading adds to the time to first token of the workload's checkpoint, in percent of it."""
    effect = _read(reading, workload, f"share of the time to first token: {reading.quantity}, {reading.of} page cache")
    geometry = evidence.geometries.get(workload)
    records = [
        record
        for record in evidence.loading
        if (record["checkpoint"], record["loader"], record["cache"]) == (geometry, reading.quantity, reading.of)
    ]
    if not records:
        return replace(effect, warnings=("this run has not loaded it",))
    [found] = load_shares(records, alpha=alpha)
    if found.reason or not found.rounds:
        return replace(effect, warnings=(found.reason or "no rounds",))
    value, low, high = (100 * part for part in (found.share, found.low, found.high))
    effect = replace(effect, ratio=value, low=low, high=high, rounds=found.rounds)
    if math.isinf(low):
        told = f"too few rounds for an interval ({found.rounds} of about {LEAST_ROUNDS})"
        return replace(effect, verdict="inconclusive", warnings=(told,))
    return _in_range(effect, reading.region)


def _found_effect(reading: Reading, workload: str, evidence: Evidence) -> Effect:
    """What a pass found: exact, so that its interval is a point."""
    effect = _read(reading, workload, reading.quantity or reading.metric)
    subject = (reading.metric, reading.quantity or "", workload, reading.variant or "", reading.baseline or "")
    found = evidence.findings.get(subject)
    if found is None:
        return replace(effect, warnings=("this run has not looked",))
    if math.isnan(found.value):
        return replace(effect, warnings=(found.reason or "no value",))
    value = found.value
    effect = replace(effect, ratio=value, low=value, high=value, rounds=found.count, seconds=found.seconds)
    return _in_range(effect, reading.region, *([found.detail] if found.detail else []))


def _judge_gains(
    reading: Reading, evidence: Evidence, alpha: float, method: Method, ends: Callable[..., Verdict]
) -> Verdict:
    """A trend or an inflation: computed from timed effects, whose intervals hold at once, so it needs no alpha."""
    anything = Region(-math.inf, math.inf)
    timed = [
        compare_sides(evidence, comparison, anything, "operations", alpha, method)
        for comparison in reading.comparisons()
        if evidence.has(comparison)
    ]
    known = [_allowing_for_disturbances(effect, evidence) for effect in timed if _is_known(effect)]
    open_ = [
        effect if effect.verdict != "supported" else replace(effect, warnings=("too few rounds for an interval",))
        for effect in timed
        if not _is_known(effect)
    ]
    if open_ or not known or (reading.metric == "trend" and len(known) < len(reading.workloads)):
        reason = reasons(open_) if open_ else "this run lacks some of its workloads"
        return ends("inconclusive" if open_ else "not measurable here", reason)
    rounds, seconds = min(effect.rounds for effect in known), sum(effect.seconds for effect in known)
    if reading.metric == "inflation":
        assert reading.claimed is not None and reading.range is not None
        effects = []
        for one in known:
            found = inflation(reading.claimed, one.low, one.high, reading.range)
            middle = (sum(reading.claimed) / 2 - 1) / (one.ratio - 1) if one.ratio != 1 else math.inf
            pieces = [piece for end in (found.low_end, found.high_end) for piece in end.pieces]
            effects.append(
                replace(
                    _read(reading, one.workload, "claimed gain over measured gain"),
                    ratio=middle,
                    low=min(low for low, _ in pieces) if pieces else -math.inf,
                    high=max(high for _, high in pieces) if pieces else math.inf,
                    rounds=one.rounds,
                    seconds=one.seconds,
                    verdict=found.verdict,
                    warnings=(found.reason,),
                )
            )
        if len({effect.verdict for effect in effects}) == 1:
            return ends(effects[0].verdict, reasons(effects), effects)
        words = {effect.verdict for effect in effects}
        verdict = "depends" if words & {"supported", "depends"} and words & {"refuted", "depends"} else "inconclusive"
        return ends(verdict, reasons(effects), effects)
    gains = [SizedGain(evidence.sizes.get(one.workload, 0.0), one.ratio, one.low, one.high) for one in known]
    rising = trend(gains, _rise_region(reading.region))
    effect = replace(
        _read(reading, f"{known[0].workload} to {known[-1].workload}", "rise of the gain"),
        ratio=(rising.rise - 1) * 100,
        low=(rising.low - 1) * 100,
        high=(rising.high - 1) * 100,
        rounds=rounds,
        seconds=seconds,
        verdict=rising.verdict,
        warnings=(rising.reason,),
    )
    return ends(rising.verdict, rising.reason, [effect])


def _is_known(effect: Effect) -> bool:
    return effect.verdict == "supported" and effect.low > 0 and math.isfinite(effect.high)


def _allowing_for_disturbances(effect: Effect, evidence: Evidence) -> Effect:
    """The effect with its interval as wide as page faults and a control that fired may make it."""
    low, high = evidence.allowance(Comparison(effect.workload, effect.variant, effect.baseline))
    return replace(effect, low=effect.low * math.exp(-low), high=effect.high * math.exp(high))


def _judge_grid(
    reading: Reading, evidence: Evidence, alpha: float, method: Method, ends: Callable[..., Verdict]
) -> Verdict:
    """What the speed-up between the corners of the grid is due to, workload by workload."""
    effects: list[Effect] = []
    words: dict[str, list[str]] = {}
    told = []
    for workload in reading.workloads:
        if workload not in evidence.measured:
            continue
        grid = measured_grid(evidence, workload, seed=evidence.seed)
        found = attribute(grid, alpha=alpha, method=method)
        verdict = verdict_on(found, reading.quantity or "")
        words.setdefault(verdict, []).append(workload)
        told.append(f"{workload}: {found.answer} ({found.reason})")
        sides = [found.architecture, found.operations, found.total]
        shown = [*sides, *found.effects, found.dummy]
        effects += [_factor_effect(one, workload, f"{grid.clock} time") for one in shown]
    if not words:
        return ends("not measurable here", "this run has no grid")
    reason = "; ".join(told)
    if len(words) == 1:
        return ends(next(iter(words)), reason, effects)
    both = {"supported", "refuted"} <= set(words)
    return ends("depends" if both else "inconclusive", reason, effects)


def _factor_effect(found: FactorEffect, workload: str, metric: str) -> Effect:
    return Effect(
        workload=workload,
        variant=f"{found.name} new",
        baseline=f"{found.name} old",
        metric=metric,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        rounds=found.rounds,
        seconds=0.0,
        verdict=found.verdict,
        warnings=found.warnings,
    )


def _rise_region(region: Range) -> Region:
    """Percent of rise as a region of log ratios."""
    return Region(
        math.log1p(region.low / 100) if math.isfinite(region.low) else -math.inf,
        math.log1p(region.high / 100) if math.isfinite(region.high) else math.inf,
    )


def judge_ad_hoc(evidence: Evidence, *, baseline: str, variant: str, method: Method = "both") -> Verdict:
    """Compare two variants without a claim, on every workload that has both: faster, slower, or the same within 1 %."""
    region = Region.same_within_percent(AD_HOC_MARGIN_PERCENT)
    pairs = [Comparison(workload, variant, baseline) for workload in evidence.measured]
    pairs = [pair for pair in pairs if evidence.has(pair)]
    alpha = effect_alpha(pairs, evidence.alpha)
    effects = tuple(_ad_hoc(compare_sides(evidence, pair, region, "operations", alpha, method)) for pair in pairs)
    verdict, reason = (
        combine_ad_hoc(effects) if effects else ("not evidence", "this run has no workload with both variants")
    )
    return Verdict(
        claim="ad-hoc",
        part=None,
        who=(),
        title=f"{variant} against {baseline}",
        statement=f"Is {variant} faster than {baseline}?",
        verdict=verdict,
        reason=reason,
        alpha=alpha,
        claimed=region.describe(),
        region=Ends(**region.to_json()),
        effects=effects,
    )


def _ad_hoc(effect: Effect) -> Effect:
    """An effect that was asked "the same?", in the words of a comparison."""
    words = {"supported": "same", "refuted": "faster" if effect.low > 1 else "slower"}
    return replace(effect, verdict=words.get(effect.verdict, effect.verdict))
