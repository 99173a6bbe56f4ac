"""Runs at URLs: published, fetched, listed, replaced and removed, on a real object store, on disk and in memory."""

from __future__ import annotations

import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from llama_workbench.harness.remote import index
from llama_workbench.harness.remote import publish as publishing
from llama_workbench.harness.remote.place import Place, PlaceError, Refused, is_url
from llama_workbench.harness.remote.publish import listed, publish, unpublish
from llama_workbench.harness.remote.rows import digest_of, row_of, standings_of, summary_of
from llama_workbench.harness.remote.transfer import UPLOADING, copy, fetch, files_of
from llama_workbench.harness.report.standings import read_standings, write_standings
from llama_workbench.harness.store.errors import RunError, RunWarning
from llama_workbench.harness.store.folder import RunFolder, describe
from tests.object_store import Store, running_store
from tests.runs import write_run

pytest.importorskip("s3fs", reason="the extra `remote` is not installed")


def a_run(folder: Path, **options: Any) -> RunFolder:
    """A run as a session leaves it: judged, with relative times, and sealed."""
    run = write_run(folder, **{"rounds": 8, "only": ["decode-15m-c64"], **options})
    run.seal(run.read_manifest())
    write_standings(run)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    made = a_run(tmp_path_factory.mktemp("project") / "results/runs/new")
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


@pytest.fixture(params=["s3", "file", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty folder for runs."""
    if request.param == "s3":
        request.getfixturevalue("store")
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)
    return {"s3": f"s3://bucket/{name}", "file": f"file://{tmp_path}/there", "memory": f"memory://{name}"}[
        request.param
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files_of(folder).items()}


def spoil(place: Place, name: str, change: Callable[[bytes], bytes]) -> None:
    [content] = place.read([name]).values()
    place.system.pipe_file(f"{place.root}/{name}", change(content))


def test_what_is_a_url() -> None:
    assert is_url("s3://bucket/runs") and is_url("memory://x")
    assert not is_url("results/runs") and not is_url(Path("/a/b")) and not is_url("C:\\runs")


def test_a_run_comes_back_as_it_was_published(run: RunFolder, home: str) -> None:
    publish(run, f"{home}/new")
    fetched = fetch(f"{home}/new")
    assert contents(fetched.path) == contents(run.path)
    assert not {name for name in Place.at(f"{home}/new").files() if name.startswith(("log", "."))}
    assert fetched.path.name == "new" and describe(fetched, whole=True).problem is None
    again = fetched.path.stat().st_ino
    assert fetch(f"{home}/new").path.stat().st_ino == again, "fetched once"


def test_a_taken_name_stays_taken_unless_forced(run: RunFolder, home: str, tmp_path: Path) -> None:
    publish(run, f"{home}/new")
    other = a_run(tmp_path / "other", seed=1)
    (other.path / "memory.json").unlink()
    other.seal(other.read_manifest())
    with pytest.raises(Refused, match=r"there is a run.*--force"):
        publish(other, f"{home}/new")
    assert contents(fetch(f"{home}/new").path) == contents(run.path)
    publish(other, f"{home}/new", force=True)
    assert contents(fetch(f"{home}/new").path) == contents(other.path), "with no file of the earlier run"
    [row] = listed(home)[0].newest(9)
    assert row["digest"] == digest_of(other.path)


def test_files_of_others_are_never_touched(run: RunFolder, home: str, tmp_path: Path) -> None:
    beach = tmp_path / "beach.jpg"
    beach.write_bytes(b"\xff\xd8")
    Place.at(f"{home}/photos").put({"beach.jpg": beach})
    for act in (lambda: publish(run, f"{home}/photos", force=True), lambda: unpublish(f"{home}/photos")):
        with pytest.raises(Refused, match="no run"):
            act()
    assert set(Place.at(f"{home}/photos").files()) == {"beach.jpg"}
    assert listed(home)[0].names == []


def test_the_list_is_read_from_the_index_and_says_what_the_runs_say(run: RunFolder, home: str) -> None:
    for name in ("a", "b"):
        publish(run, f"{home}/{name}")
    found, note = listed(home)
    assert (found.names, note) == (["b", "a"], "")
    [row] = found.rows(["a"])
    told, shown = describe(run), summary_of(row, run.path)
    assert shown == told
    kept, stored = standings_of(row, "a"), read_standings(run)
    assert (kept.rows, kept.subjects, kept.dropped, kept.workloads) == (
        stored.rows, stored.subjects, stored.dropped, stored.workloads,
    )  # fmt: skip
    assert {**kept.environment, "load_average": 0} == {**stored.environment, "load_average": 0}


def test_a_removed_run_is_gone_from_the_store_and_from_the_list(run: RunFolder, home: str) -> None:
    for name in ("a", "b"):
        publish(run, f"{home}/{name}")
    unpublish(f"{home}/a")
    assert listed(home)[0].names == ["b"] and not Place.at(f"{home}/a").files()
    with pytest.raises(PlaceError, match="no run"):
        unpublish(f"{home}/a")
    with pytest.raises(PlaceError, match="no run"):
        fetch(f"{home}/a")
    publish(run, f"{home}/a")
    assert listed(home)[0].names == ["b", "a"]


def test_without_an_index_the_runs_are_looked_at_and_the_command_is_told(
    run: RunFolder, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        publish(run, f"{home}/{name}")
    place = Place.at(f"{home}/.index")
    place.remove(list(place.files()))
    found, note = listed(home)
    assert found.names == ["c", "b", "a"] and f"workbench index {home}" in note
    assert standings_of(found.newest(1)[0], "c").rows == read_standings(run).rows
    monkeypatch.setattr(publishing, "MOST_LISTED", 2)
    found, note = listed(home)
    assert found.names == ["c", "b"] and "the last 2 of 3" in note
    unsealed = write_run(tmp_path / "old", rounds=8, only=["decode-15m-c64"])
    publish(unsealed, f"{home}/old")
    spoil(Place.at(f"{home}/b"), "verdicts.json", lambda content: content[:-20])
    assert index.rebuild(Place.at(home)) == (4, 1)
    found, note = listed(home)
    rows = {row["name"]: row for row in found.newest(9)}
    assert not note and set(rows) == {"a", "b", "c", "old"}
    assert "verdicts.json" in rows["b"]["problem"] and rows["b"]["status"] == "damaged"
    assert standings_of(rows["old"], "old").rows == read_standings(unsealed).rows, "from its samples"


def test_runs_of_machines_below_a_run_go_along(run: RunFolder, home: str, tmp_path: Path) -> None:
    fleet = Path(shutil.copytree(run.path, tmp_path / "fleet"))
    shutil.copytree(run.path, fleet / "machines" / "one")
    place = publish(RunFolder(fleet), f"{home}/fleet")
    assert contents(fetch(place.url).path) == contents(fleet)
    spoil(place, "machines/one/samples.parquet", lambda content: content[:-1] + b"?")
    with pytest.raises(PlaceError, match=r"machines/one/samples.parquet: its content is not what the run wrote"):
        fetch(place.url)


@pytest.mark.parametrize("name", ["samples.parquet", "verdicts.json", "run.json"])
def test_a_truncated_object_is_refused_and_not_kept(run: RunFolder, home: str, name: str) -> None:
    place = publish(run, f"{home}/new")
    spoil(place, name, lambda content: content[:-40])
    with pytest.raises(PlaceError) as error:
        fetch(place.url)
    assert f"{place.url}/{name}: its content is not what the run wrote" in str(error.value)
    assert f"workbench publish RUN {place.url} --force" in str(error.value)
    publish(run, place.url, force=True)
    assert contents(fetch(place.url).path) == contents(run.path)


def test_an_upload_that_breaks_off_is_no_run_and_can_be_made_again(
    run: RunFolder, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Place.put

    def breaks(place: Place, files: Any) -> None:
        whole(place, files if ".uploading" in files else dict(list(files.items())[:2]))
        if ".uploading" not in files:
            raise KeyboardInterrupt

    monkeypatch.setattr(Place, "put", breaks)
    with pytest.raises(KeyboardInterrupt):
        publish(run, f"{home}/new")
    monkeypatch.undo()
    with pytest.raises(PlaceError, match="only a part of a run"):
        fetch(f"{home}/new")
    assert listed(home)[0].names == []
    publish(run, f"{home}/new")
    assert contents(fetch(f"{home}/new").path) == contents(run.path)
    assert UPLOADING not in Place.at(f"{home}/new").files()


def test_what_arrived_short_is_noticed_before_the_run_is_there(
    run: RunFolder, home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = Place.put
    short = tmp_path / "short"
    short.write_bytes(b"PAR1")

    def cut(place: Place, files: Any) -> None:
        whole(place, {name: short if name == "samples.parquet" else path for name, path in files.items()})

    monkeypatch.setattr(Place, "put", cut)
    with pytest.raises(PlaceError, match=r"4 bytes arrived of samples.parquet.*workbench publish .*/results/runs/new"):
        publish(run, f"{home}/new")
    assert "run.json" not in Place.at(f"{home}/new").files()


def test_many_publish_at_once_and_few_files_remain(run: RunFolder, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if home.startswith("memory"):
        pytest.skip("fsspec's files in memory have one position for all who read them")
    monkeypatch.setattr(index, "MOST_FILES", 3)
    place = Place.at(home)
    row = row_of(run, "run")
    names = [f"run-{number:02}" for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: index.add(place, [row | {"name": name}]), names))
    found = index.read(place)
    assert found is not None and sorted(found.names) == names
    index.add(place, [row | {"name": "run-12"}])
    assert len(Place.at(f"{home}/.index").files()) <= 4 + 4  # those of four at once may overlap
    again = index.read(place)
    assert again is not None and len(again) == 13 and again.state != found.state


def test_a_file_that_is_no_index_is_named_with_the_command(run: RunFolder, home: str, cache: Path) -> None:
    place = publish(run, f"{home}/new").parent()
    for content in (b"", b"PAR1 and nothing else", b"<html>"):
        place.system.pipe_file(f"{place.root}/.index/000001-strange.parquet", content)
        with pytest.raises(PlaceError, match=r"strange.parquet: no file of an index.*workbench index"):
            listed(home)
    place.remove([".index/000001-strange.parquet"])
    [own] = Place.at(f"{home}/.index").files()
    spoil(place, f".index/{own}", lambda content: content[:40] + b"?" + content[41:])
    shutil.rmtree(cache / "index")  # what was fetched before is not fetched again
    with pytest.raises(PlaceError, match="no file of an index"):
        listed(home)
    assert index.rebuild(place) == (1, 0)
    assert listed(home)[0].names == ["new"]


def test_a_row_that_says_nonsense_is_refused(run: RunFolder) -> None:
    row = row_of(run, "new")
    assert standings_of(row, "u").rows
    for change in ({"environment": "{"}, {"environment": "[]"}, {"subjects": [{"workload": "x", "variant": "y"}]}):
        with pytest.raises(RunError, match="damaged"):
            standings_of(row | change, "u")
    with pytest.raises(RunError, match="workbench index"):
        standings_of(row | {"environment": ""}, "u")


def test_a_run_without_index_is_published_all_the_same(
    run: RunFolder, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> None:
        raise PlaceError(home, "not allowed", "Ask.")

    monkeypatch.setattr(index, "add", refuses)
    with pytest.warns(RunWarning, match="The run is published; to list it: workbench index"):
        publish(run, f"{home}/new")
    assert contents(fetch(f"{home}/new").path) == contents(run.path)


def test_what_is_not_whole_here_is_not_published(run: RunFolder, tmp_path: Path) -> None:
    cut = Path(shutil.copytree(run.path, tmp_path / "cut"))
    (cut / "samples.parquet").write_bytes((cut / "samples.parquet").read_bytes()[:-40])
    with pytest.raises(RunError, match="not what the run wrote"):
        publish(RunFolder(cut), "memory://whole/cut")
    assert not Place.at("memory://whole/cut").files()
    for url in ("memory://", "memory://cut", "memory://runs/.hidden"):
        with pytest.raises(PlaceError, match="no place for a run"):
            publish(run, url)


def test_a_killed_run_goes_along_with_its_journal(tmp_path: Path, home: str) -> None:
    killed = write_run(tmp_path / "killed", rounds=8, only=["decode-15m-c64"], killed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        publish(killed, f"{home}/killed")
        assert fetch(f"{home}/killed").finished_rounds() == killed.finished_rounds()
        [row] = listed(home)[0].newest(1)
    assert row["status"] == "running" and row["times"]


def test_names_that_lead_out_of_the_folder_are_refused(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(run, "memory://out/new")
    files = Place.files

    def with_strange(place: Place) -> Any:
        found = files(place)
        return found | {"profiles/../../../../evil.json": found["run.json"]}

    monkeypatch.setattr(Place, "files", with_strange)
    with pytest.raises(PlaceError, match="leads out of the run"):
        fetch("memory://out/new")


def test_a_copy_to_a_folder_of_this_machine_can_go_on(run: RunFolder, home: str, tmp_path: Path) -> None:
    publish(run, f"{home}/new")
    made = copy(fetch(f"{home}/new"), tmp_path / "a folder" / "new")
    assert contents(made.path) == contents(run.path)
    assert {path.name for path in made.path.iterdir()} == {name.partition("/")[0] for name in contents(run.path)}
    with pytest.raises(Refused):
        copy(run, made.path)


# -- what goes wrong on the way --------------------------------------------------------------------------------------


def test_a_server_that_dies_loses_nothing(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_store() as store:
        whole, seen = Place.put, []

        def dies(place: Place, files: Any) -> None:
            seen.append(files)
            if len(seen) == 2:  # after the mark
                store.stop()
            whole(place, files)

        monkeypatch.setattr(Place, "put", dies)
        with pytest.raises(PlaceError) as error:
            publish(run, "s3://bucket/runs/new")
        monkeypatch.undo()
        told = str(error.value)
        assert told.startswith("s3://bucket/runs/new: not published: cannot be reached")
        assert f"The run itself is whole in {run.path}; to publish it: workbench publish {run.path} s3://" in told
        store.start()
        store.make_bucket()
        publish(run, "s3://bucket/runs/new")
        assert contents(fetch("s3://bucket/runs/new").path) == contents(run.path)


def test_errors_name_the_url_and_the_fix(run: RunFolder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(url: str) -> str:
        with pytest.raises(PlaceError) as error:
            publish(run, url)
        with pytest.raises(PlaceError):
            fetch(url)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "a bucket must exist, the workbench makes none" in told("s3://no-such-bucket/runs/new")
    assert "no-such-bucket" not in fsspec.filesystem("s3", use_listings_cache=False).ls("")
    assert "Protocol not known: foo. Use a URL" in told("foo://x/y")
    monkeypatch.setitem(sys.modules, "paramiko", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.sftp", raising=False)
    assert "sftp://host/runs/new: needs the package paramiko. Install it: pip install paramiko" in told(
        "sftp://host/runs/new"
    )
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


def test_json_of_the_index_names_no_machine_path(run: RunFolder) -> None:
    text = json.dumps(row_of(run, "new"))
    assert str(run.path) not in text and str(Path.cwd()) not in text
