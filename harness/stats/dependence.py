"""Do the values of a series depend on when they were measured? A test by permutations, fixed beforehand.

An interval takes the values to be independent. They are not where each resembles the one before, or where they drift
while they are measured. Either shows in the order of their ranks, and in no order that a shuffle makes more often than
by chance. docs/concepts/statistics.md says how often that is seen.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.01
"""Chance that independent values are called dependent."""

CHUNKS, A_CHUNK = 9, 1_111  # 9,999 permutations, not all in memory at once


def dependence(values: ArrayLike) -> float:
    """Chance that independent values show as much dependence on their order as these; 1 where nothing can be said."""
    series = np.asarray(values, dtype=np.float64)
    if series.size < 3 or np.ptp(series) == 0:
        return 1.0
    chances = _by_chance(series.size)
    here = _statistic(mid_ranks(series))
    return float((1 + chances.size - np.searchsorted(chances, here - 1e-9)) / (1 + chances.size))


def is_dependent(values: ArrayLike) -> bool:
    """Whether these values cannot be taken for independent."""
    return dependence(values) <= LEVEL


def mid_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1 on; equal values have their mean rank. (To import scipy.stats for its own takes a second.)"""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places], dtype=np.float64)


def _statistic(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """The larger one of two about standard normal deviates, over the last axis: how much each rank resembles the next
    (serial correlation, as in the rank test of Bartels 1982), and how much they rise or fall (Spearman's, by time)."""
    count = ranks.shape[-1]
    time = np.arange(count) - (count - 1) / 2
    centred = ranks - ranks.mean(axis=-1, keepdims=True)
    squares = (centred**2).sum(axis=-1)
    serial = (centred[..., 1:] * centred[..., :-1]).sum(axis=-1) / squares * math.sqrt(count) + 1 / math.sqrt(count)
    drift = np.abs(centred @ time) / np.sqrt(squares * (time @ time)) * math.sqrt(count - 1)
    return np.maximum(serial, drift)


@lru_cache(maxsize=512)
def _by_chance(count: int) -> NDArray[np.float64]:
    """The statistic of so many ranks in random orders, from the least on; the same ones whenever it is asked for."""
    rng = np.random.default_rng(count)
    orders = np.tile(np.arange(count, dtype=np.float64), (A_CHUNK, 1))
    return np.sort(np.concatenate([_statistic(rng.permuted(orders, axis=1)) for _ in range(CHUNKS)]))
