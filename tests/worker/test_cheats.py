"""Nothing wrong is called fast: variants that are right at their gates and cheat when they are timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.session import run as session
from tests import cheats
from tests.measure.test_measure import run

pytestmark = pytest.mark.usefixtures("warm")

CHEATS = ROOT / "tests" / "cheats.py"


def tries(*words: str) -> dict[str, dict]:
    """What became of each cheat, by name; all in one process, as a measuring process and an examiner would."""
    out = subprocess.run(
        [sys.executable, "-m", "tests.cheats", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = [json.loads(line) for line in out.stdout.splitlines()]
    assert {one["name"] for one in found} == {*(words[2:] or [*cheats.CAUGHT, *cheats.HARMLESS])}, out.stderr[-3000:]
    return {one["name"]: one for one in found}


@pytest.fixture(scope="module")
def tried() -> dict[str, dict]:
    return tries()


@pytest.mark.covers("harness/examiner", "harness/calls", "harness/machine", "harness/measure", "harness/worker")
@pytest.mark.long
def test_blocks_catch_them_too():
    """Those whose discovery depends on what a process has seen and started; each block has processes of its own."""
    names = ("zeros_when_timed", "in_a_thread", "in_a_process", "clocks", "leaves_patch", "remembers_in_process")
    for name, one in tries("blocks", "prefill-tiny-t16", *names).items():
        if name in cheats.CAUGHT:
            assert any(said in (one["reason"] or "") for said in cheats.CAUGHT[name].split("|")), one
        else:
            assert one["reason"] is None and one["ratio"] < 2, one


@pytest.mark.covers("harness/examiner", "harness/calls", "harness/machine", "harness/measure", "harness/worker")
@pytest.mark.long
@pytest.mark.parametrize("name", cheats.CAUGHT)
def test_a_cheat_falls_out_with_its_reason(tried, name):
    assert tried[name]["reason"] is not None, tried[name]
    assert any(said in tried[name]["reason"] for said in cheats.CAUGHT[name].split("|")), tried[name]


@pytest.mark.covers("harness/examiner", "harness/calls", "harness/machine", "harness/measure", "harness/worker")
@pytest.mark.long
@pytest.mark.parametrize("name", cheats.HARMLESS)
def test_what_only_looks_fast_gains_nothing(tried, name):
    """Medians of a few short rounds; the gains that were once believed were 17 to 178 times."""
    assert tried[name]["reason"] is None, tried[name]
    assert tried[name]["ratio"] < 2


@pytest.fixture(scope="module")
def cheated(tmp_path_factory: pytest.TempPathFactory) -> session.Result:
    """A real run with several of them side by side."""
    names = ("honest", "clocks_by_frame", "old_buffer", "closes_files")
    request = Request(
        variants=("candle", *names), added=tuple(f"{CHEATS}:{name}" for name in names), workloads=("prefill-tiny-t16",)
    )
    return run(tmp_path_factory.mktemp("cheated"), request, rounds=40, no_causes=True)[0]


@pytest.mark.covers("harness/examiner", "harness/calls", "harness/machine", "harness/measure", "harness/worker")
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("old_buffer", "logits of a timed call off by"),
        ("closes_files", "closes files that it did not open"),
        ("clocks_by_frame", "takes no time by the clocks"),
    ],
)
def test_the_run_goes_on_without_it(cheated, name, said):
    reasons = {item.variant: item.reason for item in cheated.manifest.excluded}
    assert reasons.keys() == {"old_buffer", "closes_files", "clocks_by_frame"}
    assert said in reasons[name]
    verdicts = {verdict.title: verdict.verdict for verdict in cheated.verdicts}
    assert verdicts[f"{name} against candle"] == "not evidence"
    assert set(cheated.folder.read_samples().frame()["variant"].unique()) >= {"candle", "honest"}


def test_who_writes_answers_into_the_pipe_is_left_out(tmp_path):
    """Alone: it writes into whatever is open, and what is in the pipe does not say by whom."""
    request = Request(
        variants=("fast", "yardstick", "scribbles"), added=(f"{CHEATS}:scribbles",), workloads=("prefill-tiny-t16",)
    )
    result, _ = run(tmp_path, request, rounds=2)
    (excluded,) = result.manifest.excluded
    assert excluded.variant == "scribbles"
    assert "writes into the pipe by which its process answers" in excluded.reason
    assert set(result.folder.read_samples().frame()["variant"].unique()) >= {"fast", "yardstick"}
