"""Arithmetic on numbers that a document states: nothing is run, and the claim itself has the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from ..evidence.evidence import Evidence
from ..spec.hypotheses import Quantity, RangeHypothesis
from ..store.verdict_schema import Effect
from .base import ValueMetric, in_range, no_value

Number = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Stated = Annotated[
    Number | tuple[Number, Number],
    Field(description="a number above 0, or the two ends between which it lies: of 9.9, rounded, [9.85, 9.95]"),
]

QUANTITIES: Mapping[str, tuple[str, Callable[[float, float], float]]] = {
    "gain": ("%", lambda before, after: 100 * (before / after - 1)),
    "less_time": ("%", lambda before, after: 100 * (1 - after / before)),
    "share": ("%", lambda part, whole: 100 * part / whole),
    "times": ("times", lambda large, small: large / small),
}
"""What can be computed from two numbers, by the name that a claim uses: its unit, and how."""


class StatedHypothesis(RangeHypothesis):
    """`quantity` of the two `figures`, which a document states."""

    quantities = QUANTITIES

    metric: Literal["stated"]
    quantity: Quantity
    figures: tuple[Stated, Stated]

    @property
    def unit(self) -> str:
        return QUANTITIES[self.quantity][0]


class StatedMetric(ValueMetric[StatedHypothesis]):
    """No pass: the claim says all."""

    names = ("stated",)
    about = "Arithmetic on numbers that the documents state; nothing was timed."
    inside = "nothing"
    hypothesis = StatedHypothesis
    is_exact = True

    def effect(self, hypothesis: StatedHypothesis, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The value, and all that it may be where the figures are not known to the last digit."""
        compute = QUANTITIES[hypothesis.quantity][1]
        ends = [figure if isinstance(figure, tuple) else (figure, figure) for figure in hypothesis.figures]
        value = compute(*(sum(each) / 2 for each in ends))
        values = [compute(first, second) for first in ends[0] for second in ends[1]]
        effect = no_value(hypothesis, workload, hypothesis.quantity.replace("_", " "))
        effect = replace(effect, ratio=value, low=min(values), high=max(values), rounds=1)
        figures = " and ".join(" to ".join(f"{end:g}" for end in dict.fromkeys(each)) for each in ends)
        return in_range(effect, hypothesis, f"from {figures}")


METRIC = StatedMetric()
