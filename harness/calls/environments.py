"""Another environment, in which a side of a comparison runs: its interpreter, and what is installed there.

Nothing of the workbench need be there: what measures is handed to that interpreter (`machine.bootstrap`), the same code
for both sides.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine import bootstrap
from ..machine.environment import PACKAGES
from ..machine.lifeline import tied
from .made_environments import EXAMPLE, interpreter_with
from .source import SourceError

LOOK_SECONDS = 180.0

INTERPRETERS = ("bin/python", "Scripts/python.exe")

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
    """Place, as the user named it → the environment there; the interpreters are started, all at the same time.

    A place is the folder of a virtual environment or an interpreter. Raises SourceError: there is none, or its
    Python is too old or broken.
    """
    pythons = {place: interpreter_at(place) for place in dict.fromkeys(places)}
    every = sorted(set(pythons.values()))
    with ThreadPoolExecutor() as pool:
        answers = dict(zip(every, pool.map(_look, every), strict=True))
    return {place: _checked(place, python, answers[python]) for place, python in pythons.items()}


def interpreter_at(place: str) -> str:
    """The interpreter of an environment, as an absolute path; one that is named by its requirements is made first. A
    link is not followed: it is what makes the environment. Raises SourceError."""
    path = Path(os.path.abspath(Path(place).expanduser()))
    if path.is_dir():
        for name in INTERPRETERS:
            if (path / name).is_file():
                return str(path / name)
        fault = f"is no virtual environment, for there is no {INTERPRETERS[0]} in it: python -m venv {place} makes one"
        raise SourceError(f"--env {place}: this folder {fault}")
    if not path.is_file():
        if made := interpreter_with(place):
            return made
        expected = f"a virtual environment, an interpreter, or what to install: {EXAMPLE}"
        raise SourceError(f"--env {place}: there is no such folder; expected {expected}")
    if not os.access(path, os.X_OK):
        raise SourceError(f"--env {place}: this file is no interpreter; expected a virtual environment, or its python")
    return str(path)


def label_of(python: str) -> str:
    """The name of an interpreter's environment in one word, for the name of a side."""
    path = Path(python)
    folder = path.parent.parent if path.parent.name in ("bin", "Scripts") else path
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
    """Side → its Python, and the versions there of the packages that matter or differ between the sides.

    A package that a side does not have is null there. Of those that differ the `imported` ones come first.
    """
    every = environments.values()
    names = {name for each in every for name in each.packages}
    differ = {name for name in names if len({each.packages.get(name) for each in every}) > 1}
    shown = sorted(differ | (names & set(PACKAGES)))
    return {
        side: {
            "python": environment.version,
            "packages": {name: environment.packages.get(name) for name in shown},
            "differs": sorted(differ, key=lambda name: (name not in imported, name)),
        }
        for side, environment in environments.items()
    }
