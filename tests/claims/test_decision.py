"""The teams' own rules, at and around their thresholds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_workbench.harness.claims.reading import load_dispute
from llama_workbench.harness.report.answer import Decision, Measured, decide, picks_of

DISPUTE = load_dispute()


def about(value: float, width: float = 0.2) -> Measured:
    return Measured(value, value - width, value + width)


def options(decision: Decision) -> str:
    """The letters of what may be done, as the documents have them."""
    letters = {pick.option for pick in decision.rule.pick if pick.action in decision.actions}
    return "".join(sorted(letters))


def picks(shares: dict[str, Measured], effects: dict[str, Measured]) -> dict[str, Decision]:
    names = ("hand-off", "plan", "review", "keep")
    return dict(zip(names, decide(DISPUTE, shares, effects), strict=True))


@pytest.mark.parametrize(
    ("mask", "cache", "plan", "review"),
    [
        (about(2), about(1), "C", "C"),
        (about(7), about(1), "C", "B"),
        (about(12), about(1), "B", "B"),
        (about(1), about(7), "C", "D"),
        (about(12), about(12), "D", "D"),
        (about(10), about(1), "BC", "B"),
        (Measured(10, 9, 10), about(1), "C", "B"),  # "more than 10 %"
        (about(1), about(5), "C", "CD"),
        (about(10), about(12), "D", "D"),  # whatever the mask, the caches decide
    ],
)
def test_shares_against_ten_and_five_percent(mask: Measured, cache: Measured, plan: str, review: str) -> None:
    found = picks({"mask_create": mask, "cache": cache}, {})
    assert (options(found["plan"]), options(found["review"])) == (plan, review)
    assert found["plan"].is_measured and not found["keep"].is_measured


@pytest.mark.parametrize(
    ("proposal", "cache", "option"),
    [
        (Measured(2.5, 2.3, 2.7), about(1, 0.002), "A"),
        (Measured(1.0, 0.99, 1.009), about(1.5, 0.1), "C"),
        (Measured(1.07, 1.06, 1.08), Measured(1.07, 1.06, 1.08), "D"),
        (Measured(1.07, 1.06, 1.08), Measured(1.0, 0.995, 1.005), "B"),
        (Measured(1.05, 1.03, 1.07), Measured(1.0, 0.995, 1.005), "BC"),
        (Measured(1.1, 1.07, 1.13), Measured(1.07, 1.06, 1.08), "AD"),
    ],
)
def test_the_four_options_of_the_hand_off(proposal: Measured, cache: Measured, option: str) -> None:
    found = picks({}, {"proposal": proposal, "cache": cache})["hand-off"]
    assert options(found) == option
    assert found.is_measured == ("B" not in option), "the layout decides only how B is done"


def test_what_was_measured_picks_one_path() -> None:
    """At most 3.1 % is no improvement by the documents' own limits."""
    found = picks({}, {"proposal": Measured(1.017, 1.0, 1.031), "cache": Measured(1.016, 0.99, 1.027)})["hand-off"]
    assert found.actions == ("reject the plan",)


def test_the_possible_options_are_named_and_no_others() -> None:
    effects = {"proposal": Measured(1.1, 1.07, 1.13), "cache": Measured(1.07, 1.06, 1.08)}
    found = picks({}, effects)["hand-off"]
    [picked, *_] = picks_of({"w": [found]})
    assert picked.done.startswith("ruled out: reject the plan and keep the single file")
    assert picked.done.endswith("undecided: (a) execute the plan or (b) start with the unified cache only, then decide")


def test_workloads_that_cannot_tell_are_told_together() -> None:
    nothing, gains = Measured(1.0, 0.995, 1.005), Measured(1.07, 1.06, 1.08)
    numbers = {
        "a": {"proposal": gains, "cache": gains, "layout": gains},
        "b": {"proposal": Measured(1.05, 1.04, 1.06), "cache": gains, "layout": gains},
        "c": {"proposal": gains, "cache": Measured(1.05, 1.04, 1.06), "layout": nothing},
    }
    decided = {name: decide(DISPUTE, {}, effects) for name, effects in numbers.items()}
    [hand_off, *others] = picks_of(decided)
    assert hand_off.done == (
        "ruled out: execute the plan and keep the single file, drop the unified cache; "
        "undecided: (a) reject the plan or (b) start with the unified cache only, then decide or (c) keep the modular "
        "files and add what gains (on 2 of 3 workloads); start with the unified cache only, then decide "
        "(on 1 of 3 workloads)"
    )
    assert not hand_off.where
    assert {other.done for other in others} == {"nothing: its numbers were not measured"}
    assert picks_of({"a": decided["a"]})[0].where == "on the one workload that has its numbers"


def test_their_own_gain_does_not_pass_their_own_test() -> None:
    keep = picks({}, {"mask": Measured(1.085, 1.06, 1.0999)})["keep"]
    assert keep.actions == ("take the cached masks out again",)
    assert options(picks({}, {"mask": Measured(1.085, 1.06, 1.11)})["keep"]) == "BC"


def test_what_was_not_measured_cannot_tell() -> None:
    found = picks({}, {})
    assert not any(decision.is_measured for decision in found.values())
    assert [options(decision) for decision in found.values()] == ["ABCD", "BCD", "BCD", "BC"]
    assert picks({"cache": Measured(math.nan, 0.0, math.inf)}, {"mask": Measured(math.nan, 0.0, math.inf)}) == found
    unbounded = picks({}, {"mask": Measured(1.2, 0.0, math.inf)})["keep"]
    assert unbounded.is_measured and options(unbounded) == "BC"


@settings(deadline=None)
@given(*[st.tuples(st.floats(0, 20), st.floats(0, 4), st.floats(0, 1)) for _ in range(2)])
def test_the_true_shares_pick_among_the_choices(
    mask: tuple[float, float, float], cache: tuple[float, float, float]
) -> None:
    """Whatever the truth inside the intervals, what the rule would pick on it is among the choices."""
    ranges, truths = {}, {}
    for name, (value, width, at) in {"mask_create": mask, "cache": cache}.items():
        ranges[name] = Measured(value, value - width, value + width)
        true = min(max(value - width + 2 * at * width, value - width), value + width)
        truths[name] = Measured(max(true, 0), true, true)
    for measured, exact in zip(decide(DISPUTE, ranges, {}), decide(DISPUTE, truths, {}), strict=True):
        assert set(exact.actions) <= set(measured.actions)
        if measured.rule.document == "TEAM-006 EXECUTION PLAN":
            assert len(exact.actions) == 1


def test_every_rule_says_where_it_stands_and_how_we_interpret_it() -> None:
    for rule in DISPUTE.rule:
        assert rule.team and rule.document and rule.section and rule.says and rule.remark
