"""Tests of whole systems are left out where they passed with the same files, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import unchanged

TESTS = """
import pathlib
import pytest

HERE = pathlib.Path(__file__).parents[1]

pytestmark = pytest.mark.covers("part")

if False:
    from tests import help_of
    from tests import (
        more_help,
    )


@pytest.fixture
def ends():
    yield
    assert not (HERE / "fails_at_its_end").exists()


def test_it(ends):
    assert not (HERE / "fails").exists()
"""


PATCHED = """
from pathlib import Path
from tests import unchanged

unchanged.ROOT, unchanged.ALWAYS = Path({root!r}), ("environment.txt",)
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The last line of a session of pytest with our conftest, on a repository with one such test."""
    for name in ("part/of.py", "tests/help_of.py", "tests/more_help.py", "other/of.py", "environment.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "tests" / "test_in_it.py").write_text(TESTS)
    (tmp_path / "patched.py").write_text(PATCHED.format(root=str(tmp_path)))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = covers: files\nfilterwarnings = ignore\n")
    monkeypatch.chdir(tmp_path)
    paths = os.pathsep.join(map(str, (Path(__file__).parents[2], tmp_path)))

    def said(*words: str) -> str:
        pytest_here = str(Path(sys.executable).with_name("pytest"))
        command = [pytest_here, "-q", "-p", "patched", "-p", "conftest", "tests", *words]
        environment = os.environ | {"PYTHONPATH": paths}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr)
        return done.stdout.splitlines()[-1]

    return said


def test_it_is_left_out_until_a_file_changes(session: Callable[..., str]) -> None:
    assert session("--skip-unchanged").startswith("1 passed"), "nobody knows that it passed"
    assert session("--skip-unchanged").startswith("1 skipped") and session().startswith("1 passed")
    [test] = Path("tests").glob("test_in_*.py")
    for name in ("part/of.py", "tests/help_of.py", "tests/more_help.py", test, "environment.txt"):
        Path(name).write_text(Path(name).read_text() + "\n")
        assert session("--skip-unchanged").startswith("1 passed"), name
    Path("part/new.py").touch()
    assert session("--skip-unchanged").startswith("1 passed"), "a file that was not there"
    Path("other/of.py").write_text("of no concern")
    assert session("--skip-unchanged").startswith("1 skipped")


@pytest.mark.parametrize(("name", "told"), [("fails", "1 failed"), ("fails_at_its_end", "1 passed, 1 error")])
def test_what_failed_runs_again(session: Callable[..., str], name: str, told: str) -> None:
    assert session().startswith("1 passed")
    Path(name).touch()
    assert session().startswith(told)
    assert session("--skip-unchanged").startswith(told), "its last run did not pass"


def test_each_of_ours_names_files_that_there_are() -> None:
    root = Path(__file__).parents[1]
    marked = [path for path in root.rglob("test_*.py") if "mark.covers(" in path.read_text(encoding="utf-8")]
    assert len(marked) > 10
    helpers = {path.name for path in unchanged.helpers(root / "house/test_fuzz.py")}
    assert helpers == {"test_fuzz.py", "__init__.py", "foreign.py"}
    assert {"runs.py", "dashboard_runs.py"} <= {
        path.name for path in unchanged.helpers(root / "dashboard/test_dashboard_browser.py")
    }
