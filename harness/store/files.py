"""The files of a run folder as bytes and JSON: replaced whole, and read with a check against their checksums.

When a run has ended, `seal` puts the SHA-256 of each file into run.json. From then on a file that is not what the run
wrote raises `ChangedFile`. Runs from before there were checksums have none and are read without.

run.json ends with `"checksums"`: the SHA-256 of each data file by its name in the folder, and under its own name that
of all before `"checksums"` and of the other entries. Near its beginning it says `"sealed": true`, so that a run whose
checksums are gone is not taken for one from before there were any.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from . import forms, machine_schema, pass_schema, schema
from .errors import RESTORE, ChangedFile, RunError, as_run_error

MANIFEST = "run.json"
JOURNAL = "samples.jsonl"
SAMPLES = "samples.parquet"
CLAIMS = "claims.json"
VERDICTS = "verdicts.json"
STANDINGS = "standings.json"
PROFILES = "profiles.json"
MEMORY = "memory.json"
FINDINGS = "findings.json"
PHASES = "phases.parquet"
PHASE_FACTS = "phases.json"
LOADING = "loading.json"
MEMORY_SWEEP = "memory_sweep.json"
ROOFLINE = "roofline.json"
INSTRUCTIONS = "instructions.json"
MACHINES = "machines.json"
STACKS = "profiles/**/*.folded"

FORMS: Mapping[str, TypeAdapter[Any]] = {
    MANIFEST: schema.MANIFEST,
    CLAIMS: schema.CLAIMS,
    VERDICTS: schema.VERDICTS,
    STANDINGS: schema.STANDINGS,
    FINDINGS: pass_schema.FINDINGS,
    PHASE_FACTS: pass_schema.PHASE_FACTS,
    LOADING: pass_schema.LOADING,
    MEMORY: pass_schema.MEMORY,
    MEMORY_SWEEP: pass_schema.MEMORY_SWEEP,
    ROOFLINE: pass_schema.ROOFLINE,
    INSTRUCTIONS: pass_schema.INSTRUCTIONS,
    PROFILES: pass_schema.PROFILES,
    MACHINES: machine_schema.MACHINES,
}
"""The form of each JSON file: checked when it is read."""

DATA_FILES = (*(name for name in FORMS if name != MANIFEST), PHASES, SAMPLES)
"""What may lie beside run.json in a run that has ended, but for the stacks of its profiles."""

JUDGED = (MANIFEST, CLAIMS, SAMPLES, JOURNAL, PHASES, LOADING, ROOFLINE, INSTRUCTIONS, FINDINGS)
"""What verdicts are computed from."""

_JUDGED_ANEW = (VERDICTS, STANDINGS, MACHINES)
_CHANGED = "its content is not what the run wrote"

_MARK = b'\n "checksums": {'  # one space: only a key of the outermost object is so far to the left
_TRACE = re.compile(rb'"sealed"\s*:\s*true|"checksums"\s*:\s*\{\s*"run\.json"')


@dataclass(frozen=True)
class RunFiles:
    """The files of one folder. Making the value touches nothing."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    def write_json(self, name: str, value: Any) -> None:
        """Replace `name` (a plain file name such as "verdicts.json") whole; `value`: models of its form, or plain.

        Infinite and NaN floats become null: JSON has no word for them. Raises RunError.
        """
        if Path(name).name != name or not name.endswith(".json"):
            raise ValueError(f"{name!r} is not a plain name ending in .json")
        text = json.dumps(forms.plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        self._replace(name, lambda temporary: temporary.write_bytes(text.encode()))

    def seal(self, manifest: Mapping[str, Any]) -> None:
        """Write run.json with the checksums of all data files as they lie here: the run has ended."""
        rest = {key: value for key, value in manifest.items() if key not in ("checksums", "sealed")}
        content = _joined(_unfinished({"sealed": True, **rest}), self._sums_of(self._data_files()))
        self._replace(MANIFEST, lambda temporary: temporary.write_bytes(content))

    def renew(self, *names: str, **values: Any) -> None:
        """Put the checksums of these files, which were just written anew, into run.json, and these values under their
        keys. A run.json that was changed stays as it is, and one from before there were checksums has none.

        Where a kill comes between the two, the reader of the file says how to write it anew.
        """
        content = self._bytes(MANIFEST)
        known = _read_sums(content)
        manifest = forms.parse(content) if values else {}
        body = _unfinished({key: value for key, value in manifest.items() if key != "checksums"} | values)
        if known is not None and known.intact:
            body = body if values else content.rpartition(_MARK)[0]
            fresh = _joined(body, {**known.files, **self._sums_of(names)})
            self._replace(MANIFEST, lambda temporary: temporary.write_bytes(fresh))
        elif known is None and values:
            self.write_json(MANIFEST, {**manifest, **values})

    def _replace(self, name: str, write: Callable[[Path], object]) -> None:
        path = self.path / name
        temporary = self.path / f".{name}.{os.getpid()}.tmp"
        kept = "; the earlier file is untouched" if path.exists() else ""
        try:
            with as_run_error(path, f"cannot be written ({{}}){kept}"):
                write(temporary)
                with temporary.open("rb") as handle:
                    os.fsync(handle.fileno())  # a full disk may show only here, and must show before the rename
                os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)  # still there only where the writing failed or was interrupted

    def read_json(self, name: str) -> Any:
        """A JSON file in plain types, checked by its form. Raises RunError."""
        content = self._bytes(name)
        if name != MANIFEST:
            self._check_sum(name, content)
        try:
            value = forms.parse(content)
            if name == MANIFEST:
                self._check_manifest(value)
            forms.check(FORMS[name], value, forms.SHOWN)
        except forms.Fault as fault:
            raise RunError(self.path / name, str(fault), _fix_of(self.path, name)) from fault
        return value

    def has(self, name: str) -> bool:
        """Whether there is such a file. Raises ChangedFile where the run wrote one and it is gone, or the reverse."""
        there = (self.path / name).exists()
        if known := self._sums():
            self._check(known, name, known.files.get(name), there)
        return there

    def source(self, name: str) -> Path | pa.BufferReader:
        """A Parquet file to open: its content, once that fits its checksum; its path where it has none."""
        if self._sums() is None:
            return self.path / name
        content = self._bytes(name)
        self._check_sum(name, content)
        return pa.BufferReader(content)

    def read_stacks(self, name: str, largest_bytes: int) -> str:
        """The text of a profile, by its name in profiles.json.

        Raises ValueError where that leads out of the folder, or where the file is larger, and OSError.
        """
        path, home = (self.path / name).resolve(), self.path.resolve()
        if not path.is_relative_to(home):
            raise ValueError("the path leads out of the run folder")
        if path.stat().st_size > largest_bytes:
            raise ValueError(f"larger than {largest_bytes >> 20} MiB")
        content = path.read_bytes()
        self._check_sum(path.relative_to(home).as_posix(), content)
        return content.decode("utf-8")

    def digest(self) -> dict[str, str]:
        """SHA-256 of the manifest and the samples as they lie here, by file: the same where nothing was added since.

        Of a sealed manifest all but the checksums, which change when the run is judged again. Raises RunError.
        """
        known = self._sums()
        return self._sums_of((MANIFEST, JOURNAL, SAMPLES)) | ({MANIFEST: known.own} if known else {})

    def sealed(self) -> dict[str, str] | None:
        """SHA-256 of every file as run.json has it, its own as in `digest`; None where it has no checksums."""
        known = self._sums()
        return None if known is None else {**known.files, MANIFEST: known.own}

    def changed(self, besides: Collection[str] = ()) -> list[ChangedFile]:
        """The files of this run that are not what it wrote; none where it has no checksums. Reads all but `besides`.

        Raises RunError where a file cannot be read at all.
        """
        try:
            known = self._sums()
        except ChangedFile as error:
            return [error]
        if known is None:
            return []
        # Of a file that run.json does not list only the name is reported: it need not be read.
        names = [name for name in dict.fromkeys([*known.files, *self._data_files(), JOURNAL]) if name not in besides]
        now = self._sums_of(name for name in names if name in known.files)
        changed = []
        for name in names:
            try:
                self._check(known, name, now.get(name), (self.path / name).is_file())
            except ChangedFile as error:
                changed.append(error)
        return changed

    def _data_files(self) -> list[str]:
        """The names of all data files that a run may leave here."""
        stacks = (path.relative_to(self.path).as_posix() for path in self.path.glob(STACKS) if not path.is_symlink())
        return [*DATA_FILES, *sorted(stacks)]

    def _sums_of(self, names: Iterable[str]) -> dict[str, str]:
        """SHA-256 of each of these files that is there."""
        digests = {}
        with as_run_error(self.path):
            for name in names:
                if (path := self.path / name).is_file():
                    with path.open("rb") as handle:
                        digests[name] = hashlib.file_digest(handle, "sha256").hexdigest()
        return digests

    def _bytes(self, name: str) -> bytes:
        path = self.path / name
        with as_run_error(path), suppress(FileNotFoundError):
            return path.read_bytes()
        if not self.path.is_dir():
            raise no_such_folder(self.path)
        fix = "Is this the folder of a run? List the runs there are: workbench runs"
        raise RunError(path, "missing", f"Judge the run: workbench judge {self.path}" if name == VERDICTS else fix)

    def _sums(self) -> _Sums | None:
        """The checksums in run.json; None where there are none. Raises ChangedFile where it is not what was sealed."""
        if not (self.path / MANIFEST).exists():
            return None
        known = _read_sums(self._bytes(MANIFEST))
        if known is not None and not known.intact:
            raise ChangedFile(self.path / MANIFEST, _CHANGED, RESTORE)
        return known

    def _check_sum(self, name: str, content: bytes) -> None:
        """Raise ChangedFile where this is not the content that run.json says of a file."""
        if known := self._sums():
            self._check(known, name, _sha256(content), there=True)

    def _check_manifest(self, manifest: Any) -> None:
        """Raise RunError where run.json is not what was sealed, or of another format."""
        self._sums()
        if not isinstance(manifest, dict):
            raise RunError(self.path / MANIFEST, "not an object", RESTORE)
        version = manifest.get("format")
        if version != schema.FORMAT or isinstance(version, bool):
            fix = "Read it with the version of the workbench that wrote it, or measure again."
            problem = f"format {reprlib.repr(version)}, and this workbench reads format {schema.FORMAT}"
            raise RunError(self.path / MANIFEST, problem, fix)

    def _check(self, known: _Sums, name: str, now: str | None, there: bool) -> None:
        """Raise ChangedFile where a file, by its checksum `now`, is not what the run wrote."""
        fix = _fix_of(self.path, name)
        if name in known.files and not (there and now == known.files[name]):
            raise ChangedFile(self.path / name, _CHANGED if there else "missing, and the run wrote it", fix)
        if name not in known.files and there:
            fix = fix if name in _JUDGED_ANEW else "Move it out of the folder, or measure again."
            raise ChangedFile(self.path / name, f"the run did not write it ({MANIFEST} does not list it)", fix)


def no_such_folder(path: Path) -> RunError:
    """The error for a folder that is not there."""
    return RunError(path, "there is no such run folder", "List the runs there are: workbench runs")


def _fix_of(folder: Path, name: str) -> str:
    """What to do about a file whose content cannot be used."""
    return f"Judge the run again: workbench judge {folder}" if name in _JUDGED_ANEW else RESTORE


# -- checksums ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sums:
    """What run.json says of the files beside it.

    own: SHA-256 of all before its checksums. intact: whether run.json is as it was sealed.
    """

    own: str
    files: Mapping[str, str]
    intact: bool


def _unfinished(manifest: Mapping[str, Any]) -> bytes:
    """run.json up to its checksums."""
    text = json.dumps(forms.plain(manifest), indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text.removesuffix('}').rstrip()},".encode()


def _joined(body: bytes, files: Mapping[str, str]) -> bytes:
    """The bytes of run.json: all before its checksums, and these checksums."""
    others = {file: files[file] for file in sorted(files) if file != MANIFEST}
    lines = ",\n".join(map(_line, [MANIFEST, *others], [_of_all(body, others), *others.values()]))
    return body + _MARK + f"\n{lines}\n }}\n}}\n".encode()


def _line(file: str, digest: str) -> str:
    return f"  {json.dumps(file)}: {json.dumps(digest)}"


def _of_all(body: bytes, others: Mapping[str, str]) -> str:
    """What run.json has under its own name."""
    return _sha256(body + "\n".join(map(_line, others.keys(), others.values())).encode())


@lru_cache(maxsize=4)
def _read_sums(content: bytes) -> _Sums | None:
    """The checksums in the bytes of run.json; None for a run from before there were any."""
    body, mark, rest = content.rpartition(_MARK)
    if not mark:
        return _Sums(_sha256(content), {}, intact=False) if _TRACE.search(content) else None
    try:
        files = json.loads(b"{" + rest.strip().removesuffix(b"}"))
    except (ValueError, RecursionError):
        files = None
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        return _Sums(_sha256(body), {}, intact=False)
    listed = {file: digest for file, digest in files.items() if file != MANIFEST}
    intact = files.get(MANIFEST) == _of_all(body, listed) and all(map(_inside, files))
    return _Sums(_sha256(body), listed, intact)


def _inside(file: str) -> bool:
    return not file.startswith("/") and ".." not in file.split("/")


def _sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
