"""Nothing wrong is called fast: variants that are right at their gates and cheat when they are timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.plan.selection import Request
from tests import cheats
from tests.test_measure import run

CHEATS = ROOT / "tests" / "cheats.py"


@pytest.fixture(scope="module")
def tried() -> dict[str, dict]:
    """What became of each cheat, by name; all in one process, as a measuring process and an examiner would."""
    out = subprocess.run(
        [sys.executable, "-m", "tests.cheats"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = [json.loads(line) for line in out.stdout.splitlines()]
    assert {one["name"] for one in found} == {*cheats.CAUGHT, *cheats.HARMLESS}, out.stderr[-3000:]
    return {one["name"]: one for one in found}


@pytest.mark.parametrize("name", cheats.CAUGHT)
def test_a_cheat_falls_out_with_its_reason(tried, name):
    assert tried[name]["reason"] is not None, tried[name]
    assert cheats.CAUGHT[name] in tried[name]["reason"]


@pytest.mark.parametrize("name", cheats.HARMLESS)
def test_what_only_looks_fast_gains_nothing(tried, name):
    """Medians of a dozen short rounds; the gains that were once believed were 17 to 178 times."""
    assert tried[name]["reason"] is None, tried[name]
    assert tried[name]["ratio"] < 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("old_buffer", "logits of a timed call off by"),
        ("scribbles", "writes into the pipe by which its process answers"),
        ("closes_files", "closes files that it did not open"),
    ],
)
def test_the_run_goes_on_without_it(tmp_path, name, said):
    request = Request(
        variants=("fast", "yardstick", name), added=(f"{CHEATS}:{name}",), workloads=("prefill-tiny-t16",)
    )
    result, _ = run(tmp_path, request, budget_seconds=60.0)
    (excluded,) = result.manifest["excluded"]
    assert excluded["variant"] == name and said in excluded["reason"], excluded
    verdicts = {verdict.title: verdict.verdict for verdict in result.verdicts}
    assert verdicts[f"{name} against fast"] == "not evidence"
    assert verdicts["yardstick against fast"] in {"slower", "inconclusive"}
    assert set(result.folder.read_samples()["variant"].unique()) >= {"fast", "yardstick"}


def test_large_gains_are_timed_from_outside_too(tmp_path):
    """An honest one is confirmed and marked. One by clocks that were found by way of the stack is not: nothing in the
    process could tell, but the parent reads other clocks."""
    request = Request(
        variants=("candle", "honest", "clocks_by_frame"),
        added=(f"{CHEATS}:honest", f"{CHEATS}:clocks_by_frame"),
        workloads=("prefill-tiny-t16",),
    )
    result, _ = run(tmp_path, request, budget_seconds=40.0)
    (excluded,) = result.manifest["excluded"]
    assert excluded["variant"] == "clocks_by_frame" and "alone and timed from outside" in excluded["reason"], excluded
    verdicts = {verdict.title: verdict for verdict in result.verdicts}
    assert verdicts["clocks_by_frame against candle"].verdict == "not evidence"
    (effect,) = verdicts["honest against candle"].effects
    assert effect.verdict == "faster" and effect.warnings[-1].startswith("measured again, alone in fresh processes")
    found = {entry["variant"]: entry for entry in result.manifest["experiments"][0]["confirmations"]}
    assert found["honest"]["ratio"] == pytest.approx(effect.ratio, rel=0.3) and found["honest"]["calls"] > 100
