"""Runs over time: the same code is put together, and planted steps get their commit and their size."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_workbench.commands.app import main
from llama_workbench.harness.baselines import course
from llama_workbench.harness.baselines.course import DatedRun, all_change_points, change_points_of, stages
from llama_workbench.harness.stats.change_points import LEAST_PART, change_points
from llama_workbench.harness.store.schema import RelativeTime, Standings, WorkloadResult
from tests.runs import ENVIRONMENT, write_run

KEY = ("decode-15m-c64", "fast")


def dated(number: int, commit: str, log_ratio: float, *, dirty: bool = False, **environment: Any) -> DatedRun:
    """A run of one variant: the log of its ratio to the reference benchmark, above 0 faster."""
    facts = {**ENVIRONMENT, "commit": {"id": commit * 10, "dirty": dirty} if commit else None, **environment}
    time = RelativeTime(*KEY, "cpu", log_ratio, log_ratio - 0.01, log_ratio + 0.01, 30, False, 0.0)
    return DatedRun(
        f"run-{number}",
        Standings(
            name=f"run-{number}",
            started=f"2026-01-01T00:{number:02}:00+00:00",
            status="complete",
            environment=facts,
            noise="",
            workloads={KEY[0]: WorkloadResult({"name": KEY[0], "kind": "decode"}, "weights", "yardstick", 0.0)},
            subjects=(KEY,),
            rows=(time,),
            dropped=(),
            fired=(),
        ),
    )


def history(commits: Sequence[str], slower: Sequence[float], noise: float = 0.01, seed: int = 0) -> list[DatedRun]:
    """A run for each commit, whose time is that many percent more than at the beginning."""
    rng = np.random.default_rng(seed)
    times = enumerate(zip(commits, slower, strict=True))
    return [dated(n, commit, -math.log1p(more / 100) + noise * rng.normal()) for n, (commit, more) in times]


def test_runs_of_the_same_code_on_one_machine_are_one_stage() -> None:
    runs = [
        dated(0, "a", 0.0),
        dated(1, "b", 0.0),
        dated(2, "a", 0.0),  # measured again later
        dated(3, "b", 0.0, dirty=True),
        dated(4, "", 0.0),
        dated(5, "b", 0.0, cpu_model="Another CPU"),
    ]
    names = [[[run.name for run in stage] for stage in each] for each in stages(runs, KEY)]
    assert names == [[["run-0", "run-2"], ["run-1"], ["run-3"], ["run-4"]], [["run-5"]]]


def test_a_planted_step_has_its_commit_and_its_size() -> None:
    commits = [name for name in "abcdefgh" for _ in range(3)]
    for seed in range(5):
        found = change_points_of(history(commits, [0.0] * 15 + [5.0] * 9, seed=seed), KEY)
        [step] = [each for each in found if each.first_run == "run-15"]
        assert (step.before, step.after) == ("e" * 10, "f" * 10) and found == [step]
        assert (step.runs_before, step.runs_after) == (15, 9)
        assert 3 < step.low_percent < step.change_percent < step.high_percent < 7


def test_a_slow_down_and_its_repair_are_two_steps() -> None:
    found = change_points_of(history("abcdefghijklmnopqrstuvwx", [0.0] * 9 + [8.0] * 6 + [0.0] * 9), KEY)
    assert [(step.before[0], step.after[0], step.change_percent > 0) for step in found] == [
        ("i", "j", True),
        ("o", "p", False),
    ]


def test_a_step_within_one_commit_is_none_of_the_code() -> None:
    assert change_points_of(history("a" * 24, [0.0] * 12 + [8.0] * 12), KEY) == []


def test_another_machine_has_a_course_of_its_own() -> None:
    runs = history("abcdefghijkl", [0.0] * 12)
    other = [dated(20 + n, "abcdefghijkl"[n], 0.5 + 0.001 * (n % 2), cpu_model="Another CPU") for n in range(12)]
    assert all_change_points([*runs, *other]) == []


def test_only_the_newest_runs_of_a_long_course_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = history("abcdefghijklmnopqrstuvwx", [0.0] * 9 + [8.0] * 15)
    assert len(change_points_of(runs, KEY)) == 1
    monkeypatch.setattr(course, "MOST_RUNS", 14)
    assert change_points_of(runs, KEY) == []


def test_the_command_names_commit_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        commit = {"id": f"{number // 2:x}" * 40, "dirty": False}
        write_run(
            tmp_path / "runs" / f"run-{number}",
            seed=number,
            rounds=15,
            only=["decode-15m-c64"],
            judged=False,
            factors={"team005_hybrid": 1.09 * (1.1 if number >= 6 else 1.0)},
            environment={"commit": commit},
            manifest={"started": f"2026-01-01T00:{number:02}:00+00:00"},
        )
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "run.json").write_text("{")

    def said(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["history", *words])
        out = capsys.readouterr()
        assert not ended.value.code and "broken" in out.err
        return out.out

    text = said(str(tmp_path / "runs"))
    assert "team005_hybrid" in text and "2222222222" in text and "3333333333" in text and "6 and 6" in text
    [step] = json.loads(said(str(tmp_path / "runs"), "--json"))
    assert step["low_percent"] < 10 < step["high_percent"] and step["after"] == "3" * 10
    with pytest.raises(SystemExit) as ended:
        main(["history", str(tmp_path / "nowhere")])
    assert ended.value.code == 2 and "no such folder" in capsys.readouterr().err


# Changes of a history: planted steps are found where they are, and histories without any get none.


def energy(first: np.ndarray, second: np.ndarray) -> float:
    """By its definition."""

    def inside(part: np.ndarray) -> float:
        return float(np.mean([abs(x - y) for i, x in enumerate(part) for y in part[:i]]))

    between = float(np.mean([abs(x - y) for x in first for y in second]))
    return (2 * between - inside(first) - inside(second)) * first.size * second.size / (first.size + second.size)


def test_the_energy_of_every_cut_is_that_of_the_definition() -> None:
    from llama_workbench.harness.stats.change_points import _energies

    values = np.random.default_rng(0).standard_normal(11)
    found = _energies(values)
    for cut in range(values.size):
        if LEAST_PART <= cut <= values.size - LEAST_PART:
            ends = range(cut + LEAST_PART, values.size + 1)
            assert found[cut] == pytest.approx(max(energy(values[:cut], values[cut:end]) for end in ends))
        else:
            assert found[cut] == -np.inf


@pytest.mark.covers("harness/stats")
@pytest.mark.long
@pytest.mark.parametrize("noise", ["normal", "heavy", "skewed"])
def test_series_without_a_change_get_one_as_rarely_as_promised(noise: str) -> None:
    rng = np.random.default_rng(7)
    histories = {
        "normal": rng.standard_normal((300, 24)),
        "heavy": rng.standard_t(2, (300, 24)),
        "skewed": rng.exponential(1.0, (300, 24)),
    }[noise]
    alarms = sum(bool(change_points(values, alpha=0.05, seed=number)) for number, values in enumerate(histories))
    assert alarms / 300 < 0.08  # 0.05, and two standard errors


@pytest.mark.covers("harness/stats")
@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(12, 4), (15, 15), (30, 3)])
def test_a_planted_step_is_found_where_it_is(before: int, after: int) -> None:
    rng = np.random.default_rng(before)
    hits = 0
    for number in range(20):
        values = 0.01 * rng.standard_normal(before + after)
        values[before:] += 0.05
        cuts = change_points(values, seed=number)
        hits += cuts[:1] == [before]
    assert hits >= 18


def test_several_steps_are_told_apart() -> None:
    rng = np.random.default_rng(3)
    levels = np.repeat([0.0, 0.05, -0.02, -0.02], 10)
    assert change_points(levels + 0.005 * rng.standard_normal(40)) == [10, 20]


def test_a_value_far_out_is_no_change_and_a_drift_back_is_two() -> None:
    values = 0.01 * np.random.default_rng(4).standard_normal(30)
    assert change_points(np.where(np.arange(30) == 12, 1.0, values)) == []
    assert change_points(np.where((np.arange(30) >= 12) & (np.arange(30) < 18), values + 0.08, values)) == [12, 18]


def test_it_changes_only_where_it_can() -> None:
    values = np.repeat([0.0, 1.0], [10, 10]) + 0.01 * np.random.default_rng(5).standard_normal(20)
    assert change_points(values, at=[4, 11, 16]) == [11]
    assert change_points(values, at=[]) == []


def test_few_values_equal_values_and_bad_ones() -> None:
    assert change_points([]) == change_points([1.0]) == change_points([0.0, 0.0, 1.0, 1.0]) == []
    assert change_points(np.zeros(50)) == []
    assert change_points(np.repeat([0.0, 1.0], 8)) == [8]
    with pytest.raises(ValueError, match="finite"):
        change_points([0.0, np.nan])
