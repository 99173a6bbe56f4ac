"""The share of one part in the sum of several, each timed alone: what a table of micro-benchmarks says.

Computed from timed rounds; there is no pass. The k-th process of every part makes the k-th share; those without
partners are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ...evidence.effect import DEPENDENT
from ...evidence.evidence import Evidence
from ...metrics.base import GainHypothesis, IntervalMetric
from ...spec.experiments import Target
from ...spec.hypotheses import Names
from ...spec.words import Cause, Word
from ...stats.confidence import Interval, Level, running_interval
from ...stats.means import is_dependent
from ...stats.samples import call_ns
from ...store.verdict_schema import Effect


class PartsHypothesis(GainHypothesis):
    """The time of `top` in percent of that of all `workloads`, for `variant`; where their lengths differ, of those of
    each length. `baseline` is timed in the same rounds, and its share is told beside it."""

    metric: Literal["share_of_parts"]
    top: Annotated[Names, Field(description="those of the workloads whose share is asked")]

    @model_validator(mode="after")
    def _of_the_whole(self) -> Self:
        if other := set(self.top) - set(self.workloads):
            raise ValueError(f"top names {', '.join(sorted(other))}, which workloads does not")
        return self

    def title(self) -> str:
        return f"share of {', '.join(self.top)} in the sum of its parts, of {self.variant}"

    def targets(self) -> Iterator[Target]:
        return (replace(target, evidence="context") for target in super().targets())

    def selected(self, variants: Sequence[str], workloads: Sequence[str], *, anywhere: bool) -> Self | None:
        """All of it or nothing: the sum needs all of its parts."""
        left = super().selected(variants, workloads, anywhere=anywhere)
        return left if left is not None and left.workloads == self.workloads else None


class PartsMetric(IntervalMetric[PartsHypothesis]):
    """One share for each length."""

    names = ("share_of_parts",)
    about = "The share of one part in the sum of several: each was timed alone, none inside a model."
    inside = "workloads"
    looks_once = False
    hypothesis = PartsHypothesis

    def asked(self, hypothesis: PartsHypothesis) -> tuple[str, ...]:
        return hypothesis.top

    def words(self, hypothesis: PartsHypothesis) -> str:
        return "share of the parts, each timed alone"

    def measured(self, effect: Effect, hypothesis: PartsHypothesis, evidence: Evidence, alpha: float) -> Effect:
        if lacking := [each.workload for each in hypothesis.comparisons() if not evidence.has(each)]:
            raise ValueError(f"not in this run: {', '.join(lacking)}")
        size = evidence.sizes.get(effect.workload)
        parts = [name for name in hypothesis.workloads if evidence.sizes.get(name) == size]
        if out := [reason for name in parts if (reason := evidence.unusable.get((name, hypothesis.variant)))]:
            raise ValueError(f"{hypothesis.variant}: {out[0]}")
        plans = [evidence.design.plan(name, alpha) for name in parts]
        level = min(plans, key=lambda plan: plan.horizon or 0)
        share = _share(evidence, hypothesis.variant, effect.workload, parts, level)
        beside = _share(evidence, hypothesis.baseline, effect.workload, parts, level)
        seconds = sum(evidence.times(name, hypothesis.variant).wall_ns.sum() for name in parts) / 1e9
        effect = replace(
            effect,
            ratio=share.centre,
            low=share.low,
            high=share.high,
            rounds=share.n,
            seconds=float(seconds),
            notes=(f"of {', '.join(parts)}", f"{hypothesis.baseline}: {beside.centre:.3g} %"),
        )
        if is_dependent(_shares(evidence, hypothesis.variant, effect.workload, parts)):
            return replace(effect, verdict=Word.INCONCLUSIVE, cause=Cause.DEPENDENT, reason=DEPENDENT)
        return effect


def _share(evidence: Evidence, variant: str, top: str, parts: Sequence[str], level: Level) -> Interval:
    """The share of `top` in percent of all parts, with its interval over processes."""
    return running_interval(_shares(evidence, variant, top, parts), level)


def _shares(evidence: Evidence, variant: str, top: str, parts: Sequence[str]) -> NDArray[np.float64]:
    """The same, one a process."""
    series = [call_ns(evidence.times(name, variant)) for name in parts]
    processes = min(map(len, series))
    calls_ns = np.stack([values[:processes] for values in series])  # [parts, processes]
    return np.asarray(100 * calls_ns[list(parts).index(top)] / calls_ns.sum(axis=0), dtype=np.float64)


METRIC = PartsMetric()
