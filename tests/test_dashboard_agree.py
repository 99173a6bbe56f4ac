"""All pages alike: one word, one interval and one time for one fact, and text of a file that stays text."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.report.outcome import trust_of
from tests import runs
from tests.dashboard_pages import alts, everything, open_in_app, read, strips
from tests.dashboard_runs import HOSTILE, MARKUP, deface
from tests.test_dashboard_breakdown import add_phases
from tests.test_dashboard_memory import a_sweep

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from streamlit.testing.v1 import AppTest

from llama_workbench.dashboard import words
from llama_workbench.dashboard.sections.strips import PAGE
from llama_workbench.dashboard.views import data, outcomes

CLAIMS, FUNCTIONS = "reference", "first-comparison"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two committed runs: one of claims, and one of two functions."""
    results = tmp_path_factory.mktemp("results")
    for name in (CLAIMS, FUNCTIONS):
        shutil.copytree(ROOT / "results" / "baselines" / name, results / "baselines" / name)
    return results


def seen(app: AppTest) -> str:
    """All that a page says, pictures in words included."""
    assert not app.exception, app.exception[0].message
    html = " ".join(re.sub(r"<[^>]*>", "", each.value) for each in app.get("html") if hasattr(each, "value"))
    return " ".join([everything(app), html, *map(read, alts(app))])


def trust_words(app: AppTest) -> list[str]:
    """What the link to the trust of the run says."""
    return [each.proto.label for each in app.get("page_link") if "show=trust" in each.proto.query_string]


@pytest.mark.parametrize("run", [CLAIMS, FUNCTIONS])
def test_every_page_says_the_same_of_how_far_a_run_is_trusted(
    home: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    trust = trust_of(data.read_run(home / "baselines" / run).noise)
    for page in ("answer", PAGE, "two_runs", "trust"):
        app = open_in_app(page, monkeypatch, home, run=run)
        assert trust_words(app) == [trust.word], page
        assert trust.short in [read(each.value) for each in app.caption] or trust.is_whole, page
    assert app.header[0].value == trust.word and trust.finding in seen(app)
    listed = open_in_app("runs", monkeypatch, home).dataframe[0].value.set_index("run")
    assert trust.finding.endswith(str(listed.loc[f"./?run=baselines/{run}", "identical code"]))


def test_a_claim_has_one_word_and_one_interval_on_all_pages(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = data.read_run(home / "baselines" / CLAIMS)
    app = open_in_app("answer", monkeypatch, home, run=CLAIMS)
    assert not app.exception
    rows = {row["index"]: row for row in strips(app)["claims"]["rows"]}
    for card in strips(app)["answer"]["cards"][:2]:
        claim, query = run.claims[card["index"]], strips(app)["answer"]["queries"][card["index"]]
        look = outcomes.look_of(claim)
        assert rows[card["index"]]["look"]["word"] == look.word
        evidence = open_in_app(PAGE, monkeypatch, home, **query)
        text = seen(evidence)
        assert look.word in read(evidence.header[0].value)
        told = [cell["told"] for cell in [*rows[card["index"]]["cells"], *rows[card["index"]]["rest"]] if cell]
        for effect in claim.effects:
            assert words.effect(effect) in "; ".join(told), "on the first page"
            assert words.effect(effect) in text, "beside the evidence"


def test_two_functions_have_one_word_one_interval_and_one_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = data.read_run(home / "baselines" / FUNCTIONS)
    [claim] = run.claims
    [effect] = claim.effects
    app = open_in_app("answer", monkeypatch, home, run=FUNCTIONS)
    text, headline = seen(app), read(app.header[0].value)
    assert f"badge[{effect.verdict.look.word}]" in headline
    times = re.findall(r"[\d.]+ [mµn]?s\b", headline)
    assert len(times) == 2 and all(time in text for time in times)
    evidence = seen(open_in_app(PAGE, monkeypatch, home, run=FUNCTIONS))
    assert words.effect(effect) in evidence and effect.verdict.look.word in evidence
    assert all(time in evidence for time in times)
    listed = open_in_app("runs", monkeypatch, home).dataframe[0].value.set_index("run")
    told = listed.loc[f"./?run=baselines/{FUNCTIONS}", "compared, and what came out"]
    assert told == f"{effect.baseline} → {effect.variant}: {effect.verdict.look.word.lower()}"


def test_no_page_calls_open_what_is_inconclusive(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for page in ("answer", PAGE, "runs", "two_runs", "history", "trust"):
        text = seen(open_in_app(page, monkeypatch, home, run=CLAIMS))
        assert not re.search(r"(?i)verdict is open|\bopen verdict|hollow: open|self-check failed", text), page


# -- what a run says is text -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose every name and text tries to be markup, with phases and sweeps."""
    results = tmp_path_factory.mktemp("hostile")
    run = runs.write_run(results / "runs" / "hostile", rounds=12)
    add_phases(run)
    deface(run)
    facts = run.records("phases.json")
    run.write_json("phases.json", [fact | {"clock": HOSTILE, "lines": HOSTILE} for fact in facts])
    run.write_json("memory_sweep.json", [a_sweep(HOSTILE, 100_000, reason=HOSTILE)])
    return results


@pytest.mark.parametrize("page", ["answer", "claim", "compare", "breakdown", "memory", "runs", "history", "trust"])
def test_a_hostile_run_is_shown_as_it_is_written(hostile: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    link = {"claim": "mask-caching-helps"} if page in ("answer", "claim", "compare") else {}
    app = open_in_app(page, monkeypatch, hostile, **link)
    assert not app.exception
    for element in [*app.markdown, *app.caption, *app.header, *app.warning, *app.info]:
        assert not re.search(r"<(?!br>)", re.sub(r"\\.", "", element.value)), "a bare < could open a tag"
        assert not getattr(element, "allow_html", False)
    if page in ("answer", "claim"):
        assert MARKUP in everything(app)
    if page not in ("runs", "history"):
        assert HOSTILE in everything(app)
