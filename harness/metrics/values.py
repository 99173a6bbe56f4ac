"""What metrics of one value have in common: an effect for each workload, and one verdict from them all."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from ..evidence.evidence import Evidence
from ..evidence.verdict import combine, reasons
from ..spec.hypotheses import Name, Names, RangeHypothesis, ValueHypothesis
from ..store.schema import Effect
from .base import NOT_MEASURABLE, Judged, Metric

V = TypeVar("V", bound=ValueHypothesis)


class VariantHypothesis(RangeHypothesis):
    """A value of `variant` on each of `workloads`."""

    variant: Name
    workloads: Names

    def subjects(self) -> tuple[tuple[str, str], ...]:
        return tuple((workload, self.variant) for workload in self.workloads)


class ValueMetric(Metric[V], Generic[V]):
    """A metric that gives one value on each workload, or one in all where the hypothesis names no workload."""

    @abstractmethod
    def effect(self, hypothesis: V, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The value with its verdict; "not measurable here", with the reason as warning, where there is none."""

    def judge(self, hypothesis: V, evidence: Evidence, *, alpha: float) -> Judged:
        """The verdict on all workloads together; those without a value are left out and named."""
        workloads = hypothesis.workload_names() or ("",)
        return judged([self.effect(hypothesis, workload, evidence, alpha) for workload in workloads])


class IntervalMetric(ValueMetric[V], Generic[V]):
    """A metric whose values come with an interval over rounds, which its part of alpha holds for."""

    @abstractmethod
    def words(self, hypothesis: V) -> str:
        """What the value is, for the `metric` of an effect."""

    @abstractmethod
    def measured(self, effect: Effect, hypothesis: V, evidence: Evidence, alpha: float) -> Effect:
        """The effect with its value, interval, rounds and seconds. Raises ValueError with the reason for no value."""

    def effect(self, hypothesis: V, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The value with its verdict; not evidence where the variant's numbers do not count on the workload."""
        effect = no_value(hypothesis, workload, self.words(hypothesis))
        if reason := evidence.unusable.get((workload, effect.variant)):
            return replace(effect, verdict="not evidence", warnings=(f"{effect.variant}: {reason}",))
        try:
            effect = self.measured(effect, hypothesis, evidence, alpha)
        except ValueError as error:
            return replace(effect, warnings=(str(error),))
        return in_range(effect, hypothesis, *effect.warnings)


def judged(effects: Sequence[Effect]) -> Judged:
    """One verdict from the values, of which some may not be measurable here."""
    missing = [effect for effect in effects if effect.verdict == NOT_MEASURABLE]
    if len(missing) == len(effects):
        return Judged(NOT_MEASURABLE, reasons(effects), tuple(effects))
    verdict, reason = combine([effect for effect in effects if effect not in missing])
    return Judged(verdict, f"{reason}; not measured: {reasons(missing)}" if missing else reason, tuple(effects))


def no_value(hypothesis: ValueHypothesis, workload: str, metric: str, reason: str = "") -> Effect:
    """The effect of a hypothesis without its value yet; `metric` says of what the value will be."""
    return Effect(
        workload=workload,
        variant=getattr(hypothesis, "variant", ""),
        baseline=getattr(hypothesis, "baseline", None) or "",
        metric=metric,
        ratio=math.nan,
        low=-math.inf,
        high=math.inf,
        rounds=0,
        seconds=0.0,
        verdict=NOT_MEASURABLE,
        warnings=(reason,) if reason else (),
        unit=hypothesis.unit,
    )


def in_range(effect: Effect, hypothesis: ValueHypothesis, *notes: str) -> Effect:
    """The effect with the verdict that its interval gives, `notes` among its warnings."""
    region = hypothesis.region
    if math.isinf(effect.low) and math.isinf(effect.high):
        return replace(effect, verdict="inconclusive", warnings=notes or ("too few rounds for an interval",))
    if region.contains(effect.low, effect.high):
        return replace(effect, verdict="supported", warnings=notes)
    if region.excludes(effect.low, effect.high):
        return replace(effect, verdict="refuted", warnings=notes)
    crossed = ", ".join(f"{end:.4g}" for end in region.boundaries if effect.low < end < effect.high)
    told = f"the interval lies on both sides of {crossed} {region.unit}".rstrip()
    return replace(effect, verdict="inconclusive", warnings=(told, *notes))
