"""What goes wrong with one side, or once the rounds are over, takes nobody else's result away."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.harness.measure import profiling
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.session.run import Run, plan_run
from llama_workbench.harness.slices import faces
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.variants import FUNCTION_REFERENCE
from tests.runs import Quiet, measurement_of
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("short_sessions")]

SIDES = """
import os
import random

if os.path.exists(os.path.join(os.path.dirname(__file__), "answered")):
    os._exit(7)  # once the rounds are over this side cannot even be imported


def letters(seed):
    return ("".join(random.Random(seed).choices("abcdef", k=2000)),)


def counted(text):
    return {letter: text.count(letter) for letter in sorted(set(text))}


def one_by_one(text):
    found = {}
    for letter in text:
        found[letter] = found.get(letter, 0) + 1
    return dict(sorted(found.items()))


def poisons(text):
    random.Random = None  # whoever makes an input in this process after it fails
    return {}
"""


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "late.py").write_text(SIDES)
    (tmp_path / "early.py").write_text(SIDES.replace("answered", "never"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(variant: str) -> Request:
    return Request(compare=("early.py:one_by_one", variant), calls=("early.py:letters",))


def test_what_a_side_left_where_it_failed_is_laid_to_nobody_else(sides: Path) -> None:
    measurement = measurement_of(plan_run(asked("early.py:poisons"), Options()), sides)
    with measurement.processes.running():
        measurement.gates.pass_gates()
    [state] = measurement.participants.states
    assert list(state.excluded) == ["poisons"]
    assert {name for name, gate in state.gates.items() if gate.passed} == {
        "one_by_one", "one_by_one@aa", FUNCTION_REFERENCE,
    }  # fmt: skip


def test_the_reference_benchmark_is_left_out_of_one_input_and_measured_nowhere_there(sides: Path) -> None:
    request = Request(
        compare=("early.py:one_by_one", "early.py:counted"), calls=("early.py:letters", "late.py:letters")
    )
    participants = measurement_of(plan_run(request, Options()), sides).participants
    first, second = participants.states
    participants.exclude(FUNCTION_REFERENCE, "closes files that it did not open", first)
    assert FUNCTION_REFERENCE not in first.remaining().entered()
    assert FUNCTION_REFERENCE in second.remaining().entered() and not participants.excluded
    participants.exclude("counted", "raises ValueError", first)
    assert "counted" not in second.remaining().entered() and FUNCTION_REFERENCE in second.remaining().entered()


class Answered(Quiet):
    """Leaves a file where the first answer is said, which is when the rounds are over."""

    def note(self, text: str) -> None:
        super().note(text)
        if text.startswith("Is "):
            self.verdicts = json.loads(Path("run", VERDICTS).read_text())
            Path("answered").touch()


@pytest.mark.whole
def test_a_side_that_dies_once_the_rounds_are_over_keeps_its_verdict(sides: Path) -> None:
    progress = Answered()
    options = Options(budget_seconds=600, run_dir=Path("run"))
    result = Run(plan_run(asked("late.py:counted"), options), options, progress).measure()
    [verdict] = result.verdicts
    assert verdict.verdict == Word.FASTER and result.manifest.status == "complete"
    assert [each["verdict"] for each in progress.verdicts] == ["faster"], "the verdict was there before the passes"
    [experiment] = result.manifest.experiments
    assert not experiment.excluded and not result.manifest.excluded
    memory = {each["variant"]: each for each in json.loads(Path("run/memory.json").read_text())}
    assert "exit code 7" in memory["counted"]["reason"] and memory["one_by_one"]["peak_transient_bytes"] > 0
    [cause] = json.loads(Path("run/causes.json").read_text())
    assert "exit code 7" in cause["reason"]


@pytest.mark.whole
def test_a_memory_profiler_that_cannot_be_imported_is_named_and_the_rest_stands(
    sides: Path, run_pytest: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (sides / "broken" / "memray").mkdir(parents=True)
    (sides / "broken" / "memray" / "__init__.py").write_text("raise ImportError('built for another Python')")
    monkeypatch.setenv("PYTHONPATH", str(sides / "broken"))
    monkeypatch.chdir(sides)
    said = run_pytest(*WORDS)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "counted is " in said.stdout and " times as fast as one_by_one: " in said.stdout
    assert "\npasses: --fail-if slower:5\n" in said.stdout
    reasons = [each["reason"] for each in json.loads(Path("run/memory.json").read_text())]
    assert said.stdout.count("memory.json: nothing found, ") == 1
    assert len(reasons) == 2 and all("built for another Python" in reason for reason in reasons)


WORDS = (
    "--benchmark", "--compare", "early.py:one_by_one", "early.py:counted", "--call", "early.py:letters",
    "--budget=600", "--run-dir=run", "--fail-if=slower:5",
)  # fmt: skip


@pytest.mark.whole
def test_faults_of_ours_in_later_passes_are_a_line_each_beside_the_verdict(
    sides: Path, run_pytest: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second pass is made though the first failed."""

    def fault(*_: Any, **__: Any) -> None:
        raise KeyError("nobody's name")

    for causes in faces("causes"):
        monkeypatch.setattr(causes, "look_for_causes", fault)
    monkeypatch.setattr(profiling, "_look", fault)
    monkeypatch.chdir(sides)
    said = run_pytest(*WORDS)
    assert said.returncode == 0 and "INTERNALERROR" not in said.stdout + said.stderr
    assert "counted is " in said.stdout and " times as fast as one_by_one: " in said.stdout
    assert "\npasses: --fail-if slower:5\n" in said.stdout
    told = " ".join((said.stdout + said.stderr).split())
    assert "workbench: causes failed: KeyError" in told and "workbench: memory failed: KeyError" in told
    assert told.count("nobody's name") == told.count("what was measured before counts: workbench judge run") == 2
    assert Path("run/log/passes.log").read_text().count("in fault") == 2
    assert json.loads(Path("run/run.json").read_text())["status"] == "complete"
