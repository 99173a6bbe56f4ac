"""Slope over the position and crossover over the width: what was planted is found, and doubt stays doubt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from llama_workbench.harness.metrics import scaling
from llama_workbench.harness.metrics.scaling import crossover, interval_of
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.confidence import Interval
from llama_workbench.harness.stats.samples import Clock, log_times
from llama_workbench.harness.store.verdict_schema import Effect
from tests.tables import table_of

ALPHA = 0.01
POSITIONS = {f"decode-c{context}": context for context in (64, 256, 512, 1024, 2048)}
SAME = Region.same_within_percent(1)


def decoding(
    cost: Mapping[str, tuple[float, float]],
    *,
    rounds: int = 40,
    noise: float = 0.01,
    common: float = 0.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Samples of variants with (fixed ns, ns a position); `common`: noise that all of a process share."""
    rng = np.random.default_rng(seed)
    tables = []
    for workload, context in POSITIONS.items():
        shared = np.repeat(np.exp(common * rng.standard_normal(rounds)), 3)
        at = np.repeat(np.arange(rounds), 3)
        for variant, (fixed_ns, each_ns) in cost.items():
            call_ns = (fixed_ns + each_ns * context) * shared * np.exp(noise * rng.standard_normal(3 * rounds))
            key = {"workload": workload, "variant": variant, "process": at + 1, "round": at}
            times = {"cpu_ns": (4 * call_ns).round(), "wall_ns": (5 * call_ns).round(), "repeats": 4, "faults": 0}
            tables.append(pd.DataFrame({**key, "sub_round": np.tile(np.arange(3), rounds), **times}))
    return pd.concat(tables).sample(frac=1.0, random_state=seed)


def slope(frame: pd.DataFrame, *, positions: Mapping[str, int], clock: Clock, **asked: Any) -> Interval:
    times = {size: log_times(table_of(frame), workload=workload, clock=clock) for workload, size in positions.items()}
    return scaling.position_slope(times, **asked)


def test_a_planted_slope_is_found() -> None:
    frame = decoding({"flat": (1e6, 0.0), "cat": (1e6, 300.0)})
    found = slope(frame, positions=POSITIONS, variant="cat", clock="cpu", alpha=ALPHA)
    assert (found.n, found.unstable) == (40, False)
    assert found.low < 300 < found.high < 320
    flat = slope(frame, positions=POSITIONS, variant="flat", clock="cpu", alpha=ALPHA)
    assert flat.low < 0 < flat.high
    wall = slope(frame, positions=POSITIONS, variant="cat", clock="wall", alpha=ALPHA)
    assert wall.centre == pytest.approx(1.25 * found.centre, rel=1e-3)


def test_a_difference_of_slopes_is_freed_of_what_disturbs_both() -> None:
    frame = decoding({"view": (1e6, 100.0), "cat": (1e6, 130.0)}, noise=0.003, common=0.1)
    alone = slope(frame, positions=POSITIONS, variant="cat", clock="cpu", alpha=ALPHA)
    pair = slope(frame, positions=POSITIONS, variant="cat", baseline="view", clock="cpu", alpha=ALPHA)
    assert pair.low < 30 < pair.high
    assert pair.low > 0
    assert pair.high - pair.low < (alone.high - alone.low) / 5
    swapped = slope(frame, positions=POSITIONS, variant="view", baseline="cat", clock="cpu", alpha=ALPHA)
    assert swapped.centre == pytest.approx(-pair.centre)


def test_slopes_of_equal_variants_are_rarely_told_apart() -> None:
    """40 series at alpha = 1 %, every one looked at after each of its 30 rounds: one miss is expected at most."""
    told = 0
    for seed in range(40):
        frame = decoding({"a": (1e6, 100.0), "b": (1e6, 100.0)}, rounds=30, common=0.05, seed=seed)
        found = slope(frame, positions=POSITIONS, variant="b", baseline="a", clock="cpu", alpha=ALPHA)
        told += not found.low <= 0 <= found.high
    assert told <= 3  # P(more) = 0.1 % if 1 % is kept


def test_rounds_without_partners_are_left_out_and_few_prove_nothing() -> None:
    frame = decoding({"cat": (1e6, 300.0)}, rounds=5)
    frame = frame[(frame["workload"] != "decode-c64") | (frame["round"] < 3)]
    found = slope(frame, positions=POSITIONS, variant="cat", clock="cpu", alpha=ALPHA)
    assert (found.n, found.low, found.high) == (3, -math.inf, math.inf)
    nothing = slope(frame, positions=POSITIONS, variant="fast", clock="cpu", alpha=ALPHA)
    assert nothing.n == 0 and math.isnan(nothing.centre)
    with pytest.raises(ValueError, match="two or more different positions"):
        slope(frame, positions={"decode-c64": 64}, variant="cat", clock="cpu", alpha=ALPHA)


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
