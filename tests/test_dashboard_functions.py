"""A run that compared two functions, on every page: no words of models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.session.judging import rejudge
from llama_workbench.harness.spec.table import NameColumn, Table
from llama_workbench.harness.store.files import MANIFEST, SAMPLES
from llama_workbench.harness.store.tables import write_table
from tests import runs

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")


from tests.dashboard_pages import everything, open_in_app

APP = ROOT / "dashboard" / "app.py"
OF_MODELS = re.compile(r"(?i)llama|logits|token|forward|layer|prefill|decode|operations|yardstick|torch\.nn")


NAMES = {"team006_before": "old.total", "team006_after": "new.total", "decode-15m-c64": "numbers"}
PAGES = ("answer", "claim", "compare", "attribution", "breakdown", "memory", "runs", "two_runs", "trust")
EXPLORED = ("attribution", "breakdown", "memory")


def renamed(text: str) -> str:
    for old, new in NAMES.items():
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as `--compare old.py:total new.py:total --call mine.py:numbers` leaves it."""
    results = tmp_path_factory.mktemp("results")
    pair = ("team006_before", "team006_after")
    others = [name for name in runs.FACTORS if name not in pair and not name.startswith("team006_before@")]
    run = runs.write_run(
        results / "runs" / "two", rounds=12, compare=pair, only=["decode-15m-c64"], without=others, judged=False
    )
    table = run.read_samples()
    other = {name: table.names(name) for name in ("workload", "variant")}
    other = {name: NameColumn(tuple(map(renamed, column.values)), column.codes) for name, column in other.items()}
    write_table(Table({**table.columns, **other}), run.path / SAMPLES)
    (run.path / MANIFEST).write_text(renamed((run.path / MANIFEST).read_text()))
    manifest = run.read_manifest()
    [experiment] = manifest["experiments"]
    experiment["workload"] = {"name": "numbers", "kind": "call", "payload": "mine.py:numbers", "tokens": 1}
    gates = {name: {"passed": True, "cases": 3} for name in experiment["variants"]}
    experiment |= {"gates": gates, "traces": {}, "trace_differences": []}
    command = ["pytest", "--benchmark", "--compare", "old.py:total", "new.py:total", "--call", "mine.py:numbers"]
    run.write_json("run.json", manifest | {"command": command, "checkpoints": {}})
    verdicts, judged = rejudge(run)
    run.write_json("verdicts.json", verdicts)
    run.write_json("run.json", judged)
    return results


@pytest.mark.parametrize("page", PAGES)
def test_no_page_speaks_of_models(page: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_in_app(page, monkeypatch, home)
    assert not app.exception
    text = everything(app)
    if page in EXPLORED:
        assert app.title[0].value == "Explore" and "--compare old.py:total new.py:total" in text
    assert not OF_MODELS.findall(text)
    if page in ("claim", "compare"):
        assert "both functions gave the same answers" in text and "new.total against old.total" in text
        assert "--compare old.py:total new.py:total --call mine.py:numbers" in text
