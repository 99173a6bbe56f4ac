"""A run on disk: one folder that a killed run leaves readable.

While a run goes on, every finished round is one line of `samples.jsonl`; a line that was cut off by `kill -9` is
the only thing that can be lost. `finish()` turns the journal into `samples.parquet` and removes it. Everything
else (`run.json`, `verdicts.json`, ...) is replaced whole, by a rename, so that a reader never sees half a file.

When a run has ended, `seal` puts the SHA-256 of each file into run.json (see `sums`). From then on every file is
read as a whole, and one that is not what the run wrote is a `ChangedFile`; runs from before there were checksums have
none and are read without.

Reading trusts nothing: whatever is missing, cut off or foreign is a `RunError` that names the file, what is wrong
with it and what to do; the forms of the JSON files stand in `schema` and `pass_schema`. Nothing here unpickles, and
nothing here imports torch.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import reprlib
import secrets
import warnings
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from ..machine.environment import one_line
from ..machine.locks import LOCK, Lock, Taken
from . import forms, pass_schema, schema, sums

FORMAT = 1
"""Version of the run folder. A reader refuses any other."""

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
STACKS = "profiles/**/*.folded"

JSON_FILES = (
    CLAIMS, VERDICTS, STANDINGS, PROFILES, MEMORY, FINDINGS, PHASE_FACTS, LOADING, MEMORY_SWEEP, ROOFLINE,
)  # fmt: skip
DATA_FILES = (*JSON_FILES, PHASES, SAMPLES)
"""What may lie beside run.json in a run that has ended, but for the stacks of its profiles."""

JUDGED = (MANIFEST, CLAIMS, SAMPLES, JOURNAL, PHASES, LOADING, ROOFLINE, FINDINGS)
"""What verdicts are computed from."""

SCHEMA = pa.schema(
    [
        pa.field("workload", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("variant", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("process", pa.int32(), nullable=False),
        pa.field("round", pa.int32(), nullable=False),
        pa.field("sub_round", pa.int16(), nullable=False),
        pa.field("position", pa.int16(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("repeats", pa.int32(), nullable=False),
        pa.field("cpu_ns", pa.int64(), nullable=False),
        pa.field("wall_ns", pa.int64(), nullable=False),
        pa.field("faults", pa.int32(), nullable=False),
        pa.field("first_cpu_ns", pa.int64(), nullable=False),
        pa.field("first_wall_ns", pa.int64(), nullable=False),
        pa.field("device_ns", pa.int64(), nullable=False),
        pa.field("first_device_ns", pa.int64(), nullable=False),
    ]
)
"""One row is one timed sample; `cpu_ns` and `wall_ns` are totals over its `repeats` calls.

`first_cpu_ns` and `first_wall_ns` are the part of it until the first token of a generation was there; 0 where nothing
is generated. `device_ns` and `first_device_ns` are the same by the clock of a device that is not the CPU; 0 where there
is none. Files of older runs lack these columns."""

PHASE_SCHEMA = pa.schema(
    [
        pa.field("workload", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("variant", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("process", pa.int32(), nullable=False),
        pa.field("round", pa.int32(), nullable=False),
        pa.field("call", pa.int32(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("phase", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("ns", pa.int64(), nullable=False),
        pa.field("plain_ns", pa.int64(), nullable=False),
    ]
)
"""One row is one phase of one call; a call's rows sum to the call. `plain_ns`: a call without readings, same round."""

NO_SAMPLES = SCHEMA.empty_table().to_pandas()
"""What a run without rounds has: claims that are read off other passes need none."""

_SAMPLE_FIELDS = ("variant", "sub_round", "position", "tokens", "repeats", "cpu_ns", "wall_ns", "faults")
_FIRST_FIELDS = ("first_cpu_ns", "first_wall_ns")  # at the end of a row, or not there
_DEVICE_FIELDS = ("device_ns", "first_device_ns")  # after those, or not there
_LATER_FIELDS = (*_FIRST_FIELDS, *_DEVICE_FIELDS)
_ALL_FIELDS = (*_SAMPLE_FIELDS, *_LATER_FIELDS)
_ROUND = ["workload", "process", "round"]
_LINE_KEYS = {*_ROUND, "samples", "crc"}
_KEY = [*_ROUND, "sub_round", "variant"]
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RoundRecord(TypedDict):
    """One finished round: `samples` holds [variant, sub_round, position, tokens, repeats, cpu_ns, wall_ns, faults].

    Rows of a generation go on with first_cpu_ns, first_wall_ns; those of a device that is not the CPU with these (0
    where nothing is generated) and device_ns, first_device_ns.
    """

    workload: str
    process: int
    round: int
    samples: Sequence[Sequence[Any]]


class RunError(Exception):
    """A run folder cannot be read or written. The message names the file, what is wrong, and the fix."""

    def __init__(self, path: Path, problem: str, fix: str) -> None:
        self.path = path
        self.problem = problem
        self.fix = fix
        super().__init__(f"{path}: {problem}. {fix}")

    @property
    def brief(self) -> str:
        """The file and the problem, for where many runs are listed."""
        return f"{self.path.name}: {self.problem}"


class ChangedFile(RunError):
    """A file of a finished run is not what the run wrote, by the checksums in its run.json."""

    @property
    def brief(self) -> str:
        """The same with the fix: nothing else than this line can be known of such a file."""
        return f"{self.path.name}: {self.problem}. {self.fix}"


class RunWarning(UserWarning):
    """Something about a run folder was put right on the way, and the reader should know."""


@dataclass(frozen=True)
class RunSummary:
    """What a folder is, for a list of runs. `problem` is None where it can be read as a run.

    verdicts: how many there are of each word. claims: (claim, part, verdict), a part that has no name as "", and in
    place of the part of an "ad-hoc" comparison what was compared. machine: CPU, cores, threads and versions in one
    line; commit: of the workbench that measured; noise: what its controls showed, in one line.
    """

    path: Path
    id: str
    status: str
    mode: str
    started: str
    workloads: tuple[str, ...] = ()
    verdicts: Mapping[str, int] = field(default_factory=dict)
    problem: str | None = None
    claims: tuple[tuple[str, str, str], ...] = ()
    machine: str = ""
    commit: str = ""
    noise: str = ""


@dataclass(frozen=True)
class RunFolder:
    """One run on disk. Making the value touches nothing; `create` makes the folder."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    # -- making one ----------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, path: Path | str | None = None, *, under: Path | str = Path("results"), lock: Lock | None = None
    ) -> RunFolder:
        """Make an empty run folder: `path`, or `<under>/runs/<UTC time>-<4 hex digits>`.

        A run that already lies at `path` is moved aside to `<path>.earlier-<n>` (with a RunWarning), never mixed with
        the new one and never deleted. To go on with an earlier run use `RunFolder(path)`. Any other folder with
        something in it is refused, and so is one that another run has locked. With `lock` this run holds it from here
        on.
        """
        held = lock or Lock()
        if path is None:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            folder = Path(under) / "runs" / f"{stamp}-{secrets.token_hex(2)}"
        else:
            folder = Path(path)
        try:
            if folder.exists() and not folder.is_dir():
                raise RunError(folder, "this is a file, and a run needs a folder", "Name another path.")
            if folder.is_dir() and not _is_bare(folder) and not cls(folder).looks_like_a_run():
                raise RunError(
                    folder,
                    "the folder is not empty and holds no run",
                    "Name a new or empty folder, so that nothing of yours is overwritten.",
                )
            folder.mkdir(parents=True, exist_ok=True)
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
            raise RunError(
                folder,
                f"another run, process {error.pid or '?'}, is writing to this folder",
                f"Wait for it, end it (kill {error.pid or 'PID'}), or name another folder (--run-dir).",
            ) from error
        except OSError as error:
            raise RunError(folder, f"cannot make the run folder ({error.strerror})", _fix_for(error)) from error
        return cls(folder)

    def looks_like_a_run(self) -> bool:
        """True where a manifest, claims or samples lie in the folder (readable or not)."""
        return any((self.path / name).is_file() for name in (MANIFEST, CLAIMS, JOURNAL, SAMPLES))

    # -- writing -------------------------------------------------------------------------------------------------

    def append_round(self, record: RoundRecord) -> None:
        """Add one finished round to the journal: one line, handed to the kernel before this returns.

        On a full disk the part of the line that fitted is taken back, so that the journal stays whole.
        """
        text = json.dumps(_checked(record), separators=(",", ":"), allow_nan=False).encode()
        line = text[:-1] + _crc(text) + b"\n"
        path = self.path / JOURNAL
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                end = _end_of_last_line(descriptor)
                try:
                    _write_at(descriptor, line, end)
                except OSError:
                    os.ftruncate(descriptor, end)
                    raise
                # Only now: a half line that a killed run left behind may have been longer than the new line.
                os.ftruncate(descriptor, end + len(line))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise RunError(
                path,
                f"cannot append a round ({error.strerror}); the rounds before it are safe",
                _fix_for(error),
            ) from error

    def snapshot(self) -> None:
        """Write everything sampled so far to samples.parquet and keep the journal."""
        self._write_parquet(self._read_table())

    def finish(self) -> None:
        """Write samples.parquet, and only when it is on disk remove the journal."""
        if not (self.path / JOURNAL).exists() and (self.path / SAMPLES).exists():
            return  # finished before
        self.snapshot()
        (self.path / JOURNAL).unlink(missing_ok=True)

    def write_phases(self, rows: Sequence[Sequence[Any]]) -> None:
        """Replace phases.parquet whole; a row has the columns of PHASE_SCHEMA."""
        names = PHASE_SCHEMA.names
        columns = zip(*rows, strict=True) if rows else ([] for _ in names)
        table = pa.table(
            [_column(list(values), field.type) for values, field in zip(columns, PHASE_SCHEMA, strict=True)],
            schema=PHASE_SCHEMA,
        )
        self._replace(PHASES, lambda temporary: _write_table(table, temporary))

    def write_json(self, name: str, value: Any) -> None:
        """Replace `name` (a plain file name such as "verdicts.json") whole.

        Infinite and NaN floats become null: JSON has no word for them, and an interval that is still unbounded is
        an ordinary thing to write.
        """
        if Path(name).name != name or not name.endswith(".json"):
            raise ValueError(f"{name!r} is not a plain name ending in .json")
        text = json.dumps(_finite(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        self._replace(name, lambda temporary: temporary.write_bytes(text.encode()))

    def seal(self, manifest: Mapping[str, Any]) -> None:
        """Write run.json with the checksums of all data files as they lie here: the run has ended."""
        found = self._sums_of(self._data_files())
        content = sums.sealed(_finite(manifest), found, MANIFEST)
        self._replace(MANIFEST, lambda temporary: temporary.write_bytes(content))

    def renew(self, *names: str) -> None:
        """Put the checksums of these files, which were just written anew, into run.json; without any it stays as it is.

        Whoever is killed between the two leaves a file that does not fit its checksum: its reader says how to write
        it anew.
        """
        content = sums.renewed(self._bytes(MANIFEST), self._sums_of(names), MANIFEST)
        if content is not None:
            self._replace(MANIFEST, lambda temporary: temporary.write_bytes(content))

    def _data_files(self) -> list[str]:
        stacks = (path.relative_to(self.path).as_posix() for path in self.path.glob(STACKS) if not path.is_symlink())
        return [*DATA_FILES, *sorted(stacks)]

    def _sums_of(self, names: Iterable[str]) -> dict[str, str]:
        try:
            return sums.of_files(self.path, names)
        except OSError as error:
            raise RunError(self.path, f"cannot be read ({error.strerror})", _fix_for(error)) from error

    # -- reading -------------------------------------------------------------------------------------------------

    def read_samples(self, variants: Collection[str] | None = None) -> pd.DataFrame:
        """All samples, columns as SCHEMA (`workload` and `variant` categorical), in the order they were taken.

        With `variants` only theirs, which of a long run is a small part and as much faster. Where a journal exists,
        its rounds win over the same rounds in samples.parquet.
        """
        return self._read_table(variants).to_pandas()

    def timed(self) -> dict[str, tuple[str, ...]]:
        """Workload → variants that have samples, both in alphabetical order. Reads two columns and no more."""
        found: dict[str, set[str]] = {}
        for row in self._distinct(["workload", "variant"]):
            found.setdefault(str(row["workload"]), set()).add(str(row["variant"]))
        return {workload: tuple(sorted(found[workload])) for workload in sorted(found)}

    def finished_rounds(self) -> dict[str, int]:
        """Workload → how many rounds lie here. This and not the manifest of a killed run knows: that is older.

        Empty where there are no samples at all; raises RunError where there are some that cannot be read.
        """
        if not self._has(JOURNAL) and not self._has(SAMPLES):
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # who reads the samples themselves is told
            return dict(Counter(str(row["workload"]) for row in self._distinct(_ROUND)))

    def read_manifest(self) -> dict[str, Any]:
        """run.json. Raises RunError if it is missing, not JSON, written in another format, or not as it was sealed."""
        manifest: dict[str, Any] = self._read_json(MANIFEST)
        if not isinstance(manifest, dict):
            raise RunError(self.path / MANIFEST, "not an object", _FIX)
        found = manifest.get("format")
        if found != FORMAT or isinstance(found, bool):
            raise RunError(
                self.path / MANIFEST,
                f"format {reprlib.repr(found)}, and this workbench reads format {FORMAT}",
                "Read it with the version of the workbench that wrote it, or measure again.",
            )
        self._check_form(MANIFEST, schema.MANIFEST, manifest)
        return manifest

    def read_claims(self) -> list[dict[str, Any]]:
        """claims.json: the claims as they stood when the run was made."""
        return self._read_records(CLAIMS, schema.CLAIMS)

    def read_verdicts(self) -> list[dict[str, Any]]:
        """verdicts.json, in the form of `Verdict.to_json`."""
        return self._read_records(VERDICTS, schema.VERDICTS)

    def read_standings(self) -> dict[str, Any]:
        """standings.json (see harness/report/standings.py)."""
        standings: dict[str, Any] = self._read_json(STANDINGS)
        self._check_form(STANDINGS, schema.STANDINGS, standings)
        return standings

    def read_profiles(self) -> list[dict[str, Any]]:
        """profiles.json; an empty list where the run made no profiles."""
        return self._records_if_any(PROFILES, pass_schema.PROFILES)

    def read_stacks(self, name: str, largest_bytes: int) -> str:
        """The text of a profile, by its name in profiles.json.

        Raises ValueError where that leads out of the folder, or where the file is larger, and OSError.
        """
        path = (self.path / name).resolve()
        if not path.is_relative_to(self.path.resolve()):
            raise ValueError("the path leads out of the run folder")
        if path.stat().st_size > largest_bytes:
            raise ValueError(f"larger than {largest_bytes >> 20} MiB")
        content = path.read_bytes()
        self._check_sum(path.relative_to(self.path.resolve()).as_posix(), content)
        return content.decode("utf-8")

    def read_memory(self) -> list[dict[str, Any]]:
        """memory.json; an empty list where the run made no memory pass."""
        return self._records_if_any(MEMORY, pass_schema.MEMORY)

    def read_memory_sweep(self) -> list[dict[str, Any]]:
        """memory_sweep.json (see harness/metrics/memory/memory.py); an empty list where the run swept no memory."""
        return self._records_if_any(MEMORY_SWEEP, pass_schema.MEMORY_SWEEP)

    def read_findings(self) -> list[dict[str, Any]]:
        """What the passes found out, one record a value; empty where the run had none."""
        return self._records_if_any(FINDINGS, pass_schema.FINDINGS)

    def read_phases(self) -> pd.DataFrame:
        """phases.parquet, columns as PHASE_SCHEMA; an empty table where the run made no phase pass."""
        path = self.path / PHASES
        if not self._has(PHASES):
            return PHASE_SCHEMA.empty_table().to_pandas()
        frame: pd.DataFrame = _read_parquet(path, PHASE_SCHEMA, source=self._source(PHASES)).to_pandas()
        if (frame["ns"] < 0).any() or (frame["plain_ns"] <= 0).any():
            raise RunError(path, "holds a phase or a call with no time", _FIX_PARQUET)
        if frame.duplicated([name for name in PHASE_SCHEMA.names if name not in ("ns", "plain_ns")]).any():
            raise RunError(path, "holds a phase of a call twice", _FIX_PARQUET)
        return frame

    def read_phase_facts(self) -> list[dict[str, Any]]:
        """phases.json: what the phase pass says of each workload and variant; empty where the run made none."""
        return self._records_if_any(PHASE_FACTS, pass_schema.PHASE_FACTS)

    def read_loading(self) -> list[dict[str, Any]]:
        """loading.json; an empty list where the run made no loading pass."""
        return self._records_if_any(LOADING, pass_schema.LOADING)

    def read_roofline(self) -> list[dict[str, Any]]:
        """roofline.json (see harness/metrics/roofline); an empty list where the run made no roofline pass."""
        return self._records_if_any(ROOFLINE, pass_schema.ROOFLINE)

    def digest(self) -> dict[str, str]:
        """SHA-256 of the manifest and the samples as they lie here, by file: the same where nothing was added since.

        Of a sealed manifest all but the checksums, which change when the run is judged again. Raises RunError.
        """
        found = self._sums_of((MANIFEST, JOURNAL, SAMPLES))
        known = self._sums()
        return found | ({MANIFEST: known.own} if known else {})

    def changed(self, besides: Collection[str] = ()) -> list[ChangedFile]:
        """The files of this run that are not what it wrote; none where it has no checksums. Reads all but `besides`.

        Raises RunError where a file cannot be read at all.
        """
        known = self._sums()
        if known is None:
            return []
        if not known.intact:
            return [_changed(self.path, MANIFEST)]
        # What run.json does not list has only its name told: nothing has to be read for that.
        names = [name for name in dict.fromkeys([*known.files, *self._data_files(), JOURNAL]) if name not in besides]
        now = self._sums_of(name for name in names if name in known.files)
        problems = [_why_changed(known, name, now.get(name), (self.path / name).is_file()) for name in names]
        return [_changed(self.path, name, why) for name, why in zip(names, problems, strict=True) if why]

    def describe(self, *, whole: bool = False) -> RunSummary:
        """What this folder is. Never raises for what lies in it: damage and foreign files go into `problem`.

        Checked is what the summary is made of; with `whole` every file that has a checksum, which takes reading it.
        """
        name = self.path.name
        try:
            is_run = self.looks_like_a_run()
        except OSError as error:
            return RunSummary(self.path, name, "not a run", "", "", problem=f"cannot be read ({error.strerror})")
        if not is_run:
            return RunSummary(self.path, name, "not a run", "", "", problem="no run.json and no samples")
        try:
            manifest = self.read_manifest()
        except RunError as error:
            return RunSummary(self.path, name, "damaged", "", "", problem=error.brief)
        workloads = tuple(str(item["workload"].get("name", "?")) for item in manifest.get("experiments", []))
        claims: list[tuple[str, str, str]] = []
        problem: str | None = None
        try:
            if self._has(VERDICTS):
                claims = [(str(each["claim"]), _part_text(each), str(each["verdict"])) for each in self.read_verdicts()]
            changed = self.changed() if whole else []
            problem = "; ".join(error.brief for error in changed) or None
            self._check_samples()
        except RunError as error:
            problem = problem or error.brief
        environment = manifest.get("environment") or {}
        commit = environment.get("commit")
        return RunSummary(
            path=self.path,
            id=str(manifest.get("id", name)),
            status=str(manifest.get("status", "?")) if problem is None else "damaged",
            mode=str(manifest.get("mode", "")),
            started=str(manifest.get("started") or ""),
            workloads=workloads,
            verdicts=Counter(verdict for _, _, verdict in claims),
            problem=problem,
            claims=tuple(claims),
            machine=one_line(environment) if environment else "",
            commit=_commit_text(commit) if isinstance(commit, dict) else "",
            noise=str((manifest.get("noise") or {}).get("line") or ""),
        )

    # -- below: one reader for each kind of file -----------------------------------------------------------------

    def _bytes(self, name: str) -> bytes:
        path = self.path / name
        try:
            return path.read_bytes()
        except FileNotFoundError as error:
            if not self.path.is_dir():
                raise RunError(
                    self.path, "there is no such run folder", "List the runs there are: workbench runs"
                ) from error
            raise RunError(path, "missing", _fix_for_missing(name, self.path)) from error
        except OSError as error:
            raise RunError(path, f"cannot be read ({error.strerror})", _fix_for(error)) from error

    def _sums(self) -> sums.Sums | None:
        """The checksums in run.json; None where there are none."""
        path = self.path / MANIFEST
        return sums.read(self._bytes(MANIFEST), MANIFEST) if path.exists() else None

    def _check_sum(self, name: str, content: bytes | None) -> None:
        """Raise ChangedFile where this is not the content (None: no file) that run.json says of a file."""
        known = self._sums()
        if known is None:
            return
        if not known.intact:
            raise _changed(self.path, MANIFEST)
        found = None if content is None or name not in known.files else sums.of(content)
        if why := _why_changed(known, name, found, content is not None):
            raise _changed(self.path, name, why)

    def _has(self, name: str) -> bool:
        """Whether there is such a file. Raises ChangedFile where the run wrote one and it is gone, or the reverse."""
        there = (self.path / name).exists()
        known = self._sums()
        if known is not None and known.intact and there != (name in known.files):
            raise _changed(self.path, name, _why_changed(known, name, None, there) or _CHANGED)
        return there

    def _source(self, name: str) -> Path | pa.BufferReader:
        """A Parquet file to open: where it has a checksum its content, which then was checked, else its path."""
        if self._sums() is None:
            return self.path / name
        content = self._bytes(name)
        self._check_sum(name, content)
        return pa.BufferReader(content)

    def _read_json(self, name: str) -> Any:
        path, content, fix = self.path / name, self._bytes(name), _fix_of(self.path, name)
        own = sums.read(content, MANIFEST) if name == MANIFEST else None
        if name != MANIFEST:
            self._check_sum(name, content)
        try:
            value = forms.parse(content.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise RunError(path, "not UTF-8 text", fix) from error
        except forms.OutOfRange as error:
            raise RunError(path, str(error), fix) from error
        except (ValueError, RecursionError) as error:
            where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ", or nested too deeply"
            raise RunError(path, f"not JSON{where}", fix) from error
        if own is not None and not own.intact:
            raise _changed(self.path, MANIFEST)
        return value

    def _check_form(self, name: str, form: TypeAdapter[Any], value: Any) -> None:
        if problem := forms.fault(form, value):
            raise RunError(self.path / name, problem, _fix_of(self.path, name))

    def _records_if_any(self, name: str, form: TypeAdapter[Any]) -> list[dict[str, Any]]:
        return self._read_records(name, form) if self._has(name) else []

    def _read_records(self, name: str, form: TypeAdapter[Any]) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = self._read_json(name)
        if not isinstance(records, list):
            raise RunError(self.path / name, "not a list", _FIX)
        if not all(isinstance(record, dict) for record in records):
            raise RunError(self.path / name, "not a list of objects", _FIX)
        self._check_form(name, form, records)
        return records

    def _check_samples(self) -> None:
        """Raise RunError where the samples cannot be opened. Cheap: reads no rows of a Parquet file."""
        if not self._has(JOURNAL) and self._has(SAMPLES):
            _open_parquet(self.path / SAMPLES).close()

    def _distinct(self, names: list[str]) -> list[dict[str, Any]]:
        """What these columns of the samples hold, each row once; no more than they is read of a finished run."""
        if self._has(JOURNAL) or not self._has(SAMPLES):
            table = self._read_table().select(names)
        else:
            path = self.path / SAMPLES
            file = _open_parquet(path, source=self._source(SAMPLES))
            try:
                table = file.read(columns=names)
            except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
                raise RunError(path, f"damaged ({_first_line(error)})", _FIX_PARQUET) from error
            finally:
                file.close()
        rows: list[dict[str, Any]] = table.group_by(names).aggregate([]).to_pylist()
        return rows

    def _read_table(self, variants: Collection[str] | None = None) -> pa.Table:
        journal, parquet = self.path / JOURNAL, self.path / SAMPLES
        has_journal, has_parquet = self._has(JOURNAL), self._has(SAMPLES)
        if not has_journal and not has_parquet:
            if not self.path.is_dir():
                raise RunError(self.path, "there is no such run folder", "List the runs there are: workbench runs")
            raise RunError(
                self.path, f"holds no samples ({SAMPLES} or {JOURNAL})", "No round was finished: measure again."
            )
        if not has_journal:
            return _checked_table(_read_parquet(parquet, variants=variants, source=self._source(SAMPLES)), parquet)
        return _of(variants, self._with_journal(journal, parquet if has_parquet else None))

    def _with_journal(self, journal: Path, parquet: Path | None) -> pa.Table:
        """The samples of a run that goes on, or was killed."""
        fresh, is_whole = _read_journal(journal)
        fresh = _checked_table(fresh, journal)
        merged = fresh if parquet is None else _merged(fresh, parquet)
        if is_whole:
            self._tell_lost_rounds(merged)
        return merged

    def _tell_lost_rounds(self, table: pa.Table) -> None:
        """Warn where run.json, which is written after the samples, has seen more rounds than there are."""
        try:
            experiments = self.read_manifest().get("experiments", ())
        except RunError:
            return
        have = Counter(workload for workload, _, _ in _rounds(table))
        for experiment in experiments:
            name, rounds = experiment["workload"]["name"], experiment.get("rounds")
            if isinstance(rounds, int) and rounds > have[name]:
                warnings.warn(
                    f"{self.path / JOURNAL}: {have[name]} rounds of {name}, and {MANIFEST} counted {rounds}: "
                    "some were lost. Restore the file from a copy, or go on with what is left.",
                    RunWarning,
                    stacklevel=4,
                )

    def _write_parquet(self, table: pa.Table) -> None:
        def write(temporary: Path) -> None:
            _write_table(table.replace_schema_metadata({"llama_workbench.format": str(FORMAT)}), temporary)

        self._replace(SAMPLES, write)

    def _replace(self, name: str, write: Any) -> None:
        path = self.path / name
        temporary = self.path / f".{name}.{os.getpid()}.tmp"
        try:
            write(temporary)
            with temporary.open("rb") as handle:
                os.fsync(handle.fileno())  # a full disk may show only here, and must show before the rename
            os.replace(temporary, path)
        except OSError as error:
            kept = "; the earlier file is untouched" if path.exists() else ""
            reason = error.strerror or str(error)
            raise RunError(path, f"cannot be written ({reason}){kept}", _fix_for(error)) from error
        finally:
            temporary.unlink(missing_ok=True)  # still there only where the writing failed or was interrupted


def list_runs(folder: Path | str) -> list[RunFolder]:
    """Every folder inside `folder`, newest run first (by the manifest's start, else by the folder's own time).

    Damaged and foreign folders are in the list too: `describe` says what is wrong with each. A missing `folder` has
    no runs.
    """
    return sorted(run_folders(folder), key=lambda run: (_started(run), run.path.name), reverse=True)


def run_folders(folder: Path | str) -> list[RunFolder]:
    """The same in no order, and without reading any of them."""
    root = Path(folder)
    if not root.is_dir():
        return []
    try:
        with os.scandir(root) as found:
            return [RunFolder(root / each.name) for each in found if not each.name.startswith(".") and each.is_dir()]
    except OSError as error:
        raise RunError(root, f"cannot be read ({error.strerror})", _fix_for(error)) from error


def _started(run: RunFolder) -> float:
    try:
        return datetime.fromisoformat(run.read_manifest()["started"]).timestamp()
    except (RunError, KeyError, TypeError, ValueError):
        return run.path.stat().st_mtime


def _part_text(verdict: Mapping[str, Any]) -> str:
    """The part of a claim; of a mere question, all of which have one name, which question it is."""
    asked = verdict.get("title") if verdict["claim"] == "ad-hoc" else None
    return str(verdict.get("part") or asked or "")


def _commit_text(commit: Mapping[str, Any]) -> str:
    """A commit as people write it: ten digits, and whether the files differed from it."""
    return f"{str(commit.get('id') or '')[:10]}{' with changes' if commit.get('dirty') else ''}"


_LEFT_BEHIND = re.compile(rf"{re.escape(LOCK)}|\.[a-z_]+\.\w+\.\d+\.tmp")


def _is_bare(folder: Path) -> bool:
    """Whether nothing lies in it but what a run leaves that was killed before it wrote anything."""
    return all(_LEFT_BEHIND.fullmatch(entry.name) for entry in folder.iterdir())


def _free_name(folder: Path) -> Path:
    number = 1
    while (candidate := folder.resolve().with_name(f"{folder.resolve().name}.earlier-{number}")).exists():
        number += 1
    return candidate


def _fix_for(error: OSError) -> str:
    if error.errno in _NO_SPACE:
        return "Free some space there, or name a folder on another disk (--run-dir)."
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return "Name a folder that you may write to (--run-dir)."
    return "Check the folder, or name another one (--run-dir)."


def _fix_for_missing(name: str, folder: Path) -> str:
    if name == VERDICTS:
        return f"Judge the run: workbench judge {folder}"
    return "Is this the folder of a run? List the runs there are: workbench runs"


_FIX = "Restore the file from a copy, or measure again."
_CHANGED = "its content is not what the run wrote"


def _why_changed(known: sums.Sums, name: str, found: str | None, there: bool) -> str | None:
    """Why a file is not what the run wrote, by its checksum now; None where it is, or where neither knows of it."""
    if name not in known.files:
        return f"the run did not write it ({MANIFEST} does not list it)" if there else None
    if not there:
        return "missing, and the run wrote it"
    return None if found == known.files[name] else _CHANGED


def _changed(folder: Path, name: str, why: str = _CHANGED) -> ChangedFile:
    if name not in (VERDICTS, STANDINGS) and why.startswith("the run did not"):
        return ChangedFile(folder / name, why, "Move it out of the folder, or measure again.")
    return ChangedFile(folder / name, why, _fix_of(folder, name))


def _fix_of(folder: Path, name: str) -> str:
    """What to do about a file whose content cannot be used."""
    return f"Judge the run again: workbench judge {folder}" if name in (VERDICTS, STANDINGS) else _FIX


def _write_table(table: pa.Table, path: Path) -> None:
    """With a checksum of each page, so that a snapshot of a run that still goes on tells most of its damage itself."""
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a numpy scalar
        return _finite(value.item())
    return value


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of `data` (a write to a nearly full disk may take only a part and say so by its count)."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _end_of_last_line(descriptor: int) -> int:
    """Offset just behind the last newline: what lies beyond it is a line that a killed run did not finish."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - 65536)
        block = os.pread(descriptor, end - start, start)
        newline = block.rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _checked(record: RoundRecord) -> dict[str, Any]:
    """The record in plain types. Raises ValueError for what could not be read back."""
    checked = {
        "workload": record["workload"],
        "process": int(record["process"]),
        "round": int(record["round"]),
        "samples": [[row[0], *(int(number) for number in row[1:])] for row in record["samples"]],
    }
    problem = _record_problem(checked)
    if problem:
        raise ValueError(f"not a round: {problem}")
    return checked


def _record_problem(record: Any) -> str | None:
    if not isinstance(record, dict):
        return "not an object"
    if unknown := record.keys() - _LINE_KEYS:
        return f"unknown key {forms.shown(sorted(unknown)[0])}"
    if not isinstance(record.get("workload"), str):
        return '"workload" is not a name'
    for key in ("process", "round"):
        if type(record.get(key)) is not int:
            return f'"{key}" is not a whole number'
    samples = record.get("samples")
    if not isinstance(samples, list):
        return '"samples" is not a list'
    lengths = (len(_SAMPLE_FIELDS), len(_SAMPLE_FIELDS) + len(_FIRST_FIELDS), len(_ALL_FIELDS))
    if not all(isinstance(row, list) and len(row) in lengths for row in samples):
        return f"a sample is not [{', '.join(_SAMPLE_FIELDS)}] (and {', '.join(_LATER_FIELDS)})"
    if len(set(map(len, samples))) > 1:
        return "some samples have a first token and others do not"
    # By columns, because a journal of a long run has a million numbers.
    for name, column in zip(_ALL_FIELDS, zip(*samples, strict=True), strict=False):
        wanted, word = (str, "a name") if name == "variant" else (int, "a whole number")
        if any(kind is not wanted for kind in set(map(type, column))):
            return f"a sample has a {name} that is not {word}"
    return None


def _merged(fresh: pa.Table, parquet: Path) -> pa.Table:
    """The rounds of a journal, and those that an earlier Parquet file has beside them."""
    try:
        earlier = _checked_table(_read_parquet(parquet), parquet)
    except RunError as error:
        warnings.warn(f"{error}; its journal {JOURNAL} was read instead", RunWarning, stacklevel=5)
        return fresh
    if not fresh.num_rows:
        return earlier
    # Rounds that the journal also has are dropped from the older file. Mostly that is all of them: the file is a
    # snapshot of the same journal. Only where a finished run was taken up again are there others.
    known = _rounds(fresh)
    others = _rounds(earlier) - known
    if not others:
        return fresh
    keep = [key in others for key in zip(*(earlier.column(name).to_pylist() for name in _ROUND), strict=True)]
    merged = pa.concat_tables([earlier.filter(pa.array(keep, pa.bool_())), fresh])
    return merged.unify_dictionaries().combine_chunks()


def _read_journal(path: Path) -> tuple[pa.Table, bool]:
    """Its rounds, and whether its last line is whole."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(path, f"cannot be read ({error.strerror})", _fix_for(error)) from error
    lines = data.split(b"\n")
    rest = lines.pop()
    if rest:
        warnings.warn(f"{path}: the last line was cut off and is left out", RunWarning, stacklevel=4)
    has_crc = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            problem = _record_problem(record) or _crc_problem(line, record, has_crc)
            has_crc = has_crc or "crc" in record
        except (ValueError, RecursionError):
            problem = "not JSON"
        if problem:
            raise RunError(
                path,
                f"line {number} is damaged ({problem})",
                f"Delete line {number}: each line is one round of its own.",
            )
        count = len(record["samples"])
        for name in _ROUND:
            columns[name] += [record[name]] * count
        for name, column in zip(_ALL_FIELDS, zip(*record["samples"], strict=True), strict=False):
            columns[name] += column
        for name in _LATER_FIELDS:
            columns[name] += [0] * (len(columns["variant"]) - len(columns[name]))
    try:
        return pa.table(
            [_column(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names],
            schema=SCHEMA,
        ), not rest
    except (pa.ArrowInvalid, OverflowError) as error:
        raise RunError(path, f"a number is out of range ({error})", "Measure again.") from error


def _crc(text: bytes) -> bytes:
    """The end of a journal's line, in place of the last brace of `text`: a digit that changed is told."""
    return b',"crc":"%08x"}' % zlib.crc32(text)


def _crc_problem(line: bytes, record: Mapping[str, Any], needed: bool) -> str | None:
    """What is wrong with the check of a line; lines of older runs have none."""
    if "crc" not in record:
        return "its checksum is missing" if needed else None
    end = len(_crc(b""))
    return None if line[-end:] == _crc(line[:-end] + b"}") else "its checksum does not fit"


def _rounds(table: pa.Table) -> set[tuple[str, int, int]]:
    """The rounds that have samples here, as (workload, process, round)."""
    frame = table.select(_ROUND).to_pandas().drop_duplicates()
    return set(zip(*(frame[name].tolist() for name in _ROUND), strict=True))


def _column(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def _open_parquet(
    path: Path, schema: pa.Schema = SCHEMA, source: Path | pa.BufferReader | None = None
) -> pq.ParquetFile:
    """Open and check the columns; raises RunError. `source`: the content, where that was read already."""
    try:
        if path.stat().st_size == 0:
            raise RunError(path, "an empty file, not Parquet", _FIX_PARQUET)
        file = pq.ParquetFile(source or path, page_checksum_verification=True)
        have = file.schema_arrow.names
    except (pa.ArrowException, UnicodeDecodeError) as error:  # a name of a column may be no text
        raise RunError(path, f"not a whole Parquet file ({_first_line(error)})", _FIX_PARQUET) from error
    except OSError as error:
        raise RunError(path, f"cannot be read ({error.strerror or _first_line(error)})", _FIX_PARQUET) from error
    lacking = [name for name in schema.names if name not in have and name not in _LATER_FIELDS]
    if lacking:
        file.close()
        raise RunError(path, f"lacks the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}", _FIX_PARQUET)
    return file


_FIX_PARQUET = _FIX


def _of(variants: Collection[str] | None, table: pa.Table) -> pa.Table:
    """The rows of these variants; all where none are named."""
    if variants is None:
        return table
    return table.filter(pc.is_in(table.column("variant").cast(pa.string()), pa.array(sorted(variants), pa.string())))


def _read_parquet(
    path: Path,
    schema: pa.Schema = SCHEMA,
    variants: Collection[str] | None = None,
    source: Path | pa.BufferReader | None = None,
) -> pa.Table:
    file = _open_parquet(path, schema, source)
    try:
        table = _of(variants, file.read(columns=[name for name in schema.names if name in file.schema_arrow.names]))
        for name in schema.names:
            if name not in table.column_names:  # only columns that older runs lack are let through
                table = table.append_column(name, pa.array(np.zeros(table.num_rows, np.int64)))
        table = table.select(schema.names)
        columns = []
        for wanted in schema:
            column = table.column(wanted.name)
            if column.null_count:
                raise RunError(path, f"column {wanted.name} has empty cells", _FIX_PARQUET)
            if pa.types.is_dictionary(wanted.type):
                plain = column.cast(pa.string())
                columns.append(plain.combine_chunks().dictionary_encode().cast(wanted.type))
            elif not pa.types.is_integer(column.type):
                raise RunError(path, f"column {wanted.name} is {column.type}, not {wanted.type}", _FIX_PARQUET)
            else:
                columns.append(column.cast(wanted.type).combine_chunks())
        return pa.table(columns, schema=schema)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise RunError(path, f"damaged ({_first_line(error)})", _FIX_PARQUET) from error
    finally:
        file.close()


def _checked_table(table: pa.Table, path: Path) -> pa.Table:
    """Refuse what no run can have measured, before it becomes a logarithm of nothing."""
    frame = table.to_pandas()
    if (frame["repeats"] < 1).any() or (frame["wall_ns"] <= 0).any() or (frame["cpu_ns"] < 0).any():
        raise RunError(path, "holds a sample with no calls or no time", _FIX_PARQUET)
    if (frame["device_ns"] < 0).any():
        raise RunError(path, "holds a sample of less than no time", _FIX_PARQUET)
    for clock in ("cpu", "wall", "device"):
        if not frame[f"first_{clock}_ns"].between(0, frame[f"{clock}_ns"]).all():
            raise RunError(path, "holds a first token that came after the last, or before the start", _FIX_PARQUET)
    twice = frame.duplicated(_KEY)
    if twice.any():
        first = frame[twice].iloc[0]
        raise RunError(
            path,
            f"variant {first['variant']} occurs twice in workload {first['workload']}, process {first['process']}, "
            f"round {first['round']}, sub-round {first['sub_round']}",
            "Two runs may have written to one folder: measure again.",
        )
    return table


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
