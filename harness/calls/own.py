"""What one side of a comparison has of its own: variables of its environment, and options of its interpreter."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..machine.lifeline import tied
from .source import NAME, Source, SourceError

EXAMPLE = "for example new:PYTHONMALLOC=malloc, or 'new:-O -X frozen_modules=off' for options of its Python"

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
            raise ValueError(f"expected NAME:KEY=VALUE with the name of a side, {EXAMPLE}")
        if what.startswith("-"):
            return cls(side, "", shlex.join(options_in(what)))
        variable, equals, value = what.partition("=")
        if not equals:
            raise ValueError(f"there is no '=' behind {side}:{what}; expected NAME:KEY=VALUE, {EXAMPLE}")
        if not VARIABLE.fullmatch(variable):
            raise ValueError(f"{variable!r} is not the name of a variable; expected NAME:KEY=VALUE, {EXAMPLE}")
        if "\0" in value:
            raise ValueError("a variable cannot hold a null character")
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
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refused(side, str(error)) from error
    lines = done.stderr.strip().splitlines()
    ignored = [line for line in lines if "ld.so" in line]  # what LD_PRELOAD names, and is not there
    if done.returncode or ignored:
        raise _refused(side, next(iter(ignored or lines), f"exit code {done.returncode}"))


def _refused(side: Source, why: str) -> SourceError:
    own = in_words(side.variables, side.options)
    return SourceError(f"--side-env: the Python of {side.name} does not begin with {own}: {why[:300]}")


def in_words(variables: Mapping[str, str], options: str) -> str:
    """Variables and options as they are typed."""
    return ", ".join([*(f"{name}={value}" for name, value in variables.items()), *[options] * bool(options)])
