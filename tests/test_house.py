"""The rules of the house that are no imports: sizes, and that a metric is known by name in its own place only."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from llama_workbench.harness.metrics.registry import metrics
from llama_workbench.harness.spec.comparison import TIMES
from llama_workbench.variants.spelling import did_you_mean
from tests.test_imports import PACKAGES, REPOSITORY, module_name, sources

THE_SUBJECT = ("variants/modular/", "variants/inline.py", "variants/single_file.py", "variants/components.py")
"""What is compared: how long a function is there is what the claims are about."""

LINES_OF_A_FILE, LINES_OF_A_CLASS, LINES_OF_A_FUNCTION = 400, 250, 60


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sources(*PACKAGES, "llama_workbench")
        if not path.relative_to(REPOSITORY).as_posix().startswith(THE_SUBJECT)
    ],
    ids=module_name,
)
def test_files_classes_and_functions_are_of_a_size_to_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_OF_A_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            most = LINES_OF_A_CLASS if isinstance(node, ast.ClassDef) else LINES_OF_A_FUNCTION
            assert node.end_lineno is not None and node.end_lineno - node.lineno < most, node.name


@pytest.mark.parametrize(
    ("written", "where"),
    [
        (r"get_close_matches\(", ["variants/spelling.py"]),
        (r"^ALPHA = ", ["harness/evidence/effect.py"]),
        (r"^\w+ = \"yardstick\"", ["variants/__init__.py"]),
    ],
)
def test_what_is_written_once_stays_so(written: str, where: list[str]) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sources(*PACKAGES, "llama_workbench")}
    files = [path for path, text in texts.items() if re.search(written, text, re.MULTILINE)]
    assert [path.relative_to(REPOSITORY).as_posix() for path in files] == where


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("time_", ["memory", "Time"], "did you mean 'Time'?"),
        ("fats", ["fast", "slow"], "did you mean 'fast'?"),
        ("zzz", ["fast", ""], "ask again"),
    ],
)
def test_the_nearest_name_is_suggested(name: str, known: list[str], said: str) -> None:
    assert did_you_mean(name, known, "ask again") == said


LEFT = {"each": 5, "one": 1, "found": 4, "told": 9}
"""How many variables of dashboard and commands are still named so, outside a comprehension of one line. A number here
may only fall."""


def test_variables_are_named_after_what_they_hold() -> None:
    left = Counter(name for path in sources("dashboard", "llama_workbench") for name in _bound(path) if name in LEFT)
    assert not {name: count for name, count in left.items() if count > LEFT[name]}


def _bound(path: Path) -> list[str]:
    """The names that a file binds, but in comprehensions and lambdas of one line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    short = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    passed = {
        node
        for outer in ast.walk(tree)
        if isinstance(outer, short) and outer.lineno == outer.end_lineno
        for node in ast.walk(outer)
    }
    nodes = [node for node in ast.walk(tree) if node not in passed]
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return names + [node.arg for node in nodes if isinstance(node, ast.arg)]


def test_plan_run_judge_report_and_dashboard_name_no_metric() -> None:
    """Its own module, the schema of the files, and texts do. Names of a column or a page's anchor are no metrics."""
    names = {name for metric in metrics() for name in metric.names} - {*TIMES, "none"}
    compared = re.compile(
        rf"(metric|kind)\)? (==|!=|in|not in) [({{\[]?[\"']({'|'.join(names)})[\"']|case [\"']({'|'.join(names)})"
    )
    keyed = re.compile(rf"^\s*[\"']({'|'.join(names)})[\"']: [A-Z]")
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for path in sources("harness", "dashboard", "llama_workbench")
        if "harness/metrics/" not in path.as_posix() and "harness/store/" not in path.as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if compared.search(line) or keyed.search(line)
    ]
    assert not found, "\n".join(found)
