"""Is a machine fit to measure: the rules on machines that are not at hand, and this one asked."""

from __future__ import annotations

import contextlib
import io
import json
import math
from typing import Any

import pytest

from llama_workbench import ROOT
from llama_workbench.commands.app import main
from llama_workbench.harness.slices.doctor import command as doctor
from llama_workbench.harness.slices.doctor.command import Check, DoctorTrial, aa_trial, examine, examine_aa, read_facts
from llama_workbench.harness.slices.profiles import profiler as py_spy
from llama_workbench.harness.stats.confidence import Interval
from tests.runs import ENVIRONMENT, code_by_intervals

GOOD = dict(ENVIRONMENT) | {
    "governor": "performance",
    "cgroup_quota_cores": None,
    "available_bytes": 16 << 30,
    "siblings": False,
    "py_spy": "",
    "memray": True,
    "valgrind": True,
}


def checks(facts: dict[str, Any]) -> dict[str, Check]:
    return {check.name: check for check in examine(facts)}


def on(**facts: Any) -> dict[str, Any]:
    return GOOD | facts


def test_a_machine_without_faults_or_that_does_not_tell_has_nothing_to_mend() -> None:
    silent = {"cores": 4, "torch": "2.13.0", "py_spy": "", "memray": True, "valgrind": True}
    for facts in (GOOD, silent):
        assert {(check.state, check.fix) for check in examine(facts)} == {("ok", "")}


@pytest.mark.parametrize(
    ("facts", "name", "state"),
    [
        (on(cores=1, load_average=[0.1, 0, 0]), "cores", "warn"),
        (on(load_average=[1.2, 0, 0]), "load", "warn"),
        (on(load_average=[2.0, 0, 0]), "load", "bad"),
        (on(governor="powersave"), "governor", "warn"),
        (on(cgroup_quota_cores=0.5), "cgroup quota", "bad"),
        (on(cgroup_quota_cores=1.5), "cgroup quota", "warn"),
        (on(siblings=True), "threads", "warn"),
        (on(transparent_huge_pages="always"), "transparent huge pages", "warn"),
        (on(available_bytes=1 << 30), "free memory", "bad"),
        (on(available_bytes=4 << 30), "free memory", "warn"),
        (on(torch=None), "torch", "warn"),
        (on(py_spy=None), "py-spy", "warn"),
        (on(py_spy="Permission Denied"), "py-spy", "warn"),
        (on(memray=False), "memray", "warn"),
        (on(valgrind=False), "valgrind", "warn"),
    ],
)
def test_each_fault_is_one_line_with_its_fix(facts: dict[str, Any], name: str, state: str) -> None:
    found = checks(facts)
    assert found.pop(name).state == state and checks(facts)[name].fix
    assert {check.state for check in found.values()} == {"ok"}


def a_trial(low: float, high: float, **more: Any) -> DoctorTrial:
    """A trial by the ends of its interval in percent."""
    left, right = (math.log1p(end / 100) for end in (low, high))
    return DoctorTrial(Interval((left + right) / 2, left, right, 90, **more), sd=0.004, away=0.02, seconds=5.0)


def test_an_aa_trial_is_judged_by_width_and_by_what_it_leaves_out() -> None:
    assert examine_aa(a_trial(-0.4, 0.5)).state == "ok"
    assert examine_aa(a_trial(0.05, 0.5)).state == "ok"  # nobody claims a difference of 0.05 %
    assert examine_aa(a_trial(-2, 2)).state == "warn"
    assert examine_aa(a_trial(-6, 6)).state == "bad"
    assert examine_aa(a_trial(0.2, 0.6)).state == examine_aa(a_trial(-0.6, -0.2)).state == "bad"
    assert examine_aa(a_trial(-0.4, 0.5, unstable=True)).state == "bad"
    assert "[-0.40, +0.50] %" in examine_aa(a_trial(-0.4, 0.5)).found and "90 rounds" in examine_aa(a_trial(1, 2)).found
    few = DoctorTrial(Interval(0.0, -math.inf, math.inf, 3), 0.01, 0.0, 0.1)
    assert examine_aa(few).state == "warn" and "--seconds" in examine_aa(few).fix


def test_this_machine_answers() -> None:
    trial, facts = aa_trial(0.12), read_facts()
    assert trial.interval.n >= 1 and 0 <= trial.away <= 1 and abs(trial.interval.centre) < 0.5
    assert facts["cores"] >= 1 and facts["available_bytes"] > 0
    assert len([*examine(facts)]) == len([*examine(GOOD)])


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_seconds_must_be_a_time(capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", f"--seconds={seconds}"])
    assert ended.value.code == 2 and "--seconds" in capsys.readouterr().err


@pytest.mark.parametrize(("facts", "code"), [(GOOD, 0), (on(cgroup_quota_cores=0.5), 1)])
def test_the_command_exits_by_the_worst_line(facts: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "read_facts", lambda: facts)
    monkeypatch.setattr(doctor, "aa_trial", lambda seconds: a_trial(-0.4, 0.4))

    def said(*arguments: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
            main(["doctor", *arguments])
        assert ended.value.code == code
        return out.getvalue()

    told = json.loads(said("--json"))
    assert told["fit"] == (code == 0) and {check["state"] for check in told["checks"]} <= {"ok", "warn", "bad"}
    table = said()
    assert ("not fit to measure" in table) == (code == 1) and "A/A trial" in table
    assert ("docker run --cpus" in table) == (code == 1)


def test_profiles_and_memory_are_recorded(run_pytest, tmp_path, monkeypatch):
    monkeypatch.setattr(py_spy, "SECONDS", 6.0)  # a sample waits till its process computes: few on a busy machine
    result = run_pytest(
        "--benchmark", "--compare", "fast", "yardstick", "--workloads=prefill-tiny-t16", "--budget=3",
        "--profile", f"--run-dir={tmp_path / 'run'}", f"--benchmark-json={tmp_path / 'out.json'}",
    )  # fmt: skip
    assert result.returncode == code_by_intervals(tmp_path / "run"), result.stdout
    assert "at most 3 s of rounds, then profiles (about " in result.stdout
    facts = {
        b["extra_info"]["variant"]: b["extra_info"]
        for b in json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    }
    memory = {entry["variant"]: entry for entry in json.loads((tmp_path / "run" / "memory.json").read_text())}
    assert all(entry["reason"] is None and entry["peak_transient_bytes"] > 0 for entry in memory.values())
    # KV of 2 layers, 4 heads of 16, K and V, float32, and the RoPE tables at least.
    assert memory["yardstick"]["cache_bytes"] >= 2 * 2 * 4 * 16 * 16 * 4
    # fast keeps fused copies of its projections.
    assert memory["fast"]["cache_bytes"] > memory["yardstick"]["cache_bytes"]
    entries = json.loads((tmp_path / "run" / "profiles.json").read_text())
    assert len(entries) == 2
    if doctor.read_facts()["py_spy"] == "":  # it can look into processes here
        assert [entry["reason"] for entry in entries] == [None, None]
    for entry in entries:
        if entry["reason"] is not None:  # ptrace refused: said so, and the run went on
            assert "py-spy" in entry["reason"]
            continue
        assert facts[entry["variant"]]["profile"] == entry["path"]
        assert entry["rate_hz"] == 250 and entry["calls"] >= 5 and 0 < entry["median_error_ns"] < entry["median_ns"]
        folded = (tmp_path / "run" / entry["path"]).read_text()
        assert "libtorch" not in folded
        assert f"variants/{entry['variant']}.py:" in folded
        assert sum(int(line.rpartition(" ")[2]) for line in folded.splitlines()) == entry["samples"] > 50
        assert "forward" in folded
        assert str(ROOT) not in folded
