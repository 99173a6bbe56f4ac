"""A run on disk: one folder that a killed run leaves readable.

FORMAT.md lists all files and their fields. The journal grows by a line a round; every other file is replaced whole, by
a rename. Reading trusts nothing: a file that is missing, cut off or foreign raises a `RunError` that names the file,
the problem and what to do. Nothing here unpickles, and nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from ..machine.environment import one_line
from ..machine.locks import LOCK, Lock, Taken
from ..spec.sample import Round, Sample
from . import journal, parquet
from .errors import RunError, RunWarning, as_run_error, fix_for
from .files import CLAIMS, JOURNAL, MANIFEST, PHASES, SAMPLES, STANDINGS, VERDICTS, RunFiles, no_such_folder
from .schema import FORMAT


class RunFolder(RunFiles):
    """One run on disk. Making the value touches nothing; `create` makes the folder."""

    @classmethod
    def create(
        cls, path: Path | str | None = None, *, under: Path | str = Path("results"), lock: Lock | None = None
    ) -> RunFolder:
        """Make an empty run folder: `path`, or `<under>/runs/<UTC time>-<4 hex digits>`.

        A run that already lies at `path` is moved to `<path>.earlier-<n>` (with a RunWarning), never mixed with the new
        one and never deleted. To go on with an earlier run use `RunFolder(path)`. Any other folder with something in
        it is refused, and so is one that another run has locked. With `lock` this run holds it from here on.
        """
        held = lock or Lock()
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        folder = Path(path or Path(under) / "runs" / f"{stamp}-{secrets.token_hex(2)}")
        try:
            if folder.exists() and not folder.is_dir():
                raise RunError(folder, "this is a file, and a run needs a folder", "Name another path.")
            if folder.is_dir() and not _is_bare(folder) and not cls(folder).looks_like_a_run():
                fix = "Name a new or empty folder, so that nothing of yours is overwritten."
                raise RunError(folder, "the folder is not empty and holds no run", fix)
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
            raise _taken(folder, error, ", or name another folder (--run-dir)") from error
        except OSError as error:
            raise RunError(folder, f"cannot make the run folder ({error.strerror})", fix_for(error)) from error
        return cls(folder)

    def hold(self, lock: Lock) -> None:
        """Take this folder, to go on with its run. Raises RunError where another run holds it."""
        if not self.path.is_dir():
            raise no_such_folder(self.path)
        try:
            with as_run_error(self.path, "cannot be written ({})"):
                lock.take(self.path)
        except Taken as error:
            raise _taken(self.path, error) from error

    def reopen(self, manifest: Mapping[str, Any]) -> None:
        """Take off the seal: rounds are added from here on, and what was computed from those before is gone."""
        self.write_json(MANIFEST, {key: value for key, value in manifest.items() if key not in ("checksums", "sealed")})
        with as_run_error(self.path, "cannot be written ({})"):
            for name in (VERDICTS, STANDINGS):
                (self.path / name).unlink(missing_ok=True)

    def looks_like_a_run(self) -> bool:
        """True where a manifest, claims or samples lie in the folder (readable or not)."""
        return any((self.path / name).is_file() for name in (MANIFEST, CLAIMS, JOURNAL, SAMPLES))

    def append_round(self, record: Round) -> None:
        """Add one finished round to the journal (see `journal.append`)."""
        journal.append(self.path / JOURNAL, record)

    def snapshot(self) -> None:
        """Write everything sampled so far to samples.parquet and keep the journal."""
        table = self._read_table().replace_schema_metadata({"llama_workbench.format": str(FORMAT)})
        self._replace(SAMPLES, lambda temporary: parquet.write_table(table, temporary))

    def finish(self) -> None:
        """Write samples.parquet, and only when it is on disk remove the journal."""
        if not (self.path / JOURNAL).exists() and (self.path / SAMPLES).exists():
            return  # finished before
        self.snapshot()
        (self.path / JOURNAL).unlink(missing_ok=True)

    def write_phases(self, rows: Sequence[Sequence[Any]]) -> None:
        """Replace phases.parquet whole; a row has the fields of `PhaseTime`."""
        fields = parquet.PHASE_SCHEMA.names
        table = pa.Table.from_pylist([dict(zip(fields, row, strict=True)) for row in rows], parquet.PHASE_SCHEMA)
        self._replace(PHASES, lambda temporary: parquet.write_table(table, temporary))

    def read_samples(self, variants: Collection[str] | None = None) -> pd.DataFrame:
        """All samples, columns as parquet.SCHEMA (`workload` and `variant` categorical), in the order they were taken.

        With `variants` only theirs, which of a long run is a small part and as much faster. Where a journal exists,
        its rounds win over the same rounds in samples.parquet.
        """
        return self._read_table(variants).to_pandas()

    def rounds(self) -> Iterator[Round]:
        """All finished rounds, in the order they were taken."""
        if self.finished_rounds():
            table = self._read_table()
            rows = zip(*(table.column(name).to_pylist() for name in (*journal.ROUND, *Sample._fields)), strict=True)
            for (workload, process, number), group in itertools.groupby(rows, lambda row: row[:3]):
                yield Round(workload, process, number, tuple(Sample(*row[3:]) for row in group))

    def timed_together(self) -> dict[str, frozenset[tuple[str, ...]]]:
        """Workload → the groups of variants that shared a round, each in alphabetical order. Reads four columns."""
        groups: dict[tuple[str, ...], set[str]] = {}
        for row in self._distinct(["workload", "process", "round", "variant"]):
            key = str(row["workload"]), str(row["process"]), str(row["round"])
            groups.setdefault(key, set()).add(str(row["variant"]))
        found: dict[str, set[tuple[str, ...]]] = {}
        for (workload, *_), names in groups.items():
            found.setdefault(workload, set()).add(tuple(sorted(names)))
        return {workload: frozenset(shared) for workload, shared in found.items()}

    def finished_rounds(self) -> dict[str, int]:
        """Workload → number of rounds here, which the manifest of a killed run does not know: it is older.

        Empty where there are no samples at all; raises RunError where there are some that cannot be read.
        """
        if not self.has(JOURNAL) and not self.has(SAMPLES):
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # the reader of the samples themselves is warned
            return dict(Counter(str(row["workload"]) for row in self._distinct(journal.ROUND)))

    def _distinct(self, names: list[str]) -> list[dict[str, Any]]:
        """The different rows of these columns of the samples; of a finished run only these columns are read."""
        if self.has(JOURNAL) or not self.has(SAMPLES):
            table = self._read_table().select(names)
        else:
            table = parquet.read_columns(self.path / SAMPLES, names, self.source(SAMPLES))
        return table.group_by(names).aggregate([]).to_pylist()

    def _read_table(self, variants: Collection[str] | None = None) -> pa.Table:
        has_journal, has_parquet = self.has(JOURNAL), self.has(SAMPLES)
        if not has_journal:
            if has_parquet:
                return parquet.read_samples(self.path / SAMPLES, variants, self.source(SAMPLES))
            if not self.path.is_dir():
                raise no_such_folder(self.path)
            problem = f"holds no samples ({SAMPLES} or {JOURNAL})"
            raise RunError(self.path, problem, "No round was finished: measure again.")
        table, is_whole = journal.read(self.path / JOURNAL)
        if has_parquet:
            table = journal.merged(table, self.path / SAMPLES)
        if is_whole:
            with contextlib.suppress(RunError):
                experiments = self.read_manifest().get("experiments", ())
                counted = {experiment["workload"]["name"]: experiment.get("rounds") for experiment in experiments}
                journal.warn_of_lost_rounds(self.path / JOURNAL, table, counted)
        return parquet.of_variants(variants, table)

    def read_phases(self) -> pd.DataFrame:
        """phases.parquet, columns as parquet.PHASE_SCHEMA; an empty table where the run made no phase pass."""
        if not self.has(PHASES):
            return parquet.PHASE_SCHEMA.empty_table().to_pandas()
        return parquet.read_phases(self.path / PHASES, self.source(PHASES))

    def read_manifest(self) -> dict[str, Any]:
        """run.json. Raises RunError if it is missing, not JSON, written in another format, or not as it was sealed."""
        return self.read_json(MANIFEST)

    def records(self, name: str) -> list[dict[str, Any]]:
        """The entries of a JSON file beside run.json; none where the run made no such pass. Raises RunError."""
        if name not in (CLAIMS, VERDICTS) and not self.has(name):
            return []
        return self.read_json(name)


def _taken(folder: Path, error: Taken, otherwise: str = "") -> RunError:
    """The error for a folder that another run holds."""
    problem = f"another run, process {error.pid or '?'}, is writing to this folder"
    return RunError(folder, problem, f"Wait for it or end it (kill {error.pid or 'PID'}){otherwise}.")


_LEFT_BEHIND = re.compile(rf"{re.escape(LOCK)}|\.[a-z_]+\.\w+\.\d+\.tmp")


def _is_bare(folder: Path) -> bool:
    """Whether it holds nothing but what a run leaves that was killed before it wrote anything."""
    return all(_LEFT_BEHIND.fullmatch(entry.name) for entry in folder.iterdir())


def _free_name(folder: Path) -> Path:
    whole = folder.resolve()
    names = (whole.with_name(f"{whole.name}.earlier-{number}") for number in itertools.count(1))
    return next(path for path in names if not path.exists())


# -- lists of runs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSummary:
    """What a folder is, for a list of runs. `problem` is None where it can be read as a run.

    verdicts: number of verdicts by word. claims: (claim, part, verdict); a part without a name is "", and an "ad-hoc"
    comparison has its title there. machine: CPU, cores, threads and versions in one line. commit: of the workbench
    that measured. noise: what its controls showed, in one line.
    """

    path: Path
    id: str
    status: str
    mode: str = ""
    started: str = ""
    workloads: tuple[str, ...] = ()
    verdicts: Mapping[str, int] = field(default_factory=dict)
    problem: str | None = None
    claims: tuple[tuple[str, str, str], ...] = ()
    machine: str = ""
    commit: str = ""
    noise: str = ""


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
        summary = _of_manifest(run, run.read_manifest())
    except OSError as error:
        return RunSummary(run.path, name, "not a run", problem=f"cannot be read ({error.strerror})")
    except RunError as error:
        return RunSummary(run.path, name, "damaged", problem=error.brief)
    problem = ""
    try:
        if run.has(VERDICTS):
            verdicts = run.records(VERDICTS)
            claims = tuple((str(each["claim"]), _part_text(each), str(each["verdict"])) for each in verdicts)
            summary = replace(summary, claims=claims, verdicts=Counter(verdict for _, _, verdict in claims))
        changed = run.changed() if whole else []
        problem = "; ".join(error.brief for error in changed)
        if not light and not run.has(JOURNAL) and run.has(SAMPLES):
            parquet.open_parquet(run.path / SAMPLES).close()  # cheap: reads no rows
    except RunError as error:
        problem = problem or error.brief
    return replace(summary, status="damaged", problem=problem) if problem else summary


def _of_manifest(run: RunFolder, manifest: Mapping[str, Any]) -> RunSummary:
    environment = manifest.get("environment") or {}
    commit = environment.get("commit") or {}
    return RunSummary(
        path=run.path,
        id=str(manifest.get("id", run.path.name)),
        status=str(manifest.get("status", "?")),
        mode=str(manifest.get("mode", "")),
        started=str(manifest.get("started") or ""),
        workloads=tuple(str(item["workload"].get("name", "?")) for item in manifest.get("experiments", [])),
        machine=one_line(environment) if environment else _machines(manifest),
        commit=f"{commit.get('id') or ''}"[:10] + " with changes" * bool(commit.get("dirty")),
        noise=str((manifest.get("noise") or {}).get("line") or ""),
    )


def _machines(manifest: Mapping[str, Any]) -> str:
    """The kinds of machines of a fleet in one line."""
    kinds = [str(each.get("kind") or each["name"]) for each in manifest.get("machines", ()) if each.get("folder")]
    return f"{len(kinds)} machines: {', '.join(kinds)}" if kinds else ""


def _started(run: RunFolder) -> float:
    try:
        return datetime.fromisoformat(run.read_manifest()["started"]).timestamp()
    except (RunError, KeyError, TypeError, ValueError):
        return run.path.stat().st_mtime


def _part_text(verdict: Mapping[str, Any]) -> str:
    """The part of a claim; of an ad-hoc comparison, all of which have one name, its title."""
    title = verdict.get("title") if verdict["claim"] == "ad-hoc" else None
    return str(verdict.get("part") or title or "")
