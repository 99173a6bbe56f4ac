"""An option is one line at one place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.plan.options import (
    Options,
    PlanError,
    Request,
    Start,
    every_option,
    going_on,
    received,
    sent,
    typed,
)
from llama_workbench.harness.plugin import plugin
from llama_workbench.harness.report.outcome import words_of
from llama_workbench.harness.spec.regions import Condition


def test_the_second_name_of_an_option_is_the_same_option() -> None:
    parser = pytest.Parser(_ispytest=True)
    plugin.pytest_addoption(parser)
    line = parser.parse(["--workbench-inputs", "bench.py:texts", "--workbench-call=bench.py:words"])
    assert line.workbench_call == ["bench.py:texts", "bench.py:words"]
    typed_words = ["pytest", "--benchmark", "--inputs", "bench.py:texts", "--workbench-inputs=bench.py:words"]
    assert [*words_of(typed_words, {"--call"})] == ["--call", "bench.py:texts", "--call", "bench.py:words"]


def test_what_is_sent_arrives() -> None:
    request = Request(compare=("fast", "mine"), added=("mine.py:mine",), fail_if=(Condition("slower", 5.0),), threads=2)
    arrived = received(Request, json.loads(json.dumps(sent(request))))
    assert arrived == Request(compare=("fast", "mine"), fail_if=(Condition("slower", 5.0),), threads=2)
    options = Options(
        budget_seconds=3, budget_has_gates=True, checkpoint=Path("model"), run_dir=Path("x"), profile=True
    )
    assert options.seed != Options().seed, "another one for each run"
    arrived_options = received(Options, json.loads(json.dumps(sent(options))))
    assert arrived_options == Options(
        budget_seconds=3, budget_has_gates=True, seed=options.seed, checkpoint=Path("model").resolve(), profile=True
    )


@pytest.mark.parametrize("table", [None, [], {"seed": "x"}, {"run_dir": "/x"}, {"nothing": 1}])
def test_what_no_option_is_does_not_arrive(table: object) -> None:
    with pytest.raises(ValueError):
        received(Options, table)


def test_a_run_that_goes_on_keeps_what_may_not_be_given_again() -> None:
    before = Options(seed=3, count_instructions=True, profile=True, checkpoint=Path("a"))
    given = Options(seed=0, checkpoint=Path("b"), run_dir=Path("here"))
    assert going_on(given, before) == Options(
        seed=3, count_instructions=True, checkpoint=Path("b"), run_dir=Path("here")
    )


def test_nothing_typed_is_every_default() -> None:
    line = {option.key: option.default for option in every_option()}
    assert typed(Start, line) == typed(Start, {}) == Start()
    assert typed(Request, line) == typed(Request, {}) == Request()
    assert typed(Options, line | {"seed": 1}) == typed(Options, {"seed": 1}) == Options(seed=1)
    assert Options().claims_folder == ROOT / "claims"


def test_a_word_that_is_no_condition_is_named_with_its_option() -> None:
    with pytest.raises(PlanError, match=r"^--fail-if slowr:1: expected WHAT:PERCENT"):
        typed(Request, {"fail_if": ["slower:2", "slowr:1"]})
