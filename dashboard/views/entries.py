"""The list of runs under a results folder, and the stamps that tell when a file changed."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from llama_workbench.harness.baselines.regressions import Answer, Row, RunComparison, Saved, compare
from llama_workbench.harness.baselines.thresholds import WHATS, read_thresholds
from llama_workbench.harness.machine.lifeline import is_held
from llama_workbench.harness.report.text import duration_text, one_text_line
from llama_workbench.harness.spec.regions import FAIL_IF
from llama_workbench.harness.spec.words import COUNTED, Word
from llama_workbench.harness.store.files import (
    JOURNAL,
    MANIFEST,
    SAMPLES,
    STANDINGS,
    SUMS,
    VERDICTS,
    RunError,
    data_files,
)
from llama_workbench.harness.store.folder import RunFolder, RunSummary, describe, run_folders
from llama_workbench.harness.store.remote import is_url, listed
from llama_workbench.harness.store.verdict_schema import AD_HOC, FLEET, HOME, Effect

from .. import words
from . import data
from .outcomes import look_of_word

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
    """The stamp of what a run's ratios to the reference benchmark are read from."""
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

FEW = 3  # names on a line


class RunList:
    """All runs under a results folder or a URL, or the run that it is. A look reads only those whose files changed."""

    def __init__(self, results: Path | str) -> None:
        self._results = results
        self._known: Known = {}

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
        self._known = known
        return sorted(entries, key=lambda entry: (entry.summary.started, entry.name), reverse=True)


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


@dataclass(frozen=True)
class GoingOn:
    """A run that somebody writes into. `share`: of the time for its rounds, that is used; `left`: what is not."""

    entry: Entry
    share: float = 0.0
    left_seconds: float = 0.0

    def __str__(self) -> str:
        sides, places = (
            words.some(names, most=FEW) for names in (self.entry.summary.sides, self.entry.summary.workloads)
        )
        left = f", {duration_text(self.left_seconds)} left" if self.left_seconds else ""
        what = f" ({sides} on {places})" if sides and places else ""
        used = f"{100 * self.share:.0f} % of the time for its rounds is used"
        return f"{self.entry.name} is being measured{what}: {used}{left}."


def going_on(runs: Sequence[Entry]) -> list[GoingOn]:
    """The runs of this machine that are being measured, and how far they are."""
    held = (each for each in runs if each.summary.status == RUNNING and not each.url and is_held(each.summary.path))
    return [_how_far(entry) for entry in held]


def _how_far(entry: Entry) -> GoingOn:
    try:
        manifest = RunFolder(entry.summary.path).manifest()
    except RunError:
        return GoingOn(entry)
    used, budget = sum(one.seconds or 0.0 for one in manifest.experiments), manifest.budget_seconds or 0.0
    return GoingOn(entry, min(used / budget, 1.0), max(budget - used, 0.0)) if budget else GoingOn(entry)


def asked_for(wanted: str, names: Collection[str]) -> str | None:
    """The run of these names that a link means: by its name, or as the terminal takes it, a saved one by its name
    alone and any by its folder."""
    inside = wanted.rstrip("/").removeprefix("results/").removeprefix("runs/")
    return next((name for name in (wanted, f"{BASELINES}{wanted}", inside) if name in names), None)


def compared(run: RunSummary, most: int = len(COUNTED)) -> str:
    """What a run compared and what came out: "old.f → new.f: faster", "54 claims, 180 verdicts: 40 supported, 62
    refuted". `most`: words of verdicts."""
    if not run.claims:
        return f"{words.some(run.sides, most=FEW)}: no verdicts" if run.sides else "no verdicts"
    pairs = [(part, word) for claim, part, word in run.claims if claim == AD_HOC]
    if pairs and all(claim in (AD_HOC, FAIL_IF) for claim, _, _ in run.claims):
        sides = " → ".join(run.pairs[0]) if run.pairs else pairs[0][0]
        more = f", and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        return f"{sides}: {pairs[0][1].look.word.lower()}{more}"
    names = list(dict.fromkeys(claim for claim, _, _ in run.claims))
    counts = [(run.verdicts[word], look_of_word(word).row or word) for word in COUNTED if word in run.verdicts]
    if others := sum(count for count, _ in counts[most:]):
        counts[most:] = [(others, "others")]
    tally = ", ".join(f"{count} {word}" for count, word in counts)
    return f"{names[0] if len(names) == 1 else f'{len(names)} claims, {len(run.claims)} verdicts'}: {tally}"


def label(entry: Entry) -> str:
    """A run on one line of plain text: what it compared, when, and its name; a chosen name first."""
    summary = entry.summary
    day = f"{when(summary.started)} UTC" if summary.started else "no date"
    state = "" if summary.status == "complete" else f" · {summary.status}"
    parts = [f"{one_text_line(compared(summary, 2), 90)}{state}", day]
    return " · ".join([entry.name, *parts] if entry.is_baseline else [*parts, entry.name])


def when(started: str) -> str:
    """A start in ISO 8601 as people write it, to the minute."""
    return started[:16].replace("T", " ") or "no date"


# -- what changed between two runs, as `workbench compare` has it, in the order of what matters ------------------------

PROVEN: Sequence[Answer] = ("regression", "improvement")
"""Answers that say that something changed."""

MARKS: Mapping[Answer, Word] = {
    "regression": Word.SLOWER,
    "improvement": Word.FASTER,
    "no regression": Word.PASSED,
    "inconclusive": Word.INCONCLUSIVE,
}
"""How an answer is drawn."""

MOST_DRAWN = 16


def to_compare_with(name: str, listed: Sequence[Entry]) -> dict[str, Entry]:
    """The other runs that timed a variant of this one on the same workload, by name: first those of the same machine
    and versions (between two processors little is proven), of these those with most in common, the saved ones, then the
    newest. No run of several machines: those of its machines are in the list."""
    readable = [entry for entry in listed if entry.summary.problem is None and not entry.is_fleet]
    shown = [entry for entry in readable if entry.name == name]
    same, machines = {measured(entry) for entry in shown}, {entry.summary.machine for entry in shown}
    others = [entry for entry in without_copies(readable) if measured(entry) not in same]
    in_common = {entry.name: max((_in_common(entry, one) for one in shown), default=0) for entry in others}
    others.sort(
        key=lambda entry: (entry.summary.machine not in machines, -in_common[entry.name], not entry.is_baseline)
    )
    return {entry.name: entry for entry in others if in_common[entry.name]}


def _in_common(entry: Entry, other: Entry) -> int:
    """How many variants two runs timed on the same workload; the workloads where their variants are not known."""
    a, b = entry.summary, other.summary
    return len({*a.timed} & {*b.timed}) if a.timed and b.timed else len({*a.workloads} & {*b.workloads})


def changes_between(run: data.Run, base: Path, stamp: Stamp) -> RunComparison:
    """The run against an earlier one, by the thresholds of the project in whose folder the dashboard was started.

    Raises RunError, and ValueError for thresholds that cannot be used.
    """
    return compare(RunFolder(base), RunFolder(run.path), thresholds=read_thresholds(Path.cwd()))


def kinds_of_change(comparison: RunComparison) -> dict[str, str]:
    """What was compared, in words, with the number of rows."""
    counts = {what: sum(row.what == what for row in comparison.rows) for what in WHATS}
    return {what: f"{what} ({count})" for what, count in counts.items() if count}


def changes_by_impact(comparison: RunComparison, what: str) -> tuple[list[Row], list[Row]]:
    """The rows of a kind that are decided, those first that proved a change, and of these the largest change; and those
    that are not."""
    rows = [row for row in comparison.rows if row.what == what]
    rows.sort(key=lambda row: (row.verdict not in PROVEN, -_size(row)))
    undecided = [row for row in rows if row.verdict == "inconclusive"]
    return [row for row in rows if row.verdict != "inconclusive"], undecided


def _size(row: Row) -> float:
    """How far a change is from none, as a factor; -1 where nobody knows."""
    return -1.0 if row.change_percent is None else abs(math.log(max(1 + row.change_percent / 100, 1e-9)))


def changes_as_claim(run: data.Run, rows: Sequence[Row]) -> data.Claim:
    """The changes of times as rows of a forest plot: how many times as fast each variant is now."""
    return data.figure("What changed", run.alpha, tuple(_as_effect(run, row) for row in rows))


def _as_effect(run: data.Run, row: Row) -> Effect:
    ends = (row.change_percent, row.high_percent, row.low_percent)  # more time is slower
    ratio, low, high = (math.nan if end is None else 1 / max(1 + end / 100, 1e-9) for end in ends)
    return Effect(
        workload=row.workload,
        variant=row.variant,
        baseline="",
        named=f"{row.variant} on {run.named(row.workload)}",
        ratio=ratio,
        low=0.0 if math.isnan(low) else low,
        high=math.inf if math.isnan(high) else high,
        rounds=row.new.rounds if isinstance(row.new, Saved) else 0,
        seconds=0.0,
        verdict=MARKS[row.verdict],
        reason=row.reason,
    )


def changes_sentence(comparison: RunComparison, what: str) -> str:
    """How many rows of a kind have which answer: "time: 1 regression, 4 no regression"."""
    answers = [row.verdict for row in comparison.rows if row.what == what]
    counts = (f"{answers.count(word)} {word}" for word in get_args(Answer) if word in answers)
    return f"{words.capital(what)}: {', '.join(counts)}"
