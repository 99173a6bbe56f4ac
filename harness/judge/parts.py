"""What is judged: the parts of claims, pairs without a claim, and conditions on them. Pure functions.

A part says what became of it in the evidence of one machine, with each interval at an alpha that it is given. How alpha
is shared is decided by who asks: `verdicts` for one machine, `machines` for several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..claims.model import Claim
from ..evidence.evidence import Evidence, compare_sides
from ..metrics.base import Judged
from ..metrics.registry import metric_of
from ..spec.comparison import Comparison, held_together
from ..spec.hypotheses import Hypothesis
from ..spec.regions import ANSWERS, FAIL_IF, MARGIN_PERCENT, SECOND_MARGIN_PERCENT, Condition, Range, Region
from ..spec.words import GIVEN, Cause, Word
from ..store.verdict_schema import AD_HOC, Effect, Ends, Verdict


@dataclass(frozen=True)
class Part:
    """One thing that gets a verdict.

    judge: what the evidence of a machine says, each interval at this alpha. verdict: the same as it is written.
    at_once: how many intervals one answer needs, from the evidence of all machines; they share alpha. looks_once:
    whether the number of rounds was fixed beforehand.
    """

    judge: Callable[[Evidence, float], Judged]
    verdict: Callable[[Judged, float], Verdict]
    at_once: Callable[[Sequence[Evidence]], int] = lambda evidence: 1
    looks_once: bool = False


def parts_of(
    claims: Sequence[Claim], ad_hoc: Iterable[tuple[str, str]] = (), conditions: Sequence[Condition] = ()
) -> list[Part]:
    """Each part of each claim, in order, then each pair (baseline, variant) without a claim, followed by each condition
    on it. Where there are no claims, the pairs are one question."""
    parts = [_part_of_claim(claim, hypothesis) for claim in claims for hypothesis in claim.hypothesis]
    pairs = [*ad_hoc]
    for pair in pairs:
        parts.append(_pair(*pair, asked=0 if claims else len(pairs)))
        parts += [_condition(*pair, condition, len(pairs)) for condition in conditions]
    return parts


def _part_of_claim(claim: Claim, hypothesis: Hypothesis) -> Part:
    metric = metric_of(hypothesis.metric)

    def judge(evidence: Evidence, alpha: float) -> Judged:
        if away := hypothesis.elsewhere(evidence.device):
            return Judged(Word.NOT_MEASURABLE, away)
        judged: Judged = metric.judge(hypothesis, evidence, alpha=alpha)
        untimed = [effect.cause is Cause.NO_ROUNDS and effect.seconds_more > 0 for effect in judged.effects]
        if untimed and all(untimed) and judged.verdict is Word.INCONCLUSIVE:  # it is known what they would need
            return replace(judged, verdict=Word.NOT_TESTED, cause=Cause.NO_ROUNDS)
        return judged

    def verdict(judged: Judged, alpha: float) -> Verdict:
        asked = _asked(claim.id, hypothesis.part or "", claim.title, claim.statement, hypothesis.region, judged, alpha)
        margin, left, some = hypothesis.matters, hypothesis.left_out, len(hypothesis.workload_names())
        return replace(
            asked,
            who=hypothesis.who or claim.who,
            alpha=alpha if metric.has_confidence else math.nan,
            claimed=hypothesis.describe(),
            fewer=f"on {some} of its {some + left} workloads; --all has all" if left else "",
            small=hypothesis.small,
            due_to=hypothesis.due_to,
            margin=margin.percent if margin else 0.0,
            margin_from=f"{margin.document}, {margin.section}" if margin else "",
        )

    def at_once(evidence: Sequence[Evidence]) -> int:
        away = all(hypothesis.elsewhere(each.device) for each in evidence)
        return 1 if away else metric.intervals_at_once

    return Part(judge, verdict, at_once, metric.looks_once)


# -- pairs without a claim ---------------------------------------------------------------------------------------------


def _pair(baseline: str, variant: str, asked: int) -> Part:
    """Faster, slower, or the same within a margin, on every workload that has both sides. asked: of how many pairs
    that are one question; 0: of none but this."""

    def pairs(evidence: Evidence) -> list[Comparison]:
        return ad_hoc_comparisons(evidence.measured, baseline=baseline, variant=variant)

    def judge(evidence: Evidence, alpha: float) -> Judged:
        judged = _on_all([_answer(evidence, pair, alpha) for pair in pairs(evidence)])
        return replace(judged, answers=1) if at_once([evidence]) > 1 else judged

    def at_once(evidence: Sequence[Evidence]) -> int:
        return max(held_together(asked, len(pairs(each)), sized=bool(each.input_sizes)) for each in evidence) or 1

    title, statement = f"{variant} against {baseline}", f"Is {variant} faster than {baseline}?"

    def verdict(judged: Judged, alpha: float) -> Verdict:
        # What is the same within the second margin alone: then that is the question that was answered.
        nearly = any(effect.verdict is Word.SAME and not _is_narrow(effect) for effect in judged.effects)
        answered = NEARLY_SAME if nearly else ANSWERS[1]
        return _asked(AD_HOC, "", title, statement, answered, judged, alpha)

    return Part(judge, verdict, at_once)


NEARLY_SAME = Region.same_within_percent(SECOND_MARGIN_PERCENT, only_inside=True)
"""What is told of where the narrower margin could not be shown."""


def _condition(baseline: str, variant: str, condition: Condition, asked: int) -> Part:
    """Whether what a condition is about is so, on every workload that has both sides. asked: of how many pairs."""

    def pairs(evidence: Evidence) -> list[Comparison]:
        return ad_hoc_comparisons(evidence.measured, baseline=baseline, variant=variant)

    def judge(evidence: Evidence, alpha: float) -> Judged:
        region = condition.region
        judged = _on_all([compare_sides(evidence, pair, region, "operations", alpha) for pair in pairs(evidence)])
        # Where all share alpha from the start, they do so where they lie on different sides.
        return replace(judged, answers=1) if at_once([evidence]) > 1 else judged

    def at_once(evidence: Sequence[Evidence]) -> int:
        return condition.at_once(asked * max(sum(len(pairs(each)) for each in evidence), 1))

    title = f"{variant} against {baseline}"
    statement = f"{variant} is {condition.region.describe()} than {baseline}."
    verdict = partial(_asked, FAIL_IF, str(condition), title, statement, condition.region)
    return Part(judge, verdict, at_once)


def _on_all(effects: Sequence[Effect]) -> Judged:
    """What the answers for all pairs come to."""
    if not effects:
        return Judged(Word.NOT_EVIDENCE, "this run has no workload with both variants")
    return Judged.of_all(effects)


def _asked(
    claim: str, part: str, title: str, statement: str, region: Region | Range, judged: Judged, alpha: float
) -> Verdict:
    """The verdict on what was asked; nobody said it."""
    return Verdict(
        claim=claim,
        part=part,
        who=(),
        title=title,
        statement=statement,
        verdict=judged.verdict,
        reason=judged.reason,
        cause=judged.cause,
        alpha=alpha,
        claimed=region.describe(),
        region=Ends(**region.to_json()),
        effects=judged.effects,
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
    faster = compare_sides(evidence, pair, ANSWERS[0], "operations", alpha, ANSWERS[1:])
    same, nearly = (
        compare_sides(evidence, pair, region, "operations", alpha) for region in (*ANSWERS[1:], NEARLY_SAME)
    )
    if faster.verdict in (Word.SUPPORTED, Word.REFUTED):
        little = f"by less than {MARGIN_PERCENT:g} %" if same.verdict == Word.SUPPORTED else ""
        word = Word.FASTER if faster.verdict == Word.SUPPORTED else Word.SLOWER
        return replace(faster, verdict=word, reason=little)
    if same.verdict == Word.SUPPORTED:
        return replace(same, verdict=Word.SAME)
    if nearly.verdict == Word.SUPPORTED:
        within = f"within {SECOND_MARGIN_PERCENT:g} %; whether within {MARGIN_PERCENT:g} % too is open"
        return replace(nearly, verdict=Word.SAME, reason=within)
    return faster


# From claims to verdicts: one for each part of each claim, and one for each pair without a claim. Pure functions.
# What a hypothesis needs of the evidence, and what that says about it, its metric knows (see `harness/metrics`).
# Each interval holds with probability 1 - alpha. A part is called *supported* only where all of its effects lie
# inside the claimed range. That is false only if some effect lies outside; then its own interval missed it, which has
# probability alpha, however many other effects there are. So with *refuted*. *Depends* says of each effect on which
# side it lies, and any of them may be wrong: there each is judged at alpha over their number (Bonferroni).


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
    judges = [partial(_judge, part, evidence) for part in parts_of(claims, ad_hoc, conditions)]
    return all_together(judges, evidence.alpha)


def judge_ad_hoc(evidence: Evidence, *, baseline: str, variant: str) -> Verdict:
    """The same for one pair that is all of a report."""
    [verdict] = judge_claims([], evidence, ad_hoc=[(baseline, variant)])
    return verdict


def shared_alpha(alpha: float, answers: int) -> float:
    """What each of so many effects is judged at where they lie on different sides, for the loop and the judge."""
    return alpha / answers


def _judge(part: Part, evidence: Evidence, alpha: float) -> Verdict:
    alpha /= part.at_once([evidence])
    judged = part.judge(evidence, alpha)
    if judged.verdict == Word.DEPENDS:
        alpha = shared_alpha(alpha, judged.answers or len(judged.effects))
        judged = part.judge(evidence, alpha)
    return part.verdict(judged, alpha)


# -- all verdicts of a report at once ----------------------------------------------------------------------------------


def all_together(judges: Sequence[Callable[[float], Verdict]], alpha: float) -> list[Verdict]:
    """What each of them says at `alpha`, with marks on those that hold all at once with probability 1 - alpha."""
    verdicts = [judge(alpha) for judge in judges]
    together = _hold_together(judges, verdicts, alpha)
    return [replace(verdict, together=index in together) for index, verdict in enumerate(verdicts)]


def _said(verdict: Verdict) -> tuple[Word, list[tuple[Word, bool, str, str, str]]]:
    """All that a verdict says for settled: its word, and that of each effect. Of a comparison without a claim also
    whether both sides are the same within the narrow margin."""
    settled = [effect for effect in verdict.effects if effect.verdict in GIVEN]
    narrow = [verdict.is_comparison and _is_narrow(effect) for effect in settled]
    return verdict.verdict, [
        (effect.verdict, within, effect.place, effect.sides, effect.factor)
        for effect, within in zip(settled, narrow, strict=True)
    ]


def _is_narrow(effect: Effect) -> bool:
    ratio = 1 + MARGIN_PERCENT / 100
    return 1 / ratio <= effect.low and effect.high <= ratio


def _hold_together(judges: Sequence[Callable[[float], Verdict]], verdicts: Sequence[Verdict], alpha: float) -> set[int]:
    """Which verdicts hold all at once with probability 1 - alpha (Holm 1979): those that hold at alpha over the number
    of all, then those that hold at alpha over the number of the others, and so on. What holds is all that a verdict
    says of its effects, not the word alone. A verdict alone is not marked, and none that has no alpha."""
    family = [index for index, verdict in enumerate(verdicts) if not math.isnan(verdict.alpha)]
    open_ = {index for index in family if verdicts[index].verdict in GIVEN and len(family) > 1}
    together: set[int] = set()
    while open_:
        level = alpha / (len(family) - len(together))
        standing = {index for index in open_ if _said(judges[index](level)) == _said(verdicts[index])}
        if not standing:
            break
        together |= standing
        open_ -= standing
    return together
