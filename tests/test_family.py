"""One level for every effect of a part, the same in the measuring loop and in the judge."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from llama_workbench import ROOT
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.plan.experiments import Plan, make_plan
from llama_workbench.harness.plan.selection import Request
from llama_workbench.harness.rejudge import judge_run
from llama_workbench.harness.run import stopping_rule
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.spec.experiments import Target
from llama_workbench.harness.spec.regions import ANSWERS
from llama_workbench.harness.stats.samples import differences, log_times
from tests.runs import write_run

CLAIMS = load_claims(ROOT / "claims")
WORKLOADS = ("prefill-15m-t128", "decode-15m-c64")
PAIR = ("team006_before", "team006_after")


def judged_and_asked(plan: Plan, tmp_path: Path) -> list[tuple[str, float, float]]:
    """Verdict, level of the judge and level of the loop, of every part that is timed: the same rounds given to both."""
    run = write_run(
        tmp_path,
        only=WORKLOADS,
        claims=[claim.model_dump(mode="json") for claim in plan.claims],
        judged=False,
        manifest={"ad_hoc": [list(pair) for pair in plan.ad_hoc]},
    )
    verdicts, _ = judge_run(run.read_manifest(), plan.claims, run)
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


def test_the_lengths_of_a_trend_share_alpha_in_the_loop_too() -> None:
    plan = make_plan(Request(claims=("mask-gain-scales",)), CLAIMS)
    rule = stopping_rule(plan, {})
    assert [rule.alpha_of(part) for part in rule.parts] == [0.01 / 4, 0.01 / 3, 0.01 / 2]
    assert [len(targets) for targets in rule.parts.values()] == [4, 3, 2]
