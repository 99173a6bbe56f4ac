"""What a difference of two times is made of, from samples of where each side spends its time. Pure functions.

    samples by place [process] of both sides, and the times of a call → rows that add up to the difference

A row is a place's time of the one side minus its time of the other, a share of a call each. Its interval is over
processes, and all of them hold together: code that is the same shows a row by chance in one comparison of a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .means import student_quantile

LEAST_SHARE = 0.01
"""Places with less of both sides' time are not looked at one by one: each further row makes all intervals wider."""

MOST_ROWS = 24

Samples = tuple[Sequence[int], Sequence[int]]
"""Of the baseline and of the variant, one number a process."""


@dataclass(frozen=True)
class PlaceDifference:
    """How much longer a call of the baseline is in one place, in nanoseconds: negative where the variant is longer.

    baseline_ns, variant_ns: time of a call in that place.
    """

    key: str
    ns: float
    low: float
    high: float
    baseline_ns: float
    variant_ns: float

    @property
    def is_told(self) -> bool:
        """Whether the interval leaves out that there is no difference."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Division:
    """rows: those that can be told from none, the largest first. rest: everything else. They add up to the difference
    of the two times. at_most: by how many nanoseconds one place of the rest may differ."""

    rows: tuple[PlaceDifference, ...]
    rest: PlaceDifference
    at_most: float


def divide(places: Mapping[str, Samples], totals: Samples, call_ns: tuple[float, float], *, alpha: float) -> Division:
    """`places`: by key, samples in each process; `totals`: all of them. `call_ns`: of a call of either side.

    Raises ValueError for fewer than two processes, or a process without samples of a side.
    """
    whole = np.asarray(totals, dtype=np.float64)
    if whole.shape[1] < 2 or not (whole > 0).all():
        raise ValueError("where the time goes is known from two processes or more, each with samples of both sides")
    times = np.asarray(call_ns, dtype=np.float64)[:, None]
    shares = {key: np.asarray(samples, dtype=np.float64) / whole for key, samples in places.items()}
    large = sorted(shares, key=lambda key: -float(shares[key].mean(axis=1).max()))
    looked_at = [key for key in large[:MOST_ROWS] if shares[key].mean(axis=1).max() >= LEAST_SHARE]
    alpha_of_row = alpha / max(len(looked_at), 1)
    rows = [_row(key, shares[key], whole, times, alpha_of_row) for key in looked_at]
    proven = sorted((row for row in rows if row.is_told), key=lambda row: -abs(row.ns))
    small = max((float(shares[key].mean(axis=1).max()) for key in large[len(looked_at) :]), default=0.0)
    at_most = max([small * max(call_ns), *(max(-row.low, row.high) for row in rows if not row.is_told)])
    others = 1 - sum((shares[row.key] for row in proven), np.zeros_like(whole))
    return Division(tuple(proven), _row("", others, whole, times, alpha_of_row), at_most)


def _row(
    key: str, shares: NDArray[np.float64], whole: NDArray[np.float64], times: NDArray[np.float64], alpha: float
) -> PlaceDifference:
    """`shares`, `whole`: [side, process]; `times`: [side, 1]."""
    both = shares * times
    apart = both[0] - both[1]
    processes = len(apart)
    # Few processes may agree by chance; sampling alone makes them differ by this much.
    pooled = (shares * whole).sum(axis=1) / whole.sum(axis=1)
    drawn = float(((times[:, 0] ** 2) * pooled * (1 - pooled) / whole.sum(axis=1)).sum())
    error = math.sqrt(max(float(apart.var(ddof=1)) / processes, drawn))
    reach = student_quantile(processes - 1, 1 - alpha / 2) * error
    ns = float(apart.mean())
    baseline_ns, variant_ns = (float(value) for value in both.mean(axis=1))
    return PlaceDifference(key, ns, ns - reach, ns + reach, baseline_ns, variant_ns)
