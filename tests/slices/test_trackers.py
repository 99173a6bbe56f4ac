"""Times for services that draw them over commits: in the form that they publish, and the figures of the run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.report.standings import read_standings
from llama_workbench.harness.slices.trackers.command import FORMATS, bencher
from llama_workbench.harness.store.folder import RunFolder
from tests.commands.test_cli import fails, output
from tests.measure.test_measure import run as measured
from tests.metrics.test_percentiles import ASKED, TAILS
from tests.runs import write_run

NUMBER = {"type": "number"}
SCHEMAS: dict[str, dict[str, Any]] = {
    # https://bencher.dev/bmf.json: any names, and of each measure a value and perhaps its bounds
    "bencher": {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "type": "object",
                "properties": {"value": NUMBER, "lower_value": NUMBER, "upper_value": NUMBER},
                "required": ["value"],
                "additionalProperties": False,
            },
        },
    },
    # README of benchmark-action/github-action-benchmark: name, unit and value, and perhaps range and extra
    "github-action-benchmark": {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "properties": {"value": NUMBER} | {name: {"type": "string"} for name in ("name", "unit", "range", "extra")},
            "required": ["name", "unit", "value"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("trackers") / "run")


@pytest.mark.parametrize("name", FORMATS)
def test_it_has_the_form_that_the_service_publishes(run: RunFolder, name: str) -> None:
    content = json.loads(output("export", run.path, "--format", name))
    jsonschema.validate(content, SCHEMAS[name])
    assert len(content) == len(read_standings(run).rows) * (2 if name != "bencher" else 1)


def test_the_figures_are_those_of_the_run(run: RunFolder) -> None:
    found = json.loads(output("export", run.path))
    row = read_standings(run).rows[0]
    relative = found[f"{row.workload}/{row.variant}"]["relative-time"]
    assert relative["value"] == pytest.approx(math.exp(-row.log_ratio))
    assert relative["lower_value"] < relative["value"] < relative["upper_value"]
    samples = run.read_samples().frame()
    mine = samples[(samples["workload"] == row.workload) & (samples["variant"] == row.variant)]
    each = (mine[f"{row.clock}_ns"] / mine["repeats"]).median()
    assert found[f"{row.workload}/{row.variant}"]["latency"]["value"] == pytest.approx(each)
    [entry] = [
        each
        for each in json.loads(output("export", run.path, "--format", "github-action-benchmark"))
        if each["name"] == f"{row.workload}/{row.variant}"
    ]
    assert entry["value"] == relative["value"] and entry["range"].startswith("± 0.0")


def test_of_a_percentile_the_call_is_that_percentile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tails.py").write_text(TAILS, encoding="utf-8")
    made, _ = measured(tmp_path, Request(**ASKED, statistic="p90"), rounds=3)
    latency = bencher(made.folder)["numbers-p90/now_and_then"]["latency"]["value"]
    samples = made.folder.read_samples().frame()
    mine = samples[samples["variant"] == "now_and_then"]["cpu_ns"]
    assert latency == pytest.approx(mine.quantile(0.9)) and latency > 1.5 * mine.median()


def test_what_cannot_be_exported_is_told(tmp_path: Path, run: RunFolder) -> None:
    assert "did you mean 'bencher'?" in fails("export", run.path, "--format", "benchr")
    short = write_run(tmp_path / "short", rounds=3)
    assert all(measures.keys() == {"latency"} for measures in json.loads(output("export", short.path)).values())
    assert {e["unit"] for e in json.loads(output("export", short.path, "--format", "github-action-benchmark"))} == {
        "ns"
    }
