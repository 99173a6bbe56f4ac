"""One run as pages show it: claims with their effects, memory, profiles, and what is known of the machine.

The files may come from anywhere. What is wrong with a whole run is a `RunError` of the store; what pages alone read
counts as missing where it is of a wrong kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BeforeValidator

from llama_workbench.harness.evidence.effect import ALPHA, exp, half_width, percent
from llama_workbench.harness.machine.lifeline import is_held
from llama_workbench.harness.metrics.base import Metric
from llama_workbench.harness.metrics.registry import metric_of, names
from llama_workbench.harness.report.outcome import trust_of
from llama_workbench.harness.report.text import excluded_lines
from llama_workbench.harness.report.workload_names import distinct, named
from llama_workbench.harness.spec.comparison import TIMES
from llama_workbench.harness.spec.comparison import Metric as TimeMetric
from llama_workbench.harness.spec.dispute import Dispute
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.confidence import Interval
from llama_workbench.harness.store import passes, schema
from llama_workbench.harness.store.files import CLAIMS, VERDICTS, RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import JsonFile, Shape, Text
from llama_workbench.harness.store.passes import MEMORY, PROFILES, Memory
from llama_workbench.harness.store.verdict_schema import Effect, Verdict

from .. import words

T = TypeVar("T")

# -- a claim as it was when the run was made, out of claims.json -------------------------------------------------------


class Source(Shape):
    """Where a claim was made."""

    document: Text = ""
    section: Text = ""


class Hypothesis(Shape):
    """One part of a claim: what was to be measured. A single baseline becomes a list of one."""

    part: Text = ""
    metric: Text = ""
    quantity: Text = ""
    of: Text = ""
    variant: Text = ""
    baseline: Annotated[
        tuple[Text, ...], BeforeValidator(lambda names: [names] if isinstance(names, str) else names)
    ] = ()
    workloads: tuple[Text, ...] = ()
    phases: tuple[Text, ...] = ()


class Definition(Shape):
    """A claim with all its parts."""

    id: Text = ""
    title: Text = ""
    statement: Text = ""
    source: tuple[Source, ...] = ()
    decided_by: Text = ""
    assumes: tuple[Text, ...] = ()
    hypothesis: tuple[Hypothesis, ...] = ()


DEFINITIONS = JsonFile(CLAIMS, list[Definition])


# -- what pages show ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Claim(Verdict):
    """The verdict on one claim, or on one part of it, with what the claim itself says. What nobody said is empty:
    figures also show effects that belong to no claim."""

    source: str = ""
    decided_by: str = ""
    assumes: tuple[str, ...] = ()
    hypothesis: Hypothesis = field(default_factory=Hypothesis)

    @property
    def metric(self) -> Metric[Any] | None:
        """What decides it; None where two sides were timed, or the metric is not known here."""
        name = self.hypothesis.metric
        return metric_of(name) if name in {*names()} - {*TIMES} else None

    @property
    def time(self) -> TimeMetric:
        """Which time its comparisons are by."""
        return next((each for each in get_args(TimeMetric) if each == self.hypothesis.metric), "time")

    @property
    def kind(self) -> str:
        """The metric's name, "time" where two sides were timed."""
        return self.metric.names[0] if self.metric else "value" if self.unit else "time"

    @property
    def range_word(self) -> str:
        """What its region is."""
        return "margin" if self.is_comparison else "asked" if self.is_condition else "claimed"

    def with_threshold(self, text: str) -> str:
        """`text`, with the threshold of a claim on a value behind it where the text does not have it: "Cached masks
        cost too much memory, above 10 %"."""
        ends = [end for end in (self.low, self.high) if end is not None]
        if not self.unit or len(ends) != 1 or re.search(rf"\b{ends[0]:g}\b", text):
            return text
        return f"{text}, {self.claimed}"

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
        return words.ratio(self.value, self.low, self.high)


def identical_code(floors: Iterable[Floor]) -> str:
    """How far from 1 controls came out, and how well that is known, in the words of every page; empty without one."""
    known = list(floors)
    if not known:
        return ""
    furthest = max(abs(math.log(floor.value)) for floor in known)
    widest = max(math.log(floor.high / floor.low) / 2 for floor in known)
    within, half = (math.expm1(distance) for distance in (furthest, widest))
    return f"identical code came out within {percent(within)} of 1 (widest interval {half_width(half)})"


@dataclass(frozen=True)
class Run:
    """One run: everything the pages show, but the samples, the passes' files, and the profiles."""

    path: Path
    manifest: schema.Manifest
    claims: tuple[Claim, ...]
    floors: Mapping[str, Floor]
    profiles: Mapping[tuple[str, str], passes.Profile]  # by workload and variant
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
        return self.manifest.dispute

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
        status = self.manifest.status or "of unknown status"
        if status == "complete":
            return ""
        if status == "running":
            word = "goes on" if is_held(self.path) else "was killed"
            return f"This run {word}: it shows what it had measured by then."
        return f"This run is {status}: it shows what it had measured by then."

    @property
    def doubts(self) -> list[str]:
        """What is wrong with the run as a whole, and so with all of its numbers."""
        fired = [self.named(name) for name, floor in self.floors.items() if floor.fired]
        doubt = (
            f"An A/A check failed on {words.listing(fired)}: identical code came out as different there. "
            f"{trust_of(self.noise).means}"
        )
        return [*[doubt] * bool(fired), *(f"Left out: {problem}" for problem in self.problems)]


def experiment(run: Run, workload: str) -> schema.ExperimentRecord:
    """What run.json says of a workload; an empty entry where it does not list it."""
    nothing = schema.ExperimentRecord(workload=schema.Workload(name=""), variants=[])
    return next((one for one in run.manifest.experiments if one.workload.name == workload), nothing)


# -- reading ---------------------------------------------------------------------------------------------------------


def read_run(path: Path) -> Run:
    """Read one run. Raises RunError where the manifest or the verdicts cannot be read."""
    folder = RunFolder(path)
    manifest = folder.manifest()
    verdicts: tuple[Verdict, ...] = folder.read(VERDICTS)
    problems: list[str] = []
    definitions = read_or_none(folder, DEFINITIONS, problems)
    claims = {claim.id: claim for claim in definitions}
    memory = read_or_none(folder, MEMORY, problems)
    profiles = read_or_none(folder, PROFILES, problems)
    noise = manifest.noise or schema.Noise()
    names = distinct({one.workload.name: named(one.workload) for one in manifest.experiments})
    return Run(
        path=path,
        manifest=manifest,
        claims=tuple(claim_of(verdict, claims.get(verdict.claim, Definition()), names) for verdict in verdicts),
        floors=_floors(noise.controls),
        profiles={(row.workload, row.variant): row for row in profiles},
        memory={(row.workload, row.variant): row for row in memory},
        left_out=tuple(excluded_lines(manifest)),
        problems=tuple(problems),
        noise=noise,
        environment=manifest.machine_facts,
        names=names,
    )


def read_or(nothing: T, read: Callable[[], T], problems: list[str]) -> T:
    """What `read` gives; `nothing` where a file cannot be read, which is then one of the problems."""
    try:
        return read()
    except RunError as error:
        problems.append(words.problem(error))
        return nothing


def read_or_none(folder: RunFolder, file: JsonFile, problems: list[str]) -> list[Any]:
    """The entries of a file; an empty list where it cannot be read, which is then one of the problems."""
    return read_or([], partial(folder.read, file), problems)


def claim_of(verdict: Verdict, definition: Definition, names: Mapping[str, str]) -> Claim:
    """A verdict with what `definition` says of its claim, and the workloads' `names` in words."""
    shown: dict[str, Any] = {
        "title": verdict.title or definition.title or verdict.claim,
        "statement": verdict.statement or definition.statement,
        "alpha": ALPHA if math.isnan(verdict.alpha) else verdict.alpha,
        "effects": tuple(replace(each, named=names.get(each.workload, "")) for each in verdict.effects),
    }
    sources = [", ".join(filter(None, (each.document, each.section))) for each in definition.source]
    return Claim(
        **vars(verdict) | shown,
        source="; ".join(filter(None, sources)),
        decided_by=definition.decided_by,
        assumes=definition.assumes,
        hypothesis=next((each for each in definition.hypothesis if each.part == verdict.part), Hypothesis()),
    )


def figure(title: str, alpha: float, effects: tuple[Effect, ...], **more: Any) -> Claim:
    """Rows that belong to no claim, for a figure."""
    return Claim(claim="", who=(), title=title, verdict=Word.NOT_ASKED, reason="", alpha=alpha, effects=effects, **more)


def unasked(interval: Interval | None = None, **names: Any) -> Effect:
    """A number of the page's own as a row like those that were judged; `names`: of its sides, its unit and the like.

    interval: of the log ratio; of a value, in its unit.
    """
    centre, low, high, rounds = (math.nan, -math.inf, math.inf, 0) if interval is None else astuple(interval)[:4]
    if not names.get("unit"):
        centre, low, high = map(exp, (centre, low, high))
    usual = {"workload": "", "variant": "", "baseline": "", "verdict": Word.NOT_ASKED, "seconds": 0.0}
    return Effect(ratio=centre, low=low, high=high, rounds=rounds, **{**usual, **names})


def _floors(controls: Iterable[schema.Control]) -> dict[str, Floor]:
    floors: dict[str, Floor] = {}
    # One that is still unbounded says nothing about the machine.
    for row in (each for each in controls if math.isfinite(each.shift) and not math.isnan(each.centre)):
        own = Floor(math.exp(row.centre), math.exp(row.low), math.exp(row.high), row.rounds, row.fired)
        have = floors.get(row.workload, own)
        furthest = max(own, have, key=lambda floor: abs(math.log(floor.value)))
        floors[row.workload] = replace(furthest, fired=own.fired or have.fired)
    return floors
