"""What a speed-up is due to: architecture, operations, both or neither."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Literal

from pydantic import Field

from ...evidence.effect import Effect
from ...evidence.evidence import Evidence
from ...spec.hypotheses import Names, ValueHypothesis
from ...stats.confidence import Method
from ..base import NOT_MEASURABLE, Judged, Metric
from .effects import FactorEffect, attribute, measured_grid, verdict_on
from .grid import effect_count, needed_variants


class AttributionHypothesis(ValueHypothesis):
    """What the speed-up between the corners of the grid is due to, on each of `workloads`."""

    metric: Literal["attribution"]
    workloads: Names
    quantity: Annotated[
        Literal["architecture", "operations", "both", "neither"],
        Field(description='"architecture", "operations", "both" or "neither"'),
    ]

    @property
    def unit(self) -> str:
        """The answer is a word."""
        return self.quantity

    def describe(self) -> str:
        """What is claimed, in words."""
        return f"the speed-up is due to {self.quantity}"

    def grid(self) -> tuple[str, ...]:
        """All cells, timed in the same rounds."""
        return needed_variants()

    def intervals(self) -> frozenset[Hashable]:
        """Every effect of the grid on each workload."""
        return frozenset((self.metric, name, number) for name in self.workloads for number in range(effect_count()))


class AttributionMetric(Metric[AttributionHypothesis]):
    """Computed from the rounds of a grid; there is no pass."""

    names = ("attribution",)
    hypothesis = AttributionHypothesis

    def judge(self, hypothesis: AttributionHypothesis, evidence: Evidence, *, alpha: float, method: Method) -> Judged:
        """One verdict from the answers on all workloads."""
        effects: list[Effect] = []
        words: set[str] = set()
        answers = []
        for workload in hypothesis.workloads:
            if workload not in evidence.measured:
                continue
            grid = measured_grid(evidence, workload, seed=evidence.seed)
            found = attribute(grid, alpha=alpha, method=method)
            words.add(verdict_on(found, hypothesis.quantity))
            answers.append(f"{workload}: {found.answer} ({found.reason})")
            shown = [found.architecture, found.operations, found.total, *found.effects, found.dummy]
            effects += [_as_effect(one, workload, f"{grid.clock} time") for one in shown]
        if not words:
            return Judged(NOT_MEASURABLE, "this run has no grid")
        both = "depends" if {"supported", "refuted"} <= words else "inconclusive"
        return Judged(words.pop() if len(words) == 1 else both, "; ".join(answers), tuple(effects))


def _as_effect(found: FactorEffect, workload: str, metric: str) -> Effect:
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


METRIC = AttributionMetric()
