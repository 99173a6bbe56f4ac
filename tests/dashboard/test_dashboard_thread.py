"""One thread through the dashboard's pages: the chosen run, claim and workload stay, and what a URL cannot mean is
told."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.store.folder import RunFolder
from tests import runs

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from streamlit.testing.v1 import AppTest

from tests.dashboard_pages import VIEWS, read

APP = ROOT / "dashboard" / "app.py"
PAGES = ("answer", "two_runs", "comparison", "history", "explore", "trust")  # no two views of one page side by side
CHOSEN = {"run": "older", "claim": "mask-caching-6-11", "part": "whole prefill", "workload": "prefill-7b-1layer-t128"}

Opener = Callable[..., AppTest]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs; the one that a reader sees first is not the one that the tests choose."""
    results = tmp_path_factory.mktemp("results")
    runs.write_run(results / "runs" / "older", rounds=12)
    newer = {"started": "2026-01-03T00:00:00+00:00"}
    runs.write_run(results / "runs" / "newer", rounds=12, only=["decode-15m-c64"], manifest=newer)
    return results


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch, home: Path) -> Opener:
    """`reader("comparison", run="…")`: a fresh browser that opens this page on that link."""

    def opened(page: str = "answer", **link: str) -> AppTest:
        page, shown = VIEWS.get(page, (page, {}))
        link = {**shown, **link}
        monkeypatch.setenv("WORKBENCH_RESULTS", str(home))
        monkeypatch.setattr(sys, "argv", ["app.py"])
        app = AppTest.from_file(str(APP), default_timeout=60)
        if page != "answer":
            app.switch_page(f"page_scripts/{page}.py")
        for name, value in link.items():
            app.query_params[name] = value
        return app.run()

    return opened


def go(app: AppTest, page: str, **link: str) -> AppTest:
    """Go to another page by the menu, which drops the URL's choices, or by a link that has some."""
    for name in list(app.query_params):
        del app.query_params[name]
    page, shown = VIEWS.get(page, (page, {}))
    for name, value in {**shown, **link}.items():
        app.query_params[name] = value
    return app.switch_page(f"page_scripts/{page}.py").run()


def chosen(app: AppTest) -> dict[str, str]:
    values = {name: app.query_params[name] for name in CHOSEN if name in app.query_params}
    return {name: value if isinstance(value, str) else value[0] for name, value in values.items()}


def warnings(app: AppTest) -> list[str]:
    return [read(each.value) for each in app.warning]


def test_the_menu_keeps_the_chosen_claim_run_and_workload_on_all_pages(reader: Opener) -> None:
    app = reader("claim", **CHOSEN)
    for page in [*PAGES, *reversed(PAGES[:-1])]:
        go(app, page)
        assert not app.exception and not app.warning, page
        assert chosen(app) == CHOSEN, page
        if page not in ("runs", "history"):
            assert app.selectbox(key="run").value == "older", page
    go(app, "comparison")
    assert app.selectbox(key="row").value == "2", "the row of the chosen workload"
    place = app.selectbox(key="claim").value
    assert isinstance(place, int)
    assert app.selectbox(key="claim").options[place].startswith("mask caching 6 11 (whole")
    go(app, "history")
    assert app.selectbox(key="claim").value == CHOSEN["claim"]
    assert app.selectbox(key="workload").value == CHOSEN["workload"]
    assert go(app, "comparison").selectbox(key="row").value == "2"


def test_what_is_chosen_on_a_page_is_chosen_on_the_next(reader: Opener) -> None:
    app = reader("claim", run="older")
    app.selectbox(key="claim").set_value(2).run()
    app.selectbox(key="row").set_value("2").run()
    assert chosen(app)["workload"] == "prefill-7b-1layer-t128"
    go(app, "history")
    assert app.selectbox(key="claim").value == chosen(app)["claim"]
    app.selectbox(key="claim").set_value("single-file-faster").run()
    assert "part" not in app.query_params
    assert chosen(go(app, "answer"))["claim"] == "single-file-faster"


def test_a_link_counts_more_than_what_was_chosen_before(reader: Opener) -> None:
    app = reader("claim", **CHOSEN)
    go(app, "comparison", run="newer")
    assert chosen(app) == {"run": "newer"}, "the claim of another run means nothing"
    app = reader("claim", **CHOSEN)
    go(app, "answer", claim="single-file-faster")
    assert chosen(app) == {"run": "older", "claim": "single-file-faster", "workload": CHOSEN["workload"]}, "no part"
    assert chosen(reader("claim")) == {"run": "newer"}, "a fresh browser knows nothing of it"


def test_the_way_back_on_the_same_page_forgets(reader: Opener) -> None:
    app = reader("claim", **CHOSEN)
    go(app, "explore")
    for name in list(app.query_params):
        del app.query_params[name]
    app.run()
    assert chosen(app) == {"run": "newer"} and app.selectbox(key="run").value == "newer"


@pytest.mark.parametrize(
    ("page", "link", "named", "there"),
    [
        ("claim", {"run": "gone"}, "Run gone cannot be shown: there is no such run", "There is: newer, older."),
        ("claim", {"claim": "gone"}, "This run has no claim gone", "It has: refactor-2x-3x, single-file-faster, "),
        (
            "claim",
            {"claim": "mask-caching-6-11", "part": "gone"},
            "The claim mask-caching-6-11 has no part gone",
            "It has: micro-op, whole prefill.",
        ),
        ("answer", {"claim": "gone"}, "This run has no claim gone", "It has: refactor-2x-3x, "),
        ("claim", {"claim": "single-file-faster", "row": "9"}, "Look inside 9 is not", "There is: 1, 2."),
        ("history", {"workload": "gone"}, "Workload gone is not here", "There is: "),
        ("memory", {"workload": "gone"}, "Workload gone is not here", "There is: prefill-15m-t128."),
    ],
)
@pytest.mark.whole
def test_an_unknown_value_is_named_with_what_there_is(
    reader: Opener, page: str, link: dict[str, str], named: str, there: str
) -> None:
    app = reader(page, **({"run": "older"} | link))
    assert not app.exception
    [told] = warnings(app)
    assert told.startswith(named) and there in told
    kept = {name: value for name, value in link.items() if value not in ("gone", "9")}
    usual = reader(page, **({} if "run" in link else {"run": "older"} | kept))
    for one, other in zip(app.selectbox, usual.selectbox, strict=True):
        assert (one.key, one.value) == (other.key, other.value), "the default is shown"


def test_the_answer_stands_in_a_title_with_its_verdict(reader: Opener) -> None:
    app = reader("claim", run="older")
    title = next(each.value for each in app.header if each.value.startswith(":"))
    assert re.match(r":(red|green|gray|violet|blue)\[:material/\w+:", title)


@pytest.mark.whole
def test_long_pages_begin_with_links_to_their_parts(reader: Opener) -> None:
    app = reader("claim", **CHOSEN)
    [contents] = [each.value for each in app.markdown if each.value.startswith("On this page:")]
    anchors = re.findall(r"\(#(\w+)\)", contents)
    assert {*anchors} <= {each.proto.anchor for each in [*app.header, *app.subheader]}
    assert {"answer", "rounds", "operations", "memory", "how"} <= {*anchors}


def test_an_unknown_verdict_of_the_filter_is_named(reader: Opener, home: Path) -> None:
    run = RunFolder(home / "runs" / "newer")
    verdicts = run.records("verdicts.json")
    run.write_json("verdicts.json", [each | {"claim": f"{each['claim']}-{n}"} for n in range(3) for each in verdicts])
    app = reader(run="newer", verdict="gone")
    [told] = warnings(app)
    assert told.startswith("Verdict gone is not here. There is: ") and told.endswith("Shown instead: all.")
    run.write_json("verdicts.json", verdicts)


@pytest.mark.whole
def test_a_workload_of_another_page_that_this_one_has_nothing_of_is_no_mistake(reader: Opener) -> None:
    app = go(reader("claim", run="older", workload="decode-15m-c64"), "memory")
    assert not app.warning and app.selectbox(key="workload").value == "prefill-15m-t128"
    assert chosen(app)["workload"] == "decode-15m-c64", "kept for the other pages"
