"""The names of a run's own files, and how files are replaced: whole, by a rename.

The passes of a run declare theirs themselves (see `declared`). Of all files of a run that has ended the checksums stand
in SHA256SUMS (see `sums`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import reprlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from . import forms, schema, verdict_schema
from .forms import JsonFile

# What goes wrong with a run folder: every error names the file, the problem and what to do.


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


MANIFEST = JsonFile("run.json", schema.MANIFEST)
JOURNAL = "samples.jsonl"
SAMPLES = "samples.parquet"
CLAIMS = JsonFile("claims.json", schema.CLAIMS)
VERDICTS = JsonFile("verdicts.json", verdict_schema.VERDICTS)
STANDINGS = JsonFile("standings.json", schema.STANDINGS)
MACHINES = JsonFile("machines.json", verdict_schema.MACHINES)
SUMS = "SHA256SUMS"

FORMS: Mapping[str, TypeAdapter[Any]] = {each: each.form for each in (MANIFEST, CLAIMS, VERDICTS, STANDINGS, MACHINES)}
"""The form of each JSON file that a run itself writes."""

JUDGED_ANEW = (VERDICTS, STANDINGS, MACHINES)
"""What `workbench judge` writes anew."""

DATA = (".json", ".parquet", ".folded")
"""How the names of a run's files end, beside its journal and its checksums."""

_NOT_ITS_OWN = ("log", verdict_schema.HOME)
"""Folders in a run folder whose files it has no checksums of: logs, and the runs of the machines of a fleet."""


def data_files(folder: Path) -> Iterator[str]:
    """The names of all files of a run that lie in its folder and belong under its checksums, in order."""
    for here, folders, names in os.walk(folder):
        own = () if Path(here) != folder else _NOT_ITS_OWN
        folders[:] = sorted(name for name in folders if name not in own and not name.startswith("."))
        for path in (Path(here, name) for name in sorted(names)):
            if path.suffix in DATA and not path.name.startswith(".") and not path.is_symlink():
                yield path.relative_to(folder).as_posix()


def replace_whole(folder: Path, writes: Mapping[str, Callable[[Path], object]]) -> None:
    """Replace these files whole, in this order, once all of them are on disk. Raises RunError."""
    temporaries = {folder / name: folder / f".{name}.{os.getpid()}.tmp" for name in writes}
    try:
        for (path, temporary), write in zip(temporaries.items(), writes.values(), strict=True):
            kept = "; the earlier file is untouched" if path.exists() else ""
            with as_run_error(path, f"cannot be written ({{}}){kept}"):
                write(temporary)
                with temporary.open("rb") as handle:
                    os.fsync(handle.fileno())  # a full disk may show only here, and must show before the rename
        for path, temporary in temporaries.items():
            with as_run_error(path, "cannot be written ({})"):
                os.replace(temporary, path)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)  # still there only where the writing failed or was interrupted


def read_bytes(path: Path) -> bytes:
    """The content of a run's file. Raises RunError, which says what to do where it is not there."""
    try:
        with as_run_error(path):
            return path.read_bytes()
    except RunError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    if not path.parent.is_dir():
        raise no_such_folder(path.parent)
    fix = "Is this the folder of a run? List the runs there are: workbench runs"
    raise RunError(path, "missing", f"Judge the run: workbench judge {path.parent}" if path.name == VERDICTS else fix)


def no_such_folder(path: Path) -> RunError:
    """The error for a folder that is not there."""
    return RunError(path, "there is no such run folder", "List the runs there are: workbench runs")


def fix_of(folder: Path, name: str) -> str:
    """What to do about a file whose content cannot be used."""
    return f"Judge the run again: workbench judge {folder}" if name in JUDGED_ANEW else RESTORE


def looks_like_a_run(folder: Path) -> bool:
    """True where a manifest, claims or samples lie in the folder (readable or not)."""
    return any((folder / name).is_file() for name in (MANIFEST, CLAIMS, JOURNAL, SAMPLES))


def json_bytes(value: Any) -> bytes:
    """The content of a JSON file: models and dataclasses in their form, infinite and NaN floats as null."""
    text = json.dumps(forms.plain(value), indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def check_version(path: Path, manifest: Any) -> None:
    """Raise RunError where run.json is of another format, or its values are no processes (see `schema.UNIT`)."""
    if not isinstance(manifest, dict):
        raise RunError(path, "not an object", RESTORE)
    version = manifest.get("format")
    if version != schema.FORMAT or isinstance(version, bool):
        fix = "Read it with the version of the workbench that wrote it, or measure again."
        raise RunError(path, f"format {reprlib.repr(version)}, and this workbench reads format {schema.FORMAT}", fix)
    if manifest.get("unit") not in (schema.UNIT, "life"):
        problem = "made by an earlier version of the workbench, in which one process gave many values"
        raise RunError(path, problem, "Measure it again.")


# SHA256SUMS: the checksum of every file of a run that has ended, as `sha256sum --check SHA256SUMS` reads it.
# From then on a file that is not what the run wrote raises `ChangedFile`. A run that goes on has no checksums yet;
# one that has ended says `"sealed": true` in its run.json, so that checksums which are gone are missed.
# python -m llama_workbench.harness.store.files RUN ...
# writes the checksums of these runs anew, over what lies there now.


CHANGED = "its content is not what the run wrote"
GONE = "missing, and the run wrote it"
_LINE = re.compile(r"([0-9a-f]{64})  (?!/)((?!.*(?:^|/)\.\.(?:/|$)).+)")


@dataclass(frozen=True)
class Sums:
    """The checksums of one run folder. Making the value touches nothing."""

    path: Path

    def known(self) -> Mapping[str, str] | None:
        """SHA-256 of every file of the run by its name, run.json's too; None where it has not ended.

        Raises ChangedFile where they are gone, cannot be read, or do not fit run.json.
        """
        if not (self.path / MANIFEST).exists():
            return None
        listing = read_bytes(self.path / SUMS) if (self.path / SUMS).exists() else None
        files, wrong = _listed(read_bytes(self.path / MANIFEST), listing)
        if wrong:
            raise ChangedFile(self.path / wrong, GONE if listing is None else CHANGED, RESTORE)
        return files

    def check(self, name: str, content: bytes) -> None:
        """Raise ChangedFile where this is not the content that the run wrote into a file."""
        if (known := self.known()) is not None:
            self._compare(known, name, sha256(content), there=True)

    def check_there(self, name: str, there: bool) -> None:
        """Raise ChangedFile where the run wrote such a file and it is gone, or the reverse."""
        if (known := self.known()) is not None:
            self._compare(known, name, known.get(name), there)

    def changed(self, besides: Collection[str] = ()) -> list[ChangedFile]:
        """The files that are not what the run wrote; none where it has not ended. Reads all but `besides`.

        Raises RunError where a file cannot be read at all.
        """
        try:
            known = self.known()
        except ChangedFile as error:
            return [error]
        if known is None:
            return []
        # Of a file that is not listed only the name is reported: it need not be read.
        names = [name for name in dict.fromkeys([*known, *data_files(self.path), JOURNAL]) if name not in besides]
        now = self.of(name for name in names if name in known)
        changed = []
        for name in names:
            try:
                self._compare(known, name, now.get(name), (self.path / name).is_file())
            except ChangedFile as error:
                changed.append(error)
        return changed

    def read_text(self, name: str, largest_bytes: int) -> str:
        """The text of a file below the folder, by the name that another file has for it.

        Raises ValueError where that leads out of the folder, or where the file is larger, and OSError.
        """
        path, home = (self.path / name).resolve(), self.path.resolve()
        if not path.is_relative_to(home):
            raise ValueError("the path leads out of the run folder")
        if path.stat().st_size > largest_bytes:
            raise ValueError(f"larger than {largest_bytes >> 20} MiB")
        content = path.read_bytes()
        self.check(path.relative_to(home).as_posix(), content)
        return content.decode("utf-8")

    def of(self, names: Iterable[str]) -> dict[str, str]:
        """SHA-256 of each of these files that is there, as it lies here."""
        digests = {}
        with as_run_error(self.path):
            for name in names:
                if (path := self.path / name).is_file():
                    with path.open("rb") as handle:
                        digests[name] = hashlib.file_digest(handle, "sha256").hexdigest()
        return digests

    def write(self, manifest: bytes, renewed: Collection[str] | None = None) -> None:
        """Write run.json with this content, and SHA256SUMS; of the others only those of `renewed` are read anew."""
        earlier = self.known() or {} if renewed is not None else {}
        files = {
            **earlier,
            **self.of(data_files(self.path) if renewed is None else renewed),
            MANIFEST: sha256(manifest),
        }
        listing = "".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()
        contents = {SUMS: listing, MANIFEST: manifest}
        writes = {name: _writer(content) for name, content in contents.items() if not self._holds(name, content)}
        replace_whole(self.path, writes)

    def _holds(self, name: str, content: bytes) -> bool:
        path = self.path / name
        return path.is_file() and read_bytes(path) == content

    def _compare(self, known: Mapping[str, str], name: str, now: str | None, there: bool) -> None:
        fix = fix_of(self.path, name)
        if name in known and not (there and now == known[name]):
            raise ChangedFile(self.path / name, CHANGED if there else GONE, fix)
        if name not in known and there:
            fix = fix if name in JUDGED_ANEW else "Move it out of the folder, or measure again."
            raise ChangedFile(self.path / name, f"the run did not write it ({SUMS} does not list it)", fix)


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _writer(content: bytes) -> Any:
    return lambda temporary: temporary.write_bytes(content)


@lru_cache(maxsize=8)
def _listed(manifest: bytes, listing: bytes | None) -> tuple[Mapping[str, str] | None, str]:
    """What run.json and SHA256SUMS say together: the checksums, or which of the two cannot be what the run wrote."""
    if listing is None:
        return None, SUMS if _facts(manifest).get("sealed") is True else ""
    *whole, rest = listing.decode("utf-8", errors="replace").split("\n")
    lines = [_LINE.fullmatch(line) for line in whole]
    files = {line[2]: line[1] for line in lines if line}
    if rest or len(files) < len(lines) or MANIFEST not in files:
        return None, SUMS
    if files[MANIFEST] == sha256(manifest):
        return files, ""
    # A kill may come between the two: then the run goes on as if it had not been sealed yet.
    return None, "" if _facts(manifest).get("status") == "running" else MANIFEST


def _facts(manifest: bytes) -> Mapping[str, Any]:
    try:
        facts = json.loads(manifest)
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        Sums(folder).write(read_bytes(folder / MANIFEST))
