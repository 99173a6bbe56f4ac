"""The files of a revision of a git repository, in a folder of their own. Nothing in the repository changes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

from llama_workbench.cache import cache_directory

from ..machine.lifeline import tied
from .environments import MADE, ended
from .source import Source, SourceError, is_command, parse

WORKING_TREE = "."  # stands for the files as they are now, committed or not
KEPT = 20  # revisions in the cache; the oldest goes first

GIT_SECONDS = 300.0

PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
COMMIT = re.compile(r"[0-9a-f]{10,}")


def parse_at(text: str, *, option: str, folder: Path | None = None, elsewhere: bool = False) -> Source:
    """The source that a text names; `@REV` behind it is a revision of the repository around the current folder.
    elsewhere: as of `parse`. Raises SourceError."""
    what, at, revision = text.rpartition("@")
    if not at or is_command(text):
        return parse(text, option=option, folder=folder, elsewhere=elsewhere)
    return source_at(what, revision, option=option, folder=folder)


def source_at(text: str, revision: str, *, option: str, folder: Path | None = None) -> Source:
    """A function as it is in a revision: its file and all that it imports from the repository. Raises SourceError."""
    folder = (folder or Path.cwd()).resolve()
    root = repository_of(folder)
    commit = commit_of(root, revision)
    tree = files_of(root, commit)
    source = parse(text, option=f"{option} (at {revision_text(revision)})", folder=tree / folder.relative_to(root))
    short = revision if PLAIN_NAME.fullmatch(revision) and not COMMIT.fullmatch(revision) else commit[:9]
    name = source.name if "=" in text else f"{source.name}-{short}"
    return replace(source, name=name, revision=short, commit=commit)


def revision_text(revision: str) -> str:
    """A revision for people: as they named it, but of a commit's whole name only the beginning."""
    if revision == WORKING_TREE:
        return "the working tree"
    return revision[:9] if COMMIT.fullmatch(revision) else revision


def name_of(revision: str) -> str:
    """A revision in a word, for the name of a side: its own name, or the beginning of its commit; "now" for the working
    tree. Raises SourceError."""
    if revision == WORKING_TREE:
        return "now"
    if PLAIN_NAME.fullmatch(revision) and not COMMIT.fullmatch(revision):
        return revision
    return commit_of(repository_of(Path.cwd()), revision)[:9]


def repository_of(folder: Path) -> Path:
    """The repository that a folder is in. Raises SourceError."""
    return Path(git(folder, "rev-parse", "--show-toplevel")).resolve()


def commit_of(root: Path, revision: str) -> str:
    """The full name of a commit. Raises SourceError."""
    if revision.startswith("-"):
        raise SourceError(f"{revision!r} is no revision of the repository {root.name}/")
    return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")


def files_of(root: Path, commit: str) -> Path:
    """A folder with the files of a commit, from the cache or written now. Raises SourceError, CacheError."""
    kept = cache_directory() / "revisions"
    folder = kept / f"{root.name}-{commit}"
    if folder.is_dir():
        os.utime(folder)
        return folder
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="partial-", dir=kept) as scratch, index_of(root, commit) as index:
        files = Path(scratch, "files")
        files.mkdir()
        git(root, "checkout-index", "--all", "--force", f"--prefix={files}/", **index)
        try:
            files.rename(folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    keep_newest(kept)
    return folder


def keep_newest(kept: Path) -> None:
    """Remove the oldest of the folders there, where they are more than KEPT."""
    for old in sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def index_of(root: Path, commit: str) -> Iterator[dict[str, str]]:
    """What git needs in its environment to know a commit's files; those of today, without what git ignores, where it is
    empty. No file of the repository changes. Raises SourceError."""
    with tempfile.TemporaryDirectory(prefix="workbench-") as scratch:
        own = {"GIT_INDEX_FILE": f"{scratch}/index"}
        if not commit:
            objects = root / git(root, "rev-parse", "--git-path", "objects")
            Path(scratch, "objects").mkdir()
            own |= {"GIT_OBJECT_DIRECTORY": f"{scratch}/objects", "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects)}
        git(root, "read-tree", commit or "HEAD", **own)
        if not commit:
            git(root, "add", "--all", **own)
        yield own


def commits_between(root: Path, good: str, bad: str) -> list[str]:
    """The commits after `good` up to `bad`, oldest first, along first parents. Raises SourceError."""
    listed = git(root, "rev-list", "--reverse", "--first-parent", "--ancestry-path", f"{good}..{bad}")
    return listed.split()


def subject_of(root: Path, commit: str) -> str:
    """The short name of a commit, its date and the first line of its message."""
    return git(root, "show", "--no-patch", "--format=%h %as %s", commit)


def git(folder: Path, *words: str, **environment: str) -> str:
    """What git says there, without the last end of line. Raises SourceError."""
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            tied(command),
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            env=os.environ | environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"git cannot be asked about {folder.name}/: {error}") from error
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"git {words[0]} found nothing for {words[-1]}"])[0]
        raise SourceError(f"{folder.name}/: {why}")
    return done.stdout.removesuffix("\n")


# A revision that is built: its files, and an environment in which the command of a user has installed or built them,
# kept in the cache for as long as files, command and Python are the same.
# What is installed beside the workbench is found there too, after what the build has installed: so a build that
# changes one package installs one package.


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
    ours = bool(PathFinder.find_spec("pip"))  # see `environments`; it is found from there
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
