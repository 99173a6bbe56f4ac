"""Values that a pass finds out exactly: bytes, lines, the cases of a check. They have no interval and need no alpha."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Generic, TypeVar

from ..evidence.effect import Effect
from ..evidence.evidence import Evidence
from ..spec.hypotheses import ValueHypothesis
from ..store.folder import FINDINGS, RunFolder
from .base import PassContext
from .values import ValueMetric, in_range, no_value

V = TypeVar("V", bound=ValueHypothesis)
Subject = tuple[str, str, str, str, str]
"""Metric, quantity, workload, variant, baseline; "" for what does not apply."""


@dataclass(frozen=True)
class ExactResult:
    """One exact value. `count`: of cases, lengths or files behind it. `reason`: why there is none; it is NaN then."""

    metric: str
    quantity: str
    workload: str
    variant: str
    baseline: str
    value: float
    count: int
    detail: str = ""
    reason: str = ""
    seconds: float = 0.0

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ExactResult:
        """One record of findings.json, as `RunFolder.read_findings` checked it."""
        known = {each.name: record[each.name] for each in fields(cls) if each.name in record}
        value = record["value"]
        return cls(**known | {"value": math.nan if value is None else float(value)})

    @property
    def subject(self) -> Subject:
        """What the value is of."""
        return self.metric, self.quantity, self.workload, self.variant, self.baseline


def no_such_quantity(metric: str, quantity: str, known: Collection[str]) -> str:
    """What to tell who asks for a quantity that no pass finds out; empty where it is known."""
    if quantity in known:
        return ""
    near = difflib.get_close_matches(quantity, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(known)}"
    return f'quantity = "{quantity}" is no {metric}: {hint}'


class ExactMetric(ValueMetric[V], Generic[V]):
    """A metric whose values are exact. Its pass stores them with `store`."""

    def subject(self, hypothesis: V, workload: str) -> Subject:
        """What the hypothesis asks about on a workload."""
        sides = (getattr(hypothesis, "variant", ""), getattr(hypothesis, "baseline", None) or "")
        return self.names[0], getattr(hypothesis, "quantity", ""), workload, *sides

    def store(self, results: Sequence[ExactResult], context: PassContext) -> None:
        """Add results to findings.json, which all exact metrics share."""
        context.folder.write_json(FINDINGS, [*context.folder.read_findings(), *map(asdict, results)])

    def read(self, folder: RunFolder) -> dict[Subject, ExactResult]:
        """The stored results of this metric, by subject."""
        results = (ExactResult.from_json(record) for record in folder.read_findings())
        return {result.subject: result for result in results if result.metric == self.names[0]}

    def effect(self, hypothesis: V, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The value; its interval is a point."""
        subject = self.subject(hypothesis, workload)
        effect = no_value(hypothesis, workload, subject[1] or subject[0])
        result: ExactResult | None = evidence.passes.get(self.names[0], {}).get(subject)
        if result is None:
            return replace(effect, warnings=("this run has not looked",))
        if math.isnan(result.value):
            return replace(effect, warnings=(result.reason or "no value",))
        value = result.value
        effect = replace(effect, ratio=value, low=value, high=value, rounds=result.count, seconds=result.seconds)
        return in_range(effect, hypothesis, *([result.detail] if result.detail else []))
