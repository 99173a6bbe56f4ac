"""The dashboard on runs at a URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("s3fs", reason="the extra `remote` is not installed")

from fsspec.core import url_to_fs

from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.remote import put
from tests.dashboard_pages import alts, everything, open_in_app
from tests.object_store import Store, running_store
from tests.store.test_remote import a_run

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")

from llama_workbench.dashboard import state
from llama_workbench.dashboard.views import entries


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


def test_pages_show_runs_of_an_object_store(run: RunFolder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(run, "s3://bucket/all/runs/one")
    put(run, "s3://bucket/all/baselines/main")
    page = opened("answer", "s3://bucket/all", monkeypatch)
    assert page.selectbox[0].options[0].endswith("· one")
    assert "refactor 2x 3x" in everything(page)
    page = opened("history", "s3://bucket/all", monkeypatch)
    assert "baselines/main" in everything(page) and any("after 64 tokens" in alt for alt in alts(page))
    page = opened("trust", "s3://bucket/all/runs", monkeypatch, run="one")
    assert "Simulated CPU" in everything(page)
    page = opened("answer", "s3://bucket/all/runs/one", monkeypatch)
    assert "refactor 2x 3x" in everything(page)


def test_a_list_sees_what_comes_and_goes_and_shows_a_run_as_it_lies_there(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = "memory://comes/runs"
    put(run, f"{home}/a")
    runs = entries.RunList(home)
    [before] = runs.entries()
    assert (before.name, before.url) == ("a", f"{home}/a")
    put(run, f"{home}/b")
    assert [entry.name for entry in runs.entries()] == ["b", "a"]
    put(a_run(tmp_path / "other", seed=1), f"{home}/a", force=True)
    [now] = [entry for entry in runs.entries() if entry.name == "a"]
    assert now.summary.path != before.summary.path, "what is cached of the run before is not shown for this one"


def test_a_run_that_is_gone_or_damaged_is_told(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    home = "memory://gone/runs"
    put(run, f"{home}/one")
    opened("answer", home, monkeypatch)
    system, path = url_to_fs(f"{home}/one")
    system.pipe_file(f"{path}/samples.parquet", b"PAR1")
    state._fetched.clear()
    page = opened("answer", home, monkeypatch)
    assert "This run cannot be read." in [each.value for each in page.error]
    assert "samples.parquet: its content is not what the run wrote" in everything(page)
    system.rm(path, recursive=True)
    state._fetched.clear()
    assert "there is no run" in everything(opened("answer", home, monkeypatch))


def test_a_store_that_cannot_be_listed_ends_the_page_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("answer", "history"):
        page = opened(name, "foo://x/y", monkeypatch)
        assert [each.value for each in page.error] == ["The runs cannot be listed."]
        assert "Protocol not known: foo" in everything(page)
    page = opened("answer", "memory://empty/runs", monkeypatch)
    assert "There is no run to show yet" in everything(page) and "memory://empty/runs" in everything(page)
