"""Another environment, in which a side of a comparison runs: its interpreter, and what is installed there.

Nothing of the workbench need be there: what measures is handed to that interpreter (`machine.bootstrap`), the same code
for both sides.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from llama_workbench.cache import cache_directory

from ..machine import bootstrap
from ..machine.environment import PACKAGES
from ..machine.lifeline import tied
from .source import NAME, Source, SourceError

# Environments that the workbench makes itself: `numpy==2.1`, or `python3.9 numpy==1.26`, each kept in the cache.


MADE = "made.json"  # is in the folder of an environment once all is installed in it: Python and requirements

MOST_SECONDS = 3600.0

EXAMPLE = "'numpy==2.1', or 'python3.9 numpy==1.26'"

_PYTHON = re.compile(r"python\d(\.\d+t?)?")


def _made(place: str, python: str, requirements: Sequence[str]) -> str:
    wanted = json.dumps([python, *requirements])
    kept = cache_directory() / "environments" / hashlib.sha256(wanted.encode()).hexdigest()[:16]
    folder = kept / re.sub(r"[^A-Za-z0-9.]+", "-", place).strip("-.")
    try:
        kept.mkdir(parents=True, exist_ok=True)
        with (kept / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / MADE).is_file():
                sys.stderr.write(f"workbench: making an environment with {place} (once; kept in {folder})\n")
                shutil.rmtree(folder, ignore_errors=True)
                inside, install = f"{folder}/bin/python", ["install", "--quiet", *requirements]
                # Ours can install there: putting another one in takes longer than most packages. setuptools' finder of
                # modules is not asked: it gives up its distutils, which compilers need, where it hears of pip.
                if PathFinder.find_spec("pip"):
                    _run(place, [python, "-m", "venv", "--without-pip", str(folder)])
                    _run(place, [sys.executable, "-m", "pip", "--python", inside, *install])
                else:
                    _run(place, [python, "-m", "venv", str(folder)])
                    _run(place, [inside, "-m", "pip", *install])
                (folder / MADE).write_text(wanted, encoding="utf-8")
    except OSError as error:
        raise SourceError(f"--env {place}: {folder} cannot be made ({error.strerror or error})") from error
    return str(folder / "bin" / "python")


def _run(place: str, command: Sequence[str]) -> None:
    done = ended(f"--env {place}: {command[2]}", command)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "error" in line.lower()] or done.stdout.splitlines()
        reason = lines[-1].strip()[:300] if lines else f"exit code {done.returncode}"
        raise SourceError(f"--env {place}: {command[2]} could not make it: {reason}")


def ended(what: str, command: Sequence[str], **given: Any) -> subprocess.CompletedProcess[str]:
    """A command that makes an environment, once it has ended: its standard output has its errors too. given: as of
    `subprocess.run`. Raises SourceError."""
    try:
        return subprocess.run(
            tied(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=MOST_SECONDS,
            check=False,
            **given,
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"{what} has not finished in {MOST_SECONDS:.0f} s") from None


LOOK_SECONDS = 180.0

INTERPRETER = "bin/python"

LOOK = """
import json, runpy, sys
said = {"python": list(sys.version_info[:3])}
sys.path[:] = [path for path in sys.path if path]
if sys.version_info >= tuple(map(int, sys.argv[2:])):
    from importlib.metadata import distributions
    found = [(each.metadata["Name"], each.version) for each in distributions()]
    said["packages"] = {name.lower().replace("_", "-"): version for name, version in reversed(found) if name}
    try:
        runpy.run_path(sys.argv[1])["provide"]()
        import llama_workbench.harness.worker.main
    except Exception as error:
        said["error"] = type(error).__name__ + ": " + str(error)
print("\\n" + json.dumps(said))
"""
"""Run by a Python of any version, with the bootstrap's path and the oldest version that will do. What it prints on its
last line is read as JSON."""


@dataclass(frozen=True)
class PythonEnvironment:
    """An environment that a side of a comparison runs in."""

    shown: str  # as the user named it
    python: str  # absolute path of its interpreter
    version: str  # of Python
    packages: Mapping[str, str]  # name, in small letters and with "-" for "_" → version of what is installed


def environments_at(places: Iterable[str]) -> dict[str, PythonEnvironment]:
    """Place, as the user named it → the environment there; the interpreters are started, all at the same time. A place
    is the folder of a virtual environment or an interpreter. Raises SourceError: there is none, or its Python is too
    old or broken."""
    pythons = {place: interpreter_at(place) for place in dict.fromkeys(places)}
    interpreters = sorted(set(pythons.values()))
    with ThreadPoolExecutor() as pool:
        answers = dict(zip(interpreters, pool.map(_look, interpreters), strict=True))
    return {place: _checked(place, python, answers[python]) for place, python in pythons.items()}


def interpreter_at(place: str) -> str:
    """The interpreter of an environment, as an absolute path; one that is named by its requirements is made first. A
    link is not followed: it is what makes the environment. Raises SourceError."""
    path = Path(os.path.abspath(Path(place).expanduser()))
    if path.is_dir():
        if (path / INTERPRETER).is_file():
            return str(path / INTERPRETER)
        fault = f"is no virtual environment, for there is no {INTERPRETER} in it: python -m venv {place} makes one"
        raise SourceError(f"--env {place}: this folder {fault}")
    if path.is_file():
        if os.access(path, os.X_OK):
            return str(path)
        raise SourceError(f"--env {place}: this file is no interpreter; expected a virtual environment, or its python")
    words = place.split()
    python = words.pop(0) if words and _PYTHON.fullmatch(words[0]) else ""
    try:
        requirements = [Requirement(word) for word in words]
    except InvalidRequirement:
        requirements, python = [], ""
    # A folder with a slip of the pen is no package.
    if not (python or requirements) or any(not (each.specifier or each.url) for each in requirements):
        expected = f"a virtual environment, an interpreter, or what to install: {EXAMPLE}"
        raise SourceError(f"--env {place}: there is no such folder; expected {expected}")
    interpreter = shutil.which(python) if python else sys.executable
    if interpreter is None:
        raise SourceError(f"--env {place}: there is no {python} on the path")
    return _made(place, interpreter, sorted(map(str, requirements))) if requirements else interpreter


def label_of(python: str) -> str:
    """The name of an interpreter's environment in one word, for the name of a side."""
    path = Path(python)
    folder = path.parent.parent if path.parent.name == "bin" else path
    if "." in path.name and not (folder / "pyvenv.cfg").is_file():  # python3.13 of the system
        folder = path
    return re.sub(r"[^A-Za-z0-9._+-]", "-", folder.name).strip("._+-") or "env"


def _look(python: str) -> Mapping[str, Any] | str:
    """What the interpreter says of its environment, or why it says nothing."""
    try:
        done = subprocess.run(
            tied([python, "-c", LOOK, bootstrap.__file__, *map(str, bootstrap.OLDEST)]),
            capture_output=True,
            text=True,
            timeout=LOOK_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        facts = json.loads(done.stdout.strip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        return f"its Python has not answered in {LOOK_SECONDS:.0f} s"
    except (OSError, ValueError):
        lines = done.stderr.strip().splitlines() or ["it printed nothing"]
        return f"what is there does not answer as Python does ({lines[-1][:200]})"
    return facts if isinstance(facts, dict) and "python" in facts else "what is there does not answer as Python does"


def _checked(place: str, python: str, facts: Mapping[str, Any] | str) -> PythonEnvironment:
    """The environment that an interpreter tells of. Raises SourceError where nothing can be measured in it."""
    if isinstance(facts, str):
        raise SourceError(f"--env {place}: {facts}")
    version = ".".join(map(str, facts["python"]))
    if tuple(facts["python"]) < bootstrap.OLDEST:
        oldest = ".".join(map(str, bootstrap.OLDEST))
        raise SourceError(f"--env {place}: its Python is {version}; expected {oldest} or newer")
    if facts.get("error"):
        raise SourceError(f"--env {place}: its Python {version} cannot measure ({facts['error'][:300]})")
    return PythonEnvironment(place, python, version, facts["packages"])


# -- what a run says of them -------------------------------------------------------------------------------------------


def facts_of(
    environments: Mapping[str, PythonEnvironment], imported: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Side → its Python, and the versions there of the packages that matter or differ between the sides. A package that
    a side does not have is null there. Of those that differ the `imported` ones come first."""
    names = {name for environment in environments.values() for name in environment.packages}
    differ = {name for name in names if len({each.packages.get(name) for each in environments.values()}) > 1}
    shown = sorted(differ | (names & set(PACKAGES)))
    return {
        side: {
            "python": environment.version,
            "packages": {name: environment.packages.get(name) for name in shown},
            "differs": sorted(differ, key=lambda name: (name not in imported, name)),
        }
        for side, environment in environments.items()
    }


# What one side of a comparison has of its own: variables of its environment, and options of its interpreter.


SIDE_EXAMPLE = "for example new:PYTHONMALLOC=malloc, or 'new:-O -X frozen_modules=off' for options of its Python"

VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")

FLAGS, WITH_VALUE = re.compile(r"-[bBdEIOPqsSuv]+"), ("-X", "-W")
"""Options of an interpreter in which a process can measure. All others begin something else, or print and end."""

START_SECONDS = 60.0


@dataclass(frozen=True)
class OwnSetting:
    """A variable that one side has of its own, or options of its Python."""

    side: str
    variable: str  # its name; empty where `value` is options
    value: str

    def __str__(self) -> str:
        """As it is typed."""
        return f"{self.side}:{self.variable}{'=' * bool(self.variable)}{self.value}"

    @classmethod
    def parse(cls, text: str) -> OwnSetting:
        """From NAME:KEY=VALUE or NAME:OPTIONS. Raises ValueError."""
        side, colon, what = text.partition(":")
        if not colon or not NAME.fullmatch(side):
            raise ValueError(f"expected NAME:KEY=VALUE with the name of a side, {SIDE_EXAMPLE}")
        if what.startswith("-"):
            return cls(side, "", shlex.join(options_in(what)))
        variable, equals, value = what.partition("=")
        if not equals:
            raise ValueError(f"there is no '=' behind {side}:{what}; expected NAME:KEY=VALUE, {SIDE_EXAMPLE}")
        if not VARIABLE.fullmatch(variable):
            raise ValueError(f"{variable!r} is not the name of a variable; expected NAME:KEY=VALUE, {SIDE_EXAMPLE}")
        return cls(side, variable, value)


def options_in(text: str) -> list[str]:
    """The words of an interpreter's options. Raises ValueError where one is none that a measuring process can have."""
    words = iter(shlex.split(text))
    options = []
    for word in words:
        options.append(word)
        if word in WITH_VALUE:
            value = next(words, "")
            if not value:
                raise ValueError(f"there is nothing behind {word}")
            options.append(value)
        elif not word.startswith(WITH_VALUE) and not FLAGS.fullmatch(word):
            raise ValueError(f"{word} is no option with which a Python can measure; expected such as -O, -X or -W")
    return options


def with_own(sides: Sequence[Source], settings: Iterable[OwnSetting]) -> list[Source]:
    """The sides, each with what it has of its own. Raises SourceError where there is no such side, or where it is a
    command, whose Python is its own affair."""
    by_name = {side.name: side for side in sides}
    for own in settings:
        if own.side not in by_name:
            problem = f"no side is called {own.side!r}; they are {' and '.join(by_name)}"
            raise SourceError(f"--side-env {own}: {problem} ({sides[0].renamed} gives one a name)")
        side = by_name[own.side]
        if own.variable:
            side = replace(side, variables={**side.variables, own.variable: own.value})
        elif side.command and not side.module:
            raise SourceError(f"--side-env {own}: {side.name} is a command: write the options into it")
        else:
            side = replace(side, options=f"{side.options} {own.value}".strip())
        by_name[own.side] = side
    return list(by_name.values())


def check_begins(side: Source) -> None:
    """Begin the Python of a side once with what it has of its own. Raises SourceError where it does not begin, or says
    that it leaves something out."""
    if not side.is_alone:
        return
    command = [side.environment or sys.executable, *shlex.split(side.options), "-c", "pass"]
    environment = {**os.environ, **side.variables}
    try:
        done = subprocess.run(
            tied(command), env=environment, capture_output=True, text=True, timeout=START_SECONDS, check=False
        )
        lines = done.stderr.strip().splitlines()
        ignored = [line for line in lines if "ld.so" in line]  # what LD_PRELOAD names, and is not there
        why = next(iter(ignored or lines), f"exit code {done.returncode}") if done.returncode or ignored else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        own = in_words(side.variables, side.options)
        raise SourceError(f"--side-env: the Python of {side.name} does not begin with {own}: {why[:300]}")


def in_words(variables: Mapping[str, str], options: str) -> str:
    """Variables and options as they are typed."""
    return ", ".join([*(f"{name}={value}" for name, value in variables.items()), *[options] * bool(options)])
