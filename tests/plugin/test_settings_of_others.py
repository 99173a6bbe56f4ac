"""A project's own settings of pytest do not disturb measuring: what would is left out, and said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llama_workbench.harness.machine.environment import child_environment

SIDES = """
import os
import sys


def plain(x):
    traced = sys.gettrace() is not None or "coverage" in sys.modules
    return [x, traced, [name for name in os.environ if name.startswith("COV")]]


def other(x):
    return [x, False, []]


def number(seed):
    return seed
"""

SETTINGS = """
[pytest]
testpaths = tests
filterwarnings =
    error
    ignore:Module already imported
markers =
    slow: takes long
addopts =
    -n 2 --cov=sides --cov-fail-under=80 --strict-markers -ra -q -x --tb=short -k nothing -m "not slow"
    -p no:cacheprovider
"""

COMPARED = ("--compare", "sides.py:plain", "sides.py:other", "--call", "sides.py:number", "--benchmark-disable")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "sides.py").write_text(SIDES)
    (tmp_path / "tests" / "test_sum.py").write_text(
        "def test_sum(benchmark):\n    assert benchmark(sum, [1, 2]) == 3\n"
    )
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    return tmp_path


def session(project: Path, *words: str, **more: str) -> tuple[int, str]:
    """A session of its own, in which only these plugins are: one more of somebody's might be installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    plugins = [word for name in ("xdist", "pytest_cov", "pytest_benchmark.plugin") for word in ("-p", name)]
    ours = ("-p", "llama_workbench.harness.plugin.plugin")
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more}
    command = [sys.executable, "-m", "pytest", *plugins, *ours, "--benchmark", *words]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def test_workers_coverage_and_choices_of_a_project_are_left_out_and_said(project: Path) -> None:
    code, text = session(project, *COMPARED, PYTEST_ADDOPTS="--maxfail=2", COV_CORE_SOURCE="sides")
    assert code == 0, text
    [told] = [line for line in text.splitlines() if "left out while measuring" in line]
    assert told.startswith("workbench: addopts of pytest.ini and PYTEST_ADDOPTS: ")
    for word in ("-n 2", "--cov=sides", "--cov-fail-under=80", "-k nothing", "-m 'not slow'", "--maxfail="):
        assert word in told
    assert "2 passed" in text and "coverage:" not in text


@pytest.mark.parametrize(
    ("word", "told"), [("-n1", "leave out -n (pytest-xdist)"), ("--cov=sides", "leave out --cov (pytest-cov)")]
)
def test_what_was_typed_is_refused(project: Path, word: str, told: str) -> None:
    code, text = session(project, word, *COMPARED)
    assert code == 4 and told in text


def test_a_budget_that_tests_would_ignore_is_refused(project: Path) -> None:
    (project / "tests" / "test_plain.py").write_text("def test_plain():\n    assert True\n")
    code, text = session(project, "tests/test_plain.py", "--budget", "15")
    assert code == 4 and "--budget: only tests with the fixture `versus` or `benchmark` use it" in text
    assert session(project, "tests/test_plain.py")[0] == 0


def test_a_new_python_is_not_traced_for_the_coverage_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COV_CORE_SOURCE", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"):
        monkeypatch.setenv(name, "x")
    assert not [name for name in child_environment() if name.startswith("COV")]
