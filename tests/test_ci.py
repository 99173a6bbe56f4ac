"""The workflow for GitHub: its own commands run here, in a scratch repository, on real runs."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.baselines.text import MARKER
from llama_workbench.harness.slices.instructions.counting import NOT_INSTALLED
from tests.workflow import Scratch, script, workflow


def test_nothing_that_runs_code_of_a_pull_request_may_write() -> None:
    assert workflow()["permissions"] == {"contents": "read"}
    assert not [job for job in workflow()["jobs"].values() if "permissions" in job]


def test_every_action_is_named_by_its_commit() -> None:
    """A tag can be moved to other code."""
    files = [ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.yml")]
    used = [
        line.split("uses:")[1].strip() for file in files for line in file.read_text().splitlines() if "uses:" in line
    ]
    assert len(used) > 8
    for each in used:
        assert re.fullmatch(r"\./( #.*)?|actions/[a-z/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), each


# -- measured ----------------------------------------------------------------------------------------------------------


WORK = """\
def before(numbers):
    return [sum(numbers) for _ in range(2000)][-1]


def mine(numbers):
    return [sum(numbers) for _ in range({additions})][-1]
"""


@pytest.mark.covers(".github", "harness/baselines", "harness/slices/instructions", "llama_workbench")
@pytest.mark.long
@pytest.mark.skipif(not shutil.which("valgrind"), reason=NOT_INSTALLED)
def test_five_percent_more_work_is_caught_and_unchanged_code_passes(tmp_path: Path) -> None:
    """Two real runs: the main branch, and a pull request that changes one of two functions.

    Other tests compute beside them, now more and now less, so a few seconds of time decide nothing here. Functions are
    counted in seconds where torch takes minutes.
    """
    scratch = Scratch(
        tmp_path / "scratch",
        "--compare work.py:before work.py:mine --call inputs.py:numbers --budget 2 --count-instructions --no-causes",
    )

    def write(additions: int) -> None:
        scratch.folder.mkdir(exist_ok=True)
        (scratch.folder / "work.py").write_text(WORK.format(additions=additions), encoding="utf-8")

    write(2000)
    inputs = (
        "def numbers(seed):\n    return ([seed, *range(20)],)\n"  # counts compare only where these stay as they are
    )
    (scratch.folder / "inputs.py").write_text(inputs, encoding="utf-8")
    settings = "[tool.llama-workbench.compare]\ntime = 100\ninstructions = 1\n"
    (scratch.folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    scratch.measure()
    scratch.keep()
    write(2100)
    scratch.measure()
    caught = scratch.run("Compare")
    assert caught.returncode == 1, caught.stdout + caught.stderr
    text = (scratch.folder / "comparison.md").read_text(encoding="utf-8")
    assert text.startswith("### new against main: regression (1 regression, ") and text.endswith(f"{MARKER}\n")
    assert (scratch.folder / "summary.md").read_text(encoding="utf-8") == text
    cases = ElementTree.parse(scratch.folder / "comparison.xml").findall("testcase")
    assert [case.get("name") for case in cases if case.find("failure") is not None] == ["mine: instructions"]

    # As much as one variant gained is allowed for it, and the other did not change.
    allowed = """\
        [[tool.llama-workbench.compare.for]]
        variant = "mine"
        instructions = 6
    """
    (scratch.folder / "pyproject.toml").write_text(settings + textwrap.dedent(allowed), encoding="utf-8")
    passed = scratch.run("Compare")
    assert passed.returncode == 0 and "::warning::" not in passed.stdout, passed.stdout + passed.stderr


def test_a_comparison_that_cannot_tell_is_a_warning(tmp_path: Path) -> None:
    """Here: there are no runs at all."""
    done = Scratch(tmp_path).run("Compare")
    assert done.returncode == 0 and "::warning::The comparison with the baseline is inconclusive" in done.stdout


def test_scripts_hold_nothing_that_github_would_fill_in() -> None:
    for name in ("Measure", "Compare"):
        assert script("compare", name)
