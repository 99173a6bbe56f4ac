"""What a gate found."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LogitsGate:
    """Whether a variant's logits may be trusted. Errors and tolerance are shares of the largest reference logit.

    unable: whether an engine says itself that it cannot do the workload, which is no failure.
    """

    passed: bool
    detail: str
    cases: int = 0
    max_error: float = math.inf
    tolerance: float = 0.0
    unable: bool = False
