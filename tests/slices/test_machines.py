"""Verdicts over machines: what is said of these, when it depends on the machine, means, spreads, and error rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from llama_workbench.harness.evidence.effect import ALPHA, combine
from llama_workbench.harness.evidence.evidence import Evidence
from llama_workbench.harness.judge.parts import Part
from llama_workbench.harness.metrics.base import Judged
from llama_workbench.harness.report.machines import machine_lines
from llama_workbench.harness.report.outcome import outcome
from llama_workbench.harness.slices.fleet.verdicts import (
    MachineEvidence,
    have_no_common_point,
    judge_machines,
    mean_of,
)
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.means import CentredInterval, between_variance
from llama_workbench.harness.store.verdict_schema import Effect, OverMachines, Verdict
from studies.simulated_machines import simulate, told

# -- the statistics ----------------------------------------------------------------------------------------------------


def test_the_mean_adds_half_widths_by_squares_and_keeps_their_sides() -> None:
    found = mean_of([CentredInterval(1.0, 0.7, 1.1), CentredInterval(2.0, 1.6, 2.1)])
    assert found.centre == 1.5 and found.low == pytest.approx(1.5 - math.hypot(0.3, 0.4) / 2)
    assert found.high == pytest.approx(1.5 + math.hypot(0.1, 0.1) / 2)
    alone = CentredInterval(1.0, 0.7, 1.1)
    assert vars(mean_of([alone])) == pytest.approx(vars(alone))
    assert mean_of([alone, CentredInterval(0.0, -math.inf, math.inf)]).high == math.inf


def test_intervals_that_touch_have_a_common_point() -> None:
    assert not have_no_common_point([CentredInterval(0, -1, 1), CentredInterval(2, 1, 3), CentredInterval(1, 0, 2)])
    assert have_no_common_point([CentredInterval(0, -1, 1), CentredInterval(2, 1.01, 3), CentredInterval(1, 0, 2)])


@pytest.mark.parametrize("centres", [[0.1, 0.12, 0.3], [0.0, 0.5, -0.4, 0.2, 0.1], [0.1, 0.101, 0.1005, 0.0995]])
def test_the_variance_between_machines_is_that_of_statsmodels(centres: Sequence[float]) -> None:
    from statsmodels.stats.meta_analysis import combine_effects  # takes seconds, which no other test should wait for

    errors = [0.03 + 0.01 * index for index in range(len(centres))]
    oracle = combine_effects(np.array(centres), np.square(errors), method_re="iterated")
    assert between_variance(centres, errors) == pytest.approx(max(oracle.tau2, 0.0), abs=1e-6)
    assert between_variance([0.3], [0.01]) == 0.0


@pytest.mark.parametrize(("machines", "between"), [(2, 0.0), (3, 0.05), (5, 0.0), (5, 0.1)])
def test_simulated_fleets_are_wrong_as_seldom_as_promised(machines: int, between: float) -> None:
    """docs/concepts/statistics.md has the whole table; here so many fleets that a rate of a few percent would show."""
    fleets = 60
    rates = simulate(machines, between, fleets, np.random.default_rng([machines, int(100 * between)]))
    assert rates.wrong <= 3 and rates.misses <= 3
    assert rates.depends <= 3 if not between else rates.depends >= fleets / 2


# -- the words ---------------------------------------------------------------------------------------------------------


class Told:
    """Stands for evidence: an interval for each workload, as wide at every alpha, or twice as wide at a small one."""

    def __init__(self, intervals: dict[str, tuple[float, float]], *, bias: float = 0.0, wide: float = 1.0) -> None:
        self.intervals, self._bias, self.wide = intervals, bias, wide

    def bias(self, workload: str) -> float:
        return self._bias


def judge(evidence: Evidence, alpha: float) -> Judged:
    """More than 1.1 times as fast, on every workload that the machine measured."""
    given, effects = cast(Told, evidence), []
    for workload, (low, high) in given.intervals.items():
        centre = math.sqrt(low * high)
        if alpha < ALPHA:
            low, high = centre * (low / centre) ** given.wide, centre * (high / centre) ** given.wide
        word = Word.SUPPORTED if low > 1.1 else Word.REFUTED if high < 1.1 else Word.INCONCLUSIVE
        effect = Effect(workload=workload, variant="new", baseline="old", metric="cpu time", ratio=centre, low=low,
                        high=high, rounds=30, seconds=1.0, verdict=word)  # fmt: skip
        effects.append(effect)
    return Judged(*combine(effects), tuple(effects)) if effects else Judged(Word.NOT_MEASURABLE, "not in this run")


def over(*machines: Told) -> tuple[Verdict, list[OverMachines]]:
    """The verdict on machines A, B, C, ..."""
    found = [
        MachineEvidence(name, f"kind {name}", cast(Any, each)) for name, each in zip("ABCDEF", machines, strict=False)
    ]
    [verdict], rows = judge_machines([Part(judge, told)], found, ALPHA)
    return verdict, rows


def test_what_holds_on_each_machine_holds_on_these_machines() -> None:
    verdict, rows = over(Told({"w": (1.12, 1.2)}), Told({"w": (1.15, 1.3)}), Told({"w": (1.11, 1.18)}))
    assert (verdict.verdict, verdict.alpha) == ("supported", ALPHA)  # false only if one interval misses: not divided
    assert verdict.reason == "inside the claimed range on w, on each of these 3 machines: A, B, C"
    assert outcome(verdict) == "supported on these 3 machines"
    assert [effect.machine for effect in verdict.effects] == ["A", "B", "C"]
    assert len(rows) == 1 and not rows[0].apart
    assert [kind.kind for kind in rows[0].kinds] == ["kind A", "kind B", "kind C"]


def test_machines_that_contradict_each_other() -> None:
    verdict, rows = over(Told({"w": (1.12, 1.2)}), Told({"w": (1.0, 1.05)}), Told({"w": (1.05, 1.2)}))
    assert verdict.verdict == "depends" and verdict.alpha == pytest.approx(ALPHA / 3)
    assert verdict.reason.startswith(
        "depends on the machine: supported on A, refuted on B, inconclusive on C; how large"
    )
    assert outcome(verdict) == "depends on the machine"
    assert rows[0].apart


def test_intervals_apart_make_an_open_claim_depend_on_the_machine() -> None:
    verdict, _ = over(Told({"w": (1.12, 1.2)}), Told({"w": (1.05, 1.115)}))
    assert verdict.verdict == "depends" and "supported on A, inconclusive on B" in verdict.reason
    touching, _ = over(Told({"w": (1.12, 1.2)}), Told({"w": (1.05, 1.13)}))
    assert touching.verdict == "inconclusive" and outcome(touching) == "supported on 1 of 2 machines, rest inconclusive"
    one, other = touching.effects
    pieces: tuple[Effect, ...] = (replace(one, machine="A, piece 1"), replace(other, machine="B"))
    pieces += (replace(one, workload="v", machine="A, piece 2"),)
    assert outcome(replace(touching, effects=pieces)) == "supported on 1 of 2 machines, rest inconclusive", (
        "two pieces on one machine"
    )


def test_an_open_workload_is_not_taken_for_one_whose_name_its_own_begins_with() -> None:
    """On w both machines settle the claim alike, and only how large the effect is differs."""
    verdict, rows = over(Told({"w": (1.12, 1.15), "w2": (1.05, 1.2)}), Told({"w": (1.2, 1.3), "w2": (1.05, 1.2)}))
    assert [row.apart for row in rows] == [True, False] and verdict.verdict == "inconclusive"


def test_a_claim_that_is_wrong_everywhere_stays_so_however_large_the_effect_is() -> None:
    verdict, rows = over(Told({"w": (1.0, 1.01)}), Told({"w": (1.05, 1.06)}))
    assert verdict.verdict == "refuted" and verdict.alpha == ALPHA and rows[0].apart
    assert verdict.reason.endswith("; how large the effect is differs between machines (w)")


def test_apart_is_asked_at_a_level_at_which_all_intervals_hold_at_once() -> None:
    near = Told({"w": (1.12, 1.2)}, wide=3.0), Told({"w": (1.05, 1.115)}, wide=3.0)
    assert over(*near)[0].verdict == "inconclusive" and not over(*near)[1][0].apart
    contradicting = Told({"w": (1.12, 1.2)}, wide=3.0), Told({"w": (1.0, 1.09)}, wide=3.0)
    assert over(*contradicting)[0].verdict == "inconclusive"


def test_a_control_that_fired_on_a_machine_takes_its_bias_into_account() -> None:
    fired = Told({"w": (1.12, 1.2)}), Told({"w": (1.05, 1.115)}, bias=0.05)
    assert over(*fired)[0].verdict == "inconclusive"


def test_workloads_that_differ_alike_on_all_machines_do_not_depend_on_the_machine() -> None:
    both = {"a": (1.12, 1.2), "b": (1.0, 1.05)}
    verdict, _ = over(Told(both), Told(both))
    assert (verdict.verdict, verdict.reason) == ("depends", "a: supported on all; b: refuted on all")
    assert outcome(verdict) == "depends on these 2 machines" and verdict.alpha == pytest.approx(ALPHA / 4)


def test_a_split_fleet_takes_each_effect_from_where_it_was_measured() -> None:
    verdict, rows = over(Told({"a": (1.12, 1.2)}), Told({"b": (1.15, 1.3)}), Told({}))
    assert verdict.verdict == "supported" and outcome(verdict) == "supported"
    assert verdict.reason == "inside the claimed range on a, b, measured on A (a), B (b)"
    assert [(effect.workload, effect.machine) for effect in verdict.effects] == [("a", "A"), ("b", "B")]
    assert all(row.mean is None for row in rows) and machine_lines(rows) == []
    differ, _ = over(Told({"a": (1.12, 1.2)}), Told({"b": (1.0, 1.05)}))
    assert (differ.verdict, differ.reason) == ("depends", "a: supported on A; b: refuted on B")


def test_what_no_machine_measured_is_not_measurable() -> None:
    verdict, rows = over(Told({}), Told({}))
    assert (verdict.verdict, rows) == (Word.NOT_MEASURABLE, [])
    assert verdict.reason == "not in this run (on each of these 2 machines)"


def test_five_kinds_of_machines_and_their_mean() -> None:
    _, [row] = over(*(Told({"w": (1.1 * 1.01**k, 1.15 * 1.01**k)}) for k in range(5)))
    lines = machine_lines([row, row])
    assert len(lines) == 1 + 1 + 5 + 1  # a heading, and one block although two parts ask about it
    assert "mean of these 5 machines: 1.147× [1.136, 1.159]; they differ by 1.4 %" in lines[-1]
