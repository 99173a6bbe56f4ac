"""The names of a run's own files, and how files are replaced: whole, by a rename.

The passes of a run declare theirs themselves (see `declared`). Of all files of a run that has ended the checksums stand
in SHA256SUMS (see `sums`).
"""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from . import forms, machine_schema, schema, verdict_schema
from .declared import JsonFile
from .errors import RESTORE, RunError, as_run_error

MANIFEST = JsonFile("run.json", schema.MANIFEST)
JOURNAL = "samples.jsonl"
SAMPLES = "samples.parquet"
CLAIMS = JsonFile("claims.json", schema.CLAIMS)
VERDICTS = JsonFile("verdicts.json", verdict_schema.VERDICTS)
STANDINGS = JsonFile("standings.json", schema.STANDINGS)
MACHINES = JsonFile("machines.json", machine_schema.MACHINES)
SUMS = "SHA256SUMS"

FORMS: Mapping[str, TypeAdapter[Any]] = {each: each.form for each in (MANIFEST, CLAIMS, VERDICTS, STANDINGS, MACHINES)}
"""The form of each JSON file that a run itself writes."""

JUDGED_ANEW = (VERDICTS, STANDINGS, MACHINES)
"""What `workbench judge` writes anew."""

DATA = (".json", ".parquet", ".folded")
"""How the names of a run's files end, beside its journal and its checksums."""

_NOT_ITS_OWN = ("log", machine_schema.HOME)
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
    """Raise RunError where run.json is of another format, or its values are no processes (see `schema.LIFE`)."""
    if not isinstance(manifest, dict):
        raise RunError(path, "not an object", RESTORE)
    version = manifest.get("format")
    if version != schema.FORMAT or isinstance(version, bool):
        fix = "Read it with the version of the workbench that wrote it, or measure again."
        raise RunError(path, f"format {reprlib.repr(version)}, and this workbench reads format {schema.FORMAT}", fix)
    if manifest.get("unit") != schema.LIFE:
        problem = "made by an earlier version of the workbench, in which one process gave many values"
        raise RunError(path, problem, "Measure it again.")
