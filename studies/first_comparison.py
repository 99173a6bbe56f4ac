"""The first comparison of README: `python -m studies.first_comparison` measures it with the files and the command that
are shown there, keeps the run, and writes its screen into README. With the word `screen` it only writes the screen.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from llama_workbench import ROOT
from llama_workbench.harness.report.markdown import update_file

README = ROOT / "README.md"
RUN = "first-comparison"
"""The name of the committed run."""

SHOW = ("show", RUN, "--no-code")
COLUMNS = "100"


def files() -> dict[str, str]:
    """The files that README shows: name → text. Each begins with its name in a comment."""
    blocks = re.findall(r"(?ms)^```python\n(# (\w+\.py)\n.*?)^```$", README.read_text(encoding="utf-8"))
    return {name: text for text, name in blocks}


def write_files(folder: Path) -> None:
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


def words() -> list[str]:
    """The words of the command that README shows, behind `pytest`."""
    [line] = re.findall(r"(?m)^pytest (--benchmark --compare old\.py.*)$", README.read_text(encoding="utf-8"))
    return str(line).split()


def block(shown: str) -> str:
    """What is between the markers of README. shown: what `workbench show` printed."""
    return "".join(["```\n", *(f"{line.rstrip()}\n" for line in shown.splitlines()), "```"])


def measure() -> None:
    """Measure it in an empty folder, and keep the run."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        _run("pytest", *words(), "--run-dir", RUN, cwd=Path(folder))
        _run("workbench", "baseline", "save", str(Path(folder) / RUN), RUN, "--force", cwd=ROOT)


def _run(program: str, *arguments: str, cwd: Path) -> str:
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | {"COLUMNS": COLUMNS, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return ended.stdout


if __name__ == "__main__":
    if sys.argv[1:] != ["screen"]:
        measure()
    update_file(README, {"screen": block(_run("workbench", *SHOW, cwd=ROOT))})
