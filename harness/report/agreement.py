"""Do two runs of the same comparisons agree? Intervals of one pair of sides must have a common point, and words of one
part of a claim must be the same where both runs give one. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..machine.environment import comparable
from ..spec.words import GIVEN
from ..store.schema import Manifest
from ..store.sitting_schema import Sources
from ..store.verdict_schema import Effect, Verdict

T = TypeVar("T")

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
    """Two runs. compared: pairs of sides, and values, with an interval in both. apart: those whose intervals have no
    common point. judged: parts of claims with a verdict in both. other_words: those with another one in the second."""

    compared: int
    apart: tuple[tuple[Effect, Effect], ...]
    judged: int
    other_words: tuple[tuple[Verdict, Verdict], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; the form is described by `workbench agree --help`."""
        apart = [
            {"workload": one.workload, "variant": one.variant, "baseline": one.baseline}
            | {"first": [one.low, one.high], "second": [other.low, other.high]}
            for one, other in self.apart
        ]
        other_words = [
            {"claim": one.claim, "part": one.part, "first": one.verdict, "second": other.verdict}
            for one, other in self.other_words
        ]
        return {"compared": self.compared, "apart": apart, "judged": self.judged, "other_words": other_words}


def agreement_of(first: Sequence[Verdict], second: Sequence[Verdict]) -> RunAgreement:
    """From all that two runs say. A pair of sides that several claims ask about counts once."""
    effects = _both(*(_effects(each) for each in (first, second)))
    verdicts = _both(*(_given(each) for each in (first, second)))
    return RunAgreement(
        compared=len(effects),
        apart=tuple((one, other) for one, other in effects if one.high < other.low or other.high < one.low),
        judged=len(verdicts),
        other_words=tuple((one, other) for one, other in verdicts if one.verdict != other.verdict),
    )


def _effects(verdicts: Iterable[Verdict]) -> dict[object, Effect]:
    """What has an interval with both ends, by what it is of; a number of no variant is of its claim's part alone. Of a
    claim with a share of alpha of its own the interval is wider: the narrowest one counts."""
    known = [
        ((effect.workload, effect.variant, effect.baseline, effect.metric, effect.machine), part_of(verdict), effect)
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
