"""What is compared with what, and by which time."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Metric = Literal["time", "time_to_first_token", "time_per_output_token"]
TIMES: tuple[str, ...] = get_args(Metric)
"""Metrics that compare two sides; those of tokens need a workload that generates."""


class Comparison(NamedTuple):
    """One effect that a hypothesis is about: `variant` against `baseline` on `workload`, by one of TIMES."""

    workload: str
    variant: str
    baseline: str
    metric: Metric = "time"

    @property
    def sides(self) -> frozenset[str]:
        """Both variants, whichever is called the baseline."""
        return frozenset((self.variant, self.baseline))
