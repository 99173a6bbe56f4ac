"""A command as a function that is called: from exec to exit, its output is the answer. No shell takes part."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter_ns  # bound before any foreign code is imported
from typing import Any, Union

PREFIX, IMPORT = "cmd:", "import:"
"""How a side of a comparison begins that is a command, and one that imports a module in a fresh Python."""

MOST_SHOWN = 100  # characters of each of the two ends of what a command that fails wrote
ANY_CODE = "any"  # in place of exit codes: all of them

IGNORE, PREPARE, CONCLUDE, INPUT = "--ignore-failure", "--prepare", "--conclude", "--input"
"""Options of commands, for messages and for commands that go on."""


@dataclass(frozen=True)
class CommandSettings:
    """How the commands of a comparison are run, the same on both sides. ignore_failure: exit codes that are no failure,
    ANY_CODE for all. prepare, conclude: commands that run before and after each call and are not timed. input: the file
    that is standard input; empty: nothing is."""

    ignore_failure: Union[str, Sequence[int]] = ()
    prepare: str = ""
    conclude: str = ""
    input: str = ""

    @property
    def runs_more(self) -> bool:
        """Whether something runs beside each call: then a sample can have one call only."""
        return bool(self.prepare or self.conclude)

    def ignores(self, code: int) -> bool:
        """Whether a command that ends with this exit code has done what it should."""
        return not code or self.ignore_failure == ANY_CODE or code in self.ignore_failure


AS_THEY_ARE = CommandSettings()

SUCCEEDED: set[tuple[str, ...]] = set()  # commands that this process ran without a failure


class Written(bytes):
    """What a command wrote to standard output, and the exit code with which it ended. Both must be the same."""

    exit_code: int

    def __new__(cls, content: bytes, exit_code: int) -> Written:
        made = super().__new__(cls, content)
        made.exit_code = exit_code
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Written) and self.exit_code == other.exit_code and super().__eq__(other)

    __hash__ = bytes.__hash__

    def __repr__(self) -> str:
        return f"exit code {self.exit_code} and {super().__repr__()}"


class CommandFailed(RuntimeError):
    """A command ended with an exit code that is a failure: the text quotes what it wrote."""


class Command:
    """Runs a command without a shell; what it is called with are further words of it. It gives what the command wrote
    to standard output, and raises CommandFailed. variables: of its environment, beside those of this process.
    uncounted_ns: of its last call, the time of what ran before and after the command."""

    def __init__(
        self, words: Sequence[str], settings: CommandSettings = AS_THEY_ARE, variables: Mapping[str, str] | None = None
    ) -> None:
        self._words, self._settings = tuple(words), settings
        self._before, self._after = shlex.split(settings.prepare), shlex.split(settings.conclude)
        self._environment = {**os.environ, **variables} if variables else None
        self.uncounted_ns = 0

    def __call__(self, *arguments: Any) -> bytes:
        begun = perf_counter_ns()
        if self._before:
            _run_beside(self._before, PREPARE)
        with open(self._settings.input or os.devnull, "rb") as given:
            timed = perf_counter_ns()
            words = [*self._words, *map(str, arguments)]
            done = subprocess.run(words, stdin=given, capture_output=True, check=False, env=self._environment)
            timed = perf_counter_ns() - timed
        if self._after:
            _run_beside(self._after, CONCLUDE)
        if self._settings.runs_more:
            self.uncounted_ns = perf_counter_ns() - begun - timed
        if not self._settings.ignores(done.returncode):
            used_up = not arguments and self._words in SUCCEEDED and not self._before
            fix = f"; it succeeded before: what a run of it uses up is made anew by {PREPARE} COMMAND" * used_up
            fix += f"; if that is no failure: {IGNORE}={done.returncode}"
            raise CommandFailed(_failure(self._words, done, fix))
        if not arguments:
            SUCCEEDED.add(self._words)
        return Written(done.stdout, done.returncode) if self._settings.ignore_failure else done.stdout


def _run_beside(words: Sequence[str], option: str) -> None:
    """Run what stands before or after a timed command. Raises CommandFailed, which names the option."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise CommandFailed(f"{option}: {_failure(words, done)}")


def _failure(words: Sequence[str], done: subprocess.CompletedProcess[bytes], fix: str = "") -> str:
    """That a command failed, with the ends of what it wrote."""
    how = f"exit code {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}"
    wrote = []
    for name, content in (("error", done.stderr), ("output", done.stdout)):
        text = " | ".join(line.strip() for line in content.decode("utf-8", "replace").splitlines() if line.strip())
        if text:
            end = text if len(text) <= MOST_SHOWN else f"… {text[-MOST_SHOWN:]}"
            wrote.append(f'to standard {name} "{end}"')
    return f"{os.path.basename(words[0])} ends with {how}{fix}; it wrote {' and '.join(wrote) or 'nothing'}"


def nothing() -> tuple[()]:
    """What a command is called with where nothing is said: no further words."""
    return ()


# `import:MODULE` as a function that is called: the import alone, in a Python that had begun before the clock did.
# The Python is the input of a call: it is begun while inputs are made, which nobody times, and waits for the name of
# a module. From sending that to its answer is the call: the import, and some ten microseconds for two messages.


WAITS_FOR_A_NAME = """
import posix, sys
pipe = int(sys.argv.pop())
posix.write(pipe, b"ready")
name = posix.read(pipe, 4096).decode()
try:
    __import__(name)
except BaseException as error:
    answer = "raises %s: %s" % (type(error).__name__, " ".join(str(error).split())[:200])
else:
    answer = "done"
posix.write(pipe, answer.encode("utf-8", "replace"))
posix.read(pipe, 1)
posix._exit(0)
"""
"""Imports nothing but the module: both that it names are there in every Python. Then it waits for its end, which would
else take time beside the next call's."""


@dataclass
class FreshPython:
    """A Python with the options and the environment of this one, which has imported nothing yet."""

    used: bool = False

    def __post_init__(self) -> None:
        self._pipe, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
            self._process = subprocess.Popen(
                [*words, "-c", WAITS_FOR_A_NAME, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._hear("the Python that imports")

    def imports(self, module: str) -> None:
        """Let it import a module, and wait for that. Raises RuntimeError where it fails."""
        self.used = True
        self._pipe.sendall(module.encode())
        if (answer := self._hear(f"import {module}")) != "done":
            raise RuntimeError(f"import {module} {answer}")

    def _hear(self, what: str) -> str:
        answer = self._pipe.recv(4096)
        if not answer:
            code = self._process.wait()
            raise RuntimeError(f"{what} ends its process ({f'signal {-code}' if code < 0 else f'exit code {code}'})")
        return answer.decode("utf-8", "replace")

    def __del__(self) -> None:
        with suppress(Exception):  # it was not begun, or this process ends
            self._pipe.close()
            self._process.kill()
            self._process.wait()


class Import:
    """Imports a module in the Python that it is called with."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __call__(self, python: FreshPython) -> None:
        python.imports(self._module)


def fresh() -> FreshPython:
    """What an import is called with."""
    return FreshPython()
