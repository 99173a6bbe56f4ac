"""Whether something works, tried case by case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from ...spec.hypotheses import Quantity, ValueHypothesis
from ...spec.regions import Range
from ...store.pass_schema import ExactResult
from ..base import ExactMetric, PassContext, no_such_quantity
from .checks import CHECKS, CheckError, run_check


class CheckHypothesis(ValueHypothesis):
    """Every case of the check `quantity` passes."""

    metric: Literal["check"]
    quantity: Quantity

    @property
    def region(self) -> Range:
        return Range(100.0, 100.0, self.unit)

    def describe(self) -> str:
        return "every case passes"

    def fault(self) -> str:
        return no_such_quantity(self.metric, self.quantity, CHECKS)


class CheckMetric(ExactMetric[CheckHypothesis]):
    """Each check runs in a process of its own; its value is the percentage of cases that pass."""

    names = ("check",)
    about = "Whether something works, tried case by case; nothing was timed."
    inside = "nothing"
    hypothesis = CheckHypothesis
    title = "check: what works and what does not"
    needs_cache = True

    def run(self, hypotheses: Sequence[CheckHypothesis], context: PassContext) -> None:
        """Run every check once."""
        quantities = dict.fromkeys(hypothesis.quantity for hypothesis in hypotheses)
        results = []
        for index, quantity in enumerate(quantities):
            context.progress.step(f"check {quantity}", index / len(quantities), math.nan)
            results.append(_checked(quantity, context))
        self.store(results, context)


def _checked(quantity: str, context: PassContext) -> ExactResult:
    subject = ("check", quantity, "", "", "")
    try:
        cases, seconds = run_check(quantity, cache=context.cache, seed=context.seed, log=context.log("checks"))
    except CheckError as error:
        return ExactResult(*subject, math.nan, 0, reason=str(error))
    if not cases:
        return ExactResult(*subject, math.nan, 0, reason="the check tried nothing", seconds=seconds)
    failed = [case for case in cases if not case.passed]
    detail = "; ".join(f"{case.name}: {case.detail}" for case in failed) or f"all {len(cases)} cases pass"
    return ExactResult(*subject, 100 * (1 - len(failed) / len(cases)), len(cases), detail=detail, seconds=seconds)


METRIC = CheckMetric()
