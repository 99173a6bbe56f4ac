"""Two functions compared: by options, by a claim, in a test and in a script; measured for real."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import llama_workbench as wb
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.measure.measurement import Measurement
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Options, PlanError, Request
from llama_workbench.harness.plugin.benchmarks import exit_of
from llama_workbench.harness.report.standings import measure_standings
from llama_workbench.harness.report.text import side_facts_text
from llama_workbench.harness.session.judging import stopping_rule
from llama_workbench.harness.session.run import Result, plan_run
from llama_workbench.harness.spec.words import Cause, SessionExit, VerbExit, of_left_out
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import Manifest, SideFacts
from llama_workbench.harness.store.verdict_schema import AD_HOC
from llama_workbench.harness.worker import gating, rounds
from llama_workbench.harness.worker.state import Worker
from llama_workbench.harness.worker.torch_verbs import open_workload
from tests.commands.test_cli import fails, output
from tests.measure.test_measure import run
from tests.runs import measurement_of
from tests.unchanged import SESSIONS
from tests.verdicts import a_verdict, an_effect

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm")]

MINE = '''
import random

import torch


def words(seed):
    """A text of some hundred words."""
    return " ".join(random.Random(seed).choices(["one", "two", "three"], k=400))


def once(text):
    return sorted(text.split())


def twice(text):
    sorted(text.split())
    return sorted(text.split())


def make_once():
    return once


def remembers(text, seen={}):
    if not seen:
        seen[0] = sorted(text.split())
    return seen[0]


def reads_late(text):
    return (word for word in sorted(text.split()))


def fails(text):
    raise ValueError(f"no room for {len(text)} letters")


def longer(got, expected):
    return len(got) >= len(expected)


def matrix():
    return torch.randn(8, 8).requires_grad_()


def gradient(x):
    (x * x).sum().backward()
    return x.grad


def gradient_by_hand(x):
    return 2 * x.detach()
'''

CLAIM = """
id = "twice-is-slower"
title = "Sorting twice takes longer"
who = ["somebody"]
source = [{ document = "a note", section = "one" }]
statement = "Sorting twice is slower."
assumes = []
decided_by = "The time of a call."

[[function]]
name = "one-sort"
source = "mine.py:make_once()"

[[function]]
name = "two-sorts"
source = "mine.py:twice"

[[call]]
name = "words"
payload = "mine.py:words"

[[hypothesis]]
evidence = "operations"
variant = "two-sorts"
baseline = "one-sort"
workloads = ["words"]
metric = "time"
slower_than_percent = 10
"""

VERSUS = """
from mine import once, twice, remembers, words


def test_once_is_faster(versus):
    versus(once, twice, payload=words, faster_than=1.2)


def test_once_is_not_three_times_as_fast(versus):
    versus(once, twice, payload=words, between=(3, 4))


def test_another_answer(versus):
    versus("mine.py:remembers", "mine.py:once", payload="mine.py:words")


def test_something_else():
    assert True
"""


def file_in(folder: Path) -> str:
    """The test file in a folder. Each has a name of its own: all are modules of this process."""
    return f"test_in_{folder.name}.py"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_pytest: Any) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "twice.toml").write_text(CLAIM.replace("mine.py", "../mine.py"))
    (tmp_path / file_in(tmp_path)).write_text(VERSUS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def asked(variant: str, *, payload: str = "words", baseline: str = "once", check: str | None = None) -> Request:
    return Request(
        compare=(f"mine.py:{baseline}", f"mine.py:{variant}"),
        calls=(f"mine.py:{payload}",),
        check=check and f"mine.py:{check}",
    )


# -- what is planned ---------------------------------------------------------------------------------------------------


def test_functions_are_compared_on_each_payload_and_with_a_control(mine: Path) -> None:
    plan = make_plan(
        Request(compare=("mine.py:once", "new=mine.py:twice"), calls=("mine.py:words", "mine.py:matrix")), []
    )
    assert [experiment.workload.name for experiment in plan.experiments] == ["words", "matrix"]
    assert {experiment.entered() for experiment in plan.experiments} == {
        ("once", "new", "once@aa", "function_yardstick")
    }
    assert plan.calls()["words"].payload.function == "words"
    assert plan.experiments[0].workload.payload == "mine.py:words", "no folder of this machine is stored"


def test_the_reference_benchmark_of_functions_is_not_asked_for_where_it_cannot_take_part() -> None:
    asked = Request(compare=("json:dumps", "json:loads"), calls=("random:random",))
    for request in (replace(asked, device="cuda"), replace(asked, environments=(("", sys.prefix),))):
        [experiment] = make_plan(request, []).experiments
        assert "function_yardstick" not in experiment.entered()
    named = replace(asked, compare=("json:dumps", "function_yardstick=json:loads"))
    assert make_plan(named, []).ad_hoc == (("dumps", "json.function_yardstick"),)


def test_functions_in_a_script_and_a_reference_benchmark_with_work_of_its_own(mine: Path) -> None:
    compared = wb.compare("mine.py:once", "mine.py:twice", payload="mine.py:words", budget=600)
    assert compared.verdict == "slower" and compared.low <= compared.ratio <= compared.high < 1
    assert "slower" in repr(compared) and list(compared.run.effects["variant"]) == ["twice"]
    page = compared._repr_html_()
    assert "<svg" in page and "times as fast as once" in page
    with pytest.raises(AssertionError, match="gates failed"):
        wb.compare("mine.py:once", "mine.py:remembers", payload="mine.py:words", budget=600)
    with pytest.raises(ValueError, match=r"no file 'gone\.py'"):
        wb.compare("mine.py:once", "gone.py:f", payload="mine.py:words")
    run = RunFolder(compared.run.path)
    found = measure_standings(run)
    assert found.workloads["words"].reference == "function_yardstick"
    assert found.subjects == (("words", "once"), ("words", "twice"))
    assert all(time.over_processes is not None for time in found.rows)
    sources = run.read_manifest()["sources"]["variants"]
    assert sources["function_yardstick"].get("file") is None and sources["once"]["file"] == "mine.py"
    samples = run.read_samples().frame()
    processes = samples.groupby("variant", observed=True)[["process", "round"]].nunique()
    # One round a process, in each process until it is known.
    assert processes["process"]["function_yardstick"] == processes["round"]["function_yardstick"] > 12


def test_all_controls_of_functions_ride_along(mine: Path) -> None:
    """One after the other they would have processes of their own after the verdict."""
    plan = make_plan(asked("twice"), [])
    [experiment] = plan.experiments
    [remaining] = stopping_rule(plan, {}).remaining(experiment, lambda pair: False)
    assert set(remaining.variants) == {"once", "twice", "once@aa", "function_yardstick"}
    [remaining] = stopping_rule(plan, {}, is_saved=False).remaining(experiment, lambda pair: False)
    assert set(remaining.variants) == {"once", "twice", "once@aa"}, "a run of a few seconds is no baseline"


def test_a_comparison_of_functions_does_not_read_the_claims(mine: Path) -> None:
    (mine / "claims" / "twice.toml").write_text("no claim")
    assert plan_run(asked("twice"), Options(claims_folder=mine / "claims")).ad_hoc
    with pytest.raises(ClaimError, match=r"twice\.toml"):
        plan_run(Request(), Options(claims_folder=mine / "claims"))


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (Request(calls=("mine.py:words",)), "--call mine.py:words: only with --compare"),
        (Request(compare=("fast", "library"), check="mine.py:longer"), "--check mine.py:longer: only with --call"),
        (Request(compare=("mine.py:once", "mine.py:twice")), "once is no build.* --call FILE:FUNCTION"),
        (Request(compare=("mine.py:once", "mine.py:never"), calls=("mine.py:words",)), "no function 'never'"),
        (Request(compare=("on-ce", "mine.py:twice"), calls=("mine.py:words",)), "expected FILE:FUNCTION"),
        (Request(compare=("mine.py:once", "mine.py:twice"), calls=("gone.py:words",)), "no file 'gone.py'"),
        (
            Request(compare=("mine.py:once", "mine.py:twice"), calls=("mine.py:words",), workloads=("prefill-15m-t8",)),
            "once is a function, and prefill-15m-t8 is for models",
        ),
    ],
)
def test_what_cannot_be_compared_is_told_before_anything_runs(mine: Path, request_: Request, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make_plan(request_, [])


def test_a_claim_names_functions_and_what_they_are_called_with(mine: Path) -> None:
    claims = load_claims(mine / "claims")
    plan = make_plan(Request(), claims)
    assert plan.functions.sources["one-sort"].factory
    assert plan.experiments[0].entered() == ("one-sort", "two-sorts", "one-sort@aa", "function_yardstick")
    for wrong, told in (
        ('evidence = "architecture"', "functions have no trace of operations"),
        ('baseline = "fast"', "words is for functions, and fast is a model"),
        ('workloads = ["prefill-15m-t8"]', "is a function, and prefill-15m-t8 is for models"),
        ('baseline = "none"', "unknown variant 'none'"),
    ):
        key = wrong.partition(" =")[0]
        lines = [wrong if line.startswith(f"{key} =") else line for line in CLAIM.splitlines()]
        (mine / "claims" / "twice.toml").write_text("\n".join(lines).replace("mine.py", "../mine.py"))
        with pytest.raises(PlanError, match=told):
            make_plan(Request(), load_claims(mine / "claims"))


def test_a_side_of_a_comparison_may_be_a_file_that_builds_a_model(mine: Path) -> None:
    (mine / "model.py").write_text("def build_mine(config, weights, *, max_length): pass\n")
    plan = make_plan(Request(compare=("fast", "model.py:build_mine"), workloads=("prefill-tiny-t16",)), [])
    assert plan.ad_hoc == (("fast", "build_mine"),) and "build_mine" in plan.added


# -- gates and rounds --------------------------------------------------------------------------------------------------


def gated(mine: Path, request: Request) -> tuple[Measurement, Any]:
    """The measurement after its gates, and the first experiment's state."""
    plan = plan_run(request, Options())
    measurement = measurement_of(plan, mine)
    with measurement.processes.running():
        measurement.gates.pass_gates()
    return measurement, measurement.participants.states[0]


@pytest.mark.parametrize(
    ("variant", "told"),
    [
        ("remembers", "400 items|for '"),
        ("reads_late", "returns a generator"),
        ("fails", r"raises ValueError: no room for \d+ letters \(mine.py, line \d+\)"),
    ],
)
def test_a_function_with_wrong_answers_is_never_timed(mine: Path, variant: str, told: str) -> None:
    _, state = gated(mine, asked(variant))
    assert state.gates["once"].passed and state.gates["once@aa"].passed
    assert re.search(told, state.excluded[variant]), state.excluded[variant]


def test_a_check_of_the_users_is_asked_instead(mine: Path) -> None:
    _, state = gated(mine, asked("remembers", check="longer"))
    assert state.gates["remembers"].passed


def test_training_code_finds_torch_as_it_usually_is(mine: Path) -> None:
    _, state = gated(mine, asked("gradient_by_hand", payload="matrix", baseline="gradient"))
    assert not state.excluded and state.gates["gradient"].passed


def test_an_answer_that_is_wrong_while_it_is_timed_is_caught(mine: Path) -> None:
    """Right at its gate, wrong later: every round looks at an answer, on an input that it has not seen."""
    tires = "\n\ndef tires(text):\n    return ['one'] if os.path.exists('tired') else sorted(text.split())\n"
    (mine / "mine.py").write_text(f"import os\n{MINE}{tires}")
    plan = plan_run(asked("tires"), Options())
    worker = Worker(
        {"cache": str(mine), "threads": 1, "functions": {n: vars(s) for n, s in plan.functions.sources.items()}}
    )
    [experiment] = plan.experiments
    call = asdict(plan.calls()["words"])
    open_workload(worker, experiment.workload.model_dump(), None, 0, call)
    for name in ("once", "tires"):
        assert gating.gate(worker, "words", name)["gate"]["passed"]
    (mine / "tired").touch()
    answer = rounds.measure_round(worker, "words", 0, ["once", "tires"])
    assert "once" not in answer.wrong
    assert "a timed call" in answer.wrong["tires"] and "seed" in answer.wrong["tires"]


# -- measured ----------------------------------------------------------------------------------------------------------


def test_two_functions_by_options(mine: Path, run_pytest: Callable[..., Any]) -> None:
    result = run_pytest("--benchmark", "--compare", "mine.py:once", "mine.py:twice", "--call", "mine.py:words",
                        "--budget=600", "--fail-if=slower:20", "--run-dir=run")  # fmt: skip
    assert result.returncode == 1, result.stdout
    assert "fails: --fail-if slower:20" in result.stdout
    run = wb.open("run")
    assert [str(verdict) for verdict in run.verdicts["verdict"]] == ["slower", "supported"]
    workload = run.manifest["experiments"][0]["workload"]
    assert (workload["kind"], workload["payload"]) == ("call", "mine.py:words")
    assert str(mine) not in json.dumps(run.manifest), "no folder of this machine is stored"


def test_a_budget_that_is_too_small_for_one_interval_ends_at_the_gate(
    mine: Path, run_pytest: Callable[..., Any]
) -> None:
    (mine / "mine.py").write_text(MINE + "\n\ndef sleeps(text):\n    import time\n    time.sleep(1.5)\n    return 0\n")
    result = run_pytest("--benchmark", "--compare", "mine.py:sleeps", "again=mine.py:sleeps", "--call", "mine.py:words",
                        "--budget=10", "--run-dir=run")  # fmt: skip
    assert result.returncode == SessionExit.NO_VERDICT
    said = " ".join(result.stdout.split())
    assert re.search(r"left out: sleeps: a call takes 1(\.\d+)? s: give --budget [56]\d \(a first", said)
    assert said.count("a first interval needs") == 1, "elsewhere the sides are only named"
    [experiment] = wb.open("run").manifest["experiments"]
    assert experiment["rounds"] == 0 and {each["variant"] for each in experiment["excluded"]} == {"sleeps"}
    assert "1 failed, 1 skipped" in result.stdout, "what is compared with it is not at fault"


def test_a_side_for_which_there_is_no_time_does_not_fail_its_baseline(
    mine: Path, run_pytest: Callable[..., Any]
) -> None:
    (mine / "mine.py").write_text(
        f"{MINE}\n\ndef sleeps(text):\n    import time\n    time.sleep(1.5)\n    return once(text)\n"
    )
    result = run_pytest("--benchmark", "--compare", "mine.py:once", "mine.py:sleeps", "--call", "mine.py:words",
                        "--budget=5", "--run-dir=run")  # fmt: skip
    assert result.returncode == SessionExit.NO_VERDICT, result.stdout
    assert re.search(r"left out: sleeps: a call takes 1(\.\d+)? s: give --budget", " ".join(result.stdout.split()))
    assert "1 failed, 1 skipped" in result.stdout and "FAILED ::test_variant[words-sleeps]" in result.stdout


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return (word for word in text.split())", "returns a generator"),
        ("SEEN.append(text)\n    return len(SEEN)", "keeps state"),
    ],
)
def test_answers_that_cannot_be_compared_are_a_refusal_and_no_wrong_ones(
    mine: Path, run_pytest: Callable[..., Any], body: str, told: str
) -> None:
    (mine / "mine.py").write_text(f"{MINE}\n\nSEEN = []\n\ndef odd(text):\n    {body}\n")
    result = run_pytest("--benchmark", "--benchmark-disable", "--compare", "mine.py:odd", "again=mine.py:odd",
                        "--call", "mine.py:words", "--run-dir=run")  # fmt: skip
    assert result.returncode == SessionExit.NO_VERDICT, result.stdout
    assert told in result.stdout and "1 failed, 1 skipped" in result.stdout
    [experiment] = wb.open("run").manifest["experiments"]
    assert {(each["variant"], each["cause"]) for each in experiment["excluded"]} == {("odd", Cause.REFUSED)}


def test_a_met_condition_a_wrong_side_and_a_refusal_end_with_codes_of_their_own() -> None:
    """As far as no session has to be measured for it: what is proven comes first, and no two codes are one."""
    wrong, refused = (Cause.EXCLUDED, Cause.NOT_IMPORTED), (Cause.REFUSED, Cause.TOO_LITTLE_TIME, Cause.BEYOND_ROOF)
    assert {of_left_out([cause]) for cause in wrong} == {SessionExit.WRONG} == {of_left_out([*wrong, *refused])}
    assert {of_left_out([cause]) for cause in refused} == {SessionExit.NO_VERDICT}
    assert of_left_out([Cause.NONE, Cause.TOO_FEW_ROUNDS]) == SessionExit.DONE
    assert [code.value for code in SessionExit] == [*range(8)] and all(code.meaning for code in SessionExit)


@pytest.mark.parametrize(
    ("causes", "code"),
    [
        ([Cause.TOO_FEW_ROUNDS, Cause.NO_ROUNDS], SessionExit.NO_VERDICT),
        ([Cause.TOO_FEW_ROUNDS, Cause.ACROSS_LIMIT], SessionExit.DONE),
    ],
)
def test_a_comparison_without_any_interval_ends_as_with_too_small_a_budget(
    causes: list[Cause], code: SessionExit
) -> None:
    effects = [an_effect(cause=cause, verdict="inconclusive") for cause in causes]
    compared = a_verdict(*effects, claim=AD_HOC, verdict="inconclusive")
    result = Result(RunFolder(Path()), Manifest(), (compared,))
    assert exit_of({}, result, gates_only=False, others_failed=False) is code
    of_a_claim = Result(RunFolder(Path()), Manifest(), (replace(compared, claim="mine"),))
    assert exit_of({}, of_a_claim, gates_only=False, others_failed=False) is SessionExit.DONE


def test_a_wrong_side_is_no_met_condition(mine: Path, run_pytest: Callable[..., Any]) -> None:
    result = run_pytest("--benchmark", "--compare", "mine.py:once", "mine.py:fails", "--call", "mine.py:words",
                        "--budget=5", "--fail-if=not-faster:0", "--run-dir=run", "--junitxml=junit.xml")  # fmt: skip
    assert result.returncode == SessionExit.WRONG, result.stdout
    assert result.stdout.count("no room for") == 1 and "fails is left out of words" in result.stdout
    assert "no room for" in (mine / "junit.xml").read_text(), "a file that is read alone has the reason"


@pytest.mark.whole
def test_the_help_has_every_exit_code(run_pytest: Callable[..., Any]) -> None:
    said = run_pytest("--help").stdout
    assert SessionExit.listed() in said
    shown = " ".join(output("--help").split())
    assert all(f"{code.value} {code.meaning}" in shown for code in VerbExit)
    for verb in ("compare-revisions", "judge-change"):
        listed = re.findall(r"^    (\d+) +\S", output(verb, "--help"), re.MULTILINE)
        assert [int(code) for code in listed] == [*VerbExit], "those of its own words too"
    assert f"6    {VerbExit.WRONG.meaning}\n" in output("compare-revisions", "--help")
    for verb, ends in {"bisect": 0, "check": 1, "compare": 1, "doctor": 1, "judge": 1}.items():
        listed = re.findall(r"^    (\d+) +\S", output(verb, "--help"), re.MULTILINE)
        assert [int(code) for code in listed] == [0, *[1] * ends, 2, 130], "only those that it ends with"


def test_where_all_answers_are_wrong_while_timed_there_is_no_verdict(
    mine: Path, run_pytest: Callable[..., Any]
) -> None:
    (mine / "mine.py").write_text(MINE + "\n\ndef counts(text, calls=[]):\n    calls.append(1)\n"
        "    return random.SystemRandom().random() if len(calls) > 60 else 0.0\n")  # fmt: skip
    result = run_pytest("--benchmark", "--compare", "mine.py:counts", "again=mine.py:counts", "--call", "mine.py:words",
                        "--budget=20", "--run-dir=run")  # fmt: skip
    assert result.returncode == SessionExit.NO_VERDICT and "INTERNALERROR" not in result.stdout
    assert "a timed call" in result.stdout and "keeps state" in result.stdout, "no answer is known to be wrong"


def test_in_a_test_file_only_the_gate_is_checked_without_benchmark(mine: Path, run_pytest: Callable[..., Any]) -> None:
    result = run_pytest("-q", file_in(mine))
    assert "1 failed, 3 passed" in result.stdout
    assert "remembers and mine.py:once do not agree" in result.stdout.replace("mine.py:remembers", "remembers")
    assert not (mine / "results").exists(), "nothing was measured"


def test_in_a_test_file_functions_are_measured_with_benchmark(mine: Path, run_pytest: Callable[..., Any]) -> None:
    result = run_pytest("--benchmark", "--budget=600", "--run-dir=runs", file_in(mine))
    assert "2 failed, 2 passed" in result.stdout, result.stdout
    assert "test_once_is_faster" in result.stdout and "supported (asked: more than 20 % faster)" in result.stdout
    assert "refuted (asked: 3-4x)" in result.stdout
    assert "remembers: gates failed" in result.stdout
    assert "test_variant" not in result.stdout, "nobody asked for the register"
    assert len(list((mine / "runs").iterdir())) == 3, "each has a folder of its own"


def test_options_without_benchmark_say_that_they_do_nothing(mine: Path, run_pytest: Callable[..., Any]) -> None:
    result = run_pytest("--workbench-claims=x", "--workbench-all", file_in(mine), "-k", "something")
    assert result.returncode == 0
    assert "workbench: --workbench-claims, --workbench-all: no effect without --benchmark" in result.stdout
    assert "no effect without --benchmark" not in run_pytest(file_in(mine), "-k", "something").stdout


@pytest.mark.long
@pytest.mark.whole
def test_what_new_subject_writes_passes_and_measures(mine: Path, run_pytest: Callable[..., Any]) -> None:
    said = output("new", "subject", "ways_to_sort", "--folder", mine)
    file = mine / "test_ways_to_sort.py"
    assert f"pytest --benchmark {file}" in said
    assert run_pytest("-q", str(file)).returncode == 0
    result = run_pytest("--benchmark", str(file), "--budget=600", "--run-dir=runs")
    assert result.returncode == 0 and "supported (asked: more than 10 % faster)" in result.stdout, result.stdout
    assert "exists already" in fails("new", "subject", "test_ways_to_sort.py", "--folder", mine)
    assert "expected letters" in fails("new", "subject", "two words", "--folder", mine)
    assert f"run a test that uses `versus`: pytest {file}" in fails("check", file)


# -- what is no plain function -----------------------------------------------------------------------------------------


def test_two_commands_are_timed_by_wall_and_nobody_looks_inside(tmp_path: Path) -> None:
    request = Request(compare=("long=cmd:sleep 0.03", "short=cmd:sleep 0.01"))
    result, _ = run(tmp_path, request, rounds=3)
    assert not result.manifest.excluded
    samples = result.folder.read_samples().frame()
    of = {name: samples[samples["variant"] == name]["wall_ns"] / samples["repeats"] for name in ("long", "short")}
    assert of["long"].min() > 30e6 and of["short"].min() > 10e6 > samples["cpu_ns"].min()
    assert not result.folder.has("causes.json")


def test_a_coroutine_function_is_timed_with_what_it_awaits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import asyncio\n\nasync def waits(x):\n    await asyncio.sleep(0.01)\n    return x\n\n"
    (tmp_path / "later.py").write_text(f"{text}def at_once(x):\n    return x\n\ndef number(seed):\n    return seed\n")
    request = Request(compare=("later.py:at_once", "later.py:waits"), calls=("later.py:number",))
    result, _ = run(tmp_path, request, rounds=3)
    assert not result.manifest.excluded
    samples = result.folder.read_samples().frame()
    waits = samples[samples["variant"] == "waits"]
    assert (waits["wall_ns"] / waits["repeats"]).min() > 10e6
    [experiment] = result.manifest.experiments
    assert "waits" in experiment.clock.wall_variants
    waiting = experiment.facts["waits"]
    assert (waiting.wall_ns or 0) > (waiting.waited_ns or 0) > 5e6 and experiment.facts["at_once"].waited_ns == 0
    words = side_facts_text(experiment.facts, experiment.facts)
    assert " % of a call of waits is waiting (" in words and "a call of at_once" not in words


def test_a_list_that_all_calls_are_given_and_one_side_sorts_is_copied_for_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the second call and all later ones would find it sorted."""
    monkeypatch.chdir(tmp_path)
    text = "WORDS = [str(i * 7 % 1009) for i in range(1009)]\n\ndef words():\n    return WORDS\n\n"
    text += "def anew(words):\n    return sorted(words)\n\n"
    (tmp_path / "kept.py").write_text(f"{text}def in_place(words):\n    words.sort()\n    return words\n")
    request = Request(compare=("kept.py:anew", "kept.py:in_place"), calls=("kept.py:words",))
    result, _ = run(tmp_path, request, rounds=3)
    assert not result.manifest.excluded
    [experiment] = result.manifest.experiments
    assert [experiment.facts[name].copies_inputs for name in ("anew", "in_place", "anew@aa")] == [False, True, False]
    words = side_facts_text(experiment.facts, experiment.facts)
    assert words.startswith("A call of in_place changes its input, and the input generator returns the same object")


def test_what_is_worth_saying_of_a_side() -> None:
    calm = SideFacts(first_call_ns=4e6, waited_ns=4e4, wall_ns=1e6, copies_inputs=False)
    assert side_facts_text({"f": calm}, ["f"]) == side_facts_text({"f": SideFacts(first_call_ns=1e9)}, ["f"]) == ""
    compiled = side_facts_text({"f": SideFacts(first_call_ns=11.6e9, wall_ns=1e9)}, ["f"])
    assert compiled == "The first call of f took 11.6 s; it is not included."
    assert side_facts_text({"f": SideFacts(first_call_ns=4e9, wall_ns=1e9)}, ["f"]) == "", "not five times as long"
    waits = side_facts_text({"f": SideFacts(waited_ns=50e6, wall_ns=50.4e6)}, ["f"])
    assert waits.startswith("99 % of a call of f is waiting (50 ms of 50.4 ms)") and "only the other 400 µs" in waits
    waits = side_facts_text({"f": SideFacts(waited_ns=50e6, wall_ns=50.4e6, children_share=0.5)}, ["f"])
    assert "(50 ms of 50.4 ms), for what it starts" in waits and "only" not in waits, "code can change its children"
