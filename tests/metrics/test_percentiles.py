"""Percentiles of single calls: how many calls a process has, which number a process gives, and two functions whose
medians are the same and whose slow calls are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from llama_workbench.datasets.lengths import PERCENTILES, Statistic, least_calls
from llama_workbench.datasets.workloads import Workload
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.evidence.evidence import Design
from llama_workbench.harness.measure.choosing import can_be_apart, round_seconds
from llama_workbench.harness.measure.participants import ExperimentState
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.report.outcome import command_of
from llama_workbench.harness.session.run import go_on
from llama_workbench.harness.stats.samples import LogTimes, differences
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.worker.rounds import shape_of_round
from tests.measure.test_measure import run
from tests.unchanged import SESSIONS

pytestmark = pytest.mark.covers(*SESSIONS)

TAILS = """\
def steady(number):
    return sum(range(2000))


def now_and_then(number):
    if number % 5 == 0:
        sum(range(8000))
    return sum(range(2000))


def numbers(seed):
    return (seed,)
"""
"""Every fifth call of the second does four times more."""

CLAIM = """\
id = "slowest"
title = "The slowest calls are slower"
who = ["somebody"]
source = [{ document = "a thread", section = "a comment" }]
statement = "Now and then a call takes longer."
assumes = ["nothing"]
decided_by = "Both on the same numbers."

[[function]]
name = "steady"
source = "tails.py:steady"

[[function]]
name = "now_and_then"
source = "tails.py:now_and_then"

[[call]]
name = "numbers"
payload = "tails.py:numbers"
statistic = "p95"

[[hypothesis]]
evidence = "context"
variant = "now_and_then"
baseline = "steady"
workloads = ["numbers"]
metric = "time"
slower_than_percent = 1
"""

ASKED: dict[str, Any] = {"compare": ("tails.py:steady", "tails.py:now_and_then"), "calls": ("tails.py:numbers",)}


@pytest.fixture
def tails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tails.py").write_text(TAILS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("statistic", PERCENTILES)
def test_a_process_has_enough_calls_and_each_is_timed_by_itself(statistic: Statistic) -> None:
    work = Workload(
        name="w", kind="call", geometry="", tokens=1, payload="a.py:f", statistic=statistic, description="w"
    )
    shape = shape_of_round(work, {"a": 1e5, "b": 3e5}, once=False, sample_ns=2e5, rebuild_ns=1e6)
    assert shape.repeats == {"a": 1, "b": 1} and shape.sub_rounds >= least_calls(statistic) and shape.prime
    assert get_args(Statistic) == tuple(PERCENTILES)
    assert [least_calls(name) for name in (None, *PERCENTILES)] == [0, 20, 40, 200]
    slow = shape_of_round(work, {"a": 1e8, "b": 1e8}, once=False, sample_ns=2e5, rebuild_ns=1e6)
    assert slow.sub_rounds - least_calls(statistic) in (0, 1)
    with pytest.raises(ValueError, match="statistic"):
        Workload(name="w", kind="prefill", geometry="tiny", tokens=4, statistic="p99", description="w")


def test_a_process_gives_the_ratio_of_its_percentiles() -> None:
    rng = np.random.default_rng(1)
    logs = rng.normal(size=(3, 200, 2))
    logs[1, 150:, 1] = np.nan  # what a side lacks counts on neither
    nothing = np.zeros_like(logs)
    times = LogTimes(("old", "new"), ((1, 0), (2, 1), (3, 2)), logs, nothing, nothing + 1, 0.9)
    found = differences(times.of(("new", "old")), baseline="old", variant="new")
    kept = [slice(None), slice(0, 150), slice(None)]
    wanted = [np.quantile(logs[n, part, 0], 0.9) - np.quantile(logs[n, part, 1], 0.9) for n, part in enumerate(kept)]
    assert found.values == pytest.approx(wanted)
    assert Design(statistics={"w": "p90"}).quantile("w") == 0.9 and Design().quantile("w") is None


def test_medians_are_the_same_and_the_slow_calls_are_not(tails: Path) -> None:
    result, _ = run(tails, Request(**ASKED, statistic="p90"), rounds=24)
    [verdict] = result.verdicts
    [effect] = verdict.effects
    assert (effect.workload, effect.metric) == ("numbers-p90", "cpu p90")
    assert effect.verdict == "slower" and effect.high < 0.8
    [experiment] = result.manifest.experiments
    assert experiment.own_processes and not experiment.workload.calm, "each sees the collections that it causes"
    samples = result.folder.read_samples().frame()
    assert set(samples["repeats"]) == {1} and "function_yardstick" not in set(samples["variant"])
    assert samples.groupby(["process", "variant"], observed=True).size().min() >= 20
    medians = (samples["cpu_ns"].groupby(samples["variant"], observed=True)).median()
    assert medians["now_and_then"] < 1.5 * medians["steady"]
    command = ["pytest", "--benchmark", "--compare", *ASKED["compare"], "--call", *ASKED["calls"], "--statistic=p90"]
    assert "--statistic p90" in command_of(verdict, manifest_of({**result.folder.read_manifest(), "command": command}))
    earlier, _ = go_on(RunFolder(tails / "run"), Options(), Request(**ASKED), budget=1.0)
    assert earlier.plan.experiments[0].workload.statistic == "p90"


def test_functions_are_not_measured_in_blocks(tails: Path) -> None:
    wanted: tuple[tuple[Statistic | None, int], ...] = ((None, 3), ("p99", 400))
    for statistic, calls in wanted:
        plan = make_plan(Request(**ASKED, statistic=statistic), [])
        [experiment] = plan.experiments
        state = ExperimentState(experiment, None)
        state.call_ns = {"steady": 2e6, "now_and_then": 2e6}
        assert not can_be_apart(state, experiment.targets[0].comparison)
        assert round_seconds(state) == pytest.approx(calls * 4e-3)


def test_a_claim_asks_for_one(tails: Path) -> None:
    (tails / "slowest.toml").write_text(CLAIM, encoding="utf-8")
    [claim] = load_claims(tails)
    [experiment] = make_plan(Request(), [claim]).experiments
    assert (experiment.workload.name, experiment.workload.statistic) == ("numbers", "p95")
    (tails / "slowest.toml").write_text(CLAIM.replace("p95", "p50"), encoding="utf-8")
    with pytest.raises(ClaimError, match='"p90", "p95" or "p99"'):
        load_claims(tails)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--compare fast library --statistic p99", "--statistic p99: only with --call FILE:FUNCTION"),
        ("--compare tails.py:steady new=tails.py:now_and_then --call tails.py:numbers --statistic p98", "expected p90"),
    ],
)
def test_what_has_none_is_told(run_pytest: Callable[..., Any], words: str, told: str) -> None:
    said = run_pytest("--benchmark", *words.split())
    assert said.returncode == 4 and told in said.stderr, said.stderr
