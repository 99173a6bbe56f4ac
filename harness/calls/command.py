"""A command as a function that is called: from exec to exit, its output is the answer."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

PREFIX, IMPORT = "cmd:", "import:"
"""How a side of a comparison begins that is a command, and one that imports a module in a fresh Python."""

MOST_SHOWN = 200  # characters of what a command that fails says


def command_of(text: str) -> str:
    """The command line of a side; empty where it is none."""
    if text.startswith(PREFIX):
        return text.removeprefix(PREFIX).strip()
    return shlex.join([sys.executable, "-c", f"import {text.removeprefix(IMPORT)}"]) if text.startswith(IMPORT) else ""


class Command:
    """Runs a command without a shell; what it is called with are further words of it. It gives what the command wrote
    to standard output, and raises where the command fails."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)

    def __call__(self, *arguments: Any) -> bytes:
        words = [*self._words, *map(str, arguments)]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            said = " ".join(done.stderr.decode("utf-8", "replace").split())[-MOST_SHOWN:]
            raise RuntimeError(f"{self._words[0]} ends with exit code {done.returncode}: {said or 'it says nothing'}")
        return done.stdout


def nothing() -> tuple[()]:
    """What a command is called with where nothing is said: no further words."""
    return ()
