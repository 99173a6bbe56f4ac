"""What a user sees of long work: how far it is never runs backwards within a phase."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from llama_workbench.harness.plugin import progress


def test_lines_never_run_backwards_within_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.0)
    text = io.StringIO()
    lines = progress.LineProgress(Console(file=text, width=200))
    for phase in ("rounds", "counts"):
        lines.phase(phase)
        for done in (0.2, 0.7, 0.6, 0.9, 0.4):
            lines.step("a workload", done, 10.0)
    assert re.findall(r"(\d+) %", text.getvalue()) == ["20", "70", "70", "90", "90"] * 2


def test_nothing_is_done_whole_while_there_are_seconds_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.0)
    text = io.StringIO()
    lines = progress.LineProgress(Console(file=text, width=200))
    lines.phase("rounds")
    for done, left in ((1.0, 300.0), (0.97, 20.0), (1.0, 0.0)):  # the budget is spent; what is nearly settled goes on
        lines.step("a workload", done, left)
    assert re.findall(r"(\d+) %", text.getvalue()) == ["99", "99", "100"]


def test_a_bar_never_runs_backwards_within_a_phase() -> None:
    bar = progress.LiveProgress(Console(file=io.StringIO(), force_terminal=True))
    try:
        seen = []
        for phase in ("rounds", "counts"):
            bar.phase(phase)
            for done in (0.2, 0.7, 0.6):
                bar.step("a workload", done, 10.0)
                seen.append(bar._progress.tasks[0].completed)
        assert seen == [0.2, 0.7, 0.7] * 2
    finally:
        bar.close()
