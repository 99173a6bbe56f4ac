"""Verbs and measuring with a URL where a folder may stand."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("s3fs", reason="the extra `remote` is not installed")

import llama_workbench as wb
from llama_workbench.commands.app import main
from llama_workbench.harness.plan.options import Options
from llama_workbench.harness.session.run import kept_at, published
from llama_workbench.harness.store import remote
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder, describe
from llama_workbench.harness.store.remote import RemoteError, get
from tests.object_store import Store, running_store
from tests.test_remote import a_run, contents, files_at

MINE = """
def once(text): return sum(map(ord, text))
def twice(text): return sum(map(ord, text)) + 0 * sum(map(ord, text))
def words(seed): return (("measure " * 400)[seed % 7:],)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return a_run(tmp_path_factory.mktemp("project") / "results/runs/new", rounds=40)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as running:
        yield running


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def said(*arguments: str, code: int = 0) -> str:
    """Standard output of a command, with what it told on the other channel where it failed."""
    out, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaints), pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == code, out.getvalue() + complaints.getvalue()
    return " ".join((out.getvalue() if code == 0 else complaints.getvalue()).split())


@pytest.mark.usefixtures("own_cache", "store")
def test_verbs_take_a_url_for_a_run(run: RunFolder) -> None:
    there = "s3://bucket/verbs/new"
    before = contents(run.path)
    assert f"workbench report {there}" in said("publish", str(run.path), there)
    assert "there is a run" in said("publish", str(run.path), there, code=2)
    assert there in said("publish", str(run.path), there, "--force")
    assert "no regression" in said("compare", there, str(run.path))
    assert json.loads(said("judge", there, "--json")) == json.loads((run.path / "verdicts.json").read_text())
    assert "The answer" in said("report", there)
    assert len(wb.open(there).verdicts) == len(wb.open(run.path).verdicts)
    [listed] = json.loads(said("runs", "s3://bucket/verbs/", "--json"))
    assert (listed["path"], listed["status"], listed["problem"]) == (there, "complete", None)
    assert "new" in said("runs", "s3://bucket/verbs")
    assert said("history", "s3://bucket/verbs") == "No change point in 1 runs."
    refused = said("resume", there, code=2)
    assert f"{there}: a run goes on in a folder of this machine" in refused
    assert f"workbench publish {there} results/runs/NAME" in refused
    assert said("publish", there, "results/runs/back") == "results/runs/back"
    assert contents(Path("results/runs/back")) == before == contents(get(there).path)
    assert "there is no run" in said("judge", "s3://bucket/verbs/none", code=2)


@pytest.mark.usefixtures("own_cache", "store")
def test_baselines_are_kept_at_a_url(run: RunFolder, tmp_path: Path) -> None:
    home = "s3://bucket/baselines"
    assert f"workbench compare {home}/main NEW" in said("baseline", "save", str(run.path), f"{home}/main")
    assert "--force" in said("baseline", "save", str(run.path), f"{home}/main", code=2)
    parts = a_run(tmp_path / "parts", only=["mask-create-apply-t128"])
    assert "yardstick" in said("baseline", "save", str(parts.path), f"{home}/parts", code=2)
    assert [each["path"] for each in json.loads(said("runs", home, "--json"))] == [f"{home}/main"]


# -- measuring ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def mine(here: Path, store: Store) -> Path:
    (here / "mine.py").write_text(MINE)
    return here


def measured(run_pytest: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch, url: str, *more: str) -> Any:
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)
    return run_pytest("--benchmark", "--compare", "mine.py:once", "mine.py:twice", "--call", "mine.py:words",
                      "--budget=600", f"--run-dir={url}", *more)  # fmt: skip


@pytest.mark.usefixtures("warm")
def test_a_run_is_measured_here_and_kept_there(
    mine: Path, run_pytest: Any, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    url = "s3://bucket/measured/night"
    result = measured(run_pytest, mine, monkeypatch, url)
    assert result.returncode == 0, result.stdout
    assert f"run: {url} (" in result.stdout
    fetched = get(url)
    assert describe(fetched, whole=True).problem is None and fetched.read_manifest()["id"] == "night"
    [here] = own_cache.glob("measured/*/night")
    assert contents(here) == contents(fetched.path) and not (mine / "results").exists()
    again = measured(run_pytest, mine, monkeypatch, url)
    assert again.returncode == 3 and "there is a run" in again.stdout, "told before anything is measured"
    assert contents(get(url).path) == contents(fetched.path)


def test_a_run_that_cannot_be_published_is_whole_here(
    mine: Path, run_pytest: Any, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    def fails(run: RunFolder, url: str) -> None:
        raise RemoteError(url, "cannot be reached", "Check the network.")

    url = "s3://bucket/measured/lost"
    monkeypatch.setattr(remote, "put", fails)
    result = measured(run_pytest, mine, monkeypatch, url, "--benchmark-disable")
    assert result.returncode == 3 and f"{url}: cannot be reached" in result.stdout
    [here] = own_cache.glob("measured/*/lost")
    assert describe(RunFolder(here), whole=True).problem is None and f"run: {here.relative_to(mine)} (" in result.stdout
    monkeypatch.undo()
    monkeypatch.setenv("WORKBENCH_CACHE", str(own_cache))
    said("publish", str(here), url)
    assert contents(get(url).path) == contents(here)


@pytest.mark.usefixtures("own_cache")
def test_what_fails_before_the_end_leaves_no_mark() -> None:
    def fails() -> Any:
        raise RunError(Path("x"), "no space", "Make some.")

    class Told:
        def note(self, text: str) -> None:
            assert "measured" in text

    options = kept_at(Options(), "memory://failed/one/")
    with pytest.raises(RunError, match="no space"):
        published(fails, options, Told())  # type: ignore[arg-type]
    assert not files_at("memory://failed/one")


@pytest.mark.usefixtures("own_cache")
def test_where_a_run_is_kept(own_cache: Path) -> None:
    far = kept_at(Options(), "s3://bucket/runs/a/b/")
    assert far.publish_to == "s3://bucket/runs/a/b" and far.run_dir is not None
    assert far.run_dir.name == "b" and far.run_dir.is_relative_to(own_cache)
