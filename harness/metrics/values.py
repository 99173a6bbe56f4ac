"""What metrics of one value have in common: an effect for each workload, and one verdict from them all."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from ..evidence.effect import Effect
from ..evidence.evidence import Evidence
from ..evidence.verdict import combine, reasons
from ..spec.hypotheses import ValueHypothesis
from ..stats.confidence import Method
from .base import NOT_MEASURABLE, Judged, Metric

V = TypeVar("V", bound=ValueHypothesis)


class ValueMetric(Metric[V], Generic[V]):
    """A metric that gives one value on each workload, or one in all where the hypothesis names no workload."""

    @abstractmethod
    def effect(self, hypothesis: V, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The value with its verdict; "not measurable here", with the reason as warning, where there is none."""

    def judge(self, hypothesis: V, evidence: Evidence, *, alpha: float, method: Method) -> Judged:
        """The verdict on all workloads together; those without a value are left out and named."""
        workloads = hypothesis.workload_names() or ("",)
        return judged([self.effect(hypothesis, workload, evidence, alpha) for workload in workloads])


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


def unusable(effect: Effect, evidence: Evidence) -> Effect | None:
    """The effect as "not evidence", where its variant's numbers do not count on its workload."""
    if reason := evidence.unusable.get((effect.workload, effect.variant)):
        return replace(effect, verdict="not evidence", warnings=(f"{effect.variant}: {reason}",))
    return None


def in_range(effect: Effect, hypothesis: ValueHypothesis, *notes: str) -> Effect:
    """The effect with the verdict that its interval gives, `notes` among its warnings."""
    region = hypothesis.region
    if region.contains(effect.low, effect.high):
        return replace(effect, verdict="supported", warnings=notes)
    if region.excludes(effect.low, effect.high):
        return replace(effect, verdict="refuted", warnings=notes)
    crossed = ", ".join(f"{end:.4g}" for end in region.boundaries if effect.low < end < effect.high)
    told = f"the interval lies on both sides of {crossed} {region.unit}".rstrip()
    return replace(effect, verdict="inconclusive", warnings=(told, *notes))
