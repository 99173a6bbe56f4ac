"""Runs that a page starts."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import runs
from tests.dashboard_pages import open_in_app

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")

from llama_workbench.dashboard.sections import measuring
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder

SLOW = """
def calls(seed): return 2000 + seed % 100
def once(n): return sum(range(n))
def twice(n): return (once(n) + once(n)) // 2
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    return "pytest --benchmark --compare slow.py:twice slow.py:once --call slow.py:calls"


def wait(is_there: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 120
    while not is_there():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def test_a_run_is_started_beside_the_others_and_one_at_a_time(code: str, tmp_path: Path) -> None:
    home, here = tmp_path / "results", measuring.Measuring()
    (home / "runs").mkdir(parents=True)
    here.start(f"{code} --budget 20", home)
    first = here.process
    here.start(f"{code} --budget 30", home)
    assert first is not None and here.process is first and here.command.endswith("--budget 20")
    wait(lambda: not here.goes_on(), "the run does not end")
    assert first.returncode == 0, here.printed()
    [run] = [RunFolder(path) for path in (home / "runs").iterdir()]
    assert [str(verdict.verdict) for verdict in run.read(VERDICTS)] == ["faster"]


def test_what_was_measured_is_kept_when_it_is_stopped(code: str, tmp_path: Path) -> None:
    home, here = tmp_path / "results", measuring.Measuring()
    (home / "runs").mkdir(parents=True)
    here.start(f"{code} --budget 600 --to-compare", home)
    wait(lambda: any(RunFolder(path).finished_rounds() for path in (home / "runs").iterdir()), "no round")
    here.stop()
    wait(lambda: not here.goes_on(), "the run does not end")
    [run] = (home / "runs").iterdir()
    assert here.stopped and RunFolder(run).read_manifest()["status"] == "interrupted"


@pytest.mark.parametrize(
    "text",
    [
        "make bench",
        "workbench judge results/runs/one",
        "pytest --benchmark --continue results/runs/one  # old.py: its place today",
    ],
)
def test_what_is_no_whole_session_has_no_button(text: str) -> None:
    assert not measuring.is_whole(text)


def test_words_are_run_by_no_shell() -> None:
    words = measuring.started("pytest --benchmark --compare 'a b.py:f;true' g --run-dir x", Path("results"))
    assert words == [sys.executable, *shlex.split("-m pytest --benchmark --compare 'a b.py:f;true' g --run-dir x")]
    assert "--run-dir" not in measuring.started("pytest --benchmark --continue results/runs/one", Path("results"))


def test_buttons_are_there_only_where_measuring_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.write_run(tmp_path / "results" / "runs" / "one", rounds=15)
    app = open_in_app("runs", monkeypatch, tmp_path / "results", show="list")
    assert not app.button
    monkeypatch.setattr(sys, "argv", ["app.py", measuring.ALLOWED])
    assert [button.label for button in app.run().button] == ["Start"]
