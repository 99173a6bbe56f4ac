"""The list of runs under a results folder, and the stamps that tell when a file changed."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from llama_workbench.harness.machine.locks import is_held
from llama_workbench.harness.store import files, folder
from llama_workbench.harness.store.errors import RunError
from llama_workbench.harness.store.files import JOURNAL, MANIFEST, SAMPLES, STANDINGS, SUMS, VERDICTS, data_files
from llama_workbench.harness.store.folder import RunFolder, RunSummary, describe, run_folders
from llama_workbench.harness.store.machine_schema import FLEET, HOME
from llama_workbench.harness.store.remote import is_url, listed

RUNNING = "running"
"""Status of a run that goes on, or was killed."""

BASELINES = "baselines/"
"""What the names of saved runs begin with."""

Stamp = tuple[tuple[str, int, int], ...]
"""Names, times of change and sizes of files: differs when what was read may differ."""


@dataclass(frozen=True)
class Entry:
    """A run in the list of runs, under the name it has in links.

    url: where it lies, if not on this machine: the path of the summary has those of its files that a list reads.
    """

    name: str
    summary: RunSummary
    url: str = ""

    @property
    def is_baseline(self) -> bool:
        """Whether it was saved under a name, to compare with."""
        return self.name.startswith(BASELINES)

    @property
    def is_fleet(self) -> bool:
        """Whether it is of several machines. It has verdicts; samples are in the runs of its machines."""
        return self.summary.mode == FLEET

    @property
    def is_machine(self) -> bool:
        """Whether it is that of one machine of a fleet, which has an entry of its own."""
        return "/" in self.name.removeprefix(BASELINES)


def stamp_of_run(path: Path) -> Stamp:
    """The stamp of a run's own files."""
    return _stamp(path / name for name in (JOURNAL, *data_files(path)) if name != STANDINGS)


def stamp_of_standings(path: Path) -> Stamp:
    """The stamp of what a run's ratios to the yardstick are read from."""
    return _stamp(path / name for name in (MANIFEST, SUMS, SAMPLES, JOURNAL, STANDINGS))


def _stamp(paths: Iterable[Path]) -> Stamp:
    files = []
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            files.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(files)


def results_folder(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Path | str:
    """Where the runs lie: `--results PATH`, else $WORKBENCH_RESULTS, else ./results. A URL is a text."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--results", nargs="?")  # with nothing behind it, it counts as not given
    chosen = parser.parse_known_args(list(arguments))[0].results
    where = chosen or environment.get("WORKBENCH_RESULTS") or "results"
    return where.rstrip("/") if is_url(where) else Path(where)


Known = dict[Path, tuple[Stamp, RunSummary]]
"""What each run was, by its folder, and the stamp that it was read at."""

_KEPT = TypeAdapter(tuple[Stamp, Known])
MANY = 20  # runs: a list of fewer is read as quickly


class RunList:
    """All runs under a results folder or a URL, or the run that it is. Each look reads only those whose files changed.

    `kept`: a file of the reader's own (never one in the results folder, which may come from anywhere) in which a long
    list is kept from one start to the next.
    """

    def __init__(self, results: Path | str, kept: Path | None = None) -> None:
        self._results, self._kept = results, kept
        self._known = _read_kept(kept)

    def entries(self) -> list[Entry]:
        """The runs as they are now, newest first. Damaged and foreign folders are in the list too, with a `problem`.

        Raises RunError where the runs at a URL cannot be listed.
        """
        entries, known = [], {}
        waiting = _named_folders(self._results)
        while waiting:
            name, run, url = waiting.pop()
            stamp = _stamp((run.path, *(run.path / name for name in (MANIFEST, SUMS, VERDICTS, SAMPLES))))
            before, summary = self._known.get(run.path, ((), None))
            if summary is None or before != stamp:
                summary = describe(run, light=bool(url))
            known[run.path] = (stamp, summary)
            entries.append(Entry(name, summary, url))
            if entries[-1].is_fleet:
                waiting += [(f"{name}/{machine.path.name}", machine, "") for machine in run_folders(run.path / HOME)]
        if self._kept is not None and len(known) >= MANY and known != self._known:
            _keep(self._kept, known)
        self._known = known
        return sorted(entries, key=lambda entry: (entry.summary.started, entry.name), reverse=True)


def _reader() -> Stamp:
    """Of the code that reads a run: what other code read counts for nothing."""
    return _stamp(Path(module.__file__) for module in (folder, files) if module.__file__)


def _read_kept(path: Path | None) -> Known:
    """What was kept; nothing where that cannot be read."""
    try:
        reader, known = _KEPT.validate_json(path.read_bytes()) if path else ((), {})
    except (OSError, ValueError):
        return {}
    return known if reader == _reader() else {}


def _keep(path: Path, known: Known) -> None:
    """Replace the file whole; a disk that refuses it costs the next start its time, and nothing else."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            file.write(_KEPT.dump_json((_reader(), known)))
        os.replace(file.name, path)


def _named_folders(results: Path | str) -> list[tuple[str, RunFolder, str]]:
    """Every folder that might be a run, with its name in links, and its URL."""
    if isinstance(results, str):
        below = [("", listed(f"{results}/runs")), (BASELINES, listed(f"{results}/baselines"))]
        at_urls = below if any(runs for _, runs in below) else [("", listed(results))]
        return [(prefix + run.path.name, run, url) for prefix, runs in at_urls for url, run in runs.items()]
    if RunFolder(results).looks_like_a_run():
        return [(results.resolve().name, RunFolder(results), "")]
    homes = [("", results / "runs"), (BASELINES, results / "baselines")]
    if not any(home.is_dir() for _, home in homes):
        homes = [("", results)]
    return [(prefix + run.path.name, run, "") for prefix, home in homes for run in run_folders(home)]


def without_copies(entries: Sequence[Entry]) -> list[Entry]:
    """The runs, each once: one that was saved as a baseline too is shown as that baseline, and one that a fleet has a
    copy of is shown as itself."""
    own = {measured(entry) for entry in entries if not entry.is_machine}
    listed = [entry for entry in entries if not (entry.is_machine and measured(entry) in own)]
    saved = {measured(entry): entry for entry in listed if entry.is_baseline and not entry.is_machine}
    chosen = [saved.get(measured(entry), entry) for entry in listed]
    return list({entry.name: entry for entry in chosen}.values())


def measured(entry: Entry) -> tuple[str, str]:
    """What a run and its copies have in common."""
    return entry.summary.id, entry.summary.started


def first_shown(runs: Sequence[Entry]) -> Entry:
    """The run that a reader sees first: the newest of their own that does not go on; where all are baselines, that with
    most verdicts."""
    own = [entry for entry in runs if not entry.is_baseline and not entry.is_machine]
    ended = [entry for entry in own if entry.summary.status != RUNNING]
    if ended or own:
        return (ended or own)[0]
    return max(runs, key=lambda entry: sum(entry.summary.verdicts.values()))


def going_on(runs: Sequence[Entry]) -> list[str]:
    """A sentence for each run of this machine that somebody writes into: how far it is."""
    return [
        f"{entry.name} is being measured: "
        f"{100 * _share_used(entry.summary.path):.0f} % of the time for its rounds is used."
        for entry in runs
        if entry.summary.status == RUNNING and not entry.url and is_held(entry.summary.path)
    ]


def _share_used(path: Path) -> float:
    try:
        manifest = RunFolder(path).manifest()
    except RunError:
        return 0.0
    seconds = sum(one.seconds or 0.0 for one in manifest.experiments)
    return min(seconds / manifest.budget_seconds, 1.0) if manifest.budget_seconds else 0.0


def label(entry: Entry) -> str:
    """What a run is, on one line of plain text."""
    summary = entry.summary
    day = f"{when(summary.started)} UTC" if summary.started else "no date"
    count = sum(summary.verdicts.values())
    verdicts = f"{count} verdict{'' if count == 1 else 's'}" if count else "no verdicts"
    state = "" if summary.status == "complete" else f" · {summary.status}"
    return f"{day}{state} · {verdicts} · {entry.name}"


def when(started: str) -> str:
    """A start in ISO 8601 as people write it, to the minute."""
    return started[:16].replace("T", " ") or "no date"
