"""README.md and VERDICTS.md say what the committed run gives."""

from __future__ import annotations

import re

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.calibrate.rates import in_a_sentence, in_tables
from llama_workbench.harness.calibrate.record import FILE, read_trials
from llama_workbench.harness.store.folder import RunFolder
from tests import session_trials


def test_the_committed_run_names_no_folder_of_a_machine() -> None:
    run = RunFolder(ROOT / "results" / "baselines" / "reference")
    for path in run.path.rglob("*"):
        if path.suffix in (".json", ".folded"):
            assert not re.search(r"[\"(\s=]/[A-Za-z]", path.read_text(encoding="utf-8")), path.name
    assert run.read_manifest()["status"] == "complete"


def test_rates_are_those_of_the_committed_trials() -> None:
    file = ROOT / "results" / FILE
    trials = read_trials(file) if file.exists() else []
    assert sum(trial.busy for trial in trials) == pytest.approx(len(trials) / 2, rel=0.05)
    assert in_a_sentence(trials) in (ROOT / "README.md").read_text(encoding="utf-8")
    assert in_tables(trials) in (ROOT / "METHODOLOGY.md").read_text(encoding="utf-8")


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in ROOT.glob("*.md"):
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", text):
            assert (ROOT / target).exists(), f"{document.name}: {target}"


def test_the_committed_sessions_are_those_of_the_page() -> None:
    lines = (ROOT / session_trials.KEPT).read_text(encoding="utf-8").splitlines()
    known = [session_trials.Session.read(line) for line in lines]
    page = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert session_trials.shift_table(known) in page and session_trials.decision_table(known) in page
