"""Ends a program with its parent, however that ends: no `kill -9` of a run may leave a process behind.

A parent begins `tied(command)` in place of `command`. This file then runs first, in an interpreter that imports next to
nothing, asks the kernel to end it with its parent, and becomes the command: same process, same descriptors. Asked only
by the command itself, a parent that dies while torch is imported, which takes seconds, would go unnoticed.

What the command begins itself (a compiler, say) is tied by `lifeline`, the read end of a pipe whose other end nobody
but the parent holds: when that closes, the kernel kills the process group, which must be the command's own.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG; it outlives exec, but not a fork


def tied(command: Sequence[str], *, lifeline: int | None = None) -> list[str]:
    """The command line that runs `command` for as long as this process lives; see above for `lifeline`."""
    words = [str(os.getpid()), "-" if lifeline is None else str(lifeline), *command]
    return [sys.executable, "-I", "-S", __file__, *words]


def end_with(parent: int) -> None:
    """Let this process be killed once `parent`, which began it, has died; at once where that was before now."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _tie_group(lifeline: int) -> None:
    if sys.platform != "linux" or os.getpgrp() != os.getpid():
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def tie(parent: str, lifeline: str) -> None:
    """Tie this process to its parent's process id and the lifeline (or "-"), as they stand in a command line."""
    if lifeline != "-":
        _tie_group(int(lifeline))
    end_with(int(parent))


def main(words: Sequence[str]) -> NoReturn:
    """Become the command that follows what `tie` takes."""
    parent, lifeline, *command = words
    tie(parent, lifeline)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started ({error.strerror})")


if __name__ == "__main__":
    main(sys.argv[1:])
