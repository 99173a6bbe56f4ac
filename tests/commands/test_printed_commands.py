"""Every command that a session prints can be pasted in the folder where it was given, and does what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import Said
from llama_workbench.commands.app import main
from llama_workbench.harness.machine.places import published, with_folders
from llama_workbench.harness.spec.words import SessionExit, VerbExit
from tests.runs import code_by_intervals
from tests.session.test_revisions import git

pytestmark = [
    pytest.mark.covers(
        "harness/machine", "harness/plan", "harness/plugin", "harness/report", "harness/session", "llama_workbench"
    ),
    pytest.mark.usefixtures("warm"),
]

WAYS = """\
def once(numbers):
    return sorted(numbers)


def again(numbers):
    return sorted(numbers)
"""

PAYLOAD = """\
def numbers(seed):
    return [(7919 * number + seed) % 5003 for number in range(1000)]


def same(got, expected):
    return got == expected
"""

CLAIM = """\
id = "again-is-once"
title = "Sorting is sorting"
who = ["somebody"]
source = [{ document = "a note", section = "one" }]
statement = "Both sort as fast."
assumes = []
decided_by = "The time of a call."

[[function]]
name = "one"
source = "ways.py:once"

[[function]]
name = "two"
source = "ways.py:again"

[[call]]
name = "numbers"
payload = "ways.py:numbers"

[[hypothesis]]
evidence = "operations"
variant = "two"
baseline = "one"
workloads = ["numbers"]
metric = "time"
same_within_percent = 0.05
"""


@dataclass(frozen=True)
class Project:
    """A folder in which commands are given, as in a shell."""

    folder: Path
    programs: Mapping[str, Callable[..., Said]]

    def paste(self, command: str) -> Said:
        """Run a command that a shell has taken apart into words."""
        split = subprocess.run(
            ["bash", "-c", f"words() {{ printf '%s\\0' \"$@\"; }}\nwords {command}"], cwd=self.folder, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        program, *words = split.stdout.removesuffix("\0").split("\0")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [program, *words])
            return self.programs[program](*words)

    def runs(self) -> list[Path]:
        return sorted(self.folder.glob("results/runs/*"))

    def make_environment(self, name: str) -> None:
        venv = [sys.executable, "-m", "venv", "--without-pip", name]
        subprocess.run(venv, cwd=self.folder, check=True)


@pytest.fixture
def project(
    tmp_path: Path,
    run_pytest: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Project:
    def workbench(*words: str) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(words)
        return Said(int(ended.value.code or 0), *capsys.readouterr())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    for name in ("new", "data", "claims"):
        (tmp_path / name).mkdir()
    (tmp_path / "new" / "ways.py").write_text(WAYS)
    (tmp_path / "data" / "made.py").write_text(PAYLOAD)
    (tmp_path / "some words.txt").write_text("some words")
    for folder in (tmp_path, tmp_path / "claims"):
        (folder / "ways.py").write_text(f"{WAYS}\n\n{PAYLOAD}")
    (tmp_path / "claims" / "again-is-once.toml").write_text(CLAIM)
    return Project(tmp_path, {"pytest": run_pytest, "workbench": workbench})


def commands_in(said: str) -> Iterator[str]:
    """The commands that a session prints to go on, or to settle what is open."""
    for line in said.splitlines():
        if found := re.match(r" *to (?:continue|decide it.*?|measure it again.*?): ((?:pytest|workbench) .*)", line):
            yield found[1]


def manifest_in(run: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((run / "run.json").read_text())
    return manifest


def question(manifest: dict[str, Any]) -> Any:
    """What a run was asked, and of what."""
    measured = [each["workload"] for each in manifest["experiments"]]
    sources = manifest["sources"] and manifest["sources"]["variants"]
    return manifest["mode"], manifest["ad_hoc"], measured, sources, manifest["environments"]


def rounds_of(manifest: dict[str, Any]) -> int:
    return sum(each["rounds"] for each in manifest["experiments"])


def quick(command: str) -> str:
    """The same command with a small budget: how long it takes is not what is asked here. On a busy machine less is too
    small for a percentile."""
    budget = 4 if "--statistic" in command or "--continue" in command else 1
    command, budgets = re.subn(r"(?<= --budget )\d+", f"{budget}", command)
    return command if budgets else f"{command} --budget {budget}"


ELSEWHERE = "--compare new/ways.py:once ways.again=new/ways.py:again --call data/made.py:numbers"
HERE = "--compare ways.py:once ways.py:again --call ways.py:numbers"
SESSIONS = {
    "functions in other folders": f"{ELSEWHERE} --check data/made.py:same --side-env once:SPEED=some/way "
    "--side-env 'ways.again:-X utf8=1'",
    "a percentile": f"{HERE} --statistic p90 --check ways.py:same",
    "commands": "--compare 'one=cmd:sh -c \"sort; exit 3\"' 'two=cmd:sh -c \"sort -s; exit 3\"' --ignore-failure=3 "
    "--prepare 'ls data' --input 'some words.txt'",
    "a folder of claims": "--claims-dir claims",
    "an environment": f"{HERE} --env once=there",
}


def answers_again(project: Project, command: str, codes: tuple[int, ...] = ()) -> None:
    """Assert that a printed command ends well, and goes on with its run, or answers the same question in another.
    codes: with one of these, or by its intervals."""
    runs = project.runs()
    found = re.search(r"--continue (\S+)", command)
    run = project.folder / found[1] if found else runs[-1]
    before = manifest_in(run)
    said = project.paste(quick(command))
    codes = codes or (code_by_intervals(run if found else project.runs()[-1]),)
    assert said.returncode in codes, f"{command}\n{said.stdout}{said.stderr}"
    if found:
        assert project.runs() == runs
        now = manifest_in(run)
        assert len(now["sittings"]) == len(before["sittings"]) + 1 and rounds_of(now) > rounds_of(before)
    else:
        assert len(project.runs()) == len(runs) + 1
        now = manifest_in(project.runs()[-1])
        assert rounds_of(now) > 0
    assert question(now) == question(before)


@pytest.mark.parametrize("asked", SESSIONS.values(), ids=SESSIONS)
def test_what_a_session_prints_can_be_pasted(project: Project, asked: str) -> None:
    if "--env" in asked:
        project.make_environment("there")
    seconds = 2 if "p90" in asked else 0.5
    first = project.paste(f"pytest --benchmark --no-causes --budget {seconds} {asked}")
    assert first.returncode == code_by_intervals(project.runs()[-1]), first.stdout + first.stderr
    [run] = [str(each.relative_to(project.folder)) for each in project.runs()]
    assert f"run: {run} (workbench show, workbench compare)" in first.stdout
    [printed] = commands_in(first.stdout)
    assert "--env" not in asked or "--continue" not in printed, "no such run can go on"
    answers_again(project, printed)

    judged = project.paste(f"workbench judge {run} --markdown")
    assert judged.returncode == VerbExit.DONE, judged.stderr
    if not asked.startswith(ELSEWHERE):  # a run keeps no folders
        for measures_again in re.findall(r"`(pytest --benchmark .*)`", judged.stdout):
            answers_again(project, measures_again)
    compared = project.paste(f"workbench compare {run} {project.runs()[-1].relative_to(project.folder)} --json")
    found = json.loads(compared.stdout)
    assert found["same_machine"] and not (found["only_in_base"] or found["only_in_new"]), compared.stderr
    assert compared.returncode == found["exit_code"], "what time says of the two depends on the machine's load"


@pytest.mark.parametrize("place", ["", "--env there"], ids=["here", "in an environment"])
def test_what_is_printed_of_revisions_can_be_pasted(project: Project, place: str) -> None:
    git(project.folder, "init", "--quiet")
    git(project.folder, "add", "ways.py")
    git(project.folder, "commit", "--quiet", "--message", "one")
    if place:
        project.make_environment("there")
    words = f"workbench compare-revisions HEAD . ways.py:once --call ways.py:numbers --budget 0.5 {place}"
    first = project.paste(words)
    assert first.returncode == VerbExit.COULD_NOT, first.stdout + first.stderr
    found = re.search(r"(?m)^run: (\S+)$", first.stdout)
    assert found is not None, first.stdout
    judged = project.paste(f"workbench judge {found[1]}")
    printed = {*commands_in(judged.stdout)}
    assert printed and (not place or all(each.startswith("workbench compare-revisions") for each in printed))
    for command in printed:
        assert command.count("--budget") == 1
        open_ = SessionExit.CONDITION_MET if command.startswith("pytest") else VerbExit.COULD_NOT
        answers_again(project, command, (0, open_))


@pytest.mark.parametrize(
    ("typed", "word", "given"),
    [
        ("old=a/f.py:f new=b/f.py:f", "new=f.py:f", "new=b/f.py:f"),
        ("a/f.py:f b/g.py:f", "g.f=g.py:f", "g.f=b/g.py:f"),
        ("../a/f.py:f@HEAD~1 a/f.py:g", "f-old=f.py:h@c0ffee", "f-old=f.py:h@c0ffee"),
        ("../a/f.py:f@HEAD~1 f.py:g", "f-old=f.py:f@c0ffee", "f-old=../a/f.py:f@c0ffee"),
        ("data/words --call f.py:words", "f.py:words", "f.py:words"),
    ],
)
def test_words_without_folders_get_those_that_were_typed(typed: str, word: str, given: str) -> None:
    assert with_folders([word], typed.split()) == [given]
    assert published(given) == word
