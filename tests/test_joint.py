"""Several series of equal sides, judged together."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from llama_workbench.harness.stats.confidence import EqualSides, chance_of_no_difference, typical_difference


def drawn(values: NDArray[np.float64], *, shared: bool = False) -> list[EqualSides]:
    """Series (rows); shared: the k-th values of all are of one process."""
    return [
        EqualSides([place if shared else len(series) * row + place for place in range(len(series))], series)
        for row, series in enumerate(values)
    ]


def test_many_small_differences_of_either_sign_are_seen_where_none_alone_is() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.01, (54, 24))
    shifts = 0.003 * rng.choice([-1.0, 1.0], (54, 1))
    assert chance_of_no_difference(drawn(noise)) > 0.05
    assert chance_of_no_difference(drawn(noise + shifts)) <= 0.001
    assert typical_difference(drawn(noise + shifts)) == pytest.approx(0.003, rel=0.2)
    assert typical_difference(drawn(noise)) < 0.001


def test_what_series_of_one_process_share_is_no_difference() -> None:
    """Twenty series that are one: taken for apart, a chance of 1 % would be reached far more often than that."""
    rng = np.random.default_rng(2)
    rates = []
    for shared in (True, False):
        chances = [
            chance_of_no_difference(drawn(np.tile(rng.normal(0, 0.01, 16), (20, 1)), shared=shared)) for _ in range(60)
        ]
        rates.append(np.mean(np.array(chances) <= 0.05))
    assert rates[0] <= 0.15 < rates[1]


def test_series_that_say_nothing_are_left_out() -> None:
    assert chance_of_no_difference([]) == chance_of_no_difference(drawn(np.zeros((3, 20)))) == 1
    assert typical_difference([]) == typical_difference(drawn(np.zeros((3, 1)))) == 0
