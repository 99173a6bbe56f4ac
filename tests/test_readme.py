"""README.md and VERDICTS.md say what the committed run gives."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.calibrate.rates import in_a_sentence
from llama_workbench.harness.calibrate.record import read_trials
from llama_workbench.harness.store.folder import RunFolder

COMMAND = ("-m", "llama_workbench.commands.app", "judge", "reference", "--write", "README.md", "--write", "VERDICTS.md")


def test_what_is_made_from_the_run_is_up_to_date() -> None:
    checked = subprocess.run([sys.executable, *COMMAND, "--check"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stderr == "README.md: up to date\nVERDICTS.md: up to date\n"
    readme, verdicts = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "VERDICTS.md"))
    assert all(readme.count(f"<!-- {name}:begin -->") == 1 for name in ("answer", "headlines"))
    assert verdicts.count("<!-- verdicts:begin -->") == 1


def test_the_committed_run_names_no_folder_of_a_machine() -> None:
    run = RunFolder(ROOT / "results" / "baselines" / "reference")
    for path in run.path.rglob("*"):
        if path.suffix in (".json", ".folded"):
            assert not re.search(r"[\"(\s=]/[A-Za-z]", path.read_text(encoding="utf-8")), path.name
    assert run.read_manifest()["status"] == "complete"


def test_the_rate_of_wrong_verdicts_is_that_of_the_committed_trials() -> None:
    _, trials = read_trials(ROOT / "results" / "calibration.jsonl")
    assert sum(trial.busy for trial in trials) == pytest.approx(len(trials) / 2, rel=0.05)
    assert in_a_sentence(trials) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in ROOT.glob("*.md"):
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", text):
            assert (ROOT / target).exists(), f"{document.name}: {target}"
