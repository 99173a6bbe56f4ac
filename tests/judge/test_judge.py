"""From samples to verdicts: what must not matter, what must, and how often a verdict may be wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from llama_workbench.harness.claims.model import Claim
from llama_workbench.harness.evidence.effect import (
    AT_A_LIMIT,
    DEPENDENT,
    HUGE_FAULT_COST_NS,
    Further,
    ToSettle,
    clock_seconds,
    combine,
    decided,
    judge_effect,
    values_more,
)
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.judge.parts import all_together, judge_ad_hoc, judge_claims
from llama_workbench.harness.report.outcome import outcome
from llama_workbench.harness.report.text import run_notes
from llama_workbench.harness.spec.comparison import Metric
from llama_workbench.harness.spec.regions import ANSWERS, Condition, Region
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.spec.words import Cause, Word
from llama_workbench.harness.stats import samples as stats
from llama_workbench.harness.stats.confidence import LookPlan, first_interval, running_interval
from llama_workbench.harness.stats.samples import Differences
from llama_workbench.harness.store.forms import plain
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.store.verdict_schema import AD_HOC, Effect, Verdict
from studies import simulated_rates
from studies.simulated_forecasts import BUDGETS, NOISE, QUESTIONS, forecast
from studies.simulated_rates import answers, miss, wrong_verdicts
from tests.tables import table_of
from tests.verdicts import a_verdict, an_effect

ALPHA = 0.01
PAIRS = 5
LN_1 = math.log(1.01)


def differences(frame: pd.DataFrame, *, workload: str, baseline: str, variant: str, **asked: Any) -> Differences:
    return stats.differences(
        stats.log_times(table_of(frame), workload=workload, **asked), baseline=baseline, variant=variant
    )


def samples(
    log_times: Mapping[str, NDArray[np.float64]],
    *,
    workload: str = "w",
    call_ns: float = 300_000,
    repeats: int = 1,
    faults: Mapping[str, float] | None = None,
    process: int = 1,
) -> pd.DataFrame:
    """Samples of variants whose log times over `call_ns` are arrays [processes, sub_rounds]; the first is `process`."""
    rows = []
    for position, (variant, logs) in enumerate(log_times.items()):
        processes, pairs = logs.shape
        total = np.exp(logs.ravel()) * call_ns * repeats
        rows.append(
            pd.DataFrame(
                {
                    "workload": workload,
                    "variant": variant,
                    "process": process + np.repeat(np.arange(processes), pairs),
                    "round": np.repeat(np.arange(processes), pairs),
                    "sub_round": np.tile(np.arange(pairs), processes),
                    "position": position,
                    "tokens": 8,
                    "repeats": repeats,
                    "cpu_ns": np.round(total).astype(np.int64),
                    "wall_ns": np.round(total * 1.5).astype(np.int64),
                    "faults": round((faults or {}).get(variant, 0) * repeats),
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def noisy(
    seed: int, shifts: Mapping[str, float] | None = None, *, rounds: int = 40, sd: float = 0.005, **named: float
) -> dict[str, NDArray[np.float64]]:
    """Log times of variants by name; `shifts` or keywords are how much longer each takes (log units)."""
    rng = np.random.default_rng(seed)
    return {name: shift + rng.normal(0, sd, (rounds, PAIRS)) for name, shift in (shifts or named).items()}


def measured(values: Sequence[float] | NDArray[np.float64], **changes: Any) -> Differences:
    base = Differences(np.asarray(values, dtype=float), 10.0, 0.0, 0.0, 0.0, 300_000.0, 300_000.0)
    return replace(base, **changes)


def effect(values: Sequence[float] | NDArray[np.float64], region: Region, **arguments: Any) -> Effect:
    changes = {key: arguments.pop(key) for key in list(arguments) if key in Differences.__dataclass_fields__}
    names: dict[str, Any] = {"workload": "w", "variant": "new", "baseline": "old", "metric": "cpu time", "alpha": ALPHA}
    return judge_effect(measured(values, **changes), region, **(names | arguments))


def normal(centre: float, *, sd: float = 0.005, n: int = 60, seed: int = 0) -> NDArray[np.float64]:
    """A series whose mean and spread are exactly what is asked for."""
    d = np.random.default_rng(seed).standard_normal(n)
    scaled: NDArray[np.float64] = (d - d.mean()) / d.std(ddof=1) * sd + centre
    return scaled


# -- regions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "low", "high", "words"),
    [
        (Region.faster_than_percent(1), math.log(1.01), math.inf, "more than 1 % faster"),
        (Region.faster_than_percent(0), 0, math.inf, "at all faster"),
        (Region.slower_than_percent(5), -math.inf, -math.log(1.05), "more than 5 % slower"),
        (Region.slower_than_percent(0), -math.inf, 0, "at all slower"),
        (Region.not_faster_than_percent(1), -math.inf, math.log(1.01), "at most 1 % faster"),
        (Region.ratio(2, 3), math.log(2), math.log(3), "2-3x"),
        (Region.ratio(0.5, 0.8), math.log(0.5), math.log(0.8), "25-100 % slower"),
        (Region.gain_percent(6, 11), math.log(1.06), math.log(1.11), "6-11 % faster"),
        (Region.gain_percent(-2, 5), math.log(0.98), math.log(1.05), "from 2.041 % slower to 5 % faster"),
        (Region.same_within_percent(1), -math.log(1.01), math.log(1.01), "same within ±1 %"),
        (Region.faster_than_percent(200), math.log(3), math.inf, "more than 3x faster"),
        (Region(-math.inf, math.inf), -math.inf, math.inf, "any effect"),
    ],
)
def test_a_region_has_its_bounds_and_says_them(region: Region, low: float, high: float, words: str) -> None:
    assert (region.low, region.high) == pytest.approx((low, high))
    assert region.describe() == words


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.nan)])
def test_an_empty_region_is_an_error(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="low < high"):
        Region(low, high)


def test_a_region_as_json_has_ratios_and_null_where_there_is_no_bound() -> None:
    assert Region.ratio(2, 3).to_json() == pytest.approx({"low": 2, "high": 3})
    assert Region.faster_than_percent(1).to_json() == {"low": pytest.approx(1.01), "high": None}
    assert Region.slower_than_percent(1).to_json() == {"low": None, "high": pytest.approx(1 / 1.01)}


# -- differences ---------------------------------------------------------------------------------------------------


def test_a_round_is_the_median_of_its_log_ratios() -> None:
    times = noisy(1, rounds=4, old=0.0, new=-0.1)
    found = differences(samples(times), workload="w", baseline="old", variant="new", clock="cpu")
    assert found.values == pytest.approx(np.median(times["old"] - times["new"], axis=1), abs=1e-4)
    assert found.call_baseline_ns == pytest.approx(300_000, rel=0.01)
    assert found.call_variant_ns == pytest.approx(300_000 * math.exp(-0.1), rel=0.01)
    one = Round(
        "w",
        0,
        0,
        tuple(
            Sample(name, place, 0, 8, repeats, round(math.exp(log) * 1e9), 1, 0)
            for name, repeats in (("old", 2), ("new", 3))
            for place, log in enumerate(times[name][0])
        ),
    )
    live = stats.differences(stats.log_times_of_rounds([one], clock="cpu"), baseline="old", variant="new")
    assert live.values == pytest.approx([float(np.median(times["old"][0] - times["new"][0])) + math.log(3 / 2)])


def test_sub_rounds_that_are_missing_change_only_the_median_of_their_round() -> None:
    times, rng = noisy(7, rounds=12, old=0.0, new=-0.1), np.random.default_rng(7)
    frame, lost = samples(times), rng.random(times["new"].shape) < 0.4
    lost[:, 0] = False
    gone = (frame["variant"] == "new").to_numpy(copy=True)
    gone[gone] = lost.ravel()
    found = differences(frame[~gone], workload="w", baseline="old", variant="new", clock="cpu")
    expected = [np.median((old - new)[~each]) for old, new, each in zip(*times.values(), lost, strict=True)]
    assert {int(each) for each in (~lost).sum(axis=1)} >= {2, 3, 4}, "odd and even numbers"
    assert found.values == pytest.approx(expected, abs=1e-4)


def test_times_are_by_call_and_the_clock_is_the_one_asked_for() -> None:
    frame = samples({"old": np.zeros((2, 3)), "new": np.zeros((2, 3))})
    frame.loc[frame["variant"] == "new", "repeats"] = 2
    frame.loc[frame["variant"] == "new", "wall_ns"] *= 4
    by_cpu = differences(frame, workload="w", baseline="old", variant="new", clock="cpu")
    by_wall = differences(frame, workload="w", baseline="old", variant="new", clock="wall")
    assert by_cpu.values == pytest.approx([math.log(2)] * 2)
    assert by_wall.values == pytest.approx([-math.log(2)] * 2)
    assert by_cpu.seconds == by_wall.seconds == pytest.approx(6 * 450_000 * (1 + 4) / 1e9)


def test_processes_without_both_sides_are_skipped_and_the_others_kept_apart() -> None:
    first = samples(noisy(1, rounds=3, old=0.0, new=-0.1))
    second = samples(noisy(2, rounds=5, old=0.0, new=-0.5), process=4)
    first = first[~((first["process"] == 2) & (first["variant"] == "new"))]
    second = second[~((second["process"] == 8) & (second["variant"] == "old"))]
    found = differences(pd.concat([second, first]), workload="w", baseline="old", variant="new", clock="cpu")
    assert found.values == pytest.approx([0.1] * 2 + [0.5] * 4, abs=0.02)
    assert found.invalid_share == 0


@pytest.mark.parametrize(("column", "value"), [("cpu_ns", 0), ("cpu_ns", -5), ("repeats", 0)])
def test_a_time_that_is_not_positive_makes_its_round_invalid(column: str, value: int) -> None:
    frame = samples(noisy(1, rounds=10, old=0.0, new=-0.1))
    frame.loc[(frame["round"] == 3) & (frame["sub_round"] == 2) & (frame["variant"] == "new"), column] = value
    found = differences(frame, workload="w", baseline="old", variant="new", clock="cpu")
    assert found.invalid_share == pytest.approx(0.1)
    assert len(found.values) == 9 and np.isfinite(found.values).all()


def test_no_rounds_and_no_valid_rounds() -> None:
    frame = samples(noisy(1, rounds=2, old=0.0, new=0.0))
    nothing = differences(frame, workload="other", baseline="old", variant="new", clock="cpu")
    assert nothing.values.size == 0 and nothing.seconds == 0 and nothing.invalid_share == 0
    frame["cpu_ns"] = 0
    invalid = differences(frame, workload="w", baseline="old", variant="new", clock="cpu")
    assert invalid.values.size == 0 and invalid.invalid_share == 1


def test_a_sample_that_is_there_twice_is_an_error() -> None:
    frame = samples(noisy(1, rounds=2, old=0.0, new=0.0))
    with pytest.raises(ValueError, match="two samples in one sub-round"):
        differences(pd.concat([frame, frame.iloc[:1]]), workload="w", baseline="old", variant="new", clock="cpu")


def test_columns_as_the_store_has_them_will_do() -> None:
    frame = samples(noisy(1, rounds=3, old=0.0, new=-0.1))
    stored = frame.astype({"workload": "category", "variant": "category", "process": "int32", "sub_round": "int16"})
    for baseline, variant in (("old", "new"), ("old", "not there")):
        plain = differences(frame, workload="w", baseline=baseline, variant=variant, clock="cpu")
        by_category = differences(stored, workload="w", baseline=baseline, variant=variant, clock="cpu")
        assert np.array_equal(plain.values, by_category.values)


def test_page_faults_are_by_call_and_rare_ones_do_not_count() -> None:
    frame = samples(noisy(1, rounds=4, old=0.0, new=0.0), repeats=2, faults={"old": 3.0})
    frame.loc[(frame["sub_round"] == 0) & (frame["variant"] == "new"), "faults"] = 1000
    found = differences(frame, workload="w", baseline="old", variant="new", clock="cpu")
    assert (found.faults_baseline, found.faults_variant) == (3.0, 0.0)


frames = st.builds(
    lambda seed, rounds, shift: samples(noisy(seed, rounds=rounds, sd=0.01, old=0.0, new=shift, third=0.3)),
    st.integers(0, 1000),
    st.integers(1, 30),
    st.floats(-1, 1),
)


@given(frames, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_rows_does_not_matter(frame: pd.DataFrame, random: Any) -> None:
    order = list(range(len(frame)))
    random.shuffle(order)
    asked: dict[str, Any] = {"workload": "w", "baseline": "old", "variant": "new", "clock": "cpu"}
    one, other = differences(frame, **asked), differences(frame.iloc[order], **asked)
    assert np.array_equal(one.values, other.values)
    assert replace(one, values=other.values) == replace(other, values=other.values)


@given(frames, st.integers(2, 50))
@settings(max_examples=40, deadline=None)
def test_a_faster_or_slower_machine_does_not_matter(frame: pd.DataFrame, factor: int) -> None:
    scaled = frame.assign(cpu_ns=frame["cpu_ns"] * factor, wall_ns=frame["wall_ns"] * factor)
    asked: dict[str, Any] = {"workload": "w", "baseline": "old", "variant": "new", "clock": "cpu"}
    one, other = differences(frame, **asked), differences(scaled, **asked)
    assert other.values == pytest.approx(one.values, abs=1e-12)
    assert other.seconds == pytest.approx(one.seconds * factor)


@given(frames)
@settings(max_examples=40, deadline=None)
def test_swapping_the_sides_inverts_the_ratio(frame: pd.DataFrame) -> None:
    def judged(baseline: str, variant: str, region: Region) -> Effect:
        found = differences(frame, workload="w", baseline=baseline, variant=variant, clock="cpu")
        return judge_effect(
            found, region, alpha=ALPHA, workload="w", variant=variant, baseline=baseline, metric="cpu time"
        )

    here = judged("old", "new", Region.faster_than_percent(5))
    there = judged("new", "old", Region.slower_than_percent(5))
    assert there.ratio == pytest.approx(1 / here.ratio)
    assert there.verdict == here.verdict
    if here.low > 0:
        assert (there.low, there.high) == pytest.approx((1 / here.high, 1 / here.low))


# -- one effect ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "truth", "verdict"),
    [
        (Region.faster_than_percent(1), math.log(1.03), "supported"),
        (Region.faster_than_percent(1), 0.0, "refuted"),
        (Region.faster_than_percent(1), -0.2, "refuted"),
        (Region.faster_than_percent(1), math.log(1.0101), "inconclusive"),
        (Region.slower_than_percent(5), -math.log(1.08), "supported"),
        (Region.slower_than_percent(5), -math.log(1.02), "refuted"),
        (Region.ratio(2, 3), math.log(2.4), "supported"),
        (Region.ratio(2, 3), math.log(1.2), "refuted"),
        (Region.ratio(2, 3), math.log(3.2), "refuted"),
        (Region.ratio(2, 3), math.log(3.001), "inconclusive"),
        (Region.gain_percent(6, 11), math.log(1.085), "supported"),
        (Region.gain_percent(6, 11), math.log(1.02), "refuted"),
        (Region.gain_percent(6, 11), math.log(1.15), "refuted"),
        (Region.same_within_percent(1), 0.001, "supported"),
        (Region.same_within_percent(1), math.log(1.02), "refuted"),
        (Region.same_within_percent(1), -math.log(1.02), "refuted"),
        (Region.same_within_percent(1), math.log(1.0095), "inconclusive"),
    ],
)
def test_the_verdict_is_where_the_interval_lies(region: Region, truth: float, verdict: str) -> None:
    found = effect(normal(truth), region)
    assert found.verdict == verdict
    assert found.low < math.exp(truth) < found.high and found.ratio == pytest.approx(math.exp(truth), rel=0.005)
    assert bool(found.said) == (verdict == "inconclusive")
    interval = running_interval(normal(truth), ALPHA)
    assert decided(interval, region) == (verdict != "inconclusive")


def test_few_rounds_never_prove_anything_however_alike() -> None:
    for n in range(12):
        assert not decided(running_interval(np.zeros(n), ALPHA), Region.same_within_percent(1))
    assert decided(running_interval(np.zeros(12), ALPHA), Region.same_within_percent(1))


def test_an_open_effect_says_how_long_it_would_take() -> None:
    region = Region.faster_than_percent(1)
    found = effect(normal(0.006, sd=0.01, n=40), region, further=Further(2.0))
    assert found.verdict == "inconclusive"
    assert found.said == ("the interval lies on both sides of 1.01×",)
    assert 0 < found.seconds_more < math.inf
    assert combine([found])[1] == "not decided: the interval lies on both sides of 1.01×"
    assert math.isnan(effect(normal(0.006, sd=0.01, n=40), region).seconds_more), "nobody knows what a value takes"
    few = effect(normal(0.0, n=5), region, further=Further(2.0))
    assert few.said == ("too few rounds for an interval",)
    assert few.seconds_more == 2.0 * (first_interval(ALPHA) - 5)
    assert effect([], region).said == ("no rounds were measured",)
    starved = effect([], region, further=Further(first=9.0, all_first=130.5))
    assert starved.said == ("no rounds were measured: no time was left; --budget 140 measures it too",)
    assert starved.seconds_more == 9.0
    noise = normal(0.0, n=20)
    on_the_boundary = effect(np.concatenate([LN_1 + noise, LN_1 - noise]), region, further=Further(2.0))
    assert ToSettle.of([on_the_boundary]).never == AT_A_LIMIT


def test_many_open_effects_have_one_reason_together() -> None:
    one = effect(normal(0.006, sd=0.01, n=40), Region.faster_than_percent(1))
    effects = [
        replace(one, workload=f"w{index % 3}", baseline=f"b{index}", seconds_more=float(20 * (index + 1)))
        for index in range(6)
    ]
    verdict, reason = combine(effects)
    assert verdict == "inconclusive"
    assert reason == "not decided: the interval lies on both sides of 1.01×"
    assert clock_seconds(effects) == 80 + 100 + 120, "workloads are measured one after the other"


def test_values_before_the_first_interval_are_known() -> None:
    region = Region.faster_than_percent(1)
    assert values_more(normal(0.5, n=5), [(region, ALPHA)]) == first_interval(ALPHA) - 5


def test_what_lies_farther_from_its_limit_needs_fewer_values() -> None:
    region = Region.faster_than_percent(1)
    near, far = (values_more(normal(LN_1 - gap, sd=0.01, n=40), [(region, ALPHA)]) for gap in (0.004, 0.0047))
    assert 0 < far < near < math.inf
    assert math.isinf(values_more(normal(LN_1, sd=0.01, n=20), [(region, ALPHA)])), "nobody knows on which side"


def test_what_is_forecast_comes_true_in_nine_of_ten_cases() -> None:
    """docs/concepts/statistics.md has the table; `python -m studies.simulated_forecasts` prints it."""
    rng, found = np.random.default_rng(20), []
    for regions in QUESTIONS.values():
        for noise in NOISE.values():
            found += [forecast(noise, regions, budget, 80, rng) for budget in BUDGETS[:2]]
    told, true = (sum(getattr(each, name) for each in found) for name in ("told", "true"))
    assert told >= 200 and true / told >= 0.85


def test_reasons_against_an_effect_come_before_its_interval() -> None:
    clear, region = normal(math.log(1.05)), Region.faster_than_percent(1)
    assert effect(clear, region).verdict == "supported"
    gate = effect(clear, region, not_evidence="gates failed")
    assert (gate.verdict, gate.said) == ("not evidence", ("gates failed",))
    assert gate.low > 1.01  # what was measured is shown all the same
    named = effect(clear, region, confounds=["machine went to sleep"])
    assert (named.verdict, named.said) == ("inconclusive", ("confounded: machine went to sleep",))
    assert effect(clear, region, invalid_share=0.05).verdict == "supported"
    invalid = effect(clear, region, invalid_share=0.06)
    assert (invalid.verdict, invalid.said[0]) == ("inconclusive", "confounded: 6 % of rounds without a valid time")
    jump = np.concatenate([normal(0.02, sd=0.001), normal(0.5, sd=0.001)])
    assert effect(jump, region).said[0].startswith("unstable")
    assert not decided(running_interval(jump, ALPHA), region)


def test_page_faults_confound_where_they_could_have_made_the_effect() -> None:
    region = Region.faster_than_percent(1)
    found = normal(math.log(1.03))
    # 3 faults more in the old code, up to 12 us: nothing in a call of 200 ms, all of the effect in one of 0.3 ms.
    long = effect(found, region, faults_baseline=3.0, call_baseline_ns=200e6, call_variant_ns=200e6)
    assert long.verdict == "supported" and long.said == (
        "page faults a call: 3.0 in old, 0.0 in new (at most 0.006 % of the time)",
    )
    short = effect(found, region, faults_baseline=3.0)
    assert short.verdict == "inconclusive" and "page faults may have made" in short.said[0]
    assert short.said[1].endswith("(at most 4 % of the time)")
    # Where a fault clears 2 MiB, a tenth of one is a tenth of that call.
    huge = effect(found, region, faults_baseline=0.1, fault_cost_ns=HUGE_FAULT_COST_NS)
    assert huge.verdict == "inconclusive" and effect(found, region, faults_baseline=0.1).verdict == "supported"
    # A tenth of a fault in a call of 2 us is enough as well.
    tiny = effect(found, region, faults_baseline=0.1, call_baseline_ns=2000.0, call_variant_ns=2000.0)
    assert tiny.verdict == "inconclusive"
    # Faults on the other side made the variant slower than it is: it is faster all the more.
    assert effect(found, region, faults_variant=3.0).verdict == "supported"
    assert effect(normal(0.0), region, faults_variant=3.0).verdict == "inconclusive"
    assert effect(normal(0.0), region, faults_baseline=3.0).verdict == "refuted"
    everything = effect(found, region, faults_baseline=1e6)
    assert everything.verdict == "inconclusive"


def test_values_that_depend_on_each_other_settle_only_what_each_says_by_itself() -> None:
    rng = np.random.default_rng(0)
    independent = rng.normal(0.05, 0.001, 60)
    drifting = independent + np.linspace(-0.001, 0.001, 60)
    region = Region.faster_than_percent(5)
    assert drifting.min() < math.log(1.05) < math.log(effect(drifting, region).low)
    found = effect(drifting, region)
    assert (found.verdict, found.cause, found.said) == ("inconclusive", Cause.DEPENDENT, (DEPENDENT,))
    assert found.cause.is_doubtful
    assert effect(independent, region).said == ()
    far = effect(drifting, Region.faster_than_percent(4))
    assert (far.verdict, far.cause, far.said) == ("supported", Cause.NONE, (DEPENDENT,))
    still_open = effect(drifting, Region.faster_than_percent(5.08))
    assert still_open.cause == Cause.ACROSS_LIMIT and still_open.notes == (DEPENDENT,)


def test_a_run_is_judged_by_the_dependence_of_its_processes() -> None:
    drift = np.linspace(-0.01, 0.01, 40)[:, None]
    logs = {name: values - 0.05 * (name == "new") for name, values in noisy(1, {"old": 0.0, "new": 0.0}).items()}
    run = manifest_of(manifest(experiment("a", "old", "new")))
    for moving, verdict, cause in ((drift, "inconclusive", Cause.DEPENDENT), (0 * drift, "supported", Cause.NONE)):
        frame = samples(logs | {"new": logs["new"] + moving}, workload="a")
        [found] = judge_claims([claim("a", faster_than_percent=4.8)], evidence_from_manifest(run, table_of(frame)))
        assert (found.verdict, found.effects[0].cause) == (verdict, cause)


def test_what_is_computed_from_gains_is_open_where_their_processes_depend_on_each_other() -> None:
    drift, logs = np.linspace(-0.01, 0.01, 40)[:, None], noisy(1, {"old": 0.0, "new": -0.05})
    run = manifest_of(manifest(*(experiment(name, "old", "new") for name in ("a", "b"))))
    for moving, verdict in ((drift, "inconclusive"), (0 * drift, "supported")):
        both = [samples(logs | {"new": logs["new"] + moving}, workload="a"), samples(logs, workload="b")]
        sized = replace(evidence_from_manifest(run, table_of(pd.concat(both))), sizes={"a": 1.0, "b": 2.0})
        [found] = judge_claims([claim("a", "b", metric="trend", range=[-20, 20])], sized)
        assert found.verdict == verdict and (DEPENDENT in found.reason) == (verdict == "inconclusive")


def test_a_mark_is_for_all_that_a_verdict_says_and_not_for_its_word_alone() -> None:
    """At a sharper level "the same within 1 %" may be left as "within 2 %", and "it depends" for one effect less."""

    def judged(at: Verdict, beyond: Verdict, alpha: float) -> Verdict:
        return at if alpha >= ALPHA else beyond

    def judges(*said: Verdict) -> list[Callable[[float], Verdict]]:
        return [partial(judged, *pair) for pair in zip(said[::2], said[1::2], strict=True)]

    def compared(width: float) -> Verdict:
        found = an_effect(verdict="same", value=1.0, low=1 / width, high=width)
        return a_verdict(found, claim=AD_HOC, verdict="same", alpha=ALPHA)

    def depending(*words: str) -> Verdict:
        effects = [an_effect(workload=f"w{place}", verdict=word) for place, word in enumerate(words)]
        return a_verdict(*effects, verdict="depends", alpha=ALPHA)

    narrow, wide = compared(1.009), compared(1.019)
    whole, less = depending("supported", "refuted", "supported"), depending("supported", "refuted", "inconclusive")
    for said, marked in (
        ((narrow, wide, whole, less), False),
        ((narrow, wide, whole, whole), True),  # one stands, and for the other all of alpha is left
        ((wide, wide, whole, less), True),
    ):
        assert [each.together for each in all_together(judges(*said), ALPHA)] == [marked, marked]


def test_a_condition_whose_workloads_share_alpha_pays_for_them_once() -> None:
    names = ("a", "b", "c", "d")
    frame = pd.concat(
        [samples(noisy(place, old=0.0, new=0.1 * (name == "a")), workload=name) for place, name in enumerate(names)]
    )
    run = manifest(*(experiment(name, "old", "new") for name in names))
    condition = Condition.parse("slower:5")
    evidence = evidence_from_manifest(manifest_of(run), table_of(frame))
    _, found = judge_claims([], evidence, ad_hoc=[("old", "new")], conditions=[condition])
    assert found.verdict == "depends" and found.alpha == ALPHA / len(names)


def test_an_effect_as_json_has_null_where_there_is_no_bound() -> None:
    found = effect([0.1, 0.2], Region.ratio(2, 3), further=Further(2.0))
    assert plain(found) == {
        "workload": "w",
        "variant": "new",
        "baseline": "old",
        "metric": "cpu time",
        "ratio": pytest.approx(math.exp(0.15)),
        "low": None,
        "high": None,
        "rounds": 2,
        "seconds": 10.0,
        "verdict": "inconclusive",
        "cause": "too few rounds",
        "reason": "too few rounds for an interval",
        "notes": [],
        "seconds_more": pytest.approx(found.seconds_more),
    }
    assert plain(replace(found, seconds_more=math.inf))["seconds_more"] is None, "no time would settle it"
    assert "seconds_more" not in plain(replace(found, seconds_more=math.nan)), "nobody knows"
    assert plain(effect([], Region.ratio(2, 3)))["ratio"] is None


# -- several effects -----------------------------------------------------------------------------------------------


def verdicts(*words: str, reasons: Sequence[str] = ()) -> list[Effect]:
    one = effect(normal(0.0), Region.ratio(2, 3))
    reasons = [*reasons, *[""] * len(words)]
    return [
        replace(one, workload=f"w{index}", verdict=Word(word), reason=reasons[index], notes=())
        for index, word in enumerate(words)
    ]


@pytest.mark.parametrize(
    ("words", "verdict", "reason"),
    [
        (["supported"], "supported", "inside the claimed range on w0"),
        (["supported", "supported"], "supported", "inside the claimed range on w0, w1"),
        (["refuted", "refuted"], "refuted", "outside the claimed range on w0, w1"),
        (["supported", "refuted", "refuted"], "depends", "supported on w0; refuted on w1, w2"),
        (["supported", "refuted", "inconclusive"], "depends", "supported on w0; refuted on w1; inconclusive: w2"),
        (["supported", "inconclusive"], "inconclusive", "not decided: inconclusive on w1; supported on w0"),
        (["refuted", "not evidence"], "inconclusive", "not decided: not evidence on w1; refuted on w0"),
        (["inconclusive", "inconclusive"], "inconclusive", "not decided: inconclusive"),
        (["not evidence", "not evidence"], "not evidence", "w0, w1 (not evidence)"),
        (["not evidence", "inconclusive"], "inconclusive", "not decided: not evidence on w0; inconclusive on w1"),
        (["faster", "same", "inconclusive"], "depends", "faster on w0; same on w1; inconclusive: w2"),
        (["slower", "inconclusive"], "inconclusive", "not decided: inconclusive on w1; slower on w0"),
    ],
)
def test_a_part_follows_from_its_effects(words: list[str], verdict: str, reason: str) -> None:
    assert combine(verdicts(*words)) == (verdict, reason)


def test_reasons_and_baselines_are_named() -> None:
    effects = verdicts("inconclusive", "not evidence", reasons=["too noisy", "gates failed"])
    assert combine(effects)[1] == "not decided: too noisy on w0; gates failed on w1"
    effects = verdicts("supported", "refuted")
    effects[1] = replace(effects[1], workload="w0", baseline="other")
    assert combine(effects) == ("depends", "supported on w0 against old; refuted on w0 against other")
    with pytest.raises(ValueError, match="at least one effect"):
        combine([])


# -- a whole run ---------------------------------------------------------------------------------------------------


def experiment(workload: str, *variants: str, **more: Any) -> dict[str, Any]:
    return {
        "workload": {"name": workload, "kind": "prefill"},
        "variants": list(variants),
        "baseline": variants[0],
        "clock": {"default": "cpu", "wall_variants": []},
        "gates": {name: {"passed": True, "detail": ""} for name in variants},
        "traces": {name: {"digest": "same", "ops": 7} for name in variants},
        "trace_differences": [],
        "excluded": [],
    } | more


def manifest(*experiments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"alpha": 0.01, "environment": {}, "experiments": list(experiments), "excluded": []} | more


def claim(*workloads: str, id: str = "c", part: str | None = None, **hypothesis: Any) -> Claim:
    given = {
        "part": part,
        "evidence": "operations",
        "variant": "new",
        "baseline": "old",
        "workloads": list(workloads),
        "metric": "time",
    } | hypothesis
    return Claim.model_validate(
        {
            "id": id,
            "title": "New is faster",
            "who": ["TEAM-1"],
            "source": [{"document": "d", "section": "s"}],
            "statement": "It is.",
            "assumes": [],
            "decided_by": "Measuring.",
            "hypothesis": [given],
        }
    )


def test_a_part_that_depends_is_judged_at_alpha_over_its_effects() -> None:
    frame = pd.concat(
        [samples(noisy(1, old=0.0, new=-0.05), workload="a"), samples(noisy(2, old=0.0, new=0.0), workload="b")]
    )
    run = manifest(experiment("a", "old", "new"), experiment("b", "old", "new"))
    evidence = evidence_from_manifest(manifest_of(run), table_of(frame))
    one = claim("a", "b", faster_than_percent=1)
    mirrored = claim("b", id="m", variant="old", baseline="new", same_within_percent=1)
    verdict, same = judge_claims([one, mirrored], evidence)
    assert (verdict.claim, verdict.part, verdict.who, verdict.claimed) == ("c", "", ("TEAM-1",), "more than 1 % faster")
    assert verdict.verdict == "depends" and verdict.reason == "supported on a; refuted on b"
    assert (verdict.alpha, same.alpha) == (0.005, 0.01)
    assert verdict.together and same.together, "far from the edge at half of alpha, too"
    values = differences(frame, workload="a", baseline="old", variant="new", clock="cpu").values
    interval = running_interval(values, LookPlan(0.005, one_sided=True))
    assert verdict.effects[0].low == pytest.approx(math.exp(interval.low))
    assert verdict.effects[0].metric == "cpu time"
    assert same.verdict == "supported"
    assert json.loads(json.dumps(plain(verdict), allow_nan=False)) == plain(verdict)
    assert list(plain(verdict)) == [
        "claim", "part", "who", "title", "statement", "verdict", "reason", "cause", "alpha", "claimed", "due_to",
        "region", "together", "effects",
    ]  # fmt: skip
    assert list(plain(verdict)["effects"][0]) == [
        "workload", "variant", "baseline", "metric", "clock", "ratio", "low", "high", "rounds", "seconds", "verdict",
        "cause", "reason", "notes", "one_sided",
    ]  # fmt: skip


def test_more_than_a_claim_of_something_small_refutes_it_and_is_no_understatement() -> None:
    frame = samples(noisy(1, old=0.0, new=-0.3), workload="a")
    evidence = evidence_from_manifest(manifest_of(manifest(experiment("a", "old", "new"))), table_of(frame))
    claims = [claim("a", id=f"c{int(small)}", gain_percent=[2, 10], small=small) for small in (False, True)]
    assert [verdict.word for verdict in judge_claims(claims, evidence)] == ["understated", "refuted"]


def test_what_the_run_left_out_is_named() -> None:
    frame = samples(noisy(1, old=0.0, new=-0.05), workload="a")
    evidence = evidence_from_manifest(manifest_of(manifest(experiment("a", "old", "new"))), table_of(frame))
    partly, not_at_all = judge_claims(
        [claim("a", "b", faster_than_percent=1), claim("b", id="d", faster_than_percent=1)], evidence
    )
    assert partly.verdict == "supported" and partly.reason.endswith("not in this run: new against old on b")
    assert partly.alpha == 0.01
    assert (not_at_all.verdict, not_at_all.effects) == ("not measurable here", ())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"gates": {"new": {"passed": False, "detail": "error 0.3, tolerance 1e-5"}}},
            "new: gates failed: error 0.3, tolerance 1e-5",
        ),
        (
            {"variants": ["old"], "excluded": [{"variant": "new", "reason": "killed its process (signal 9)"}]},
            "new: killed its process (signal 9)",
        ),
    ],
)
def test_a_variant_that_fell_out_is_not_evidence(changes: dict[str, Any], reason: str) -> None:
    frame = samples(noisy(1, old=0.0, new=-0.05), workload="a")
    evidence = evidence_from_manifest(manifest_of(manifest(experiment("a", "old", "new", **changes))), table_of(frame))
    [verdict] = judge_claims([claim("a", faster_than_percent=1)], evidence)
    assert verdict.verdict == "not evidence" and reason in verdict.reason
    assert verdict.effects[0].said == (reason,)


def test_a_variant_that_fell_out_of_the_whole_run_is_not_evidence() -> None:
    frame = samples(noisy(1, old=0.0, new=-0.05), workload="a")
    for entered in (["old", "new"], ["new"]):  # it may have fallen out before any experiment took it on
        run = manifest(experiment("a", *entered), excluded=[{"variant": "old", "reason": "import failed"}])
        [verdict] = judge_claims(
            [claim("a", faster_than_percent=1)], evidence_from_manifest(manifest_of(run), table_of(frame))
        )
        assert verdict.verdict == "not evidence" and "old: import failed" in verdict.reason


DIFFERENT = {"old": {"digest": "1", "ops": 7}, "new": {"digest": "2", "ops": 9}}


@pytest.mark.parametrize(
    ("changes", "kind", "verdict", "reason"),
    [
        ({}, "architecture", "supported", ""),
        ({"traces": DIFFERENT}, "architecture", "not evidence", "op traces differ: 9 ops in new, 7 in old"),
        ({"traces": DIFFERENT}, "operations", "supported", ""),
        ({"traces": DIFFERENT}, "context", "supported", ""),
        ({"traces": {}}, "architecture", "not evidence", "op traces were not compared"),
        (
            {"trace_differences": [{"baseline": "new", "variant": "old", "same": False, "detail": "op 3: add, mul"}]},
            "architecture",
            "not evidence",
            "op 3: add, mul",
        ),
        (
            {"traces": {}, "trace_differences": [{"baseline": "old", "variant": "new", "same": True, "detail": ""}]},
            "architecture",
            "supported",
            "",
        ),
    ],
)
def test_only_equal_traces_are_evidence_on_architecture(
    changes: dict[str, Any], kind: str, verdict: str, reason: str
) -> None:
    frame = samples(noisy(1, old=0.0, new=-0.05), workload="a")
    evidence = evidence_from_manifest(manifest_of(manifest(experiment("a", "old", "new", **changes))), table_of(frame))
    [found] = judge_claims([claim("a", evidence=kind, faster_than_percent=1)], evidence)
    assert found.verdict == verdict and reason in found.reason


@pytest.mark.parametrize(
    ("clock", "metric"),
    [
        ({"default": "cpu", "wall_variants": []}, "cpu time"),
        ({"default": "cpu", "wall_variants": ["old"]}, "wall time"),
        ({"default": "cpu", "wall_variants": ["other"]}, "cpu time"),
        ({"default": "wall", "wall_variants": []}, "wall time"),
    ],
)
def test_both_sides_are_timed_by_wall_if_either_has_to_be(clock: dict[str, Any], metric: str) -> None:
    frame = samples(noisy(1, old=0.0, new=-0.05), workload="a")
    frame.loc[frame["variant"] == "new", "wall_ns"] *= 2  # wall and CPU time tell opposite stories
    evidence = evidence_from_manifest(
        manifest_of(manifest(experiment("a", "old", "new", clock=clock))), table_of(frame)
    )
    [verdict] = judge_claims([claim("a", faster_than_percent=1)], evidence)
    assert verdict.effects[0].metric == metric
    assert verdict.verdict == ("supported" if metric == "cpu time" else "refuted")


def test_an_interrupted_run_is_judged_by_what_it_has() -> None:
    frame = samples(noisy(1, rounds=30, old=0.0, new=-0.05), workload="a")
    run = {"experiments": [experiment("a", "old", "new"), {"workload": {"name": "b"}, "variants": ["old", "new"]}]}
    evidence = evidence_from_manifest(manifest_of(run), table_of(frame))
    [verdict] = judge_claims([claim("a", "b", faster_than_percent=1)], evidence)
    assert verdict.verdict == "inconclusive"
    assert verdict.reason == "not decided: no rounds were measured on b; supported on a"


def test_what_had_no_round_at_all_was_not_tested_and_is_not_open() -> None:
    frame = samples(noisy(1, rounds=30, old=0.0, new=-0.05), workload="a")
    unmeasured = {"workload": {"name": "b"}, "variants": ["old", "new"], "first_seconds": 30.0}
    run = {"experiments": [experiment("a", "old", "new"), unmeasured]}
    evidence = evidence_from_manifest(manifest_of(run), table_of(frame))
    [verdict] = judge_claims([claim("b", faster_than_percent=1)], evidence)
    assert verdict.verdict is Word.NOT_TESTED and not verdict.is_open
    assert outcome(verdict) == "not tested" and verdict.cause is Cause.NO_ROUNDS
    assert run_notes([verdict], manifest_of(run))[0] == "1 verdict: 1 not tested"


@pytest.mark.parametrize(("pages", "verdict"), [("madvise", "supported"), ("always", "inconclusive")])
def test_huge_pages_make_a_fault_dear(pages: str, verdict: str) -> None:
    frame = samples(noisy(1, old=0.0, new=-0.05), workload="a", call_ns=3_000_000, repeats=2, faults={"old": 1.0})
    run = manifest(experiment("a", "old", "new"), environment={"transparent_huge_pages": pages})
    [found] = judge_claims(
        [claim("a", faster_than_percent=1)], evidence_from_manifest(manifest_of(run), table_of(frame))
    )
    assert found.verdict == verdict


# -- what was fixed beforehand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "one_sided"),
    [
        (Region.faster_than_percent(1), True),
        (Region.slower_than_percent(5), True),
        (Region.not_faster_than_percent(2), True),
        (Region.ratio(2, 3), False),
        (Region.same_within_percent(1), False),
        (Region.faster_than_percent(0), False),  # sides that are alike are neither faster nor slower
        (ANSWERS[0], False),
        (ANSWERS[1], True),  # nobody calls a pair "not the same"
        (Region(-math.inf, math.inf), False),
    ],
)
def test_an_answer_that_can_be_wrong_at_one_end_has_all_of_alpha_there(region: Region, one_sided: bool) -> None:
    assert region.one_sided == one_sided


def test_what_was_planned_decides_how_wide_an_interval_is() -> None:
    frame = samples(noisy(1, old=0.0, new=-0.05, rounds=40), workload="a")
    values = differences(frame, workload="a", baseline="old", variant="new", clock="cpu").values

    def found(horizon: int | None, **claimed: Any) -> Effect:
        run = manifest_of(manifest(experiment("a", "old", "new", horizon=horizon)))
        [verdict] = judge_claims([claim("a", **claimed)], evidence_from_manifest(run, table_of(frame)))
        return verdict.effects[0]

    plans = {
        (40, True): found(40, faster_than_percent=1),
        (None, True): found(None, faster_than_percent=1),
        (40, False): found(40, same_within_percent=1),
        (None, False): found(None, same_within_percent=1),
    }
    for (horizon, one_sided), effect in plans.items():
        interval = running_interval(values, LookPlan(ALPHA, horizon, one_sided))
        assert (effect.low, effect.high) == (math.exp(interval.low), math.exp(interval.high))
        assert effect.plan(ALPHA) == LookPlan(ALPHA, horizon, one_sided)
        assert ("horizon" in plain(effect), "one_sided" in plain(effect)) == (horizon is not None, one_sided)
    widths = [effect.high - effect.low for effect in plans.values()]
    assert widths[0] == min(widths) and widths[-1] == max(widths)


def test_faster_has_both_ends_and_the_same_has_one() -> None:
    for shift, word, one_sided in ((-0.05, "faster", False), (0.0, "same", True)):
        frame = samples(noisy(1, old=0.0, new=shift, rounds=60), workload="a")
        run = manifest_of(manifest(experiment("a", "old", "new", horizon=60)))
        found = judge_ad_hoc(evidence_from_manifest(run, table_of(frame)), baseline="old", variant="new")
        assert found.verdict == word and found.effects[0].one_sided == one_sided


# -- controls ------------------------------------------------------------------------------------------------------

CONTROLLED = ("old", "new", "old@aa", "new@copy")


def test_controls_are_judged_and_summed_up_in_a_line() -> None:
    frame = samples(noisy(1, dict.fromkeys(CONTROLLED, 0.0), sd=0.004))
    noise = evidence_from_manifest(manifest_of(manifest(experiment("w", *CONTROLLED))), table_of(frame)).noise
    assert [(c.kind, c.variant, c.baseline, c.fired) for c in noise.controls] == [
        ("aa", "old@aa", "old", False),
        ("copy", "new@copy", "new", False),
    ]
    values = differences(frame, workload="w", baseline="old", variant="old@aa", clock="cpu").values
    interval = running_interval(values, 0.01 / 2)
    assert noise.controls[0].interval == interval
    widest = max(math.expm1((c.interval.high - c.interval.low) / 2) for c in noise.controls)
    shift = max(math.expm1(abs(c.interval.centre)) for c in noise.controls)
    assert noise.line == (
        "Identical code: no difference found in 2 checks; "
        f"all within {shift * 100:.2g} % of 1 (widest interval ±{widest * 100:.2g} %)"
    )
    assert plain(noise) == {
        "controls": [
            {
                "workload": "w",
                "kind": c.kind,
                "variant": c.variant,
                "ratio": pytest.approx(math.exp(c.interval.centre)),
                "low": pytest.approx(math.exp(c.interval.low)),
                "high": pytest.approx(math.exp(c.interval.high)),
                "rounds": 40,
                "fired": False,
            }
            for c in noise.controls
        ],
        "line": noise.line,
    }


def test_a_run_without_controls_says_so_and_short_ones_too() -> None:
    frame = samples(noisy(1, dict.fromkeys(CONTROLLED, 0.0), rounds=3))
    assert (
        evidence_from_manifest(manifest_of(manifest(experiment("w", "old", "new"))), table_of(frame)).noise.line
        == "Identical code: not checked in this run"
    )
    line = evidence_from_manifest(manifest_of(manifest(experiment("w", *CONTROLLED))), table_of(frame)).noise.line
    assert line == "Identical code: 2 checks had too few rounds to say"


def test_controls_that_differ_only_together_widen_the_intervals() -> None:
    names = [f"v{number}" for number in range(12)]
    sides = dict.fromkeys(names, 0.0) | {f"{name}@copy": 0.0018 * (-1) ** int(name[1:]) for name in names}
    frame = samples(noisy(1, sides, rounds=24, sd=0.005))
    evidence = evidence_from_manifest(manifest_of(manifest(experiment("w", *sides))), table_of(frame))
    assert not any(control.fired for control in evidence.noise.controls)
    assert 0.001 < evidence.noise.typical < 0.003 and plain(evidence.noise)["typical"] == evidence.noise.typical
    assert re.match(
        r"Identical code: 12 checks together show a difference, typically 0\.1\d %, too small for one alone to show;",
        evidence.noise.line,
    )
    assert "no difference" not in evidence.noise.line
    assert evidence.bias("w") == 2 * evidence.noise.typical


@pytest.mark.parametrize(("gain", "verdict"), [(0.05, "inconclusive"), (0.7, "supported")])
def test_a_control_that_fires_confounds_what_its_bias_could_have_made(gain: float, verdict: str) -> None:
    shifts = {"old": 0.0, "new": -gain, "old@aa": 0.03}
    frame = samples(noisy(1, shifts, sd=0.004))
    evidence = evidence_from_manifest(manifest_of(manifest(experiment("w", *shifts))), table_of(frame))
    assert evidence.noise.controls[0].fired and evidence.noise.line.startswith(
        "Identical code: in 1 check a difference was found: old@aa on w; all within "
    )
    assert evidence.bias("w") == 2 * max(abs(evidence.noise.controls[0].interval.low), 0.0) > 0.06
    [found] = judge_claims([claim("w", faster_than_percent=1)], evidence)
    assert found.verdict == verdict
    assert ("A/A checks differ" in found.reason) == (verdict == "inconclusive")


def test_a_control_counts_for_its_own_workload_first() -> None:
    frame = pd.concat(
        [
            samples(noisy(1, {"old": 0.0, "old@aa": 0.05}, sd=0.004), workload="a"),
            samples(noisy(2, {"old": 0.0, "old@aa": 0.0}, sd=0.004), workload="b"),
            samples(noisy(3, sd=0.004, old=0.0), workload="c"),
        ]
    )
    evidence = evidence_from_manifest(
        manifest_of(
            manifest(experiment("a", "old", "old@aa"), experiment("b", "old", "old@aa"), experiment("c", "old"))
        ),
        table_of(frame),
    )
    assert evidence.bias("a") > evidence.bias("b") == 2 * evidence.noise.typical
    assert evidence.bias("c") == evidence.bias("a")  # none of its own: the worst of the others


# -- comparing without a claim -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shifts", "words", "verdict"),
    [
        ([-0.05], ["faster"], "faster"),
        ([0.05, 0.05], ["slower", "slower"], "slower"),
        ([0.0, 0.001], ["same", "same"], "same"),
        ([-0.05, 0.05], ["faster", "slower"], "depends"),
        ([-0.05, 0.0], ["faster", "same"], "depends"),
        ([0.005], ["slower"], "slower"),
        ([-0.02, -0.005], ["faster", "faster"], "faster"),
    ],
)
def test_a_comparison_says_faster_slower_or_same(shifts: list[float], words: list[str], verdict: str) -> None:
    frame = pd.concat(
        [
            samples(noisy(index, sd=0.005, old=0.0, new=shift), workload=f"w{index}")
            for index, shift in enumerate(shifts)
        ]
    )
    run = manifest(*(experiment(f"w{index}", "old", "new") for index in range(len(shifts))), experiment("x", "old"))
    found = judge_ad_hoc(evidence_from_manifest(manifest_of(run), table_of(frame)), baseline="old", variant="new")
    assert [effect.verdict for effect in found.effects] == words
    assert (found.claim, found.verdict) == ("ad-hoc", verdict)
    assert found.alpha == (0.01 / len(shifts) if verdict == "depends" else 0.01)


def test_a_comparison_says_by_how_little_a_side_is_slower_and_how_long_an_open_one_takes() -> None:
    frame = samples(noisy(0, sd=0.005, old=0.0, new=0.005))
    run = manifest(experiment("w", "old", "new", wall_seconds=90.0))
    [effect] = judge_ad_hoc(
        evidence_from_manifest(manifest_of(run), table_of(frame)), baseline="old", variant="new"
    ).effects
    assert (effect.verdict, effect.said[0]) == ("slower", "by less than 1 %") and effect.high < 1
    frame = samples(noisy(0, sd=0.05, old=0.0, new=0.005))
    found = judge_ad_hoc(evidence_from_manifest(manifest_of(run), table_of(frame)), baseline="old", variant="new")
    assert found.verdict == "inconclusive" and 0 < found.effects[0].seconds_more < math.inf
    assert "lies on both sides of 1×" in found.reason


def test_what_is_not_known_within_one_percent_may_be_within_two() -> None:
    frame = samples(noisy(0, sd=0.018, old=0.0, new=0.0))
    found = judge_ad_hoc(
        evidence_from_manifest(manifest_of(manifest(experiment("w", "old", "new"))), table_of(frame)),
        baseline="old",
        variant="new",
    )
    [effect] = found.effects
    assert found.claimed == "same within ±2 %" and found.high == pytest.approx(1.02), (
        "what was answered is what is asked"
    )
    assert max(effect.high, 1 / effect.low) > 1.01 and 1 / 1.02 <= effect.low < 1 < effect.high <= 1.02
    assert (effect.verdict, effect.said[0]) == ("same", "within 2 %; whether within 1 % too is open")


def test_a_comparison_on_nothing_is_no_evidence() -> None:
    frame = samples(noisy(1, old=0.0))
    found = judge_ad_hoc(
        evidence_from_manifest(manifest_of(manifest(experiment("w", "old"))), table_of(frame)),
        baseline="old",
        variant="new",
    )
    assert found.verdict == "not evidence" and found.effects == ()


# -- how often a verdict is wrong ------------------------------------------------------------------------------------

TRIALS, ROUNDS = 1000, 112


def simulated_rounds(noise: str, truth: float, seed: int, *, trials: int = TRIALS) -> NDArray[np.float64]:
    """Round values of many trials, [trials, ROUNDS], from simulated times of adjacent pairs in coin-flip order."""
    rng = np.random.default_rng(seed)
    shape = (trials, ROUNDS, PAIRS)
    if noise == "normal":
        one, other = rng.normal(0, 0.01, shape), rng.normal(0, 0.01, shape)
    elif noise == "heavy tails":
        one, other = 0.007 * rng.standard_t(3, shape), 0.007 * rng.standard_t(3, shape)
    else:  # a machine that slowly becomes faster and slower, by 10 % and more, and each pair a step further
        walk = np.cumsum(rng.normal(0, 0.004, (trials, ROUNDS * PAIRS * 2)), axis=1).reshape(*shape, 2)
        order = rng.integers(0, 2, shape)
        first, second = walk[..., 0], walk[..., 1]
        one = np.where(order, first, second) + rng.normal(0, 0.005, shape)
        other = np.where(order, second, first) + rng.normal(0, 0.005, shape)
    values: NDArray[np.float64] = np.median(one - other, axis=-1) + truth
    return values


def ever(values: NDArray[np.float64], region: Region) -> tuple[float, float, float]:
    """Shares of trials in which any look said supported, any said refuted, and none said either."""
    supported, refuted = answers(values, region, ALPHA)
    return float(supported.mean()), float(refuted.mean()), float((~supported & ~refuted).mean())


@pytest.mark.parametrize("noise", ["normal", "heavy tails", "drift"])
def test_identical_sides_are_told_apart_in_at_most_one_percent(noise: str) -> None:
    values = simulated_rounds(noise, 0.0, seed=1)
    assert miss(values, ALPHA).mean() <= 0.02  # 10 of 1,000 are promised, give or take 3
    faster, not_faster, _ = ever(values, Region.faster_than_percent(1))
    assert faster <= 0.001 and not_faster > 0.9  # refuted is right here
    not_slower = ever(values, Region.slower_than_percent(0.01))
    assert not_slower[0] <= 0.01


@pytest.mark.parametrize("noise", ["normal", "heavy tails", "drift"])
@pytest.mark.parametrize(
    ("region", "truth", "false"),
    [
        (Region.faster_than_percent(1), math.log(1.0099), "supported"),
        (Region.faster_than_percent(1), math.log(1.0101), "refuted"),
        (Region.same_within_percent(1), math.log(1.0101), "supported"),
        (Region.same_within_percent(1), -math.log(1.0099), "refuted"),
        (Region.gain_percent(6, 11), math.log(1.0599), "supported"),
        (Region.gain_percent(6, 11), math.log(1.1099), "refuted"),
        (Region.ratio(2, 3), math.log(3.001), "supported"),
        (Region.ratio(2, 3), math.log(2.001), "refuted"),
    ],
)
def test_a_truth_beside_the_boundary_is_put_on_the_wrong_side_in_at_most_one_percent(
    noise: str, region: Region, truth: float, false: str
) -> None:
    supported, refuted, _ = ever(simulated_rounds(noise, truth, seed=2), region)
    assert {"supported": supported, "refuted": refuted}[false] <= 0.01


@pytest.mark.parametrize(
    ("region", "truth", "right"),
    [
        (Region.faster_than_percent(1), math.log(1.03), "supported"),
        (Region.faster_than_percent(1), 0.0, "refuted"),
        (Region.same_within_percent(1), 0.0, "supported"),
        (Region.same_within_percent(2), math.log(1.04), "refuted"),
        (Region.gain_percent(6, 11), math.log(1.085), "supported"),
        (Region.gain_percent(6, 11), math.log(1.02), "refuted"),
        (Region.ratio(2, 3), math.log(2.5), "supported"),
        (Region.ratio(2, 3), math.log(1.2), "refuted"),
    ],
)
def test_a_truth_a_point_away_from_the_boundary_is_found(region: Region, truth: float, right: str) -> None:
    supported, refuted, still_open = ever(simulated_rounds("normal", truth, seed=3, trials=500), region)
    assert {"supported": supported, "refuted": refuted}[right] >= 0.95 and still_open <= 0.05


def test_noise_without_power_never_proves_equality() -> None:
    rng = np.random.default_rng(4)
    for truth in (0.0, math.log(1.02)):
        supported, _, still_open = ever(rng.normal(truth, 0.1, (TRIALS, ROUNDS)), Region.same_within_percent(1))
        assert supported <= 0.001 and still_open > 0.97


def test_the_same_holds_from_samples_to_verdict() -> None:
    """The whole way through the tables, for fewer trials: identical sides, planted gains, and the time it takes."""
    region = Region.faster_than_percent(1)
    wrong = missed = 0
    for seed in range(120):
        gain = (0.0, 0.05)[seed % 2]
        frame = samples(noisy(seed, rounds=40, sd=0.01, old=0.0, new=-gain))
        found = differences(frame, workload="w", baseline="old", variant="new", clock="cpu")
        judged = judge_effect(
            found, region, alpha=ALPHA, workload="w", variant="new", baseline="old", metric="cpu time"
        )
        wrong += judged.verdict == ("refuted" if gain else "supported")
        missed += not judged.low <= math.exp(gain) <= judged.high
    assert wrong == 0 and missed <= 5  # 1.2 are promised


@pytest.mark.parametrize("shared", [0.0, 1.0])
@pytest.mark.parametrize(
    "truths", [[-1e-9], [0.0, -1e-9, 1.0], [-1e-9] * 3, [1.0, -1.0, -1e-9], [1.0, -1.0, 0.0, 0.0, -1e-9, -1e-9]]
)
def test_a_verdict_on_several_effects_is_wrong_in_at_most_one_percent(truths: list[float], shared: float) -> None:
    """Effects on the edge of the region, where an interval that misses makes a verdict wrong."""
    rng = np.random.default_rng(6)
    rates = wrong_verdicts(truths, Region(0.0, math.inf), parts=1500, rng=rng, shared=shared)
    assert all(rate <= ALPHA for rate in rates.values()), rates


def test_without_sharing_alpha_a_verdict_that_depends_would_be_wrong_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulated_rates, "shared_alpha", lambda alpha, answers: alpha)
    truths = [1.0, -1.0, *[-1e-9, 0.0] * 5]
    rates = simulated_rates.wrong_verdicts(
        truths, Region(0.0, math.inf), parts=1500, rng=np.random.default_rng(6), shared=0.0
    )
    assert rates["depends"] > 2 * ALPHA


# -- the parts of a generation -----------------------------------------------------------------------------------------


def generations() -> pd.DataFrame:
    """Two variants, 30 processes: "a" takes 4 ms to the first of 6 tokens and 1 ms for each other, "b" 2 and 2 ms."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(30):
        for variant, first_ns, other_ns in (("a", 4e6, 1e6), ("b", 2e6, 2e6)):
            first, other = np.array([first_ns, other_ns]) * np.exp(rng.normal(0, 0.01, 2))
            times = {"cpu_ns": round(first + 5 * other), "first_cpu_ns": round(first)}
            wall = {"wall_ns": 2 * times["cpu_ns"], "first_wall_ns": 2 * times["first_cpu_ns"]}
            key = {"workload": "g", "variant": variant, "process": number + 1, "round": number, "sub_round": 0}
            rows.append({**key, "repeats": 1, "faults": 0, **times, **wall})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("metric", "ratio", "call_ms"),
    [("time", 9 / 12, 9.0), ("time_to_first_token", 2.0, 4.0), ("time_per_output_token", 0.5, 1.0)],
)
@pytest.mark.parametrize("clock", ["cpu", "wall"])
def test_a_generation_has_three_times(metric: Any, ratio: float, call_ms: float, clock: Any) -> None:
    pair = {"workload": "g", "baseline": "a", "variant": "b"}
    measured = differences(generations(), **pair, clock=clock, metric=metric, new_tokens=6)
    assert len(measured.values) == 30
    assert math.exp(measured.values.mean()) == pytest.approx(ratio, rel=0.01)
    factor = 2 if clock == "wall" else 1
    assert measured.call_baseline_ns == pytest.approx(call_ms * 1e6 * factor, rel=0.01)
    assert measured.invalid_share == 0


def test_the_three_times_add_up_and_give_the_throughput() -> None:
    frame = generations()
    total, first, other = (
        stats.call_times_ns(table_of(frame), clock="cpu", metric=metric, new_tokens=6) for metric in get_args(Metric)
    )
    assert np.allclose(total, first + 5 * other)
    assert stats.tokens_per_second(9e6, new_tokens=6, batch=3) == pytest.approx(2000)


def test_what_generates_nothing_has_no_first_token() -> None:
    frame = samples(noisy(0, a=0.0, b=0.0)).assign(first_cpu_ns=0, first_wall_ns=0)
    for metric in ("time_to_first_token", "time_per_output_token"):
        pair = {"workload": "w", "baseline": "a", "variant": "b"}
        measured = differences(frame, **pair, clock="cpu", metric=metric, new_tokens=4)
        assert (len(measured.values), measured.invalid_share) == (0, 1.0)


def test_a_metric_that_cannot_be_had_is_an_error() -> None:
    frame = generations()
    with pytest.raises(ValueError, match="needs the workload's new_tokens, 2 or more, not 1"):
        stats.call_times_ns(table_of(frame), clock="cpu", metric="time_per_output_token", new_tokens=1)
