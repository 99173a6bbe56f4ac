"""From a results folder to what the pages show, by way of `harness.store`; no Streamlit, no drawing.

The files may come from anywhere. What is wrong with a whole run is a `RunError` of the store; a single value of a
wrong kind becomes None or "", and is shown as missing.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llama_workbench.dashboard import words
from llama_workbench.dashboard.flames.tree import Frame, Scale, StackError, read_folded
from llama_workbench.dashboard.views import values
from llama_workbench.harness.claims.claims import READINGS
from llama_workbench.harness.report.text import excluded_lines, value_text
from llama_workbench.harness.store.folder import (
    CLAIMS,
    FINDINGS,
    JOURNAL,
    LOADING,
    MANIFEST,
    MEMORY,
    MEMORY_SWEEP,
    PHASE_FACTS,
    PHASES,
    PROFILES,
    ROOFLINE,
    SAMPLES,
    STANDINGS,
    VERDICTS,
    RunError,
    RunFolder,
    RunSummary,
    run_folders,
)

BASELINES = "baselines/"
"""What the names of saved runs begin with."""

LARGEST_PROFILE_BYTES = 64 << 20


@dataclass(frozen=True)
class Effect:
    """One row of evidence: `value` with its interval; an open end is None.

    Without a `unit` it is the ratio t_baseline / t_variant; with one it was read and not compared.
    """

    workload: str
    variant: str
    baseline: str
    metric: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    rounds: int
    seconds: float | None
    verdict: str
    warnings: tuple[str, ...]

    @property
    def text(self) -> str:
        """The value with its interval."""
        if self.unit:
            return value_text({"value": self.value, "low": self.low, "high": self.high, "unit": self.unit})
        return words.effect(self.value, self.low, self.high)

    @property
    def sides(self) -> str:
        """Who was measured: "fast against team006_before", or what was read where no variant was."""
        names = " against ".join(name for name in (self.variant, self.baseline) if name)
        return names or self.metric

    @property
    def where(self) -> str:
        """The workload; of a reading without one, what was read."""
        return self.workload or self.metric


@dataclass(frozen=True)
class Claim:
    """One claim, or one part of it, with its verdict. `low` and `high` bound what is claimed; None is open.

    What nobody said is empty: figures also show effects that belong to no claim.
    """

    id: str
    title: str
    alpha: float
    effects: tuple[Effect, ...]
    claimed: str = ""
    low: float | None = None
    high: float | None = None
    part: str = ""
    statement: str = ""
    who: tuple[str, ...] = ()
    source: str = ""
    decided_by: str = ""
    verdict: str = ""
    reason: str = ""
    assumes: tuple[str, ...] = ()
    hypothesis: Mapping[str, Any] = field(default_factory=dict)  # as in claims.json; empty where that says nothing

    @property
    def kind(self) -> str:
        """What decides it: "time" where two sides were timed, else one of the readings that `harness.claims` lists."""
        metric = values.text(self.hypothesis.get("metric"))
        return metric if metric in READINGS else "reading" if self.unit else "time"

    @property
    def unit(self) -> str:
        """What its effects were read in; empty where they are ratios of times."""
        return next((effect.unit for effect in self.effects if effect.unit), "")

    @property
    def is_comparison(self) -> bool:
        """True for `--compare A B`, where nobody claimed anything and the region is the margin of "same"."""
        return self.id == "ad-hoc"


@dataclass(frozen=True)
class Floor:
    """What the machine made of identical code on one workload: the hull of the controls' intervals."""

    low: float
    high: float
    rounds: int
    fired: bool


@dataclass(frozen=True)
class Profile:
    """One sampled profile. `root` is None where there is none, and `reason` says why.

    `median_ns` is the time of one call while it was sampled, with its standard error.
    """

    workload: str
    variant: str
    root: Frame | None
    median_ns: float | None
    median_error_ns: float | None
    rate_hz: float | None
    native: bool  # with the frames of native code
    native_reason: str  # why not, where they were asked for
    reason: str

    @property
    def scale(self) -> Scale | None:
        """What turns samples into time; None where samples or the time of a call are missing."""
        if self.root is None or self.median_ns is None:
            return None
        return Scale(self.root.samples, self.median_ns, self.median_error_ns)


@dataclass(frozen=True)
class Memory:
    """Bytes of one variant on one workload; None where not measured, and `reason` says why."""

    variant: str
    peak_transient_bytes: float | None
    parameter_bytes: float | None
    cache_bytes: float | None
    reason: str


@dataclass(frozen=True)
class Run:
    """One run, read: everything the pages show, but the profiles (`read_profile`)."""

    path: Path
    id: str
    manifest: Mapping[str, Any]
    alpha: float | None  # of the whole report
    claims: tuple[Claim, ...]
    floors: Mapping[str, Floor]
    noise: str
    profiles: Mapping[tuple[str, str], Mapping[str, Any]]  # by workload and variant; `read_profile` reads the stacks
    memory: Mapping[tuple[str, str], Memory]
    left_out: tuple[str, ...]  # variants that the run went on without, each with the reason
    problems: tuple[str, ...]  # files of this run that could not be read; the rest is shown


@dataclass(frozen=True)
class Entry:
    """A run in the list of runs, under the name it has in links."""

    name: str
    summary: RunSummary


Stamp = tuple[tuple[str, int, int], ...]
"""Names, times of change and sizes of files: differs when what was read may differ."""


def stamp_of_run(path: Path) -> Stamp:
    """The stamp of a run's own files."""
    judged = (MANIFEST, CLAIMS, VERDICTS, JOURNAL, SAMPLES)
    found_out = (PROFILES, MEMORY, MEMORY_SWEEP, LOADING, FINDINGS, PHASES, PHASE_FACTS, ROOFLINE)
    return _stamp(path / name for name in (*judged, *found_out))


def stamp_of_standings(path: Path) -> Stamp:
    """The stamp of what a run's ratios to the yardstick are read from."""
    return _stamp(path / name for name in (MANIFEST, SAMPLES, JOURNAL, STANDINGS))


def _stamp(paths: Iterable[Path]) -> Stamp:
    found = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)


def results_folder(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Path:
    """Where the runs lie: `--results PATH`, else $WORKBENCH_RESULTS, else ./results."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--results")
    try:
        chosen = parser.parse_known_args(list(arguments))[0].results
    except argparse.ArgumentError:  # "--results" with nothing behind it
        chosen = None
    return Path(chosen or environment.get("WORKBENCH_RESULTS") or "results")


class RunList:
    """All runs under a results folder: in its runs/ and baselines/, or lying in it directly, or itself.

    Reading hundreds of them takes seconds, so each look reads only those whose files changed since the last.
    """

    def __init__(self, results: Path) -> None:
        self._results = results
        self._known: dict[Path, tuple[Stamp, RunSummary]] = {}

    def entries(self) -> list[Entry]:
        """The runs as they are now, newest first. Damaged and foreign folders are in the list too, with a `problem`."""
        found, known = [], {}
        for name, run in _named_folders(self._results):
            stamp = _stamp((run.path, run.path / MANIFEST, run.path / VERDICTS))
            before = self._known.get(run.path)
            summary = before[1] if before is not None and before[0] == stamp else run.describe()
            known[run.path] = (stamp, summary)
            found.append(Entry(name, summary))
        self._known = known
        return sorted(found, key=lambda entry: (entry.summary.started, entry.name), reverse=True)


def _named_folders(results: Path) -> list[tuple[str, RunFolder]]:
    """Every folder that might be a run, with its name in links."""
    if RunFolder(results).looks_like_a_run():
        return [(results.resolve().name, RunFolder(results))]
    homes = [("", results / "runs"), (BASELINES, results / "baselines")]
    if not any(home.is_dir() for _, home in homes):
        homes = [("", results)]
    return [(prefix + run.path.name, run) for prefix, home in homes for run in run_folders(home)]


def read_run(path: Path) -> Run:
    """Read one run. Raises RunError where the manifest or the verdicts cannot be read."""
    folder = RunFolder(path)
    manifest = folder.read_manifest()
    problems: list[str] = []

    def optional(read: Any) -> list[dict[str, Any]]:
        try:
            records: list[dict[str, Any]] = read()
        except RunError as error:
            problems.append(error.brief)
            return []
        return records

    verdicts = folder.read_verdicts()
    claims = {values.text(claim.get("id")): claim for claim in optional(folder.read_claims)}
    noise = values.mapping(manifest.get("noise"))
    memory = {
        (values.text(row.get("workload")), values.text(row.get("variant"))): Memory(
            variant=values.text(row.get("variant")),
            peak_transient_bytes=values.number(row.get("peak_transient_bytes")),
            parameter_bytes=values.number(row.get("parameter_bytes")),
            cache_bytes=values.number(row.get("cache_bytes")),
            reason=values.text(row.get("reason")),
        )
        for row in optional(folder.read_memory)
    }
    try:
        left_out = excluded_lines(manifest)
    except (AttributeError, KeyError, TypeError):
        left_out = []
        problems.append("run.json: what it says was left out is not in the form that is read here")
    return Run(
        path=path,
        id=values.text(manifest.get("id")) or path.name,
        manifest=manifest,
        alpha=values.positive(manifest.get("alpha")),
        claims=tuple(_claim(verdict, claims.get(values.text(verdict.get("claim")), {})) for verdict in verdicts),
        floors=_floors(values.records(noise.get("controls"))),
        noise=values.text(noise.get("line")),
        profiles={
            (values.text(row.get("workload")), values.text(row.get("variant"))): row
            for row in optional(folder.read_profiles)
        },
        memory=memory,
        left_out=tuple(left_out),
        problems=tuple(problems),
    )


def read_profile(run: Run, workload: str, variant: str) -> Profile | None:
    """The profile of one variant on one workload; None where the run made none."""
    row = run.profiles.get((workload, variant))
    if row is None:
        return None
    root, reason = None, values.text(row.get("reason"))
    relative = row.get("path")
    if isinstance(relative, str):
        try:
            root = read_folded(_stacks(run.path, relative))
        except (OSError, StackError) as error:
            reason = f"{relative}: {error.strerror if isinstance(error, OSError) else error}"
        if root is not None and not root.samples:
            root, reason = None, "the profiler took no sample"
    return Profile(
        workload=workload,
        variant=variant,
        root=root,
        median_ns=values.positive(row.get("median_ns")),
        median_error_ns=values.positive(row.get("median_error_ns")),
        rate_hz=values.positive(row.get("rate_hz")),
        native=row.get("native") is True,
        native_reason=values.text(row.get("native_reason")),
        reason=reason or "the run gives no reason",
    )


def profile_text(run: Run, workload: str, variant: str) -> str:
    """The folded stacks of a profile as the run keeps them. Raises StackError or OSError where they cannot be read."""
    relative = run.profiles.get((workload, variant), {}).get("path")
    if not isinstance(relative, str):
        raise StackError("the run has no such profile")
    return _stacks(run.path, relative)


def experiment(run: Run, workload: str) -> Mapping[str, Any]:
    """The manifest's entry for a workload; empty where there is none."""
    for entry in values.records(run.manifest.get("experiments")):
        if values.text(values.mapping(entry.get("workload")).get("name")) == workload:
            return entry
    return {}


def reproduce(run: Run, claim: Claim) -> str:
    """The command that measures this claim again, with what this run chose."""
    parts = ["pytest", "--benchmark"]
    if claim.is_comparison and claim.effects:
        first = claim.effects[0]
        workloads = dict.fromkeys(effect.workload for effect in claim.effects)
        parts += ["--compare", first.baseline, first.variant, "--workloads", ",".join(workloads)]
    else:
        parts += ["--claims", claim.id]
    seed = run.manifest.get("seed")
    if isinstance(seed, int):
        parts += ["--seed", str(seed)]
    return shlex.join(parts)


def sentence(claim: Claim) -> str:
    """What the verdict means, in plain words, to stand after the verdict's own word."""
    meaning = words.look(claim.verdict).meaning.format(claimed=claim.claimed or "not recorded")
    if len(claim.effects) > 1 and claim.verdict in {"supported", "refuted", "faster", "slower", "same"}:
        return f"on every workload {meaning}"
    return meaning


def measured(claim: Claim) -> str:
    """The effect in a few words: one interval, or the span of several."""
    known = [effect for effect in claim.effects if effect.value is not None]
    if len(known) > 1 and claim.unit:
        ends = sorted(effect.value for effect in known if effect.value is not None)
        least, most = (f"{end:,.0f}" if abs(end) >= 100 else f"{end:.3g}" for end in (ends[0], ends[-1]))
        return f"{least} to {most} {claim.unit}"
    if len(known) > 1:
        return words.span([effect.value for effect in known if effect.value is not None])
    return known[0].text if known else "not measured"


def _stacks(folder: Path, relative: str) -> str:
    """The text of a profile, which must lie in the run folder: a manifest from elsewhere may name any path."""
    try:
        return RunFolder(folder).read_stacks(relative, LARGEST_PROFILE_BYTES)
    except RunError as error:
        raise StackError(f"{error.problem}. {error.fix}") from error
    except ValueError as error:
        raise StackError(str(error)) from error


def _claim(verdict: Mapping[str, Any], definition: Mapping[str, Any]) -> Claim:
    region = values.mapping(verdict.get("region"))
    who = verdict.get("who")
    source, assumes = definition.get("source"), definition.get("assumes")
    part = values.text(verdict.get("part"))
    hypotheses = values.records(definition.get("hypothesis"))
    return Claim(
        id=values.text(verdict.get("claim")),
        part=part,
        title=values.text(verdict.get("title"))
        or values.text(definition.get("title"))
        or values.text(verdict.get("claim")),
        statement=values.text(verdict.get("statement")) or values.text(definition.get("statement")),
        who=tuple(values.text(name) for name in who) if isinstance(who, list) else (values.text(who),) if who else (),
        source="; ".join(_source(item) for item in source) if isinstance(source, list) else values.text(source),
        decided_by=values.text(definition.get("decided_by")),
        verdict=values.text(verdict.get("verdict")),
        reason=values.text(verdict.get("reason")),
        alpha=values.number(verdict.get("alpha")) or 0.01,
        claimed=values.text(verdict.get("claimed")),
        low=values.number(region.get("low")),
        high=values.number(region.get("high")),
        effects=tuple(_effect(row) for row in values.records(verdict.get("effects"))),
        assumes=tuple(values.text(item) for item in assumes) if isinstance(assumes, list) else (),
        hypothesis=next((one for one in hypotheses if values.text(one.get("part")) == part), {}),
    )


def claim_of(verdict: Mapping[str, Any]) -> Claim:
    """A verdict that no run stored, in the form of verdicts.json, as a page shows it."""
    return _claim(verdict, {})


def _effect(row: Mapping[str, Any]) -> Effect:
    notes = row.get("warnings")
    unit = values.text(row.get("unit"))
    read = values.number if unit else values.positive
    return Effect(
        workload=values.text(row.get("workload")),
        variant=values.text(row.get("variant")),
        baseline=values.text(row.get("baseline")),
        metric=values.text(row.get("metric")),
        unit=unit,
        value=read(row.get("value" if unit else "ratio")),
        low=read(row.get("low")),
        high=read(row.get("high")),
        rounds=int(values.number(row.get("rounds")) or 0),
        seconds=values.number(row.get("seconds")),
        verdict=values.text(row.get("verdict")),
        warnings=tuple(values.text(note) for note in notes) if isinstance(notes, list) else (),
    )


def _source(item: Any) -> str:
    if not isinstance(item, dict):
        return values.text(item)
    return ", ".join(values.text(item.get(key)) for key in ("document", "section") if item.get(key))


def _floors(controls: Sequence[Mapping[str, Any]]) -> dict[str, Floor]:
    floors: dict[str, Floor] = {}
    for row in controls:
        low, high = values.positive(row.get("low")), values.positive(row.get("high"))
        if low is None or high is None:
            continue  # still unbounded: it says nothing about the machine
        name, rounds = values.text(row.get("workload")), int(values.number(row.get("rounds")) or 0)
        have = floors.get(name, Floor(low, high, rounds, False))
        floors[name] = Floor(
            low=min(low, have.low),
            high=max(high, have.high),
            rounds=max(rounds, have.rounds),
            fired=have.fired or row.get("fired") is True,
        )
    return floors
