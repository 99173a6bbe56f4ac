"""Other tools beside this one: what their answers are read as, and the table of the committed trials."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.slices.calibrate.known import CASES, FUNCTIONS, IDENTICAL, PLANTED, KnownComparison
from llama_workbench.harness.slices.calibrate.rates import Rate, read_trials
from studies import versus_tools, versus_trials
from studies.versus_tools import FASTER, NOTHING, SLOWER, TOOLS, Reading, Readings, ToolFailed, apart, told
from studies.versus_trials import (
    OURS,
    Trial,
    best_in_hindsight,
    counted,
    following,
    halves,
    in_hindsight,
    is_of,
    rows,
    table,
)


def trial(percent: int, number: int, *answers: str, log_ratios: Sequence[float] = (0.0, 0.0)) -> Trial:
    """With what our tool and timeit said."""
    rules = zip((OURS, "timeit"), ("verdict", "best, 5 % apart"), answers, log_ratios, strict=False)
    read = {tool: {rule: Reading(answer, log_ratio)} for tool, rule, answer, log_ratio in rules}
    work = PLANTED if percent else IDENTICAL
    spent = dict.fromkeys(read, 10.0 + number)
    return Trial(work, "words", percent, number, False, "2026-01-02T03:04:05+00:00", 10.0, read, spent, {}, "A")


def test_figures_are_apart_by_a_share_and_a_test_says_which_is_larger() -> None:
    assert [apart(1.0, new).answer for new in (1.06, 1.04, 0.96, 0.94)] == [SLOWER, NOTHING, NOTHING, FASTER]
    assert apart(1.0, 1.03, 0.02).answer == SLOWER and apart(1.0, 2.0).log_ratio == pytest.approx(-0.693, abs=1e-3)
    assert [told(1.0, new, differ=True).answer for new in (1.001, 0.999)] == [SLOWER, FASTER]
    assert told(1.0, 9.0, differ=False).answer == NOTHING


def test_the_table_counts_alarms_what_was_found_and_two_runs_of_one_comparison() -> None:
    known = [
        trial(0, 1, NOTHING, SLOWER), trial(0, 1, NOTHING, FASTER), trial(0, 2, NOTHING, NOTHING),
        trial(3, 3, SLOWER, NOTHING), trial(3, 4, NOTHING, FASTER), trial(5, 5, SLOWER),
    ]  # fmt: skip
    ours, other = rows(known)
    assert (ours.tool, ours.alarms.count, ours.alarms.of, ours.seconds) == (OURS, 0, 3, 13.0)
    assert [(rate.count, rate.of) for rate in ours.found.values()] == [(1, 2), (1, 1)]
    assert (ours.differ.count, ours.differ.of, ours.opposite.count) == (0, 1, 0)
    assert (other.alarms.count, other.differ.count, other.opposite.count) == (2, 1, 1)
    assert [(rate.count, rate.of) for rate in other.found.values()] == [(0, 2), (0, 0)]
    assert "| timeit | best, 5 % apart | 2 of 3: 66.7 % [9.4, 99.2] |" in table(known)


def test_in_hindsight_a_figure_has_the_least_threshold_that_calls_hardly_any_of_the_same_code_different() -> None:
    same = [trial(0, number, *[NOTHING] * 2, log_ratios=(0.001, 0.01 * number)) for number in range(20)]
    more = [trial(3, 30 + number, *[NOTHING] * 2, log_ratios=(-0.03, -0.165 - 0.01 * number)) for number in range(4)]
    ours, other = in_hindsight([*same, *more])
    assert (ours.figure, ours.threshold, ours.found[3]) == ("estimate", 0.001, Rate(4, 4))
    # One of twenty may be above it, and two of 0.165, 0.175, 0.185 and 0.195 are.
    assert other.threshold == pytest.approx(0.18) and other.found[3] == Rate(2, 4)
    assert "A: this workbench finds 3 % in 4 of 4 and" in best_in_hindsight([*same, *more])
    assert "timeit by its best of five, 3 % in 2 of 4 and" in best_in_hindsight([*same, *more])


def test_the_later_half_of_the_trials_is_put_against_the_earlier_one() -> None:
    early = [trial(0, number, NOTHING, SLOWER) for number in range(20)]
    assert halves([*early, *early]) == "- A: of 2 shares, 0 with intervals that do not overlap.\n"
    late = [trial(0, number, NOTHING, NOTHING) for number in range(20)]
    apart = (
        "timeit, best, 5 % apart, 0 % more work: 20 of 20: 100.0 % [83.2, 100.0] and then 0 of 20: 0.0 % [0.0, 16.8]"
    )
    assert halves([*early, *late]) == f"- A: of 2 shares, 1 with intervals that do not overlap ({apart}).\n"


def test_of_this_workbench_the_answers_by_its_last_code_count() -> None:
    old, new = replace(trial(0, 1, SLOWER, SLOWER), code="a"), replace(trial(0, 2, NOTHING), code="b")
    assert [{*each.answers} for each in counted([old, new])] == [{"timeit"}, {OURS}]
    assert is_of(new, (OURS,), "b") and not is_of(old, (OURS,), "b")
    assert is_of(old, (OURS, "timeit"), "b") and not is_of(new, (OURS, "timeit"), "b")


def test_every_rule_says_what_its_figure_is() -> None:
    known = versus_trials.read(ROOT / versus_trials.KEPT)
    assert {rule for each in known for rules in each.answers.values() for rule in rules} == versus_tools.FIGURES.keys()


def test_kinds_of_work_have_their_shares() -> None:
    draw, known = random.Random(1), list[Trial]()
    for number in range(60):
        comparison = following(known, draw)
        known.append(replace(trial(comparison.percent, number, NOTHING), case=comparison.case))
    shares = Counter(each.case for each in known)
    assert shares.keys() == {*CASES[FUNCTIONS]} and max(shares.values()) - min(shares.values()) <= 3


def test_what_is_planted_is_on_the_side_that_all_tools_look_at() -> None:
    draw, known = random.Random(1), list[Trial]()
    for number in range(40):
        comparison = following(known, draw)
        assert not (comparison.percent and comparison.turned)
        known.append(trial(comparison.percent, comparison.number or number, NOTHING))
    numbers = [each.number for each in known]
    assert 5 < len(numbers) - len(set(numbers)) < 25 and max(map(numbers.count, numbers)) == 2


@pytest.mark.long
@pytest.mark.parametrize("tool", ["pytest-benchmark", "timeit", "Mann-Whitney"])
def test_twenty_times_the_work_is_slower(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real commands of those that are installed here anyway. So much more that no busy machine hides it."""
    monkeypatch.setattr(versus_tools, "interpreter", lambda: sys.executable)
    for side, upto in (("old", 2000), ("new", 40_000)):
        text = f"def call():\n    return sum(range({upto}))\n"
        (tmp_path / f"side_{side}.py").write_text(text, encoding="utf-8")
    readings = versus_tools.TOOLS[tool](tmp_path, 1.2)
    assert readings and all(reading.answer == SLOWER and reading.log_ratio < -0.7 for reading in readings.values())


def test_who_fails_is_named_and_a_line_of_the_file_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(tool: str, comparison: KnownComparison, seconds: float) -> Readings:
        if tool == "asv":
            raise ToolFailed("asv: no such commit")
        return {"rule": Reading(NOTHING, seconds)}

    monkeypatch.setattr(versus_trials, "asked", asked)
    comparison = KnownComparison("functions", IDENTICAL, "words", 0, 7)
    made = versus_trials.one(comparison, busy=False, seconds=0.5, cpu="A", code="c", draw=random.Random(1))
    assert made.failed == {"asv": "ToolFailed: asv: no such commit"} and made.answers.keys() == {OURS, *TOOLS} - {"asv"}
    assert Trial.read(json.dumps(asdict(made))) == made and made.comparison == comparison


def test_the_committed_table_is_that_of_the_committed_trials() -> None:
    known = counted(versus_trials.read(ROOT / versus_trials.KEPT))
    wanted = versus_trials.blocks(known, read_trials(ROOT / versus_trials.ALONE))
    places = {"versus-short": "README.md", "versus": "docs/validation.md"}
    for name in wanted:
        written = (ROOT / places.get(name, "docs/results/trials.md")).read_text(encoding="utf-8")
        assert known and f"<!-- {name}:begin -->\n{wanted[name].strip()}\n<!-- {name}:end -->" in written
    assert (ROOT / versus_trials.PICTURE).read_text(encoding="utf-8") == versus_trials.drawing(known)
