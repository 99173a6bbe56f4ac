"""`make lines`: lines of Python by folder, and their change against a revision."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

from tests.lines import PRODUCT, exceeded, files_here, folder_of, lines_at, lines_of, table


def write(root: Path, **files: int) -> None:
    for name, lines in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n" * lines, encoding="utf-8")


def test_lines_are_counted_by_folder_and_compared_with_a_revision(tmp_path: Path) -> None:
    git = ("git", "-c", "user.name=us", "-c", "user.email=us@example.org")
    write(tmp_path, conftest=1, harness__run=2, harness__plan__deep__one=30, dashboard__app=400, tests__test_it=5000)
    subprocess.run([*git, "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run([*git, "add", "."], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "one"], cwd=tmp_path, check=True)
    write(tmp_path, harness__plan__deep__one=27, harness__judge__new=4, tests__test_it=5005)
    (tmp_path / "dashboard" / "app.py").unlink()
    write(tmp_path / ".venv", outside=9)

    now, before = lines_of(files_here(tmp_path), tmp_path), lines_at("HEAD", tmp_path)
    assert now == {"(root)": 1, "harness": 2, "harness/plan": 27, "harness/judge": 4, "tests": 5005}
    rows = [line.split() for line in table(now, before, "HEAD").splitlines()[1:]]
    assert rows == [
        ["(root)", "1"],
        ["dashboard", "0", "-400"],
        ["harness", "2"],
        ["harness/judge", "4", "+4"],
        ["harness/plan", "27", "-3"],
        ["all", "but", "tests", "and", "studies", "34", "-399"],
        ["studies", "0"],
        ["tests", "5,005", "+5"],
    ]


def test_without_the_revision_only_the_lines_of_today_are_printed(tmp_path: Path) -> None:
    assert lines_at("HEAD", tmp_path) is None
    assert [line.split() for line in table(Counter(harness=3, tests=2), None, "HEAD").splitlines()] == [
        ["lines", "of", "Python"],
        ["harness", "3"],
        [*PRODUCT.split(), "3"],
        ["studies", "0"],
        ["tests", "2"],
    ]


def test_the_row_of_a_file_is_its_folder_its_package_or_its_slice() -> None:
    rows = {
        "conftest.py": "(root)",
        "dashboard/views/data.py": "dashboard",
        "harness/one.py": "harness",
        "harness/plan/deep/one.py": "harness/plan",
        "harness/slices/__init__.py": "harness/slices",
        "harness/slices/calibrate/cases/one.py": "harness/slices/calibrate",
    }
    assert {name: folder_of(Path(name)) for name in rows} == rows


def test_a_folder_beyond_its_budget_is_named_and_so_is_one_without(tmp_path: Path) -> None:
    write(tmp_path, harness__plan__one=3, harness__plan__two=4, dashboard__app=5, tests__test_it=50, studies__trial=6)
    files = files_here(tmp_path)
    budgets = {"harness/plan": 6, "dashboard": 5, "tests": 50, PRODUCT: 11, "files": 2}
    assert exceeded(lines_of(files, tmp_path), files, tmp_path, budgets) == [
        "harness/plan: 7 of 6",
        f"{PRODUCT}: 12 of 11",
        "files: 3 of 2",
        "studies: has no budget in [tool.lines] of pyproject.toml",
    ]
