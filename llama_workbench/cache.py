"""The folder where checkpoints, tokenizers and whatever else costs time to make are kept between runs."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

FIX = "make room, or set WORKBENCH_CACHE to a folder on another disk"

TRIAL_BYTES = 1 << 20
"""More than any of the small things that are kept (logits, tokenised text) takes."""


class CacheError(OSError):
    """The cache directory cannot take a file. The text names folder, bytes needed, and the fix."""


def cache_directory() -> Path:
    """`WORKBENCH_CACHE`, else the user's cache folder. It need not exist. Raises `CacheError` for an unknown ~name."""
    chosen = os.environ.get("WORKBENCH_CACHE")
    if not chosen:
        return platformdirs.user_cache_path("llama-workbench")
    try:
        return Path(chosen).expanduser()
    except RuntimeError as error:  # ~somebody, who is not known here
        raise CacheError(f"WORKBENCH_CACHE = {chosen}: {error}; set it to a folder that can be written") from error


def unwritable(folder: Path) -> str:
    """Why nothing can be kept in a folder, in a few words; empty where it can. Tried with `TRIAL_BYTES`."""
    try:
        with partial_folder(folder, "trial", needed_bytes=TRIAL_BYTES) as trial:
            (trial / "trial").write_bytes(bytes(TRIAL_BYTES))
    except CacheError as error:
        cause = error.__cause__
        return str(getattr(cause, "strerror", None) or cause)
    return ""


@contextmanager
def partial_folder(parent: Path, name: str, *, needed_bytes: int) -> Iterator[Path]:
    """A new empty folder inside `parent`, on the same disk, for what is renamed into place once it is whole. Removed at
    the end, whatever happened. Raises `CacheError` where the disk has no room for `needed_bytes`, fills up on the way,
    or refuses the writing."""
    folder: Path | None = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(parent).free
        if free_bytes < needed_bytes:
            raise OSError(errno.ENOSPC, f"only {free_bytes:,} bytes are free")
        folder = Path(tempfile.mkdtemp(prefix=f".partial-{name}-", dir=parent))
        yield folder
    except CacheError:  # of an inner folder, said already
        raise
    except OSError as error:
        raise CacheError(
            f"{parent / name}: cannot be written, {needed_bytes:,} bytes are needed ({error.strerror or error}); {FIX}"
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def keep(file: Path, content: bytes) -> None:
    """Put a small file into the cache; one that cannot be written costs the same work next time, nothing else."""
    with suppress(CacheError), partial_folder(file.parent, file.name, needed_bytes=len(content)) as partial:
        (partial / file.name).write_bytes(content)
        os.replace(partial / file.name, file)
