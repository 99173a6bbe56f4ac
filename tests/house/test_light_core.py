"""Where only the core is installed, what else is missing is named. (`test_packaging` compares functions there.)"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from llama_workbench.harness.machine.extras import EXTRAS, lacking, told

HIDES = """
import importlib.machinery

HIDDEN = {hidden!r}
found = importlib.machinery.PathFinder.find_spec
installed = importlib.machinery.PathFinder.find_distributions


def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else found(name, path, target)


def find_distributions(cls, context=None):
    asked = (context and context.name or "").lower().replace("-", "_")
    return iter(()) if asked in HIDDEN else installed(*filter(None, [context]))


importlib.machinery.PathFinder.find_spec = classmethod(find_spec)
importlib.machinery.PathFinder.find_distributions = classmethod(find_distributions)
"""
"""A sitecustomize.py: every process finds no package of these extras, nor its version."""


def without_extras(folder: Path, extras: Collection[str] = tuple(EXTRAS)) -> dict[str, str]:
    """The variables of an environment that lacks these extras; what hides them is written into the folder."""
    hidden = sorted({module for extra in extras for module in EXTRAS[extra]})
    (folder / "sitecustomize.py").write_text(HIDES.format(hidden=hidden))
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    return ours | {"PYTHONPATH": str(folder)}


@pytest.fixture
def light(tmp_path: Path) -> dict[str, str]:
    """The variables of an environment that has the core alone."""
    (tmp_path / "site").mkdir()
    return without_extras(tmp_path / "site")


def run_in(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


def test_a_model_is_refused_with_the_line_that_installs_what_it_needs(light: dict[str, str], tmp_path: Path) -> None:
    words = ("--benchmark", "--compare", "fast", "yardstick", "--workloads", "decode-tiny-c16", "--run-dir", "run")
    done = run_in(tmp_path, light, "pytest", "-p", "no:cacheprovider", *words)
    assert done.returncode != 0 and not (tmp_path / "run").exists()
    assert "pip install 'path/to/llama-workbench[models]'" in done.stdout + done.stderr


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(ModuleNotFoundError("no", name="torch.nn")) == (
        "torch is not installed: pip install 'path/to/llama-workbench[models]'"
    )
    assert told(ModuleNotFoundError("no", name="numpy")) == ""
    monkeypatch.setattr("llama_workbench.harness.machine.extras.find_spec", lambda name: None)
    assert lacking("profile") == "memray is not installed: pip install 'path/to/llama-workbench[profile]'"


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("plugin.plugin", {"duckdb", "numpy", "pydantic", "rich", "torch"}),
        ("worker.main", {"email", "numpy", "pandas", "pydantic", "pytest", "scipy", "torch"}),
    ],
)
def test_what_begins_often_imports_little(module: str, heavy: set[str]) -> None:
    """pytest imports the plugin in every session of a user, and each round of functions begins processes of its own."""
    code = f"import sys, llama_workbench.harness.{module}; print(*sorted({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
