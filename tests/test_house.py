"""The rules of the house that are no imports: sizes, and that a metric is known by name in its own place only."""

from __future__ import annotations

import ast
import re
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


TOLD = {"reason", "note", "notes", "warning", "warnings", "said", "claimed"}
"""Names of what is written for people."""

TAKES_APART = {"startswith", "endswith", "removeprefix", "partition", "rpartition"}


def names_in(node: ast.expr) -> set[str]:
    """Last names of what an expression reads: of `str(verdict.get("reason"))` verdict, get, reason."""
    found: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                found.add(name)
    return found


def taken_apart(source: str) -> list[int]:
    """Lines that take a sentence for people apart, or ask how it begins."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in TAKES_APART
        and names_in(node.func.value) & TOLD
    ]


def test_no_code_hangs_on_a_sentence() -> None:
    """What a program asks for is a field, such as `cause`: a reason and a note may be reworded at any time."""
    assert taken_apart('any(note.startswith("confounded") for note in effect.warnings)') == [1]
    assert taken_apart('str(verdict.get("reason")).startswith("depends on")') == [1]
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in sources("harness", "dashboard", "llama_workbench")
        for line in taken_apart(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
