"""One run at a time writes into a folder: a lock that the kernel takes back when its holder dies."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

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
        """Take the folder, and give back one that was held before only then.

        Raises Taken where another run holds it, and OSError where the file cannot be made there.
        """
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
