"""The page Comparison on stored samples of planted causes: the first row, the marked line, and both sides as one
flamegraph."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from llama_workbench import ROOT
from llama_workbench.harness.report.causes import Explanation, changes, diff_of, explanations_in, has_all_code
from llama_workbench.harness.report.comparison import Screen
from llama_workbench.harness.slices.causes.causes import _Reader
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import SampledPair
from studies.cause_trials import PLANTED, SLOW_LINE, Planted
from tests import verdicts
from tests.dashboard.test_dashboard import an_effect

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from llama_workbench.dashboard.export.evidence import diff_html, evidence_html
from llama_workbench.dashboard.export.svg import STEPS
from llama_workbench.dashboard.views import data
from llama_workbench.harness.slices.profiles.flames import KINDS, aligned
from tests.dashboard.test_dashboard_agree import functions_home as functions_home
from tests.dashboard_pages import UNFOLDED, alts, everything, open_in_app, read

FIRST = RunFolder(ROOT / "results" / "baselines" / "first-comparison")

FOLD = """
def strip_marks(word):
    return "".join(letter for letter in word if letter.isalpha())


def fold(words):
    return [strip_marks(word) for word in words]


def NAME(text):
    return fold(text.split())
"""
GUARD = "    if word.isascii():\n        return word\n"

Stack = tuple[int, tuple[str, ...]]
"""Samples of a process, and the lines of the frames, outermost first."""

COUNT = (
    "return [word for word, count in sorted_counts(text) if count > 1]",
    "return sorted(counted(text.split()).items())",
    "counts[cleaned(word)] = counts.get(cleaned(word), 0) + 1",
)
LAYER = ("x = attended(x, mask).tanh()", "return torch.softmax(x @ x.T + mask, -1) @ x")
MASK = "return torch.ones(length, length, dtype=torch.float64).tril_().log_()"


@dataclass(frozen=True)
class Case:
    """A planted cause as it was sampled. call_ms: of both sides. first: the first row; marked: a line of the diff."""

    planted: Planted
    old: tuple[Stack, ...]
    new: tuple[Stack, ...]
    call_ms: tuple[float, float]
    first: str
    marked: str


CASES = {
    "a helper three calls deep": Case(
        PLANTED["a helper three calls deep"],
        ((60, COUNT), (40, (*COUNT, 'return word.strip(".,")'))),
        ((30, COUNT), (70, (*COUNT, f"return {SLOW_LINE}"))),
        (1.0, 2.0),
        "cleaned",
        SLOW_LINE,
    ),
    "a guard that returns early": Case(
        Planted(FOLD, FOLD.replace("    return \"\"", f"{GUARD}    return \"\""), "strip_marks"),
        ((20, ("return fold(text.split())", "return [strip_marks(word) for word in words]")),
         (80, ("return fold(text.split())", "return [strip_marks(word) for word in words]", f"return {SLOW_LINE}"))),
        ((70, ("return fold(text.split())", "return [strip_marks(word) for word in words]")),
         (10, ("return fold(text.split())", "return [strip_marks(word) for word in words]", "if word.isascii():")),
         (20, ("return fold(text.split())", "return [strip_marks(word) for word in words]", f"return {SLOW_LINE}"))),
        (1.0, 0.3),
        "strip_marks",
        "if word.isascii():",
    ),
    "an allocation in a loop": Case(
        PLANTED["an allocation in a loop"],
        ((70, COUNT), (30, (*COUNT, 'return word.strip(".,")'))),
        ((35, COUNT), (50, (*COUNT[:2], "_ = [None] * 400")), (15, (*COUNT, 'return word.strip(".,")'))),
        (1.0, 2.0),
        "counted",
        "_ = [None] * 400",
    ),
    "a mask made in each layer": Case(
        PLANTED["a mask made in each layer"],
        ((90, LAYER), (10, ("mask = mask_of(len(x))", MASK))),
        ((50, ("x = attended(x, mask_of(len(x))).tanh()", LAYER[1])),
         (50, ("x = attended(x, mask_of(len(x))).tanh()", MASK))),
        (1.0, 1.8),
        "mask_of",
        MASK,
    ),
}  # fmt: skip


def sampled(
    folder: Path, case: Case, names: tuple[str, str] = ("old", "new"), workload: str = "text"
) -> dict[str, Any]:
    """An entry of causes.json, read out of stacks as py-spy writes them in ten processes."""
    sides = {"baseline": ("before.py", case.planted.old, "old", case.old),
             "variant": ("work.py", case.planted.new, "new", case.new)}  # fmt: skip
    for file, code, name, _ in sides.values():
        (folder / file).write_text(code.replace("NAME", name), encoding="utf-8")
    reader, draw = _Reader([folder / "before.py", folder / "work.py"]), random.Random(1)
    for _ in range(10):
        stacks = []
        for side, (file, _, _, known) in sides.items():
            lines = (folder / file).read_text().splitlines()
            for count, way in known:
                numbers = [next(n for n, line in enumerate(lines, 1) if text in line) for text in way]
                frames = [f"f ({folder / file}:{number})" for number in numbers]
                turn = f"{side}_turn (harness/worker/looks.py:9)"
                stacks.append(f"{';'.join([turn, *frames])} {5 * count + draw.randint(-12, 12)}")
        assert reader.take("\n".join(stacks)) == ""
    call_ns = dict(zip(sides, (1e6 * ms for ms in case.call_ms), strict=True))
    return {"workload": workload, "baseline": names[0], "variant": names[1], "call_ns": call_ns, **reader.entry({})}


def explained(folder: Path, case: Case) -> Explanation:
    return Explanation(SampledPair.model_validate(sampled(folder, case)))


@pytest.mark.parametrize("kind", CASES)
def test_the_planted_cause_is_the_first_row_and_the_marked_line(tmp_path: Path, kind: str) -> None:
    case = CASES[kind]
    told = explained(tmp_path, case)
    assert has_all_code(told)
    assert changes(told)[0].name.startswith(f"{case.first} ("), changes(told)
    first, *_ = diff_of(told)
    assert first.name == case.first
    marked = [line.text.strip() for line in first.lines if line.is_cause]
    assert any(case.marked in text for text in marked), marked
    unmarked = [line.text for line in first.lines if not line.is_cause]
    assert any(text.startswith("def ") for text in unmarked), "the whole function is there, and not all of it is marked"
    assert re.search(rf'<tr class="[^"]*cause">.*{re.escape(str(escape(case.marked)))}', diff_html(told))


@pytest.mark.parametrize("kind", CASES)
def test_both_sides_are_one_flamegraph_that_is_coloured_where_it_is_proven(tmp_path: Path, kind: str) -> None:
    case = CASES[kind]
    drawn = aligned(explained(tmp_path, case))
    assert drawn is not None
    boxes = drawn.drawn
    names = [boxes["names"][place] for place in boxes["name"]]
    assert names.count("old and new") == 1, "the compared functions lie on each other"
    place = names.index(case.first)
    slower = case.call_ms[1] > case.call_ms[0]
    neutral = len(KINDS) + STEPS
    assert (boxes["fill"][place] > neutral) is slower and boxes["sure"][place]
    assert boxes["delta"][place] == pytest.approx(boxes["time2"][place] - boxes["time"][place])
    if kind == "a helper three calls deep":
        assert boxes["places"][boxes["place"][place]] == "added/before.py / added/work.py"
        line = names.index(COUNT[2])
        assert boxes["only"][line] == -1, "a line of both sides is one box"
        assert boxes["fill"][line] == neutral and not boxes["sure"][line], "60 % of 1 ms are 30 % of 2 ms"


def test_the_new_line_is_named_where_an_old_one_runs_less_often(tmp_path: Path) -> None:
    entry = sampled(tmp_path, CASES["a guard that returns early"])
    for line in entry["lines"]:
        slow = line["text"].startswith('return ""')
        line["runs"] = (4000 if line["side"] == "baseline" else 300) if slow else 500
    told = Explanation(SampledPair.model_validate(entry))
    assert told.reason.startswith("line 3 (return") and "runs 4,000 times a call in old, line 5 (return" in told.reason
    assert told.reason.endswith("300 times in new; old has no line 3 (if word.isascii():)")
    often = {line.text.strip(): line.often for diff in diff_of(told) for line in diff.lines}
    assert often[f"return {SLOW_LINE}"] == "4,000× → 300×" and often["if word.isascii():"] == "500×"


def test_an_older_run_has_its_sampled_lines_as_a_diff() -> None:
    [today] = explanations_in(FIRST).values()
    told = Explanation(today.sampled.model_copy(update={"code": ()}))
    assert has_all_code(today) and not has_all_code(told)
    [diff] = diff_of(told)
    marks = {line.text: (line.mark, line.is_cause) for line in diff.lines}
    assert marks["if word not in found:"] == ("-", True)
    assert marks["return list(dict.fromkeys(words))"] == ("+", True)
    ns = sum(line.ns[0] or 0.0 for line in diff.lines)
    assert ns == pytest.approx(told.call_ns[0], rel=0.02), "the lines of the old side are its call"


@pytest.mark.parametrize(
    ("low", "high", "significant", "relevant"),
    [
        (1.002, 1.03, "Yes: with 99 % confidence at least 0.2 % faster.",
         "Not known: 0.2 to 3 %; up to 1 % counts as the same."),
        (0.996, 1.009, "No: with 99 % confidence it is between 0.4 % slower and 0.9 % faster.",
         "No: at most 0.9 %; up to 1 % counts as the same."),
        (1.4, 1.6, "Yes: with 99 % confidence at least 1.40 times as fast.",
         "Yes: more than the 1 % that counts as the same."),
        (0.2, 0.25, "Yes: with 99 % confidence at least 4.00 times as long.",
         "Yes: more than the 1 % that counts as the same."),
        (None, None, "Not known.", "Not known."),
    ],
)  # fmt: skip
def test_significance_and_relevance_are_two_things(
    low: float | None, high: float | None, significant: str, relevant: str
) -> None:
    effect = an_effect(value=low, low=low, high=high, verdict="faster")
    screen = Screen(verdicts.a_verdict(effect, alpha=0.01), effect, (2e6, 1e6), (), None)
    assert (screen.significance, screen.relevance) == (significant, relevant)


@pytest.mark.parametrize(
    ("low", "high", "relevant"),
    [
        (1.02, 1.03, "No: at most 3 %; up to 5 % counts as the same (THEIR PLAN, Limits)."),
        (1.02, 1.08, "Not known: 2 to 8 %; up to 5 % counts as the same (THEIR PLAN, Limits)."),
        (1.06, 1.08, "Yes: more than the 5 % that counts as the same (THEIR PLAN, Limits)."),
    ],
)
def test_relevance_is_by_the_margin_that_a_claim_states_with_its_source(low: float, high: float, relevant: str) -> None:
    effect = an_effect(value=low, low=low, high=high, verdict="refuted")
    verdict = verdicts.a_verdict(effect, alpha=0.01, margin=5.0, margin_from="THEIR PLAN, Limits")
    screen = Screen(verdict, effect, (2e6, 1e6), (), None)
    assert screen.relevance == relevant
    advice = {
        "No": "Keep before, or whichever is simpler: the gain is too small to matter.",
        "Not known": "Take proposal, if it is as simple: whether the gain matters is not known.",
        "Yes": "Take proposal.",
    }
    assert screen.advice == advice[relevant.partition(":")[0]]


def test_what_was_judged_the_same_within_the_second_margin_is_the_same_on_its_screen() -> None:
    """The list of runs has the verdict's word: the screen beside it may not call the same interval inconclusive."""
    near, nearly = (
        Screen(verdicts.a_verdict(effect, alpha=0.01), effect, (2e6, 2e6), (), None)
        for high in (1.005, 1.015)
        for effect in [an_effect(value=1.001, low=0.992, high=high, verdict="same")]
    )
    assert near.way is nearly.way is Word.SAME
    assert "the same time as before, within 1 %" in near.headline and "within 2 %" in nearly.headline
    assert nearly.relevance == "Not known: 0 to 1.5 %; up to 1 % counts as the same."


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((2.93, 3.38), "proposal is 3.15 [2.93, 3.38] times as fast as before: "),
        ((0.4, 0.5), "proposal takes 2.24 [2.00, 2.50] times as long as before: "),
        ((1.012, 1.031), "proposal is 2.1 % [1.2, 3.1] faster than before: "),
        ((2.93, None), "proposal is 3.15 times as fast as before: "),
    ],
)
def test_the_headline_has_the_interval(ends: tuple[float, float | None], said: str) -> None:
    low, high = ends
    value = math.sqrt(low * high) if high else 3.15
    effect = an_effect(value=value, low=low, high=high, verdict="faster")
    assert Screen(verdicts.a_verdict(effect, alpha=0.01), effect, (2e6, 1e6), (), None).headline.startswith(said)


def test_the_line_that_takes_most_stands_out_and_code_is_indented(tmp_path: Path) -> None:
    listing = diff_html(explained(tmp_path, CASES["a guard that returns early"]))
    [most] = re.findall(r'<tr class="[^"]*\bmost\b.*', listing)
    assert f"<td>    {escape(f'return {SLOW_LINE}')}</td>" in most
    assert "<td>        return word</td>" in listing, "of a deeper block"


def test_page_and_exported_page_show_the_code_alike() -> None:
    run = data.read_run(FIRST.path)
    [told] = explanations_in(FIRST).values()
    listing = diff_html(told)
    assert listing and listing in evidence_html(run, run.claims[0])


def test_the_page_has_the_number_the_picture_why_and_the_edited_line(
    functions_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(functions_home / "runs" / "two")
    entry = sampled(tmp_path, CASES["a guard that returns early"], ("old.total", "new.total"), "numbers")
    run.write_json("causes.json", [entry | {"seconds": 9.0}])
    app = open_in_app("comparison", monkeypatch, functions_home, **UNFOLDED)
    (run.path / "causes.json").unlink()
    assert not app.exception
    [title] = [each.value for each in app.header if each.proto.anchor == "answer"]
    assert "new.total" in read(title) and "a call" in read(title)
    text, told = everything(app), alts(app)
    assert told[0].startswith("Speed-up per workload")
    [causes] = [each.proto.body for each in app.get("html") if 'class="causes"' in each.proto.body]
    assert re.search(r"<tr><td>strip_<wbr>marks \(before\.py:3.*?</td><td>-", causes) and 'class="less"' in causes
    assert told[1].startswith("Times of a call by process: old.total ")
    assert all(f"**{name}:**" in text for name in ("What to do", "Significant", "Relevant", "Correct"))
    diffs = [each.proto.body for each in app.get("html") if 'class="lines"' in each.proto.body]
    assert len(diffs) == 1 and re.search(r'class="new cause">.*?if word\.isascii\(\):', diffs[0])
    [canvas] = [each for each in map(given, app.get("bidi_component")) if "pictures" in each]
    assert canvas["pictures"][0]["title"] == "new.total less old.total"


def given(component: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(component.proto.json)
    return found


def test_a_side_that_was_left_out_is_what_to_mend() -> None:
    effect = an_effect(value=None, low=None, high=None, verdict="not evidence", cause="excluded")
    screen = Screen(verdicts.a_verdict(effect, alpha=0.01), effect, (2e6, 1e6), (), None)
    assert screen.advice == "Mend the side that is left out (why stands below), then compare again."
