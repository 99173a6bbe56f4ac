"""Functions in two environments: measured, and refused; and answers that go through a file."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import llama_workbench as wb
from conftest import Said
from llama_workbench.commands.app import main
from llama_workbench.harness.calls import carried, environments
from llama_workbench.harness.calls.answers import difference
from llama_workbench.harness.calls.environments import MADE, environments_at, facts_of, interpreter_at, label_of
from llama_workbench.harness.calls.source import SourceError
from llama_workbench.harness.machine import bootstrap
from llama_workbench.harness.measure import measurement, processes
from llama_workbench.harness.measure.processes import begin as really_begin
from llama_workbench.harness.plan.options import Options, PlanError, Request, placed
from llama_workbench.harness.report.text import environments_text
from llama_workbench.harness.session import run as session
from llama_workbench.harness.store.schema import manifest_of
from tests.runs import code_by_intervals
from tests.session.test_revisions import code_of
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm")]

SPEEDLIB = """
VERSION = "{version}"


def work(numbers):
    for _ in range({times}):
        out = sorted(numbers)
    return out


def wrong(numbers):
    return sorted(numbers)[:{times}]


def dies(numbers):
    import os
    if VERSION == "2.0":
        os.abort()
    return sorted(numbers)


class Box:
    def __init__(self, values):
        self.values = values

    def __eq__(self, other):
        return self.values == other.values


def boxed(numbers):
    return Box(sorted(numbers))
"""

BENCH = """
import random

import speedlib


def numbers(seed):
    draw = random.Random(seed)
    return [draw.random() for _ in range(200)]


def other_numbers(seed):
    draw = random.Random(f"{seed} {speedlib.VERSION}")
    return [draw.random() for _ in range(200)]


def values_of(box):
    return box.values
"""


def environment(folder: Path, version: str, times: int) -> Path:
    """A virtual environment with the packages of this one, and a version of `speedlib`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "speedlib.py").write_text(SPEEDLIB.format(version=version, times=times))
    about = packages / f"speedlib-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: speedlib\nVersion: {version}\n")
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two environments: in the second `speedlib.work` does twice as much."""
    root = tmp_path_factory.mktemp("places")
    return str(environment(root / "old", "1.0", 20)), str(environment(root / "new", "2.0", 40))


@pytest.fixture(scope="module")
def looked_once() -> Iterator[None]:
    """Each interpreter is started once: it takes seconds to say that the workbench runs there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environments, "_look", cache(environments._look))
        yield


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_once: None) -> Path:
    """A folder with the payload, where rounds are short."""
    (tmp_path / "bench.py").write_text(BENCH)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measurement, "MOST_SECONDS", 0.1)
    return tmp_path


# -- measured ----------------------------------------------------------------------------------------------------------

Compare = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def compare(project: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    """`compare-revisions` of the working tree with itself: exit code, what --json says (or {}), and standard error."""

    def run(subject: str, *words: str, call: str = "bench.py:numbers", budget: str = "600") -> Any:
        command = ("compare-revisions", ".", ".", f"speedlib:{subject}", "--call", call, "--budget", budget, "--json")
        code = code_of(*command, *words)
        said = capsys.readouterr()
        return code, json.loads(said.out or "{}"), said.err

    return run


def test_what_a_package_costs_more_is_found(compare: Compare, places: tuple[str, str]) -> None:
    code, found, _ = compare("work", "--env", places[0], "--env", places[1], "--slower", "20")
    [row] = found["rows"]
    assert code == 1 and row["verdict"] == "slower" and row["low"] <= row["ratio"] <= row["high"] < 1 / 1.2
    manifest = json.loads(Path(row["run"], "run.json").read_text())
    assert manifest["environments"] == found["environments"]
    old, new = found["environments"]["work-old"], found["environments"]["work-new"]
    assert old["differs"] == new["differs"] == ["speedlib"]
    assert (old["packages"]["speedlib"], new["packages"]["speedlib"]) == ("1.0", "2.0")
    assert old["packages"]["torch"] == new["packages"]["torch"] == torch.__version__
    [experiment] = manifest["experiments"]
    assert experiment["blocks"] == 0 and not manifest["excluded"]
    assert row["rounds"] == experiment["rounds"] >= 12
    samples = wb.open(row["run"]).samples
    of_round = samples.groupby(["process", "round"], observed=True)
    assert len(of_round) == samples["process"].nunique() == row["rounds"], "fresh processes in each round"
    assert (of_round["variant"].nunique() == 2).all() and set(samples["position"]) == {0, 1}


@pytest.mark.long
def test_an_environment_is_not_slower_than_itself(compare: Compare, places: tuple[str, str]) -> None:
    code, found, _ = compare("work", "--env", places[0], "--slower", "60")
    assert code == 0 and [row["verdict"] for row in found["rows"]] == ["not slower"]
    assert found["rows"][0]["rounds"] >= 12
    assert [each["differs"] for each in found["environments"].values()] == [[], []]


@pytest.mark.parametrize(
    ("subject", "call", "told"),
    [
        ("wrong", "bench.py:numbers", "40 items for 20"),
        ("work", "bench.py:other_numbers", "makes other inputs there than in the environment of work-old"),
        ("boxed", "bench.py:numbers", "(a Box): give --check FILE:FUNCTION with a function of one answer"),
        ("dies", "bench.py:numbers", "kills its process (SIGABRT)"),
        ("gone", "bench.py:numbers", "gone-old is left out"),
    ],
)
def test_what_cannot_be_compared_is_told(
    compare: Compare, places: tuple[str, str], subject: str, call: str, told: str
) -> None:
    code, found, said = compare(subject, "--env", places[0], "--env", places[1], call=call)
    whole = " ".join([*said.split(), *(row["reason"] for row in found.get("rows", ()))])
    assert (code, told in whole) == (6, True), whole


def test_a_check_of_one_answer_counts_in_processes_of_both_environments(
    compare: Compare, places: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def begin(*words: Any, python: str, **more: Any) -> Any:
        begun.append(python)
        return really_begin(*words, python=python, **more)

    monkeypatch.setattr(processes, "begin", begin)
    check = ("--check", "bench.py:values_of")
    code, found, said = compare("boxed", "--env", places[0], "--env", places[1], *check, budget="1")
    assert code == 2 and "left out" not in said and found["rows"][0]["rounds"] >= 1
    assert len(begun) >= 4 and set(begun) == {f"{place}/bin/python" for place in places}


def test_sides_of_a_comparison_have_environments_by_name(
    project: Path, places: tuple[str, str], run_pytest: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    sides = ("--compare", "old=speedlib:work", "new=speedlib:work", "--call", "bench.py:numbers")
    words = ("--benchmark", *sides, "--env", f"new={places[1]}", "--env", f"old={places[0]}", "--budget", "1")
    said = run_pytest(*words, f"--run-dir={project / 'run'}")
    assert said.returncode == code_by_intervals(project / "run"), said.stdout
    assert "Environments: old in Python" in said.stdout and "(speedlib 1.0," in said.stdout
    samples = json.loads((project / "run" / "run.json").read_text())["environments"]
    assert list(samples) == ["old", "new"]


# -- with nothing of ours ----------------------------------------------------------------------------------------------


def test_a_process_of_functions_needs_the_standard_library_alone() -> None:
    """-S: nothing that is installed can be imported."""
    words = [sys.executable, "-I", "-S", bootstrap.__file__, "harness.worker.main", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0 and "gates and times" in done.stdout, done.stderr


def test_its_own_modules_are_compiled_once_also_where_python_keeps_nothing(tmp_path: Path) -> None:
    words = [sys.executable, bootstrap.__file__, "harness.worker.main", "--help"]
    where = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    subprocess.run(words, capture_output=True, check=True, env=where)
    kept = {path.name.partition(".")[0]: path.stat().st_mtime_ns for path in tmp_path.rglob("harness/**/*.pyc")}
    assert {"rounds", "watch", "called"} <= {*kept}
    subprocess.run(words, capture_output=True, check=True, env=where)
    again = {path.name.partition(".")[0]: path.stat().st_mtime_ns for path in tmp_path.rglob("harness/**/*.pyc")}
    assert again == kept


def test_what_it_imports_is_written_for_the_oldest_python() -> None:
    code = "import llama_workbench.harness.worker.main, sys; print(*(m.__file__ for n, m in sys.modules.items()"
    code += " if n.startswith('llama_workbench') and getattr(m, '__file__', None)), sep='\\n')"
    code = f"import runpy; runpy.run_path({bootstrap.__file__!r})['provide']()\n{code}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    files = done.stdout.split()
    assert len(files) > 30
    for file in files:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"), feature_version=bootstrap.OLDEST)
        strict = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "strict"]
        assert not strict, f"{file}: Python 3.9 has no zip(strict=)"


def other_pythons() -> list[str]:
    """Interpreters of other minor versions, the oldest and the newest beside the one that runs or on the path."""
    beside = Path(sys.base_prefix).parent.glob("*/bin/python3.*")
    known = [file for file in beside if re.fullmatch(r"python3\.\d+", file.name)]
    named = [Path(path) for minor in range(9, 20) if (path := shutil.which(f"python3.{minor}"))]
    by_minor = {int(file.name.removeprefix("python3.")): str(file) for file in (*named, *known)}
    others = [path for minor, path in sorted(by_minor.items()) if minor >= 9 and minor != sys.version_info.minor]
    return [*others[:1], *others[1:][-1:]]


BARE = """
import random


def work(numbers):
    return sorted(numbers)


def half_as_fast(numbers):
    return sorted(sorted(numbers, key=str), key=float)


def numbers(seed):
    draw = random.Random(seed)
    return [draw.random() for _ in range(2000)]
"""


@pytest.mark.covers("harness/calls", "harness/machine", "harness/measure", "harness/worker")
@pytest.mark.parametrize("python", other_pythons(), ids=lambda path: Path(path).name)
def test_another_python_with_nothing_of_ours(
    project: Path, run_pytest: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, python: str
) -> None:
    monkeypatch.chdir(project)
    place = str(tmp_path / "bare")
    subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)
    (project / "plain.py").write_text(BARE)
    sides = ("--compare", "old=plain.py:work", "new=plain.py:half_as_fast", "--call", "plain.py:numbers")
    said = run_pytest("--benchmark", *sides, "--env", place, "--budget", "60", f"--run-dir={project / 'run'}")
    assert said.returncode == 0 and "What to do: Keep old." in said.stdout, said.stdout
    run = json.loads((project / "run" / "run.json").read_text())
    assert {side["python"] for side in run["environments"].values()} == {version_of(python)}
    assert not run["excluded"] and run["experiments"][0]["rounds"] >= 12


def version_of(python: str) -> str:
    words = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


# -- made by the workbench ---------------------------------------------------------------------------------------------


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two versions of a package, from which alone pip installs."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version, times in (("1.0", 20), ("2.0", 40)):
        about = f"speedlib-{version}.dist-info"
        with zipfile.ZipFile(folder / f"speedlib-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("speedlib.py", SPEEDLIB.format(version=version, times=times))
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: speedlib\nVersion: {version}\n")
            tag = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{about}/WHEEL", tag)
            names = ("speedlib.py", f"{about}/METADATA", f"{about}/WHEEL", f"{about}/RECORD")
            wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in names))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.covers("harness/calls", "harness/machine", "harness/measure", "harness/worker")
@pytest.mark.long
def test_an_environment_is_made_of_what_it_needs(
    project: Path, wheels: Path, compare: Compare, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, said = compare("work", "--env", "speedlib==1.0", "--env", "speedlib==2.0", "--slower", "20")
    assert code == 1 and list(found["environments"]) == ["work-speedlib-1.0", "work-speedlib-2.0"], said
    assert [each["packages"]["speedlib"] for each in found["environments"].values()] == ["1.0", "2.0"]
    assert "making an environment with speedlib==1.0 (once; kept in" in said
    again = interpreter_at("speedlib==1.0")
    assert again.endswith("/speedlib-1.0/bin/python") and not capsys.readouterr().err


CLAIM = """
id = "two-is-slower"
title = "speedlib 2.0 is slower"
who = ["somebody"]
source = [{ document = "a/b#1", section = "one" }]
statement = "The second version is slower."
assumes = []
decided_by = "The time of a call."
function = [
  { name = "one", source = "speedlib:work", environment = "speedlib==1.0" },
  { name = "two", source = "speedlib:work", environment = "speedlib==2.0" },
]
call = [{ name = "numbers", payload = "bench.py:numbers" }]

[[hypothesis]]
evidence = "context"
variant = "two"
baseline = "one"
workloads = ["numbers"]
metric = "time"
slower_than_percent = 20
"""


@pytest.mark.covers("harness/calls", "harness/machine", "harness/measure", "harness/worker")
@pytest.mark.long
def test_functions_of_a_claim_have_environments_too(
    project: Path, wheels: Path, run_pytest: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "claims").mkdir()
    (project / "claims" / "two-is-slower.toml").write_text(CLAIM)
    (project / "claims" / "bench.py").write_text(BENCH)
    with contextlib.suppress(SystemExit):
        main(["check", "claims/two-is-slower.toml"])
    assert not list(project.rglob(MADE)), "to check a claim nothing is installed"
    said = run_pytest("--benchmark", "--claims-dir=claims", "--budget=60", f"--run-dir={project / 'run'}")
    assert said.returncode == 0 and "supported · two-is-slower" in said.stdout, said.stdout
    run = json.loads((project / "run" / "run.json").read_text())
    assert [side["packages"]["speedlib"] for side in run["environments"].values()] == ["1.0", "2.0"]


def test_what_cannot_be_installed_is_told(project: Path, wheels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SourceError, match=r"--env speedlib==3\.0: pip could not make it: .*speedlib==3\.0"):
        environments_at(["speedlib==3.0"])
    assert not list(project.rglob(MADE)), "what was left is not taken for one that was made"


# -- what is refused before anything is measured -----------------------------------------------------------------------


def interpreter(folder: Path, said: str) -> str:
    """An environment whose python prints this, whatever it is asked."""
    (folder / "bin").mkdir(parents=True)
    (folder / "said").write_text(said)
    python = folder / "bin" / "python"
    python.write_text(f"#!/bin/sh\ncat {folder}/said\n")
    python.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("hello", "does not answer as Python does"),
        ("[1]", "does not answer as Python does"),
        (json.dumps({"python": [3, 8, 2]}), "its Python is 3.8.2; expected 3.9 or newer"),
        (
            json.dumps({"python": [3, 12, 1], "packages": {}, "error": "OSError: no libc"}),
            r"its Python 3.12.1 cannot measure \(OSError: no libc\)",
        ),
    ],
)
def test_an_environment_in_which_nothing_can_be_measured(tmp_path: Path, said: str, told: str) -> None:
    place = interpreter(tmp_path / "other", said)
    with pytest.raises(SourceError, match=f"--env {place}: .*{told}"):
        environments_at([place])


def test_a_place_that_is_no_environment(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    for name, told in (
        ("gone", r"there is no such folder; expected a virtual .*, or what to install: 'numpy==2.1'"),
        ("", "no virtual environment, for there is no bin/python in it: python -m venv"),
        ("notes.txt", "this file is no interpreter"),
    ):
        with pytest.raises(SourceError, match=told):
            environments_at([str(tmp_path / name)])
    with pytest.raises(SourceError, match=r"--env python3.77 tiny==1: there is no python3.77 on the path"):
        environments_at(["python3.77 tiny==1"])


def test_an_interpreter_is_a_place_too(places: tuple[str, str], looked_once: None) -> None:
    python = f"{places[0]}/bin/python"
    found = environments_at([places[0], python])
    assert found[places[0]].python == found[python].python == python
    assert (
        label_of(python) == "old"
        and label_of("/somewhere/.venv/bin/python3") == "venv"
        and label_of("/usr/bin/python3.13") == "python3.13"
    )


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (Request(compare=("fast", "yardstick"), environments=(("", "x"),)), "only with --call: models run in this"),
        (
            Request(
                compare=("json:dumps", "a=json:loads"), calls=("json:dumps",), environments=(("b", "x"),)
            ),
            "neither is called 'b'; the names are dumps and a",
        ),
    ],
)  # fmt: skip
def test_sides_that_there_are_not(request_: Request, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        session.plan_run(request_, Options())


def test_passes_are_for_one_environment() -> None:
    asked = Request(compare=("a", "b"), calls=("c",), environments=(("", "x"),))
    for options in (Options(profile=True), Options(count_instructions=True)):
        with pytest.raises(PlanError, match="only where both run in one environment"):
            session.check(asked, options)


def test_places_with_and_without_a_side() -> None:
    assert placed("new=.venv") == ("new", ".venv") and placed("a/b=c") == ("", "a/b=c")
    assert placed(".venv") == ("", ".venv") and placed("numpy==2.1") == ("", "numpy==2.1")
    assert placed("new=numpy==2.1") == ("new", "numpy==2.1") and placed("numpy>=2") == ("", "numpy>=2")


def test_what_differs_is_said_in_a_line() -> None:
    def one(packages: dict[str, str]) -> environments.PythonEnvironment:
        return environments.PythonEnvironment("x", "/x/bin/python", "3.12.1", packages)

    facts = facts_of({"a": one({"numpy": "1.26", "left": "1", "same": "2"}), "b": one({"numpy": "2.4", "same": "2"})})
    assert facts["b"] == {
        "python": "3.12.1", "packages": {"left": None, "numpy": "2.4"}, "differs": ["left", "numpy"],
    }  # fmt: skip
    line = "Environments: a in Python 3.12.1 (left 1, numpy 1.26); b in Python 3.12.1 (left not installed, numpy 2.4)."
    versions = dict.fromkeys(("left", "numpy", "aaa", "bbb", "ccc", "ddd", "eee"), "1")
    both = {"a": one(versions), "b": one(dict.fromkeys(versions, "2"))}
    assert facts_of(both, ["numpy", "left", "json"])["a"]["differs"][:3] == ["left", "numpy", "aaa"]
    alike = manifest_of({"environments": facts_of({"a": one({}), "b": one({})})}).environments
    assert environments_text(manifest_of({"environments": facts}).environments) == line and not environments_text({})
    assert environments_text(alike) == "Environments: a in Python 3.12.1; b in Python 3.12.1."


# -- answers that go through a file ------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@dataclass
class Holder:
    name: str
    values: Any


VALUES = [
    None, True, "text \ud800", 1, -(3**20000), 1.5, math.inf, 1 + 2j, b"\x00\xff", bytearray(b"x"),
    [1, "two", [3.0, None]], (1, (2,)), {"a": 1, 2: [3], (4, 5): {6}}, {1, 2}, frozenset("ab"), list(range(1000)),
    np.arange(6.0).reshape(2, 3), np.array(["a", "bc"]), np.float32(0.5), np.array([1 + 2j]),
    np.datetime64("2020-01-01"),
    torch.arange(6).reshape(2, 3), torch.tensor(1.5, dtype=torch.bfloat16), torch.empty(0, 3), torch.randn(2, 2).t(),
    {"logits": torch.ones(2, dtype=torch.complex64), "rows": [np.zeros((0, 2))]},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_an_answer_comes_out_as_it_went_in(tmp_path: Path, value: Any) -> None:
    carried.write(tmp_path / "answers", [value, [value], np.ones(3)])
    one, other, last = carried.read(tmp_path / "answers")
    assert last.tolist() == [1, 1, 1], "each array has a place of its own"
    assert type(one) is type(value) and not difference(one, value) and not difference(other, [value])
    assert carried.digest(value) == carried.digest(one) and carried.digest(value) != carried.digest([value])


def test_not_a_number_and_classes(tmp_path: Path) -> None:
    carried.write(tmp_path / "answers", [math.nan, Pair(1, 2), Holder("a", [1])])
    nan, pair, holder = carried.read(tmp_path / "answers")
    assert math.isnan(nan) and pair == {"class": "Pair", "left": 1, "right": 2}
    assert holder == {"class": "Holder", "name": "a", "values": [1]}


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (ENDLESS, "nested too deeply"),
        ([object()], r"\[0\]: a object"),
        ({"a": np.array([object()])}, r"\['a'\]: an array of object"),
        (print, "a builtin_function_or_method"),
        (torch.eye(2).to_sparse(), "sparse"),
    ],
)
def test_what_is_no_plain_data_is_refused_and_not_pickled(tmp_path: Path, value: Any, told: str) -> None:
    with pytest.raises(carried.NotCarried, match=told):
        carried.write(tmp_path / "answers", [value])
    if "nested" not in told:
        assert carried.digest(value) == carried.digest(value), "an input may have one: of it the name is taken in"


def test_equal_inputs_have_one_digest_and_others_another() -> None:
    assert carried.digest({"a", "b", "c"}) == carried.digest({"c", "b", "a"})
    assert carried.digest(torch.zeros(3)) != carried.digest(torch.tensor([0.0, 0.0, 1e-30]))
    assert carried.digest(torch.zeros(3)) != carried.digest(torch.zeros(3, dtype=torch.float64))
    assert carried.digest([1, 2]) != carried.digest((1, 2)) and carried.digest(1) != carried.digest(1.0)


@pytest.mark.parametrize(
    "plain",
    [
        {"kind": "array", "bytes": "0.bin"},
        {"kind": "tensor", "dtype": "load", "shape": [1], "bytes": "0.bin"},
        {"kind": "x"},
    ],
)
def test_a_file_that_nobody_wrote_is_not_executed(tmp_path: Path, plain: dict[str, Any]) -> None:
    np.save(tmp_path / "objects.npy", np.array([print]), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "answers", "w") as archive:
        archive.write(tmp_path / "objects.npy", "0.bin")
        archive.writestr(carried.ANSWERS, json.dumps([plain]))
    with pytest.raises(ValueError, match=r"allow_pickle=False|no type of tensor|no kind of value"):
        carried.read(tmp_path / "answers")
