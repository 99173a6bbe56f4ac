"""A cache that takes nothing: full, read-only, no folder at all. Who can does without it; the rest says so first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llama_workbench import ROOT
from llama_workbench.cache import CacheError, cache_directory, unwritable
from llama_workbench.datasets import geometries
from llama_workbench.datasets.checkpoints import load, synthesize
from llama_workbench.datasets.tokenizer import train
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.session.run import Run, plan_run
from tests.runs import code_by_intervals

if TYPE_CHECKING:
    from conftest import Said

FIX = "make room, or set WORKBENCH_CACHE to a folder on another disk"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    return Path(shutil.copytree(synthesize(geometries.get("tiny"), cache=folder), folder / "My Llama"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("no mount command here")
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mounted)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


# --- is it one? ---


def test_a_folder_that_takes_files_is_no_problem(tmp_path: Path) -> None:
    assert unwritable(tmp_path / "new" / "folder") == ""
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_what_takes_no_files_is_told_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert unwritable(tmp_path / "file") in ("File exists", "Not a directory")
    assert unwritable(tmp_path / "file" / "below") == "Not a directory"
    assert unwritable(Path("/proc/nowhere")) != ""


def test_a_full_disk_is_told(small_disk: Path) -> None:
    (small_disk / "large").write_bytes(bytes((2 << 20) - 8192))
    assert unwritable(small_disk) == "only 8,192 bytes are free"


def test_a_read_only_disk_is_told(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert unwritable(small_disk) == "Read-only file system"


def test_a_home_that_nobody_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", "~nobody-of-this-name/cache")
    with pytest.raises(CacheError, match=r"WORKBENCH_CACHE = ~nobody-of-this-name/cache: .*; set it to a folder"):
        cache_directory()


# --- doing without ---


def test_a_checkpoint_and_a_tokenizer_are_had_without(checkpoint: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert load(checkpoint, cache=small_disk).parameters == 166_208
    assert json.loads(train(300, cache=small_disk))["model"]["type"] == "BPE"


def test_reference_logits_are_had_without(tmp_path: Path) -> None:
    code = """
        import resource, sys
        from pathlib import Path
        import torch
        from llama_workbench.harness.worker.correctness import Case
        from llama_workbench.harness.worker.model_gating import remembered
        case = Case("a", ((torch.zeros(1, 1, dtype=torch.long), 0),))
        logits = [[torch.ones(1, 9999)]]
        for cache in map(Path, sys.argv[1:]):
            print(remembered(cache, "what", [case], lambda: logits) is logits)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # a disk that fills up
    """
    (tmp_path / "file").touch()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "file"), str(tmp_path / "full")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.stdout == "True\nTrue\n", done.stderr
    assert [path for path in (tmp_path / "full").rglob("*") if path.is_file()] == []


@pytest.mark.long
@pytest.mark.usefixtures("warm")
def test_a_run_measures_without_a_cache_and_says_so_once(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_pytest: Callable[..., Said]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    result = run_pytest(
        "--benchmark", "--compare", "fast", "yardstick", "--workloads=decode-tiny-c16", f"--checkpoint={checkpoint}",
        "--budget=2", f"--run-dir={tmp_path / 'run'}",
    )  # fmt: skip
    said = " ".join((result.stdout + result.stderr).split())
    assert result.returncode == code_by_intervals(tmp_path / "run"), said
    assert said.count("cannot be written (") == 1, said
    assert f"cache: {tmp_path / 'file'} cannot be written (" in said
    assert FIX in said
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["excluded"] == [item for each in manifest["experiments"] for item in each["excluded"]] == []
    [experiment] = manifest["experiments"]
    assert experiment["rounds"] > 0
    # in place of the synthetic one
    assert list(manifest["checkpoints"]) == [experiment["workload"]["geometry"]] == ["my-llama"]
    # and what was taken from the checkpoint: at the start, in the run, under the verdicts
    (facts,) = [each["facts"] for each in manifest["checkpoints"].values()]
    assert facts.startswith("2 layers, width 64 (feed-forward 176), 4 heads of 16, 4 KV heads, context 128")
    assert said.count(f"heckpoint my-llama: {facts}") == 2


# --- what needs it ---


def measured(run: Path, request: Request) -> None:
    """A run that is to fail before it starts any process."""
    options = Options(run_dir=run, budget_seconds=3.0)
    Run(plan_run(request, options), options, Silent()).measure()


class Silent:
    def phase(self, text: str) -> None:
        assert text == "checkpoints"

    def note(self, text: str) -> None:
        pass

    def step(self, text: str, done: float, seconds_left: float) -> None:
        pass


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            Request(compare=("fast", "yardstick"), workloads=("decode-tiny-c16",)),
            "file/checkpoints/tiny-float32-seed0-.*: cannot be written, .* bytes are needed",
        ),
        (Request(claims=("own-checks",)), 'file: cannot be written .*, and claims with metric = "check" need it'),
    ],
    ids=["weights", "check"],
)
@pytest.mark.whole
def test_what_needs_it_fails_before_anything_is_measured(
    request_: Request, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(CacheError, match=rf"{said}.*; {FIX}"):
        measured(tmp_path / "run", request_)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (manifest["status"], manifest["experiments"]) == ("failed", [])
