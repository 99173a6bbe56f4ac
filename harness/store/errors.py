"""What goes wrong with a run folder: every error names the file, the problem and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RESTORE = "Restore the file from a copy, or measure again."

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


class RunError(Exception):
    """A run folder cannot be read or written."""

    def __init__(self, path: Path, problem: str, fix: str) -> None:
        self.path = path
        self.problem = problem
        self.fix = fix
        super().__init__(f"{path}: {problem}. {fix}")

    @property
    def brief(self) -> str:
        """The file and the problem, for lists of many runs; of a changed file the fix too."""
        return f"{self.path.name}: {self.problem}" + f". {self.fix}" * isinstance(self, ChangedFile)


class ChangedFile(RunError):
    """A file of a finished run is not what the run wrote, by the checksums in its SHA256SUMS."""


class RunWarning(UserWarning):
    """A reader corrected something about a run folder, and the user should know."""


def fix_for(error: OSError) -> str:
    """What to do when the system refuses a file of a run."""
    if error.errno in _NO_SPACE:
        return "Free some space there, or name a folder on another disk (--run-dir)."
    if error.errno in _NOT_ALLOWED:
        return "Name a folder that you may write to (--run-dir)."
    return "Check the folder, or name another one (--run-dir)."


@contextmanager
def as_run_error(path: Path, problem: str = "cannot be read ({})") -> Iterator[None]:
    """Turn what the system refuses within the block into a RunError; its reason goes where `problem` has {}."""
    try:
        yield
    except OSError as error:
        raise RunError(path, problem.format(error.strerror or error), fix_for(error)) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text, 120 characters at most."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
