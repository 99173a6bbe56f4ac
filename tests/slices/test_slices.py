"""A slice is one folder: without it nothing is missed, a comparison is measured and shown, every page opens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.commands import app
from llama_workbench.harness.claims.reading import SHIPPED, load_folder
from llama_workbench.harness.metrics.registry import names
from llama_workbench.harness.slices import faces
from tests.house.test_imports import SLICES, imports_of, module_name, sources

OURS = ("llama_workbench", "harness", "variants", "datasets", "dashboard", "claims")

FILES = {
    "old.py": "def twice(numbers):\n    return [2 * number for number in numbers for _ in range(3)][::3]\n",
    "new.py": "def twice(numbers):\n    return [2 * number for number in numbers]\n",
    "inputs.py": "def numbers(seed):\n    return ([seed + number for number in range(2000)],)\n",
}

CLAIMS_RUN = ROOT / "results" / "baselines" / "reference"

OPEN = """
import sys
from streamlit.testing.v1 import AppTest
from llama_workbench import ROOT
results, *runs = sys.argv[1:]
sys.argv = ["app.py", "--results", results]
for run in runs:
    for page in sorted((ROOT / "dashboard" / "page_scripts").glob("*.py")):
        app = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=120).run()
        app.query_params["run"] = run
        app.switch_page(f"page_scripts/{page.name}").run()
        assert not app.exception, (run, page.name, [each.message for each in app.exception])
"""


def tree_without(path: Path, *taken_away: str) -> Path:
    """A copy of the tree without these folders."""
    for name in OURS:
        shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in taken_away:
        shutil.rmtree(path / name)
    shutil.copy(ROOT / "pyproject.toml", path)
    return path


CORE = ("variants/engines", *(f"harness/slices/{name}" for name in SLICES))
"""What the core is without."""


def python(tree: Path, cwd: Path, *words: object, code: int = 0) -> str:
    """What a process says in which the package is that of the tree; it must end with this exit code."""
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
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr * (code != 0)


def names_of(slice_: str) -> tuple[set[str], set[str]]:
    """The verbs that a slice brings, and the metrics."""
    verbs = {name for name, verb in app.verbs().items() if verb.module == f"{slice_}.command"}
    metrics = [face.METRIC for face in faces("metric") if face.__name__ == f"{slice_}.metric"]
    return verbs, {name for metric in metrics for name in metric.names}


THERE = """
import json
from llama_workbench.commands.app import verbs
from llama_workbench.harness.claims.reading import SHIPPED, load_folder
from llama_workbench.harness.metrics.registry import names
print(json.dumps([[*verbs()], names(), [claim.id for claim in load_folder(SHIPPED)[0]]]))
"""


@pytest.fixture(scope="module")
def whole_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with all slices in it."""
    return tree_without(tmp_path_factory.mktemp("whole") / "tree")


@pytest.mark.parametrize("name", SLICES)
def test_nothing_outside_a_slice_names_it(name: str, whole_tree: Path, tmp_path: Path) -> None:
    slice_ = f"llama_workbench.harness.slices.{name}"
    paths = sources("variants", "datasets", "harness", "dashboard", "llama_workbench")
    outside = [path for path in paths if not f"{module_name(path)}.".startswith(f"{slice_}.")]
    assert not [path for path in outside if any(f"{each}.".startswith(f"{slice_}.") for each in imports_of(path))]
    here, away = whole_tree / "harness" / "slices" / name, tmp_path / name
    here.rename(away)
    try:
        there = json.loads(python(whole_tree, tmp_path, "-c", THERE))
    finally:
        away.rename(here)
    claims = [claim.id for claim in load_folder(SHIPPED)[0]]
    for all_names, own, left in zip((app.verbs(), names(), claims), (*names_of(slice_), set()), there, strict=True):
        assert {*left} == {*all_names} - own


@pytest.mark.covers("harness/slices", "tests", "studies")
@pytest.mark.long
def test_without_all_of_them_the_tests_of_the_core_are_collected(tmp_path: Path) -> None:
    tree = tree_without(tmp_path / "tree", *CORE)
    left_out = shutil.ignore_patterns("__pycache__", "slices", "engines", "*.parquet")
    for name in ("tests", "studies", "docs", "results"):
        shutil.copytree(ROOT / name, tree / name, ignore=left_out)
    shutil.copy(ROOT / "conftest.py", tree)
    collected = python(tree, tree, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider")
    assert "tests/measure/test_measure.py: " in collected
    assert "tests/slices" not in collected and "tests/engines" not in collected


@pytest.mark.covers("harness/slices", "harness/plugin", "dashboard", "llama_workbench")
@pytest.mark.long
def test_without_all_of_them_a_comparison_is_measured_and_shown_and_every_page_opens(
    tmp_path: Path,
) -> None:
    tree = tree_without(tmp_path / "tree", *CORE)
    mine = tmp_path / "mine"
    mine.mkdir()
    for name, text in FILES.items():
        (mine / name).write_text(text, encoding="utf-8")
    pytest_ = ("-m", "pytest", "-q", "-p", "llama_workbench.harness.plugin.plugin", "-p", "no:cacheprovider")
    words = ("--compare", "old.py:twice", "new.py:twice", "--inputs", "inputs.py:numbers", "--budget", "8")
    python(tree, mine, *pytest_, "--benchmark", *words, "--run-dir", "results/runs/run")
    shown = python(tree, mine, "-m", "llama_workbench.commands.app", "show", "results/runs/run")
    assert " times as fast as " in shown
    refused = python(tree, mine, *pytest_, "--benchmark", "--on", "ray", code=4)
    assert "runs of several machines are neither measured nor judged here" in refused
    shutil.copytree(CLAIMS_RUN, mine / "results" / "baselines" / CLAIMS_RUN.name)
    python(tree, mine, "-c", OPEN, mine / "results", "run", CLAIMS_RUN.name)
    judged = json.loads(python(tree, mine, "-m", "llama_workbench.commands.app", "judge", CLAIMS_RUN.name, "--json"))
    reasons = {part["reason"] for part in judged if part["verdict"] == "not measurable here"}
    assert any('this version has no metric "' in reason for reason in reasons)
