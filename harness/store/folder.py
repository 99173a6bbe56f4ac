"""A run on disk: one folder that a killed run leaves readable.

The page on the file format lists all files and their fields. The journal grows by a line a round; every other file is
replaced whole, by a rename. Reading trusts nothing: a file that is missing, cut off or foreign raises a `RunError` that
names the file, the problem and what to do. Nothing here unpickles, and nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..machine.environment import one_line
from ..machine.lifeline import LOCK, Lock, Taken
from ..spec.comparison import EnteredName
from ..spec.sample import Round, Sample
from ..spec.table import Table
from ..spec.words import Word
from . import forms, tables
from .files import (
    CLAIMS,
    FORMS,
    JOURNAL,
    MANIFEST,
    RESTORE,
    SAMPLES,
    STANDINGS,
    SUMS,
    VERDICTS,
    ChangedFile,
    RunError,
    RunWarning,
    Sums,
    as_run_error,
    check_version,
    fix_for,
    fix_of,
    json_bytes,
    looks_like_a_run,
    no_such_folder,
    read_bytes,
    replace_whole,
)
from .forms import JsonFile, TableFile
from .schema import FORMAT, Manifest
from .verdict_schema import Verdict


@dataclass(frozen=True)
class RunFolder:
    """One run on disk. Making the value touches nothing; `create` makes the folder."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    @property
    def sums(self) -> Sums:
        """The checksums of its files."""
        return Sums(self.path)

    @classmethod
    def create(
        cls, path: Path | str | None = None, *, under: Path | str = Path("results"), lock: Lock | None = None
    ) -> RunFolder:
        """Make an empty run folder: `path`, or `<under>/runs/<UTC time>-<4 hex digits>`.

        A run that already lies at `path` is moved to `<path>.earlier-<n>` (with a RunWarning), never mixed with the new
        one and never deleted. To go on with an earlier run use `RunFolder(path)`. Any other folder with something in
        it is refused, and so is one that another run has locked. With `lock` this run holds it from here on.
        """
        return cls(made(path, under, lock))

    def hold(self, lock: Lock) -> None:
        """Take this folder, to go on with its run. Raises RunError where another run holds it."""
        if not self.path.is_dir():
            raise no_such_folder(self.path)
        try:
            with as_run_error(self.path, "cannot be written ({})"):
                lock.take(self.path)
        except Taken as error:
            raise taken(self.path, error) from error

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file whole; `value`: models of its form, or plain. With a run.json the run has not ended.

        Infinite and NaN floats become null: JSON has no word for them. Raises RunError.
        """
        if Path(name).name != name or not name.endswith(".json"):
            raise ValueError(f"{name!r} is not a plain name ending in .json")
        content = json_bytes(value)
        replace_whole(self.path, {name: lambda temporary: temporary.write_bytes(content)})
        if name == MANIFEST:
            with as_run_error(self.path, "cannot be written ({})"):
                (self.path / SUMS).unlink(missing_ok=True)

    def seal(self, manifest: Manifest | Mapping[str, Any]) -> None:
        """Write run.json and the checksums of all files as they lie here: the run has ended."""
        rest = {key: value for key, value in forms.plain(manifest).items() if key != "sealed"}
        self.sums.write(json_bytes({"sealed": True, **rest}))

    def renew(self, *names: str, **values: Any) -> None:
        """Write the checksums of these files, which were just written anew, and these values into run.json.

        A run whose run.json was changed stays as it is. Where a kill comes before, the reader of a file says how to
        write it anew.
        """
        content = read_bytes(self.path / MANIFEST)
        try:
            has_ended = self.sums.known() is not None
        except ChangedFile:
            return
        manifest = forms.parse(content) | values if values else None
        if has_ended:
            self.sums.write(json_bytes(manifest) if manifest else content, names)
        elif manifest:
            self.write_json(MANIFEST, manifest)

    def reopen(self, manifest: Manifest | Mapping[str, Any]) -> None:
        """Take off the seal: rounds are added from here on, and what was computed from those before is gone."""
        rest = {key: value for key, value in forms.plain(manifest).items() if key != "sealed"}
        self.write_json(MANIFEST, {**rest, "status": "running"})
        with as_run_error(self.path, "cannot be written ({})"):
            for name in (VERDICTS, STANDINGS):
                (self.path / name).unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        """Whether there is such a file. Raises ChangedFile where the run wrote one and it is gone, or the reverse."""
        there = (self.path / name).exists()
        self.sums.check_there(name, there)
        return there

    def digest(self) -> dict[str, str]:
        """SHA-256 of run.json and the samples as they lie here, by file: the same where nothing was added since.

        Of samples that were left at a URL it is that of the run's checksums. Raises RunError.
        """
        names, sums = (MANIFEST, JOURNAL, SAMPLES), self.sums.known() or {}
        return {name: sums[name] for name in names if name in sums} | self.sums.of(names)

    def changed(self, besides: Collection[str] = ()) -> list[ChangedFile]:
        """The files of this run that are not what it wrote (see `Sums.changed`)."""
        return self.sums.changed(besides)

    def looks_like_a_run(self) -> bool:
        """True where a manifest, claims or samples lie in the folder (readable or not)."""
        return looks_like_a_run(self.path)

    def append_round(self, record: Round) -> None:
        """Add one finished round to the journal (see `tables.append_to_journal`)."""
        tables.append_to_journal(self.path / JOURNAL, record)

    def snapshot(self) -> None:
        """Write everything sampled so far to samples.parquet and keep the journal."""
        table, facts = self.read_samples(), {"llama_workbench.format": str(FORMAT)}
        replace_whole(self.path, {SAMPLES: lambda temporary: tables.write_table(table, temporary, facts)})

    def finish(self) -> None:
        """Write samples.parquet, and only when it is on disk remove the journal."""
        if not (self.path / JOURNAL).exists() and (self.path / SAMPLES).exists():
            return  # finished before
        self.snapshot()
        (self.path / JOURNAL).unlink(missing_ok=True)

    def write_table(self, file: TableFile, rows: Sequence[Sequence[Any]]) -> None:
        """Replace a table of a pass whole."""
        table = tables.table_of(file.columns, rows)
        replace_whole(self.path, {file: lambda temporary: tables.write_table(table, temporary)})

    def read_samples(self, variants: Collection[str] | None = None) -> Table:
        """All samples, columns as tables.COLUMNS, in the order they were taken.

        With `variants` only theirs, which of a long run is a small part and as much faster. Where a journal exists,
        its rounds win over the same rounds in samples.parquet.
        """
        has_journal, has_parquet = self.has(JOURNAL), self.has(SAMPLES)
        if not has_journal:
            if has_parquet:
                return tables.read_samples(self._checked(SAMPLES), variants)
            if not self.path.is_dir():
                raise no_such_folder(self.path)
            problem = f"holds no samples ({SAMPLES} or {JOURNAL})"
            raise RunError(self.path, problem, "No round was finished: measure again.")
        table, is_whole = tables.read_journal(self.path / JOURNAL)
        if has_parquet:
            table = tables.merged(table, self.path / SAMPLES)
        if is_whole:
            with contextlib.suppress(RunError):
                counted = {each.workload.name: each.rounds for each in self.manifest().experiments}
                tables.warn_of_lost_rounds(self.path / JOURNAL, table, counted)
        return table if variants is None else table.take(table.names("variant").are(*variants))

    def rounds(self) -> Iterator[Round]:
        """All finished rounds, in the order they were taken."""
        if self.finished_rounds():
            rows = self.read_samples().select([*tables.ROUND, *Sample._fields]).rows()
            for (workload, process, number), group in itertools.groupby(rows, lambda row: row[:3]):
                yield Round(workload, process, number, tuple(Sample(*row[3:]) for row in group))

    def timed_together(self) -> dict[str, frozenset[tuple[str, ...]]]:
        """Workload → the groups of variants that shared a round, each in alphabetical order. Reads four columns."""
        groups: dict[tuple[Any, ...], set[str]] = {}
        for *key, variant in self._distinct([*tables.ROUND, "variant"]):
            groups.setdefault(tuple(key), set()).add(variant)
        by_workload: dict[str, set[tuple[str, ...]]] = {}
        for (workload, *_), names in groups.items():
            by_workload.setdefault(workload, set()).add(tuple(sorted(names)))
        return {workload: frozenset(shared) for workload, shared in by_workload.items()}

    def finished_rounds(self) -> dict[str, int]:
        """Workload → number of rounds here, which the manifest of a killed run does not know: it is older.

        Empty where there are no samples at all; raises RunError where there are some that cannot be read.
        """
        if not self.has(JOURNAL) and not self.has(SAMPLES):
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # the reader of the samples themselves is warned
            return dict(Counter(workload for workload, *_ in self._distinct(tables.ROUND)))

    def _distinct(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """The different rows of these columns of the samples; of a finished run only these columns are read."""
        if self.has(JOURNAL) or not self.has(SAMPLES):
            return self.read_samples().distinct(*names)
        return tables.distinct(self._checked(SAMPLES), names)

    def read_table(self, file: TableFile) -> Table:
        """A table of a pass; an empty one where the run made no such pass. Raises RunError."""
        if not self.has(file):
            return tables.no_rows(file.columns)
        table = tables.read_table(self._checked(file), file.columns)
        if problem := file.fault(table):
            raise RunError(self.path / file, problem, RESTORE)
        return table

    def read_manifest(self) -> dict[str, Any]:
        """run.json in plain types. Raises RunError if it is missing, not JSON, written in another format, or not as it
        was sealed."""
        return self.read_json(MANIFEST)

    def manifest(self) -> Manifest:
        """The same as a value: what judges and shows a run takes this."""
        known: Manifest = self._both(MANIFEST)[1]
        return known

    def read_json(self, name: str) -> Any:
        """A JSON file in plain types, checked by its form where it was declared with one. Raises RunError."""
        return self._both(name)[0]

    def _both(self, name: str) -> tuple[Any, Any]:
        """A JSON file in plain types, and in its form."""
        content = read_bytes(self.path / name)
        self.sums.check(name, content)
        form = name.form if isinstance(name, JsonFile) else FORMS.get(name)
        try:
            value = forms.parse(content)
            if name == MANIFEST:
                check_version(self.path / name, value)
            return value, value if form is None else forms.check(form, value)
        except forms.Fault as fault:
            raise RunError(self.path / name, str(fault), fix_of(self.path, name)) from fault

    def read(self, file: JsonFile) -> Any:
        """A JSON file beside run.json as values of its form; no entries where the run made no such pass. Raises
        RunError."""
        return self._both(file)[1] if self._is_there(file) else file.form.validate_python([])

    def records(self, name: str) -> list[dict[str, Any]]:
        """The entries of a JSON file beside run.json; none where the run made no such pass. Raises RunError."""
        return self._both(name)[0] if self._is_there(name) else []

    def _is_there(self, name: str) -> bool:
        return name in (CLAIMS, VERDICTS) or self.has(name)

    def _checked(self, name: str) -> Path:
        """A Parquet file to open, once its content fits its checksum, if it has one."""
        if self.sums.known() is not None:
            self.sums.check(name, read_bytes(self.path / name))
        return self.path / name


# -- lists of runs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSummary:
    """What a folder is, for a list of runs. `problem` is None where it can be read as a run.

    verdicts: number of verdicts by word. claims: (claim, part, verdict); a part without a name is "", and an "ad-hoc"
    comparison has its title there. machine: CPU, cores, threads and versions in one line. commit: of the code.
    noise: what its controls showed, in one line. timed: each workload with each variant that was timed on it, without
    controls. pairs: (baseline, variant) of what it compares without a claim.
    """

    path: Path
    id: str
    status: str
    mode: str = ""
    started: str = ""
    workloads: tuple[str, ...] = ()
    verdicts: Mapping[str, int] = field(default_factory=dict)
    problem: str | None = None
    claims: tuple[tuple[str, str, Word], ...] = ()
    machine: str = ""
    commit: str = ""
    noise: str = ""
    timed: tuple[tuple[str, str], ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def sides(self) -> tuple[str, ...]:
        """Every variant."""
        return tuple(dict.fromkeys(variant for _, variant in self.timed))


def list_runs(folder: Path | str) -> list[RunFolder]:
    """Every folder inside `folder`, newest run first (by the manifest's start, else by the folder's own time).

    Damaged and foreign folders are in the list too: `describe` says what is wrong with each. A missing `folder` has
    no runs.
    """
    return newest_first(run_folders(folder))


def newest_first(runs: Iterable[RunFolder]) -> list[RunFolder]:
    """Runs in the order of a list."""
    return sorted(runs, key=lambda run: (_started(run), run.path.name), reverse=True)


def run_folders(folder: Path | str) -> list[RunFolder]:
    """The same in no order, and without reading any of them."""
    root = Path(folder)
    if not root.is_dir():
        return []
    with as_run_error(root), os.scandir(root) as entries:
        return [RunFolder(root / each.name) for each in entries if not each.name.startswith(".") and each.is_dir()]


def describe(run: RunFolder, *, whole: bool = False, light: bool = False) -> RunSummary:
    """What a folder is. Never raises for what lies in it: damage and foreign files go into `problem`.

    Checked are the files that the summary is made of; with `whole` every file that has a checksum, by reading it; with
    `light` no samples, which need not be there.
    """
    name = run.path.name
    try:
        if not run.looks_like_a_run():
            return RunSummary(run.path, name, "not a run", problem="no run.json and no samples")
        summary = _of_manifest(run, run.manifest())
    except OSError as error:
        return RunSummary(run.path, name, "not a run", problem=f"cannot be read ({error.strerror})")
    except RunError as error:
        return RunSummary(run.path, name, "damaged", problem=error.brief)
    problem = ""
    try:
        if run.has(VERDICTS):
            verdicts: Sequence[Verdict] = run.read(VERDICTS)
            claims = tuple(
                (each.claim, each.part or each.title * each.is_comparison, each.verdict) for each in verdicts
            )
            summary = replace(summary, claims=claims, verdicts=Counter(each.word for each in verdicts))
        changed = run.changed() if whole else []
        problem = "; ".join(error.brief for error in changed)
        if not light and not run.has(JOURNAL) and run.has(SAMPLES):
            tables.check_whole(run.path / SAMPLES)  # cheap: reads no rows
    except RunError as error:
        problem = problem or error.brief
    return replace(summary, status="damaged", problem=problem) if problem else summary


def _of_manifest(run: RunFolder, manifest: Manifest) -> RunSummary:
    environment = manifest.machine_facts
    commit = environment.get("commit") or {}
    return RunSummary(
        path=run.path,
        id=manifest.id or run.path.name,
        status=manifest.status or "?",
        mode=manifest.mode or "",
        started=manifest.started or "",
        workloads=tuple(each.workload.name for each in manifest.experiments),
        machine=one_line(environment) if environment else _machines(manifest),
        commit=f"{commit.get('id') or ''}"[:10] + " with changes" * bool(commit.get("dirty")),
        noise=manifest.noise.line if manifest.noise else "",
        pairs=tuple((baseline, variant) for baseline, variant in manifest.ad_hoc),
        timed=tuple(
            dict.fromkeys(
                (experiment.workload.name, EnteredName(name).original)
                for experiment in manifest.experiments
                for name in experiment.variants
            )
        ),
    )


def _machines(manifest: Manifest) -> str:
    """The kinds of machines of a fleet in one line."""
    kinds = [each.kind or each.name for each in manifest.machines if each.folder]
    return f"{len(kinds)} machines: {', '.join(kinds)}" if kinds else ""


def _started(run: RunFolder) -> float:
    try:
        return datetime.fromisoformat(run.manifest().started or "").timestamp()
    except (RunError, ValueError):
        return run.path.stat().st_mtime


# -- how a run folder begins: empty, locked, and never in the place of another run -------------------------------------


def made(path: Path | str | None, under: Path | str, lock: Lock | None) -> Path:
    """The path of an empty run folder (see `RunFolder.create`)."""
    held = lock or Lock()
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = Path(path or Path(under) / "runs" / f"{stamp}-{secrets.token_hex(2)}")
    try:
        if folder.exists() and not folder.is_dir():
            raise RunError(folder, "this is a file, and a run needs a folder", "Name another path.")
        if folder.is_dir() and not _is_bare(folder) and not looks_like_a_run(folder):
            fix = "Name a new or empty folder, so that nothing of yours is overwritten."
            raise RunError(folder, "the folder is not empty and holds no run", fix)
        is_first = path is None and not Path(under).exists()
        folder.mkdir(parents=True, exist_ok=True)
        if is_first:  # nobody wants to commit samples by accident
            (Path(under) / ".gitignore").write_text("# what is meant to stay is saved under baselines/\nruns/\n")
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
        raise taken(folder, error, ", or name another folder (--run-dir)") from error
    except OSError as error:
        raise RunError(folder, f"cannot make the run folder ({error.strerror})", fix_for(error)) from error
    return folder


def taken(folder: Path, error: Taken, otherwise: str = "") -> RunError:
    """The error for a folder that another run holds."""
    problem = f"another run, process {error.pid or '?'}, is writing to this folder"
    return RunError(folder, problem, f"Wait for it or end it (kill {error.pid or 'PID'}){otherwise}.")


_LEFT_BEHIND = re.compile(rf"{re.escape(LOCK)}|\.\w+(\.\w+)?\.\d+\.tmp")


def _is_bare(folder: Path) -> bool:
    """Whether it holds nothing but what a run leaves that was killed before it wrote anything."""
    return all(_LEFT_BEHIND.fullmatch(entry.name) for entry in folder.iterdir())


def _free_name(folder: Path) -> Path:
    whole = folder.resolve()
    names = (whole.with_name(f"{whole.name}.earlier-{number}") for number in itertools.count(1))
    return next(path for path in names if not path.exists())
