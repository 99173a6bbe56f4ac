"""The rules of the house that are no imports: sizes, and that a metric is known by name in its own place only."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from llama_workbench.harness.metrics.registry import metrics
from llama_workbench.harness.spec.comparison import TIMES
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


OF_NOTHING = {"each": 18, "found": 63, "known": 76, "one": 21, "said": 17, "told": 53}
"""Names that do not say what a variable holds → how many are left. These numbers only ever fall."""

IN_ONE_LINE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def names_of_nothing(tree: ast.AST) -> list[str]:
    """The variables and parameters of a module that have one of these names; not those of a comprehension, or lambda,
    in one line."""
    short = [node for node in ast.walk(tree) if isinstance(node, IN_ONE_LINE) and node.lineno == node.end_lineno]
    allowed = {id(node) for outer in short for node in ast.walk(outer)}
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in allowed:
            names.append(node.id)
        elif isinstance(node, ast.arg) and id(node) not in allowed:
            names.append(node.arg)
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            names.append(node.name)
    return [name for name in names if name in OF_NOTHING]


def test_variables_are_named_after_what_they_hold() -> None:
    texts = (path.read_text(encoding="utf-8") for path in sources("harness", "dashboard", "llama_workbench"))
    counted = Counter(name for text in texts for name in names_of_nothing(ast.parse(text)))
    more = {name: f"{counted[name]} against {most}" for name, most in OF_NOTHING.items() if counted[name] > most}
    assert not more, f"name these after what they hold: {more}"


def test_a_name_of_nothing_counts_unless_it_lives_in_one_line() -> None:
    text = "def f(one, rows):\n  for each in rows:\n    said = [known for known in rows]\n"
    text += "  return {\n    found: told.x\n    for found, told in rows\n  }, sorted(rows, key=lambda each: each.x)\n"
    assert sorted(names_of_nothing(ast.parse(text))) == ["each", "found", "one", "said", "told"]
