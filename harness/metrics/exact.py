"""Values that a pass finds out exactly: bytes, lines, the cases of a check. They have no interval and need no alpha."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from ..evidence.evidence import Evidence
from ..spec.hypotheses import ValueHypothesis
from ..store import pass_schema
from ..store.files import FINDINGS
from ..store.folder import RunFolder
from ..store.pass_schema import ExactResult, Subject
from ..store.schema import Effect
from .base import PassContext
from .values import ValueMetric, in_range, no_value

V = TypeVar("V", bound=ValueHypothesis)


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
        context.folder.write_json(FINDINGS, [*context.folder.records(FINDINGS), *results])

    def read(self, folder: RunFolder) -> dict[Subject, ExactResult]:
        """The stored results of this metric, by subject."""
        results = pass_schema.FINDINGS.validate_python(folder.records(FINDINGS))
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
