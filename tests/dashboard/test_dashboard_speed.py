"""The benchmark of the dashboard runs; how fast it finds the pages is not asserted."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from llama_workbench.dashboard.views import entries as entry_views
from llama_workbench.harness.report.terminal import console, show
from studies import dashboard_speed


def test_pages_are_timed_on_runs_as_they_are_written(
    tmp_path: Path, chromium: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the pages, which is what tells whether the clock stops: each takes seconds on a machine that tests."""
    few = {name: dashboard_speed.VIEWS[name] for name in ("Answer", "Runs, two")}
    monkeypatch.setattr(dashboard_speed, "VIEWS", few)
    monkeypatch.setattr(dashboard_speed, "MENU", ("Answer", "Runs"))
    newest = dashboard_speed.write_results(tmp_path, runs=2, samples=2 * 960, frames=500)
    entries = entry_views.RunList(tmp_path).entries()
    assert {entry.name for entry in entries} == {"0001", "baselines/0000", dashboard_speed.FUNCTIONS}
    assert all(entry.summary.problem is None and entry.summary.verdicts for entry in entries)
    found = dashboard_speed.page_times(chromium, tmp_path, newest.path.name, times=1, visits=1)
    assert {*found} == {*dashboard_speed.VIEWS, *(f"{page}, by a click in the menu" for page in dashboard_speed.MENU)}
    assert all(0 < each.first <= each.settled for cold, warm in found.values() for each in (cold, *warm))
    written = io.StringIO()
    show(dashboard_speed.page_table(found), console(written, width=180))
    assert "Runs, two" in written.getvalue() and "of 1, " in written.getvalue()
