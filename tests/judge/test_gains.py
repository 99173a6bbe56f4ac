"""Whether gains grow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_workbench.harness.metrics.trend import trend
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.stats.confidence import Interval

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
    fell = trend(gains({1: 1.0, 22: 0.97}), Region.gain_percent(-5, 5))
    assert (fell.verdict, len(fell.falls)) == ("supported", 1), "there is room for a fall"
    for wrong in (ends[:1], [ends[0], ends[0]], [sized(0, 1, 1, 1), ends[0]]):
        with pytest.raises(ValueError, match="different sizes above 0"):
            trend(wrong, GROWS)
