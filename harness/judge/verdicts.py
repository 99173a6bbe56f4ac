"""From claims to verdicts: one for each part of each claim, and one for each pair without a claim. Pure functions.

What a hypothesis needs of the evidence, and what that says about it, its metric knows (see `harness/metrics`).

Each interval holds with probability 1 - alpha. A part is called *supported* only where all of its effects lie inside
the claimed range. That is false only if some effect lies outside; then its own interval missed it, which has
probability alpha, however many other effects there are. So with *refuted*. *Depends* says of each effect on which side
it lies, and any of them may be wrong: there each is judged at alpha over their number (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ..claims.model import Claim
from ..evidence.evidence import Evidence, compare_sides
from ..evidence.verdict import DEPENDS, GIVEN, combine
from ..metrics.base import NOT_MEASURABLE, Judged
from ..metrics.registry import metric_of
from ..spec.comparison import Comparison
from ..spec.conditions import FAIL_IF, Condition
from ..spec.hypotheses import Hypothesis
from ..spec.regions import ANSWERS, MARGIN_PERCENT, SECOND_MARGIN_PERCENT, Region
from ..store.schema import Effect, Ends, Verdict


def judge_claims(
    claims: Sequence[Claim],
    evidence: Evidence,
    *,
    ad_hoc: Iterable[tuple[str, str]] = (),
    conditions: Sequence[Condition] = (),
) -> list[Verdict]:
    """One verdict for each part of each claim, in order, then one for each pair (baseline, variant) without a claim,
    followed by one for each condition on it.

    Comparisons that the run did not take on (`--workloads`, `--variants`) are left out and named in the reason; a part
    of which none is left is "not measurable here", and so is one that is about another device than the run's.
    """
    parts: list[Callable[[float], Verdict]] = [
        partial(_judge_part, claim, hypothesis, evidence) for claim in claims for hypothesis in claim.hypothesis
    ]
    for pair in ad_hoc:
        parts.append(partial(_judge_pair, evidence, *pair))
        parts += [partial(_judge_condition, evidence, *pair, condition) for condition in conditions]
    verdicts = [part(evidence.alpha) for part in parts]
    together = _hold_together(parts, verdicts, evidence.alpha)
    return [replace(verdict, together=index in together) for index, verdict in enumerate(verdicts)]


def judge_ad_hoc(evidence: Evidence, *, baseline: str, variant: str) -> Verdict:
    """The same for one pair that is all of a report."""
    [verdict] = judge_claims([], evidence, ad_hoc=[(baseline, variant)])
    return verdict


def shared_alpha(alpha: float, answers: int) -> float:
    """What each of so many effects is judged at where they lie on different sides, for the loop and the judge."""
    return alpha / answers


def _judge_part(claim: Claim, hypothesis: Hypothesis, evidence: Evidence, alpha: float) -> Verdict:
    metric = metric_of(hypothesis.metric)
    if away := hypothesis.elsewhere(evidence.device):
        judged = Judged(NOT_MEASURABLE, away)
    else:
        judge = partial(metric.judge, hypothesis, evidence)
        alpha /= metric.intervals_at_once
        judged = judge(alpha=alpha)
        if judged.verdict == DEPENDS:
            alpha = shared_alpha(alpha, judged.answers or len(judged.effects))
            judged = judge(alpha=alpha)
    return Verdict(
        claim=claim.id,
        part=hypothesis.part,
        who=claim.who,
        title=claim.title,
        statement=claim.statement,
        verdict=judged.verdict,
        reason=judged.reason,
        alpha=alpha if metric.has_confidence else math.nan,
        claimed=hypothesis.describe() + _on_fewer(hypothesis),
        region=Ends(**hypothesis.region.to_json()),
        effects=judged.effects,
    )


def _on_fewer(hypothesis: Hypothesis) -> str:
    """How many of its workloads the quick set measures, where these are not all."""
    some = len(hypothesis.workload_names())
    return f" (on {some} of its {some + hypothesis.left_out} workloads; --all has all)" if hypothesis.left_out else ""


# -- pairs without a claim ---------------------------------------------------------------------------------------------


def _judge_pair(evidence: Evidence, baseline: str, variant: str, alpha: float) -> Verdict:
    """Faster, slower, or the same within a margin, on every workload that has both sides."""
    pairs = ad_hoc_comparisons(evidence.measured, baseline=baseline, variant=variant)
    verdict = _on_all(pairs, ANSWERS[1], partial(_answer, evidence), alpha)
    title, statement = f"{variant} against {baseline}", f"Is {variant} faster than {baseline}?"
    return replace(verdict, title=title, statement=statement)


def _judge_condition(evidence: Evidence, baseline: str, variant: str, condition: Condition, alpha: float) -> Verdict:
    """Whether what a condition is about is so, on every workload that has both sides."""
    region = condition.region
    pairs = ad_hoc_comparisons(evidence.measured, baseline=baseline, variant=variant)

    def answer(pair: Comparison, alpha: float) -> Effect:
        return compare_sides(evidence, pair, region, "operations", alpha)

    verdict = _on_all(pairs, region, answer, alpha / condition.at_once(max(len(pairs), 1)))
    title, statement = f"{variant} against {baseline}", f"{variant} is {region.describe()} than {baseline}."
    return replace(verdict, claim=FAIL_IF, part=str(condition), title=title, statement=statement)


def _on_all(
    pairs: Sequence[Comparison], region: Region, answer: Callable[[Comparison, float], Effect], alpha: float
) -> Verdict:
    """The verdict from the answers for all pairs."""
    effects = tuple(answer(pair, alpha) for pair in pairs)
    verdict, reason = combine(effects) if effects else ("not evidence", "this run has no workload with both variants")
    if verdict == DEPENDS:
        alpha = shared_alpha(alpha, len(pairs))
        effects = tuple(answer(pair, alpha) for pair in pairs)
        verdict, reason = combine(effects)
    return Verdict(
        claim="ad-hoc",
        who=(),
        verdict=verdict,
        reason=reason,
        alpha=alpha,
        claimed=region.describe(),
        region=Ends(**region.to_json()),
        effects=effects,
    )


def ad_hoc_comparisons(measured: Mapping[str, Sequence[str]], *, baseline: str, variant: str) -> list[Comparison]:
    """A pair without a claim, on every workload that has both sides."""
    return [
        Comparison(workload, variant, baseline)
        for workload, names in measured.items()
        if {baseline, variant} <= {*names}
    ]


def _answer(evidence: Evidence, pair: Comparison, alpha: float) -> Effect:
    """Faster or slower where the interval leaves out 1, else the same where it lies within a margin."""
    wider = Region.same_within_percent(SECOND_MARGIN_PERCENT)
    faster, same, nearly = (compare_sides(evidence, pair, region, "operations", alpha) for region in (*ANSWERS, wider))
    if faster.verdict in ("supported", "refuted"):
        little = (f"by less than {MARGIN_PERCENT:g} %",) if same.verdict == "supported" else ()
        word = "faster" if faster.verdict == "supported" else "slower"
        return replace(faster, verdict=word, warnings=little + faster.warnings)
    if same.verdict == "supported":
        return replace(same, verdict="same")
    if nearly.verdict == "supported":
        within = f"within {SECOND_MARGIN_PERCENT:g} %, not shown to be within {MARGIN_PERCENT:g} %"
        return replace(nearly, verdict="same", warnings=(within, *nearly.warnings))
    return replace(faster, seconds_more=min(faster.seconds_more, same.seconds_more))


# -- all verdicts of a report at once ----------------------------------------------------------------------------------


def _hold_together(parts: Sequence[Callable[[float], Verdict]], verdicts: Sequence[Verdict], alpha: float) -> set[int]:
    """Which verdicts hold all at once with probability 1 - alpha (Holm 1979): those that hold at alpha over the number
    of all, then those that hold at alpha over the number of the others, and so on. A verdict alone is not marked, and
    none that has no alpha."""
    family = [index for index, verdict in enumerate(verdicts) if not math.isnan(verdict.alpha)]
    open_ = {index for index in family if verdicts[index].verdict in GIVEN and len(family) > 1}
    together: set[int] = set()
    while open_:
        level = alpha / (len(family) - len(together))
        standing = {index for index in open_ if parts[index](level).verdict == verdicts[index].verdict}
        if not standing:
            break
        together |= standing
        open_ -= standing
    return together
