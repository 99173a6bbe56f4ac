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
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import clock_gettime_ns  # bound before any code from outside is imported
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from typing import Self

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


# Ctrl-C and SIGTERM during a run: both end it in order, and a second one does not disturb the ending.


class Interrupts(ExitStack):
    """Within it, SIGINT and SIGTERM raise KeyboardInterrupt, except while one is on its way out.

    Processes are being ended then, and files put in order; that is quick, and a second exception in the middle of it
    would leave some of them behind. `again` says that there was one. `name` is that of the first signal. A signal that
    this process ignores (what a shell starts with & ignores SIGINT) stays ignored.

    An exception that is raised in a destructor, or in a callback of the garbage collector, is lost there; who works in
    a loop calls `raise_lost`."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        self.again = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # nobody else may say what a signal does
            for number in (signal.SIGINT, signal.SIGTERM):
                if (before := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                    self.callback(signal.signal, number, before)
                    signal.signal(number, self._heard)
        return self

    def raise_lost(self) -> None:
        """KeyboardInterrupt where a signal was heard and nothing came of it."""
        if self.name and not _on_its_way():
            raise KeyboardInterrupt(self.name)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if _on_its_way():
            self.again = True
            return
        self.name = self.name or signal.Signals(number).name
        raise KeyboardInterrupt(self.name)


def _on_its_way() -> bool:
    """Whether what runs now is the clean-up after a KeyboardInterrupt (one that got lost does not count)."""
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


# One run at a time writes into a folder: a lock that the kernel takes back when its holder dies.


LOCK = ".lock"
"""The locked file in a run's folder: the holder's process id, and gone with the end of the run unless it was killed."""


class Taken(Exception):
    """Another run holds the folder. `pid`: its process, where the file says so."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid
        super().__init__(f"held by process {pid}")


def is_held(folder: Path) -> bool:
    """Whether a run writes into the folder now. Of one that was killed the file is still there, and nobody holds it."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


class Lock:
    """The right to write into a folder, from `take` until `close`, or until this process ends."""

    def __init__(self) -> None:
        self._held: tuple[int, Path] | None = None

    def take(self, folder: Path) -> None:
        """Take the folder, and give back one that was held before only then. Raises Taken where another run holds it,
        and OSError where the file cannot be made there."""
        path = folder / LOCK
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                _lock(descriptor)
                if _is(descriptor, path):  # else its holder removed it between the two calls
                    break
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self.close()
        self._held = descriptor, path

    def close(self) -> None:
        """Give the folder back, and remove the file."""
        if self._held is None:
            return
        descriptor, path = self._held
        self._held = None
        with suppress(OSError):
            if _is(descriptor, path):
                path.unlink()
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        raise Taken(int(holder) if holder.isdecimal() else None) from error
    except OSError:
        return  # a file system without locks: a run there is better than none


def _is(descriptor: int, path: Path) -> bool:
    """Whether the open file still lies at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


# Clocks of other processes.


def cpu_ns_of(process: int) -> int:
    """CPU time of a process so far, all its threads, by the kernel's count. Raises OSError where there is none."""
    return clock_gettime_ns((~process << 3) | 2)  # the clock of another process: clock_getcpuclockid(3)
