"""Tests of whole systems (a wheel, a cluster, a browser, a compiler) that `make test` need not repeat.

`@pytest.mark.covers("dashboard", "harness/report")` names the files that such a test is about, below the repository.
With --skip-unchanged it is left out, and says so, where it passed before with these files, its own and those of the
environment as they are now. CI gives no such option. What passed is known to pytest's cache, which `make clean` ends.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ALWAYS = ("conftest.py", "constraints.txt", "pyproject.toml")

SESSIONS = (
    "claims", "datasets", "harness", "llama_workbench", "tests/outside_variants.py", "tests/runs.py", "tests/warm.py",
    "variants",
)  # fmt: skip
"""What a whole session depends on that a test measures in processes of its own or in forked ones."""

BEFORE, PASSED = pytest.StashKey[str](), pytest.StashKey[bool]()
"""The digest as it was when the test began: files may be edited meanwhile. And whether its call passed."""


def leave_out(item: pytest.Item) -> None:
    """Skip a test that passed with all files as they are, where that is asked for."""
    mark = item.get_closest_marker("covers")  # its own stands in place of that of its file
    item.stash[BEFORE] = now = digest(item.path, mark.args if mark else ())
    known = getattr(item.config, "cache", None)
    if item.config.getoption("--skip-unchanged", default=False) and known and known.get(_key(item), "") == now:
        pytest.skip("passed before, and nothing that it covers has changed; without --skip-unchanged it runs")


def note(item: pytest.Item, report: pytest.TestReport) -> None:
    """Remember what passed, with what ends after it, and forget what failed."""
    if report.when == "call":
        item.stash[PASSED] = report.passed
    ended = report.when == "teardown" and item.stash.get(PASSED, False)
    if (report.failed or ended) and (known := getattr(item.config, "cache", None)):
        known.set(_key(item), "" if report.failed else item.stash[BEFORE])


def _key(item: pytest.Item) -> str:
    return f"workbench/unchanged/{hashlib.sha256(item.nodeid.encode()).hexdigest()}"


def digest(test: Path, paths: Iterable[str]) -> str:
    """Of the files that a test covers, its own with the helpers that it imports, and the environment's."""
    found = hashlib.sha256(sys.version.encode())
    for path in sorted({*_covered((*ALWAYS, *paths)), *helpers(test)}):
        found.update(f"{path.relative_to(ROOT)} {_content(path, path.stat().st_mtime_ns)}\n".encode())
    return found.hexdigest()


@cache
def _content(path: Path, mtime_ns: int) -> str:
    """Many tests cover the same files, which are read once for each time of a change."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _covered(paths: Iterable[str]) -> Iterator[Path]:
    for name in paths:
        path = ROOT / name
        assert path.exists(), f"a test covers {name}, which is not there"
        yield from (each for each in path.rglob("*") if each.is_file() and each.parent.name != "__pycache__")
        if path.is_file():
            yield path


def helpers(*tests: Path) -> set[Path]:
    """The files of tests, and those of `tests` and `studies` that these import, directly or not."""
    found, left = set[Path](), [*tests]
    while left:
        found.add(path := left.pop())
        modules = set[str]()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                modules |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
            elif isinstance(node, ast.Import):
                modules |= {each.name for each in node.names}
        ours = [module.replace(".", "/") for module in modules if module.partition(".")[0] in ("tests", "studies")]
        named = {ROOT / f"{module}{end}" for module in ours for end in (".py", "/__init__.py")}
        left += [path for path in named if path.is_file() and path not in found]
    return found
