"""speedscope (MIT, npm package of that name), with which the dashboard opens a raw profile.

No part of this repository and never fetched at run time: `workbench speedscope` gets one version of it by npm, checks
it against the hash that stands here, and unpacks it beside the checkpoints.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

from llama_workbench.cache import cache_directory, partial_folder

VERSION = "1.25.0"
INTEGRITY = "sha512-cpf9HWTZf1ijLXBJrk87Ve/54tnYx6rlf0gUThvn3ook6h63hLXVOQiMf44PT+XoV503cPfvfiT5gP5vojp6Ag=="
"""Of the package's archive, as npm's lock files write it."""

_NEEDED_BYTES = 8 * 2**20
_WANTED = ("package/dist/release/", "package/LICENSE")


class SpeedscopeError(Exception):
    """speedscope cannot be had: the message says why, and the fix."""


def installed_folder() -> Path | None:
    """Where speedscope's pages lie (`index.html` and what it loads); None where it is not installed."""
    folder = _folder()
    return folder if (folder / "index.html").is_file() else None


def install(archive: Path | None = None) -> Path:
    """Fetch speedscope by npm, or take the `archive` that `npm pack` made, check it and unpack it; gives the folder.

    Does nothing where it is installed already. Raises SpeedscopeError, and CacheError where the disk refuses.
    """
    if (have := installed_folder()) is not None:
        return have
    folder = _folder()
    with partial_folder(folder.parent, folder.name, needed_bytes=_NEEDED_BYTES) as partial:
        _unpack(archive or _packed(partial), partial / "app")
        (partial / "app").rename(folder)
    return folder


def _folder() -> Path:
    return cache_directory() / f"speedscope-{VERSION}"


def _packed(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise SpeedscopeError(
            f"npm is not installed: install it, or pass --archive, made elsewhere by `npm pack speedscope@{VERSION}`"
        )
    command = [npm, "pack", f"speedscope@{VERSION}", "--ignore-scripts", "--pack-destination", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    archive = folder / f"speedscope-{VERSION}.tgz"
    if done.returncode or not archive.is_file():
        said = " ".join(done.stderr.split())[-300:] or "no word of why"
        raise SpeedscopeError(f"npm pack speedscope@{VERSION} failed: {said}")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    """The static pages out of the archive, once its hash is right. Raises SpeedscopeError."""
    try:
        found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    except OSError as error:
        raise SpeedscopeError(f"{archive}: {error.strerror}") from error
    if found != INTEGRITY:
        raise SpeedscopeError(f"{archive.name} is not speedscope {VERSION}: its hash is {found}, expected {INTEGRITY}")
    folder.mkdir()
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.isfile() and member.name.startswith(_WANTED) and (content := packed.extractfile(member)):
                (folder / PurePosixPath(member.name).name).write_bytes(content.read())
