"""A whole run from a folder of this machine to a place, and back.

run.json goes last: who sees it sees a whole run. Until then the file `.uploading` lies in the folder, so that an upload
that broke off is known for one and can be made again. What is fetched is checked against its checksums.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from llama_workbench.cache import cache_directory, partial_folder

from ..machine.locks import Lock
from ..store.errors import ChangedFile, RunError
from ..store.files import CLAIMS, JOURNAL, MANIFEST, SAMPLES
from ..store.folder import RunFolder
from .place import Place, PlaceError, Refused, Remote, key_of

UPLOADING = ".uploading"
_LOGS = "log"


def reserve(place: Place, *, force: bool = False) -> dict[str, Remote]:
    """Mark a place as about to hold a run, which shows that it can be written. Returns what lies there.

    Raises Refused where it holds a run already and `force` is not set, or files that are no run's.
    """
    there = place.files()
    if MANIFEST in there and not force:
        raise Refused(place.url, "there is a run", "Choose another name, or replace it with --force.")
    if there and MANIFEST not in there and UPLOADING not in there:
        raise Refused(place.url, "this holds files and no run, so nothing is written here", "Choose another name.")
    with tempfile.TemporaryDirectory() as aside:
        mark = Path(aside) / "mark"
        mark.write_text("A run is being uploaded here, or its upload broke off.\n", encoding="utf-8")
        place.put({UPLOADING: mark})
    return there


def release(place: Place) -> None:
    """Take the mark off a place that nothing was written to. What goes wrong is not told: the mark does no harm."""
    with contextlib.suppress(RunError):
        if set(place.files()) == {UPLOADING}:
            place.remove([UPLOADING])
            place.remove_folder()


def send(run: RunFolder, place: Place, *, force: bool = False) -> None:
    """Copy a run to a place: its files, those of runs below it, and last its run.json.

    Links, hidden files and the logs of processes (they name paths of this machine) stay here. With `force` a run that
    lies there is replaced: its run.json goes first, so that nobody reads a mixture.

    Raises RunError where the run cannot be read, is not what it wrote, or goes on; PlaceError for the place. The run
    here is untouched, and after an upload that broke off the same call begins anew.
    """
    with contextlib.closing(Lock()) as lock:
        if run.manifest().status == "running":
            run.hold(lock)
        files = files_of(run.path)
        for changed in _changed(run.path, files):
            raise changed
        there = reserve(place, force=force)
        manifests = sorted((name for name in files if Path(name).name == MANIFEST), key=lambda name: -name.count("/"))
        place.remove(sorted((name for name in there if Path(name).name == MANIFEST), key=lambda name: name.count("/")))
        place.put({name: path for name, path in files.items() if name not in manifests})
        place.remove([name for name in there if name not in files and name != UPLOADING])
        for name in manifests[:-1]:
            place.put({name: files[name]})
        _check_arrived({name: path for name, path in files.items() if name != MANIFEST}, place)
        place.put({MANIFEST: files[MANIFEST]})
        place.remove([UPLOADING])


def files_of(folder: Path) -> dict[str, Path]:
    """The files of a run that go along with it, by their names in it."""
    files = {}
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != _LOGS)
        for path in (Path(here, name) for name in sorted(names) if not name.startswith(".")):
            if not path.is_symlink():
                files[path.relative_to(folder).as_posix()] = path
    return files


def _changed(folder: Path, names: Iterable[str]) -> Iterator[ChangedFile]:
    """What is not as it was written, of the run in a folder and of those below it."""
    for name in names:
        if Path(name).name == MANIFEST:
            yield from RunFolder((folder / name).parent).changed()


def _check_arrived(files: Mapping[str, Path], place: Place) -> None:
    there = place.files()
    for name, path in files.items():
        size = path.stat().st_size
        if name not in there or there[name].size != size:
            arrived = f"{there[name].size:,} bytes" if name in there else "nothing"
            problem = f"{arrived} arrived of {name}, which has {size:,} bytes here"
            raise PlaceError(place.url, problem, "Publish the run again.")


def fetch(url: str, cache: Path | None = None) -> RunFolder:
    """The run at a URL as a folder of this machine, under the cache: fetched once for each state of its files.

    The folder is a copy that nobody may write to. Raises PlaceError where there is no run, or one that is not whole.
    """
    place = Place.at(url)
    there = {name: facts for name, facts in place.files().items() if not name.startswith(".")}
    if not any(name in there for name in (MANIFEST, CLAIMS, JOURNAL, SAMPLES)):
        raise PlaceError(place.url, "there is no run", "List the runs there are: workbench runs URL")
    if MANIFEST not in there:
        fix = "Publish it again from where it was measured: workbench publish RUN URL"
        raise PlaceError(place.url, "only a part of a run: it is being uploaded, or its upload broke off", fix)
    state = json.dumps([(name, facts.size, facts.version) for name, facts in sorted(there.items())])
    above = (cache or cache_directory()) / "fetched" / key_of(place.url) / key_of(state)
    home = above / (place.name or "run")
    if not home.is_dir():
        size = sum(facts.size for facts in there.values())
        with partial_folder(above, home.name, needed_bytes=size) as partial:
            _get_checked(place, there, partial / home.name)
            try:
                os.rename(partial / home.name, home)
            except OSError:
                if not home.is_dir():  # else another process was faster, and has the same
                    raise
    return RunFolder(home)


def _get_checked(place: Place, there: Mapping[str, Remote], folder: Path) -> None:
    targets = {name: folder / name for name in there}
    if strange := [name for name, path in targets.items() if not path.resolve().is_relative_to(folder.resolve())]:
        raise PlaceError(place.url, f"the name of {strange[0]!r} leads out of the run", "Do not use this run.")
    place.get(targets)
    again = f"Publish the run again: workbench publish RUN {shlex.quote(place.url)} --force"
    for name, path in targets.items():
        if not path.is_file() or path.stat().st_size != there[name].size:
            problem = f"{name} changed or broke off while it was fetched"
            raise PlaceError(place.url, problem, f"Try again; if it stays so: {again[0].lower()}{again[1:]}")
    for error in _changed(folder, targets):
        name = error.path.relative_to(folder).as_posix()
        raise PlaceError(f"{place.url}/{name}", error.problem, again)


def copy(run: RunFolder, target: Path, *, force: bool = False) -> RunFolder:
    """Copy a run to a folder of this machine, whole or not at all. Raises RunError as `send` does."""
    send(run, Place.at(f"file://{target.absolute()}"), force=force)
    return RunFolder(target)


def remove(place: Place) -> None:
    """Remove the run at a place, its run.json first: from then on nobody takes what is left for a run.

    Raises Refused where there is none, also none of which a part was uploaded.
    """
    there = place.files()
    if not {MANIFEST, UPLOADING} & set(there):
        raise Refused(place.url, "there is no run", "It stays as it is.")
    place.remove(sorted(there, key=lambda name: (Path(name).name != MANIFEST, name.count("/"))))
    place.remove_folder()
