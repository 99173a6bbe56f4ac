"""Do several series together show that their pairs of sides differ, where each alone is too short to?

The sides of each series are the same code, so exchanging them would have been as likely: each value could have had
the other sign. Values of one process, or of one round, may share what disturbed them; so they change signs together,
and the test holds whatever they share.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from .confidence import RESOLUTION
from .dependence import mid_ranks

CHUNKS, A_CHUNK = 9, 1_111  # 9,999 draws of signs, not all in memory at once


@dataclass(frozen=True)
class EqualSides:
    """A series of log ratios of two equal sides. units: of each value, the process or round that it is of."""

    units: Sequence[Hashable]
    values: NDArray[np.float64]


def chance_of_no_difference(series: Sequence[EqualSides]) -> float:
    """Chance that series of sides that do not differ lie as far from 0 as these do together.

    How far: the sum of the squared signed-rank sums, each over its variance. 1 where nothing can be said.
    """
    ranks = _signed_ranks([each for each in series if np.any(each.values)])
    if not ranks.nnz:
        return 1.0
    here, rng = _distance(ranks, np.ones((ranks.shape[1], 1))), np.random.default_rng(0)
    as_far = 0
    for _ in range(CHUNKS):
        signs = rng.integers(0, 2, (ranks.shape[1], A_CHUNK)).astype(np.float64) * 2 - 1
        as_far += int((_distance(ranks, signs) >= here - 1e-9).sum())
    return (1 + as_far) / (1 + CHUNKS * A_CHUNK)


def typical_difference(series: Sequence[EqualSides]) -> float:
    """Standard deviation (log units) of what is true of such series, beyond what their errors explain: by the method of
    moments, around 0 (DerSimonian & Laird 1986)."""
    long = [each.values for each in series if each.values.size > 1]
    errors = np.array([max(float(values.std(ddof=1)), RESOLUTION) / math.sqrt(values.size) for values in long])
    weighted = np.array([float(values.mean()) for values in long]) / errors
    return math.sqrt(max(float(weighted @ weighted) - len(long), 0.0) / float((errors**-2).sum())) if long else 0.0


def _signed_ranks(series: Sequence[EqualSides]) -> csr_matrix:
    """[series, units]: the signed ranks of its values of each unit, over the root of the sum of all squares."""
    places: dict[Hashable, int] = {}
    rows, columns, entries = [], [], []
    for row, sides in enumerate(series):
        ranks = mid_ranks(np.abs(sides.values)) * np.sign(sides.values)
        rows += [row] * ranks.size
        columns += [places.setdefault(unit, len(places)) for unit in sides.units]
        entries += list(ranks / math.sqrt(ranks @ ranks))
    return csr_matrix((entries, (rows, columns)), shape=(len(series), len(places)))


def _distance(ranks: csr_matrix, signs: NDArray[np.float64]) -> NDArray[np.float64]:
    """One number for each column of signs."""
    return np.asarray((np.asarray(ranks @ signs) ** 2).sum(axis=0), dtype=np.float64)
