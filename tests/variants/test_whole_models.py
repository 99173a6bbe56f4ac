"""Whole models: one layer held against all of them, and what a machine has no room for."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.checkpoints import load
from llama_workbench.datasets.geometries import parameter_count
from llama_workbench.datasets.synthetic_files import synthesize
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.judge.parts import judge_claims
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.session import run as session
from llama_workbench.harness.spec.experiments import Experiment
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.store.verdict_schema import Verdict
from llama_workbench.harness.worker.model_gating import _wide
from tests.calls.test_readings import a_claim
from tests.runs import Quiet
from tests.tables import table_of

PART, WHOLE = "prefill-tinyllama-1layer-t8", "prefill-tinyllama-t8"
GIB = 2**30


def test_one_layer_has_its_share_of_the_whole() -> None:
    whole, part = (geometries.get(name).config for name in ("tinyllama", "tinyllama-1layer"))
    assert parameter_count(whole) == 1_100_048_384
    assert part == replace(
        whole, num_hidden_layers=1, vocab_size=round(whole.vocab_size / whole.num_hidden_layers + 0.1)
    )
    assert parameter_count(geometries.get("7b").config) == 6_738_415_616


def test_weights_are_stored_in_the_type_of_their_geometry(tmp_path: Path) -> None:
    half = replace(geometries.get("tiny"), name="half", dtype="bfloat16")
    checkpoint = load(synthesize(half, cache=tmp_path), dtype=torch.bfloat16, cache=tmp_path)
    [file] = (tmp_path / "checkpoints").glob("half-bfloat16-*/model.safetensors")
    assert file.stat().st_size < 2.2 * parameter_count(half.config) + 10_000
    assert _wide(checkpoint) == torch.float64
    assert _wide(replace(checkpoint, parameters=10**9)) == torch.float32
    assert _wide(replace(checkpoint, parameters=7 * 10**9)) == torch.bfloat16


def judged(*gains: float, **left_out: str) -> Verdict:
    """The verdict where `new` gains so much (log units) on one layer and on 22. left_out: of the second workload's
    variants, why they are."""
    rng, rows = np.random.default_rng(5), []
    for workload, gain, scale in ((PART, gains[0], 1.0), (WHOLE, gains[1], 40.0)):
        for name, shift in (("old", gain), ("new", 0.0)):
            for index in range(60 if not (left_out and workload == WHOLE) else 0):
                ns = round(1e6 * scale * math.exp(shift + rng.normal(0, 0.004)))
                rows.append((workload, name, index + 1, index, 0, 1, ns, ns, 0))
    columns = ("workload", "variant", "process", "round", "sub_round", "repeats", "cpu_ns", "wall_ns", "faults")
    manifest: dict[str, Any] = {
        "checkpoints": {"tinyllama-1layer": {"layers": 1}, "tinyllama": {"layers": 22}},
        "experiments": [
            {"workload": workloads.get(name).model_dump(), "variants": ["new", "old"]} for name in (WHOLE, PART)
        ],
    }
    manifest["experiments"][0]["excluded"] = [{"variant": name, "reason": why} for name, why in left_out.items()]
    evidence = evidence_from_manifest(manifest_of(manifest), table_of(pd.DataFrame(rows, columns=list(columns))))
    asked = {"metric": "trend", "variant": "new", "baseline": "old", "workloads": [PART, WHOLE], "range": [-5, 5]}
    [verdict] = judge_claims([a_claim(**asked)], evidence)
    return verdict


@pytest.mark.parametrize(
    ("gains", "verdict", "percent"),
    [
        ((0.3, 0.3), "supported", 0),
        ((0.3, 0.27), "supported", 100 * math.expm1(-0.03)),
        ((0.3, 0.1), "refuted", 100 * math.expm1(-0.2)),
        ((0.3, 0.3 + math.log(1.05)), "inconclusive", 5),
    ],
)
def test_the_gain_of_the_whole_is_held_against_that_of_one_layer(
    gains: tuple[float, float], verdict: str, percent: float
) -> None:
    """How long the whole takes does not matter for it: 40 times one layer, and not 22."""
    found = judged(*gains)
    assert found.verdict == verdict, found.reason
    [effect] = found.effects
    assert effect.low < percent < effect.high and effect.high - effect.low < 4
    assert (effect.workload, effect.unit, effect.rounds) == (f"{PART} to {WHOLE}", "% rise", 60)


def test_a_model_without_room_leaves_the_claim_open_with_the_reason() -> None:
    found = judged(0.3, 0.3, new="no room: 18.8 GiB are needed", old="no room: 18.8 GiB are needed")
    assert found.verdict == "not measurable here" and "no room: 18.8 GiB are needed" in found.reason


def experiment(name: str, *variants: str) -> Experiment:
    return Experiment(workloads.get(name), variants, variants[0], (), ())


def test_room_is_asked_for_weights_and_copies_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(free: float, name: str, *variants: str, cache: Path | None = None) -> str:
        monkeypatch.setattr(session, "available_bytes", lambda: int(free * GIB))
        work = experiment(name, *variants)
        return session.no_room(work, geometries.get(work.workload.geometry), cache)

    # Weights once, Q and K of the planned one once more (2 GiB), four processes (2), a matrix in float32 (0.49).
    assert asked(17.1, "prefill-7b-bf16-t8", "team005_planned", "yardstick") == ""
    few = asked(17, "prefill-7b-bf16-t8", "team005_planned", "yardstick")
    assert few == "no room: 17.05 GiB of memory are needed (12.55 GiB of weights), 17.00 GiB are free"
    assert "17.16 GiB of memory" in asked(17, "prefill-7b-bf16-t128", "team005_planned", "yardstick")  # keys and values
    assert "27.35 GiB of memory" in asked(19, "prefill-7b-bf16-t8", "fast")  # a copy of all matrices
    assert "27.59 GiB of memory" in asked(19, "prefill-7b-bf16-t8", "somebody's")  # nobody knows what it holds
    assert asked(0, PART, "fast") == ""
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 4 * GIB}))
    full = asked(100, WHOLE, "fast", cache=tmp_path / "not" / "there")
    assert full.startswith("no room: 4.10 GiB of ") and full.endswith("needed for the checkpoint, 4.00 GiB are free")


@pytest.mark.usefixtures("warm")
def test_a_run_goes_on_without_what_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "no_room", lambda one, *_: "no room" if one.workload.kind == "prefill" else "")
    names = ("prefill-tiny-t16", "mask-create-apply-t8")
    request = Request(compare=("team006_before", "team006_after"), workloads=names)
    options = Options(run_dir=tmp_path / "run", gates_only=True)
    session.Run(session.plan_run(request, options), options, Quiet()).measure()
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    model, mask = manifest["experiments"]
    assert {entry["reason"] for entry in model["excluded"]} == {"no room"} and not model["gates"]
    assert not mask["excluded"] and all(gate["passed"] for gate in mask["gates"].values())
    assert not (tmp_path / "cache" / "checkpoints").exists()
