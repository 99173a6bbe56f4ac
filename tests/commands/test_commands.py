"""Commands as sides: how they are run, what becomes of those that fail, and how many calls a process makes of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.harness.calls.called import Call, Called
from llama_workbench.harness.calls.command import Command, CommandFailed, CommandSettings
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.calls.world import modules_kept
from llama_workbench.harness.measure.gating import Gates, seconds_of_calls
from llama_workbench.harness.measure.participants import ExperimentState
from llama_workbench.harness.plan.functions import NOTHING
from llama_workbench.harness.plan.options import PlanError, Request, typed
from llama_workbench.harness.report.outcome import command_of, compared_again
from llama_workbench.harness.spec.words import SessionExit
from llama_workbench.harness.store.files import RunError
from tests.measure.test_measure import run
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm")]

FINDS = ("sh", "-c", "echo hint >&2; echo first finding; echo; echo last finding; exit 3")


def test_a_command_that_fails_is_quoted_with_its_exit_code_and_the_option_that_allows_it() -> None:
    with pytest.raises(CommandFailed) as failed:
        Command(FINDS)()
    told = str(failed.value)
    assert "sh ends with exit code 3" in told and "--ignore-failure=3" in told
    assert '"hint"' in told and '"first finding | last finding"' in told
    with pytest.raises(CommandFailed, match="it wrote nothing"):
        Command(("false",))()
    with pytest.raises(CommandFailed) as long:
        Command(("sh", "-c", "seq 1000 9999; exit 1"))()
    assert re.search(r'to standard output "… .*9999"', str(long.value)) and len(str(long.value)) < 300


def test_exit_codes_that_are_no_failure_are_compared() -> None:
    sides = [Command(FINDS, CommandSettings(ignore_failure=ignored)) for ignored in ("any", (1, 3))]
    assert sides[0]() == sides[1]() and sides[0]() != Command(("true",), CommandSettings(ignore_failure="any"))()
    with pytest.raises(CommandFailed):
        Command(FINDS, CommandSettings(ignore_failure=(1,)))()
    alike, other = (
        parse(f"{name}=cmd:sh -c 'echo one; exit {code}'", option="x") for name, code in (("a", 1), ("b", 2))
    )
    with modules_kept() as turn:
        call = Call(alike, NOTHING, commands=CommandSettings(ignore_failure="any"))
        assert Called.imported(alike, call, "", turn).gate() == ""
        wrong = Called.imported(other, call, "", turn).gate()
    told = r"exit code and standard output of b: exit code 2 and b'one\\n'; of a: exit code 1 and b'one\\n'; say what"
    assert wrong.startswith(told.replace(r"\\n", r"\n"))


def test_outputs_that_differ_are_told_by_the_names_of_both_sides() -> None:
    base, other = (parse(f"{name}=cmd:echo {name}", option="x") for name in ("one", "two"))
    with modules_kept() as turn:
        wrong = Called.imported(other, Call(base, NOTHING), "", turn).gate()
    assert wrong == r"standard output of two: b'two\n'; of one: b'one\n'; say what counts with --check FILE:FUNCTION"


def test_a_command_that_uses_up_what_it_needs_is_told_of_prepare(tmp_path: Path) -> None:
    (tmp_path / "need").touch()
    words = ("rm", str(tmp_path / "need"))
    Command(words)()
    with pytest.raises(CommandFailed, match=r"it succeeded before: .* --prepare COMMAND; .*--ignore-failure=1"):
        Command(words)()
    with pytest.raises(CommandFailed) as never:
        Command(("rm", str(tmp_path / "nothing")))()
    assert "--prepare" not in str(never.value)


@pytest.mark.parametrize(("sides", "failing"), [(("false", "true"), "false"), (("true", "false"), "false")])
def test_only_the_side_that_fails_is_left_out(
    tmp_path: Path, run_pytest: Callable[..., Any], sides: tuple[str, str], failing: str
) -> None:
    said = run_pytest(
        "--benchmark", "-rs", "--compare", *(f"cmd:{side}" for side in sides), "--budget=5", f"--run-dir={tmp_path}/run"
    )
    assert said.returncode == SessionExit.WRONG and "1 failed, 1 skipped" in said.stdout
    assert f"\nleft out: {failing}: {failing} ends with exit code 1" in said.stdout
    assert ("its baseline false is left out" in said.stdout) == (sides[0] == failing)


def test_what_runs_before_and_after_each_call_is_not_timed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    said = {name: f"sh -c 'sleep 0.05; echo {name} >> {log}'" for name in ("before", "after")}
    command = Command(
        ("sh", "-c", f"echo call >> {log}"), CommandSettings(prepare=said["before"], conclude=said["after"])
    )
    command()
    command()
    assert log.read_text().split() == ["before", "call", "after"] * 2
    assert command.uncounted_ns >= 100_000_000
    broken = Command(("true",), CommandSettings(prepare="sh -c 'echo no room >&2; exit 4'"))
    with pytest.raises(
        CommandFailed, match=r'--prepare: sh ends with exit code 4; it wrote to standard error "no room"'
    ):
        broken()


def test_a_file_is_the_standard_input_of_each_call(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("one two")
    command = Command(("wc", "-w"), CommandSettings(input=str(tmp_path / "words")))
    assert command().split() == command().split() == [b"2"]
    assert Command(("wc", "-w"))().split() == [b"0"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"compare": ("json:dumps", "json:loads"), "calls": ("random:random",)}, "--prepare: only with a command"),
        ({"prepare": "no-such-program -x"}, "no program 'no-such-program'"),
        ({"prepare": "echo 'a"}, "--prepare .*No closing quotation"),
        ({"input": Path("gone.txt")}, "--input gone.txt: there is no such file"),
    ],
)
def test_how_commands_are_run_is_checked_before_anything_runs(given: dict[str, Any], told: str) -> None:
    from llama_workbench.harness.plan.experiments import make_plan

    with pytest.raises(PlanError, match=told):
        make_plan(Request(**{"compare": ("cmd:true", "a=cmd:true"), "prepare": "true", **given}), [])


def test_exit_codes_are_read_from_words() -> None:
    assert typed(Request, {"ignore_failure": "1,2"}).ignore_failure == (1, 2)
    assert typed(Request, {"ignore_failure": "any"}).ignore_failure == "any"
    assert typed(Request, {"ignore_failure": None}).ignore_failure == ()
    with pytest.raises(PlanError, match="--ignore-failure one: expected exit codes"):
        typed(Request, {"ignore_failure": "one"})


def test_how_commands_were_run_is_kept_and_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llama_workbench.harness.plan.options import Options
    from llama_workbench.harness.session.run import go_on

    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").write_text("one two")
    asked = Request(
        compare=("a=cmd:sh -c 'cat; exit 1'", "b=cmd:sh -c 'cat; sleep 0.01; exit 1'"), ignore_failure=(1, 2),
        prepare="true", conclude="true yes", input=Path("words"),
    )  # fmt: skip
    typed_words = ["--workbench-ignore-failure", "1,2", "--prepare=true", "--conclude", "true yes", "--input", "words"]
    result, _ = run(tmp_path, asked, rounds=2)
    assert not result.manifest.excluded
    stored = json.loads((result.folder.path / "run.json").read_text())["sources"]["calls"]["run"]["commands"]
    assert stored["ignore_failure"] == [1, 2] and stored["conclude"] == "true yes" and stored["input"] == "words"
    assert str(tmp_path) not in json.dumps(stored)
    again = compared_again(result.manifest)
    assert again[3:] == ["--ignore-failure=1,2", "--prepare", "true", "--conclude", "true yes", "--input", "words"]
    manifest = result.manifest.model_copy(update={"command": ["pytest", "--benchmark", *typed_words]})
    told = command_of(result.verdicts[0], manifest)
    assert told.endswith("--ignore-failure=1,2 --prepare true --conclude 'true yes' --input words")

    assert go_on(result.folder, Options(), asked, budget=60.0)[0].plan.functions.commands.ignore_failure == (1, 2)
    (tmp_path / "words").write_text("three")
    with pytest.raises(RunError, match="the way to run the commands of run changed"):
        go_on(result.folder, Options(), asked, budget=60.0)
    with pytest.raises(
        RunError, match=r"it measured commands or imports, which are not run because a run .*--prepare true"
    ):
        go_on(result.folder, Options(), Request(), budget=60.0)


def test_a_bare_ignore_failure_is_given_again_as_any() -> None:
    from llama_workbench.harness.report.outcome import REPEATED, words_of

    assert [*words_of(["--ignore-failure", "--budget", "5"], REPEATED)] == ["--ignore-failure=any"]
    assert [*words_of(["--ignore-failure=1"], REPEATED)] == ["--ignore-failure=1"]


def test_a_session_without_causes_is_repeated_and_goes_on_without_them() -> None:
    from llama_workbench.harness.plan.options import Options, going_on
    from llama_workbench.harness.report.outcome import REPEATED, words_of

    assert [*words_of(["--workbench-no-causes", "--budget", "5"], REPEATED)] == ["--no-causes"]
    assert going_on(Options(), Options(no_causes=True)).no_causes, "a run keeps it"


SLOW = """
import os, time

class Own:
    def __eq__(self, other):
        return True

def number(seed):
    return seed

def logged():
    with open("LOG", "a") as log:
        print(os.getpid(), file=log)
    time.sleep(0.35)

def plain(x):
    logged()
    return [x, "text"]

def plainly(x):
    return plain(x)

def own(x):
    logged()
    return Own()

def owned(x):
    return own(x)
"""


SIDES = {
    "commands": ("a=cmd:sh -c 'echo $PPID >> LOG; sleep 0.35'", "b=cmd:sh -c ' echo $PPID >> LOG; sleep 0.35'"),
    "plain": ("slow.py:plain", "slow.py:plainly"),
    "own": ("slow.py:own", "slow.py:owned"),
}


@pytest.mark.parametrize(("kind", "calls"), [("commands", 3), ("plain", 6), ("own", 9)])
def test_a_process_makes_as_many_long_calls_as_the_budget_is_held_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, calls: int
) -> None:
    """Of three sides, for a copy of the baseline takes part: a command is only timed, a function warmed up and timed.
    Answers that are of a side's own class need the baseline called once more for each side."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    (tmp_path / "slow.py").write_text(SLOW.replace("LOG", str(log)))
    baseline, variant = (side.replace("LOG", str(log)) for side in SIDES[kind])
    request_ = Request(compare=(baseline, variant), calls=() if kind == "commands" else ("slow.py:number",))
    states: dict[int, ExperimentState] = {}
    real = Gates._too_dear

    def noted(self: Gates, state: ExperimentState) -> dict[str, str]:
        states[id(state)] = state
        return real(self, state)

    monkeypatch.setattr(Gates, "_too_dear", noted)
    result, _ = run(tmp_path, request_, rounds=2, no_causes=True)
    assert not result.manifest.excluded
    made = Counter(log.read_text().split())
    gate, *processes = made.values()
    assert processes == [calls] * 2 and gate > calls
    [state] = states.values()
    for name, learnt in state.learnt.items():
        learnt |= {"call_ns": 0 if name == "function_yardstick" else 1e9, "make_ns": 0, "beside_ns": 0}
    assert round(seconds_of_calls(state), 3) == calls
