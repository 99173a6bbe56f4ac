"""What nobody can measure here; the claim says why."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..evidence.evidence import Evidence
from ..spec.hypotheses import Text, ValueHypothesis
from ..spec.words import Word
from .base import Judged, Metric


class UnmeasurableHypothesis(ValueHypothesis):
    """A claim, or a part of one, that no run can settle."""

    metric: Literal["none"]
    reason: Annotated[Text, Field(description="a text of one sentence")]

    def title(self) -> str:
        return f"none: {self.reason}"

    def describe(self) -> str:
        return ""


class UnmeasurableMetric(Metric[UnmeasurableHypothesis]):
    """No pass, no effect."""

    names = ("none",)
    about = "Nothing: nobody can measure this here."
    inside = "nothing"
    hypothesis = UnmeasurableHypothesis

    def judge(self, hypothesis: UnmeasurableHypothesis, evidence: Evidence, *, alpha: float) -> Judged:
        return Judged(Word.NOT_MEASURABLE, hypothesis.reason)


METRIC = UnmeasurableMetric()
