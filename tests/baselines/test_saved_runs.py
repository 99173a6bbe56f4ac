"""Saved runs where torch is not installed: they go on and can be compared. What neither side has is no difference."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.report.sessions import NOT_COMPARABLE
from tests.house.test_light_core import run_in, without_extras

pytestmark = pytest.mark.covers(
    "dashboard", "harness/baselines", "harness/report", "harness/session", "harness/store", "llama_workbench"
)

WAYS = """\
def doubled(numbers):
    return [2 * number for number in numbers]


def added(numbers):
    for _ in range(2):
        sums = [number + number for number in numbers]
    return sums


def numbers(seed):
    return (list(range(seed % 9, 3000)),)
"""
COMPARED = ("--no-causes", "--compare", "ways.py:doubled", "ways.py:added", "--call", "ways.py:numbers")


class Home:
    """A folder with two runs of one comparison, made without any extra: `first`, which went on twice, and `second`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "site").mkdir()
        self.light = without_extras(folder / "site")
        (folder / "ways.py").write_text(WAYS)
        self.measured = self.measure("--budget", "0.5", "--run-dir", "results/runs/first", *COMPARED)

    def measure(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_in(self.folder, self.light, "pytest", "--benchmark", "-p", "no:cacheprovider", *words)

    def workbench(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_in(self.folder, self.light, "llama_workbench.commands.app", *words)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def gone_on(home: Home) -> Home:
    """Where the first run has gone on, by the command that it prints where more time would settle it (a slow machine
    may not know), and once more."""
    again = ["--continue", "results/runs/first", "--budget", "20", *COMPARED[1:]]
    for line in home.measured.stdout.splitlines():
        if line.startswith("to continue: "):
            words = shlex.split(line.removeprefix("to continue: "))
            words[words.index("--budget") + 1] = "20"
            assert words == ["pytest", "--benchmark", *again]
    for done in (home.measure(*again), home.measure("--continue", "results/runs/first", "--budget", "1")):
        assert done.returncode == 0, done.stdout + done.stderr
    done = home.measure("--budget", "20", "--run-dir", "results/runs/second", *COMPARED)
    assert done.returncode == 0, done.stdout + done.stderr
    return home


def test_a_run_without_torch_goes_on_as_one_series(gone_on: Home) -> None:
    run = json.loads((gone_on.folder / "results/runs/first/run.json").read_text())
    assert run["environment"]["torch"] is None and run["status"] == "complete"
    assert [sitting["budget_seconds"] for sitting in run["sittings"]] == [0.5, 20, 1]


@pytest.mark.parametrize("base", ["results/runs/first", "results/runs/second", "main"])
def test_runs_without_torch_are_of_one_machine(base: str, gone_on: Home) -> None:
    if base == "main":
        saved = gone_on.workbench("baseline", "save", "results/runs/first", "main")
        assert saved.returncode == 0, saved.stdout + saved.stderr
    done = gone_on.workbench("compare", base, "results/runs/second", "--threshold", "500", "--json")
    found = json.loads(done.stdout)
    assert found["same_machine"] and not found["machine_differences"]
    assert (done.returncode, found["verdict"]) == (0, "no regression"), done.stdout


def test_no_command_says_that_their_machines_differ(gone_on: Home) -> None:
    agreed = gone_on.workbench("compare", "--repeat", "results/runs/first", "results/runs/second")
    assert agreed.returncode == 0 and NOT_COMPARABLE not in agreed.stdout, agreed.stdout + agreed.stderr
    sessions = gone_on.workbench("compare", *[f"results/runs/{name}" for name in ("first", "second", "first")])
    assert sessions.returncode == 0 and NOT_COMPARABLE not in sessions.stdout, sessions.stderr
    for words in (["show", "results/runs/first"], ["judge", "results/runs/first"], ["runs"]):
        done = gone_on.workbench(*words)
        assert done.returncode == 0, done.stdout + done.stderr


PAGES = """
import json, sys
import pytest
from tests.dashboard_pages import everything, open_in_app

results, pages = sys.argv[1], sys.argv[2:]
for page in pages:
    app = open_in_app(page, pytest.MonkeyPatch(), results)
    print(json.dumps([page, [each.message for each in app.exception], everything(app)]))
"""


def test_the_dashboard_shows_them_where_there_is_no_torch(gone_on: Home, tmp_path: Path) -> None:
    pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
    without_torch = without_extras(tmp_path, ["models"])
    without_torch["PYTHONPATH"] += os.pathsep + str(ROOT)
    names = [path.stem for path in sorted((ROOT / "dashboard/page_scripts").glob("[a-z]*.py"))]
    names += ["history", "trust", "two_runs"]  # views of the page Runs
    done = subprocess.run(
        [sys.executable, "-c", PAGES, gone_on.folder / "results", *names], env=without_torch, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = {page: (errors, text) for page, errors, text in map(json.loads, done.stdout.splitlines())}
    assert set(pages) == set(names) and not any(errors for errors, _ in pages.values()), pages
    said = "\n".join(text for _, text in pages.values())
    assert NOT_COMPARABLE not in said and "different machine" not in said and "unknown against" not in said
    assert "not installed" in pages["trust"][1]
