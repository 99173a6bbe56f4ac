"""README.md and VERDICTS.md say what the committed run gives."""

from __future__ import annotations

import re

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.calibrate.rates import in_a_sentence
from llama_workbench.harness.calibrate.record import read_trials
from llama_workbench.harness.store.folder import RunFolder


def test_the_committed_run_names_no_folder_of_a_machine() -> None:
    run = RunFolder(ROOT / "results" / "baselines" / "reference")
    for path in run.path.rglob("*"):
        if path.suffix in (".json", ".folded"):
            assert not re.search(r"[\"(\s=]/[A-Za-z]", path.read_text(encoding="utf-8")), path.name
    assert run.read_manifest()["status"] == "complete"


@pytest.mark.parametrize(
    ("file", "document"),
    [("calibration.jsonl", "README.md"), ("calibration-present-rule.jsonl", "results/README.md")],
)
def test_the_rate_of_wrong_verdicts_is_that_of_the_committed_trials(file: str, document: str) -> None:
    _, trials = read_trials(ROOT / "results" / file)
    assert sum(trial.busy for trial in trials) == pytest.approx(len(trials) / 2, rel=0.05)
    assert in_a_sentence(trials) in (ROOT / document).read_text(encoding="utf-8")


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in ROOT.glob("*.md"):
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", text):
            assert (ROOT / target).exists(), f"{document.name}: {target}"
