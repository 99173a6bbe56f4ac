"""A revision that is built: its files, and an environment in which the command of a user has installed or built them,
kept in the cache for as long as files, command and Python are the same.

What is installed beside the workbench is found there too, after what the build has installed: so a build that changes
one package installs one package.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from llama_workbench.cache import cache_directory

from .made_environments import MADE, ended
from .revisions import git, index_of, keep_newest
from .source import SourceError

OPTION = "--build"

NO_HISTORY = {"SETUPTOOLS_SCM_PRETEND_VERSION": "0+workbench"}
"""The files have no repository around them, by which many a build finds its version."""

PIP = '#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n'


@dataclass(frozen=True)
class BuiltRevision:
    """Where a revision's files are, and the interpreter that finds what was built of them."""

    files: Path
    python: str


def built(root: Path, revision: str, commit: str, command: str) -> BuiltRevision:
    """A revision of a repository, built now or before. revision: for people. commit: empty for the files as they are,
    those that git does not ignore. Raises SourceError."""
    with index_of(root, commit) as own:
        tree = git(root, "write-tree", **own)
        wanted = json.dumps([tree, command, sys.executable, sys.version])
        kept = cache_directory() / "builds"
        folder = kept / f"{root.name}-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not (folder / MADE).is_file():
                    for part in ("files", "env"):
                        shutil.rmtree(folder / part, ignore_errors=True)
                    git(root, "checkout-index", "--all", "--force", f"--prefix={folder / 'files'}/", **own)
                    _build(folder, revision, command)
                    (folder / MADE).write_text(wanted, encoding="utf-8")
                os.utime(folder)
        except OSError as error:
            raise SourceError(f"{OPTION}: {folder} cannot be made ({error.strerror or error})") from error
    keep_newest(kept)
    return BuiltRevision(folder / "files", str(folder / "env" / "bin" / "python"))


def _build(folder: Path, revision: str, command: str) -> None:
    """Make the environment, and run the command in the files, with that environment's programs first. Raises
    SourceError."""
    begun, environment = time.monotonic(), folder / "env"
    sys.stderr.write(f"workbench: building {revision} with {command!r} (once; kept in {folder})\n")
    ours = bool(find_spec("pip"))  # found from there: putting another one in takes longer than most builds
    _run(revision, [sys.executable, "-m", "venv", *["--without-pip"] * ours, str(environment)], folder)
    [packages] = environment.glob("lib/python*/site-packages")
    beneath = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    files = folder / "files"
    (packages / "beneath.pth").write_text("\n".join(map(str, (files, files / "src", *beneath))), encoding="utf-8")
    if ours:
        (environment / "bin" / "pip").write_text(PIP, encoding="utf-8")
        (environment / "bin" / "pip").chmod(0o755)
    _run(revision, ["sh", "-c", command], files)
    sys.stderr.write(f"workbench: {revision} is built: {time.monotonic() - begun:.0f} s\n")


def _run(revision: str, command: list[str], folder: Path) -> None:
    programs = folder.parent / "env" / "bin"
    own = {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}", "VIRTUAL_ENV": str(programs.parent)}
    done = ended(f"{OPTION}: the build of {revision}", command, cwd=folder, env=NO_HISTORY | os.environ | own)
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-20:])
        raise SourceError(f"{OPTION}: {revision} cannot be built: exit code {done.returncode}\n{last}")
