"""Whose turn it is: every experiment gets its first interval while there is time, then what can be settled soonest."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llama_workbench import ROOT
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.evidence.evidence import Design
from llama_workbench.harness.judge.stopping import ENOUGH_ROUNDS, StoppingRule
from llama_workbench.harness.measure.choosing import (
    OTHERS_FACTOR,
    FirstIntervals,
    Remaining,
    Wait,
    first_answer_text,
    first_intervals,
    in_time,
    nearly_settled,
    next_to_measure,
    once_seconds,
    round_seconds,
)
from llama_workbench.harness.measure.measurement import _counts, charge
from llama_workbench.harness.measure.participants import Begin, ExperimentState, Tally
from llama_workbench.harness.plan.experiments import Plan, make_plan
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.session.judging import FirstAnswers, stopping_rule
from llama_workbench.harness.session.run import Run, plan_run
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.spec.experiments import Experiment, Target
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.stats.confidence import first_interval, looks_reached, next_look, running_interval
from llama_workbench.harness.store.folder import RunFolder
from tests.runs import Quiet

NAMES = ("decode-15m-c64", "prefill-15m-t128", "prefill-7b-1layer-t128")
VARIANTS = ("team006_before", "team006_after")


@pytest.fixture(scope="module")
def plan() -> Plan:
    request = Request(claims=("mask-caching-helps",), workloads=("prefill-15m-t128", "prefill-7b-1layer-t128"))
    return make_plan(request, load_claims(ROOT / "claims"))


def state(name: str, seconds_a_round: float) -> ExperimentState:
    [experiment] = make_plan(Request(compare=VARIANTS, workloads=(name,)), []).experiments
    return ExperimentState(experiment, None, together=Tally(10, 11 * seconds_a_round, 2 * seconds_a_round))


def early(rounds: float, effects: int = 1) -> Remaining:
    return Remaining(VARIANTS, True, rounds, 1000.0, effects)


def late(rounds: float) -> Remaining:
    return Remaining(VARIANTS, False, rounds, rounds, verdicts=((),))


def waiting(name: str, done: int, rounds: float, *, headline: bool = False) -> Remaining:
    """What a verdict on one effect needs, which has had some rounds."""
    return replace(late(rounds), verdicts=((Wait(Comparison(name, *VARIANTS), rounds, done, headline),),))


def test_a_first_interval_comes_before_what_is_nearly_settled_the_cheapest_first() -> None:
    cheap, dear, known = (state(name, seconds) for name, seconds in zip(NAMES, (1.0, 5.0, 0.1), strict=True))
    open_ = [(known, late(1)), (dear, early(10)), (cheap, early(20))]
    assert next_to_measure(open_, 100)[0] is cheap
    assert next_to_measure(open_[:2], 100)[0] is dear


def test_a_dear_workload_that_many_effects_wait_for_comes_before_a_cheap_one_with_one() -> None:
    shared, lonely = state(NAMES[0], 4.0), state(NAMES[1], 1.0)
    open_ = [(lonely, early(28)), (shared, early(28, effects=12))]
    assert next_to_measure(open_, 200)[0] is shared
    assert next_to_measure(open_, 100)[0] is lonely


def test_headline_claims_come_first_but_not_twice_before_others_had_their_first() -> None:
    cheap, dear = state(NAMES[0], 1.0), state(NAMES[1], 1.9)
    asked = replace(early(10), headline=True)
    assert next_to_measure([(cheap, early(10)), (dear, asked)], 100)[0] is dear
    assert next_to_measure([(cheap, early(10)), (dear, replace(late(1), headline=True))], 100)[0] is cheap
    asked = waiting(NAMES[1], 0, 10, headline=True)
    assert next_to_measure([(cheap, waiting(NAMES[0], 0, 10)), (dear, asked)], 100)[0] is dear
    assert next_to_measure([(cheap, waiting(NAMES[0], 0, 9)), (dear, asked)], 100)[0] is cheap


def test_what_the_first_screen_asks_for_is_known_well_before_others_have_an_interval() -> None:
    one, other, asked = (state(name, 1.0) for name in NAMES)
    open_ = [(one, replace(early(4), headline=True)), (other, replace(late(9), asked=12)), (asked, early(30))]
    assert next_to_measure(open_, 100)[0] is other
    assert next_to_measure([*open_[:2], (asked, replace(late(30), asked=4))], 100)[0] is asked, "it had the fewest"
    assert next_to_measure([*open_[:2], (asked, replace(early(30), asked=0))], 100)[0] is asked, "it has none yet"
    assert first_intervals([open_[0], (asked, replace(early(30), asked=0))])[0][0][0] is asked


def test_the_first_screen_leaves_the_time_for_the_first_intervals_of_all_others() -> None:
    asked, *others = (state(name, 1.0) for name in NAMES)
    open_ = [(asked, replace(late(9), asked=12)), *((one, early(40.0)) for one in others)]
    needed = OTHERS_FACTOR * first_intervals(open_)[-1][1]
    assert next_to_measure(open_, 1.1 * needed)[0] is asked
    assert next_to_measure(open_, 0.9 * needed)[0] is others[0]
    assert next_to_measure([(asked, replace(early(9), asked=0)), *open_[1:]], 0.9 * needed)[0] is asked
    assert next_to_measure([open_[0], (others[0], late(9))], 1)[0] is asked, "all others have theirs"


def test_the_intervals_that_are_told_never_become_fewer() -> None:
    begun = (state(NAMES[0], 1.0), late(50.0))
    assert _counts([begun, (state(NAMES[1], 1.0), early(10.0, effects=4))], 10, (0, 0)) == (6, 5)
    assert _counts([begun], 10, (6, 5)) == (10, 9)
    assert _counts([begun, (state(NAMES[1], 1.0), late(5.0))], 10, (10, 9)) == (10, 9)


def test_what_the_time_left_will_not_settle_gives_it_to_others() -> None:
    hopeless, other = state(NAMES[0], 1.0), state(NAMES[1], 1.0)
    open_ = [(hopeless, waiting(NAMES[0], 0, 101, headline=True)), (other, waiting(NAMES[1], 0, 99))]
    assert next_to_measure(open_, 100)[0] is other
    assert next_to_measure(open_, 200)[0] is hopeless


@pytest.mark.parametrize(
    ("seconds", "given", "said"),
    [
        (72.0, 72.0, "; all 2 first answers after 72 s; the budget is 72 s"),
        (20.0, 25.0, "; all 2 first answers after 72 s; the budget, 25 s, is enough for 1 of them, one after the "
         "other: --budget 77 is for all"),
        (10.0, 14.5, "; all 2 first answers after 72 s; the budget, 14.5 s, is too small for any: give --budget 17"),
        (10.0, math.inf, "; all 2 first answers after 72 s; the budget, 10 s, is too small for any: give --budget 12"),
    ],
    ids=["enough", "for one", "for none", "of a run that goes on"],
)  # fmt: skip
def test_before_the_first_round_it_is_said_how_long_a_first_answer_takes(
    seconds: float, given: float, said: str
) -> None:
    """Of the budget that is given, gates have had `given - seconds`: what is asked for is so much more than rounds."""
    dear, cheap, known = state(NAMES[0], 5.0), state(NAMES[1], 1.0), state(NAMES[2], 9.0)
    text = first_answer_text([(dear, early(12)), (known, late(30)), (cheap, early(12))], seconds, given)
    assert text == f"first answer after about 12 s (12 processes of 1 s){said}"
    assert (cheap.first_seconds, dear.first_seconds, known.first_seconds) == (12, 60, None)


def test_one_first_answer_is_told_alone_and_none_where_all_are_there() -> None:
    alone = [(state(NAMES[0], 5.0), early(12))]
    assert first_answer_text(alone, 60, 60) == (
        "first answer after about 60 s (12 processes of 5 s); the budget is 60 s"
    )
    assert first_answer_text([(state(NAMES[0], 5.0), late(12))], 60, 60) == ""


def test_what_a_first_answer_takes_counts_the_beginning_of_its_processes() -> None:
    for beside, seconds in ((True, 24.0), (False, 48.0)):
        one, other = state(NAMES[0], 1.0), state(NAMES[1], 0.5)
        one.begin = other.begin = Begin(2.0, beside)  # they share their processes, in which both have a round
        together = FirstIntervals().plus((one, early(12)))
        assert together.seconds() == seconds
        assert together.plus((other, early(12))).seconds() == seconds, "begun anyway, and as long as both rounds"
        other.begin = Begin(2.0, beside)
        assert together.plus((other, early(12))).seconds() == 2 * seconds


def test_what_a_process_takes_once_counts_in_each_of_them() -> None:
    """A first call of 1.1 s and a check of 1.3 s, of a side and of its control; later calls take 0.1 s."""
    one = state(NAMES[0], 0.0)
    one.together, one.begin = Tally(), Begin(2.0, beside=True)
    before, after = VARIANTS
    one.call_ns = dict.fromkeys((before, after, f"{after}@aa"), 100000000.0)
    one.learnt = {before: {}, **{name: {"first_ns": 11e8, "first_check_ns": 13e8} for name in (after, f"{after}@aa")}}
    assert once_seconds(one) == pytest.approx(2 * (1.0 + 1.2))
    assert once_seconds(one, Comparison(NAMES[0], after, before)) == once_seconds(one)
    assert once_seconds(one, Comparison(NAMES[0], "another", before)) == 0
    assert round_seconds(one) == pytest.approx(4.4 + 3 * 0.3)
    text = first_answer_text([(one, early(12))], 60, 60)
    assert text.startswith("first answer after about 64 s (12 processes of 5.3 s); the budget, 60 s, is too small")
    one.begin.seconds = 7.0
    assert first_answer_text([(one, early(12))], 90, 90).startswith(
        "first answer after about 84 s (12 processes of 7 s)"
    )
    one.start_seconds = 5.0
    assert once_seconds(one) == 0, "each passes its gates again, and that is in it"


SLOW = """
import gc
import time

time.sleep(0.5)
TABLE = []


def _filled():
    if not TABLE:
        time.sleep(0.5)
        TABLE.append(1)


def first(number):
    _filled()
    return number * number


def other(number):
    _filled()
    return number**2


def setting(number):
    gc.disable()
    _filled()
    return number**2


def number(seed):
    return (seed % 1000,)
"""


@pytest.mark.parametrize("name", ["other", "setting"], ids=["one process", "a process for each side"])
def test_a_slow_import_and_a_slow_first_call_are_in_the_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    request = Request(compare=("slow.py:first", f"slow.py:{name}"), calls=("slow.py:number",))
    options, progress = Options(budget_seconds=3, run_dir=tmp_path / "run", no_causes=True), Quiet()
    run = Run(plan_run(request, options), options, progress)
    run.measure()
    [said] = [note for note in progress.notes if note.startswith("first answer after")]
    told = re.match(r"first answer after .* \(\d+ processes of ([\d.]+) s\)", said)
    assert told is not None and float(told[1]) >= 1
    assert "the budget, 3 s, is too small for any: give --budget" in said
    [experiment] = RunFolder(tmp_path / "run").manifest().experiments
    assert experiment.own_processes == (name == "setting")


def test_what_can_get_no_first_interval_beside_others_waits_until_they_have_theirs() -> None:
    dear, cheap, known = state(NAMES[0], 5.0), state(NAMES[1], 1.0), state(NAMES[2], 9.0)
    open_ = [(dear, early(12)), (known, late(30)), (cheap, early(12))]
    assert in_time(open_, 72) == open_
    assert in_time(open_, 71) == open_[1:], "one input is finished before the next is begun"
    assert in_time(open_, 11) == [open_[1]]
    assert in_time([open_[0], open_[2]], 11) == [open_[2]], "the estimate may be wrong, and nothing else wants the time"
    cheap.together, cheap.call_ns = Tally(), dict.fromkeys(VARIANTS, 1e9 / 6)
    assert in_time([open_[0], open_[2]], 71) == [open_[0]], "what was begun is finished first"


def test_a_turn_is_charged_to_all_that_are_measured_in_it() -> None:
    """Waiting for a process serves all that it measures; one that is not open in it pays nothing."""
    states = one, other, settled = [state(name, 1.0) for name in NAMES]
    charge(states, [2.0, 0.5, 0.0], [one, other, other], 3.5)
    charge(states, [0.0, 1.0, 0.0], [one, other], 1.0)
    assert [each.wall_seconds for each in states] == [2.5, 2.0, 0.0]
    charge(states, [0.0, 0.0, 4.0], [settled], 3.9)  # of two clocks that were read one after the other
    assert settled.wall_seconds == 4.0


def test_a_claim_says_that_it_is_a_headline(plan: Plan) -> None:
    _, need = measured(plan, 3, lambda index: 2.0)
    assert need.headline  # mask-caching-helps is one
    named = {claim.id for claim in load_claims(ROOT / "claims") if claim.headline}
    assert named == {
        "refactor-2x-3x", "single-file-faster", "unified-cache-faster", "mask-caching-helps", "mask-caching-6-11",
    }  # fmt: skip


def test_the_first_round_is_no_measure_of_the_others() -> None:
    once = state(NAMES[0], 1.0)
    once.together = Tally()
    once.together.add(9.0)
    assert round_seconds(once) == 4.5
    for _ in range(3):
        once.together.add(4.0)
    assert round_seconds(once) == 4.0


def test_what_cannot_get_an_interval_any_more_keeps_nothing_from_being_settled() -> None:
    dear, known, dearer = (state(name, seconds) for name, seconds in zip(NAMES, (5.0, 0.1, 9.0), strict=True))
    open_ = [(dear, early(10)), (known, late(400)), (dearer, early(10))]
    assert next_to_measure(open_, 49)[0] is known
    # The estimate may be wrong, and nothing else wants the time.
    assert next_to_measure([open_[0], open_[2]], 49)[0] is dear


def test_of_those_that_have_intervals_the_one_that_settles_soonest() -> None:
    hopeless, soon = state(NAMES[0], 0.01), state(NAMES[1], 2.0)
    assert next_to_measure([(hopeless, late(float("inf"))), (soon, late(30))], 10)[0] is soon


def test_what_completes_a_verdict_soonest_comes_first() -> None:
    """However soon an effect is settled: a verdict that also waits for a dear one comes later, or never."""
    quick, dear, alone = (state(name, seconds) for name, seconds in zip(NAMES, (1.0, 5.0, 2.0), strict=True))
    both = tuple(
        Wait(Comparison(name, *VARIANTS), rounds, 0) for name, rounds in zip(NAMES[:2], (3.0, 10.0), strict=True)
    )
    open_ = [
        (quick, replace(late(3), verdicts=(both,))),
        (dear, replace(late(10), verdicts=(both,))),
        (alone, waiting(NAMES[2], 0, 20)),
    ]
    assert next_to_measure(open_, 100)[0] is alone
    assert next_to_measure(open_[:2], 100)[0] is quick
    assert next_to_measure([(quick, replace(late(3), verdicts=(both, both[:1]))), *open_[1:]], 100)[0] is quick


def test_a_verdict_that_always_needs_a_little_more_gives_way_to_one_that_had_little() -> None:
    """An effect that lies on its limit seems to be nearly settled at any time."""
    edge, other = state(NAMES[0], 1.0), state(NAMES[1], 1.0)
    assert next_to_measure([(edge, waiting(NAMES[0], 12, 5)), (other, waiting(NAMES[1], 12, 20))], 100)[0] is edge
    assert next_to_measure([(edge, waiting(NAMES[0], 40, 5)), (other, waiting(NAMES[1], 12, 20))], 100)[0] is other
    # Not if the other is hopeless in the time that is left.
    assert next_to_measure([(edge, waiting(NAMES[0], 40, 5)), (other, waiting(NAMES[1], 12, 20))], 19)[0] is edge


def test_what_early_looks_have_not_settled_has_its_interval_before_others_get_more() -> None:
    """A prefill at 7B width kept the four processes of its early look, because a decode on its limit was cheaper."""
    edge, young, dear = state(NAMES[0], 1.0), state(NAMES[1], 5.0), state(NAMES[2], 9.0)
    four = replace(waiting(NAMES[1], 4, 8), had=4)
    open_ = [(edge, waiting(NAMES[0], 40, 5)), (young, four)]
    assert next_to_measure(open_, 100)[0] is young
    assert next_to_measure([open_[0], (young, replace(four, had=12))], 100)[0] is edge
    assert next_to_measure([*open_, (dear, early(4))], 100)[0] is dear, "it has no look at all"
    assert next_to_measure([*open_, (dear, replace(late(30), asked=12))], 100)[0] is dear, (
        "the first screen asks for it"
    )
    assert next_to_measure(open_, 39)[0] is edge, "there is no time for eight more"


def test_the_rounds_of_early_looks_are_told_as_had(plan: Plan) -> None:
    for rounds in (5, 30):
        assert measured(plan, rounds, lambda index: 1.3)[1].had == min(rounds, 12)


def test_a_pair_is_told_once_when_one_side_is_proven_faster(plan: Plan) -> None:
    """Three quarters more time are seen after four processes; no difference is never told."""
    workload, told, rng = "prefill-15m-t128", list[str](), random.Random(1)
    rule = stopping_rule(plan, {}, plans={workload: (None, True)})
    twofold, same = Comparison(workload, "new", "old"), Comparison(workload, "twin", "old")
    answers = FirstAnswers(rule, [twofold, same], told.append)
    for _ in range(15):
        for pair, centre in ((twofold, -0.7), (same, 0.0)):
            rule.series.setdefault(pair, []).append(centre + rng.uniform(-0.01, 0.01))
        answers.look()
    [text] = told
    assert text.startswith(f"after 4 processes, new against old on {workload}: 15 to ") and text.endswith(
        " % slower so far"
    )
    assert answers.pairs == [same]


def test_wide_intervals_of_known_verdicts_come_after_open_ones_and_controls() -> None:
    wide, control, open_ = (state(name, 1.0) for name in NAMES)
    known, asked = replace(late(1), verdicts=()), early(5, effects=0)
    assert next_to_measure([(wide, known), (control, asked), (open_, late(50))], 100)[0] is open_
    assert next_to_measure([(wide, known), (control, asked), (open_, late(150))], 100)[0] is control
    assert next_to_measure([(wide, known), (open_, late(150))], 100)[0] is wide
    endless = replace(late(float("inf")), verdicts=())
    assert next_to_measure([(wide, endless), (open_, late(150))], 100)[0] is open_


def measured(plan: Plan, rounds: int, factor: Callable[[int], float]) -> tuple[StoppingRule, Remaining]:
    """A stopping rule, and what remains after rounds of equal variants whose times in round i spread by factor(i)."""
    rule = stopping_rule(plan, {})
    rng = random.Random(5)
    [experiment] = [one for one in plan.experiments if one.workload.name == "prefill-15m-t128"]
    for index in range(rounds):
        spread = factor(index)
        samples = [
            Sample(name, sub_round, place, 128, 1, int(9e6 * rng.uniform(1 / spread, spread)), 9_000_000, 0)
            for sub_round in range(3)
            for place, name in enumerate(experiment.entered())
        ]
        rule.add(Round(experiment.workload.name, 1, index, tuple(samples)))
        rule.end_process()
    return rule, next(iter(rule.remaining(experiment, lambda pair: False)), Remaining((), False, 0.0, 0.0))


def test_noise_does_not_keep_an_experiment_from_its_first_interval(plan: Plan) -> None:
    """A spread from three rounds once said "never", and the experiment waited for ever behind dearer ones."""
    _, need = measured(plan, 3, lambda index: 2.0)
    assert need.early
    assert need.rounds_next == first_interval(ALPHA) - 3
    assert need.rounds_all >= need.rounds_next


def test_with_a_first_interval_others_may_have_their_turn_before_the_next_look(plan: Plan) -> None:
    first = first_interval(ALPHA)
    assert measured(plan, first - 1, lambda index: 1.05)[1].early
    _, need = measured(plan, first, lambda index: 1.05)  # at the claim's limit, so that no interval decides
    assert not need.early
    assert need.rounds_next >= next_look(first, ALPHA) - first


def test_rounds_are_asked_for_up_to_a_look(plan: Plan) -> None:
    for rounds in (first_interval(ALPHA), 20, 33):
        _, need = measured(plan, rounds, lambda index: 1.3)
        assert need.rounds_next + rounds in [look.rounds for look in looks_reached(100_000, ALPHA)]


def test_one_round_far_off_does_not_make_the_wait_endless(plan: Plan) -> None:
    """A spread taken from all rounds would make it tens of thousands."""
    _, calm = measured(plan, 24, lambda index: 1.002)
    _, one_off = measured(plan, 24, lambda index: 3.0 if index == 4 else 1.002)
    assert calm.rounds_next <= one_off.rounds_next < 1000


def of_series(plan: Plan, values: list[float], region: Region, design: Design | None = None) -> float:
    """Rounds that are left for an effect with these differences."""
    rule = stopping_rule(plan, {})
    rule.design = design or Design()
    target = Target(Comparison("prefill-15m-t128", "new", "old"), (region,), "operations", "part")
    rule.parts["part"], rule.series[target.comparison] = [target], values
    return rule._rounds_left(target)


def test_a_decided_effect_waits_no_longer_than_its_last_rounds(plan: Plan) -> None:
    """It is closed after so many rounds, however wide it is then."""
    rng = random.Random(3)
    far = Region.faster_than_percent(100.0)
    for rounds in range(first_interval(ALPHA), ENOUGH_ROUNDS):
        left = of_series(plan, [rng.uniform(-0.3, 0.3) for _ in range(rounds)], far)
        assert 1 <= left <= ENOUGH_ROUNDS - rounds
    assert of_series(plan, [rng.uniform(-0.3, 0.3) for _ in range(ENOUGH_ROUNDS)], far) == 0


def test_alpha_spent_along_the_budget_settles_what_would_else_be_open(plan: Plan) -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(60)
    values = list(0.01 * (noise - noise.mean()) / noise.std() + np.log(1.01) + 0.00395)
    region = Region.faster_than_percent(1.0)
    assert of_series(plan, values, region) > 0
    assert of_series(plan, values, region, Design(horizons={"prefill-15m-t128": 60})) == 0


def test_the_next_look_is_that_of_the_plan(plan: Plan) -> None:
    region, values = Region.faster_than_percent(2.0), [0.02]
    assert of_series(plan, values, region) == 12 - 1
    assert of_series(plan, values, region, Design(horizons={"prefill-15m-t128": 300})) == 15 - 1


def test_an_effect_that_moved_while_it_was_measured_keeps_no_other_waiting(plan: Plan) -> None:
    moved = [0.3 + 0.001 * (index % 3) for index in range(40)] + [0.4 + 0.001 * (index % 3) for index in range(200)]
    assert running_interval(moved, ALPHA).unstable
    assert of_series(plan, moved, Region.faster_than_percent(1.0)) == float("inf")


def test_a_verdict_waits_for_its_open_effects_until_it_is_known(plan: Plan) -> None:
    rule, region = stopping_rule(plan, {}), Region.faster_than_percent(1.0)
    targets = [Target(Comparison(name, "new", "old"), (region,), "operations", "part") for name in NAMES]
    rule.parts["part"] = targets

    def waits_for(*log_ratios: float) -> list[tuple[str, ...]]:
        rule.intervals.clear()  # they are kept by the number of rounds
        for target, value in zip(targets, log_ratios, strict=True):
            rule.series[target.comparison] = [value + 0.001 * (index % 5 - 2) for index in range(40)]
        return [tuple(wait.pair.workload for wait in verdict) for verdict in rule._verdicts(targets)]

    edge = region.low
    assert waits_for(edge, 0.5, edge) == [(NAMES[0], NAMES[2])]
    assert waits_for(edge, 0.5, -0.5) == []  # it depends, whatever the first is
    assert waits_for(0.5, 0.5, 0.5) == []
    assert waits_for(edge, 0.5, edge) and rule._verdicts(targets[1:2]) == ()  # nothing waits for what is settled


def test_a_part_that_depends_waits_for_one_effect_on_each_side(plan: Plan) -> None:
    """Each must be known at its share of alpha, for which there are too few rounds here."""
    rule, region = stopping_rule(plan, {}), Region.faster_than_percent(1.0)
    pairs = [Comparison(NAMES[0], f"new{number}", "old") for number in range(10)]
    targets = [Target(pair, (region,), "operations", "part") for pair in pairs]
    rule.parts["part"], rounds = targets, first_interval(ALPHA)
    assert rounds < first_interval(ALPHA / 10)
    for pair, value in zip(pairs, [0.5, -0.5] + [region.low] * 8, strict=True):
        rule.series[pair] = [value + 0.001 * (index % 5 - 2) for index in range(rounds)]
    [waits_for] = rule._verdicts(targets)
    assert {wait.pair for wait in waits_for} == {*pairs[:2]}


@pytest.mark.whole
def test_a_verdict_from_contrasts_waits_for_those_of_all_workloads() -> None:
    plan = make_plan(Request(claims=("arch-or-ops",)), load_claims(ROOT / "claims"))
    rule = stopping_rule(plan, {})
    first, second = (one for one in plan.experiments if one.contrasts)

    def waits_for(experiment: Experiment) -> set[str]:
        [need] = rule.remaining(experiment, lambda pair: False)
        assert need.effects == len(experiment.contrasts) == 2
        return {wait.pair.workload for verdict in need.verdicts for wait in verdict}

    both = {first.workload.name, second.workload.name}
    assert waits_for(first) == waits_for(second) == both
    rng = np.random.default_rng(5)
    rule.grids[first.workload.name][1].extend(rng.normal(0.0, 0.001, (40, len(first.grid))))
    assert waits_for(second) == {second.workload.name}, "the first are settled: both lie within 1 %"


def test_a_first_interval_is_one_at_the_level_at_which_an_effect_will_be_judged(plan: Plan) -> None:
    """A trend needs the intervals of all its lengths at once, each at a share of alpha."""
    [experiment] = [one for one in plan.experiments if one.workload.name == "prefill-15m-t128"]
    [pair, *_] = [target.comparison for target in experiment.targets]
    rounds = first_interval(ALPHA)
    for at_once in (1, 10):
        rule = stopping_rule(plan, {})
        target = Target(pair, (Region.faster_than_percent(1.0),), "operations", "part", at_once=at_once)
        rule.parts, rule.series[pair] = {"part": [target]}, [0.001 * (index % 5 - 2) for index in range(rounds)]
        one = replace(experiment, targets=(target,), contrasts=())
        for apart in (frozenset({pair}), frozenset()):
            needs = [each for each in rule.remaining(one, apart.__contains__) if each.effects]
            assert [(each.early, each.rounds_next) for each in needs] == (
                [] if at_once == 1 else [(True, first_interval(ALPHA / at_once) - rounds)]
            )


def test_blocks_are_long_only_where_the_first_interval_will_not_do() -> None:
    assert early(12).needs_precision and not replace(early(12), rounds_all=12.0).needs_precision
    assert late(3).needs_precision


def test_beyond_the_time_only_what_is_nearly_settled_is_measured_the_soonest_first() -> None:
    cheap, dear, slow = (state(name, seconds) for name, seconds in zip(NAMES, (1.0, 2.0, 30.0), strict=True))
    open_ = [(dear, waiting(NAMES[1], 20, 3)), (slow, waiting(NAMES[2], 20, 3)), (cheap, early(4))]
    assert [found for found, _ in nearly_settled(open_, 10)] == [cheap, dear]
    assert [found for found, _ in nearly_settled(open_, 5)] == [cheap]
    assert nearly_settled(open_, -1) == []
    only_wide = replace(late(1), verdicts=())  # settled, and not known well
    a_control = replace(early(1), effects=0)
    assert nearly_settled([(cheap, only_wide), (dear, a_control)], 10) == []
    assert nearly_settled([(cheap, replace(early(1), rounds_next=float("inf")))], 10) == []


def test_a_run_that_others_are_compared_with_goes_on_until_the_reference_benchmark_is_known() -> None:
    plan = make_plan(Request(compare=("team006_before", "fast"), workloads=("prefill-15m-t128",)), [])
    [experiment] = plan.experiments
    rng, left = random.Random(5), {}
    rules = {wanted: stopping_rule(plan, {}, to_compare=wanted) for wanted in (False, True)}
    for index in range(400):
        samples = [
            Sample(
                name, 0, place, 128, 1, int((2e6 if name == "fast" else 9e6) * rng.uniform(0.95, 1.05)), 9_000_000, 0
            )
            for place, name in enumerate(experiment.entered())
        ]
        for wanted, rule in rules.items():
            rule.add(Round(experiment.workload.name, index, index, tuple(samples)))
            rule.end_process()
            if not (remaining := rule.remaining(experiment, lambda pair: False)) and wanted not in left:
                left[wanted] = index
            elif wanted and index > 60 and wanted not in left:
                [one] = remaining
                assert (one.effects, one.pair) == (0, None) and set(one.variants) == {
                    "team006_before", "fast", "yardstick",
                }  # fmt: skip
    assert left[False] < 30 < left[True]


def test_in_such_a_run_the_reference_benchmark_rides_along_from_the_first_process() -> None:
    """A short run would end before it, where the identical code came first."""
    plan = make_plan(Request(compare=("team006_before", "fast"), workloads=("prefill-15m-t128",)), [])
    [experiment] = plan.experiments
    riding = {}
    for wanted in (False, True):
        [one] = stopping_rule(plan, {}, to_compare=wanted).remaining(experiment, lambda pair: True)
        riding[wanted] = one.variants[2]
    assert riding == {False: "team006_before@aa", True: "yardstick"}
