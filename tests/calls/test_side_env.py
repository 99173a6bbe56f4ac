"""What one side of a comparison has of its own: variables, and options of its Python; and imports in a fresh one."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import get_config

from llama_workbench.harness.calls.command import FreshPython, Import
from llama_workbench.harness.calls.environments import OwnSetting, check_begins, with_own
from llama_workbench.harness.calls.source import SourceError, parse
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.machine.environment import comparable
from llama_workbench.harness.plan.functions import functions_of
from llama_workbench.harness.plan.options import Options, PlanError, Request, own_setting, typed
from llama_workbench.harness.plugin import plugin
from llama_workbench.harness.report.comparison import screen_markdown, screens
from llama_workbench.harness.report.outcome import command_of, compared_again
from llama_workbench.harness.report.standings import evidence_of
from llama_workbench.harness.session.run import go_on
from llama_workbench.harness.store.files import RunError
from tests.measure.test_measure import run
from tests.unchanged import SESSIONS

pytestmark = pytest.mark.covers(*SESSIONS)

SEEN = """
import os, sys

def seen():
    with open("LOG", "a") as log:
        print(os.getpid(), os.environ.get("SPEED_MODE"), os.environ.get("PYTHONMALLOC"),
              os.environ.get("OMP_NUM_THREADS"), sys.flags.optimize, sys._xoptions.get("side"), file=log, sep=",")

def number(seed):
    return seed

def count(number):
    seen()
    return sum(range(2000)) + number
"""
GIVEN = ("new:SPEED_MODE=fast", "new:PYTHONMALLOC=malloc", "new:OMP_NUM_THREADS=2", "new:-O -X side=yes")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "seen.py").write_text(SEEN.replace("LOG", str(tmp_path / "log")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(*given: str, **more: Any) -> Request:
    """The same function on both sides, whose second one has these settings."""
    usual: dict[str, Any] = {"compare": ("seen.py:count", "new=seen.py:count"), "calls": ("seen.py:number",)}
    return Request(**{**usual, "of_sides": tuple(map(own_setting, given)), **more})


# -- as typed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("new:KEY", "there is no '=' behind new:KEY"),
        ("new:=1", "'' is not the name of a variable"),
        ("new:MY-KEY=1", "'MY-KEY' is not the name of a variable"),
        ("KEY=1", "expected NAME:KEY=VALUE with the name of a side"),
        (":KEY=1", "expected NAME:KEY=VALUE with the name of a side"),
        ("new:-c print()", "-c is no option with which a Python can measure"),
        ("new:-i", "-i is no option"),
        ("new:-X", "there is nothing behind -X"),
    ],
)
def test_what_a_side_cannot_have_is_refused_with_an_example(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        OwnSetting.parse(text)


@pytest.mark.parametrize("text", ["new:A=", "new:A=b=c:d", "new:-O -X 'a=b c'", "b-2:PYTHONMALLOC=malloc"])
def test_a_setting_is_printed_as_it_is_typed(text: str) -> None:
    assert str(OwnSetting.parse(text)) == text


def test_a_side_that_is_not_compared_is_told_with_those_that_are(project: Path) -> None:
    with pytest.raises(SourceError, match="no side is called 'old'; they are count and new"):
        functions_of(asked("old:A=1"), [])
    models = Request(compare=("naive", "fast"), of_sides=(own_setting("fast:A=1"),))
    with pytest.raises(PlanError, match="--side-env fast:A=1: only with --call"):
        functions_of(models, [])
    sides = [parse("a=cmd:true", option="x"), parse("b=cmd:true", option="x")]
    with pytest.raises(SourceError, match="b is a command: write the options into it"):
        with_own(sides, [own_setting("b:-O")])


def test_a_python_that_does_not_begin_so_is_told_before_anything_is_measured(project: Path) -> None:
    for given, told in (("new:PYTHONMALLOC=none", "unknown allocator"), ("new:LD_PRELOAD=gone.so", "gone.so")):
        if "LD_PRELOAD" in given and not sys.platform.startswith("linux"):
            continue
        [_, side] = with_own([parse("a=seen.py:count", option="x"), parse("new=seen.py:count", option="x")],
                             [own_setting(given)])  # fmt: skip
        with pytest.raises(SourceError, match=f"the Python of new does not begin with .*{told}"):
            check_begins(side)


def test_several_settings_of_one_side_add_up_and_the_last_of_a_variable_counts() -> None:
    sides = [parse("a=json:dumps", option="x"), parse("b=json:dumps", option="x")]
    settings = [own_setting(text) for text in ("b:A=1", "b:-O", "b:A=2", "b:B=3", "b:-X dev")]
    plain, own = with_own(sides, settings)
    assert plain == sides[0] and not plain.is_alone and own.is_alone
    assert own.variables == {"A": "2", "B": "3"} and own.options == "-O -X dev"


# -- measured ----------------------------------------------------------------------------------------------------------


def test_the_same_function_runs_with_the_variables_and_options_of_each_side(project: Path) -> None:
    result, _ = run(project, asked(*GIVEN), rounds=2)
    assert not result.manifest.excluded
    lines = {tuple(line.split(",")) for line in (project / "log").read_text().split()}
    ran = {line[0]: line[1:] for line in lines}
    own = ("fast", "malloc", "2", "1", "yes")
    assert set(ran.values()) == {own, ("None", "None", "1", "0", "None")}, "ours yield, and only to this side's own"
    assert all(ran[line[0]] == line[1:] for line in lines), "no process runs both sides"
    assert list(ran.values()).count(own) >= 3, "of the gate, and a fresh one in each of two rounds"

    stored = json.loads((result.folder.path / "run.json").read_text())["environments"]
    variables = {"SPEED_MODE": "fast", "PYTHONMALLOC": "malloc", "OMP_NUM_THREADS": "2"}
    assert (stored.keys(), stored["new"]["variables"]) == ({"new"}, variables)
    assert stored["new"]["options"] == "-O -X side=yes" and stored["new"].get("python") is None
    said = "new runs with SPEED_MODE=fast, PYTHONMALLOC=malloc, OMP_NUM_THREADS=2, -O -X side=yes."
    [screen] = screens(result.folder, result.verdicts, evidence_of(result.folder, result.manifest))
    assert said in screen.as_it_ran and "PYTHONMALLOC=malloc" in screen_markdown(screen)

    facts = result.manifest.machine_facts
    assert comparable(facts, facts) == []
    other = facts | {"sides": {"new": "PYTHONMALLOC=debug"}}
    [difference] = comparable(facts, other)
    assert difference.startswith("new: SPEED_MODE=fast") and difference.endswith("against PYTHONMALLOC=debug")
    assert comparable(facts, {key: value for key, value in facts.items() if key != "sides"})

    same = go_on(result.folder, Options(), asked(*GIVEN), budget=60.0)[0].plan.functions
    assert same.sources["new"].variables == variables
    for given in (("new:PYTHONMALLOC=debug",), ()):
        with pytest.raises(RunError, match="it measured with: new runs with SPEED_MODE=fast") as refused:
            go_on(result.folder, Options(), asked(*given), budget=60.0)
        assert "Pass it as it was" in str(refused.value)


def test_folders_in_a_variable_are_not_published(project: Path) -> None:
    facts = functions_of(asked(f"new:DATA={project}/data"), [])[1].environment_facts
    assert facts["new"].variables["DATA"] == "data"


def test_commands_have_variables_of_their_own(project: Path) -> None:
    side = "cmd:sh -c 'echo $SPEED_MODE >> log; echo same'"
    request = asked("b:SPEED_MODE=fast", compare=(f"a={side}", f"b={side}"), calls=())
    result, _ = run(project, request, rounds=2)
    assert not result.manifest.excluded and set((project / "log").read_text().split("\n")) == {"", "fast"}
    assert result.manifest.environments["b"].variables == {"SPEED_MODE": "fast"}


CLAIM = """
id = "allocators"
title = "Python's allocator is faster"
who = ["a colleague"]
source = [{ document = "a note", section = "two" }]
statement = "malloc is slower."
assumes = []
decided_by = "The time of a call."
function = [
  { name = "plain", source = "seen.py:count" },
  { name = "own", source = "seen.py:count", variables = { PYTHONMALLOC = "malloc" } },
]
call = [{ name = "numbers", payload = "seen.py:number" }]

[[hypothesis]]
evidence = "operations"
variant = "own"
baseline = "plain"
workloads = ["numbers"]
metric = "time"
slower_than_percent = 10
"""


def test_functions_of_a_claim_have_variables(project: Path) -> None:
    (project / "allocators.toml").write_text(CLAIM)
    functions = functions_of(Request(), load_claims(project))[1]
    assert functions.sources["own"].variables == {"PYTHONMALLOC": "malloc"} and functions.alone == {"own"}
    (project / "allocators.toml").write_text(CLAIM.replace("PYTHONMALLOC =", '"MY-KEY" ='))
    with pytest.raises(ClaimError, match="MY-KEY"):
        load_claims(project)


# -- commands that are printed -----------------------------------------------------------------------------------------


def read(words: list[str]) -> Request:
    """What pytest's own parser makes of a printed command."""
    config = get_config(words)
    config.parse([*words, "-p", "no:cacheprovider"])
    return typed(Request, plugin._line(config))


def test_a_printed_command_gives_the_same_sides(project: Path) -> None:
    words = ["pytest", "--benchmark", "--compare", "seen.py:count", "new=seen.py:count", "--call", "seen.py:number"]
    words += [word for given in GIVEN for word in ("--side-env", given)]
    request = read(words[1:])
    assert request == asked(*GIVEN)
    result, _ = run(project, request, rounds=2, no_causes=True)
    manifest = result.manifest.model_copy(update={"command": words})
    settling = shlex.split(command_of(result.verdicts[0], manifest))
    assert settling[:2] == words[:2]
    for printed in (settling[1:], ["--benchmark", *compared_again(manifest)]):
        assert read(printed) == request
        assert functions_of(read(printed), [])[1].sources == functions_of(request, [])[1].sources

    elsewhere = ["--env", "count=here/old", "--workbench-env=new=python3.13"]
    placed = manifest.model_copy(update={"command": [*words, *elsewhere]})
    again = read(shlex.split(command_of(result.verdicts[0], placed))[1:])
    assert again.environments == (("count", "here/old"), ("new", "python3.13")) and again.of_sides == request.of_sides


# -- imports -----------------------------------------------------------------------------------------------------------


def test_an_import_is_made_in_a_python_that_has_imported_nothing(project: Path) -> None:
    (project / "slow.py").write_text(
        f"import sys\nopen({str(project / 'log')!r}, 'a').write(str('json' in sys.modules))\n"
    )
    (project / "broken.py").write_text("raise ValueError('no licence')\n")
    (project / "ends.py").write_text("import os\nos._exit(7)\n")
    for _ in range(2):
        Import("slow")(FreshPython())
    assert (project / "log").read_text() == "FalseFalse" and "slow" not in sys.modules
    with pytest.raises(RuntimeError, match="import broken raises ValueError: no licence"):
        Import("broken")(FreshPython())
    with pytest.raises(RuntimeError, match=r"import ends ends its process \(exit code 7\)"):
        Import("ends")(FreshPython())


def test_imports_are_timed_without_their_interpreter_and_that_is_said(project: Path) -> None:
    (project / "slow.py").write_text("import time\ntime.sleep(0.03)\n")
    (project / "quick.py").write_text("")
    request = Request(
        compare=("import:slow", "import:quick"),
        of_sides=(own_setting("quick:PYTHONPATH=."),),
        environments=(("", sys.executable),),
    )
    result, _ = run(project, request, rounds=2, no_causes=True)
    assert not result.manifest.excluded
    samples = result.folder.read_samples().frame()
    per_call = samples["wall_ns"] / samples["repeats"]
    assert per_call[samples["variant"] == "slow"].min() >= 30e6
    [screen] = screens(result.folder, result.verdicts, evidence_of(result.folder, result.manifest))
    assert "Only the import is timed: its Python was started before." in screen.as_it_ran
    assert result.manifest.environments["quick"].variables == {"PYTHONPATH": "."}
    assert result.manifest.environments["slow"].python is not None, "--env is for imports too"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"compare": ("import:json", "cmd:true")}, "compare it with another import.*a whole process, from exec"),
        ({"calls": ("seen.py:number",)}, "nothing is called: leave out --call"),
        ({"compare": ("cmd:true", "b=cmd:true"), "environments": (("b", "old"),)}, "--env b=old: a command finds its"),
        ({"compare": ("import:json", "import:a-b")}, "'a-b' is not the name of a module"),
    ],
)
def test_what_an_import_is_not_compared_with_is_told(project: Path, given: dict[str, Any], told: str) -> None:
    usual: dict[str, Any] = {"compare": ("import:json", "import:decimal")}
    with pytest.raises((PlanError, SourceError), match=told):
        functions_of(Request(**{**usual, **given}), [])
