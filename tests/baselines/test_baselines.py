"""Runs that are kept: what may become a baseline, and that nothing of anybody's is lost on the way."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.commands.app import main
from llama_workbench.harness.baselines.saved import save
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder, describe
from tests.runs import ENVIRONMENT, write_run

OTHER = {"cpu_flags": [*ENVIRONMENT["cpu_flags"], "avx_vnni"]}
"""Another processor of the same name."""


def a_run(folder: Path, seed: int = 0, **given: Any) -> RunFolder:
    made = write_run(folder, seed=seed, **{"rounds": 30, "only": ["prefill-15m-t128"], **given})
    made.seal(made.read_manifest())
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    made = write_run(tmp_path_factory.mktemp("project") / "results/runs/new", only=["decode-15m-c64"])
    (made.path / "log").mkdir()
    (made.path / "log" / "worker-1.log").write_text("a path of this machine")
    (made.path / "elsewhere.json").symlink_to(made.path / "run.json")
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_baseline_is_the_run_without_its_logs_and_links(run: RunFolder, tmp_path: Path) -> None:
    saved = save(run, "main", under=tmp_path / "baselines")
    kept = {name for name in contents(run.path) if not name.startswith(("log", "elsewhere"))}
    assert contents(saved.path) == {name: data for name, data in contents(run.path).items() if name in kept}
    assert [path.name for path in (tmp_path / "baselines").iterdir()] == ["main"]
    assert describe(saved).problem is None


def test_a_name_that_is_taken_stays_taken_unless_forced(run: RunFolder, tmp_path: Path) -> None:
    first = save(run, "main", under=tmp_path)
    (first.path / "note.json").write_text("[]")
    with pytest.raises(RunError, match="--force"):
        save(run, "main", under=tmp_path)
    assert (first.path / "note.json").exists()
    save(run, "main", under=tmp_path, force=True)
    assert not (first.path / "note.json").exists() and os.listdir(tmp_path) == ["main"]


def test_force_replaces_no_folder_that_is_no_run_and_not_the_run_itself(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "beach.jpg").write_bytes(b"\xff\xd8")
    with pytest.raises(RunError, match="holds no run"):
        save(run, "photos", under=tmp_path, force=True)
    assert (tmp_path / "photos" / "beach.jpg").exists()
    with pytest.raises(RunError, match="the run itself"):
        save(run, run.path.name, under=run.path.parent, force=True)


def test_an_earlier_baseline_survives_a_move_that_fails(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(save(run, "main", under=tmp_path).path)
    real = os.rename

    def full(source: str | Path, target: str | Path) -> None:
        if Path(source).name == "new":
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(RunError, match="No space left"):
        save(run, "main", under=tmp_path, force=True)
    assert contents(tmp_path / "main") == before


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "a b", "-x", "x" * 101, "<script>"])
def test_a_name_is_a_plain_folder_name(run: RunFolder, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        save(run, name, under=tmp_path)


def test_what_cannot_be_compared_with_is_not_saved(run: RunFolder, tmp_path: Path) -> None:
    def spoiled(name: str) -> RunFolder:
        return RunFolder(shutil.copytree(run.path, tmp_path / name, symlinks=True))

    running = spoiled("running")
    running.write_json("run.json", running.read_manifest() | {"status": "running"})
    unjudged = spoiled("unjudged")
    (unjudged.path / "verdicts.json").unlink()
    cut = spoiled("cut")
    (cut.path / "samples.parquet").write_bytes((cut.path / "samples.parquet").read_bytes()[:-40])
    parts = write_run(tmp_path / "parts", rounds=8, only=["mask-create-apply-t128"])
    for folder, said in ((running, "must be complete"), (unjudged, "missing"), (cut, "Parquet"), (parts, "yardstick")):
        with pytest.raises(RunError, match=said):
            save(folder, "main", under=tmp_path / "baselines")
    assert not (tmp_path / "baselines").exists()


def test_a_run_of_functions_needs_no_reference_benchmark(tmp_path: Path) -> None:
    run = write_run(tmp_path / "functions", rounds=8, only=["mask-create-apply-t128"])
    manifest = run.read_manifest()
    for experiment in manifest["experiments"]:
        experiment["workload"] |= {"kind": "call", "geometry": "", "component": None, "payload": "bench.py:texts"}
    run.seal(manifest)
    save(run, "functions", under=tmp_path / "baselines")
    assert (tmp_path / "baselines" / "functions" / "run.json").exists()


def test_the_commands_save_and_compare(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*arguments: str, code: int = 0) -> str:
        out, complaints = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaints), pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == code, complaints.getvalue()
        return out.getvalue() or complaints.getvalue()

    assert "workbench compare main NEW" in " ".join(said("baseline", "save", str(run.path), "main").split())
    [listed] = json.loads(said("runs", "results/baselines", "--json"))
    assert (listed["path"], listed["status"], listed["problem"]) == ("results/baselines/main", "complete", None)
    assert "main" in said("runs", "results/baselines")
    assert "no regression" in said("compare", "main", str(run.path))
    assert "--force" in said("baseline", "save", str(run.path), "main", code=2)
    assert "cannot be the name" in said("baseline", "save", str(run.path), "../main", code=2)
