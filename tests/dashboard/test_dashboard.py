"""The dashboard without a browser: figures by their traces, files by what is read of them, the page by AppTest."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_workbench import ROOT
from llama_workbench.commands.app import main
from llama_workbench.harness.claims.reading import load_dispute
from llama_workbench.harness.report.answer import answer
from llama_workbench.harness.report.ladder import cards_of
from llama_workbench.harness.report.text import verdict_counts
from llama_workbench.harness.store import folder as folders
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import PHASES
from tests import runs
from tests.dashboard_pages import commands, contrast, everything, open_in_app, open_page, read, strips, theme
from tests.dashboard_runs import HOSTILE, MARKUP, add_broken

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")


from llama_workbench.dashboard import words
from llama_workbench.dashboard.export import evidence as export
from llama_workbench.dashboard.export import svg as colours
from llama_workbench.dashboard.export.svg import forest_svg
from llama_workbench.dashboard.sections import claim as section
from llama_workbench.dashboard.sections import strips as picture
from llama_workbench.dashboard.views import data, entries, forest, outcomes
from llama_workbench.harness.evidence.effect import half_width
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.verdict_schema import Effect
from tests import verdicts

APP = ROOT / "dashboard" / "app.py"


def an_effect(workload: str = "prefill-15m-t128", **more: Any) -> Effect:
    sides = {"workload": workload, "variant": "proposal", "baseline": "before"}
    numbers = {"value": 1.02, "low": 1.01, "high": 1.03, "rounds": 84, "seconds": 6.3, "verdict": "refuted"}
    return verdicts.an_effect(**{**sides, **numbers, **more})


def a_claim(*effects: Effect, **more: Any) -> data.Claim:
    texts = {"title": "The rewrite makes inference 2-3x faster", "statement": "", "reason": "", "claimed": "2-3x"}
    said = {"claim": "refactor-2x-3x", "who": ("TEAM-005",), "verdict": "refuted", "alpha": 0.01}
    own = {name: more.pop(name) for name in ("source", "decided_by", "hypothesis") if name in more}
    return data.Claim(**vars(verdicts.a_verdict(*effects, **{**texts, **said, "low": 2.0, "high": 3.0, **more})), **own)


def drawn(claim: data.Claim, floors: dict[str, data.Floor] | None = None) -> ElementTree.Element:
    """The forest plot on a page, without its width: places are in per cent."""
    return ElementTree.fromstring(forest_svg(claim, floors or {}))


def elements(svg: ElementTree.Element, tag: str, ink: str = "") -> list[dict[str, str]]:
    """The attributes of all elements of one kind that are drawn in a colour."""
    return [each.attrib for each in svg.iter(f"{{http://www.w3.org/2000/svg}}{tag}") if ink in each.get("style", "")]


def said(svg: ElementTree.Element) -> list[str]:
    """Every text that is drawn or told on hover."""
    return [each.text or "" for each in svg.iter()]


# -- words of a claim ----------------------------------------------------------------------------------------------


def test_the_title_of_a_claim_on_a_value_has_its_threshold() -> None:
    share = an_effect(unit="%", value=7.0, baseline="")
    claim = a_claim(share, title="Masks take time", claimed="above 5 %", low=5.0, high=None)
    assert section.full_title(claim) == "Masks take time, above 5 %"
    assert section.full_title(replace(claim, part="the 5 % rule")) == "Masks take time (the 5 % rule)"
    assert section.full_title(a_claim(an_effect())) == "The rewrite makes inference 2-3x faster", "a ratio"


def test_rows_that_were_not_tested_have_that_look() -> None:
    row = an_effect(value=None, low=None, high=None, verdict="inconclusive")
    for claimed, shown in (("not tested", Word.NOT_TESTED), ("inconclusive", Word.INCONCLUSIVE)):
        assert outcomes.look_of_row(a_claim(row, verdict=claimed), row.verdict) == shown.look


def test_a_claim_is_led_by_the_part_of_its_headline_then_by_what_was_measured(home: Path) -> None:
    run = data.read_run(home / "runs" / "all")
    unknown = [a_claim(part="a", claim="none"), a_claim(an_effect(), part="b", claim="none")]
    assert outcomes.main_part(run, unknown) is unknown[1]
    [(name, part), *_] = [each for each in run.dispute.headlines() if each[1]]
    asked = [a_claim(an_effect(), part="other", claim=name), a_claim(part=part, claim=name)]
    assert outcomes.main_part(run, asked) is asked[1]
    question = next(each for each in run.dispute.question if len(each.parts) > 1)
    forms = [a_claim(an_effect(), part=part, claim=question.claim) for part in reversed(question.parts)]
    elsewhere = a_claim(an_effect(), part="against the worker of TEAM-003", claim=question.claim)
    assert outcomes.main_part(run, [elsewhere, *forms]) is forms[-1]
    assert outcomes.main_part(run, [elsewhere, *forms[:-1]]) is forms[-2], "the next form, as its card"


def test_an_open_answer_has_the_colour_of_most_of_its_rows() -> None:
    yes, open_ = an_effect(verdict="supported"), an_effect(verdict="inconclusive")
    looks = [outcomes.look_of(a_claim(*rows, verdict="inconclusive")) for rows in ((yes, open_), (yes, yes, open_))]
    assert [each.colour for each in looks] == [Word.INCONCLUSIVE.look.colour, Word.SUPPORTED.look.colour]


def test_an_interval_that_says_nothing_has_no_digits() -> None:
    assert (half_width(0.031), half_width(6863.8)) == ("±3.1 %", "> ±100 %")


# -- the forest plot -------------------------------------------------------------------------------------------------


def test_a_reading_is_drawn_on_a_linear_axis_in_its_unit() -> None:
    share = an_effect(unit="%", value=41.1, low=38.4, high=43.8, baseline="", metric="share of layer: qkv")
    claim = a_claim(share, claimed="58-64 %", low=58.0, high=64.0)
    floors = {share.workload: data.Floor(1.0, 0.9, 1.1, 20, False)}
    plan = forest.forest(claim, floors)
    assert not plan.is_ratio and "[%]" in plan.title and plan.left == 0 and plan.right > 64
    assert plan.share(41.1) == pytest.approx(41.1 / plan.right) and plan.rows[0].floor is None
    edges = elements(drawn(claim, floors), "line", colours.LIGHT.region_edge)
    assert [float(edge["x1"][:-1]) for edge in edges] == [
        pytest.approx(100 * plan.share(end), abs=1e-3) for end in (58, 64)
    ]
    assert words.effect(share) == "41.1 % [38.4, 43.8]" and f"{words.effect(share)} · {share.rounds}" in said(
        drawn(claim, floors)
    )


def test_forest_has_one_row_per_effect_with_its_interval() -> None:
    effects = [
        an_effect("a", value=1.02, low=1.01, high=1.03),
        an_effect("b", value=2.5, low=2.4, high=2.6, verdict="supported"),
    ]
    claim = a_claim(*effects)
    plan, svg = forest.forest(claim, {}), drawn(claim)
    assert [look.row for look in plan.looks] == ["refuted", "supported"] and {"refuted", "supported"} <= {*said(svg)}
    assert len({look.symbol for look in plan.looks}) == 2, "never by colour alone"
    for effect in effects:
        ink = colours.LIGHT.verdict[effect.verdict.look.colour]
        [bar] = [line for line in elements(svg, "line", ink) if line["y1"] == line["y2"]]
        ends = [100 * plan.share(end) for end in (effect.low, effect.high)]
        assert [float(bar[end][:-1]) for end in ("x1", "x2")] == pytest.approx(ends, abs=1e-3)
    assert plan.rows[0].y > plan.rows[1].y, "in the order of the file, from the top"
    assert {"1.020× [1.010, 1.030] · 84", "2.500× [2.400, 2.600] · 84"} <= {*said(svg)}


def test_a_gain_above_the_claimed_one_has_the_same_mark_everywhere() -> None:
    claim = a_claim(an_effect(value=1.4, low=1.3, high=1.5), claimed="6-11 %", low=1.06, high=1.11)
    plan, svg = forest.forest(claim, {}), drawn(claim)
    assert [(look.word, look.colour, look.symbol) for look in plan.looks] == [("Understated", "green", "cross-thin")]
    assert "understated" in said(svg) and "refuted" not in " ".join(said(svg))
    assert not elements(svg, "path", colours.LIGHT.verdict["red"])


def test_forest_axis_is_logarithmic_and_labelled() -> None:
    plan = forest.forest(a_claim(an_effect()), {})
    assert plan.share(math.sqrt(plan.left * plan.right)) == pytest.approx(0.5)
    assert "speed-up (t_baseline / t_variant)" in plan.title
    assert plan.left < 1 < 3 < plan.right
    assert all(plan.left < tick < plan.right for tick in plan.ticks)
    assert all(text.endswith("×") for text in plan.ticks.values()) and {*plan.ticks.values()} <= {
        *said(drawn(plan.claim))
    }


def test_forest_shades_the_claimed_region_on_every_track() -> None:
    claim = a_claim(an_effect("a"), an_effect("b"))
    plan, svg = forest.forest(claim, {}), drawn(claim)
    region = [box for box in elements(svg, "rect", colours.LIGHT.region) if box["x"].endswith("%")]
    assert [float(box["x"][:-1]) for box in region] == [pytest.approx(100 * plan.share(2.0), abs=1e-3)] * 2
    assert float(region[0]["width"][:-1]) == pytest.approx(100 * (plan.share(3.0) - plan.share(2.0)), abs=1e-3)
    assert said(svg).count("claimed: 2-3x") == 1, "once in the legend"


@pytest.mark.parametrize(("low", "high"), [(1.01, None), (None, 0.95)])
def test_forest_runs_an_open_region_to_the_edge(low: float | None, high: float | None) -> None:
    claim = a_claim(an_effect(), low=low, high=high, claimed="open")
    plan = forest.forest(claim, {})
    [region] = [box for box in elements(drawn(claim), "rect", colours.LIGHT.region) if box["x"].endswith("%")]
    left, wide = float(region["x"][:-1]), float(region["width"][:-1])
    assert left == pytest.approx(100 * plan.share(low or plan.left), abs=1e-3)
    assert left + wide == pytest.approx(100 * plan.share(high or plan.right), abs=2e-3)


def test_forest_draws_the_floor_of_each_workload_where_there_is_one() -> None:
    floors = {"a": data.Floor(1.001, 0.997, 1.004, 40, False), "c": data.Floor(0.9, 0.8, 1.1, 40, False)}
    claim = a_claim(an_effect("a"), an_effect("b"))
    plan, svg = forest.forest(claim, floors), drawn(claim, floors)
    first, second = plan.rows
    assert first.floor == floors["a"] and second.floor is None and "identical code" in said(svg)
    assert first.y - forest.TRACK_PX / 2 > first.lane > second.y + forest.TRACK_PX / 2, "on a lane of its own"
    dots = [dot for dot in elements(svg, "circle", colours.LIGHT.muted) if dot["cx"].endswith("%")]
    assert [float(dot["cx"][:-1]) for dot in dots] == [pytest.approx(100 * plan.share(1.001), abs=1e-3)]
    assert any("identical code: 1.001× [0.997, 1.004], 40 rounds" in text for text in said(svg))
    assert "on these workloads identical code came out within 0.1 % of 1 (widest interval ±0.35 %)." in forest.caption(
        claim, floors
    )


def test_a_wide_floor_does_not_squeeze_the_effects() -> None:
    claim = a_claim(an_effect("a", value=1.02, low=1.01, high=1.03), low=1.01, high=None, claimed="open")
    plans = [forest.forest(claim, {"a": data.Floor(1.001, low, 1 / low, 9, False)}) for low in (0.999, 0.5)]
    assert len({(plan.left, plan.right) for plan in plans}) == 1


def test_forest_draws_a_dot_alone_where_there_is_no_interval() -> None:
    svg = drawn(a_claim(an_effect(low=None, high=None, value=1.5)))
    [bar] = elements(svg, "line", f"{colours.LIGHT.verdict['red']};stroke-width:2")
    assert (bar["x1"], bar["x2"]) == ("0.000%", "100.000%"), "open at both ends"
    assert "1.500× [no interval yet] · 84" in said(svg)


def test_forest_groups_rows_by_baseline() -> None:
    claim = a_claim(an_effect("a"), an_effect("a", baseline="after"), an_effect("b"))
    plan = forest.forest(claim, {})
    assert {"against before", "against after"} <= {*said(drawn(claim))}
    (before, after), y = (height for height, _ in plan.headings), [row.y for row in plan.rows]
    assert [row.effect.baseline for row in plan.rows] == ["before", "before", "after"]
    assert before > y[0] > y[1] > after > y[2]


@settings(deadline=None)
@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6),
    st.floats(0, 3),
    st.sampled_from([(None, None), (2.0, 3.0), (1.01, None), (None, 0.5)]),
)
def test_forest_shows_everything_finite_and_one(
    ratios: list[float], half: float, region: tuple[float | None, float | None]
) -> None:
    effects = [an_effect(str(r), value=r, low=r * math.exp(-half), high=r * math.exp(half)) for r in ratios]
    plan = forest.forest(a_claim(*effects, low=region[0], high=region[1]), {})
    inside = [1.0, *(edge for edge in region if edge), *(e.low for e in effects), *(e.high for e in effects)]
    assert all(plan.left < value < plan.right for value in inside if value)
    assert 1 <= len(plan.ticks) <= 30


def test_forest_in_words_says_what_the_picture_says() -> None:
    text = forest.in_words(a_claim(an_effect()), {"prefill-15m-t128": data.Floor(1.001, 0.998, 1.002, 4, False)})
    for part in (
        "2-3x",
        "prefill-15m-t128 against before",
        "1.020× [1.010, 1.030]",
        "refuted",
        "identical code 1.001× [0.998, 1.002]",
    ):
        assert part in text


# -- colours ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "palette"), [("light", colours.LIGHT), ("dark", colours.DARK)])
def test_figures_and_theme_agree_and_can_be_read(name: str, palette: colours.Palette) -> None:
    themed = theme()[name]
    for verdict, colour in palette.verdict.items():
        assert themed[f"{verdict}Color"] == themed[f"{verdict}TextColor"] == colour
        assert contrast(colour, themed["backgroundColor"]) >= 4.5
    for fill in [*palette.frames.values(), *palette.difference]:
        assert contrast(palette.frame_text, fill) >= 4.5


@pytest.mark.parametrize(("name", "palette"), [("light", colours.LIGHT), ("dark", colours.DARK)])
def test_text_brings_its_background(name: str, palette: colours.Palette) -> None:
    """Streamlit does not run the page again when the browser turns dark: text alone would vanish until it does."""
    svg = ElementTree.fromstring(forest_svg(a_claim(an_effect()), {}, palette))
    assert f"background:{palette.page}" in svg.attrib["style"]


def test_no_two_verdicts_look_alike() -> None:
    assert set(words.LOOKS) >= {"supported", "refuted", "inconclusive", "depends", "not evidence"}
    assert len({look.icon for look in words.LOOKS.values()}) == len(words.LOOKS)
    assert {look.colour for look in words.LOOKS.values()} <= set(colours.LIGHT.verdict)


# -- text from files is text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [HOSTILE, MARKUP, "%{customdata}", "a & b < c"])
def test_plotly_gets_no_markup_from_a_file(text: str) -> None:
    effect = an_effect(text, variant=text, baseline=text, reason=text, notes=(text,))
    claim = a_claim(effect, claimed=text)
    assert {each.tag.rpartition("}")[2] for each in drawn(claim).iter()} <= {
        "svg", "title", "g", "text", "rect", "line", "circle", "path"
    }  # fmt: skip


def test_markdown_keeps_the_words_and_none_of_the_marks() -> None:
    escaped = words.markdown(MARKUP)
    assert re.sub(rf"\\(?=[!-/:-@\[-`{{-~])|{words.WORD_JOINER}", "", escaped) == MARKUP
    bare = re.sub(r"\\.", "", escaped)
    assert not re.search(r"[!-/:-@\[-`{-~]", bare), "every mark has a backslash"
    assert words.markdown("a\n\n# b") == r"a \# b"


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder: a run with every verdict, a later comparison, a killed run, a baseline, broken folders."""
    results = tmp_path_factory.mktemp("results")
    runs.write_run(results / "runs" / "all")
    later = {"started": "2026-01-03T00:00:00+00:00"}
    runs.write_run(results / "runs" / "ad-hoc", compare=("team006_before", "team006_after"), manifest=later)
    killed = {"started": "2026-01-01T00:00:00+00:00"}
    runs.write_run(results / "runs" / "killed", killed=True, manifest=killed, only=["decode-15m-c64"])
    runs.write_run(results / "baselines" / "main", manifest={"started": "2025-12-01T00:00:00+00:00"})
    add_broken(results / "runs")
    return results


def test_results_folder_by_option_then_variable_then_here() -> None:
    variable = {"WORKBENCH_RESULTS": "/b"}
    assert entries.results_folder(["--results", "/a"], variable) == Path("/a")
    assert entries.results_folder(["--results=/a", "-x"], variable) == Path("/a")
    assert entries.results_folder([], variable) == Path("/b")
    assert entries.results_folder(["--results"], {}) == Path("results")


def test_runs_are_listed_newest_first_and_damage_has_its_reason(home: Path) -> None:
    found = entries.RunList(home).entries()
    good = [entry.name for entry in found if entry.summary.problem is None]
    assert good == ["ad-hoc", "all", "killed", "baselines/main"]
    problems = {entry.name: entry.summary.problem for entry in found if entry.summary.problem}
    assert problems == {"cut-off": "run.json: not JSON at line 1", "photos": "no run.json and no samples"}


def test_a_folder_of_runs_and_a_single_run_are_results_too(home: Path) -> None:
    assert "all" in [entry.name for entry in entries.RunList(home / "runs").entries()]
    assert [entry.name for entry in entries.RunList(home / "runs" / "all").entries()] == ["all"]
    assert entries.RunList(home / "nowhere").entries() == []


def test_the_stamp_changes_with_the_run(tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "one", only=["decode-15m-c64"], rounds=12)
    before = entries.stamp_of_run(run.path)
    assert entries.stamp_of_run(run.path) == before
    run.write_json("verdicts.json", [])
    assert entries.stamp_of_run(run.path) != before


def test_the_list_of_runs_reads_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (
        runs.write_run(tmp_path / "runs" / name, only=["decode-15m-c64"], rounds=12, judged=False)
        for name in ("one", "two")
    )
    read: list[str] = []
    describe = folders.describe

    def counted(run: RunFolder, **how: Any) -> Any:
        read.append(run.path.name)
        return describe(run, **how)

    monkeypatch.setattr(entries, "describe", counted)
    listed = entries.RunList(tmp_path)
    assert [entry.name for entry in listed.entries()] == ["two", "one"] and sorted(read) == ["one", "two"]
    read.clear()
    assert listed.entries() == listed.entries() and not read
    two.write_json("verdicts.json", [{"claim": "c", "verdict": "refuted", "reason": "", "who": [], "effects": []}])
    runs.write_run(tmp_path / "runs" / "three", only=["decode-15m-c64"], rounds=12, judged=False)
    found = {entry.name: entry.summary.verdicts for entry in listed.entries()}
    assert found == {"one": {}, "two": {"refuted": 1}, "three": {}} and sorted(read) == ["three", "two"]
    (one.path / "run.json").write_text("{")
    assert {entry.name: entry.summary.status for entry in listed.entries()}["one"] == "damaged"
    shutil.rmtree(one.path)
    assert [entry.name for entry in listed.entries()] == ["two", "three"]


def test_a_run_is_read_as_the_judge_wrote_it(home: Path) -> None:
    run = data.read_run(home / "runs" / "all")
    written = RunFolder(home / "runs" / "all").records("verdicts.json")
    assert [(claim.claim, claim.part, claim.verdict) for claim in run.claims] == [
        (verdict["claim"], verdict["part"] or "", verdict["verdict"]) for verdict in written
    ]
    assert [claim.high for claim in run.claims if claim.claim == "single-file-faster"] == [None]
    assert run.claims[0].source == "A document, A section"
    controls = [
        row for row in RunFolder(run.path).read_manifest()["noise"]["controls"] if row["workload"] == "prefill-15m-t128"
    ]
    assert len(controls) == 2, "A/A and copy"
    floor = run.floors["prefill-15m-t128"]
    furthest = max(controls, key=lambda row: abs(math.log(row["ratio"])))
    ends = (floor.value, floor.low, floor.high)
    assert ends == pytest.approx(tuple(furthest[end] for end in ("ratio", "low", "high")))


def test_reproduce_names_the_claim_or_the_comparison(home: Path) -> None:
    claims, comparison = (data.read_run(home / "runs" / name) for name in ("all", "ad-hoc"))
    assert outcomes.reproduce(claims, claims.claims[0]) == "pytest --benchmark --claims refactor-2x-3x"
    assert outcomes.reproduce(comparison, comparison.claims[0]) == (
        "pytest --benchmark --compare team006_before team006_after --workloads "
        "prefill-15m-t128,prefill-7b-1layer-t128,decode-15m-c64,mask-create-apply-t128"
    )
    assert outcomes.reproduce(claims, a_claim(claim="; rm -rf /")) == "pytest --benchmark --claims '; rm -rf /'"


@pytest.mark.parametrize(
    ("verdict", "meaning"),
    [
        ("refuted", "the whole interval lies outside the claimed range (2-3x)"),
        ("supported", "the whole interval lies inside the claimed range (2-3x)"),
        ("inconclusive", "the data do not decide it"),
    ],
)
def test_the_verdict_in_plain_words(verdict: str, meaning: str) -> None:
    assert outcomes.meaning(a_claim(an_effect(), verdict=verdict)) == meaning


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.data())
def test_no_content_of_a_file_stops_the_reader(home: Path, tmp_path: Path, content: st.DataObject) -> None:
    """Any value in any place of a whole run: it is read and drawn, or it is a RunError that says what is wrong."""
    source = RunFolder(home / "runs" / "all")
    run = RunFolder(tmp_path / "run")
    run.path.mkdir(exist_ok=True)
    names = ("run.json", "verdicts.json", "claims.json", "memory.json", "profiles.json")
    spoilt = content.draw(st.sampled_from(names))
    for name in names:
        value = json.loads((source.path / name).read_text())
        if name == spoilt:
            value = _spoil(value, content)
        run.write_json(name, value)
    try:
        read = data.read_run(run.path)
    except RunError:
        return
    for claim in read.claims:
        if claim.effects:
            forest_svg(claim, read.floors)
        outcomes.meaning(claim), outcomes.sentence(claim), outcomes.reproduce(read, claim)
        for effect in claim.effects:
            outcomes.gates_row(read, effect)


def _spoil(value: Any, content: st.DataObject) -> Any:
    """`value` with something else in one place, found by walking down from the top."""
    if isinstance(value, dict) and value and content.draw(st.integers(0, 6)):
        key = content.draw(st.sampled_from(sorted(value)))
        return {**value, key: _spoil(value[key], content)}
    if isinstance(value, list) and value and content.draw(st.integers(0, 6)):
        index = content.draw(st.integers(0, len(value) - 1))
        return [*value[:index], _spoil(value[index], content), *value[index + 1 :]]
    return content.draw(anything)


# -- the page --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(low=st.floats(0.5, 1e4), factor=st.floats(1.005, 1e4))
def test_an_axis_of_ratios_has_marks_wherever_it_lies(low: float, factor: float) -> None:
    found = forest.ratio_ticks(low, low * factor)
    assert 2 <= len(found) == len({*found.values()}) <= 8
    assert all(low <= value <= low * factor for value in found)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`page(results, run="…", claim="…")` opens the app on that link."""
    return partial(open_page, APP, monkeypatch)


def shown_text(markdown: str) -> str:
    """What is read of it, without the icon or the verdict in front and without colours."""
    without_icon = re.sub(r"^:[a-z]+(\[:material/\w+:\]|-badge\[\w+\]) ", "", markdown)
    return re.sub(r":[a-z]+\[(.*?)\]", r"\1", read(without_icon))


def test_the_newest_run_opens_with_its_answer(page: Any, home: Path) -> None:
    app = page(home)
    assert not app.exception
    assert app.title[0].value == "Answer"
    assert app.selectbox(key="run").value == "ad-hoc"
    judged = RunFolder(home / "runs" / "ad-hoc").read(VERDICTS)
    assert answer(judged, load_dispute()).headline.startswith("Is team006_after faster than team006_before? ")
    assert re.match(
        r"team006_after is [\d.]+ (% )?\[[\d.]+, [\d.]+\] (faster than|times as fast as) team006_before: ",
        shown_text(app.header[0].value),
    )


def test_the_headline_is_the_same_everywhere(page: Any, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(home / "runs" / "all")
    headline = answer(folder.read(VERDICTS), load_dispute()).headline
    assert headline.startswith("Is the rewrite (one file, one cache) 2-3x faster? At most 1.")
    run = data.read_run(folder.path)
    assert outcomes.answer_of(run) == answer(run.claims, load_dispute())
    for arguments in (["report", str(folder.path)], ["judge", str(folder.path)]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert headline in capsys.readouterr().out.replace("\n", " ")
    assert strips(page(home, run="all"))["answer"]["cards"][0]["sentence"] == headline
    for claim in run.claims:
        assert f'<p class="headline">{html.escape(headline)}</p>' in export.evidence_html(run, claim)


def test_a_row_has_true_places_on_one_axis_and_the_teams_stand_below(page: Any, home: Path) -> None:
    app = page(home, run="all")
    run = data.read_run(home / "runs" / "all")
    drawn = strips(app)["claims"]
    grid = picture.grid_of(run)

    def share(value: float) -> float:
        inside = min(max(value, grid.left), grid.right)
        return math.log(inside / grid.left) / math.log(grid.right / grid.left)

    assert grid.left < 1 < grid.right and [tick for tick, _ in drawn["ticks"]] == sorted(t for t, _ in drawn["ticks"])
    [row] = [each for each in drawn["rows"] if run.claims[each["index"]].claim == "refactor-2x-3x"]
    claim, shown = run.claims[row["index"]], row["picture"]
    assert (row["look"]["word"], row["look"]["icon"], row["look"]["colour"]) == ("Refuted", "cancel", "red")
    assert shown["claimed"] == pytest.approx([share(2.0), share(3.0)], abs=1e-5)
    for each in filter(None, (each["picture"] for each in drawn["rows"])):
        assert each["same"] == pytest.approx(share(1.0), abs=1e-5), "the same place in all rows"
    for one, effect in zip(shown["rows"], claim.effects, strict=True):
        ends = [share(end) for end in (effect.low, effect.value or 0.0, effect.high)]
        assert [one["low"], one["at"], one["high"]] == pytest.approx(ends, abs=1e-5)
        assert words.effect(effect) in one["told"] and "inconclusive" not in one["told"]
    cells = [cell for cell in [*row["cells"], *row["rest"]] if cell]
    assert sum(cell["count"] for cell in cells) == len(claim.effects), "each workload is in one cell"
    for name, cell in zip(grid.columns, row["cells"], strict=True):
        here = [effect for effect in claim.effects if effect.workload == name]
        assert bool(cell) == bool(here)
        if cell:
            assert cell["text"] == f"{picture._number(here[0].value or 0.0)}×" and words.effect(here[0]) in cell["told"]
            assert (cell["icon"], cell["workload"]) == (here[0].verdict.look.icon, name)
    columns = {team["name"]: team for team in drawn["teams"]}
    assert ("Refuted", "refactor 2x 3x") in [
        (said["look"]["word"], said["text"]) for said in columns["TEAM-005"]["said"]
    ]


def test_what_is_true_and_more_has_a_mark_of_its_own_and_its_numbers_beyond_the_axis() -> None:
    run = data.read_run(ROOT / "results" / "baselines" / "reference")
    rows = {row["title"]: row for row in picture.matrix(run, range(len(run.claims)))["rows"]}
    more = rows["The library's RoPE is three to five times as fast"]
    wrong = rows["Caching causal masks gains 6 to 11 %"]
    [cell] = more["rest"]
    marks = [(shown["icon"], shown["colour"]) for shown in (more["look"], cell, wrong["look"], wrong["rest"][0])]
    assert marks == [("add_circle", "green")] * 2 + [("cancel", "red")] * 2
    assert {each["colour"] for each in more["picture"]["rows"]} == {"green"} and "understated" in cell["told"]
    assert (cell["places"], wrong["rest"][0]["places"]) == ("8 workloads", "1 workload")
    below, above = more["picture"]["beyond"]
    assert below == "" and re.fullmatch(r"7\.\d\d to \d\d×", above) and wrong["picture"]["beyond"] == ["", ""]
    counted = next(each for row in rows.values() for each in row["rest"] if not each["workload"])
    assert counted["places"] == counted["text"], "a value without a workload is the number"


def test_one_claim_has_one_word_on_its_card_in_its_row_and_with_its_teams() -> None:
    run = data.read_run(ROOT / "results" / "baselines" / "reference")
    rows = picture.matrix(run, range(len(run.claims)))["rows"]
    word = {row["index"]: row["look"]["word"] for row in rows}
    for team in picture.teams(run):
        for said in team["said"]:
            claim = run.claims[said["index"]]
            assert word.get(said["index"], outcomes.look_of(claim).word) == said["look"]["word"]
    for card in picture.cards(run, {}):
        if "index" in card:
            stand = outcomes.look_of(run.claims[card["index"]]).word
            assert word.get(card["index"], stand) == stand and stand.lower() in card["said"].lower()
    assert not {each for each in word.values() if each.lower().startswith("mostly")}


def test_the_cards_are_the_first_screen_s_own_with_what_stands_beside_them(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("reference", "bench-epyc", "h200"):
        run = data.read_run(ROOT / "results" / "baselines" / name)
        told = cards_of(run.claims, run.dispute, run.manifest)
        *answers, change = picture.cards(run, {})
        assert [each["question"] for each in answers] == [line.question for line in told.answers], name
        assert [tuple(each["beside"]) for each in answers] == [line.beside for line in told.answers]
        assert change["question"] == picture.CHANGE
        if told.change is None:
            assert change["told"].endswith("pytest --benchmark --claims left-to-gain")
        else:
            assert told.change.not_to_take in change["told"] and [[*row.values()] for row in change["rows"]] == [
                [*row.values()] for row in told.change.rows()
            ]
    shutil.copytree(ROOT / "results" / "baselines" / "bench-epyc", tmp_path / "baselines" / "bench-epyc")
    text = everything(page(tmp_path))
    assert "All 12 answers" in text
    run = data.read_run(tmp_path / "baselines" / "bench-epyc")
    for line in outcomes.answer_of(run).lines:
        answered = "**]: ".join(words.markdown(each) for each in (words.capital(line.word), line.found) if each)
        texts = (words.markdown(line.question), answered, words.markdown(" ".join(line.beside)))
        assert all(read(each) in text for each in texts), line.question
    line = next(line for line in outcomes.answer_of(run).lines if line.beside)
    link = {"claim": line.verdict.claim, "part": line.verdict.part}
    evidence = everything(open_in_app("comparison", monkeypatch, tmp_path, **link))
    assert all(read(words.markdown(text)) in evidence for text in line.beside)


def test_what_another_run_has_is_a_link_away(home: Path) -> None:
    run = data.read_run(home / "runs" / "all")
    asked = {question.claim for question in run.dispute.question}
    only = replace(run, claims=tuple(claim for claim in run.claims if claim.claim != "mask-caching-6-11"))
    assert "mask-caching-6-11" in asked
    [lacking] = [card for card in picture.cards(only, {"mask-caching-6-11": "baselines/main"}) if "elsewhere" in card]
    assert lacking["elsewhere"] == {"run": "baselines/main", "claim": "mask-caching-6-11"}
    assert not [card for card in picture.cards(only, {}) if "elsewhere" in card]
    fresh = data.read_run(ROOT / "results" / "baselines" / "bench-epyc")
    change = picture.cards(fresh, {"left-to-gain": "baselines/main"})[-1]
    assert change["question"] == picture.CHANGE and change["told"].startswith(
        "This run has not measured what to change"
    )
    assert change["elsewhere"] == {"run": "baselines/main", "claim": "left-to-gain"}


def test_understated_claims_are_counted_apart_alike_in_the_menu_the_filter_and_a_teams_line() -> None:
    folder = ROOT / "results" / "baselines" / "reference"
    run, summary = data.read_run(folder), folders.describe(RunFolder(folder), light=True)
    counts = verdict_counts(run.claims)
    assert counts["understated"] >= 1 and sum(counts.values()) == len(run.claims)
    assert counts == summary.verdicts and f"{counts['refuted']} refuted, {counts['understated']} understated" in (
        entries.compared(summary)
    )
    assert sum("understated" in team["all"] for team in picture.teams(run)) >= 1


def test_what_each_team_s_own_rule_picks_is_told_in_words(tmp_path: Path) -> None:
    folder = runs.write_run(tmp_path / "run", only=["prefill-15m-t128"], rounds=12)
    spent = {"mask_create": 12_000, "cache": 2_000, "mlp": 86_000}
    folder.write_table(
        PHASES,
        [
            ["prefill-15m-t128", "team006_before", 1, index, 0, 128, phase, ns + index, sum(spent.values()) + 3 * index]
            for index in range(12)
            for phase, ns in spent.items()
        ],
    )
    columns = {team["name"]: team for team in picture.teams(data.read_run(folder.path))}
    picks = [(pick["picked"], pick["by"]) for pick in columns["TEAM-006"]["picks"]]
    assert picks[:2] == [
        ("Cache masks", "the plan's 10 % rule"),
        ("Cache masks in Attention", "the review's 5 % rule"),
    ]
    says = columns["TEAM-006"]["picks"][0]["says"]
    assert says.startswith("on the one workload that has its numbers, TEAM-006 EXECUTION PLAN, ")
    assert not [
        pick for team in columns.values() for pick in team["picks"] if re.search(r"Option|\b[ABCD]\b", str(pick))
    ]


def test_claims_come_by_importance_with_their_parts_inside(home: Path) -> None:
    run = data.read_run(home / "runs" / "all")
    rows = picture.matrix(run, range(len(run.claims)))["rows"]
    order = [run.claims[row["index"]].claim for row in rows]
    assert order[:4] == ["refactor-2x-3x", "mask-caching-6-11", "single-file-faster", "mask-caching-helps"]
    assert order[-2:] == ["mask-caching-exactly-8.5", "gpu-kernels"], "open ones, then what cannot be measured"
    row = rows[1]
    assert [part["title"] for part in row["parts"]] == ["micro-op", "whole prefill"]
    assert (row["tally"], row["look"]["word"]) == ("refuted on both · 2 parts", "Refuted")
    assert row["sentence"].startswith("TEAM-006 claimed 6-11 % faster (whole prefill); measured: ")
    [part] = next(row for row in rows if row["title"].endswith("8.5"))["parts"]
    assert part["look"]["word"].startswith("Inconclusive: ") and part["command"].startswith(
        "pytest --benchmark --claims "
    )


@pytest.mark.parametrize(
    ("claim", "word", "icon", "says"),
    [
        ("refactor-2x-3x", "Refuted", "cancel", "TEAM-005 claimed 2-3x; measured: at most 1.0"),
        (
            "mask-caching-helps",
            "Depends",
            "call_split",
            "TEAM-005 and TEAM-006 claimed more than 1 % faster; measured: ",
        ),
        ("mask-caching-exactly-8.5", "Inconclusive: ", "help", "claimed more than 8.5 % faster; measured: "),
        ("gpu-kernels", "Not measurable here", "do_not_disturb_on", "this run has none of its comparisons"),
    ],
)
def test_every_verdict_by_its_link(page: Any, home: Path, claim: str, word: str, icon: str, says: str) -> None:
    app = page(home, run="all", claim=claim)
    assert not app.exception and not app.warning
    drawn = strips(app)["claims"]
    [row] = [each for each in drawn["rows"] if drawn["open"] in each["indices"]]
    assert row["look"]["word"].startswith(word) and row["look"]["icon"] == icon
    assert says in row["sentence"]
    assert drawn["queries"][row["index"]].items() >= {"run": "all", "claim": claim}.items()
    assert "**inconclusive**" not in everything(app).lower()


def test_a_run_is_changed_and_its_claim_forgotten(page: Any, home: Path) -> None:
    app = page(home, run="all", claim="mask-caching-6-11", part="whole prefill")
    assert strips(app)["claims"]["open"] == 4
    app.selectbox(key="run").set_value("baselines/main").run()
    assert app.query_params.get("run") == "baselines/main"
    assert "claim" not in app.query_params, "a claim of another run means nothing"
    assert strips(app)["claims"]["open"] is None


def test_a_saved_run_opens_by_its_name_alone_and_by_its_folder(page: Any, home: Path) -> None:
    for asked in ("main", "results/baselines/main", "baselines/main"):
        app = page(home, run=asked)
        assert not app.exception and not app.warning
        assert app.selectbox(key="run").value == "baselines/main"
        assert app.query_params["run"] in ("baselines/main", ["baselines/main"])


def test_the_list_of_runs_says_what_was_compared_and_what_came_out(page: Any, home: Path) -> None:
    options = page(home).selectbox(key="run").options
    assert options[0].startswith("team006_before → team006_after: ") and options[0].endswith(" · ad-hoc")
    assert options[1].startswith("6 claims, 7 verdicts: 1 supported, 3 refuted, 3 others · ") and options[1].endswith(
        " · all"
    )
    app = open_in_app("runs", pytest.MonkeyPatch(), home)
    assert not app.exception
    table = app.dataframe[0].value
    assert table["compared, and what came out"][0].startswith("team006_before → team006_after: ")
    assert list(table["run"]) == [f"./?run={name}" for name in ("ad-hoc", "all", "killed", "baselines/main")]


def test_a_link_to_nothing_says_so_and_shows_the_newest(page: Any, home: Path) -> None:
    app = page(home, run="gone", claim="gone")
    assert not app.exception
    assert "there is no such run" in app.warning[0].value
    assert "has no claim gone" in app.warning[1].value
    app = page(home, run="cut-off")
    assert "run.json: not JSON at line 1" in re.sub(r"\\|\u2060", "", app.warning[0].value)
    assert app.selectbox(key="run").value == "ad-hoc"


def test_where_all_runs_are_baselines_the_one_with_most_verdicts_is_shown_first(page: Any, tmp_path: Path) -> None:
    register = runs.write_run(tmp_path / "baselines" / "register", only=["decode-15m-c64"], rounds=12)
    shutil.copytree(register.path, tmp_path / "baselines" / "short")
    later = RunFolder(tmp_path / "baselines" / "short")
    later.write_json("run.json", later.read_manifest() | {"started": "2099-01-01T00:00:00+00:00"})
    later.write_json("verdicts.json", json.loads((later.path / "verdicts.json").read_text())[:1])
    assert [entry.name for entry in entries.RunList(tmp_path).entries()] == ["baselines/short", "baselines/register"]
    assert page(tmp_path).selectbox(key="run").value == "baselines/register"
    shutil.copytree(later.path, tmp_path / "runs" / "mine")
    assert page(tmp_path).selectbox(key="run").value == "mine"


def test_under_a_count_of_all_verdicts_nothing_is_said_of_one() -> None:
    baselines = ROOT / "results" / "baselines"
    cards = picture.cards(data.read_run(baselines / "reference"), {})
    first, _, change = (card["question"] for card in cards)
    assert (first, change) == ("Is the rewrite (one file, one cache) 2-3x faster?", "What should I change?")
    assert picture.cards(data.read_run(baselines / "public"), {}) == [], "it has no question"


def test_a_killed_run_says_how_to_judge_it(page: Any, home: Path) -> None:
    app = page(home, run="killed")
    assert not app.exception
    assert "was killed and has no verdicts yet" in app.info[0].value
    assert commands(app)[0] == f"workbench judge {home / 'runs' / 'killed'}"


def test_folders_that_are_no_runs_are_named_with_the_reason(page: Any, home: Path) -> None:
    app = page(home)
    assert app.expander[-1].label == "2 of 6 folders are not shown"
    table = app.expander[-1].dataframe[0].value
    assert set(table["folder"]) == {"cut-off", "photos"}
    assert "run.json: not JSON at line 1" in set(table["reason"])


def test_an_empty_results_folder_shows_how_to_make_the_first_run(page: Any, tmp_path: Path) -> None:
    app = page(tmp_path)
    assert not app.exception
    assert commands(app)[:2] == ["make bench", "pytest --benchmark"]
    assert not app.selectbox and not strips(app)


def test_a_control_that_fired_is_loud(page: Any, tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "runs" / "one", only=["decode-15m-c64"])
    content = run.read_manifest()
    content["noise"]["controls"][0]["fired"] = True
    run.write_json("run.json", content | {"status": "interrupted"})
    told = " ".join(re.sub(r"\\|\u2060", "", warning.value) for warning in page(tmp_path).warning)
    assert "An A/A check failed on decode, after 64 tokens, 15M" in told
    assert "This run is interrupted" in told


@pytest.mark.parametrize("path", ["dashboard/sections/strips.js", "harness/slices/profiles/flames.js"])
@pytest.mark.whole
def test_a_component_writes_text_and_no_markup(path: str) -> None:
    """What comes from a file reaches the page as text: nothing in the script parses it, or fetches anything."""
    script = (ROOT / path).read_text()
    parses = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|DOMParser|import "
    assert not re.search(parses, script) and "://" not in script.replace("http://www.w3.org/2000/svg", "")


def test_the_app_starts_as_a_script_anywhere_without_torch(home: Path, tmp_path: Path) -> None:
    """Streamlit runs it so: only dashboard/ on sys.path, some other working folder."""
    script = f"""
import os, sys
os.environ["WORKBENCH_RESULTS"] = {str(home)!r}
sys.argv = ["app.py"]
from streamlit.testing.v1 import AppTest
app = AppTest.from_file({str(APP)!r}, default_timeout=60).run()
assert not app.exception, app.exception
assert app.title[0].value == "Answer"
import llama_workbench
print(llama_workbench.ROOT)
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(ROOT)


def test_streamlit_looks_for_no_pages_of_its_own() -> None:
    """Files in a folder of this name would be the pages until the script has run: other addresses are "not found"."""
    assert not (ROOT / "dashboard" / "pages").exists()
