"""Arithmetic on numbers that a document states: nothing is run, and the claim itself has the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from ..evidence.evidence import Evidence
from ..spec.hypotheses import Quantity, RangeHypothesis
from ..store.verdict_schema import Effect
from .base import ValueMetric, in_range, no_such_quantity, no_value

Stated = Annotated[float, Field(gt=0, allow_inf_nan=False, description="a number above 0")]

QUANTITIES: Mapping[str, tuple[str, Callable[[float, float], float]]] = {
    "gain": ("%", lambda before, after: 100 * (before / after - 1)),
    "less_time": ("%", lambda before, after: 100 * (1 - after / before)),
    "share": ("%", lambda part, whole: 100 * part / whole),
    "times": ("times", lambda large, small: large / small),
}
"""What can be computed from two numbers, by the name that a claim uses: its unit, and how."""


class StatedHypothesis(RangeHypothesis):
    """`quantity` of the two `figures`, which a document states."""

    metric: Literal["stated"]
    quantity: Quantity
    figures: tuple[Stated, Stated]

    @property
    def unit(self) -> str:
        return QUANTITIES[self.quantity][0]

    def fault(self) -> str:
        return no_such_quantity(self.metric, self.quantity, QUANTITIES)


class StatedMetric(ValueMetric[StatedHypothesis]):
    """No pass: the claim says all."""

    names = ("stated",)
    about = "Arithmetic on numbers that the documents state; nothing was timed."
    inside = "nothing"
    hypothesis = StatedHypothesis
    is_exact = True

    def effect(self, hypothesis: StatedHypothesis, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The value; its interval is a point."""
        first, second = hypothesis.figures
        value = QUANTITIES[hypothesis.quantity][1](first, second)
        effect = no_value(hypothesis, workload, hypothesis.quantity.replace("_", " "))
        return in_range(
            replace(effect, ratio=value, low=value, high=value, rounds=1), hypothesis, f"from {first:g} and {second:g}"
        )


METRIC = StatedMetric()
