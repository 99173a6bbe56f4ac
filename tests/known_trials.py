"""A made-up trial of known outcome, for the tests of rates and of the page that shows them."""

from __future__ import annotations

import math
from typing import Any

from llama_workbench.harness.slices.calibrate.known import FUNCTIONS, PLANTED, TWINS
from llama_workbench.harness.slices.calibrate.rates import Trial


def trial(number: int = 0, percent: int = 0, answer: str = "same", **changes: Any) -> Trial:
    """The variant has more work, so that it is slower."""
    truth = -math.log1p(percent / 100)
    facts: dict[str, Any] = {
        "kind": FUNCTIONS, "work": PLANTED if percent else TWINS, "case": "words", "percent": percent,
        "number": number, "clothes": () if percent else ("keys", "order"), "called_with": "fixed", "repeats": 20,
        "log_ratio": truth, "files": f"{number}", "rule": "r", "machine": "CPU, 2 cores", "budget": 8.0, "busy": False,
        "begun": "2026-01-01T00:00:00+00:00", "seed": 1, "answer": answer, "estimate": truth, "low": truth - 0.009,
        "high": truth + 0.009, "rounds": 12, "processes": 12, "fired": 0, "inside": 0.5, "seconds": 12.0, "trouble": "",
    }  # fmt: skip
    return Trial(**facts | changes)
