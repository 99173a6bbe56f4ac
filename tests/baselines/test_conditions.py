"""When a comparison fails a build."""

from __future__ import annotations

import pytest

from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import PlanError, Request, typed
from llama_workbench.harness.spec.regions import ANSWERS, Condition, Region
from llama_workbench.harness.spec.words import Word

PAIR = ("team006_before", "fast")


@pytest.mark.parametrize(
    ("text", "one_is_in", "all_are_out", "all_are_in", "some_are_open"),
    [
        ("slower:5", True, False, True, False),
        ("maybe-slower:5", True, False, True, True),
        ("not-faster:5", True, True, False, True),
        ("not-between:0.9:1.1", True, True, False, True),
    ],
)
def test_when_a_condition_fails(
    text: str, *, one_is_in: bool, all_are_out: bool, all_are_in: bool, some_are_open: bool
) -> None:
    condition = Condition.parse(text)
    assert str(condition) == text
    assert condition.fails([Word.SUPPORTED, Word.REFUTED]) == one_is_in
    assert condition.fails([Word.REFUTED, Word.REFUTED]) == all_are_out
    assert condition.fails([Word.SUPPORTED, Word.SUPPORTED]) == all_are_in
    assert condition.fails([]) == (condition.kind != "slower"), "nothing is proven"
    assert (
        condition.fails(
            [Word.INCONCLUSIVE, Word.REFUTED if condition.kind in ("slower", "maybe-slower") else Word.SUPPORTED]
        )
        == some_are_open
    )


def test_what_a_condition_is_about() -> None:
    assert Condition.parse("slower:5").region == Condition.parse("maybe-slower:5").region
    assert Condition.parse("slower:5").region == Region.slower_than_percent(5)
    assert Condition.parse("not-faster:20").region == Region.faster_than_percent(20)
    assert Condition.parse("slower:0").region.high == 0


@pytest.mark.parametrize(
    "text",
    ["slower:0", "slower:5", "not-faster:2.5", "maybe-slower:1.23456789", "slower:1e-05", "not-between:0.98:1.02"],
)
def test_a_condition_is_read_as_it_was_written(text: str) -> None:
    assert str(Condition.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *(f"slower{rest}" for rest in ("", ":", ":x", ":-1", ":inf", ":nan")),
        "same:1",
        "not-between:1.1",
        "not-between:2:1",
        "",
    ],
)
def test_another_word_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(
        PlanError, match=r"--fail-if .*WHAT:PERCENT.*slower, maybe-slower, not-faster, or not-between:LOW:HIGH"
    ):
        typed(Request, {"compare": PAIR, "fail_if": [text]})


def test_a_condition_needs_a_comparison() -> None:
    with pytest.raises(PlanError, match="only with --compare"):
        make_plan(Request(variants=PAIR, fail_if=(Condition.parse("slower:5"),)), [])


def test_measuring_goes_on_until_the_condition_is_decided() -> None:
    """Any effect may be the slow one, so their intervals share alpha."""
    plan = make_plan(
        Request(compare=PAIR, fail_if=tuple(map(Condition.parse, ("slower:5", "not-faster:3", "slower:5")))), []
    )
    assert [str(each) for each in plan.conditions] == ["slower:5", "not-faster:3"]
    for experiment in plan.experiments:
        regions = {target.regions: target.at_once for target in experiment.targets}
        assert regions == {
            ANSWERS: 1,
            (Region.slower_than_percent(5),): len(plan.experiments),
            (Region.faster_than_percent(3),): 1,
        }
