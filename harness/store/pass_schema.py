"""What several passes of a run write alike. The files of a pass are declared beside its code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .forms import Amount, Count, Shape, Text, Value, says

Subject = tuple[str, str, str, str, str]
"""(metric, quantity, workload, variant, baseline), with "" for what does not apply."""


@dataclass(frozen=True)
class ExactResult:
    """One exact result of a pass: bytes, lines, the share of cases that pass a check."""

    metric: Annotated[Text, says("memory, count or check")]
    quantity: Annotated[Text, says("what was counted or checked")]
    workload: Annotated[Text, says("on which workload; may be empty")]
    variant: Annotated[Text, says("of which variant; may be empty")]
    baseline: Annotated[Text, says("over which other variant; may be empty")]
    value: Annotated[Value, says("the result; null: none")]
    count: Annotated[Count, says("number of cases behind it")]
    detail: Annotated[Text, says("the cases, in words")] = ""
    reason: Annotated[Text, says("why there is no value")] = ""
    seconds: Annotated[Amount, says("time that it took, seconds")] = 0.0

    @property
    def subject(self) -> Subject:
        """What the value is of."""
        return self.metric, self.quantity, self.workload, self.variant, self.baseline


class OfVariant(Shape):
    """What a pass found of a variant."""

    workload: Annotated[Text, says("on which workload")]
    variant: Annotated[Text, says("of which variant")]
