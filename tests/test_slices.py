"""A slice is one folder: without it nothing is missed, a comparison is measured and shown, every page opens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llama_workbench import ROOT
from tests.test_imports import SLICES, imports_of, module_name, sources

OURS = ("llama_workbench", "harness", "variants", "datasets", "dashboard", "claims")

FILES = {
    "old.py": "def twice(numbers):\n    return [2 * number for number in numbers for _ in range(3)][::3]\n",
    "new.py": "def twice(numbers):\n    return [2 * number for number in numbers]\n",
    "inputs.py": "def numbers(seed):\n    return ([seed + number for number in range(2000)],)\n",
}

OPEN = """
import sys
from streamlit.testing.v1 import AppTest
from llama_workbench import ROOT
sys.argv = ["app.py", "--results", sys.argv[1]]
for page in sorted((ROOT / "dashboard" / "page_scripts").glob("*.py")):
    app = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=120).run()
    app.switch_page(f"page_scripts/{page.name}").run()
    assert not app.exception, (page.name, [each.message for each in app.exception])
"""


def tree_without(path: Path, slices: list[str]) -> Path:
    """A copy of the tree without these slices."""
    for name in OURS:
        shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in slices:
        shutil.rmtree(path / "harness" / "slices" / name)
    shutil.copy(ROOT / "pyproject.toml", path)
    return path


def python(tree: Path, cwd: Path, *words: object) -> str:
    """What a process says in which the package is that of the tree; it must end with 0."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=ours | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SLICES)
def test_nothing_outside_a_slice_names_it(name: str, tmp_path: Path) -> None:
    slice_ = f"llama_workbench.harness.slices.{name}"
    paths = sources("variants", "datasets", "harness", "dashboard", "llama_workbench")
    outside = [path for path in paths if not f"{module_name(path)}.".startswith(f"{slice_}.")]
    assert not [path for path in outside if any(f"{each}.".startswith(f"{slice_}.") for each in imports_of(path))]
    tree = tree_without(tmp_path / "tree", [name])
    assert f"\n  {name} " not in python(tree, tmp_path, "-m", "llama_workbench.commands.app", "--help")


@pytest.mark.long
def test_without_all_of_them_a_comparison_is_measured_and_shown_and_every_page_opens(tmp_path: Path) -> None:
    tree = tree_without(tmp_path / "tree", SLICES)
    mine = tmp_path / "mine"
    mine.mkdir()
    for name, text in FILES.items():
        (mine / name).write_text(text, encoding="utf-8")
    pytest_ = ("-m", "pytest", "-q", "-p", "llama_workbench.harness.plugin.plugin", "-p", "no:cacheprovider")
    words = ("--compare", "old.py:twice", "new.py:twice", "--inputs", "inputs.py:numbers", "--budget", "30")
    python(tree, mine, *pytest_, "--benchmark", *words, "--run-dir", "results/runs/run")
    shown = python(tree, mine, "-m", "llama_workbench.commands.app", "show", "results/runs/run")
    assert " times as fast as " in shown
    python(tree, mine, "-c", OPEN, mine / "results")
