"""Where a difference is: the arithmetic, what counts for which function, the words, and real functions to the end."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from markupsafe import escape

from llama_workbench import ROOT
from llama_workbench.dashboard.export.evidence import costs_html, diff_html
from llama_workbench.harness.measure import py_spy
from llama_workbench.harness.report.causes import Explanation, changes, code_of, code_text, explanations_in
from llama_workbench.harness.report.comparison import Measure, Screen, screens
from llama_workbench.harness.report.standings import evidence_of
from llama_workbench.harness.slices.causes import causes
from llama_workbench.harness.slices.causes.causes import _Reader, function_at
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.causes import divide
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import MEMORY, SampledLine, SampledPair
from llama_workbench.harness.store.verdict_schema import Verdict
from llama_workbench.harness.worker import looks
from studies import cause_trials
from tests.commands.test_cli import output
from tests.dashboard.test_dashboard import an_effect
from tests.runs import code_by_intervals

# -- the arithmetic ----------------------------------------------------------------------------------------------------


def test_rows_and_the_rest_add_up_to_the_difference() -> None:
    places = {"slow": ([60, 62, 58, 61], [0, 0, 0, 0]), "both": ([40, 38, 42, 39], [100, 101, 99, 100])}
    found = divide(places, ([100] * 4, [200, 202, 198, 200]), (10.0, 5.0), alpha=0.01)
    assert [row.key for row in found.rows] == ["slow"]
    assert sum(row.ns for row in (*found.rows, found.rest)) == pytest.approx(5.0)
    assert found.rows[0].ns == pytest.approx(6.025) and found.rows[0].low > 4
    assert found.rows[0].baseline_ns == pytest.approx(6.025) and found.rows[0].variant_ns == 0


def test_a_place_of_the_rest_differs_by_no_more_than_is_said() -> None:
    same = {"noisy": ([300, 200, 250, 250], [250, 250, 200, 300]), "rest": ([698, 798, 748, 748], [748, 748, 798, 698])}
    small = {"small": ([2] * 4, [2] * 4)}  # too small to be looked at: at most what it takes
    found = divide({**same, **small}, ([1000] * 4, [1000] * 4), (1e6, 1e6), alpha=0.01)
    assert not found.rows and found.at_most > 5e4
    found = divide({"all": ([998] * 4, [998] * 4), **small}, ([1000] * 4, [1000] * 4), (100e6, 1e6), alpha=0.01)
    assert [row.key for row in found.rows] == ["all"] and found.at_most == pytest.approx(0.2e6)


def test_of_identical_code_no_row_is_told_in_ninety_nine_of_a_hundred() -> None:
    """Shares that differ from process to process by more than their samples do."""
    rng = np.random.default_rng(3)
    told = 0
    for _ in range(1000):
        shares = rng.dirichlet([120, 60, 30, 15, 8, 4], size=10)
        sides = [np.array([rng.multinomial(250, share) for share in shares]).T for _ in "ab"]
        places = {str(row): (sides[0][row].tolist(), sides[1][row].tolist()) for row in range(6)}
        told += bool(divide(places, ([250] * 10, [250] * 10), (1e6, 1e6), alpha=0.01).rows)
    assert told <= 20  # 10 are promised; 21 or more come in one of a thousand such tests


def test_one_process_tells_nothing() -> None:
    with pytest.raises(ValueError, match="two processes or more"):
        divide({}, ([100], [100]), (1.0, 1.0), alpha=0.01)
    with pytest.raises(ValueError, match="samples of both sides"):
        divide({}, ([100, 100], [100, 0]), (1.0, 1.0), alpha=0.01)


# -- what a sample counts for ------------------------------------------------------------------------------------------

CODE = """
import re


class Text:
    def clean(self, words):
        return [re.sub("x", "", word) for word in words]


def f(words):
    def inner():
        return Text().clean(words)

    return inner()
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(CODE, encoding="utf-8")
    return file


def test_a_line_belongs_to_the_innermost_function_with_a_name(code: Path) -> None:
    assert [function_at(str(code), line) for line in (7, 11, 14, 2)] == ["Text.clean", "f.inner", "f", "<module>"]
    assert function_at(str(code.with_name("gone.py")), 3) == "<module>"


def test_a_sample_counts_for_the_innermost_function_of_theirs(code: Path) -> None:
    library = f"{re_file()}:12"
    begin = "serve (/x/llama_workbench/harness/worker/main.py:1);baseline_turn (/x/a.py:3)"
    within = f"f ({code}:13);inner ({code}:11);clean ({code}:7);<listcomp> ({code}:7);sub ({library})"
    reader = _Reader([code])
    stacks = (
        f"{begin};{within} 7\n{begin};f ({code}:13) 2\nidle (/x/a.py:3) 9\n{begin.replace('baseline', 'variant')} 4\n"
    )
    assert reader.take(stacks) == ""
    entry = SampledPair.model_validate({"workload": "w", "variant": "g", "baseline": "f"} | reader.entry({}))
    assert entry.samples == {"baseline": [9], "variant": [4]} and entry.roots == {"baseline": "f"}
    assert [(each.function, each.line, each.samples) for each in entry.lines] == [
        ("Text.clean", 7, [7]), ("f", 13, [2]),
    ]  # fmt: skip
    assert entry.lines[0].text == 'return [re.sub("x", "", word) for word in words]'
    assert entry.lines[0].file == "added/mine.py"
    assert _Reader([code]).take(f"{begin};{within} 7\n") == "py-spy saw no call of the variant"


def test_each_side_has_the_lines_of_its_own_file(tmp_path: Path) -> None:
    """Two revisions of a file have one name."""
    files = {}
    for side, name in (("baseline", "before"), ("variant", "after")):
        files[side] = tmp_path / side / "work.py"
        files[side].parent.mkdir()
        files[side].write_text(f"def {name}(x):\n    return x + len('{name}')\n")
    reader = _Reader(list(files.values()))
    reader.take("".join(f"{side}_turn (/x/a.py:3);f ({files[side]}:2) 5\n" for side in files))
    entry = SampledPair.model_validate({"workload": "w", "variant": "g", "baseline": "f"} | reader.entry({}))
    assert {(line.side, line.function, line.text) for line in entry.lines} == {
        ("baseline", "before", "return x + len('before')"),
        ("variant", "after", "return x + len('after')"),
    }


def re_file() -> str:
    import re

    return str(re.__file__)


# -- the words ---------------------------------------------------------------------------------------------------------


def line(side: str, function: str, number: int, percent: int, text: str = "", **more: Any) -> SampledLine:
    """percent: of the samples of its side."""
    given = {"side": side, "function": function, "file": "added/a.py", "line": number, "text": text or f"{function}()"}
    return SampledLine(**given | {"samples": [10 * percent] * 6} | more)  # type: ignore[arg-type]


def explained(lines: Sequence[SampledLine], call_ns: tuple[float, float] = (10e6, 4e6), **more: Any) -> Explanation:
    """Of `f` and `g`, each with 1000 samples in each of six processes."""
    sides = {"baseline": [1000] * 6, "variant": [1000] * 6}
    given: dict[str, Any] = {"workload": "w", "variant": "g", "baseline": "f", "samples": sides, "lines": [*lines]}
    given |= {"call_ns": dict(zip(sides, call_ns, strict=True)), "roots": {"baseline": "f", "variant": "g"}}
    return Explanation(SampledPair(**given | more))


def found(
    *functions: tuple[str, str, int, int], call_ns: tuple[float, float] = (10e6, 4e6), runs: Mapping[int, int] = {}
) -> Explanation:
    """functions: (side, name, line, percent of its samples). runs: how often a line runs in a call."""
    return explained([line(*each, runs=runs.get(each[2])) for each in functions], call_ns)


def test_one_place_that_makes_up_the_difference_is_the_cause() -> None:
    told = found(("baseline", "normalise", 7, 60), ("baseline", "f", 9, 40), ("variant", "g", 12, 100))
    assert told.sentence == "in normalise (a.py:7): all 6 ms saved a call"
    assert told.times == "f 10.0 ms, g 4.00 ms a call"


def test_of_the_compared_functions_the_one_whose_own_lines_take_time_is_named() -> None:
    told = found(("baseline", "normalise", 7, 100), ("variant", "g", 12, 100))
    assert told.sentence == "10 ms saved a call in normalise (a.py:7); 4 ms added in g itself (a.py:12)"
    told = found(("baseline", "f", 9, 100), ("variant", "clean", 20, 100))
    assert [cause.name for cause in told.causes] == ["f itself", "clean"]


def test_a_function_that_only_calls_one_of_a_library_is_not_blamed_for_its_time() -> None:
    """`f` is one line, `asyncio.run(main())`: the loop that begins and ends in it takes the time."""

    def told(below: Sequence[str], percent: int = 90) -> list[str]:
        loop, own = line("baseline", "f", 9, percent, below=[*below]), line("baseline", "f", 8, 90 - percent)
        others = line("baseline", "main", 5, 10), line("variant", "g", 12, 100)
        return [cause.name for cause in explained([loop, own, *others]).causes]

    runner = ("run (stdlib/asyncio/runners.py:190)", "BaseEventLoop.close (stdlib/asyncio/base_events.py:70)")
    assert told(runner)[0] == "asyncio.run, called by f"
    assert told(["dumps (stdlib/json/__init__.py:231)"])[0] == "json.dumps, called by f"
    assert told(["Random.shuffle (stdlib/random.py:9)"])[0] == "random.Random.shuffle, called by f"
    assert told(runner, percent=45)[0] == "f and g themselves", "half of it is in lines of its own"
    assert told([])[0] == "f and g themselves"


def test_work_that_was_only_written_out_elsewhere_is_not_saved() -> None:
    """`normalise` is gone, but its line stands in `g`, where it takes a little longer."""
    lines = [
        line("baseline", "f", 5, 60, "counts[word] = counts.get(word, 0) + 1"),
        line("baseline", "f", 9, 10, "return normalise(sorted(counts.items()))"),
        line("baseline", "normalise", 14, 30, "return [(word, round(n / total, 9)) for word, n in items]"),
        line("variant", "g", 3, 35, "counts = Counter(words)"),
        line("variant", "g", 5, 65, "return [(word, round(n / total, 9)) for word, n in sorted(counts.items())]"),
    ]
    told = explained(lines, (10e6, 5e6))
    assert [(cause.name, cause.where) for cause in told.causes] == [("f and g themselves", "a.py:5-9")]
    assert told.sentence == "5.2 ms saved a call in f and g themselves (a.py:5-9); all else: no difference proven"
    apart = explained([*lines[:4], line("variant", "g", 5, 65, "return clean(counts)")], (10e6, 5e6))
    assert {cause.name for cause in apart.causes} == {"normalise", "f and g themselves"}
    both = explained([*lines, line("variant", "normalise", 20, 1, "return items")], (10e6, 5e6))
    assert "normalise" in {cause.name for cause in both.causes}, "a function that both have is one place"


def test_several_places_are_listed_with_the_rest() -> None:
    told = found(
        ("baseline", "old", 7, 70), ("baseline", "f", 9, 30), ("variant", "new", 20, 40), ("variant", "g", 12, 60)
    )
    assert told.sentence == (
        "7 ms saved a call in old (a.py:7); 1.6 ms added in new (a.py:20), 0.6 ms saved in f and g themselves (a.py:9)"
    )
    rows = changes(told)
    assert [str(row)[:7] for row in rows] == ["-7 ms [", "+1.6 ms", "-0.6 ms", "0 ms [0"]
    assert sum(row.value for row in rows) == pytest.approx(-6)


def test_no_place_is_surer_than_the_difference_that_it_is_a_part_of() -> None:
    told = found(("baseline", "f", 9, 100), ("variant", "g", 12, 100), call_ns=(10e6, 4e6))
    alone = changes(told)[0]
    assert alone.value == -6 and alone.high - alone.low < 1
    twice_or_three_times = changes(told, an_effect(value=2.5, low=2.0, high=3.0))[0]
    assert (twice_or_three_times.low, twice_or_three_times.high) == pytest.approx((-7, -5), abs=0.1)
    unproven = changes(told, an_effect(value=1.0, low=0.9, high=1.2))[0]
    assert unproven == alone, "what makes up for each other may be sure"


def test_beside_what_is_most_of_it_other_large_places_are_named_too() -> None:
    told = found(
        ("baseline", "normalise", 7, 55),
        ("baseline", "f", 9, 45),
        ("variant", "clean", 20, 60),
        ("variant", "g", 12, 40),
    )
    assert told.sentence == (
        "mostly in normalise (a.py:7): 5.5 ms saved a call; 2.9 ms saved in f and g themselves (a.py:9), "
        "2.4 ms added in clean (a.py:20)"
    )
    slower = found(
        ("baseline", "f", 9, 100), ("variant", "clean", 20, 80), ("variant", "g", 12, 20), call_ns=(2e6, 9e6)
    )
    assert slower.sentence == "7.2 ms added a call in clean (a.py:20); all else: no difference proven"
    assert [row.name.partition(" (")[0] for row in changes(slower)] == ["clean", "all else: no difference proven"]
    assert slower.division is not None
    proven = replace(slower.division, rest=replace(slower.division.rest, ns=1e6, low=5e5, high=1.5e6))
    stand_in: Any = SimpleNamespace(division=proven, causes=slower.causes, call_ns=slower.call_ns)
    assert changes(stand_in)[-1].name == "all else"


def test_the_lines_that_take_time_are_those_of_each_side() -> None:
    told = found(("baseline", "old", 7, 70), ("baseline", "f", 9, 29), ("variant", "g", 12, 100))
    assert [(each.function, each.line, each.ns) for each in code_of(told, "baseline")] == [
        ("old", 7, 7e6), ("f", 9, 2.9e6),
    ]  # fmt: skip


def test_a_long_line_of_code_goes_on_below_and_is_never_cut() -> None:
    text = "kept = [letter.lower() for letter in word if letter.isalpha() and letter not in '<>&']"
    told = explained([line("baseline", "old", 7, 96, text), line("baseline", "f", 9, 4), line("variant", "g", 12, 100)])
    drawn = code_text(told, "baseline", 60).splitlines()
    assert max(map(len, drawn)) <= 60 and text in " ".join(" ".join(drawn).split())
    page = diff_html(told)
    assert escape(text) in page and text not in page
    [marked] = [row for row in page.split("<tr ") if escape(text) in row]
    assert "cause" in marked and "<td>9.6</td><td></td>" in marked, "9.6 of the 10 ms that a call of the baseline takes"


def test_bars_begin_at_nothing_and_have_their_numbers_beside_them() -> None:
    time = Measure("time", "8 ms", "2 ms", 0.25, 0.24, 0.26)
    faults = Measure("page faults", "0.0", "1.4", math.inf, math.inf, math.inf)
    effect = an_effect(variant="g", baseline="<f>")
    verdict = Verdict(claim="", who=(), verdict=Word.FASTER, reason="", effects=(effect,))
    page = costs_html(Screen(verdict, effect, (8e6, 2e6), (time, faults), None))
    assert "In brackets: the 99 % interval. Rows without one were counted, not timed." in page
    assert "In brackets" not in costs_html(Screen(verdict, effect, (8e6, 2e6), (faults,), None))
    assert "Time of a call</strong> <span>-75 % [-76, -74]" in page and "&lt;f&gt;" in page and "<f>" not in page
    bars = re.findall(r"calc\((\S+) \* [^>]*></i>([^<]*)<", page)
    assert bars == [("1.0", "8 ms"), ("0.25", "2 ms"), ("0.0", "0.0"), ("1.0", "1.4")]


def test_amounts_are_told_in_percent_and_large_ones_in_times() -> None:
    def amount(what: str, ratio: float) -> str:
        return Measure(what, "", "", ratio, ratio, ratio).amount

    assert amount("time", 0.21) == "79 % less time" and amount("time", 3.04) == "3.04 times the time"
    assert amount("instructions", 0.22) == "78 % fewer instructions"
    assert amount("peak memory", 1.005) == "the same peak memory" and amount("peak memory", math.nan) == ""
    assert Measure("peak memory", "", "", 12.93, 12.93, 12.93).change == "+1,193 %"


def test_of_models_a_row_is_a_phase() -> None:
    """Lines of two of our variants, whose sources name the phases."""

    def of_model(side: str, file: str, text: str, percent: int) -> SampledLine:
        source = (ROOT / file).read_text(encoding="utf-8").splitlines()
        number = next(number for number, code in enumerate(source, 1) if text in code)
        return line(side, function_at(str(ROOT / file), number), number, percent, text, file=file)

    told = explained(
        [
            of_model("baseline", "variants/ladder.py", "qk.roll(", 30),
            of_model("baseline", "variants/ladder.py", "y = F.silu(gate) * up", 70),
            of_model("variant", "variants/fast.py", "qk.roll(", 60),
            of_model("variant", "variants/fast.py", "F.silu(", 40),
        ],
        roots={"baseline": "a", "variant": "b"},
    )
    assert set(told.phases.values()) == {"rope", "mlp"}
    assert re.fullmatch(r"mostly in mlp \(ladder.py:[\d-]+\): 5.4 of the 6 ms saved a call", told.sentence)


def test_the_reason_is_that_a_line_runs_more_often_or_takes_longer_each_time() -> None:
    alone = ("baseline", "normalise", 7, 60), ("baseline", "f", 9, 40), ("variant", "g", 12, 100)
    assert found(*alone).reason == ""
    assert found(*alone, runs={7: 19286}).reason == "line 7 (normalise()) runs 19,286 times a call"
    assert found(*alone, runs={7: 19286, 12: 291}).reason == (
        "line 7 (normalise()) runs 19,286 times a call; the line of g that takes most time, 12 (g()), runs 291 times"
    )
    assert found(*alone, runs={7: 1, 12: 291}).reason == "line 7 (normalise()) runs once a call"
    both = ("baseline", "f", 9, 100), ("variant", "g", 12, 100)
    other = ("baseline", "f", 9, 100), ("variant", "g", 12, 90), ("variant", "long name", 13, 10)
    assert found(*other, runs={9: 1, 13: 1}).reason == "line 9 (f()) runs once a call"
    twice = "line 9 (f()) runs 500 times a call in f, line 12 (g()) twice in g"
    assert found(*both, runs={9: 500, 12: 2}).reason == twice
    assert found(*both, runs={9: 1, 12: 1}).reason == "line 9 (f()) runs once a call in f; g has no such line"
    same = ("baseline", "shared", 9, 100), ("variant", "shared", 12, 100)
    lines = "line 9 (shared()) of f runs {} line 12 (shared()) of g, and takes longer each time"
    assert found(*same, runs={9: 1, 12: 1}).reason == lines.format("as often as")
    assert found(*same, runs={9: 1, 12: 7}).reason == lines.format("less often than")
    told = found(*both, runs={9: 500, 12: 2})
    assert told.told.startswith("why: in f and g themselves") and told.reason in told.told
    assert "500×     9  f()" in code_text(told, "baseline") and "2×    12  g()" in code_text(told, "variant")
    assert "<td>500×</td><td>9</td>" in diff_html(told)


def test_the_line_that_was_added_is_named_and_no_unchanged_one_whose_samples_differ_by_chance() -> None:
    def reason(*lines: tuple[str, str, int, list[int]]) -> str:
        places = [
            line(side, "f", number, 0, text, file=f"{side}.py", samples=samples, runs=500)
            for side, text, number, samples in lines
        ]
        names = {"variant": "new", "baseline": "old", "roots": {"baseline": "f", "variant": "f"}}
        return explained(places, (8.5e6, 10e6), **names).reason

    old = ("baseline", "key = path.split()", 9, [600] * 6), ("baseline", "counts[key] += 1", 10, [400] * 6)
    new = ("variant", "key = path.split()", 9, [560] * 6), ("variant", "counts[key] += 1", 11, [330] * 6)
    added = ("variant", "size = size.strip()", 10, [110] * 6)
    said = "line 10 (size = size.strip()) runs 500 times a call in new; old has no such line"
    assert reason(*old, *new, added) == said
    small = ("variant", "size = size.strip()", 10, [20] * 6)
    rest = ("variant", "key = path.split()", 9, [600] * 6), ("variant", "counts[key] += 1", 11, [380] * 6)
    assert "size.strip" not in reason(*old, *rest, small), "too little of the difference"
    by_chance = [500, 700, 450, 760, 480, 690]
    left = [1000 - count for count in by_chance]
    unproven = ("variant", "key = path.split()", 9, by_chance), ("variant", "counts[key] += 1", 11, left)
    assert reason(*old, *unproven) == ""
    proven = ("variant", "key = path.split()", 9, [660] * 6), ("variant", "counts[key] += 1", 11, [340] * 6)
    assert reason(*old, *proven) == (
        "line 9 (key = path.split()) of new runs as often as line 9 (key = path.split()) of old, "
        "and takes longer each time"
    )


def test_lines_are_counted_but_not_those_of_libraries_and_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "work.py"
    file.write_text(
        "import json\n\n\ndef work(count):\n    kept = [\n        json.dumps(number)\n"
        "        for number in range(count)\n    ]\n    return kept\n"
    )
    world: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), world)
    runs = looks.counted(lambda: world["work"](5))
    assert {path for path, _ in runs} == {str(file), __file__}
    assert runs[str(file), 6] == 5 and runs[str(file), 9] == 1
    before = sys.gettrace()
    monkeypatch.setattr(looks, "MOST_EVENTS", 50)
    assert looks.counted(lambda: world["work"](1000)) == {} and sys.gettrace() is before


def test_where_nothing_can_be_told_it_says_so() -> None:
    same = found(("baseline", "f", 9, 100), ("variant", "g", 12, 100), call_ns=(4e6, 4e6))
    assert same.sentence == "no place is proven: the lines show where the time goes, not what differs"
    assert changes(same) == []
    # Thirty places with a thirtieth of a call each: none of them can be told, and none is large.
    spread = [(side, f"of_{line}", line, 3) for line in range(30) for side in ("baseline", "variant")]
    assert re.fullmatch(
        r"no single place: none accounts for over [\d.]+ of the 1 ms saved a call",
        found(*spread, call_ns=(11e6, 10e6)).sentence,
    )
    refused = Explanation(SampledPair(workload="w", variant="g", baseline="f", reason="py-spy is not installed"))
    assert refused.sentence == "not known: py-spy is not installed" and changes(refused) == []
    assert refused.told == "why: not known: py-spy is not installed", "nothing was sampled, in 0 s or more"
    assert re.search(r" \(sampled in \d+ s\)$", same.told)


def test_without_its_tool_no_look_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry says why nothing is known; that a search goes on would be untrue."""
    pair = Comparison("w", "g", "f", "time")
    said: list[str] = []
    progress: Any = SimpleNamespace(phase=said.append, note=said.append, step=lambda *_: None)
    folder: Any = SimpleNamespace(write_json=lambda file, entries: said.append(entries[0]["reason"]))
    nobody: Any = None
    monkeypatch.setattr(causes, "_pairs", lambda *_: [(None, None, pair)])
    monkeypatch.setattr(py_spy, "installed", lambda: None)
    causes.look_for_causes(nobody, folder, progress, lambda pair: (2e6, 1e6), of_models=False)
    assert said == [py_spy.NOT_INSTALLED]


# -- how often it is right --------------------------------------------------------------------------------------------


def test_the_committed_trials_are_those_of_the_page() -> None:
    kept = [json.loads(line) for line in (ROOT / cause_trials.KEPT).read_text(encoding="utf-8").splitlines()]
    assert cause_trials.table(kept) in (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")


def test_right_is_the_planted_function_first_with_four_fifths_of_the_difference_and_its_line_marked() -> None:
    right: dict[str, Any] = {"first": "counted", "carries": 0.8, "marked": ["_ = [None] * 400"]}
    right["kind"] = "an allocation in a loop"
    assert cause_trials.right(right)
    assert cause_trials.found(right | {"carries": 0.3}) and not cause_trials.right(right | {"carries": 0.3})
    wrong: list[dict[str, Any]] = [
        {"first": "cleaned"}, {"first": None, "carries": None}, {"marked": []},
        {"marked": [*right["marked"], "return counts"]},
    ]  # fmt: skip
    assert not any(cause_trials.found(right | each) or cause_trials.right(right | each) for each in wrong)
    assert not cause_trials.right(right | {"carries": 0.79})
    kind = right["kind"]
    assert cause_trials.right({"kind": "identical code", "told": 0})
    assert not cause_trials.right({"kind": "identical code", "told": 1}) and not cause_trials.right({"kind": kind})


# -- measured ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A helper three calls deep is slower, by three times what the trials have: most of it on a busy machine too."""
    planted = cause_trials.PLANTED["a helper three calls deep"]
    often = cause_trials.SLOW_LINE
    for _ in range(2):
        often = cause_trials.SLOW_LINE.replace("in word if", f"in {often} if")
    slower = replace(planted, new=planted.new.replace(cause_trials.SLOW_LINE, often))
    return cause_trials.measure(tmp_path_factory.mktemp("causes"), slower, 8.0)


def test_the_planted_cause_is_the_first_row(measured: RunFolder) -> None:
    [entry] = explanations_in(measured).values()
    assert entry.causes and entry.causes[0].name == "cleaned", entry.sentence
    assert entry.causes[0].where == "work.py:3" and entry.causes[0].row.ns < 0
    assert re.match(r"line 3 .*runs ", entry.reason), "how often it runs says why it takes time"
    assert measured.changed() == []


def test_memory_of_functions_is_measured_unasked_small_objects_included(tmp_path: Path) -> None:
    source = """
def dropped(count):
    return [[number] * 100 for number in range(count)][0][:1]

def one_by_one(count):
    return next([number] * 100 for number in range(count))[:1]

def counts(seed):
    return (1000 + seed % 7,)
"""
    (tmp_path / "work.py").write_text(source)
    sides = ["work.py:dropped", "work.py:one_by_one"]
    folder = tmp_path / "run"
    options = ["--budget", "2", "--run-dir", str(folder), "--call", "work.py:counts"]
    command = [sys.executable, "-m", "pytest", "--benchmark", "--compare", *sides, *options]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == code_by_intervals(folder), done.stdout + done.stderr
    before_causes, _, _ = done.stdout.partition("workbench: causes")
    assert "workbench: Is one_by_one faster than dropped? " in before_causes
    peaks = {row.variant: row.peak_transient_bytes for row in RunFolder(folder).read(MEMORY)}
    assert peaks["dropped"] > 1000 * 100 * 8 > 50 * peaks["one_by_one"] > 0
    assert "peak memory" in output("show", str(folder))


def test_a_time_of_a_part_of_a_generation_has_no_screen(measured: RunFolder) -> None:
    """What it says of a call is of the whole."""
    [verdict] = measured.read(VERDICTS)
    first = replace(verdict.effects[0], metric="cpu time to first token")
    of_a_part = replace(verdict, effects=(first, *verdict.effects))
    assert len(screens(measured, [of_a_part], evidence_of(measured, measured.manifest()))) == 1


def test_the_screen_has_all_of_it(measured: RunFolder) -> None:
    manifest = measured.manifest()
    [screen] = screens(measured, measured.read(VERDICTS), evidence_of(measured, manifest))
    if screen.way != Word.INCONCLUSIVE:  # beside other tests there may be too few processes
        assert re.match(r"new takes [\d.]+ \[[\d.]+, [\d.]+\] times as long as old: ", screen.headline)
        assert screen.advice == "Keep old." and re.match(r"new takes [\d.]+ times the time", screen.price)
        assert screen.told["What to do"] == f"Keep old. {screen.price}"
        sure = r'99 % that new takes [\d.]+ to [\d.]+ times as long as old, on the input "\w+"\. '
        again = r"That holds for another run of this command on this machine too \(timed in \d+ fresh processes\)\."
        assert re.fullmatch(sure + again, screen.certainty)
        assert screen.told["Why"].startswith("Mostly in cleaned (work.py:3): ")
        counted = Measure("instructions", "100", "320", 3.2, 3.2, 3.2), Measure("page faults", "1", "2", 2.0, 2.0, 2.0)
        more = replace(screen, measures=(*screen.measures, *counted))
        assert more.why == f"{screen.why.removesuffix('.')}; 3.20 times the instructions."
        assert screen.told["How sure"] == f"{screen.certainty} old and new gave the same answers."
    assert screen.measures[0].what == "time" and screen.measures[0].ratio > 1
    shown = output("show", str(measured.path))
    assert all(f"{name}: {text}" in " ".join(shown.split()) for name, text in screen.told.items())
    assert screen.headline in shown and "Where the difference is" in shown and "cleaned (work.py:3)" in shown
    assert "letter for letter in word" in " ".join(shown.split())
    marked = output("show", str(measured.path), "--markdown")
    assert f"### {screen.headline}" in marked and "| of a call | old | new | change |" in marked
    assert "&lt;" not in marked and "<details><summary>Lines of new that take time" in marked and "cleaned" in marked
    assert all(f"**{name}:** {text}" in marked for name, text in screen.told.items())
    assert "why: " in output("judge", str(measured.path))
