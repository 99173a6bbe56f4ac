"""Do several series together show that their pairs of sides differ, where each alone is too short to?

The sides of each series are the same code, so exchanging them would have been as likely: each value could have had
the other sign. Values of one process may share what disturbed them; so they change signs together, and the test holds
whatever they share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .confidence import RESOLUTION
from .dependence import mid_ranks

CHUNKS, A_CHUNK = 9, 1_111  # 9,999 draws of signs, not all in memory at once


@dataclass(frozen=True)
class EqualSides:
    """A series of log ratios of two equal sides. processes: of each value, the number of that which it is of."""

    processes: Sequence[int]
    values: NDArray[np.float64]


def chance_of_no_difference(series: Sequence[EqualSides]) -> float:
    """Chance that series of sides that do not differ lie as far from 0 as these do together.

    How far: the sum of the squared signed-rank sums, each over its variance. 1 where nothing can be said.
    """
    informative = [each for each in series if np.any(each.values)]
    if not informative:
        return 1.0
    places = {
        process: place
        for place, process in enumerate(dict.fromkeys(number for each in informative for number in each.processes))
    }
    ranks = [([places[process] for process in each.processes], _signed_ranks(each.values)) for each in informative]
    here, rng = _distance(ranks, np.ones((len(places), 1))), np.random.default_rng(0)
    as_far = 0
    for _ in range(CHUNKS):
        signs = rng.integers(0, 2, (len(places), A_CHUNK)).astype(np.float64) * 2 - 1
        as_far += int((_distance(ranks, signs) >= here - 1e-9).sum())
    return (1 + as_far) / (1 + CHUNKS * A_CHUNK)


def typical_difference(series: Sequence[EqualSides]) -> float:
    """Standard deviation (log units) of what is true of such series, beyond what their errors explain: by the method of
    moments, around 0 (DerSimonian & Laird 1986)."""
    long = [each.values for each in series if each.values.size > 1]
    errors = np.array([max(float(values.std(ddof=1)), RESOLUTION) / math.sqrt(values.size) for values in long])
    weighted = np.array([float(values.mean()) for values in long]) / errors
    return math.sqrt(max(float(weighted @ weighted) - len(long), 0.0) / float((errors**-2).sum())) if long else 0.0


def _signed_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The signed ranks of a series, over the root of the sum of their squares."""
    ranks = mid_ranks(np.abs(values)) * np.sign(values)
    return ranks / math.sqrt(ranks @ ranks)


def _distance(
    ranks: Sequence[tuple[list[int], NDArray[np.float64]]], signs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """One number for each column of signs, a row a process."""
    return np.sum([(entries @ signs[rows]) ** 2 for rows, entries in ranks], axis=0, dtype=np.float64)
