"""Trimmed means, the difference of two, and what many of them differ by: against scipy, statsmodels and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats
from statsmodels.stats.meta_analysis import combine_effects

from llama_workbench.harness.stats.confidence import EqualSides, chance_of_no_difference, typical_difference
from llama_workbench.harness.stats.means import (
    LEVEL,
    TRIMMED,
    Mean,
    between_variance,
    dependence,
    exact_ends,
    is_dependent,
    mid_ranks,
    normal_chances,
    normal_quantile,
    root,
    student_quantile,
    trimmed_mean,
)
from studies.simulated_rates import HORIZON, PLANS, normal, settled, stops, wandering


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
        if noise == "busy":  # one process in ten is disturbed, and always the same way
            b += 20 * (rng.random(30) < 0.1)
        low, high = trimmed_mean(a).minus(trimmed_mean(b)).ends(0.01)  # type: ignore[union-attr, arg-type]
        misses += not low <= 0 <= high
    assert misses / trials < 0.02


def test_variance_between_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(2)
    errors = rng.uniform(0.3, 1.0, 10)
    centres = 0.5 * rng.standard_normal(10) + errors * rng.standard_normal(10)
    oracle = combine_effects(centres, errors**2, method_re="iterated").tau2
    assert between_variance(centres, errors) == pytest.approx(max(oracle, 0.0), abs=1e-6)


# Several series of equal sides, judged together.


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


# Chances and quantiles without SciPy: against SciPy.


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


# The test of dependence: how often it is wrong, and what it sees.


def share_seen(series: NDArray[np.float64]) -> float:
    """Of the series (rows), how many are called dependent."""
    return float(np.mean([is_dependent(values) for values in series]))


@pytest.mark.parametrize("count", [12, 24, 60, 112])
def test_independent_values_are_called_dependent_as_seldom_as_said(count: int) -> None:
    trials = 3000
    heavy = np.random.default_rng(3).standard_t(2, (trials, count))
    assert share_seen(heavy) == pytest.approx(LEVEL, abs=4 * np.sqrt(LEVEL / trials))


@pytest.mark.parametrize(
    ("correlation", "count", "least"), [(0.5, 37, 0.45), (0.5, 112, 0.95), (0.8, 24, 0.7), (0.2, 112, 0.2)]
)
def test_values_that_resemble_the_one_before_are_seen(correlation: float, count: int, least: float) -> None:
    assert share_seen(wandering(np.random.default_rng(4), (300, count), correlation=correlation)) > least


@pytest.mark.parametrize(("deviations", "least"), [(1, 0.5), (2, 0.99)])
def test_a_drift_is_seen_either_way(deviations: float, least: float) -> None:
    drift = np.linspace(0, deviations, 112)
    for sign in (1, -1):
        assert share_seen(normal(np.random.default_rng(5), (200, 112)) + sign * drift) > least


def test_what_is_decided_early_hides_its_dependence_and_all_values_show_it() -> None:
    d = wandering(np.random.default_rng(8), (600, HORIZON), correlation=0.5)
    stopped = stops(d, PLANS["horizon"])
    early, whole = settled(d, stopped), settled(d, np.where(stopped, HORIZON, 0))
    assert whole < 0.01 < 0.05 < early < 0.15 < np.mean(stopped > 0)


def test_values_that_avoid_the_one_before_are_no_harm() -> None:
    """Their mean is known better than the interval says."""
    assert not is_dependent(np.resize([1.0, -1.0], 60) + np.random.default_rng(6).normal(0, 0.1, 60))


def test_the_chance_of_a_drift_is_that_of_its_rank_correlation() -> None:
    values = np.random.default_rng(2).permutation(40) + np.linspace(0, 22, 40)
    alone = float(stats.spearmanr(np.arange(40), values).pvalue)
    assert alone <= dependence(values) <= 2 * alone  # the larger of two deviates


def test_ranks_are_those_of_scipy() -> None:
    values = np.random.default_rng(1).integers(0, 9, 40).astype(float)
    assert (mid_ranks(values) == stats.rankdata(values)).all()


def test_the_answer_is_the_same_each_time_and_depends_on_ranks_alone() -> None:
    values = np.random.default_rng(7).normal(0, 1, 50).cumsum()
    assert dependence(values) == dependence(np.exp(values)) == dependence(values.copy())


@pytest.mark.parametrize("values", [[], [0.1], [0.1, 0.2], [0.3] * 40])
def test_where_nothing_can_be_said_nothing_is(values: list[float]) -> None:
    assert dependence(values) == 1
