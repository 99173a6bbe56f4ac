"""A metric, a profiler, a verb of `workbench` and a variant are one new file each: nothing else is touched.

The toys are put into a copy of the tree, and a real run there measures with them, in processes of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from llama_workbench import ROOT
from tests.test_metrics import CLAIM as SHORT_NAME

METRIC = '''
"""How many letters a variant's name has, as a measuring process counts them."""

from typing import Annotated, Literal

from llama_workbench.harness.measure.passes import measured_by
from llama_workbench.harness.metrics.base import ExactMetric, VariantHypothesis, subjects
from llama_workbench.harness.store.declared import JsonFile
from llama_workbench.harness.store.forms import Count, says
from llama_workbench.harness.store.pass_schema import ExactResult, OfVariant


class Letters(OfVariant):
    """A name."""

    letters: Annotated[Count, says("how long it is")]


LETTERS = JsonFile("letters.json", list[Letters])


class ToyHypothesis(VariantHypothesis):
    """At most so many letters."""

    metric: Literal["letters"]

    @property
    def unit(self):
        return "letters"


class ToyMetric(ExactMetric[ToyHypothesis]):
    """Letters."""

    names = ("letters",)
    hypothesis = ToyHypothesis
    title = "letters"
    does = "how long names are"
    files = (LETTERS,)

    def run(self, hypotheses, context):
        places = measured_by(context.measurement)
        records = []
        for workload, variant in subjects(hypotheses):
            process = context.measurement.gates.standing(places[workload][0])
            letters = process.ask("letters", 60.0, workload=workload, variant=variant)
            records.append({"workload": workload, "variant": variant, "letters": letters})
        context.folder.write_json(LETTERS, records)

    def read(self, folder):
        read = LETTERS.form.validate_python(folder.records(LETTERS))
        results = [ExactResult("letters", "", each.workload, each.variant, "", each.letters, 1) for each in read]
        return {result.subject: result for result in results}


def letters(worker, workload, variant):
    return len(worker.benches[workload].subjects[variant].variant.name)


METRIC = ToyMetric()
VERBS = {"letters": letters}
'''

PROFILER = '''
"""In which process a variant was looked at."""

import os
from typing import Annotated

from llama_workbench.harness.profilers.base import Profiler
from llama_workbench.harness.store.declared import JsonFile
from llama_workbench.harness.store.forms import Count, says
from llama_workbench.harness.store.pass_schema import OfVariant


class Number(OfVariant):
    """A process."""

    process: Annotated[Count, says("its number")]


class Numbers(Profiler):
    """Numbers of processes."""

    file = JsonFile("numbers.json", list[Number])

    def look(self, at):
        return {"process": at.ask("number")}


PROFILER = Numbers()
VERBS = {"number": lambda worker, workload, variant: os.getpid()}
'''

VERB = '''
"""`workbench spell`: what a run's toys wrote."""

from pathlib import Path

from .shared import print_json


def command(run: Path) -> None:
    """Print what the toys wrote into a run."""
    from llama_workbench.harness.metrics.letters import LETTERS
    from llama_workbench.harness.store.folder import RunFolder

    print_json(RunFolder(run).records(LETTERS))
'''

VARIANT = '''
"""A variant of one's own."""

from llama_workbench.variants.presets import presets


def mine(config, weights, *, max_length):
    return presets()["fast"].build(config, weights, max_length=max_length)
'''

CLAIM = SHORT_NAME.replace('"toy"', '"letters"')

NEW = {
    "harness/metrics/letters.py": METRIC,
    "harness/profilers/numbers.py": PROFILER,
    "llama_workbench/commands/spell.py": VERB,
    "mine.py": VARIANT,
    "claims/short-name.toml": CLAIM,
}


@dataclass(frozen=True)
class Tree:
    """A copy of the repository with the toys in it."""

    path: Path

    def python(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a module there, in a process of its own."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        command = [sys.executable, "-m", *map(str, words)]
        environment = ours | {"PYTHONPATH": str(self.path)}
        return subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    def workbench(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run the command there."""
        return self.python("llama_workbench.commands.app", *words)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The tree, and in its folder `run` what was measured there."""
    path = tmp_path_factory.mktemp("tree")
    for name in ("llama_workbench", "harness", "variants", "datasets", "dashboard"):
        shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", path)
    (path / "claims").mkdir()
    for name, text in NEW.items():
        assert not (path / name).exists(), "no file is edited"
        (path / name).write_text(text, encoding="utf-8")
    made = Tree(path)
    measured = made.python(
        "pytest", "-q", "-p", "llama_workbench.harness.plugin.plugin", "--benchmark", "--claims=short-name",
        "--profile", "--budget=3", "--run-dir=run",
    )  # fmt: skip
    assert measured.returncode == 0, measured.stdout + measured.stderr
    return made


def test_a_metric_writes_a_file_of_its_own_by_a_verb_of_its_own(tree: Tree) -> None:
    run = tree.path / "run"
    [verdict] = json.loads((run / "verdicts.json").read_text())
    assert (verdict["claim"], verdict["verdict"]) == ("short-name", "supported")
    assert json.loads((run / "letters.json").read_text())[0]["letters"] == 4
    assert " letters.json\n" in (run / "SHA256SUMS").read_text()
    judged = tree.workbench("judge", run, "--json")
    assert judged.returncode == 0 and json.loads(judged.stdout)[0]["verdict"] == "supported", judged.stderr
    assert "## letters.json\n" in tree.python("llama_workbench.harness.metrics.document").stdout


def test_a_profiler_writes_a_file_of_its_own(tree: Tree) -> None:
    run = tree.path / "run"
    records = json.loads((run / "numbers.json").read_text())
    assert {entry["variant"] for entry in records} >= {"fast"} and all(entry["process"] > 1 for entry in records)
    assert " numbers.json\n" in (run / "SHA256SUMS").read_text()
    assert "## numbers.json\n" in tree.python("llama_workbench.harness.metrics.document").stdout


def test_a_verb_is_there_and_reads_the_file_again(tree: Tree) -> None:
    assert "spell " in tree.workbench("--help").stdout
    said = tree.workbench("spell", tree.path / "run")
    assert json.loads(said.stdout)[0]["letters"] == 4, said.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("4", "5", "letters.json: its content is not what the run wrote"), ("4", '"x"', "[0].letters = 'x', expected a")],
)
def test_damage_to_a_file_of_ones_own_is_told(tree: Tree, tmp_path: Path, old: str, new: str, said: str) -> None:
    run = shutil.copytree(tree.path / "run", tmp_path / "run")
    file = run / "letters.json"
    file.write_text(file.read_text().replace(f'"letters": {old}', f'"letters": {new}'))
    if new == '"x"':
        tree.python("llama_workbench.harness.store.sums", run)
    told = tree.workbench("judge", run)
    assert told.returncode == 2 and said in told.stderr


def test_a_variant_is_a_file_anywhere(tree: Tree) -> None:
    done = tree.workbench("check", "mine.py:mine")
    assert done.returncode == 0 and "are right" in done.stdout, done.stdout + done.stderr
