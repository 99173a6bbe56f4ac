"""From claims to verdicts: one for each part of each claim, and one for each pair without a claim. Pure functions.

What a hypothesis needs of the evidence, and what that says about it, its metric knows (see `harness/metrics`).

Each interval holds with probability 1 - alpha. A part is called *supported* only where all of its effects lie inside
the claimed range. That is false only if some effect lies outside; then its own interval missed it, which has
probability alpha, however many other effects there are. So with *refuted*. *Depends* says of each effect on which side
it lies, and any of them may be wrong: there each is judged at alpha over their number (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from ..claims.model import Claim
from ..evidence.evidence import Evidence
from ..spec.conditions import Condition
from ..spec.regions import MARGIN_PERCENT
from ..spec.words import GIVEN, Word
from ..store.verdict_schema import Effect, Verdict
from .parts import Part, parts_of


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
