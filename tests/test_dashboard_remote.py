"""The dashboard on runs at a URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("s3fs", reason="the extra `remote` is not installed")

from llama_workbench.harness.remote import index
from llama_workbench.harness.remote.place import Place, PlaceError
from llama_workbench.harness.remote.publish import publish
from llama_workbench.harness.remote.rows import row_of
from llama_workbench.harness.store.folder import RunFolder
from studies import store_speed
from tests.dashboard_pages import alts, everything, open_in_app
from tests.object_store import Store, running_store
from tests.test_remote import a_run

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")

from llama_workbench.dashboard.views import remote
from llama_workbench.dashboard.views.remote import RemoteList


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return a_run(tmp_path_factory.mktemp("runs") / "one")


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as running:
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import streamlit as st

    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    st.cache_resource.clear()


def opened(name: str, url: str, monkeypatch: pytest.MonkeyPatch, **link: str) -> Any:
    app = open_in_app(name, monkeypatch, url, **link)
    assert not app.exception, [each.message for each in app.exception]
    return app


def many(home: str, run: RunFolder, count: int) -> None:
    """Rows of runs that do not lie there: what is shown of them cannot come from anywhere else."""
    row = row_of(run, "x")
    names = [f"run-{number:04}" for number in range(count)]
    started = {name: f"2025-01-{1 + number // 24:02}T{number % 24:02}:00:00+00:00" for number, name in enumerate(names)}
    index.add(Place.at(home), [row | {"name": name, "id": name, "started": started[name]} for name in names])


def test_pages_show_runs_of_an_object_store(run: RunFolder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(run, "s3://bucket/all/runs/one")
    publish(run, "s3://bucket/all/baselines/main")
    page = opened("verdicts", "s3://bucket/all", monkeypatch)
    assert page.selectbox[0].options[0].endswith("· one")
    assert "refactor 2x 3x" in everything(page)
    page = opened("history", "s3://bucket/all", monkeypatch)
    assert "baselines/main" in everything(page) and any("after 64 tokens" in alt for alt in alts(page))
    page = opened("trust", "s3://bucket/all/runs", monkeypatch, run="one")
    assert "Simulated CPU" in everything(page)
    page = opened("verdicts", "s3://bucket/all/runs/one", monkeypatch)
    assert "refactor 2x 3x" in everything(page)


def test_of_many_runs_the_newest_are_listed_and_the_others_are_found(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = "memory://many/runs"
    many(home, run, 230)
    monkeypatch.setattr(index, "look", None)  # no folder is looked into
    listed = RemoteList(home)
    assert [entry.name for entry in listed.entries()] == [f"run-{number:04}" for number in range(229, 29, -1)]
    older = listed.entry("run-0003")
    assert older is not None and older.url == f"{home}/run-0003"
    assert listed.entry("none") is None and listed.count() == 230
    page = opened("history", home, monkeypatch)
    assert "the newest 200 of 230" in everything(page) and "run-0029" not in everything(page)
    page = opened("history", home, monkeypatch, newest="230")
    assert "all 230" in everything(page) and "run-0029" in everything(page)


def test_a_list_sees_what_comes_and_goes(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "LOOK_SECONDS", 0.0)
    home = "memory://comes/runs"
    publish(run, f"{home}/a")
    listed = RemoteList(home)
    assert [entry.name for entry in listed.entries()] == ["a"]
    publish(run, f"{home}/b")
    assert [entry.name for entry in listed.entries()] == ["b", "a"]

    def away(*_: Any) -> None:
        raise PlaceError(home, "cannot be reached", "Check the network.")

    monkeypatch.setattr(index, "read", away)
    assert [entry.name for entry in listed.entries()] == ["b", "a"] and "cannot be reached" in listed.note
    with pytest.raises(PlaceError):
        RemoteList(home).entries()


def test_the_run_itself_is_shown_where_the_index_says_otherwise(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = "memory://stale/runs"
    publish(run, f"{home}/one")
    assert "another state" not in everything(opened("verdicts", home, monkeypatch))
    index.add(Place.at(home), [row_of(run, "one") | {"digest": "0" * 64}])
    import streamlit as st

    st.cache_resource.clear()
    shown = everything(opened("verdicts", home, monkeypatch))
    assert "The index has another state of this run" in shown and f"workbench index {home}" in shown
    assert "refactor 2x 3x" in shown


def test_a_run_that_is_gone_or_damaged_is_told(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    home = "memory://gone/runs"
    many(home, run, 2)
    page = opened("verdicts", home, monkeypatch)
    assert "This run cannot be read." in [each.value for each in page.error] and "there is no run" in everything(page)


def test_without_an_index_the_page_says_how_to_write_one(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    home = "memory://bare/runs"
    publish(run, f"{home}/one")
    index_of = Place.at(f"{home}/.index")
    index_of.remove(list(index_of.files()))
    for page in ("verdicts", "history"):
        shown = everything(opened(page, home, monkeypatch))
        assert f"workbench index {home}" in shown


def test_a_store_that_cannot_be_listed_ends_the_page_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("verdicts", "history"):
        page = opened(name, "foo://x/y", monkeypatch)
        assert [each.value for each in page.error] == ["The runs cannot be listed."]
        assert "Protocol not known: foo" in everything(page)
    page = opened("verdicts", "memory://empty/runs", monkeypatch)
    assert "There is no run to show yet" in everything(page) and "memory://empty/runs" in everything(page)


@pytest.mark.long
def test_the_benchmark_of_many_runs_opens_its_pages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    store_speed.main(["--runs", "12", "--against", "2", "--samples", "960", "--times", "1"])
    told = capsys.readouterr().out
    assert told.count("CPU") == 2 * 6 + 1 and "failed" not in told and "12 in the store" in told
