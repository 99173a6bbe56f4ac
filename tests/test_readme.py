"""The README's table is what the committed run gives."""

from __future__ import annotations

import re
import subprocess
import sys

from llama_workbench import ROOT
from llama_workbench.harness.store.folder import RunFolder


def test_the_table_is_up_to_date() -> None:
    command = [
        sys.executable,
        "-m",
        "llama_workbench.commands.app",
        "judge",
        "reference",
        "--write",
        "README.md",
        "--check",
    ]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_committed_run_names_no_folder_of_a_machine() -> None:
    run = RunFolder(ROOT / "results" / "baselines" / "reference")
    for path in run.path.rglob("*"):
        if path.suffix in (".json", ".folded"):
            assert not re.search(r"[\"(\s=]/[A-Za-z]", path.read_text(encoding="utf-8")), path.name
    assert run.read_manifest()["status"] == "complete"
