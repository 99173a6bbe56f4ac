"""A profiler, a verb of `workbench` and a variant are one new file each, and a metric with a page of the dashboard is
one new folder: nothing else is touched.

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
from tests.metrics.test_metrics import CLAIM as SHORT_NAME
from tests.unchanged import SESSIONS

pytestmark = pytest.mark.covers("dashboard", *SESSIONS)

SWITCHES = '''
"""How often the operating system takes the core from a thread that calls a variant, or the thread gives it away."""

from typing import Annotated, Literal

from llama_workbench.harness.measure.passes import measured_by
from llama_workbench.harness.metrics.base import ExactMetric, VariantHypothesis, subjects
from llama_workbench.harness.store.forms import JsonFile
from llama_workbench.harness.store.forms import Count, says
from llama_workbench.harness.store.forms import ExactResult, OfVariant


class Switches(OfVariant):
    """Context switches of a variant."""

    calls: Annotated[Count, says("number of calls")]
    switches: Annotated[Count, says("context switches during all of them")]


SWITCHES = JsonFile("switches.json", list[Switches])


class SwitchesHypothesis(VariantHypothesis):
    """At most so many context switches a call."""

    metric: Literal["switches"]

    @property
    def unit(self):
        return "switches"


class SwitchesMetric(ExactMetric[SwitchesHypothesis]):
    """Context switches, as the kernel counts them."""

    names = ("switches",)
    hypothesis = SwitchesHypothesis
    title = "switches"
    does = "how often the thread loses its core"
    files = (SWITCHES,)

    def run(self, hypotheses, context):
        places, records = measured_by(context.measurement), []
        for workload, variant in subjects(hypotheses):
            process = context.measurement.gates.standing(places[workload][0])
            counted = process.ask("switches", 60.0, workload=workload, variant=variant, calls=5)
            records.append({"workload": workload, "variant": variant, "calls": 5, "switches": counted})
            context.folder.write_json(SWITCHES, records)

    def read(self, folder):
        results = [
            ExactResult("switches", "", each.workload, each.variant, "", each.switches / each.calls, each.calls)
            for each in folder.read(SWITCHES)
        ]
        return {result.subject: result for result in results}


METRIC = SwitchesMetric()
'''

PROFILER = '''
"""In which process a variant was looked at."""

from typing import Annotated

from llama_workbench.harness.measure.profiling import Profiler
from llama_workbench.harness.store.forms import JsonFile
from llama_workbench.harness.store.forms import Count, says
from llama_workbench.harness.store.forms import OfVariant


class Number(OfVariant):
    """A process."""

    process: Annotated[Count, says("its number")]


class Numbers(Profiler):
    """Numbers of processes."""

    file = JsonFile("numbers.json", list[Number])

    def look(self, at):
        return {"process": at.ask("number")}


PROFILER = Numbers()
'''

NUMBERS_WORKER = '''
"""The number of the measuring process."""

import os

VERBS = {"number": lambda worker, workload, variant: os.getpid()}
'''

VERB = '''
"""`workbench spell`: what a run's toys wrote."""

from pathlib import Path

from .shared import print_json


def command(run: Path) -> None:
    """Print what the toys wrote into a run."""
    from llama_workbench.harness.slices.switches.metric import SWITCHES
    from llama_workbench.harness.store.folder import RunFolder

    print_json(RunFolder(run).records(SWITCHES))
'''

VARIANT = '''
"""A variant of one's own."""

from llama_workbench.variants.presets import presets


def mine(config, weights, *, max_length):
    return presets()["fast"].build(config, weights, max_length=max_length)
'''

SWITCHES_WORKER = '''
"""Context switches, counted in the measuring process."""

from resource import RUSAGE_THREAD, getrusage



def switches(worker, workload, variant, calls):
    bench = worker.benches[workload]
    with worker.modes_of(bench):
        runner = bench.kind.runner(worker, bench, bench.subjects[variant].variant)
        runner.prepare(bench.workload.tokens, bench.take(calls), calls)
        before = getrusage(RUSAGE_THREAD)
        for _ in range(calls):
            runner.call()
        after = getrusage(RUSAGE_THREAD)
    return after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw


VERBS = {"switches": switches}
'''

SWITCHES_PAGE = '''
"""Switches: how often a thread lost its core while it called a variant."""

from llama_workbench.dashboard.sections import blocks, head
from llama_workbench.harness.store.folder import RunFolder

from .metric import SWITCHES

PAGE = ("switches", "Switches", "swap_horiz", "How often a thread lost its core.")


def show():
    opened = head.open_run("Switches")
    if opened is not None:
        rows = [each.model_dump() for each in RunFolder(opened.run.path).read(SWITCHES)]
        blocks.table(rows, "Context switches of each variant")
'''

CLAIM = SHORT_NAME.replace("short-name", "few-switches").replace('"toy"', '"switches"').replace("= 4", "= 1000")

OPENED = """
import sys
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
from llama_workbench import ROOT
sys.argv = ["app.py", "--results", sys.argv[1]]
app = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=120).run()
app._page_hash = calc_hash("switches")  # as a page that is no file has it
app.run()
assert not app.exception, [each.message for each in app.exception]
print(app.title[0].value, app.dataframe[0].value.to_json(orient="records"))
"""

DECLARED = """
from llama_workbench.harness.metrics.registry import metrics
from llama_workbench.harness.measure.profiling import profilers
print(*(file for metric in metrics() for file in metric.files), *(profiler.file for profiler in profilers()))
"""

NEW = {
    "harness/slices/numbers/__init__.py": '"""Numbers of processes."""',
    "harness/slices/numbers/profiler.py": PROFILER,
    "harness/slices/numbers/worker.py": NUMBERS_WORKER,
    "llama_workbench/commands/spell.py": VERB,
    "mine.py": VARIANT,
    "harness/slices/switches/__init__.py": '"""Context switches."""',
    "harness/slices/switches/metric.py": SWITCHES,
    "harness/slices/switches/worker.py": SWITCHES_WORKER,
    "harness/slices/switches/page.py": SWITCHES_PAGE,
    "claims/few-switches.toml": CLAIM,
}


@dataclass(frozen=True)
class Tree:
    """A copy of the repository with the toys in it."""

    path: Path

    def python(self, *words: object, flag: str = "-m") -> subprocess.CompletedProcess[str]:
        """Run a module there, in a process of its own; without the flag what the words say."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        command = [sys.executable, *filter(None, [flag]), *map(str, words)]
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
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    made = Tree(path)
    measured = made.python(
        "pytest", "-q", "-p", "llama_workbench.harness.plugin.plugin", "--benchmark", "--profile", "--budget=3",
        "--claims=few-switches", "--run-dir=run",
    )  # fmt: skip
    assert measured.returncode == 0, measured.stdout + measured.stderr
    return made


def test_a_metric_with_a_file_a_verb_and_a_page_of_its_own_is_one_folder(tree: Tree, tmp_path: Path) -> None:
    run = shutil.copytree(tree.path / "run", tmp_path / "runs" / "run")
    [verdict] = json.loads((run / "verdicts.json").read_text())
    assert verdict["verdict"] == "supported" and verdict["effects"][0]["unit"] == "switches"
    [counted] = json.loads((run / "switches.json").read_text())
    assert counted["calls"] == 5 and verdict["effects"][0]["value"] == counted["switches"] / 5
    assert " switches.json\n" in (run / "SHA256SUMS").read_text()
    judged = tree.workbench("judge", run, "--json")
    assert judged.returncode == 0 and json.loads(judged.stdout)[0]["verdict"] == "supported", judged.stderr
    opened = tree.python("-c", OPENED, tmp_path, flag="")
    assert opened.returncode == 0, opened.stderr
    title, _, table = opened.stdout.strip().partition(" ")
    shown = {name: json.loads(table)[0][name] for name in ("variant", "calls", "switches")}
    assert (title, shown) == ("Switches", {name: counted[name] for name in shown})


def test_a_profiler_writes_a_file_of_its_own(tree: Tree) -> None:
    run = tree.path / "run"
    records = json.loads((run / "numbers.json").read_text())
    assert {entry["variant"] for entry in records} >= {"fast"} and all(entry["process"] > 1 for entry in records)
    assert " numbers.json\n" in (run / "SHA256SUMS").read_text()
    declared = tree.python("-c", DECLARED, flag="").stdout.split()
    assert {"numbers.json", "switches.json"} <= {*declared}, "what docs/reference/file-format.md lists"


def test_a_verb_is_there_and_reads_the_file_again(tree: Tree) -> None:
    assert "spell " in tree.workbench("--help").stdout
    said = tree.workbench("spell", tree.path / "run")
    assert json.loads(said.stdout)[0]["calls"] == 5, said.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("5", "6", "switches.json: its content is not what the run wrote"), ("5", '"x"', "[0].calls = 'x', expected a")],
)
def test_damage_to_a_file_of_ones_own_is_told(tree: Tree, tmp_path: Path, old: str, new: str, said: str) -> None:
    run = shutil.copytree(tree.path / "run", tmp_path / "run")
    file = run / "switches.json"
    file.write_text(file.read_text().replace(f'"calls": {old}', f'"calls": {new}'))
    if new == '"x"':
        tree.python("llama_workbench.harness.store.files", run)
    told = tree.workbench("judge", run)
    assert told.returncode == 2 and said in told.stderr


def test_a_variant_is_a_file_anywhere(tree: Tree) -> None:
    done = tree.workbench("check", "mine.py:mine")
    assert done.returncode == 0 and "are right" in done.stdout, done.stdout + done.stderr


TOYS = """
    loud: int = single("loud", "a toy", metavar="N", typed=int, default=0, usual=0, sent=True)
    quiet: bool = flag("quiet", "another", sent=True, again=True)
"""


PROGRAM = """
import importlib.util, json, sys
name = "llama_workbench.harness.plan.options"
import llama_workbench.harness.plan
spec = importlib.util.spec_from_file_location(name, sys.argv[1])
options = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(options)

import pytest
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
}))
"""


def test_a_new_option_is_one_line(tmp_path: Path) -> None:
    """It is read from the command line, sent to a node, and kept by a run that goes on, or may be given again."""
    source = (ROOT / "harness/plan/options.py").read_text("utf-8")
    place = "    gates_only: bool = False\n"
    assert source.count(place) == 1
    (tmp_path / "options.py").write_text(source.replace(place, TOYS + place), encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "options.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["typed"] == found["arrived"] == [3, True]
    assert found["again"] == [3, False], "what may be given again is not kept"
