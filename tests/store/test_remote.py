"""Runs at URLs: put there, fetched, listed and replaced, in a real object store and on disk; and commands with them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.core import url_to_fs

import llama_workbench as wb
from llama_workbench.commands.app import main
from llama_workbench.harness.baselines.saved import copied
from llama_workbench.harness.report.standings import read_standings, write_standings
from llama_workbench.harness.store import remote
from llama_workbench.harness.store.files import RunError, RunWarning
from llama_workbench.harness.store.folder import RunFolder, describe
from llama_workbench.harness.store.remote import UPLOADING, RemoteError, files_of, get, is_url, listed, put
from llama_workbench.results import run_to_go_on
from tests.object_store import Store, running_store
from tests.runs import write_run
from tests.unchanged import SESSIONS

pytestmark = pytest.mark.covers(*SESSIONS)

pytest.importorskip("s3fs", reason="the extra `remote` is not installed")


def a_run(folder: Path, **options: Any) -> RunFolder:
    """A run as a session leaves it: judged, with relative times, and sealed."""
    run = write_run(folder, **{"rounds": 8, "only": ["decode-15m-c64"], **options})
    run.seal(run.read_manifest())
    write_standings(run)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    made = a_run(tmp_path_factory.mktemp("project") / "results/runs/new", rounds=40)
    (made.path / "log").mkdir()
    (made.path / "log" / "worker-1.log").write_text("a path of this machine")
    (made.path / ".hidden").write_text("ours")
    return made


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as running:
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=["s3", "file"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty folder for runs."""
    if request.param == "s3":
        request.getfixturevalue("store")
        return f"s3://bucket/{re.sub(r'[^a-z0-9]+', '-', request.node.name)}"
    return f"file://{tmp_path}/there"


def contents(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files_of(folder).items()}


def files_at(url: str) -> set[str]:
    return {*remote._files(url)}


def spoil(url: str, change: Callable[[bytes], bytes]) -> None:
    system, path = url_to_fs(url, use_listings_cache=False)
    system.pipe_file(path, change(system.cat_file(path)))


def test_what_is_a_url() -> None:
    assert is_url("s3://bucket/runs") and is_url("memory://x")
    assert not is_url("results/runs") and not is_url(Path("/a/b")) and not is_url("C:\\runs")


def test_a_run_comes_back_as_it_was_published(run: RunFolder, home: str) -> None:
    put(run, f"{home}/new")
    fetched = get(f"{home}/new")
    assert contents(fetched.path) == contents(run.path)
    assert not {name for name in files_at(f"{home}/new") if name.startswith(("log", "."))}
    assert fetched.path.name == "new" and describe(fetched, whole=True).problem is None
    again = fetched.path.stat().st_ino
    assert get(f"{home}/new").path.stat().st_ino == again, "fetched once"


def test_a_taken_name_stays_taken_unless_forced(run: RunFolder, home: str, tmp_path: Path) -> None:
    put(run, f"{home}/new")
    other = a_run(tmp_path / "other", seed=1)
    (other.path / "memory.json").unlink()
    other.seal(other.read_manifest())
    with pytest.raises(RemoteError, match=r"there is a run.*--force"):
        put(other, f"{home}/new")
    assert contents(get(f"{home}/new").path) == contents(run.path)
    put(other, f"{home}/new", force=True)
    assert contents(get(f"{home}/new").path) == contents(other.path), "with no file of the earlier run"
    [light] = listed(home).values()
    assert light.manifest().id == other.manifest().id


def test_files_of_others_are_never_touched(run: RunFolder, home: str, tmp_path: Path) -> None:
    beach = tmp_path / "beach.jpg"
    beach.write_bytes(b"\xff\xd8")
    system, root = url_to_fs(f"{home}/photos")
    if not system.async_impl:
        system.makedirs(root)
    system.put_file(str(beach), f"{root}/beach.jpg")
    with pytest.raises(RemoteError, match="no run"):
        put(run, f"{home}/photos", force=True)
    assert files_at(f"{home}/photos") == {"beach.jpg"}
    assert listed(home) == {}


def test_a_list_says_what_the_runs_say_and_fetches_no_samples(run: RunFolder, home: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(run, f"{home}/{name}")
    found = listed(f"{home}/")
    assert [*found] == [f"{home}/b", f"{home}/a"]
    light = found[f"{home}/a"]
    assert {*contents(light.path)} == {"run.json", "SHA256SUMS", "verdicts.json", "standings.json"}
    assert describe(light, light=True).verdicts == describe(run).verdicts and light.path.name == "a"
    assert read_standings(light) == read_standings(run)
    assert [*listed(f"{home}/a")] == [f"{home}/a"], "the URL of a run"
    again = a_run(tmp_path / "again", seed=3)
    put(again, f"{home}/a", force=True)
    assert read_standings(listed(home)[f"{home}/a"]) == read_standings(again)
    spoil(f"{home}/b/verdicts.json", lambda content: content[:-20])
    damaged = describe(listed(home)[f"{home}/b"], light=True)
    assert damaged.status == "damaged" and "verdicts.json" in str(damaged.problem)


def test_of_a_run_without_relative_times_the_samples_are_fetched(home: str, tmp_path: Path) -> None:
    unsealed = write_run(tmp_path / "old", rounds=8, only=["decode-15m-c64"])
    put(unsealed, f"{home}/old")
    [found] = listed(home).values()
    assert read_standings(found).rows == read_standings(unsealed).rows


def test_runs_of_machines_below_a_run_go_along(run: RunFolder, home: str, tmp_path: Path) -> None:
    fleet = Path(shutil.copytree(run.path, tmp_path / "fleet"))
    shutil.copytree(run.path, fleet / "machines" / "one")
    url = f"{home}/fleet"
    put(RunFolder(fleet), url)
    assert contents(get(url).path) == contents(fleet)
    spoil(f"{url}/machines/one/samples.parquet", lambda content: content[:-1] + b"?")
    with pytest.raises(RemoteError, match=r"machines/one/samples.parquet: its content is not what the run wrote"):
        get(url)


@pytest.mark.parametrize("name", ["samples.parquet", "verdicts.json", "run.json"])
def test_a_truncated_object_is_refused_and_not_kept(run: RunFolder, home: str, name: str) -> None:
    url = f"{home}/new"
    put(run, url)
    spoil(f"{url}/{name}", lambda content: content[:-40])
    for _ in range(2):
        with pytest.raises(RemoteError) as error:
            get(url)
        assert f"{url}/{name}: its content is not what the run wrote" in str(error.value)
        assert f"workbench publish RUN {url} --force" in str(error.value)
    put(run, url, force=True)
    assert contents(get(url).path) == contents(run.path)


def test_an_upload_that_breaks_off_is_no_run_and_can_be_made_again(
    run: RunFolder, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = remote._write

    def breaks(system: Any, root: str, files: Any) -> None:
        whole(system, root, dict(list(files.items())[:2]))
        raise KeyboardInterrupt

    monkeypatch.setattr(remote, "_write", breaks)
    with pytest.raises(KeyboardInterrupt):
        put(run, f"{home}/new")
    monkeypatch.undo()
    with pytest.raises(RemoteError, match="only a part of a run"):
        get(f"{home}/new")
    assert listed(home) == {}
    put(run, f"{home}/new")
    assert contents(get(f"{home}/new").path) == contents(run.path)
    assert UPLOADING not in files_at(f"{home}/new")


def test_what_is_not_whole_here_is_not_published(run: RunFolder, tmp_path: Path) -> None:
    cut = Path(shutil.copytree(run.path, tmp_path / "cut"))
    (cut / "samples.parquet").write_bytes((cut / "samples.parquet").read_bytes()[:-40])
    with pytest.raises(RunError, match="not what the run wrote"):
        put(RunFolder(cut), "memory://whole/cut")
    with pytest.raises(RunError, match="not what the run wrote"):
        copied(RunFolder(cut), tmp_path / "copy")
    assert not files_at("memory://whole/cut") and not (tmp_path / "copy").exists()
    for url in ("memory://", "memory://cut", "memory://runs/.hidden"):
        with pytest.raises(RemoteError, match="no place for a run"):
            put(run, url)


def test_a_killed_run_goes_along_with_its_journal(tmp_path: Path, home: str) -> None:
    killed = write_run(tmp_path / "killed", rounds=8, only=["decode-15m-c64"], killed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        put(killed, f"{home}/killed")
        assert get(f"{home}/killed").finished_rounds() == killed.finished_rounds()
        [found] = listed(home).values()
        assert describe(found, light=True).status == "running" and read_standings(found).rows


def test_names_that_lead_out_of_the_folder_are_refused(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    put(run, "memory://out/new")
    files = remote._files

    def with_strange(url: str) -> Any:
        found = files(url)
        return found | {"profiles/../../../../evil.json": found["run.json"]}

    monkeypatch.setattr(remote, "_files", with_strange)
    with pytest.raises(RemoteError, match="leads out of the run"):
        get("memory://out/new")


def test_a_copy_to_a_folder_of_this_machine_can_go_on(run: RunFolder, home: str, tmp_path: Path) -> None:
    put(run, f"{home}/new")
    made = copied(get(f"{home}/new"), tmp_path / "a folder" / "new")
    assert contents(made.path) == contents(run.path)
    assert {path.name for path in made.path.iterdir()} == {name.partition("/")[0] for name in contents(run.path)}
    with pytest.raises(RunError, match="--force"):
        copied(run, made.path)


# -- what goes wrong on the way --------------------------------------------------------------------------------------


def test_a_server_that_dies_loses_nothing(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(run.path)
    with running_store() as store:
        whole = remote._write

        def dies(*arguments: Any) -> None:
            store.stop()  # after the mark
            whole(*arguments)

        monkeypatch.setattr(remote, "_write", dies)
        with pytest.raises(RemoteError, match=r"^s3://bucket/runs/new: the store cannot be used .* the network"):
            put(run, "s3://bucket/runs/new")
        monkeypatch.undo()
        store.start()
        store.make_bucket()
        put(run, "s3://bucket/runs/new")
        assert contents(get("s3://bucket/runs/new").path) == before


def test_errors_name_the_url_and_the_fix(run: RunFolder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(url: str) -> str:
        with pytest.raises(RemoteError) as error:
            put(run, url)
        for read in (get, listed):
            with pytest.raises(RemoteError):
                read(url)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "A bucket must exist: the workbench makes none" in told("s3://no-such-bucket/runs/new")
    assert "no-such-bucket" not in fsspec.filesystem("s3", use_listings_cache=False).ls("")
    assert "Protocol not known: foo). Check the URL" in told("foo://x/y")
    monkeypatch.setitem(sys.modules, "paramiko", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.sftp", raising=False)
    assert re.search(r"^sftp://host/runs/new: .*paramiko.* Install the package", told("sftp://host/runs/new"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    fsspec.filesystem("s3").clear_instance_cache()
    try:
        assert "AWS_PROFILE" in told("s3://bucket/runs/refused")
    finally:
        fsspec.filesystem("s3").clear_instance_cache()
    assert not list(run.path.glob(".uploading")), "nothing is left in the run"


# -- commands and sessions with a URL where a folder may stand ---------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*arguments: str, code: int = 0) -> str:
    """Standard output of a command, with what it told on the other channel where it failed."""
    out, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaints), pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == code, out.getvalue() + complaints.getvalue()
    return " ".join((out.getvalue() if code == 0 else complaints.getvalue()).split())


@pytest.mark.usefixtures("store", "here")
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
    refused = f"{there}: a run goes on in a folder of this machine.*workbench publish {there} results/runs/NAME"
    with pytest.raises(RemoteError, match=refused):
        run_to_go_on(there)
    assert said("publish", there, "results/runs/back") == "results/runs/back"
    assert contents(Path("results/runs/back")) == before == contents(get(there).path)
    assert "there is no run" in said("judge", "s3://bucket/verbs/none", code=2)


@pytest.mark.usefixtures("store", "here")
def test_baselines_are_kept_at_a_url(run: RunFolder, tmp_path: Path) -> None:
    home = "s3://bucket/baselines"
    assert f"workbench compare {home}/main NEW" in said("baseline", "save", str(run.path), f"{home}/main")
    assert "--force" in said("baseline", "save", str(run.path), f"{home}/main", code=2)
    parts = a_run(tmp_path / "parts", only=["mask-create-apply-t128"])
    assert "yardstick" in said("baseline", "save", str(parts.path), f"{home}/parts", code=2)
    assert [each["path"] for each in json.loads(said("runs", home, "--json"))] == [f"{home}/main"]


@pytest.mark.usefixtures("here")
def test_a_run_is_measured_into_a_folder(run_pytest: Callable[..., Any]) -> None:
    refused = run_pytest("--benchmark", "--run-dir=s3://bucket/runs/new")
    assert refused.returncode == 4
    assert "--run-dir s3://bucket/runs/new: expected a folder of this machine" in refused.stderr
    assert "workbench publish RUN s3://bucket/runs/new" in refused.stderr
