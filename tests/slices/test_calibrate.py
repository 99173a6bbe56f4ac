"""Trials of known outcome: the files that are compared, what is measured next, rates, the file that is continued, and
a real trial."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch

from llama_workbench import ROOT
from llama_workbench.commands.shared import Failure
from llama_workbench.harness.baselines.regressions import BETWEEN_PERCENT
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.calls.world import WorldTurn
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.report.markdown import ReadmeError, update_file
from llama_workbench.harness.slices.calibrate import command as verb
from llama_workbench.harness.slices.calibrate import trials as calibrate
from llama_workbench.harness.slices.calibrate.cases import CASES as SOURCES
from llama_workbench.harness.slices.calibrate.cases import source_of
from llama_workbench.harness.slices.calibrate.clothes import CLOTHES, KEYS, dressed, offered
from llama_workbench.harness.slices.calibrate.known import (
    ALLOCATIONS,
    CASES,
    FUNCTIONS,
    IDENTICAL,
    KEPT,
    KINDS,
    MODELS,
    MOVED,
    PLANTED,
    REPEATS,
    TWINS,
    KnownComparison,
)
from llama_workbench.harness.slices.calibrate.rates import (
    FILE,
    NONE_YET,
    CalibrationError,
    Rate,
    Trial,
    append,
    begin,
    in_a_paragraph,
    in_documents,
    in_one_line,
    in_tables,
    pair_row,
    pair_rows,
    pairs_of,
    read_trials,
    row,
    rows,
)
from llama_workbench.harness.slices.calibrate.trials import Selection, following, is_busy, waiting
from llama_workbench.harness.worker.correctness import (
    SMALL_LENGTH,
    run_cases,
    small_cases,
    small_geometries,
    small_weights,
    trace,
)
from llama_workbench.harness.worker.models import variant_from
from llama_workbench.variants.outside import import_file
from studies import action_trials, session_trials
from tests import runs
from tests.measure.test_measure import run as measured


def trial(number: int = 0, percent: int = 0, answer: str = "same", **changes: Any) -> Trial:
    """A made-up trial of known outcome: the variant has more work, so that it is slower."""
    truth = -math.log1p(percent / 100)
    facts: dict[str, Any] = {
        "kind": FUNCTIONS, "work": PLANTED if percent else TWINS, "case": "words", "percent": percent,
        "number": number, "clothes": () if percent else ("keys", "order"), "called_with": "fixed", "repeats": 20,
        "log_ratio": truth, "files": f"{number}", "rule": "r", "machine": "CPU, 2 cores", "budget": 8.0, "busy": False,
        "begun": "2026-01-01T00:00:00+00:00", "seed": 1, "answer": answer, "estimate": truth, "low": truth - 0.009,
        "high": truth + 0.009, "rounds": 12, "processes": 12, "fired": 0, "inside": 0.5, "seconds": 12.0, "trouble": "",
    }  # fmt: skip
    return Trial(**facts | changes)


# -- the files ---------------------------------------------------------------------------------------------------------


def shapes(code: CodeType) -> Counter[Any]:
    """What the functions of a module do, but for names and texts."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    found = sum(map(shapes, inner), Counter())
    if code.co_flags & 2:  # a function, whose names do not depend on what else is defined
        found[shape(code)] += 1
    return found


def shape(part: Any) -> Any:
    if isinstance(part, CodeType):
        names = part.co_varnames, part.co_cellvars, part.co_freevars, len(part.co_names)
        return part.co_code, names, part.co_argcount, *map(shape, part.co_consts)
    if isinstance(part, tuple):
        return tuple(map(shape, part))
    return "text" if isinstance(part, str) else part


def answers(path: Path) -> list[Any]:
    """Of the file's work on inputs that its payloads make."""
    module = import_file(path)
    return [module.work(payload(seed)) for payload in (module.fixed, module.mixed) for seed in range(5)]


@pytest.mark.covers("harness/slices")
@pytest.mark.long
@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind in (FUNCTIONS, ALLOCATIONS) for case in CASES[kind]])
def test_twins_of_functions_do_the_same_work(tmp_path: Path, kind: str, case: str) -> None:
    seen = set[str]()
    for number in range(12):
        known = KnownComparison(kind, TWINS, case, 0, number)
        (tmp_path / str(number)).mkdir()
        known.write(tmp_path / str(number))
        old, new = [*known.files][:2]
        assert known.files[old] != known.files[new] or known.clothes == (MOVED,)
        assert shapes(compile(known.files[old], "old", "exec")) == shapes(compile(known.files[new], "new", "exec"))
        assert answers(tmp_path / str(number) / old) == answers(tmp_path / str(number) / new)
        seen |= {*known.clothes}
    assert seen == {*offered(source_of(SOURCES[case]), KEPT), MOVED}


def test_work_that_differs_has_another_shape() -> None:
    """The test above can fail."""
    text = "def f(a):\n    return a['x'] + 1\n"
    changed = (text.replace("1", "2"), text.replace("+", "-"), text.replace("a", "b"), text.replace("['x']", ""))
    assert shapes(compile(text, "", "exec")) == shapes(compile(text.replace("x", "y"), "", "exec"))
    assert all(shapes(compile(text, "", "exec")) != shapes(compile(other, "", "exec")) for other in changed)


@pytest.fixture
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("case", CASES[MODELS])
def test_twins_of_models_do_the_same_operations(tmp_path: Path, case: str, turn: WorldTurn) -> None:
    first, second = KnownComparison(MODELS, TWINS, case, 0, 3), KnownComparison(MODELS, IDENTICAL, case, 0, 3)
    every = dressed(next(iter(second.files.values())), CLOTHES, random.Random(5), KEPT)
    texts = [*first.files.values(), every]
    builds = []
    for place, text in enumerate(texts):
        (tmp_path / f"side{place}.py").write_text(text)
        builds.append(variant_from(parse(f"{tmp_path}/side{place}.py:build", option="x"), turn).build)
    assert len({*texts}) == 3 and {*first.clothes} <= {*CLOTHES, MOVED} - {KEYS}
    config = next(iter(small_geometries().values()))
    weights = small_weights(config, torch.float32)
    found = [operations(build, config, weights) for build in builds]
    logits = [run_cases(build(config, weights, max_length=SMALL_LENGTH), small_cases(config)) for build in builds]
    assert found[0] and found[0] == found[1] == found[2]
    for other in logits[1:]:
        assert all(
            torch.equal(a, b)
            for mine, theirs in zip(logits[0], other, strict=True)
            for a, b in zip(mine, theirs, strict=True)
        )


def operations(build: Callable[..., Any], config: Any, weights: Any) -> list[Any]:
    """Of a prompt and a token."""
    with torch.no_grad():
        model, tokens = build(config, weights, max_length=SMALL_LENGTH), torch.arange(12)[None]
        return list(trace(lambda: (model.forward(tokens[:, :11], 0), model.forward(tokens[:, 11:], 11))).ops)


def test_names_are_drawn_anew_and_the_same_number_gives_the_same_files() -> None:
    every = [KnownComparison(FUNCTIONS, TWINS, "lookups", 0, number) for number in range(50)]
    again = KnownComparison(FUNCTIONS, TWINS, "lookups", 0, 1)
    assert (
        again.files == every[1].files and again.digest == every[1].digest and len({each.digest for each in every}) == 50
    )
    worn = [each for each in every if each.clothes[:1] == (KEYS,)]
    sides = [[text for path, text in each.files.items() if path != "inputs.py"] for each in worn]
    assert worn and all(sum("'width'" in text for text in texts) == 1 for texts in sides)
    assert {each.called_with for each in every} == {"fixed", "mixed"} and 10 < sum(each.turned for each in every) < 40
    assert {each.repeats for each in every} == {*REPEATS.values()}
    known = KnownComparison(FUNCTIONS, IDENTICAL, "words", 0, 4)
    assert len({*known.files.values()}) == 1 and len(known.files) == 3 and known.log_ratio == 0 and known.clothes == ()
    old, new = [*known.files][:2]
    compared = ["--compare", f"old={old}:work", f"new={new}:work"]
    assert known.command == [*compared, "--call", f"inputs.py:{known.called_with}"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("percent", REPEATS)
def test_planted_work_is_one_time_more(kind: str, percent: int) -> None:
    case = CASES[kind][0]
    for number in range(6):
        known = KnownComparison(kind, PLANTED, case, percent, number)
        old, new = [*known.files.values()][:2]
        times = REPEATS[percent]
        less, more = (new, old) if known.turned else (old, new)
        assert less.count(f"REPEATS = {times}\n") == 1
        assert more == less.replace(f"REPEATS = {times}\n", f"REPEATS = {times + 1}\n")
        assert known.log_ratio == pytest.approx((1 if known.turned else -1) * math.log((times + 1) / times))
        assert abs(known.log_ratio) == pytest.approx(math.log1p(percent / 100), rel=0.011)


@pytest.mark.covers("harness/slices", "harness/calls", "harness/machine", "harness/measure", "harness/worker")
@pytest.mark.parametrize(
    ("kind", "case", "payload"),
    [(ALLOCATIONS, "blocks", "fixed"), (ALLOCATIONS, "garbage", "mixed"), (FUNCTIONS, "words", "mixed")],
)
def test_allocations_are_felt_in_a_process_and_the_other_work_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, case: str, payload: str
) -> None:
    numbers = (KnownComparison(kind, TWINS, case, 0, number) for number in range(99))
    known = next(each for each in numbers if each.called_with == payload)
    known.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    _, old, new, _, call = known.command
    result, _ = measured(tmp_path, Request(compare=(old, new), calls=(call,)), rounds=1)
    [experiment] = result.manifest.experiments
    assert experiment.own_processes is (kind == ALLOCATIONS) and not experiment.excluded


def test_functions_in_another_order_are_defined_before_what_is_executed() -> None:
    text = (
        "'''Doc.'''\nfrom __future__ import annotations\nimport math\nBASE = 2\n"
        "def f():\n    return later()\ndef later():\n    return BASE\n"
        "class A:\n    first: int = f()\n    def g(self):\n        return self.h\n    def h(self):\n        return 3\n"
        "    @property\n    def k(self):\n        return 1\n    @k.setter\n    def k(self, value):\n        pass\n"
        "TOP = A().g()\n"
    )
    orders = {dressed(text, ["order"], random.Random(seed), ()) for seed in range(30)}
    for changed in orders:
        scope: dict[str, Any] = {}
        exec(compile(changed, "", "exec"), scope)
        assert scope["TOP"]() == 3 and scope["A"].first == 2
    assert len(orders) == 4  # two functions, and two methods that are not decorated


def test_only_names_that_belong_to_the_file_are_changed() -> None:
    text = (
        "'''Doc.'''\nfrom __future__ import annotations\n"
        "class A:\n    def __init__(self, size):\n        self.size = size\n        self.shape = self.helper()\n"
        "    def helper(self):\n        return {'k': self.size}['k']\n"
        "def scale(given, scale2=1):\n    return given.shape * A(size=scale2).shape\n"
        "def work(x):\n    return scale(x, scale2=2)\n"
    )
    changed = dressed(text, CLOTHES[:3], random.Random(1), ("work",))
    assert "given.shape" in changed and "self.shape" in changed  # who knows whose shape that is
    for name in ("self.size", "helper", "class A", "'k'", "def scale("):
        assert name not in changed
    assert "def work(x)" in changed and "scale2=2" in changed and "(size=scale2)" in changed and "__init__" in changed


# -- what is measured next ---------------------------------------------------------------------------------------------


def made(count: int, asked: Selection, *, left: bool) -> list[Trial]:
    """So many trials, one after the other. left: whether it is known how many there will be."""
    draw, trials = random.Random(7), list[Trial]()
    for place in range(count):
        known = following(trials, asked, draw, count - place if left else None)
        facts = {name: getattr(known, name) for name in ("kind", "work", "case", "percent", "number")}
        trials.append(trial(**facts, busy=is_busy(trials, known, draw), seed=place))
    return trials


def test_comparisons_are_measured_twice_and_not_in_a_row() -> None:
    trials = made(600, Selection(), left=True)
    runs = Counter(each.number for each in trials)
    assert {*runs.values()} <= {1, 2} and sum(count == 1 for count in runs.values()) <= 2
    places: dict[int, list[int]] = {}
    for place, each in enumerate(trials):
        places.setdefault(each.number, []).append(place)
    apart = [pair[1] - pair[0] for pair in places.values() if len(pair) == 2]
    assert min(apart) > 1 and sum(apart) / len(apart) > 8
    assert len(waiting(made(600, Selection(), left=False))) < 24


def test_kinds_works_cases_and_neighbours_have_their_shares() -> None:
    trials = made(600, Selection(), left=True)
    works = Counter((each.work, each.percent) for each in trials)
    assert works[TWINS, 0] > 600 / 3 and works[IDENTICAL, 0] > 600 / 6
    assert all(works[PLANTED, percent] > 600 / 20 for percent in REPEATS)
    kinds = Counter(each.kind for each in trials)
    assert kinds == pytest.approx({FUNCTIONS: 360, ALLOCATIONS: 120, MODELS: 120}, abs=10)
    assert sum(each.busy for each in trials) == pytest.approx(300, abs=8)
    cases = Counter(each.case for each in trials if each.kind == FUNCTIONS and each.work == TWINS)
    assert {*cases} == {*CASES[FUNCTIONS]} and max(cases.values()) - min(cases.values()) <= 4


def test_one_kind_and_size_may_be_asked_for() -> None:
    asked = verb._selection("functions", "planted-3", "words,fast")
    trials = made(20, asked, left=True)
    assert {(each.kind, each.work, each.percent, each.case) for each in trials} == {(FUNCTIONS, PLANTED, 3, "words")}
    assert all(each in asked for each in trials) and trial(percent=2) not in asked and trial(percent=3) in asked
    assert sum(each.busy for each in trials) == 10
    assert verb._selection("", "twins,planted", "").works == ((TWINS, 0), *((PLANTED, size) for size in REPEATS))
    for words, problem in (
        (("modles", "", ""), "--kinds modles: expected functions, allocations, models"),
        (("", "planted-4", ""), "--only planted-4: expected twins, identical, planted, planted-1"),
        (("", "", "nothing"), "--cases nothing: expected arithmetic"),
        (("models", "", "words"), "--cases words: none of them belongs to --kinds models"),
    ):
        with pytest.raises(Failure, match=problem):
            verb._selection(*words)


# -- rates -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "right", "wrong"),
    [
        (0, ("same", "inconclusive", "not evidence"), ("slower", "faster")),
        (1, ("same", "slower"), ("faster",)),  # at the very limit of what is called the same
        (2, ("same",), ()),  # its interval reaches 3 %: within 2 % is all that was said
        (3, (), ("same",)),
        (5, ("slower", "inconclusive"), ("faster",)),
    ],
)
def test_a_verdict_is_wrong_where_the_truth_lies_outside(
    percent: int, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    for answer in (*right, *wrong):
        assert trial(percent=percent, answer=answer).is_wrong is (answer in wrong)
        turned = {"slower": "faster", "faster": "slower"}.get(answer, answer)
        assert trial(percent=percent, answer=turned, log_ratio=math.log1p(percent / 100)).is_wrong is (answer in wrong)


def test_what_one_interval_says() -> None:
    """The same means within the margin that holds the interval; found is what says all there is to say."""
    assert trial(percent=2, low=-0.009, high=0.005).is_wrong  # said to be within 1 %
    assert not trial(percent=1, low=-0.0099, high=0.005).is_wrong
    assert not trial(percent=2, low=-0.0198, high=0.005).is_wrong
    assert trial(percent=3, answer="slower").is_found
    assert not trial(percent=3, answer="faster").is_found and not trial(percent=3).is_found
    assert trial().is_found and not trial(low=-0.015).is_found  # within 2 % only
    assert not trial(answer="inconclusive").is_found and not trial(answer="slower").is_found
    each = [trial(percent=5), trial(percent=5, low=-0.02, high=0.0), trial(percent=5, low=None, high=None)]
    assert [one.misses for one in each] == [False, True, None]
    summed = row("x", each)
    assert summed.missed == Rate(1, 2) and summed.half_width == pytest.approx(0.0095)


def test_rates_have_exact_binomial_intervals() -> None:
    assert Rate(0, 1000).ends == pytest.approx((0, 0.003682), abs=1e-5)  # 1 - 0.025 ** (1 / 1000)
    low, high = Rate(10, 1000).ends
    assert 0.0047 < low < 0.0049 and 0.0182 < high < 0.0184
    assert Rate(0, 300).at_most == pytest.approx(1 - 0.05 ** (1 / 300))
    assert str(Rate(0, 0)) == "none yet" and Rate(0, 0).ends == (0, 1) and Rate(0, 0).at_most == 1
    assert (
        Rate(3, 300).brief == "1 [0.21, 2.9]" and Rate(297, 300).brief == "99 [97.1, 99.8]" and Rate(0, 0).brief == "-"
    )
    assert Rate(3, 300).counted == "3 of 300: 1.0 % [0.2, 2.9]"


def test_rates_are_of_verdicts_given_and_by_sort() -> None:
    trials = [
        trial(0, 0, "same"),
        trial(1, 0, "slower", busy=True, clothes=("globals",)),
        trial(2, 5, "slower", case="texts"),
        trial(3, 5, "inconclusive", busy=True),
        trial(4, 0, "inconclusive", work=IDENTICAL, clothes=(), kind=MODELS, case="fast", trouble="raises"),
    ]
    found = {each.name: each for each in rows(trials)}
    assert [*found] == [
        "all", "functions", "functions, equivalent rewrite", "functions, +5 % work", "models", "models, identical",
        "quiet", "busy", "on CPU",
    ]  # fmt: skip
    assert (found["all"].trials, found["all"].given, found["all"].wrong) == (5, Rate(3, 5), Rate(1, 3))
    assert found["functions, equivalent rewrite"].wrong == Rate(1, 2)
    assert (found["busy"].wrong, found["quiet"].wrong) == (Rate(1, 1), Rate(0, 2))
    assert found["functions, +5 % work"].found == Rate(1, 2)
    told = in_a_paragraph(trials)
    assert told.startswith("5 comparisons had a known outcome; 2 of them ran beside other load. 3 got a verdict.")
    assert "Wrong verdicts: 1 of 3: 33.3 % [0.8, 90.6] (95 % interval)." in told
    assert "reported as different: 1 of 2: 50.0 % [1.3, 98.7]." in told
    line = "Of 3 verdicts on comparisons whose outcome was known, 1 was wrong: 33.3 % [0.8, 90.6] (95 % interval)."
    assert in_one_line(trials) == line
    assert in_one_line([]) == in_a_paragraph([]) == in_tables([]) == NONE_YET and not rows([]) and not pair_rows([])


def test_a_pair_is_two_runs_of_the_same_files_by_the_same_code_with_other_draws() -> None:
    first = trial(1, seed=5)
    assert len(pairs_of([first, trial(1, seed=6), trial(1, seed=7), trial(2, seed=8)])) == 1
    for change in ({"seed": 5}, {"rule": "other"}, {"files": "other"}, {"number": 2}, {"machine": "CPU, 4 cores"}):
        assert not pairs_of([first, trial(**{"number": 1, "seed": 6} | change)])


def test_two_verdicts_contradict_each_other_by_their_words() -> None:
    for words, contradicted in {
        ("faster", "slower"): True, ("faster", "same"): True, ("same", "slower"): True,
        ("same", "same"): False, ("slower", "slower"): False,
        ("slower", "inconclusive"): None, ("not evidence", "inconclusive"): None,
    }.items():  # fmt: skip
        [pair] = pairs_of([trial(answer=word, seed=place) for place, word in enumerate(words)])
        assert pair.is_contradicted is contradicted


def test_two_intervals_are_apart_without_a_common_point() -> None:
    for low, high, apart in ((-0.02, -0.0091, True), (0.0091, 0.02, True), (-0.02, -0.009, False), (None, None, None)):
        [pair] = pairs_of([trial(seed=1), trial(seed=2, low=low, high=high)])
        assert pair.is_apart is apart


def test_rates_of_pairs_count_those_that_can_say_something() -> None:
    trials = [
        *(trial(1, seed=seed) for seed in (1, 2)),
        *(trial(2, answer=word, seed=seed) for seed, word in enumerate(("same", "slower"))),
        *(trial(3, low=low, high=low and low + 0.01, seed=seed) for seed, low in enumerate((0.0, 0.02))),
        *(trial(4, low=None, high=None, answer="inconclusive", seed=seed) for seed in (1, 2)),
    ]
    found = pair_row("x", pairs_of(trials))
    assert (found.pairs, found.apart, found.contradicted) == (4, Rate(1, 3), Rate(1, 3))
    assert "| functions, equivalent rewrite | 4 | 33 [0.84, 90.6] | 33 [0.84, 90.6] |" in in_tables(trials)
    told = in_a_paragraph(trials)
    assert "4 comparisons were measured twice. Pairs of intervals that do not overlap: 1 of 3: 33.3 %" in told


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_file_is_continued_and_a_line_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "trials.jsonl"
    begin(file)
    append(file, [trial(number).model_dump_json() for number in range(3)])
    whole = file.read_text()
    file.write_text(whole[:-20])
    assert read_trials(file) == [trial(0), trial(1)]
    append(file, [trial(2).model_dump_json()])
    assert file.read_text() == whole


def test_a_file_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(Failure, match=r"taken.*; choose another file with --file") as told:
        verb.command(trials=1, file=tmp_path / "taken" / "trials.jsonl")
    assert "\n" not in str(told.value)
    others = ("", "nothing\n", '{"form": 3}\n', '{"format": 2, "machine": {}}\n', '{"format": 3}\n{"number": 1}\n')
    file = tmp_path / "trials.jsonl"
    for text in (*others, "\0\xff\n"):
        file.write_text(text)
        with pytest.raises(CalibrationError, match="not a file of trials") as problem:
            read_trials(file)
        assert "\n" not in str(problem.value) and str(file) in str(problem.value)


class Pretended:
    """Makes trials in no time. stops: at which of them the user interrupts."""

    def __init__(self, stops: int = 0, **changes: Any) -> None:
        self.known: list[KnownComparison] = []
        self.stops, self.changes = stops, changes

    def measured(self, known: KnownComparison, *, budget: float, busy: bool, by: str, on: str) -> Trial:
        self.known.append(known)
        if len(self.known) == self.stops:
            raise KeyboardInterrupt
        facts = {name: getattr(known, name) for name in ("kind", "work", "case", "percent", "number")}
        seed = len(self.known)
        return trial(**facts | {"budget": budget, "busy": busy, "rule": by, "machine": on, "seed": seed} | self.changes)


def test_the_command_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    monkeypatch.setenv("COLUMNS", "160")  # the name of a processor may be long
    file = tmp_path / "trials.jsonl"
    pretended = Pretended(stops=4)
    monkeypatch.setattr(calibrate, "measured", pretended.measured)
    with pytest.raises(typer.Exit) as ended:
        verb.command(trials=6, only="twins", kinds="functions", file=file, as_json=True)
    assert ended.value.exit_code == 130
    out, told = capsys.readouterr()
    assert "interrupted: 3 trials are kept" in told and json.loads(out)["rows"][0]["trials"] == 3
    verb.command(trials=6, only="twins", kinds="functions", file=file)
    out, told = capsys.readouterr()
    assert len(pretended.known) == 7 and len(read_trials(file)) == 6
    assert "0 [0, 46]" in out and "about" in told and "pairs of runs of" in out
    document = tmp_path / "README.md"
    markers = (f"<!-- {name}:begin -->\n<!-- {name}:end -->\n" for name in ("calibration", "calibration-short"))
    document.write_text(f"before\n{''.join(markers)}after\n")
    tables = tmp_path / "TABLES.md"
    tables.write_text("<!-- calibration-tables:begin -->\n<!-- calibration-tables:end -->\n")
    verb.command(trials=6, only="twins", kinds="functions", file=file, into=[document, tables])  # nothing is left to do
    assert len(pretended.known) == 7
    assert "6 comparisons had a known outcome; 3 of them ran beside other load." in document.read_text()
    assert "Of 6 verdicts on comparisons whose outcome was known, 0 were wrong" in document.read_text()
    assert "| all | 6 | 100 [54, 100] | 0 [0, 46] |" in tables.read_text()
    with pytest.raises(ReadmeError, match="no such file"):
        verb.command(trials=6, only="twins", kinds="functions", file=file, into=[tmp_path / "nothing.md"])


def test_trials_of_another_budget_or_of_what_was_not_asked_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trials.jsonl"
    pretended = Pretended(answer="slower", log_ratio=-math.log1p(1 / 33))
    monkeypatch.setattr(calibrate, "measured", pretended.measured)
    verb.command(trials=2, file=file, budget=2.0)
    verb.command(trials=4, only="planted-3", budget=20.0, file=file)
    capsys.readouterr()
    verb.command(trials=4, only="planted-3", budget=20.0, file=file, as_json=True)
    [whole, *_] = json.loads(capsys.readouterr().out)["rows"]
    assert len(pretended.known) == 6
    assert (whole["trials"], whole["found"]) == (4, {"count": 4, "of": 4}) and whole["wrong_at_most"] < 0.6


def test_without_a_number_it_measures_for_some_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = Pretended()
    monkeypatch.setattr(calibrate, "measured", pretended.measured)
    verb.command(minutes=0.0, file=tmp_path / "trials.jsonl")
    assert len(pretended.known) == 1
    clock = iter(range(0, 100_000, 30))  # half a minute passes whenever it is looked at
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    verb.command(minutes=4.0, file=tmp_path / "trials.jsonl")
    assert 3 <= len(pretended.known) <= 6
    monkeypatch.setattr(calibrate, "measured", Pretended(trouble="no pytest", answer="inconclusive").measured)
    with pytest.raises(CalibrationError, match="3 trials in a row failed; the last: no pytest"):
        verb.command(trials=100, file=tmp_path / "failing.jsonl")
    assert len(read_trials(tmp_path / "failing.jsonl")) == 3


def test_trials_of_another_machine_count_but_are_no_second_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, pretended = tmp_path / "trials.jsonl", Pretended()
    begin(file)
    facts: dict[str, Any] = {"kind": "functions", "budget": 8.0, "rule": calibrate.rule()}
    there = trial(7, **facts, machine="Another CPU (AVX2), 999 cores")
    append(file, [there.model_dump_json()])
    monkeypatch.setattr(calibrate, "measured", pretended.measured)
    verb.command(trials=30, kinds="functions", file=file, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["machines"] == [there.machine, calibrate.machine()]
    assert 7 not in [known.number for known in pretended.known]
    assert [row["trials"] for row in said["rows"] if row["name"] == "on Another CPU (AVX2)"] == [1]


# -- real trials -------------------------------------------------------------------------------------------------------


def test_a_real_trial_is_read_from_its_run() -> None:
    known = KnownComparison(FUNCTIONS, PLANTED, "sorting", 10, 2)
    found = calibrate.measured(known, budget=1.0, busy=False, by="r", on="here")
    assert (found.trouble, found.rule, found.budget, found.busy) == ("", "r", 1.0, False)
    assert found.comparison == known and found.files == known.digest[:12] and found.repeats == 10
    assert found.rounds > 0 and found.processes > 0 and found.seconds > 1 and found.seed is not None
    assert found.estimate is not None and abs(found.estimate - found.log_ratio) < 0.1
    assert found.inside is not None and found.inside > 0


def test_a_trial_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownComparison, "command", ["--compare", "old=nothing.py:work", "fast"])
    found = calibrate.measured(
        KnownComparison(FUNCTIONS, TWINS, "words", 0, 1), budget=1.0, busy=False, by="r", on="here"
    )
    assert "nothing.py" in found.trouble and not found.is_given and found.low is None


def test_rates_are_those_of_the_committed_trials() -> None:
    file = ROOT / "results" / FILE
    trials = read_trials(file) if file.exists() else []
    assert sum(trial.busy for trial in trials) == pytest.approx(len(trials) / 2, rel=0.05)
    places = {
        "calibration-short": "README.md",
        "calibration": "docs/validation.md",
        "calibration-tables": "docs/results/trials.md",
    }
    for name, text in in_documents(trials).items():
        block = f"<!-- {name}:begin -->\n{text.strip()}\n<!-- {name}:end -->"
        assert block in (ROOT / places[name]).read_text(encoding="utf-8"), name


def test_the_committed_sessions_are_those_of_the_page() -> None:
    lines = (ROOT / session_trials.KEPT).read_text(encoding="utf-8").splitlines()
    known = [session_trials.Session.read(line) for line in lines]
    assert not update_file(ROOT / session_trials.PAGE, session_trials.in_document(known), check=True)
    pooled = re.search(r"all functions .*\| ([\d.]+) % \| [\d.]+ % \|", session_trials.shift_table(known))
    assert pooled is not None
    assert f"between sessions ({BETWEEN_PERCENT:g} %)" in (ROOT / session_trials.PAGE).read_text(encoding="utf-8")
    assert 0 <= BETWEEN_PERCENT - float(pooled[1]) < 0.05, "what `compare` allows for is this, rounded up"


def test_the_page_tells_how_often_verdicts_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
    from tests.dashboard_pages import everything, open_in_app

    runs.write_run(tmp_path / "runs" / "one", rounds=30)
    app = open_in_app("trust", monkeypatch, tmp_path, run="one")
    assert "There are no comparisons of known outcome yet" in everything(app)
    begin(tmp_path / FILE)
    append(tmp_path / FILE, [trial(7, seed=seed).model_dump_json() for seed in (1, 2)])
    app = open_in_app("trust", monkeypatch, tmp_path, run="one")
    assert not app.exception
    assert "2 comparisons had a known outcome; 0 of them ran beside other load. 2 got a verdict" in everything(app)
    rates = next(frame.value for frame in app.dataframe if "of these wrong, %" in frame.value)
    pairs = next(frame.value for frame in app.dataframe if "do not overlap, %" in frame.value)
    assert rates["of these wrong, %"][0] == "0 [0, 84]" and pairs["do not overlap, %"][0] == "0 [0, 97.5]"
    (tmp_path / FILE).write_text('{"machine": {}}\n')  # of an older workbench
    assert "not a file of trials" in everything(open_in_app("trust", monkeypatch, tmp_path, run="one"))


def test_the_table_of_trials() -> None:
    trials = [{"kind": "unchanged code", "action": 0, "time": 2}] * 3 + [
        {"kind": "5 % more work", "action": 1, "time": 2},
        {"kind": "5 % more work", "action": 2, "time": 1},
    ]
    assert action_trials.table(trials).splitlines()[2:6] == [
        "| unchanged code | time and instructions | 3 | 0 | 0 | 3 of 3: 100.0 % [29.2, 100.0] |",
        "| unchanged code | time alone | 0 | 0 | 3 | 0 of 3: 0.0 % [0.0, 70.8] |",
        "| 5 % more work | time and instructions | 0 | 1 | 1 | 1 of 2: 50.0 % [1.3, 98.7] |",
        "| 5 % more work | time alone | 0 | 1 | 1 | 1 of 2: 50.0 % [1.3, 98.7] |",
    ]


def test_the_committed_trials_are_those_of_the_page() -> None:
    trials = [json.loads(line) for line in (ROOT / action_trials.KEPT).read_text(encoding="utf-8").splitlines()]
    assert action_trials.table(trials) in (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
