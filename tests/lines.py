"""Lines of Python by folder, what each may have, and how many there were in another revision: `make lines`.

`python -m tests.lines [REVISION]`; without one it is origin's main. Where git or the revision is missing, only today's
lines are printed. Ends with 1 where a budget of pyproject.toml is exceeded: `[tool.lines]` has lines by folder, and
`files` for all but tests and studies. A budget is raised in a commit of its own that says why.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAIN = "origin/main"
SPLIT = {"harness": 2, "harness/slices": 3}
"""Are counted package by package: folder → how many names of a path tell its row."""
ASIDE = ("studies", "tests")
PRODUCT = "all but tests and studies"


def folder_of(path: Path) -> str:
    """The row that a file counts in: its first folder, in the harness its package, of slices each."""
    if len(path.parts) == 1:
        return "(root)"
    deepest = max((SPLIT[str(folder)] for folder in path.parents if str(folder) in SPLIT), default=1)
    return "/".join(path.parts[: min(deepest, len(path.parts) - 1)])


def files_here(root: Path) -> list[Path]:
    """The files of Python that lie there now, saved in git or not."""
    tops = [path for path in root.iterdir() if not path.name.startswith(".") and path.name not in ("build", "dist")]
    paths = (file for top in tops for file in ([top] if top.is_file() else top.rglob("*.py")))
    return [path for path in paths if path.suffix == ".py"]


def lines_of(files: Sequence[Path], root: Path) -> Counter[str]:
    """Folder → lines."""
    lines: Counter[str] = Counter()
    for path in files:
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
    """A row for each folder, then their sum, then what stands aside."""
    folders = sorted({*now, *(before or ())} - {*ASIDE})
    return "\n".join(
        [
            f"lines of Python{'' if before is None else f' and their change against {revision}'}",
            *(_row(name, [name], now, before) for name in folders),
            _row(PRODUCT, folders, now, before),
            *(_row(name, [name], now, before) for name in ASIDE),
        ]
    )


def _row(title: str, folders: Sequence[str], now: Counter[str], before: Counter[str] | None) -> str:
    lines = sum(now[name] for name in folders)
    change = 0 if before is None else lines - sum(before[name] for name in folders)
    return f"{title:<25} {lines:>7,}" + (f" {change:>+7,}" if change else "")


def exceeded(now: Counter[str], files: Sequence[Path], root: Path, budgets: Mapping[str, int]) -> list[str]:
    """A sentence for each budget that is exceeded, and for each folder that has none."""
    sums = {
        **now,
        PRODUCT: now.total() - sum(now[name] for name in ASIDE),
        "files": sum(folder_of(path.relative_to(root)) not in ASIDE for path in files),
    }
    over = [f"{name}: {sums[name]:,} of {budget:,}" for name, budget in budgets.items() if sums.get(name, 0) > budget]
    return over + [f"{name}: has no budget in [tool.lines] of pyproject.toml" for name in sorted({*now} - {*budgets})]


def main(revision: str) -> int:
    """Print the table, and what exceeds its budget."""
    files = files_here(ROOT)
    now = lines_of(files, ROOT)
    print(table(now, lines_at(revision, ROOT), revision))
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["lines"]
    faults = exceeded(now, files, ROOT, budgets)
    for fault in faults:
        print(f"over its budget: {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else MAIN))
