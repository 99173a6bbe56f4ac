"""Revisions that are built: an extension in C, compiled at two revisions and measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llama_workbench.harness.calls.revisions import built, commit_of
from llama_workbench.harness.calls.source import SourceError
from tests.session.test_revisions import git
from tests.suites.test_suites import command
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.long]

CODE = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *total(PyObject *self, PyObject *number) {
    long until = PyLong_AsLong(number);
    volatile long sum;
    for (int time = 0; time < TIMES; time++) {
        sum = 0;
        for (long each = 0; each < until; each++) sum += each;
    }
    return PyLong_FromLong(sum);
}

static PyMethodDef methods[] = {{"total", total, METH_O, ""}, {NULL}};
static struct PyModuleDef fast = {PyModuleDef_HEAD_INIT, "_fast", "", -1, methods};
PyMODINIT_FUNC PyInit__fast(void) { return PyModule_Create(&fast); }
"""

SETUP = """
from setuptools import Extension, setup

setup(name="fast", version="1", packages=["fast"], ext_modules=[Extension("fast._fast", ["fast.c"])])
"""

BENCH = """
def number(seed):
    return 20000 + seed % 100


def test_total(benchmark):
    from fast import total

    assert benchmark(total, 20000) == 199990000
"""

BUILD = "pip install --no-deps --no-build-isolation --quiet ."


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with an extension that counts once in its commit, and twice in its working tree."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("built") / "project"
    (folder / "fast").mkdir(parents=True)
    (folder / "bench").mkdir()
    (folder / "fast" / "__init__.py").write_text("from ._fast import total\n")
    (folder / "setup.py").write_text(SETUP)
    (folder / "fast.c").write_text(CODE.replace("TIMES", "1"))
    (folder / "bench" / "test_fast.py").write_text(BENCH)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / ".gitignore").write_text("results/\nbuild/\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "as it was")
    (folder / "fast.c").write_text(CODE.replace("TIMES", "2"))
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path_factory.getbasetemp() / "cache-of-builds"
    monkeypatch.setenv("WORKBENCH_CACHE", str(cache))


def test_each_revision_has_its_own_build_which_is_kept(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = git(project, "count-objects", "-v"), git(project, "status", "--porcelain")
    old = built(project, "main", commit_of(project, "main"), BUILD)
    now = built(project, ".", "", BUILD)
    said = capfd.readouterr().err
    assert said.count("(once; kept in ") == 2 and "main is built: " in said
    assert (old.files / "fast.c").read_text() != (now.files / "fast.c").read_text()
    assert (git(project, "count-objects", "-v"), git(project, "status", "--porcelain")) == before
    assert not [*project.rglob("*.so")]
    for each in (old, now):
        ask = [each.python, "-c", "import fast, pytest; print(fast.__file__); print(fast.total(10), pytest.__file__)"]
        done = subprocess.run(ask, capture_output=True, text=True, check=True, cwd="/")
        where, total, pytest_file = done.stdout.split()
        assert where.startswith(str(Path(each.python).parents[1])) and total == "45"
        assert pytest_file == pytest.__file__, "what is installed here is found there too"
    assert built(project, ".", "", BUILD) == now and built(project, "HEAD", commit_of(project, "HEAD"), BUILD) == old
    assert capfd.readouterr().err == ""


def test_a_build_that_fails_is_shown_with_its_end(project: Path) -> None:
    with pytest.raises(SourceError, match=r"--build: main cannot be built: exit code 3\nno compiler"):
        built(project, "main", commit_of(project, "main"), "echo no compiler; exit 3")


def test_what_failed_is_built_from_the_beginning_and_another_command_apart(project: Path, tmp_path: Path) -> None:
    commit, tried = commit_of(project, "main"), tmp_path / "tried"
    second = f"test -e {tried} || {{ touch half {tried}; exit 3; }}"
    with pytest.raises(SourceError, match="exit code 3"):
        built(project, "main", commit, second)
    assert tried.exists()
    made = built(project, "main", commit, second)
    assert (made.files / "setup.py").exists() and not (made.files / "half").exists()
    assert built(project, "main", commit, f"{second} ").files != made.files


def test_a_function_of_an_extension_is_compared_as_it_was_built(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(project))  # where the package is not built
    words = ("--call", "bench/test_fast.py:number", "--build", BUILD, "--budget", "12", "--json")
    code, text = command(project, "compare-revisions", "main", ".", "fast:total", *words)
    assert code == 1, text
    [row] = json.loads(text)["rows"]
    assert row["verdict"] == "slower" and 0.3 < row["ratio"] < 0.7


def test_a_suite_is_compared_as_it_was_built(project: Path) -> None:
    code, text = command(
        project, "compare-revisions", "main", ".", "bench", "--build", BUILD, "--budget", "1", "--json"
    )
    assert code == 1, text
    [row] = json.loads(text)["rows"]
    assert (row["subject"], row["verdict"]) == ("bench/test_fast.py::test_total", "slower")
    assert 0.3 < row["ratio"] < 0.7


def test_both_ways_to_an_environment_are_not_mixed(project: Path) -> None:
    code, text = command(project, "compare-revisions", "main", ".", "bench", "--build", BUILD, "--env", sys.executable)
    assert code == 2 and "leave out --env" in text
    assert os.environ["WORKBENCH_CACHE"]
