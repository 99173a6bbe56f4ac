"""A run that is being measured does not take the front page; a line says how far it is. A killed one is called so."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from llama_workbench.harness.machine.lifeline import Lock, is_held
from llama_workbench.harness.store.files import MANIFEST
from tests import runs

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from llama_workbench.dashboard.views import data, entries
from tests.dashboard_pages import everything, open_in_app


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run that is complete, and a newer one that is not."""
    runs.write_run(tmp_path / "runs" / "old", rounds=12, only=("prefill-15m-t128",))
    newer = runs.write_run(tmp_path / "runs" / "new", rounds=12, only=("prefill-15m-t128",))
    manifest = newer.read_manifest()
    [experiment] = manifest["experiments"]
    changed = {"status": "running", "started": "2030-01-01T00:00:00+00:00", "budget_seconds": 200.0, "sealed": None}
    newer.write_json(MANIFEST, manifest | changed | {"experiments": [experiment | {"seconds": 50.0}]})
    return tmp_path


def test_the_run_that_goes_on_is_told_and_another_is_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Lock()) as lock:
        lock.take(home / "runs" / "new")
        listed = entries.RunList(home).entries()
        assert entries.first_shown(listed).name == "old"
        assert [str(each) for each in entries.going_on(listed)] == [
            "new is being measured (yardstick, team006_before, team006_after and 2 more on prefill-15m-t128): "
            "25 % of the time for its rounds is used, 2 min 30 s left."
        ]
        assert data.read_run(home / "runs" / "new").unfinished.startswith("This run goes on")
        app = open_in_app("answer", monkeypatch, home)
        text = everything(app)
        assert not app.exception and "25 % of the time for its rounds" in text
        assert re.search(r"So far: [\d.]+× \[[\d.]+, [\d.]+\] team006_after against team006_before on prefill", text)
        assert dict(app.query_params)["run"] == "old"


def test_a_killed_run_is_called_killed(home: Path) -> None:
    folder = home / "runs" / "new"
    (folder / ".lock").write_text("1\n")
    assert not is_held(folder)
    listed = entries.RunList(home).entries()
    assert entries.going_on(listed) == [] and entries.first_shown(listed).name == "old"
    assert data.read_run(folder).unfinished.startswith("This run was killed")


def test_where_only_one_goes_on_it_is_shown(home: Path) -> None:
    listed = [entry for entry in entries.RunList(home).entries() if entry.name == "new"]
    assert entries.first_shown(listed).name == "new"
