"""The Attribution page: effects as they were judged, and in words."""

from __future__ import annotations

import math
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_workbench import ROOT
from llama_workbench.datasets import workloads
from llama_workbench.harness.claims.reading import check_claim
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.judge.parts import judge_claims
from llama_workbench.harness.report.ladder import ladder_of, ladder_rows
from llama_workbench.harness.slices.attribution.metric import GRID, contrasts
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.spec.words import ARCHITECTURE, OPERATIONS, TOTAL
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.store.verdict_schema import Effect
from tests import runs
from tests.dashboard_pages import alts, everything, open_page
from tests.dashboard_runs import HOSTILE, MARKUP
from tests.verdicts import an_effect

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")


from llama_workbench.dashboard.export.svg import forest_svg
from llama_workbench.dashboard.views import data, forest
from llama_workbench.harness.slices.attribution import effects

PAGE, ANSWER = (ROOT / "dashboard" / "page_scripts" / f"{name}.py" for name in ("explore", "answer"))
CELLS = GRID.cells()
ONLY = ("prefill-15m-t128", "decode-15m-c64")


def write_grid_run(
    folder: Path, gains: Mapping[str, float], *, rounds: int = 60, without: str = "", seed: int = 0
) -> RunFolder:
    """A run of all combinations; each factor's gain (log units) makes its new level faster. Really judged."""
    run = RunFolder.create(folder)
    rng = np.random.default_rng(seed)
    truth = sum((gain / 2 * contrasts()[name] * len(CELLS) / 2 for name, gain in gains.items()), np.zeros(len(CELLS)))
    for workload in ONLY:
        for number in range(rounds):
            logs = math.log(1e7) + rng.normal(0, 0.05) - truth + rng.normal(0, 0.004, (3, len(CELLS)))
            samples = [
                Sample(name, sub_round, place, 8, 4, round(math.exp(logs[sub_round, place]) * 4), 50_000_000, 0)
                for sub_round in range(3)
                for place, name in enumerate(CELLS)
                if name != without
            ]
            run.append_round(Round(workload, number + 1, number, tuple(samples)))
    run.finish()
    operations = {name: str(signs[2:]) for name, signs in zip(CELLS, GRID.signs(), strict=True)}
    manifest: dict[str, Any] = {
        "format": 1,
        "unit": "process",
        "id": run.path.name,
        "started": "2026-01-02T03:04:05+00:00",
        "status": "complete",
        "alpha": 0.01,
        "seed": seed,
        "environment": dict(runs.ENVIRONMENT),
        "experiments": [
            {
                "workload": workloads.get(name).model_dump(mode="json"),
                "variants": [cell for cell in CELLS if cell != without],
                "traces": {cell: {"digest": digest, "ops": 10} for cell, digest in operations.items()},
            }
            for name in ONLY
        ],
    }
    claim = tomllib.loads((ROOT / "claims" / "arch-or-ops.toml").read_text())
    verdicts = judge_claims(
        [check_claim(claim, "claims")], evidence_from_manifest(manifest_of(manifest), run.read_samples())
    )
    run.write_json("run.json", manifest)
    run.write_json("claims.json", [claim])
    run.write_json("verdicts.json", verdicts)
    return run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    write_grid_run(results / "runs" / "both", {"layout": 0.03, "ops": 0.09})
    return results


def a_claim(home: Path) -> data.Claim:
    return data.read_run(home / "runs" / "both").claims[0]


def test_effects_are_those_of_the_verdicts_in_groups(home: Path) -> None:
    claim = a_claim(home)
    shown = effects.rows(claim, ONLY[0])
    assert [effect.workload for effect in shown.effects[:3]] == [ARCHITECTURE, OPERATIONS, TOTAL]
    assert len(shown.effects) == len(GRID.terms()) + 4 and shown.effects[-1].baseline == "control"
    judged = {effect.variant: effect for effect in claim.effects if effect.workload == ONLY[0]}
    for effect in shown.effects:
        source = judged[f"{effect.workload} new"]
        assert (effect.value, effect.low, effect.high, effect.verdict) == (
            source.value,
            source.low,
            source.high,
            source.verdict,
        )
    assert list(dict.fromkeys(effect.baseline for effect in shown.effects)) == list(effects.GROUPS)


def test_a_sentence_a_side_says_what_it_changes_and_whether_that_is_proven() -> None:
    def one(workload: str, side: str, low: float | None, high: float | None, verdict: str) -> Effect:
        sides = {"variant": f"{side} new", "baseline": f"{side} old"}
        return an_effect(workload=workload, value=1.0, low=low, high=high, verdict=verdict, **sides)

    judged = (
        one("prefill", ARCHITECTURE, 0.93, 1.07, "inconclusive"),
        one("prefill", OPERATIONS, 1.028, 1.21, "faster"),
        one("decode", ARCHITECTURE, None, 1.2, "not evidence"),
        one("decode", OPERATIONS, 0.8, 0.9, "slower"),
    )
    assert effects.headline(data.figure("", 0.01, judged)) == [
        "Operations: +2.8 to +21 % on prefill and -20 to -10 % on decode (proven).",
        "Architecture: -7 to +7 % on prefill (inconclusive); not bounded on decode (no evidence).",
    ]


def test_the_forest_names_groups_and_margin(home: Path) -> None:
    shown = effects.rows(a_claim(home), ONLY[0])
    svg = forest_svg(shown, {}, heading="")
    assert ">the split</text>" in svg and ">layout:cache:mask:ops</text>" in svg and "margin: no effect" in svg
    assert "dummy against control: " in forest.in_words(shown, {})


def test_the_page_shows_answer_and_effects(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_page(PAGE, monkeypatch, home, show="attribution", run="both", workload=ONLY[1])
    assert not app.exception
    text = everything(app)
    assert app.selectbox(key="workload").value == ONLY[1]
    assert text.count("Operations: +") == 1 and text.count("Architecture: +2") == 1
    assert "the speed-up is due to architecture" in text and "architecture's share of the total" in text
    assert "the speed-up is due to operations, on " in text
    assert "no difference, as expected" in text
    assert len(alts(app)) == 1 and all("decode, after 64 tokens, 15M" in alt for alt in alts(app))


def test_a_run_without_a_grid_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.write_run(tmp_path / "runs" / "plain", rounds=8, only=["decode-15m-c64"])
    app = open_page(PAGE, monkeypatch, tmp_path, show="attribution")
    assert not app.exception and "pytest --benchmark --claims arch-or-ops" in everything(app)


def test_the_page_answer_leads_to_the_steps_which_need_no_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    baselines = ROOT / "results" / "baselines"
    for name in ("reference", "fast-is-level"):
        shutil.copytree(baselines / name, tmp_path / name / "runs" / name)
    answer = open_page(ANSWER, monkeypatch, tmp_path / "reference")
    assert any("show=steps" in link.proto.query_string for link in answer.get("page_link"))
    run = data.read_run(baselines / "fast-is-level")
    ladder = ladder_of(run.claims, run.dispute, run.manifest)
    app = open_page(PAGE, monkeypatch, tmp_path / "fast-is-level", show="steps")
    assert not app.exception and "the steps give their joint gain" in everything(app)
    assert ladder is not None and len(app.dataframe[0].value) == len(ladder_rows(ladder))


def test_a_lost_cell_is_told_and_nothing_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_grid_run(tmp_path / "runs" / "lost", {"ops": 0.09}, rounds=8, without=CELLS[3])
    app = open_page(PAGE, monkeypatch, tmp_path, show="attribution")
    text = everything(app)
    assert not app.exception and "not evidence" in text.lower() and CELLS[3] in text


def test_without_samples_what_was_judged_is_still_shown(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path / "runs" / "bare")
    run.path.mkdir(parents=True)
    for name in ("run.json", "claims.json", "verdicts.json"):
        (run.path / name).write_bytes((home / "runs" / "both" / name).read_bytes())
    app = open_page(PAGE, monkeypatch, tmp_path, show="attribution")
    assert not app.exception and len(alts(app)) == 1


def test_hostile_names_are_text(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / "runs" / "hostile")
    run.path.mkdir(parents=True)
    for path in (home / "runs" / "both").iterdir():
        (run.path / path.name).write_bytes(path.read_bytes())
    verdicts = run.records("verdicts.json")
    for verdict in verdicts:
        verdict["claimed"] = verdict["title"] = MARKUP
        for effect in verdict["effects"]:
            effect["workload"] = f"{HOSTILE} {MARKUP}"
            effect["reason"], effect["notes"] = MARKUP, [MARKUP]
    run.write_json("verdicts.json", verdicts)
    app = open_page(PAGE, monkeypatch, tmp_path, show="attribution")
    assert not app.exception and HOSTILE in everything(app)
    assert not any(HOSTILE in str(element.value) for element in [*app.markdown, *app.caption])
