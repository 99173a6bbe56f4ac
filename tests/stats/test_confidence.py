"""The intervals against independent formulas, and against the error rates that they promise."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from llama_workbench.harness.stats.confidence import (
    EARLY_SHARE,
    EXACT_ROUNDS,
    KEPT,
    RESOLUTION,
    SPENT,
    LookPlan,
    first_interval,
    looks_reached,
    next_look,
    pseudo_median,
    running_bounds,
    running_interval,
)
from studies.simulated_rates import EARLY_NOISE, SYMMETRIC, coin, early_misses, miss, normal, outside

ALPHA = 0.01
PLANNED = [12, 15, 19, 24, 30, 37, 46, 58, 72, 90, 112, 140, 175, 219, 273, 342]

# -- the looks ---------------------------------------------------------------------------------------------------------


def test_looks_are_planned_and_do_not_depend_on_the_data() -> None:
    assert [look.rounds for look in looks_reached(400, ALPHA)] == PLANNED
    assert [look.rounds for look in looks_reached(400, 0.001)] == PLANNED[1:]  # 12 rounds can say nothing so sure
    assert (first_interval(ALPHA), first_interval(0.001), first_interval(0.0001)) == (12, 15, 19)
    assert (next_look(0, ALPHA), next_look(12, ALPHA), next_look(14, ALPHA)) == (12, 15, 15)


def test_early_looks_come_before_the_others_and_leave_them_nearly_all_of_alpha() -> None:
    plan = LookPlan(ALPHA, 24, early=True)
    assert [look.rounds for look in looks_reached(30, plan)] == [4, 6, 8, 12, 15, 19, 24, 30]
    assert (first_interval(plan), next_look(4, plan), next_look(8, plan)) == (4, 6, 12)
    later = [look for look in looks_reached(30, plan) if look.rank]
    assert later == looks_reached(30, LookPlan((1 - EARLY_SHARE) * ALPHA, 24))


def test_an_early_look_is_students_and_tells_large_differences_alone() -> None:
    plan, d = LookPlan(ALPHA, 24, early=True), math.log(4) + 0.02 * np.array([1.0, -1.0, 0.5, -0.5])
    found = running_interval(d, plan)
    assert math.exp(found.low) == pytest.approx(4 / 1.75) and math.exp(found.high) == pytest.approx(4 * 1.75)
    assert running_interval(d[:3], plan).high == math.inf
    wide = running_interval(math.log(4) + np.array([1.0, -1.0, 0.5, -0.5]), plan)
    half = stats.t.ppf(1 - EARLY_SHARE * ALPHA / 6, 3) * np.std([1.0, -1.0, 0.5, -0.5], ddof=1) / 2
    assert (wide.high - wide.low) / 2 == pytest.approx(half) and wide.low < 0
    eight = running_interval(np.tile(d, 2), plan)
    assert math.exp(eight.low) == pytest.approx(4 / 1.25), "each look but narrows it"


@pytest.mark.parametrize("noise", EARLY_NOISE)
def test_early_looks_leave_out_the_truth_less_often_than_they_may(noise: str) -> None:
    """Also where processes are of two kinds, of which so few may all be of one."""
    rate = early_misses(20_000, EARLY_NOISE[noise], np.random.default_rng(3))
    assert rate <= EARLY_SHARE * ALPHA + 3 * math.sqrt(EARLY_SHARE * ALPHA / 20_000)


def test_a_look_is_the_signed_rank_test_of_scipy() -> None:
    for look in looks_reached(50, ALPHA):
        spend = 2 * float(stats.norm.sf(look.critical))
        n = np.arange(1, look.rounds + 1)

        def p_value(rank: int, n: NDArray[np.int64] = n) -> float:
            """Of differences whose signed-rank sum is `rank` - 1."""
            signs, left = np.ones(len(n)), rank - 1
            for value in n[::-1]:
                if value <= left:
                    left -= value
                else:
                    signs[value - 1] = -1
            return float(stats.wilcoxon(n * signs, method="exact").pvalue)

        assert p_value(look.rank) <= spend < p_value(look.rank + 1)


def test_beyond_exact_ranks_the_normal_limit_goes_on() -> None:
    here, beyond = (look for look in looks_reached(PLANNED[12], ALPHA) if look.rounds in (140, 175))
    assert here.rounds <= EXACT_ROUNDS < beyond.rounds
    for look in (here, beyond):
        limit = look.rounds * (look.rounds + 1) / 4 - look.critical * math.sqrt(
            look.rounds * (look.rounds + 1) * (2 * look.rounds + 1) / 24
        )
        assert look.rank == pytest.approx(limit, abs=2 + 0.01 * limit)


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
def test_each_look_spends_its_share_of_alpha_on_a_random_walk(alpha: float) -> None:
    """Share of walks that leave the borders at a look for the first time, against what it may spend."""
    planned = looks_reached(120, alpha)
    rounds = np.array([look.rounds for look in planned])
    rng, trials = np.random.default_rng(1), 400_000
    steps = np.sqrt(np.diff(rounds, prepend=0))
    where = np.zeros(trials)
    inside = np.ones(trials, dtype=bool)
    for index, look in enumerate(planned):
        where += steps[index] * rng.standard_normal(trials)
        leaves = inside & (np.abs(where) > look.critical * math.sqrt(look.rounds))
        inside &= ~leaves
        spend = alpha * SPENT * (1 - SPENT) ** index
        assert leaves.mean() == pytest.approx(spend, abs=4 * math.sqrt(spend / trials))


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_alpha_outside_its_range_is_an_error(alpha: float) -> None:
    for ask in (lambda: first_interval(alpha), lambda: running_interval([], alpha)):
        with pytest.raises(ValueError, match="alpha"):
            ask()


# -- looks along a horizon ---------------------------------------------------------------------------------------------


def test_a_plan_without_a_horizon_is_alpha_alone() -> None:
    assert looks_reached(400, LookPlan(ALPHA)) == looks_reached(400, ALPHA)
    d = np.random.default_rng(1).normal(0, 0.01, 60)
    assert running_interval(d, LookPlan(ALPHA)) == running_interval(d, ALPHA)
    assert running_interval(d, LookPlan(ALPHA, one_sided=True)) == running_interval(d, 2 * ALPHA)


def test_alpha_spent_along_the_horizon_makes_its_last_interval_narrow() -> None:
    """Standard errors of a mean to either side, after 112 rounds; a single look would have 2.58, one-sided 2.33."""
    plans = ALPHA, LookPlan(ALPHA, 112), LookPlan(ALPHA, 112, one_sided=True)
    assert [round(looks_reached(112, plan)[-1].critical, 2) for plan in plans] == [3.41, 2.94, 2.69]


@pytest.mark.parametrize(
    ("horizon", "planned"),
    [
        (5, [12, 15, 19, 24, 30, 37]),
        (13, [13, 17, 21, 26, 32, 40]),
        (40, [12, 15, 19, 24, 30, 40, 50]),
        (112, [*PLANNED[:11], 140, 175]),
        (400, [*PLANNED[1:15], 342, 400, 500]),
    ],
)
def test_there_is_a_look_at_the_horizon_and_none_shortly_before(horizon: int, planned: list[int]) -> None:
    assert [look.rounds for look in looks_reached(planned[-1], LookPlan(ALPHA, horizon))] == planned


@pytest.mark.parametrize(
    ("horizon", "one_sided", "first"),
    [(221, False, 12), (222, False, 15), (442, True, 12), (443, True, 15), (2211, False, 15), (2212, False, 19)],
)
def test_the_first_interval_waits_until_alpha_is_enough_to_exclude_anything(
    horizon: int, one_sided: bool, first: int
) -> None:
    assert first_interval(LookPlan(ALPHA, horizon, one_sided)) == first
    assert all(look.rank > 0 for look in looks_reached(20_000, LookPlan(ALPHA, horizon, one_sided)))


@pytest.mark.parametrize("one_sided", [False, True])
def test_looks_along_a_horizon_spend_in_proportion_and_keep_some(one_sided: bool) -> None:
    """Share of walks that left the borders by a look, against what all looks so far may spend."""
    plan, horizon, trials = LookPlan(ALPHA, 60, one_sided), 60, 400_000
    planned = looks_reached(118, plan)
    steps = np.sqrt(np.diff([look.rounds for look in planned], prepend=0))
    where, left = np.zeros(trials), np.zeros(trials, dtype=bool)
    rng = np.random.default_rng(2)
    for step, look in zip(steps, planned, strict=True):
        where += step * rng.standard_normal(trials)
        left |= np.abs(where) > look.critical * math.sqrt(look.rounds)
        beyond = [each for each in planned if horizon < each.rounds <= look.rounds]
        share = min(look.rounds / horizon, 1) * (1 - KEPT) if not beyond else 1 - KEPT * (1 - SPENT) ** len(beyond)
        spent = plan.of_both_ends * share
        assert left.mean() == pytest.approx(spent, abs=4 * math.sqrt(spent / trials))


@pytest.mark.parametrize("noise", SYMMETRIC)
def test_with_a_horizon_any_look_misses_the_truth_as_seldom(noise: str) -> None:
    d = SYMMETRIC[noise](np.random.default_rng(7), (TRIALS, 112))
    assert miss(d, LookPlan(ALPHA, 90)).mean() <= ALPHA + 3 * math.sqrt(ALPHA / TRIALS)
    for end in outside(d, LookPlan(ALPHA, 90, one_sided=True), 0.0):
        assert 0.5 * ALPHA <= end.mean() <= ALPHA + 3 * math.sqrt(ALPHA / TRIALS)


@pytest.mark.parametrize("horizon", [0, -1])
def test_a_horizon_of_nothing_is_an_error(horizon: int) -> None:
    with pytest.raises(ValueError, match="horizon"):
        LookPlan(ALPHA, horizon)


# -- one series --------------------------------------------------------------------------------------------------------

series_of_floats = st.lists(st.floats(-1, 1), min_size=1, max_size=40)


@given(series_of_floats)
@settings(max_examples=60, deadline=None)
def test_the_interval_is_the_intersection_of_the_looks(d: list[float]) -> None:
    low, high, last = -math.inf, math.inf, (-math.inf, math.inf)
    for look in looks_reached(len(d), ALPHA):
        means = sorted((d[i] + d[j]) / 2 for i in range(look.rounds) for j in range(i, look.rounds))
        last = means[look.rank - 1] - RESOLUTION, means[-look.rank] + RESOLUTION
        low, high = max(low, last[0]), min(high, last[1])
    interval = running_interval(d, ALPHA)
    assert interval.n == len(d)
    assert interval.unstable == (low > high)
    assert (interval.low, interval.high) == pytest.approx(last if interval.unstable else (low, high), abs=1e-12)
    lows, highs = running_bounds(d, ALPHA)
    assert (lows[-1], highs[-1]) == pytest.approx((low, high), abs=1e-12)


@given(st.lists(st.integers(-20, 20), min_size=12, max_size=14, unique=True), st.integers(-22, 22))
@settings(max_examples=100, deadline=None)
def test_the_interval_holds_what_the_signed_rank_test_does_not_reject(values: list[int], where: int) -> None:
    d = np.array(values[:12], dtype=float)
    truth = where + 0.25  # no tie and no difference of nil
    interval = running_interval(d, ALPHA)
    spend = 2 * float(stats.norm.sf(looks_reached(12, ALPHA)[0].critical))
    p_value = float(stats.wilcoxon(d - truth + 1e-6 * np.arange(12), method="exact").pvalue)
    assert (interval.low <= truth <= interval.high) == (p_value > spend)


@given(series_of_floats, st.floats(-50, 50))
@settings(max_examples=60, deadline=None)
def test_shifting_the_series_shifts_the_interval(d: list[float], shift: float) -> None:
    here = running_interval(d, ALPHA)
    there = running_interval(np.array(d) + shift, ALPHA)
    assert there.unstable == here.unstable
    assert (there.low, there.high, there.centre) == pytest.approx(
        (here.low + shift, here.high + shift, here.centre + shift), abs=1e-7
    )


@given(series_of_floats)
@settings(max_examples=60, deadline=None)
def test_changing_all_signs_mirrors_the_interval(d: list[float]) -> None:
    here = running_interval(d, ALPHA)
    mirrored = running_interval(-np.array(d), ALPHA)
    assert (mirrored.low, mirrored.high) == pytest.approx((-here.high, -here.low), abs=1e-12)
    assert mirrored.centre == pytest.approx(-here.centre, abs=1e-12)


def test_the_interval_only_ever_narrows_and_only_at_looks() -> None:
    d = np.random.default_rng(0).normal(0, 0.01, 200)
    d[100:] *= 5
    low, high = running_bounds(d, ALPHA)
    assert (low[1:] >= low[:-1]).all() and (high[1:] <= high[:-1]).all()
    changed = {n + 1 for n in range(1, 200) if (low[n], high[n]) != (low[n - 1], high[n - 1])}
    assert 12 in changed and changed <= set(PLANNED)
    for n in (1, 11, 12, 13, 100):  # a look does not know what comes after it
        assert np.array_equal(running_bounds(d[:n], ALPHA)[0], low[:n])
    interval = running_interval(d, ALPHA)
    assert (interval.low, interval.high) == (low[-1], high[-1])


def test_too_few_rounds_give_no_bounds() -> None:
    nothing = running_interval([], ALPHA)
    assert (nothing.n, nothing.low, nothing.high) == (0, -math.inf, math.inf) and math.isnan(nothing.centre)
    one = running_interval([0.25], ALPHA)
    assert (one.n, one.centre, one.low, one.high) == (1, 0.25, -math.inf, math.inf)
    d = np.random.default_rng(0).normal(0, 0.01, 12)
    assert math.isinf(running_interval(d[:11], ALPHA).high)
    assert math.isfinite(running_interval(d, ALPHA).high)


def test_equal_differences_do_not_make_certainty() -> None:
    for n in (12, 13, 50, 200):
        interval = running_interval(np.full(n, 0.02), ALPHA)
        assert (interval.low, interval.high) == pytest.approx((0.02 - RESOLUTION, 0.02 + RESOLUTION))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_difference_that_is_no_number_is_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        running_interval([0.1, bad, 0.2], ALPHA)


def test_several_series_at_once_are_an_error() -> None:
    with pytest.raises(ValueError, match="one series"):
        running_interval([[0.1, 0.2]], ALPHA)


def test_an_effect_that_drifts_is_called_unstable() -> None:
    rng = np.random.default_rng(1)
    d = np.concatenate([rng.normal(0, 0.01, 100), rng.normal(1, 0.01, 300)])
    assert not running_interval(d[:100], ALPHA).unstable
    interval = running_interval(d, ALPHA)
    assert interval.unstable and interval.low < interval.centre < interval.high


def test_skewed_differences_have_an_interval_of_their_pseudo_median() -> None:
    d = np.random.default_rng(1).exponential(0.01, 2000)
    interval = running_interval(d, ALPHA)
    assert not interval.unstable
    assert interval.low < 0.01 * float(stats.gamma.ppf(0.5, 2)) / 2 < interval.high
    assert interval.centre == pytest.approx(pseudo_median(d))


def test_the_centre_lies_in_the_interval() -> None:
    # A late drift moves the centre out of the intersection while the intervals still have points in common.
    d = np.random.default_rng(2).normal(0, 0.01, 60)
    outside = 0
    for step in range(60):
        interval = running_interval(d, ALPHA)
        assert not interval.unstable and interval.low <= interval.centre <= interval.high
        outside += not interval.low <= pseudo_median(d) <= interval.high
        d = np.append(d, 0.001 * step)
    assert outside > 5  # the loop went through the case that is meant


# -- error rates -------------------------------------------------------------------------------------------------------

TRIALS, ROUNDS = 5000, 219


def test_the_signed_rank_sum_says_what_the_interval_says() -> None:
    for d in np.random.default_rng(3).normal(0.012, 0.02, (40, 30)):
        low, high = (ends[-1] for ends in running_bounds(d, 0.1))
        assert miss(d[None], 0.1)[0] == (not low + RESOLUTION <= 0 <= high - RESOLUTION)


@pytest.mark.parametrize("noise", SYMMETRIC)
def test_stopping_at_any_look_misses_the_truth_in_about_one_percent_at_most(noise: str) -> None:
    d = 0.005 * SYMMETRIC[noise](np.random.default_rng(7), (TRIALS, ROUNDS)) + math.log(1.02)
    rate = miss(d, ALPHA, math.log(1.02)).mean()
    assert rate <= ALPHA + 3 * math.sqrt(ALPHA / TRIALS)  # `studies.simulated_rates`: 0.9 % each


def test_alpha_is_spent_and_not_saved() -> None:
    d = normal(np.random.default_rng(8), (TRIALS, ROUNDS))
    for alpha in (0.05, ALPHA):
        assert miss(d, alpha).mean() >= 0.75 * alpha


def test_an_ordinary_interval_at_every_look_would_fail_here() -> None:
    """The error that planned looks are there to prevent, so that the tests above are known to see it."""
    d = normal(np.random.default_rng(7), (TRIALS, ROUNDS))
    n = np.arange(1, ROUNDS + 1)
    mean = np.cumsum(d, axis=1) / n
    sd = np.sqrt((np.cumsum(d**2, axis=1) - n * mean**2) / np.maximum(n - 1, 1))
    half = stats.t.ppf(1 - ALPHA / 2, np.maximum(n - 1, 1)) * sd / np.sqrt(n)
    assert np.mean((np.abs(mean) > half)[:, [look - 1 for look in PLANNED if look <= ROUNDS]].any(axis=1)) > 0.03


# -- how wide ----------------------------------------------------------------------------------------------------------


def test_the_width_to_expect_is_the_width_that_comes() -> None:
    rng = np.random.default_rng(9)
    for look in looks_reached(112, ALPHA):
        widths = []
        for d in rng.normal(0, 0.01, (60, look.rounds)):
            lows, highs = running_bounds(d, ALPHA)
            widths.append((highs[-1] - lows[-1]) / 2)
        assert np.median(widths) == pytest.approx(look.half_width(0.01), rel=0.15)


def test_widths_shrink_as_rounds_grow() -> None:
    assert all(one.half_width(0.01) > other.half_width(0.01) for one, other in pairwise(looks_reached(3000, ALPHA)))
    assert looks_reached(60, ALPHA)[-1].half_width(0.0) >= looks_reached(60, ALPHA)[-1].half_width(RESOLUTION / 2)


def test_gross_outliers_cost_little() -> None:
    rng = np.random.default_rng(11)
    quiet = rng.standard_normal((100, 58))
    spoilt = np.where(rng.random(quiet.shape) < 0.1, coin(rng, quiet.shape) * 60, quiet)

    def width(rows: NDArray[np.float64]) -> float:
        return float(
            np.median([interval.high - interval.low for interval in (running_interval(d, ALPHA) for d in rows)])
        )

    assert width(spoilt) < 2 * width(quiet)
