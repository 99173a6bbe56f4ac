"""An option is one line at one place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.plan.options import (
    Options,
    PlanError,
    Request,
    Start,
    every_option,
    going_on,
    received,
    sent,
    typed,
)
from llama_workbench.harness.plugin import plugin
from llama_workbench.harness.report.outcome import words_of
from llama_workbench.harness.spec.regions import Condition

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("harness", "llama_workbench", "dashboard")
MODEL = "harness/plan/options.py"

TOYS = """
    loud: int = single("loud", "a toy", metavar="N", typed=int, default=0, usual=0, sent=True)
    quiet: bool = flag("quiet", "another", sent=True, again="Be quiet again.")
"""

PROGRAM = """
import importlib.util, json, sys
name = "llama_workbench.harness.plan.options"
import llama_workbench.harness.plan
spec = importlib.util.spec_from_file_location(name, sys.argv[1])
options = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(options)

import pytest
from typer.testing import CliRunner
from llama_workbench.commands.app import build
from llama_workbench.harness.plugin import plugin
from llama_workbench.harness.slices.fleet.session import typed_again

parser = pytest.Parser(_ispytest=True)
plugin.pytest_addoption(parser)
line = vars(parser.parse(["--workbench-loud", "3", "--workbench-quiet"]))
made = options.typed(options.Options, {key.removeprefix("workbench_"): value for key, value in line.items()})
words = [word.replace("--", "--workbench-", 1) for word in typed_again(made)]
sent = {key.removeprefix("workbench_"): value for key, value in vars(parser.parse(words)).items()}
arrived = options.typed(options.Options, sent)
again = options.going_on(options.Options(), options.received(options.Options, options.kept(made)))
print(json.dumps({
    "typed": [made.loud, made.quiet], "arrived": [arrived.loud, arrived.quiet], "again": [again.loud, again.quiet],
    "help": CliRunner().invoke(build(), ["resume", "--help"], env={"COLUMNS": "200"}).output,
}))
"""


def test_a_new_option_is_one_line(tmp_path: Path) -> None:
    """It is read from the command line, sent to a node, and kept by a run that goes on, or may be given again."""
    source = (REPOSITORY / MODEL).read_text("utf-8")
    place = "    gates_only: bool = False\n"
    assert source.count(place) == 1
    (tmp_path / "options.py").write_text(source.replace(place, TOYS + place), encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "options.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=REPOSITORY)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["typed"] == found["arrived"] == [3, True]
    assert found["again"] == [3, False], "what may be given again is not kept"
    assert "Be quiet again." in found["help"] and "--quiet" in found["help"] and "--loud" not in found["help"]


def test_the_second_name_of_an_option_is_the_same_option() -> None:
    parser = pytest.Parser(_ispytest=True)
    plugin.pytest_addoption(parser)
    line = parser.parse(["--workbench-inputs", "bench.py:texts", "--workbench-call=bench.py:words"])
    assert line.workbench_call == ["bench.py:texts", "bench.py:words"]
    typed_words = ["pytest", "--benchmark", "--inputs", "bench.py:texts", "--workbench-inputs=bench.py:words"]
    assert [*words_of(typed_words, {"--call"})] == ["--call", "bench.py:texts", "--call", "bench.py:words"]


def test_what_is_sent_arrives() -> None:
    request = Request(compare=("fast", "mine"), added=("mine.py:mine",), fail_if=(Condition("slower", 5.0),), threads=2)
    arrived = received(Request, json.loads(json.dumps(sent(request))))
    assert arrived == Request(compare=("fast", "mine"), fail_if=(Condition("slower", 5.0),), threads=2)
    options = Options(
        budget_seconds=3, budget_has_gates=True, checkpoint=Path("model"), run_dir=Path("x"), profile=True
    )
    assert options.seed != Options().seed, "another one for each run"
    arrived_options = received(Options, json.loads(json.dumps(sent(options))))
    assert arrived_options == Options(
        budget_seconds=3, budget_has_gates=True, seed=options.seed, checkpoint=Path("model").resolve(), profile=True
    )


@pytest.mark.parametrize("table", [None, [], {"seed": "x"}, {"run_dir": "/x"}, {"nothing": 1}])
def test_what_no_option_is_does_not_arrive(table: object) -> None:
    with pytest.raises(ValueError):
        received(Options, table)


def test_a_run_that_goes_on_keeps_what_may_not_be_given_again() -> None:
    before = Options(seed=3, count_instructions=True, profile=True, checkpoint=Path("a"))
    given = Options(seed=0, checkpoint=Path("b"), run_dir=Path("here"))
    assert going_on(given, before) == Options(
        seed=3, count_instructions=True, checkpoint=Path("b"), run_dir=Path("here")
    )


def test_nothing_typed_is_every_default() -> None:
    line = {option.key: option.default for option in every_option()}
    assert typed(Start, line) == typed(Start, {}) == Start()
    assert typed(Request, line) == typed(Request, {}) == Request()
    assert typed(Options, line | {"seed": 1}) == typed(Options, {"seed": 1}) == Options(seed=1)
    assert Options().claims_folder == ROOT / "claims"


def test_a_word_that_is_no_condition_is_named_with_its_option() -> None:
    with pytest.raises(PlanError, match=r"^--fail-if slowr:1: expected WHAT:PERCENT"):
        typed(Request, {"fail_if": ["slower:2", "slowr:1"]})
