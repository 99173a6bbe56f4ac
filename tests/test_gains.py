"""Claims about gains: how far they were inflated, and whether they grow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llama_workbench.harness.metrics.inflation import InflationHypothesis, Quotient, inflation, quotient
from llama_workbench.harness.metrics.scaling import trend
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.stats.confidence import Interval

gain = st.floats(-2, 5).filter(lambda x: x == 0 or abs(x) > 1e-6)


@settings(deadline=None)
@given(st.floats(0.01, 10), gain, gain, st.floats(0, 1))
def test_a_quotient_holds_what_the_interval_allows_and_nothing_else(
    claimed: float, one: float, other: float, at: float
) -> None:
    low, high = sorted((one, other))
    found = quotient(claimed, low, high)
    inside = min(max(low + at * (high - low), low), high)
    if abs(inside) > 1e-9:
        ratio = claimed / inside
        assert any(a * (1 - 1e-9) - 1e-9 <= ratio <= b * (1 + 1e-9) + 1e-9 or a <= ratio <= b for a, b in found.pieces)
    for outside in (low - 0.5, high + 0.5):
        assert outside == 0 or not any(a <= claimed / outside <= b for a, b in found.pieces)
    assert len(found.pieces) == (2 if low < 0 < high else 0 if low == high == 0 else 1)
    assert any(math.isinf(end) for piece in found.pieces for end in piece) == (low <= 0 <= high != low)


def test_a_quotient_says_where_it_is() -> None:
    assert quotient(1, 0.02, 0.05).describe() == "a factor of 20 to 50"
    assert quotient(1, -0.01, 0.02).describe() == "a factor of at least 50, or there is no gain at all"
    assert quotient(1, 0, 0.02).describe() == "a factor of at least 50, or there is no gain at all"
    assert quotient(1, -0.02, -0.01).describe() == "any factor: there is no gain"
    assert quotient(1, -math.inf, math.inf).describe() == "a factor of at least 0, or there is no gain at all"
    assert quotient(1, 0, 0) == Quotient(()) and quotient(1, 0, 0).describe() == "any factor: there is no gain"
    assert quotient(1, 0, 0).place(0, 1e9) == "above"
    for arguments in ((0, 1, 2), (1, 2, 1), (1, math.nan, 1), (math.inf, 1, 2)):
        with pytest.raises(ValueError, match="positive numerator"):
            quotient(*arguments)


@pytest.mark.parametrize(
    ("low", "high", "verdict", "words"),
    [
        (1.045, 1.048, "supported", "20.8 to 22.2"),  # 2x: 21 to 22 times, 3x: 42 to 44
        (1.06, 1.11, "inconclusive", "9.09 to 16.7"),  # their own 6-11 %: 3x was 18 to 33 times too high
        (1.005, 1.01, "refuted", "100 to 200"),
        (0.985, 0.995, "refuted", "any factor: there is no gain"),
        (0.99, 1.01, "refuted", "a factor of at least 100, or there is no gain at all"),
        (0.99, 1.03, "inconclusive", "a factor of at least 33.3, or there is no gain at all"),
        (0.0, math.inf, "inconclusive", "without bound"),
        (1.07, 1.075, "depends", "13.3 to 14.3"),
        (1.3, 1.4, "refuted", "2.5 to 3.33"),
    ],
)
def test_inflation_by_twenty_to_fifty(low: float, high: float, verdict: str, words: str) -> None:
    found, reason, _ = inflation((2, 3), low, high, (20, 50))
    assert found == verdict
    assert words in reason


@settings(deadline=None)
@given(st.floats(0.9, 1.2), st.floats(0, 0.02), st.floats(0, 1))
def test_inflation_is_never_settled_against_the_truth(low: float, width: float, at: float) -> None:
    high = low + width
    truth = low + at * width - 1
    assume(abs(truth) > 1e-6)
    verdict, _, _ = inflation((2, 3), low, high, (20, 50))
    factors = [1 / truth, 2 / truth]
    inside = [20 * (1 - 1e-9) <= factor <= 50 * (1 + 1e-9) for factor in factors]
    if verdict == "supported":
        assert all(inside)
    if verdict == "refuted":
        strictly = [20 * (1 + 1e-9) < factor < 50 * (1 - 1e-9) for factor in factors]
        assert not any(strictly)


@pytest.mark.parametrize(("claimed", "times"), [((0.9, 2), (20, 50)), ((3, 2), (20, 50)), ((2, 3), (50, 20))])
def test_what_is_no_claim_of_inflation_is_an_error(claimed: tuple[float, float], times: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        inflation(claimed, 1.0, 1.1, times)


# -- growth ------------------------------------------------------------------------------------------------------------


GROWS = Region.faster_than_percent(1)


def sized(size: float, *ratios: float) -> tuple[float, Interval]:
    """A ratio with the ends of its interval, at a size."""
    centre, low, high = (math.log(ratio) if ratio else -math.inf for ratio in ratios)
    return size, Interval(centre, low, high, 30)


def gains(ratios: dict[int, float], width: float = 0.002) -> list[tuple[float, Interval]]:
    return [sized(size, ratio, ratio - width, ratio + width) for size, ratio in ratios.items()]


@pytest.mark.parametrize(
    ("ratios", "verdict", "falls"),
    [
        ({8: 1.00, 32: 1.02, 128: 1.04, 512: 1.06}, "supported", 0),
        ({8: 1.06, 32: 1.04, 128: 1.02, 512: 1.00}, "refuted", 6),
        ({8: 1.05, 32: 1.05, 128: 1.05, 512: 1.05}, "refuted", 0),
        ({8: 1.00, 32: 1.10, 128: 1.05, 512: 1.15}, "depends", 1),
        ({8: 1.00, 512: 1.012}, "inconclusive", 0),
        # Their own table, as ratios of time before and after: 9.9/9.1, 118.7/117.4, 2.1/1.9 and 58.8/55.0.
        ({8: 1.088, 32: 1.011, 128: 1.105, 512: 1.069}, "inconclusive", 3),
    ],
)
def test_whether_a_gain_grows(ratios: dict[int, float], verdict: str, falls: int) -> None:
    found = trend(gains(ratios), GROWS)
    assert (found.verdict, len(found.falls)) == (verdict, falls)
    assert found.low < found.rise < found.high
    assert ("falls for certain" in found.reason) == bool(falls)
    slope = np.polyfit(np.log(list(ratios)), np.log(list(ratios.values())), 1)[0]
    assert found.rise == pytest.approx((max(ratios) / min(ratios)) ** slope)


points = st.lists(st.tuples(st.floats(0.5, 2), st.floats(0.001, 0.2), st.floats(0, 1)), min_size=2, max_size=6)


@settings(deadline=None)
@given(points)
def test_the_trend_holds_for_every_truth_that_the_intervals_allow(found: list[tuple[float, float, float]]) -> None:
    sizes = [8 * 2**index for index in range(len(found))]
    measured = [
        sized(size, ratio, ratio / (1 + width), ratio * (1 + width))
        for size, (ratio, width, _) in zip(sizes, found, strict=True)
    ]
    ends = [(math.exp(g.low), math.exp(g.high)) for _, g in measured]
    truth = [low + at * (high - low) for (low, high), (_, _, at) in zip(ends, found, strict=True)]
    rise = math.exp(np.polyfit(np.log(sizes), np.log(truth), 1)[0] * math.log(sizes[-1] / sizes[0]))
    judged = trend(measured[::-1], GROWS)
    assert judged.low * (1 - 1e-9) <= rise <= judged.high * (1 + 1e-9)
    assert not any(truth[sizes.index(int(a))] <= truth[sizes.index(int(b))] for a, b in judged.falls)


def test_a_size_without_an_interval_leaves_the_trend_open() -> None:
    ends = gains({8: 1.0, 512: 1.2})
    found = trend([*ends, sized(128, 1.1, 0.0, math.inf)], GROWS)
    assert found.verdict == "inconclusive" and found.low == 0 and math.isinf(found.high)
    assert trend(ends, Region.gain_percent(15, 25)).verdict == "supported"
    for wrong in (ends[:1], [ends[0], ends[0]], [sized(0, 1, 1, 1), ends[0]]):
        with pytest.raises(ValueError, match="different sizes above 0"):
            trend(wrong, GROWS)


def test_measuring_goes_on_until_a_gain_is_inside_or_outside_of_what_the_factors_say() -> None:
    asked = InflationHypothesis(
        metric="inflation", variant="new", baseline="old", workloads=("w",), claimed=(2.0, 3.0), range=(20.0, 50.0)
    )
    [target] = asked.targets()
    [region] = target.regions
    assert (math.expm1(region.low), math.expm1(region.high)) == pytest.approx((0.02, 0.05))
    assert inflation(asked.claimed, 0.97, 1.0199, (20, 50))[0] == "refuted"
    assert inflation(asked.claimed, 0.97, 1.0201, (20, 50))[0] == "inconclusive"
