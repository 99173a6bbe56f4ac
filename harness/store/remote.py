"""Runs at a URL (s3, gs, az, sftp, file, memory): fsspec puts a whole run there, and gets it from there.

run.json is put last: who sees it sees a whole run. Until then `.uploading` lies in the folder, so that an upload that
broke off is known for one and can be repeated. What is got is checked against its checksums. The library of a file
system finds the credentials; none are read, kept or shown here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llama_workbench.cache import cache_directory, partial_folder

from ..machine.lifeline import Lock
from .files import CLAIMS, JOURNAL, MANIFEST, SAMPLES, STANDINGS, SUMS, VERDICTS, ChangedFile, RunError, first_line
from .folder import RunFolder, newest_first

UPLOADING = ".uploading"

LISTED = (MANIFEST, SUMS, VERDICTS, STANDINGS)
"""The files of a run that lists and histories read."""

_AT_A_TIME = 16  # runs of a list


class RemoteError(RunError):
    """A place cannot be read or written. The text names its URL, what the library said, and what to do."""

    def __init__(self, url: str, problem: str, fix: str) -> None:
        super().__init__(Path(url), problem, fix)
        self.args = (f"{url}: {problem}. {fix}",)  # a Path makes one slash of two


def is_url(text: object) -> bool:
    """Whether it names a place by a URL, and not a folder of this machine."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", str(text)))


def key_of(text: str) -> str:
    """A short name for a text, for folders of the cache: 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def put(run: RunFolder, url: str, *, force: bool = False) -> None:
    """Copy a run to a URL: its files, those of runs below it, and last its run.json.

    With `force` a run that lies there is replaced: its run.json goes first, so that nobody reads a mixture. Raises
    RunError where the run cannot be read, is not what it wrote, or goes on, and RemoteError.
    """
    with contextlib.closing(Lock()) as lock:
        if run.manifest().status == "running":
            run.hold(lock)
        files = files_of(run.path)
        for changed in changed_in(run.path, files):
            raise changed
        there, manifest = _reserve(url, force=force), {str(MANIFEST): files.pop(MANIFEST)}
        with _opened(url) as (system, root):
            for name in sorted(there - {*files}, key=lambda name: name != MANIFEST):
                system.rm_file(f"{root}/{name}")
            _write(system, root, files)
            _write(system, root, manifest)
            system.rm_file(f"{root}/{UPLOADING}")


def _reserve(url: str, *, force: bool = False) -> set[str]:
    """Mark a place as about to hold a run, which shows that it can be written. Returns what lies there besides.

    Raises RemoteError for no place for a run, a run if `force` is not set, and files that are no run's.
    """
    folder, _, name = url.partition("://")[2].rstrip("/").rpartition("/")
    if not folder or name.startswith("."):
        fix = "Name the folder that it gets, in another one: s3://bucket/runs/NAME"
        raise RemoteError(url, "this is no place for a run", fix)
    there = {*_files(url)}
    if MANIFEST in there and not force:
        raise RemoteError(url, "there is a run", "Choose another name, or replace it with --force.")
    if there and not {MANIFEST, UPLOADING} & there:
        raise RemoteError(url, "this holds files and no run, so nothing is written here", "Choose another name.")
    with _opened(url) as (system, root):
        _make_folders(system, [root])
        system.pipe_file(f"{root}/{UPLOADING}", b"A run is being uploaded here, or its upload broke off.\n")
    return there - {UPLOADING}


def get(url: str) -> RunFolder:
    """The run at a URL as a folder under the cache: a copy that nobody may write to, fetched once for each state of its
    files. Raises RemoteError where there is no run, or one that is not whole."""
    there = _files(url)
    if MANIFEST not in there:
        if not {UPLOADING, CLAIMS, JOURNAL, SAMPLES} & {*there}:
            raise RemoteError(url, "there is no run", "List the runs there are: workbench runs URL")
        fix = "Publish it again from where it was measured: workbench publish RUN URL"
        raise RemoteError(url, "only a part of a run: it is being uploaded, or its upload broke off", fix)
    run = _kept(url, there)
    for changed in changed_in(run.path, there):
        shutil.rmtree(run.path, ignore_errors=True)
        name = changed.path.relative_to(run.path).as_posix()
        fix = f"Publish the run again: workbench publish RUN {shlex.quote(url)} --force"
        raise RemoteError(f"{url.rstrip('/')}/{name}", changed.problem, fix)
    return run


def listed(url: str) -> dict[str, RunFolder]:
    """The runs in the folder at a URL, or the run that it is of, by their URLs, newest first.

    Of each only LISTED is fetched, unless its relative times are to be had from its samples alone. Raises RemoteError.
    """
    there, url, runs = _files(url), url.rstrip("/"), dict[str, dict[str, Any]]()
    if MANIFEST in there:
        return {url: get(url)}
    for name, facts in there.items():
        run, _, file = name.partition("/")
        runs.setdefault(f"{url}/{run}", {})[file] = facts
    runs = {place: files for place, files in runs.items() if MANIFEST in files}

    def light(place: str) -> RunFolder:
        files = runs[place]
        return _kept(place, {name: files[name] for name in LISTED if name in files} if STANDINGS in files else files)

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        folders = dict(zip(pool.map(light, runs), runs, strict=True))
    return {folders[run]: run for run in newest_first(folders)}


def files_of(folder: Path) -> dict[str, Path]:
    """The files of a run that go along with it, by their names in it: no links, no hidden files, and no logs of
    processes, which name paths of this machine."""
    files = {}
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "log")
        for path in (Path(here, name) for name in sorted(names) if not name.startswith(".")):
            if not path.is_symlink():
                files[path.relative_to(folder).as_posix()] = path
    return files


def changed_in(folder: Path, names: Iterable[str]) -> Iterator[ChangedFile]:
    """What is not as it was written, of the run in a folder and of those below it."""
    for name in names:
        if Path(name).name == MANIFEST:
            yield from RunFolder((folder / name).parent).changed()


def _files(url: str) -> dict[str, dict[str, Any]]:
    """All files of a folder and below, by their names relative to it, with what the file system says of each; none
    where there is no such folder."""
    with _opened(url) as (system, root):
        inside = {path[len(root) :].lstrip("/"): facts for path, facts in system.find(root, detail=True).items()}
    # sftp has under "time" when a file was last read.
    return {name: {key: fact for key, fact in facts.items() if key != "time"} for name, facts in inside.items() if name}


def _kept(url: str, files: Mapping[str, Mapping[str, Any]]) -> RunFolder:
    """A folder under the cache with these files of a run, fetched unless they are there in this state."""
    files = {name: facts for name, facts in sorted(files.items()) if not name.startswith(".")}
    url = url.rstrip("/")
    home = cache_directory() / "fetched" / key_of(url) / key_of(repr(files)) / url.rpartition("/")[2]
    if home.is_dir():
        return RunFolder(home)
    size_bytes = sum(int(facts.get("size") or 0) for facts in files.values())
    with partial_folder(home.parent, home.name, needed_bytes=size_bytes) as partial:
        targets = {name: partial / home.name / name for name in files}
        for name, path in targets.items():
            if not path.resolve().is_relative_to(partial.resolve() / home.name):
                raise RemoteError(url, f"the name of {name!r} leads out of the run", "Do not use this run.")
            path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(url) as (system, root):
            system.get([f"{root}/{name}" for name in files], [str(path) for path in targets.values()])
        try:
            os.rename(partial / home.name, home)
        except OSError:
            if not home.is_dir():  # else another process was faster, and has the same
                raise
    return RunFolder(home)


def _write(system: Any, root: str, files: Mapping[str, Path]) -> None:
    targets = [f"{root}/{name}" for name in files]
    _make_folders(system, dict.fromkeys(map(posixpath.dirname, targets)))
    system.put([str(path) for path in files.values()], targets)


def _make_folders(system: Any, folders: Iterable[str]) -> None:
    """Make folders on systems that have them; in an object store, which answers asynchronously, that may make a
    bucket."""
    for folder in folders:
        if not system.async_impl:
            system.makedirs(folder, exist_ok=True)


@contextmanager
def _opened(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL and the path there. What its library raises within the block becomes a RemoteError."""
    try:
        from fsspec.core import url_to_fs

        system, root = url_to_fs(url, use_listings_cache=False)
        yield system, str(root).rstrip("/")
    except RunError:
        raise
    except Exception as error:  # each library has errors of its own
        text = f"{type(error).__name__}: {first_line(error)}".rstrip(": ").rstrip(".")
        fix = "Check the URL (s3://, gs://, az://, sftp://, file://), the network, and the credentials, which belong "
        fix += "where the store's own tools look for them (AWS_PROFILE). A bucket must exist: the workbench makes none."
        if isinstance(error, ImportError):
            fix = "Install the package that it names with pip, or the extra [remote] of the workbench for s3://."
        raise RemoteError(url, f"the store cannot be used ({text})", fix) from error
