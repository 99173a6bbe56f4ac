"""How a run folder begins: empty, locked, and never in the place of another run."""

from __future__ import annotations

import itertools
import re
import secrets
import warnings
from datetime import UTC, datetime
from pathlib import Path

from ..machine.locks import LOCK, Lock, Taken
from .errors import RunError, RunWarning, fix_for
from .files import looks_like_a_run


def made(path: Path | str | None, under: Path | str, lock: Lock | None) -> Path:
    """The path of an empty run folder (see `RunFolder.create`)."""
    held = lock or Lock()
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = Path(path or Path(under) / "runs" / f"{stamp}-{secrets.token_hex(2)}")
    try:
        if folder.exists() and not folder.is_dir():
            raise RunError(folder, "this is a file, and a run needs a folder", "Name another path.")
        if folder.is_dir() and not _is_bare(folder) and not looks_like_a_run(folder):
            fix = "Name a new or empty folder, so that nothing of yours is overwritten."
            raise RunError(folder, "the folder is not empty and holds no run", fix)
        is_first = path is None and not Path(under).exists()
        folder.mkdir(parents=True, exist_ok=True)
        if is_first:  # nobody wants to commit samples by accident
            (Path(under) / ".gitignore").write_text("# what is meant to stay is saved under baselines/\nruns/\n")
        held.take(folder)  # before an earlier run is moved: it may be going on
        if not _is_bare(folder):
            kept = _free_name(folder)
            folder.rename(kept)
            warnings.warn(f"an earlier run in {folder} was kept as {kept}", RunWarning, stacklevel=2)
            folder.mkdir(exist_ok=True)
            held.take(folder)
            (kept / LOCK).unlink(missing_ok=True)
        if lock is None:
            held.close()
    except Taken as error:
        raise taken(folder, error, ", or name another folder (--run-dir)") from error
    except OSError as error:
        raise RunError(folder, f"cannot make the run folder ({error.strerror})", fix_for(error)) from error
    return folder


def taken(folder: Path, error: Taken, otherwise: str = "") -> RunError:
    """The error for a folder that another run holds."""
    problem = f"another run, process {error.pid or '?'}, is writing to this folder"
    return RunError(folder, problem, f"Wait for it or end it (kill {error.pid or 'PID'}){otherwise}.")


_LEFT_BEHIND = re.compile(rf"{re.escape(LOCK)}|\.\w+(\.\w+)?\.\d+\.tmp")


def _is_bare(folder: Path) -> bool:
    """Whether it holds nothing but what a run leaves that was killed before it wrote anything."""
    return all(_LEFT_BEHIND.fullmatch(entry.name) for entry in folder.iterdir())


def _free_name(folder: Path) -> Path:
    whole = folder.resolve()
    names = (whole.with_name(f"{whole.name}.earlier-{number}") for number in itertools.count(1))
    return next(path for path in names if not path.exists())
