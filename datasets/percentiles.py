"""Percentiles of the times of single calls: which ones there are, and how many calls a process needs for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Statistic = Literal["p90", "p95", "p99"]

PERCENTILES: Mapping[str, float] = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
"""By name, the share of calls that take no longer."""

BEYOND = 2
"""So many calls of a life should take longer than its percentile: with fewer that is hardly more than its slowest."""


def least_calls(statistic: str | None) -> int:
    """Calls of each side that a life must have for this percentile; 0 for none."""
    return round(BEYOND / (1 - PERCENTILES[statistic])) if statistic else 0
