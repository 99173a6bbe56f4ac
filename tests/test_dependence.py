"""The test of dependence: how often it is wrong, and what it sees."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from llama_workbench.harness.stats.means import LEVEL, dependence, is_dependent, mid_ranks
from studies.simulated_rates import HORIZON, PLANS, normal, settled, stops, wandering


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
