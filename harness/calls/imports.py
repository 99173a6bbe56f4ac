"""`import:MODULE` as a function that is called: the import alone, in a Python that had begun before the clock did.

The Python is the input of a call: it is begun while inputs are made, which nobody times, and waits for the name of a
module. From sending that to its answer is the call: the import, and some ten microseconds for two messages.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

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
