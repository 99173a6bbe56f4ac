"""One run as pages show it: claims with their effects, memory, profiles, and what is known of the machine.

The files may come from anywhere. What is wrong with a whole run is a `RunError` of the store; what pages alone read
counts as missing where it is of a wrong kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from llama_workbench.harness.evidence.numbers import percent
from llama_workbench.harness.metrics.base import Metric
from llama_workbench.harness.metrics.registry import metric_of, names
from llama_workbench.harness.metrics.share.shares import calls_alone
from llama_workbench.harness.profilers import py_spy
from llama_workbench.harness.profilers.peak_memory import MEMORY, Memory
from llama_workbench.harness.report.text import excluded_lines, short, value_text
from llama_workbench.harness.spec.comparison import TIMES
from llama_workbench.harness.spec.conditions import FAIL_IF
from llama_workbench.harness.spec.dispute import Dispute, dispute_of
from llama_workbench.harness.spec.sides import ARCHITECTURE, OPERATIONS, factor_of
from llama_workbench.harness.spec.words import Cause
from llama_workbench.harness.store import schema
from llama_workbench.harness.store.errors import RunError
from llama_workbench.harness.store.files import MANIFEST, VERDICTS
from llama_workbench.harness.store.folder import RunFolder

from .. import words
from ..flames.tree import Frame, Scale, StackError, read_folded
from . import workloads
from .definitions import DEFINITIONS, Definition, Hypothesis

LARGEST_PROFILE_BYTES = 64 << 20
T = TypeVar("T")

# -- what pages show ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """One row of evidence: with a `unit` a value, else the ratio t_baseline / t_variant. An open end is None."""

    workload: str
    variant: str = ""
    baseline: str = ""
    metric: str = ""
    unit: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    seconds: float | None = None
    verdict: str = ""
    notes: tuple[str, ...] = ()
    seconds_more: float | None = None  # that would settle it; infinite where none would, None where nobody knows
    named: str = ""  # the workload in words
    machine: str = ""  # on which of several
    cause: Cause = Cause.NONE
    reason: str = ""
    one_sided: bool = False  # whether each end of the interval holds at alpha, and not both together

    @property
    def said(self) -> tuple[str, ...]:
        """All that there is to say of it: the reason, then the notes."""
        return (self.reason, *self.notes) if self.reason else self.notes

    @property
    def text(self) -> str:
        """The value with its interval."""
        if self.unit:
            return value_text({"value": self.value, "low": self.low, "high": self.high, "unit": self.unit})
        return words.effect(self.value, self.low, self.high)

    @property
    def told(self) -> str:
        """The same; says why there is no value, or no interval."""
        if self.value is None:
            return "not measured"
        if self.low is None or self.high is None:
            return f"{short(self.value)} {self.unit}, too few rounds for an interval ({self.rounds})"
        return self.text

    @property
    def sides(self) -> str:
        """Who was measured: "NAME against BASELINE", or what was measured where no variant was."""
        return " against ".join(name for name in (self.variant, self.baseline) if name) or self.metric

    @property
    def where(self) -> str:
        """The workload in words; of a value without one, what was measured. Of several machines also the machine."""
        return " on ".join(filter(None, (self.named or self.workload or self.metric, self.machine)))

    @property
    def factor(self) -> str:
        """The factor, interaction or side of a grid that it is the effect of; "" for any other effect."""
        return factor_of(self.variant, self.baseline)


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
    cause: Cause = Cause.NONE
    due_to: str = ""
    assumes: tuple[str, ...] = ()
    hypothesis: Hypothesis = field(default_factory=Hypothesis)

    @property
    def metric(self) -> Metric[Any] | None:
        """What decides it; None where two sides were timed, or the metric is not known here."""
        name = self.hypothesis.metric
        return metric_of(name) if name in {*names()} - {*TIMES} else None

    @property
    def kind(self) -> str:
        """The metric's name, "time" where two sides were timed."""
        return self.metric.names[0] if self.metric else "value" if self.unit else "time"

    @property
    def is_factorial(self) -> bool:
        """Whether its rows are effects of a grid's factors, with both sides of the split among them."""
        return {ARCHITECTURE, OPERATIONS} <= {effect.factor for effect in self.effects}

    @property
    def unit(self) -> str:
        """The unit of its effects; empty where they are ratios of times."""
        return next((effect.unit for effect in self.effects if effect.unit), "")

    @property
    def is_comparison(self) -> bool:
        """True for `--compare A B`, where nobody claimed anything and the region is the margin of "same"."""
        return self.id == "ad-hoc"

    @property
    def is_condition(self) -> bool:
        """True for `--fail-if`, where nobody claimed anything and the region is what was asked about."""
        return self.id == FAIL_IF

    @property
    def range_word(self) -> str:
        """What its region is."""
        return "margin" if self.is_comparison else "asked" if self.is_condition else "claimed"

    @property
    def notes(self) -> list[str]:
        """What is said of its effects, each once, after the workloads that have it."""
        where: dict[str, list[str]] = {}
        for effect in self.effects:
            for note in effect.said:
                where.setdefault(note, []).append(effect.where)
        return [f"{words.listing(list(dict.fromkeys(names)))}: {note}" for note, names in where.items()]


@dataclass(frozen=True)
class Floor:
    """How identical code came out on one workload: of its controls the one whose ratio is furthest from 1.

    fired: whether any of them did.
    """

    value: float
    low: float
    high: float
    rounds: int
    fired: bool

    @property
    def text(self) -> str:
        """The ratio with its interval."""
        return words.effect(self.value, self.low, self.high)


def identical_code(floors: Iterable[Floor]) -> str:
    """How far from 1 controls came out, and how well that is known, in the words of every page; empty without one."""
    known = list(floors)
    if not known:
        return ""
    furthest = max(abs(math.log(floor.value)) for floor in known)
    widest = max(math.log(floor.high / floor.low) / 2 for floor in known)
    within, half = (percent(math.expm1(distance)) for distance in (furthest, widest))
    return f"identical code came out within {within} of 1 (widest interval ±{half})"


@dataclass(frozen=True)
class Profile:
    """One sampled profile. `root` is None where there is none, and `reason` says why."""

    row: py_spy.Profile
    root: Frame | None
    reason: str

    @property
    def scale(self) -> Scale | None:
        """What turns samples into time; None where samples or the time of a call are missing."""
        if self.root is None or self.row.median_ns is None:
            return None
        return Scale(self.root.samples, self.row.median_ns, self.row.median_error_ns or None)


@dataclass(frozen=True)
class Run:
    """One run: everything the pages show, but the samples, the passes' files, and the profiles (`read_profile`)."""

    path: Path
    manifest: schema.Manifest
    claims: tuple[Claim, ...]
    floors: Mapping[str, Floor]
    profiles: Mapping[tuple[str, str], py_spy.Profile]  # by workload and variant
    memory: Mapping[tuple[str, str], Memory]  # by workload and variant
    left_out: tuple[str, ...]  # variants that the run went on without, each with the reason
    problems: tuple[str, ...]  # files of this run that could not be read; the rest is shown
    noise: schema.Noise = field(default_factory=schema.Noise)
    environment: Mapping[str, Any] = field(default_factory=dict)  # as in run.json
    names: Mapping[str, str] = field(default_factory=dict)  # of its workloads in words

    @property
    def id(self) -> str:
        """The run's own name, else that of its folder."""
        return self.manifest.id or self.path.name

    @cached_property
    def dispute(self) -> Dispute:
        """What is asked about its claims."""
        return dispute_of({"dispute": self.manifest.dispute})

    @property
    def alpha(self) -> float:
        """The error rate of the whole report."""
        return self.manifest.alpha

    @property
    def is_of_functions(self) -> bool:
        """Whether it compared functions and no models."""
        return {one.workload.kind for one in self.manifest.experiments} == {"call"}

    def named(self, workload: str) -> str:
        """A workload in words; its own name where the run does not list it."""
        return self.names.get(workload, workload)

    @property
    def unfinished(self) -> str:
        """What to know of a run that did not end by itself; empty of one that did."""
        told = f"This run is {self.manifest.status or 'of unknown status'}: it shows what it had measured by then."
        return "" if self.manifest.status == "complete" else told

    @property
    def doubts(self) -> list[str]:
        """What is wrong with the run as a whole, and so with all of its numbers."""
        fired = [self.named(name) for name, floor in self.floors.items() if floor.fired]
        told = (
            f"A control fired on {words.listing(fired)}: this machine reports a difference between identical code. "
            "Trust a verdict there only if it survives a bias of that size."
        )
        return [*[told] * bool(fired), *(f"Left out: {problem}" for problem in self.problems)]


def experiment(run: Run, workload: str) -> schema.ExperimentRecord:
    """What run.json says of a workload; an empty entry where it does not list it."""
    nothing = schema.ExperimentRecord(workload=schema.Workload(name=""), variants=[])
    return next((one for one in run.manifest.experiments if one.workload.name == workload), nothing)


# -- reading ---------------------------------------------------------------------------------------------------------


def read_run(path: Path) -> Run:
    """Read one run. Raises RunError where the manifest or the verdicts cannot be read."""
    folder = RunFolder(path)
    content = folder.read_manifest()
    verdicts = schema.VERDICTS.validate_python(folder.records(VERDICTS))
    problems: list[str] = []
    definitions = DEFINITIONS.form.validate_python(records_or_none(folder, DEFINITIONS, problems))
    claims = {claim.id: claim for claim in definitions}
    memory = MEMORY.form.validate_python(records_or_none(folder, MEMORY, problems))
    profiles = py_spy.PROFILES.form.validate_python(records_or_none(folder, py_spy.PROFILES, problems))
    manifest = schema.MANIFEST.validate_python(content)
    noise = manifest.noise or schema.Noise()
    problems += [f"{MANIFEST}: {problem}" for problem in noise.damaged]
    names = workloads.all_named(manifest)
    return Run(
        path=path,
        manifest=manifest,
        claims=tuple(claim_of(verdict, claims.get(verdict.claim, Definition()), names) for verdict in verdicts),
        floors=_floors(noise.controls),
        profiles={(row.workload, row.variant): row for row in profiles},
        memory={(row.workload, row.variant): row for row in memory},
        left_out=tuple(excluded_lines(content)),
        problems=tuple(problems),
        noise=noise,
        environment=content.get("environment") or {},
        names=names,
    )


def read_or(nothing: T, read: Callable[[], T], problems: list[str]) -> T:
    """What `read` gives; `nothing` where a file cannot be read, which is then one of the problems."""
    try:
        return read()
    except RunError as error:
        problems.append(words.problem(error))
        return nothing


def records_or_none(folder: RunFolder, name: str, problems: list[str]) -> list[Any]:
    """The records of a file; an empty list where it cannot be read, which is then one of the problems."""
    return read_or([], partial(folder.records, name), problems)


def read_profile(run: Run, workload: str, variant: str) -> Profile | None:
    """The profile of one variant on one workload; None where the run made none."""
    if (row := run.profiles.get((workload, variant))) is None:
        return None
    if row.path is None:
        return Profile(row, None, row.reason or "the run gives no reason")
    try:
        root = read_folded(calls_alone(profile_text(run, workload, variant)))
    except StackError as error:
        return Profile(row, None, f"{row.path}: {error}")
    return Profile(row, root, "") if root.samples else Profile(row, None, "the profiler took no sample")


def profile_text(run: Run, workload: str, variant: str) -> str:
    """The folded stacks of a profile as the run keeps them. Raises StackError where they cannot be read."""
    row = run.profiles.get((workload, variant))
    if row is None or row.path is None:
        raise StackError("the run has no such profile")
    try:
        return RunFolder(run.path).sums.read_text(row.path, LARGEST_PROFILE_BYTES)
    except RunError as error:
        raise StackError(f"{error.problem}. {error.fix}") from error
    except OSError as error:
        raise StackError(f"the profile's file cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise StackError(str(error)) from error


def claim_of(verdict: schema.Verdict, definition: Definition, names: Mapping[str, str]) -> Claim:
    """A verdict as a page shows it, with what `definition` says of its claim, and the workloads' `names` in words."""
    part = verdict.part or ""
    region = verdict.region or schema.Ends()
    sources = [", ".join(filter(None, (each.document, each.section))) for each in definition.source]
    return Claim(
        id=verdict.claim,
        part=part,
        low=region.low,
        high=region.high,
        source="; ".join(filter(None, sources)),
        decided_by=definition.decided_by,
        effects=tuple(_effect(row, names) for row in verdict.effects),
        assumes=definition.assumes,
        hypothesis=next((each for each in definition.hypothesis if each.part == part), Hypothesis()),
        title=verdict.title or definition.title or verdict.claim,
        statement=verdict.statement or definition.statement,
        alpha=0.01 if math.isnan(verdict.alpha) else verdict.alpha,
        **{name: getattr(verdict, name) for name in ("who", "verdict", "reason", "cause", "claimed", "due_to")},
    )


def _effect(row: schema.Effect, names: Mapping[str, str]) -> Effect:
    ends = {"value": row.ratio, "low": row.low, "high": row.high}
    shared = {key: value for key, value in vars(row).items() if key not in {*ends, "ratio", "seconds_more", "horizon"}}
    finite: dict[str, Any] = {name: end for name, end in ends.items() if math.isfinite(end) and (row.unit or end > 0)}
    more = None if math.isnan(row.seconds_more) else row.seconds_more
    return Effect(**shared, **finite, seconds_more=more, named=names.get(row.workload, ""))


def _floors(controls: Iterable[schema.Control]) -> dict[str, Floor]:
    floors: dict[str, Floor] = {}
    # One that is still unbounded says nothing about the machine.
    for row in (each for each in controls if math.isfinite(each.shift) and not math.isnan(each.centre)):
        own = Floor(math.exp(row.centre), math.exp(row.low), math.exp(row.high), row.rounds, row.fired)
        have = floors.get(row.workload, own)
        furthest = max(own, have, key=lambda one: abs(math.log(one.value)))
        floors[row.workload] = replace(furthest, fired=own.fired or have.fired)
    return floors
