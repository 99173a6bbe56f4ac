"""Trimmed means, the difference of two, and what many of them differ by: against scipy, statsmodels and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from llama_workbench.harness.stats.means import TRIMMED, Mean, between_variance, most_between_variance, trimmed_mean


@pytest.mark.parametrize(("first", "second", "spread"), [(12, 12, 1.0), (15, 31, 2.0), (60, 13, 0.3)])
def test_the_difference_of_two_samples_is_scipys(first: int, second: int, spread: float) -> None:
    rng = np.random.default_rng(first)
    a, b = rng.standard_t(3, first), 0.4 + spread * rng.standard_t(3, second)
    one, other = trimmed_mean(a), trimmed_mean(b)
    assert one is not None and other is not None
    oracle = stats.ttest_ind(a, b, equal_var=False, trim=TRIMMED)
    apart = one.minus(other)
    assert (apart.freedom, apart.centre / apart.error) == pytest.approx((oracle.df, oracle.statistic))
    assert apart.ends(0.01) == pytest.approx(tuple(oracle.confidence_interval(0.99)))


def test_a_value_far_out_moves_a_mean_by_little() -> None:
    values = np.random.default_rng(1).normal(0, 0.01, 20)
    before, after = trimmed_mean(values), trimmed_mean(np.where(np.arange(20) == 7, 5.0, values))
    assert before is not None and after is not None
    assert abs(after.centre - before.centre) < 0.005 and after.error < 2 * before.error


def test_too_few_values_have_no_mean_and_equal_ones_an_error() -> None:
    assert trimmed_mean([]) is trimmed_mean([0.3]) is None
    assert trimmed_mean([0.25, 0.25, 0.25], resolution=1e-4) == Mean(0.25, 1e-4, 2.0)


def test_a_known_error_adds_no_uncertainty_of_its_own() -> None:
    both = Mean(0.1, 0.03, 8.0).plus(Mean(0.2, 0.04, math.inf))
    assert (both.centre, both.error) == pytest.approx((0.3, 0.05))
    assert both.freedom == pytest.approx(8.0 * (5 / 3) ** 4)
    assert Mean(0.0, 1.0, math.inf).ends(0.05)[1] == pytest.approx(1.96, abs=0.001)
    assert Mean(0.0, 0.0, 3.0).minus(Mean(0.0, 0.0, 3.0)).ends(0.01) == (0.0, 0.0)


@pytest.mark.parametrize("noise", ["normal", "busy"])
def test_the_interval_of_two_samples_misses_as_often_as_it_says(noise: str) -> None:
    rng = np.random.default_rng(5)
    misses, trials = 0, 3000
    for _ in range(trials):
        a, b = rng.standard_normal(14), 2 * rng.standard_normal(30)
        if noise == "busy":  # one life in ten is disturbed, and always the same way
            b += 20 * (rng.random(30) < 0.1)
        low, high = trimmed_mean(a).minus(trimmed_mean(b)).ends(0.01)  # type: ignore[union-attr, arg-type]
        misses += not low <= 0 <= high
    assert misses / trials < 0.02


def test_variance_between_is_that_of_statsmodels_and_its_bound_holds() -> None:
    rng = np.random.default_rng(2)
    below, trials, true = 0, 400, 0.5
    for _ in range(trials):
        errors = rng.uniform(0.3, 1.0, 10)
        centres = true * rng.standard_normal(10) + errors * rng.standard_normal(10)
        below += math.sqrt(most_between_variance(centres, errors, 0.05)) < true
    assert 0.02 < below / trials < 0.09
    oracle = combine_effects(centres, errors**2, method_re="iterated").tau2
    assert between_variance(centres, errors) == pytest.approx(max(oracle, 0.0), abs=1e-6)
    assert most_between_variance([0.1], [0.1], 0.05) == math.inf
