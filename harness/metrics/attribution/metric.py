"""What a speed-up is due to: architecture, operations, both or neither."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Literal

from pydantic import Field

from ...evidence.evidence import Evidence
from ...spec.hypotheses import Names, ValueHypothesis
from ...store.schema import Effect
from ..base import NOT_MEASURABLE, Judged, Metric
from .effects import attribute, measured_grid, verdict_on
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
        return f"the speed-up is due to {self.quantity}"

    def grid(self) -> tuple[str, ...]:
        return needed_variants()

    def intervals(self) -> frozenset[Hashable]:
        return frozenset((self.metric, name, number) for name in self.workloads for number in range(effect_count()))


class AttributionMetric(Metric[AttributionHypothesis]):
    """Computed from the rounds of a grid; there is no pass."""

    names = ("attribution",)
    hypothesis = AttributionHypothesis

    def judge(self, hypothesis: AttributionHypothesis, evidence: Evidence, *, alpha: float) -> Judged:
        """One verdict from the answers on all workloads."""
        effects: list[Effect] = []
        words: set[str] = set()
        answers = []
        for workload in hypothesis.workloads:
            if workload not in evidence.measured:
                continue
            found = attribute(measured_grid(evidence, workload, seed=evidence.seed), alpha=alpha)
            words.add(verdict_on(found, hypothesis.quantity))
            answers.append(f"{workload}: {found.answer} ({found.reason})")
            effects += found.effects.values()
        if not words:
            return Judged(NOT_MEASURABLE, "this run has no grid")
        both = "depends" if {"supported", "refuted"} <= words else "inconclusive"
        return Judged(words.pop() if len(words) == 1 else both, "; ".join(answers), tuple(effects))


METRIC = AttributionMetric()
