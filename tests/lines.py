"""Lines of Python by folder, the tests apart, and how many there were in another revision: `make lines`.

`python -m tests.lines [REVISION]`; without one it is origin's main. Where git or the revision is missing, only today's
lines are printed.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAIN = "origin/main"
SPLIT = "harness"
"""Is counted package by package."""


def folder_of(path: Path) -> str:
    """The row that a file counts in: its first folder, in the harness its package."""
    if len(path.parts) == 1:
        return "(root)"
    return "/".join(path.parts[:2]) if path.parts[0] == SPLIT and len(path.parts) > 2 else path.parts[0]


def lines_here(root: Path) -> Counter[str]:
    """Folder → lines of the files that lie there now, saved in git or not."""
    lines: Counter[str] = Counter()
    tops = [path for path in root.iterdir() if not path.name.startswith(".") and path.name not in ("build", "dist")]
    for path in (file for top in tops for file in ([top] if top.is_file() else top.rglob("*.py"))):
        if path.suffix == ".py":
            lines[folder_of(path.relative_to(root))] += path.read_bytes().count(b"\n")
    return lines


def lines_at(revision: str, root: Path) -> Counter[str] | None:
    """The same as they were in a revision; None where git or the revision is missing."""
    command = ["git", "archive", "--format=tar", revision, "--", ":(glob)**/*.py"]
    try:
        archive = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    lines: Counter[str] = Counter()
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:
                lines[folder_of(Path(member.name))] += file.read().count(b"\n")
    return lines


def table(now: Counter[str], before: Counter[str] | None, revision: str) -> str:
    """A row for each folder, then their sum, then the tests."""
    folders = sorted({*now, *(before or ())} - {"tests"})
    return "\n".join(
        [
            f"lines of Python{'' if before is None else f' and their change against {revision}'}",
            *(_row(name, [name], now, before) for name in folders),
            _row("all but tests", folders, now, before),
            _row("tests", ["tests"], now, before),
        ]
    )


def _row(title: str, folders: Sequence[str], now: Counter[str], before: Counter[str] | None) -> str:
    lines = sum(now[name] for name in folders)
    change = 0 if before is None else lines - sum(before[name] for name in folders)
    return f"{title:<20} {lines:>7,}" + (f" {change:>+7,}" if change else "")


if __name__ == "__main__":
    against = sys.argv[1] if len(sys.argv) > 1 else MAIN
    print(table(lines_here(ROOT), lines_at(against, ROOT), against))
