"""Crossover over the width: what was planted is found, and doubt stays doubt."""

from __future__ import annotations

import math

import pytest

from llama_workbench.harness.metrics.trend import crossover, interval_of
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.confidence import Interval
from llama_workbench.harness.store.verdict_schema import Effect

SAME = Region.same_within_percent(1)


def gains(**percent: tuple[float, float]) -> dict[float, Interval]:
    """Intervals by width (`w128=(low, high)` percent)."""
    found = {}
    for name, (low, high) in percent.items():
        ends = math.log1p(low / 100), math.log1p(high / 100)
        found[float(name[1:])] = Interval(sum(ends) / 2, *ends, 30)
    return found


def test_where_an_effect_enters_the_margin() -> None:
    sweep = crossover(gains(w4096=(-0.2, 0.4), w128=(20, 24), w512=(3, 5), w2048=(-0.1, 0.9), w1024=(0.5, 2)), SAME)
    assert sweep.states == {128: "above", 512: "above", 1024: "open", 2048: "inside", 4096: "inside"}
    [crossing] = sweep.crossings
    assert (crossing.low, crossing.high, crossing.before, crossing.after) == (512, 2048, "above", "inside")
    assert 512 < crossing.estimate < 2048
    assert sweep.describe().startswith(
        "above up to 512, inside from 2048 (crosses at about 1600); inconclusive at 1024"
    )


def test_an_effect_may_turn_round_and_cross_more_than_once() -> None:
    sweep = crossover(gains(w1=(5, 6), w4=(-6, -5), w16=(-0.5, 0.5), w64=(5, 6)), SAME)
    assert [(c.before, c.after) for c in sweep.crossings] == [
        ("above", "below"),
        ("below", "inside"),
        ("inside", "above"),
    ]
    assert sweep.crossings[0].estimate == pytest.approx(2, rel=0.05)  # half-way over the logarithm of the size
    assert all(c.low < c.estimate < c.high for c in sweep.crossings)


def test_no_crossing_is_made_up() -> None:
    assert crossover(gains(w1=(5, 6), w2=(0.5, 2)), SAME).crossings == ()
    assert crossover(gains(w1=(5, 6), w2=(4, 5)), SAME).describe() == "above at every size that is decided"
    assert crossover(gains(w1=(0.5, 2)), SAME).describe() == "inconclusive at every size"
    unstable = {1.0: Interval(0.0, -0.001, 0.001, 50, unstable=True)}
    assert crossover(unstable, SAME).states == {1.0: "open"}


def an_effect(low: float, rounds: int) -> Effect:
    high = 1.03 if low else math.inf
    return Effect(
        workload="w", variant="v", baseline="b", metric="cpu time", ratio=1.02, low=low, high=high, rounds=rounds,
        seconds=1.0, verdict=Word.SUPPORTED,
    )  # fmt: skip


def test_judged_effects_become_intervals() -> None:
    effect = an_effect(1.01, 40)
    assert interval_of(effect) == Interval(math.log(1.02), math.log(1.01), math.log(1.03), 40)
    few = an_effect(0.0, 3)
    assert crossover({1.0: interval_of(few)}, SAME).states == {1.0: "open"}
