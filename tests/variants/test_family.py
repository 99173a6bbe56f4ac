"""One level for every effect of a part, the same in the measuring loop and in the judge."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_workbench import ROOT
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.evidence.effect import Further, judge_effect
from llama_workbench.harness.plan.experiments import Plan, make_plan
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.session.judging import judge_run, stopping_rule
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.spec.experiments import Target
from llama_workbench.harness.spec.regions import ANSWERS
from llama_workbench.harness.stats.samples import Differences, differences, log_times
from tests.runs import write_run

CLAIMS = load_claims(ROOT / "claims")
WORKLOADS = ("prefill-15m-t128", "decode-15m-c64")
PAIR = ("team006_before", "team006_after")
EMPTY: dict[str, Any] = dict.fromkeys(("workload", "variant", "baseline", "metric"), "")


def judged_and_asked(plan: Plan, tmp_path: Path) -> list[tuple[str, float, float]]:
    """Verdict, level of the judge and level of the loop, of every part that is timed: the same rounds given to both."""
    run = write_run(
        tmp_path,
        only=WORKLOADS,
        claims=[claim.stored() for claim in plan.claims],
        judged=False,
        manifest={"ad_hoc": [list(pair) for pair in plan.ad_hoc]},
    )
    verdicts, _ = judge_run(run.manifest(), plan.claims, run)
    rule, samples = stopping_rule(plan, {}), run.read_samples()
    for workload in WORKLOADS:
        for pair in rule.pairs[workload]:
            times = log_times(samples, workload=workload, clock=rule.clocks.of(workload, pair.variant, pair.baseline))
            rule.series[pair] = differences(times, baseline=pair.baseline, variant=pair.variant).values.tolist()
    timed = [bool(list(part.targets())) for claim in plan.claims for part in claim.hypothesis] + [True] * len(
        plan.ad_hoc
    )
    of_times = [verdict for verdict, is_timed in zip(verdicts, timed, strict=True) if is_timed]
    levels = [rule.alpha_of(part) for part in rule.parts]
    return [(each.verdict, each.alpha, level) for each, level in zip(of_times, levels, strict=True)]


def test_loop_and_judge_use_the_same_level(tmp_path: Path) -> None:
    variants = ("team005_hybrid", "team005_proposal", *PAIR)
    plan = make_plan(Request(claims=("single-file-faster",), workloads=WORKLOADS, variants=variants), CLAIMS)
    assert plan.ad_hoc == tuple(("team005_hybrid", name) for name in PAIR)
    levels = judged_and_asked(plan, tmp_path)
    assert len(levels) == 3
    for verdict, judged, asked in levels:
        assert judged == asked == (0.005 if verdict == "depends" else 0.01)


@pytest.mark.parametrize(
    ("gains", "alpha"),
    [
        ((0.2, 0.2), 0.01),
        ((0.2, -0.2), 0.005),  # faster here, slower there
        ((0.2, 0.0), 0.005),  # faster here, the same there
        ((0.0, 0.0), 0.01),
        ((0.2, math.nan), 0.01),  # nothing is known of the other yet
    ],
)
def test_effects_share_alpha_once_they_lie_on_different_sides(gains: tuple[float, float], alpha: float) -> None:
    plan = make_plan(Request(compare=PAIR, workloads=WORKLOADS), CLAIMS)
    rule = stopping_rule(plan, {})
    [(part, targets)] = rule.parts.items()
    assert targets == [
        Target(Comparison(name, PAIR[1], PAIR[0]), ANSWERS, "operations", "team006_after against team006_before")
        for name in WORKLOADS
    ]
    for target, gain in zip(targets, gains, strict=True):
        rounds = np.random.default_rng(1).normal(gain, 0.002, 40)
        rule.series[target.comparison] = [] if math.isnan(gain) else rounds.tolist()
    assert rule.alpha_of(part) == alpha


@pytest.mark.whole
def test_the_lengths_of_a_trend_share_alpha_in_the_loop_too() -> None:
    plan = make_plan(Request(claims=("mask-gain-scales",)), CLAIMS)
    rule = stopping_rule(plan, {})
    lengths = [len(targets) for targets in rule.parts.values()]
    assert lengths == [2, 4, 2, 2]
    assert [rule.alpha_of(part) for part in rule.parts] == [0.01 / length for length in lengths]


def test_an_effect_that_page_faults_could_turn_is_not_settled_for_the_loop_either() -> None:
    """The judge calls it confounded. More rounds settle it: the interval then leaves room for what faults cost."""
    plan = make_plan(Request(claims=("is-causal-faster",), workloads=WORKLOADS[:1]), CLAIMS)
    rule = stopping_rule(plan, {})
    [[target]] = rule.parts.values()
    pair, random = target.comparison, np.random.default_rng(2)
    values = random.permutation(np.linspace(-0.02, 0.02, 40)) + 0.001
    found = Differences(values, 1.0, 50.0, 80.0, 0.0, 40e6, 40e6)  # 30 faults more: 0.3 % of the time at most
    settled = {}
    for scale in (0.9, 0.3):
        close = replace(found, values=values * scale)
        rule.series[pair], rule.found[pair] = close.values.tolist(), []
        rule.intervals.clear()
        rule.stretches.clear()
        without = rule._answers([target], 0.01)[target]
        rule.found[pair] = [close]
        effect = judge_effect(close, target.regions[0], alpha=0.01, further=Further(1.0), **EMPTY)
        settled[scale] = without, rule._answers([target], 0.01)[target], effect.verdict
        if effect.verdict == "inconclusive":
            assert effect.said[0].startswith("confounded: the difference in page faults")
            assert 0 < rule._rounds_left(target) < 1000
            # With as many more as it says, spread as these are, it is settled.
            enough = round(len(values) + effect.seconds_more)
            longer = replace(close, values=scale * (random.permutation(np.linspace(-0.02, 0.02, enough)) + 0.001))
            later = judge_effect(longer, target.regions[0], alpha=0.01, **EMPTY)
            assert later.verdict == "refuted"
    assert settled == {0.9: ((0, False), None, "inconclusive"), 0.3: ((0, False), (0, False), "refuted")}
