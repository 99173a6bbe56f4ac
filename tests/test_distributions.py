"""Chances and quantiles without SciPy: against SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from llama_workbench.harness.stats.means import (
    chi_squared_quantile,
    exact_ends,
    normal_chances,
    normal_quantile,
    root,
    student_quantile,
)

CHANCES = (1e-10, 1e-7, 1e-4, 0.005, 0.025, 0.1, 0.4, 0.5)


def test_the_normal_distribution_is_scipys() -> None:
    places = np.linspace(-12, 12, 97)
    assert normal_chances(places) == pytest.approx(special.ndtr(places), rel=1e-13)
    assert [normal_quantile(chance) for chance in CHANCES] == pytest.approx(special.ndtri(CHANCES), abs=1e-12)


@pytest.mark.parametrize("freedom", [1, 1.5, 2, 5.3, 11, 40, 89, 300, 1e4, 1e7, math.inf])
def test_students_quantiles_are_scipys(freedom: float) -> None:
    for chance in CHANCES:
        assert student_quantile(freedom, chance) == pytest.approx(special.stdtrit(freedom, chance), rel=1e-9)
        assert student_quantile(freedom, 1.0) == math.inf and student_quantile(freedom, 0.0) == -math.inf
        above = float(1 - chance)
        assert student_quantile(freedom, above) == pytest.approx(special.stdtrit(freedom, above), rel=1e-9)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 10, 29, 120, 901, 2000])
def test_chi_squared_quantiles_are_scipys(freedom: int) -> None:
    for above in (0.999, *CHANCES[1:]):
        assert chi_squared_quantile(freedom, above) == pytest.approx(special.chdtri(freedom, above), rel=1e-10)


@pytest.mark.parametrize(("count", "of"), [(0, 1), (1, 1), (0, 840), (3, 20), (20, 20), (1666, 5000), (4999, 5000)])
def test_the_interval_of_a_rate_is_scipys(count: int, of: int) -> None:
    for alpha in (0.1, 0.05, 0.001):
        wanted = stats.binomtest(count, of).proportion_ci(1 - alpha, method="exact")
        assert exact_ends(count, of, alpha) == pytest.approx((wanted.low, wanted.high), abs=1e-11)


def test_a_root_lies_between_places_of_different_signs() -> None:
    assert root(math.cos, 0.0, 3.0) == pytest.approx(math.pi / 2, abs=1e-14)
    assert root(lambda place: place**9, -1.0, 2.0) == pytest.approx(0.0, abs=1e-6)
    assert root(lambda place: place - 1, 0.0, 1.0) == 1.0
    with pytest.raises(ValueError, match="one sign"):
        root(math.cosh, -1.0, 1.0)
