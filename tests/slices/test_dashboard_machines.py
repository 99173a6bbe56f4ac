"""The dashboard on a run of several machines: a row a machine kind, their mean, and the way to each machine's run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")

from streamlit.testing.v1 import AppTest

from llama_workbench.dashboard.views import entries
from llama_workbench.harness.slices.fleet.folder import FleetFolder
from llama_workbench.harness.slices.fleet.machines import combine, judge_fleet
from llama_workbench.harness.store.verdict_schema import Machine
from tests.dashboard_pages import everything, open_in_app, strips
from tests.dashboard_runs import HOSTILE, MARKUP
from tests.runs import CLAIMS, write_run
from tests.slices.test_fleet import ONLY, OTHER

KINDS = ("Simulated CPU, 2 cores", "Another CPU, 2 cores")


FLEET_PART = {"claim": "mask-caching-6-11", "part": "whole prefill"}


@pytest.fixture(scope="module")
def fleet_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with the runs of three machines of two kinds, and with what they were combined to."""
    results = tmp_path_factory.mktemp("results")
    slow = {"prefill-15m-t128/team006_after": 1.02}
    made = [write_run(results / "runs/old", only=ONLY, rounds=30)]
    for seed, name in enumerate(("new", "newer"), 1):
        folder = results / "runs" / name
        made.append(write_run(folder, seed=seed, only=ONLY, rounds=30, environment=OTHER, factors=slow))
    combine(made, results / "runs/fleet")
    return results


@pytest.fixture
def fleet_page(fleet_home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    def opened(name: str, **link: str) -> AppTest:
        app = open_in_app(name, monkeypatch, fleet_home, **link)
        assert not app.exception, app.exception
        return app

    return opened


def test_a_fleet_is_the_first_run_that_is_shown(fleet_page: Callable[..., AppTest]) -> None:
    app = fleet_page("answer")
    text = everything(app)
    assert "3 machines: Simulated CPU, 2 cores, Another CPU, 2 cores #1" in text
    assert "prefill-15m-t128 on Another CPU, 2 cores #2: 1.0" in str(strips(app)) and not app.warning
    names = [option for option in app.selectbox[0].options if "fleet/" in option]
    assert len(names) == 3 and "fleet" in app.selectbox[0].options[0]


def test_the_claim_has_a_row_a_kind_of_machine_and_one_for_the_mean(fleet_page: Callable[..., AppTest]) -> None:
    app = fleet_page("claim", run="fleet", **FLEET_PART)
    text, table = everything(app), app.dataframe[0].value
    assert list(table["machine"]) == [*KINDS, "mean of these 3 machines"] and set(table["on"]) == {"prefill-15m-t128"}
    assert all(re.fullmatch(r"1\.0\d+× \[[\d.]+, [\d.]+\]", told) for told in table["value [interval]"])
    assert "Depends on the machine" in text and "they differ by 2." in text and "without a common point" in text
    query = [parse_qs(link.proto.query_string) for link in app.get("page_link")]
    runs = [each["run"][0] for each in query if each.get("run", ["fleet"])[0].startswith("fleet/")]
    assert len(runs) == 3 and all(each["claim"] == ["mask-caching-6-11"] for each in query if each["run"][0] in runs)
    inside = everything(fleet_page("claim", run=runs[0], **FLEET_PART))
    assert "Process by process" in inside and "Machine by machine" not in inside


@pytest.mark.parametrize("name", ["breakdown", "attribution", "memory", "trust"])
def test_what_lies_with_the_machines_is_a_link_away(fleet_page: Callable[..., AppTest], name: str) -> None:
    app = fleet_page(name, run="fleet")
    assert "This run is of several machines" in everything(app) and not app.warning
    here = [link for link in app.get("page_link") if "run=fleet%2F" in link.proto.query_string]
    assert len(here) == 3 and "several machines" not in everything(fleet_page(name, run="old"))


def test_history_shows_each_run_once(fleet_page: Callable[..., AppTest], fleet_home: Path) -> None:
    assert not fleet_page("history").warning
    listed = entries.RunList(fleet_home).entries()
    assert [entry.is_machine for entry in listed].count(True) == 3 and [entry.is_fleet for entry in listed].count(
        True
    ) == 1
    names = {entry.name for entry in entries.without_copies(listed)}
    assert names == {"fleet", "old", "new", "newer"} and entries.first_shown(listed).name == "fleet"


def test_what_machines_say_of_themselves_is_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FleetFolder.create(tmp_path / "runs/hostile")
    environment = {"cpu_model": f"{HOSTILE} {MARKUP}"}
    for name in ("a", "b"):
        write_run(fleet.machine(name), seed=ord(name), only=ONLY, rounds=12, environment=environment)
    left_out = Machine(name="c", status="left out", reason=f"{HOSTILE} {MARKUP}")
    listed = [Machine(name="a"), Machine(name="b"), left_out]
    fleet.write(listed, claims=CLAIMS, status="complete")
    judge_fleet(fleet.path)
    app = open_in_app("claim", monkeypatch, tmp_path, run="hostile")
    assert not app.exception and HOSTILE in app.dataframe[0].value["machine"].to_string()
    assert not any(re.search(r"(?<!\\)<script", str(each.value)) for each in [*app.markdown, *app.caption])
