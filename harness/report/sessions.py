"""Repeat runs of one command: where two of them contradict each other, and both as one. Pure functions.

Intervals of one pair of sides must overlap, and verdicts of one part of a claim must be the same where both runs give
one. Over both, an answer counts where both give it, and an interval reaches from the lowest to the highest end of
theirs. So a third run that contradicts it would contradict both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from ..evidence.effect import combine
from ..machine.environment import comparable
from ..spec.words import GIVEN, SETTLED, Cause, Word
from ..store.schema import Manifest, Sources
from ..store.verdict_schema import Effect, Verdict
from .answer import Decision
from .outcome import outcome
from .text import claim_text, effect_text

T = TypeVar("T")

OPEN = (Word.NOT_EVIDENCE, Word.INCONCLUSIVE)

UNMEASURED = (Word.NOT_MEASURABLE, Word.NOT_TESTED)
"""Words of an effect that is not settled, the one that counts first."""

DIFFER = "two sessions do not say the same"
"""Why an effect, or a verdict, is open where each session settles it."""


NOT_COMPARABLE = "The machine or software is not the same, so they need not agree"


def unlike_runs(first: Manifest, second: Manifest) -> list[str]:
    """Why two runs need not agree: what is another machine or software, and what one alone measured calm."""
    calm = {each.workload.name: each.workload.calm for each in first.experiments}
    workloads = [each.workload for each in second.experiments]
    apart = [each.name for each in workloads if calm.get(each.name, each.calm) != each.calm]
    differences = comparable(first.machine_facts, second.machine_facts)
    return [*differences, *(f"{name}: one run measured it calm, the other as it runs" for name in apart)]


def changed_code(first: Sources | None, second: Sources | None) -> list[str]:
    """What of the code is not the same in two runs, as far as both know it."""
    if first is None or second is None:
        return []
    both = first.variants.keys() & second.variants.keys()
    count = sum(first.variants[name].digest != second.variants[name].digest for name in both)
    files = f"files behind {count} of {len(both)} variants"
    return [files] * bool(count) + ["the code that measures"] * (first.harness != second.harness)


@dataclass(frozen=True)
class RunAgreement:
    """Two runs. intervals: how many pairs of sides, and values, have one in both; disjoint: those that do not overlap.
    verdicts: how many parts of claims have one in both; changed: those that are not the same."""

    intervals: int
    disjoint: tuple[tuple[Effect, Effect], ...]
    verdicts: int
    changed: tuple[tuple[Verdict, Verdict], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; the form is described by `workbench compare --help`."""
        disjoint = [
            {"workload": effect.workload, "variant": effect.variant, "baseline": effect.baseline}
            | {"first": [effect.low, effect.high], "second": [later.low, later.high]}
            for effect, later in self.disjoint
        ]
        changed = [
            {"claim": verdict.claim, "part": verdict.part, "first": verdict.verdict, "second": later.verdict}
            for verdict, later in self.changed
        ]
        return {"intervals": self.intervals, "disjoint": disjoint, "verdicts": self.verdicts, "changed": changed}


def agreement_of(first: Sequence[Verdict], second: Sequence[Verdict]) -> RunAgreement:
    """From all that two runs say. A pair of sides that several claims ask about counts once."""
    effects = _both(*(_effects(each) for each in (first, second)))
    verdicts = _both(*(_given(each) for each in (first, second)))
    return RunAgreement(
        intervals=len(effects),
        disjoint=tuple((one, other) for one, other in effects if one.high < other.low or other.high < one.low),
        verdicts=len(verdicts),
        changed=tuple((one, other) for one, other in verdicts if one.verdict != other.verdict),
    )


def _effects(verdicts: Iterable[Verdict]) -> dict[object, Effect]:
    """What has an interval with both ends, by what it is of; a number of no variant is of its claim's part alone. Of a
    claim with a share of alpha of its own the interval is wider: the narrowest one counts."""
    known = [
        (_key(effect), part_of(verdict), effect)
        for verdict in verdicts
        for effect in verdict.effects
        if None not in (effect.lower, effect.upper)
    ]
    widest_first = sorted(known, key=lambda each: each[-1].low - each[-1].high)
    return {(sides, None if effect.variant else part): effect for sides, part, effect in widest_first}


def _given(verdicts: Iterable[Verdict]) -> dict[object, Verdict]:
    return {part_of(each): each for each in verdicts if each.verdict in GIVEN}


def part_of(verdict: Verdict) -> object:
    """What a verdict is of, in every run."""
    return verdict.claim, verdict.part, verdict.title


def _both(first: Mapping[object, T], second: Mapping[object, T]) -> list[tuple[T, T]]:
    return [(one, second[key]) for key, one in first.items() if key in second]


# -- two of them as one ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SessionAnswers:
    """What a session of a command says: the name of its run, its verdicts, and what the teams' rules pick by them, by
    workload."""

    name: str
    verdicts: Sequence[Verdict]
    decisions: Mapping[str, Sequence[Decision]]


@dataclass(frozen=True)
class BothSessions:
    """Two sessions of a command, and what of their machine or software is not the same."""

    first: SessionAnswers
    second: SessionAnswers
    differences: Sequence[str] = ()

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Those of the first, each over both. What only one session asked, or measured, stands as it was found."""
        there = _by_part(self.second.verdicts)
        return [_over(each, there.get(part_of(each), each)) for each in self.first.verdicts]

    @property
    def decisions(self) -> dict[str, tuple[Decision, ...]]:
        """What the rules pick, by workload: all that either session leaves possible."""
        there = self.second.decisions
        return {
            workload: tuple(
                replace(one, actions=tuple(dict.fromkeys((*one.actions, *other.actions))))
                for one, other in zip(here, there.get(workload, here), strict=True)
            )
            for workload, here in self.first.decisions.items()
        }

    def each_says(self, verdict: Verdict) -> str:
        """What each session says by itself, for a table: once where they say the same."""
        here, there = (_by_part(session.verdicts).get(part_of(verdict)) for session in (self.first, self.second))
        if here is None or there is None:
            return "asked in one session only"
        if here.verdict is there.verdict and here.verdict in GIVEN:
            return "the same"
        return "; ".join(dict.fromkeys((outcome(here), outcome(there))))

    def agreement_lines(self) -> list[str]:
        """How far they agree: one line, and one for each difference."""
        pair = agreement_of(self.first.verdicts, self.second.verdicts)
        changed, disjoint = len(pair.changed), len(pair.disjoint)
        verdicts = f"{changed} of the {pair.verdicts}" if changed else f"all {pair.verdicts}"
        intervals = f"{disjoint} of the {pair.intervals}" if disjoint else f"all {pair.intervals}"
        lines = [
            f"{self.second.name}: {verdicts} verdicts that both runs decided {'differ' if changed else 'agree'}; "
            f"{intervals} shared intervals {'do not ' if disjoint else ''}overlap."
        ]
        if self.differences:
            lines.append(f"{NOT_COMPARABLE}: {'; '.join(self.differences)}")
        lines += [f"{claim_text(a)}: {outcome(a)}, there {outcome(b)}" for a, b in pair.changed]
        return lines + [f"{_what(a)}: {effect_text(a)}, there {effect_text(b)}" for a, b in pair.disjoint]


def _by_part(verdicts: Iterable[Verdict]) -> dict[object, Verdict]:
    return {part_of(verdict): verdict for verdict in verdicts}


def _what(effect: Effect) -> str:
    """Whose number it is; of one variant alone also which one, as it has several."""
    sides = f"{effect.sides} on {effect.where}"
    return sides if effect.baseline or effect.metric in sides else f"{sides}, {effect.metric}"


def _over(here: Verdict, there: Verdict) -> Verdict:
    if here is there or here.region != there.region or there.verdict in UNMEASURED:
        return here
    theirs = {_key(effect): effect for effect in there.effects}
    effects = tuple(_hull(each, theirs[_key(each)], here) if _key(each) in theirs else each for each in here.effects)
    whole = replace(here, effects=effects, together=here.together and there.together)
    if _is_of_effects(here) and _is_of_effects(there):
        word, reason = combine(effects)
        cause = Cause.NOT_SETTLED if word is Word.INCONCLUSIVE else Cause.NONE
        return whole if word is here.verdict else replace(whole, verdict=word, reason=reason, cause=cause)
    if here.verdict is there.verdict:
        return whole
    if there.verdict is Word.INCONCLUSIVE or here.verdict in UNMEASURED:
        return replace(whole, verdict=there.verdict, reason=there.reason, cause=there.cause)
    if here.verdict is Word.INCONCLUSIVE:
        return whole
    return replace(whole, verdict=Word.INCONCLUSIVE, reason=DIFFER, cause=Cause.NOT_SETTLED)


def _key(effect: Effect) -> object:
    return effect.workload, effect.variant, effect.baseline, effect.metric, effect.machine


def _is_of_effects(verdict: Verdict) -> bool:
    """Whether it is what its effects come to, each being an answer."""
    words = {effect.verdict for effect in verdict.effects}
    return words <= {*SETTLED, *OPEN} and bool(words) and combine(verdict.effects)[0] is verdict.verdict


def _hull(here: Effect, there: Effect, asked: Verdict) -> Effect:
    """An effect over both sessions, with the notes of the first."""
    if not (_is_known(here) and _is_known(there)):
        return there if _is_known(there) else here
    whole = replace(
        here,
        ratio=(here.ratio + there.ratio) / 2 if here.unit else math.sqrt(here.ratio * there.ratio),
        low=min(here.low, there.low),
        high=max(here.high, there.high),
        rounds=here.rounds + there.rounds,
        seconds=here.seconds + there.seconds,
        seconds_more=math.nan,
    )
    if here.verdict is there.verdict:
        straddles = here.verdict is Word.REFUTED and _lies_in(whole, asked) and not _lies_in(here, asked)
        return replace(whole, verdict=Word.INCONCLUSIVE, reason=DIFFER) if straddles else whole
    for word, side in ((word, side) for word in OPEN for side in (here, there) if side.verdict is word):
        return replace(whole, verdict=word, reason=side.reason, cause=side.cause, seconds_more=side.seconds_more)
    return replace(whole, verdict=Word.INCONCLUSIVE, reason=DIFFER)


def _is_known(effect: Effect) -> bool:
    """Whether it has an interval, or is settled without one."""
    return effect.lower is not None or effect.upper is not None or effect.verdict in SETTLED


def _lies_in(effect: Effect, asked: Verdict) -> bool:
    """Whether its interval reaches into what is claimed."""
    low, high = asked.low, asked.high
    return (low is None or effect.high >= low) and (high is None or effect.low <= high)
