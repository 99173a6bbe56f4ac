"""From claims to verdicts: one for each part of each claim, and one for each pair without a claim. Pure functions.

What a hypothesis needs of the evidence, and what that says about it, its metric knows (see `harness/metrics`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from ..claims.model import Claim
from ..evidence.effect import AD_HOC_MARGIN_PERCENT
from ..evidence.evidence import Evidence, compare_sides
from ..evidence.verdict import combine
from ..metrics.base import NOT_MEASURABLE, Judged
from ..metrics.registry import metric_of
from ..spec.comparison import Comparison
from ..spec.hypotheses import Hypothesis
from ..spec.regions import Region
from ..store.schema import Effect, Ends, Verdict


def judge_claims(
    claims: Sequence[Claim], evidence: Evidence, *, ad_hoc: Iterable[tuple[str, str]] = ()
) -> list[Verdict]:
    """One verdict for each part of each claim, in order, then one for each pair (baseline, variant) without a claim.

    Comparisons that the run did not take on (`--workloads`, `--variants`) are left out and named in the reason; a part
    of which none is left is "not measurable here", and so is one that is about another device than the run's.
    """
    pairs = list(ad_hoc)
    alpha = interval_alpha(claims, pairs, measured=evidence.measured, device=evidence.device, alpha=evidence.alpha)
    verdicts = [_judge_part(claim, hypothesis, evidence, alpha) for claim in claims for hypothesis in claim.hypothesis]
    return verdicts + [_judge_pair(evidence, baseline, variant, alpha) for baseline, variant in pairs]


def judge_ad_hoc(evidence: Evidence, *, baseline: str, variant: str) -> Verdict:
    """The same for one pair that is all of a report."""
    [verdict] = judge_claims([], evidence, ad_hoc=[(baseline, variant)])
    return verdict


def _judge_part(claim: Claim, hypothesis: Hypothesis, evidence: Evidence, alpha: float) -> Verdict:
    if away := hypothesis.elsewhere(evidence.device):
        judged = Judged(NOT_MEASURABLE, away)
    else:
        judged = metric_of(hypothesis.metric).judge(hypothesis, evidence, alpha=alpha)
    return Verdict(
        claim=claim.id,
        part=hypothesis.part,
        who=claim.who,
        title=claim.title,
        statement=claim.statement,
        verdict=judged.verdict,
        reason=judged.reason,
        alpha=alpha,
        claimed=hypothesis.describe(),
        region=Ends(**hypothesis.region.to_json()),
        effects=judged.effects,
    )


def _judge_pair(evidence: Evidence, baseline: str, variant: str, alpha: float) -> Verdict:
    """Faster, slower, or the same within a margin, on every workload that has both sides."""
    region = Region.same_within_percent(AD_HOC_MARGIN_PERCENT)
    effects = tuple(
        _as_answer(compare_sides(evidence, pair, region, "operations", alpha))
        for pair in ad_hoc_comparisons([(baseline, variant)], evidence.measured)
    )
    verdict, reason = combine(effects) if effects else ("not evidence", "this run has no workload with both variants")
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


def _as_answer(effect: Effect) -> Effect:
    """An effect that was asked "the same?", in the words of a comparison."""
    words = {"supported": "same", "refuted": "faster" if effect.low > 1 else "slower"}
    return replace(effect, verdict=words.get(effect.verdict, effect.verdict))


# -- the level of every interval: the measuring loop and the judge divide alpha by the same number ---------------------


def ad_hoc_comparisons(pairs: Iterable[tuple[str, str]], measured: Mapping[str, Collection[str]]) -> list[Comparison]:
    """Pairs (baseline, variant) without a claim, on every workload that has both sides."""
    found = [Comparison(workload, variant, baseline) for baseline, variant in pairs for workload in measured]
    return [comparison for comparison in found if _has(measured, comparison)]


def interval_alpha(
    claims: Iterable[Claim],
    ad_hoc: Iterable[tuple[str, str]],
    *,
    measured: Mapping[str, Collection[str]],
    device: str,
    alpha: float,
) -> float:
    """What each interval of a report is judged at: `alpha` of the report over the number of different intervals.

    Those are the comparisons, with a claim and without, of which the run took both sides on, and what metrics add of
    their own; a pair that is asked for twice counts once, whichever side is called the baseline. measured: workload →
    variants that the run took on. device: the kind that it measures on; parts about another one have no interval.
    """
    parts = [part for claim in claims for part in claim.hypothesis if not part.elsewhere(device)]
    own: set[Hashable] = {key for part in parts for key in part.intervals()}
    compared = [comparison for part in parts for comparison in part.comparisons() if _has(measured, comparison)]
    compared += ad_hoc_comparisons(ad_hoc, measured)
    pairs = {(each.workload, each.sides, each.metric) for each in compared}
    return alpha / max(len(pairs) + len(own), 1)


def _has(measured: Mapping[str, Collection[str]], comparison: Comparison) -> bool:
    return comparison.sides <= set(measured.get(comparison.workload, ()))
