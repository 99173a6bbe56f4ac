"""Environments that the workbench makes itself: `numpy==2.1`, or `python3.9 numpy==1.26`, each kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from llama_workbench.cache import cache_directory

from ..machine.lifeline import tied
from .source import SourceError

MADE = "made.json"
"""Is in the folder of an environment once all is installed in it: Python and requirements."""

MOST_SECONDS = 3600.0

EXAMPLE = "'numpy==2.1', or 'python3.9 numpy==1.26'"

_PYTHON = re.compile(r"python\d(\.\d+t?)?")


def interpreter_with(place: str) -> str | None:
    """The interpreter of the environment that the words of `place` ask for, made where there is none yet; None where
    they are no such words. Raises SourceError: what they ask for cannot be had."""
    words = place.split()
    python = words.pop(0) if words and _PYTHON.fullmatch(words[0]) else ""
    if not words and not python:
        return None
    try:
        requirements = [Requirement(word) for word in words]
    except InvalidRequirement:
        return None
    if any(not (each.specifier or each.url) for each in requirements):  # a folder with a slip of the pen is no package
        return None
    interpreter = shutil.which(python) if python else sys.executable
    if interpreter is None:
        raise SourceError(f"--env {place}: there is no {python} on the path")
    return _made(place, interpreter, sorted(map(str, requirements))) if requirements else interpreter


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
                _make(place, python, str(folder), requirements)
                (folder / MADE).write_text(wanted, encoding="utf-8")
    except OSError as error:
        raise SourceError(f"--env {place}: {folder} cannot be made ({error.strerror or error})") from error
    return str(folder / "bin" / "python")


def _make(place: str, python: str, folder: str, requirements: Sequence[str]) -> None:
    inside, install = f"{folder}/bin/python", ["install", "--quiet", *requirements]
    if find_spec("pip"):  # ours can install there: putting another one in takes longer than most packages
        _run(place, [python, "-m", "venv", "--without-pip", folder])
        _run(place, [sys.executable, "-m", "pip", "--python", inside, *install])
    else:
        _run(place, [python, "-m", "venv", folder])
        _run(place, [inside, "-m", "pip", *install])


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
