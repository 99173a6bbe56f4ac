"""What takes part in a run: experiments with their state, what they share, and what is excluded and why."""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from llama_workbench import variants
from llama_workbench.datasets.workloads import Workload
from llama_workbench.variants import FUNCTION_REFERENCE
from llama_workbench.variants.presets import presets

from ..calls.called import Call, is_beside
from ..calls.source import Source
from ..spec.comparison import Comparison, EnteredName
from ..spec.experiments import Experiment, without
from ..spec.sample import Round, Sample
from ..spec.words import ARCHITECTURE, Cause
from ..store.schema import (
    Apart,
    Clock,
    Excluded,
    ExperimentRecord,
    Gate,
    LostProcess,
    SideFacts,
    Trace,
    TraceDifference,
)
from ..store.schema import (
    Workload as WorkloadRecord,
)

LEAST_SIDE_SECONDS, MOST_SIDE_SECONDS = 0.03, 0.25

FIRST_PROCESSES, FIRST_SIDE_SECONDS = 4, 0.1
"""So many processes of functions are short: after them a large difference is seen (`stats.confidence.EARLY`)."""


@dataclass
class ProcessPace:
    """How long a process of functions samples each of so many sides: for a quarter of a second, or for what is left of
    `process_seconds` beside all else that a process takes, by the processes so far. What beginning one takes is
    then a small part of it, and what is left of the noise within it little beside what processes differ by. The
    first ones are shorter. processes: how many there were."""

    process_seconds: float
    sides: int
    beside_seconds: float | None = None
    processes: int = 0

    @property
    def side_seconds(self) -> float:
        """Of samples of each side, in the next process."""
        return min(self.usual_seconds, FIRST_SIDE_SECONDS) if self.processes < FIRST_PROCESSES else self.usual_seconds

    @property
    def usual_seconds(self) -> float:
        """The same, of one that is not short."""
        beside = self.process_seconds / 2 if self.beside_seconds is None else self.beside_seconds
        least, most = LEAST_SIDE_SECONDS, MOST_SIDE_SECONDS
        return min(max((self.process_seconds - beside) / max(self.sides, 1), least), most)

    def note(self, beside_seconds: float) -> None:
        """What a process took beside the samples of what is compared."""
        before = beside_seconds if self.beside_seconds is None else self.beside_seconds
        self.beside_seconds = (before + beside_seconds) / 2
        self.processes += 1

    def saved(self, processes: float) -> float:
        """How many seconds less the next so many processes sample each side than usual ones."""
        short = min(processes, max(FIRST_PROCESSES - self.processes, 0))
        return short * max(self.usual_seconds - FIRST_SIDE_SECONDS, 0.0)


@dataclass
class Tally:
    """How many rounds there were, and what they took."""

    rounds: int = 0
    seconds: float = 0.0
    first_seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """One more round."""
        self.rounds += 1
        self.seconds += seconds
        if self.rounds == 1:
            self.first_seconds = seconds

    def each(self, expected: float) -> float:
        """About how many seconds a round takes: as those before, or as `expected`.

        The first asks the system for all the memory that later ones find there, and takes longer.
        """
        if self.rounds > 1:
            return (self.seconds - self.first_seconds) / (self.rounds - 1)
        return self.first_seconds / 2 if self.rounds else expected


@dataclass
class Begin:
    """What beginning a process of a group takes, in seconds: as the last ones did. beside: whether the next one begins
    while one measures."""

    seconds: float = 0.0
    beside: bool = False

    def note(self, seconds: float) -> None:
        """One more has begun. The first find less in the caches of the machine than those after them."""
        self.seconds = (self.seconds + seconds) / 2 if self.seconds else seconds


class MeasureError(Exception):
    """Measuring cannot start or continue; the text says why."""


class Progress(Protocol):
    """Where progress is shown."""

    def phase(self, text: str) -> None:
        """A new stage begins."""

    def note(self, text: str) -> None:
        """One line that stays."""

    def step(self, text: str, done: float, seconds_left: float) -> None:
        """How far (0 to 1) the whole is, and about how long it still takes."""


@dataclass
class ExperimentState:
    """What is known of one experiment so far, by its names in run.json.

    folder: of its checkpoint. facts: see `SideFacts`. causes: of those that are excluded for one of its own, which.
    kept_together: variants that are too dear to load for one pair. learnt: by variant, what its gate found that other
    processes must know. lost_in_passes: who could not be taken in once the rounds were over, and why; what they
    measured before counts. horizon: how many processes its budget should give (see `set_horizons`); early: whether its
    series are looked at early (see `stats.confidence`). together: rounds of many variants; apart: of one pair each;
    blocks: how many of them were blocks. lost_blocks: those in which a side did less than a call while all computed;
    the next ones are longer. forgotten: numbers of rounds before these. pairs_apart: None until it is decided. sliced:
    of pairs that had a round, whether they are measured in blocks. beside_seconds: the least that a block took beside
    its samples. own_processes: each side has a process of its own, a fresh one in every round (see `Crew`);
    start_seconds: what starting them takes. pace: of functions. wall_seconds: of the clock, with starting the
    processes. begin: what that takes, the same of all in a group. first_seconds: what its first intervals should take,
    by an estimate before the first round. earlier: what sittings before this one measured. timed_in: variant → the
    processes in which it was timed."""

    experiment: Experiment
    folder: Path | None
    gates: dict[str, Gate] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    traces: dict[str, Trace] = field(default_factory=dict)
    trace_differences: list[TraceDifference] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    causes: dict[str, Cause] = field(default_factory=dict)
    wall_variants: list[str] = field(default_factory=list)
    kept_together: list[str] = field(default_factory=list)
    call_ns: dict[str, float] = field(default_factory=dict)
    learnt: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost_processes: list[LostProcess] = field(default_factory=list)
    lost_in_passes: dict[str, str] = field(default_factory=dict)
    horizon: int | None = None
    early: bool = True
    together: Tally = field(default_factory=Tally)
    apart: Tally = field(default_factory=Tally)
    blocks: int = 0
    lost_blocks: int = 0
    forgotten: int = 0
    pairs_apart: frozenset[Comparison] | None = None
    sliced: dict[Comparison, bool] = field(default_factory=dict)
    beside_seconds: float = math.inf
    own_processes: bool = False
    pace: ProcessPace | None = None
    start_seconds: float = 0.0
    sampled_seconds: float = 0.0
    compared_seconds: float = 0.0
    wall_seconds: float = 0.0
    begin: Begin = field(default_factory=Begin)
    first_seconds: float | None = None
    device: str = "cpu"
    earlier: ExperimentRecord | None = None
    timed_in: dict[str, set[int]] = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        """What it measures on."""
        return self.experiment.workload

    @property
    def name(self) -> str:
        """Of its workload."""
        return self.experiment.workload.name

    def record(self) -> ExperimentRecord:
        """As under "experiments" in run.json."""

        def whole(name: str) -> Any:
            """With what earlier sittings had."""
            return round((getattr(self.earlier, name, None) or 0) + getattr(self, name), 3)

        clock = "device" if self.device != "cpu" else "cpu" if self.workload.threads == 1 else "wall"
        apart = None
        if self.pairs_apart is not None:
            apart = [
                Apart(variant=pair.variant, baseline=pair.baseline, metric=pair.metric, blocks=self.sliced.get(pair))
                for pair in sorted(self.pairs_apart)
            ]
        return ExperimentRecord(
            workload=WorkloadRecord.model_validate(self.workload.model_dump()),
            variants=list(self.experiment.entered()),
            baseline=self.experiment.baseline,
            clock=Clock(default=clock, wall_variants=self.wall_variants),
            rounds=whole("rounds"),
            blocks=whole("blocks"),
            apart=apart,
            seconds=whole("seconds"),
            sampled_seconds=whole("sampled_seconds"),
            compared_seconds=whole("compared_seconds"),
            wall_seconds=whole("wall_seconds"),
            first_seconds=None if self.first_seconds is None else round(self.first_seconds, 3),
            gates=self.gates,
            facts={name: SideFacts.model_validate(facts) for name, facts in self.facts.items()},
            traces=self.traces,
            trace_differences=self.trace_differences,
            lost_processes=self.lost_processes,
            horizon=self.horizon,
            early=self.early,
            own_processes=self.own_processes,
            excluded=[
                Excluded(variant=name, reason=reason, cause=self.causes.get(name, Cause.EXCLUDED))
                for name, reason in self.excluded.items()
            ],
        )

    @property
    def rounds(self) -> int:
        """Of both kinds."""
        return self.together.rounds + self.apart.rounds

    @property
    def begun(self) -> int:
        """Rounds and blocks that were begun: the number of the next, by which its random choices are drawn."""
        return self.forgotten + self.rounds + self.lost_blocks

    @property
    def seconds(self) -> float:
        """Of both kinds."""
        return self.together.seconds + self.apart.seconds

    def note_facts(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """How sides ran, by a gate or a round; what one of them changed is kept."""
        for name, seen in facts.items():
            before = self.facts.get(name, {})
            changes = {each["what"]: each for each in (*before.get("changes", ()), *seen.get("changes", ()))}
            if together := {**before, **seen, **({"changes": [*changes.values()]} if changes else {})}:
                self.facts[name] = together

    def part(self, facts: Mapping[str, Mapping[str, Any]], start_seconds: float) -> bool:
        """Whether a round found who sets the collector beside others, as no gate had: from here on each side has a
        process of its own. start_seconds: what starting the shared one took."""
        if self.own_processes or self.device != "cpu" or not any(seen.get("sets_collector") for seen in facts.values()):
            return False
        self.note_facts(facts)
        self.own_processes, self.start_seconds, self.sliced = True, start_seconds, dict.fromkeys(self.sliced, False)
        return True

    def time_by_wall(self, names: Iterable[str]) -> bool:
        """Time these by wall from here on; whether that is new of one. Verdicts take all samples by one clock, also
        those that were made before."""
        new = [name for name in names if name not in self.wall_variants]
        for name in new:
            self.wall_variants.append(name)
            self.learnt[name]["own_threads"] = True
            self.sliced |= {pair: False for pair in self.sliced if name in pair.sides}
        return bool(new)

    def note_process(self, finished: Round) -> None:
        """Keep in which process these were timed."""
        for sample in finished.samples:
            self.timed_in.setdefault(sample.variant, set()).add(finished.process)

    def note_seconds(self, samples: Iterable[Sample], spent: float, *, sliced: bool) -> None:
        """Keep how much of the seconds of a round, or block, its samples took, and those of what is compared."""
        # In a block all sides wait for a busy neighbour at once: their wall times together may be longer than it was.
        seconds = [(sample.variant, sample.wall_ns / 1e9) for sample in samples]
        sampled = min(sum(taken for _, taken in seconds), spent)
        self.sampled_seconds += sampled
        compared = min(sum(taken for name, taken in seconds if not is_beside(name)), spent)
        self.compared_seconds += compared
        if self.pace is not None:
            self.pace.note(spent - compared)
        if sliced:
            self.blocks += 1
            self.beside_seconds = min(self.beside_seconds, max(spent - sampled, 0.0))

    @property
    def side_seconds(self) -> float:
        """For how long a process samples each side at least; 0 of models."""
        return self.pace.side_seconds if self.pace is not None else 0.0

    def processes_of(self, name: str | None) -> int:
        """In how many processes a variant was timed; without a name, any of them."""
        return len(self.timed_in.get(name, ()) if name else set().union(*self.timed_in.values()))

    def note_calls(self, samples: Iterable[Sample]) -> None:
        """Keep the least time of a call, of those that CPU time measures. A gate may have met a slow moment of the
        machine, and a pair that is alike would then not be taken for one (see `measure.choosing`)."""
        for name, typical in self.calls_of(samples).items():
            self.call_ns[name] = min(self.call_ns.get(name, math.inf), typical)

    def calls_of(self, samples: Iterable[Sample]) -> dict[str, float]:
        """Variant → the median time of a call (ns), of those that CPU time measures."""
        calls_ns: dict[str, list[float]] = {}
        for sample in samples if self.device == "cpu" and self.workload.threads == 1 else ():
            if sample.variant not in self.wall_variants:
                calls_ns.setdefault(sample.variant, []).append(sample.cpu_ns / sample.repeats)
        # A virtual machine's CPU clock may stand still for a sample.
        return {name: typical for name, each in calls_ns.items() if (typical := statistics.median(each)) > 0}

    def is_apart(self, pair: Comparison) -> bool:
        """Whether the pair is measured in rounds of its own (see `measure.choosing`)."""
        return pair in (self.pairs_apart or ())

    def to_settle(self) -> Experiment:
        """What rounds can settle of it: nothing about architecture where the op traces of both sides differ."""
        left, unlike = self.remaining(), [{e.baseline, e.variant} for e in self.trace_differences if not e.same]
        targets = tuple(
            goal for goal in left.targets if goal.evidence != ARCHITECTURE or goal.comparison.sides not in unlike
        )
        over = left.targets and not targets and not left.contrasts
        return replace(left, targets=targets, controls=() if over else left.controls)

    def exclude(self, name: str, reason: str, cause: Cause) -> None:
        """Leave a variant out of it, unless it is already."""
        if name not in self.excluded:
            self.excluded[name] = reason
            self.causes |= {name: cause} if cause is not Cause.EXCLUDED else {}

    def remaining(self) -> Experiment:
        """The experiment without what was excluded. Of functions nothing is left without their baseline, which gives
        the right answers; but where it cannot be imported it is asked whether they can."""
        alone = self.workload.kind == "call" and self.experiment.baseline in self.excluded
        alone = alone and self.causes.get(self.experiment.baseline) is not Cause.NOT_IMPORTED
        return without(self.experiment, self.experiment.entered() if alone else self.excluded)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all measuring of a run has in common."""

    added: Mapping[str, Source]  # name of an added variant → where the function is that builds it
    functions: Mapping[str, Source] = field(default_factory=dict)  # the same of any other function
    calls: Mapping[str, Call] = field(default_factory=dict)  # workload → what these are called with
    device: str  # "cpu" or "cuda"
    folders: Mapping[str, Path]  # of each geometry's checkpoint
    parameters: Mapping[str, int]  # how many, by geometry
    no_room: Mapping[str, str] = field(default_factory=dict)  # workload → why its model cannot be measured here
    cache: Path
    logs: Path
    seed: int
    progress: Progress
    strict: bool = False  # functions of the user's are held to as much as foreign code
    budget_seconds: float = math.inf  # of rounds; infinite where nobody waits for a first interval
    # Decides which prompts are timed; nobody can know it before the run, and answers cannot be prepared.
    draw: str = field(default_factory=lambda: secrets.token_hex(8))

    def draw_of(self, process: int) -> str:
        """Which prompts a process times."""
        return f"{self.draw} {process}"

    def is_users(self, name: str) -> bool:
        """Whether the user named the file or module that a variant is in."""
        return name in self.added or name in self.functions


class Participants:
    """Who takes part in a run, and who is excluded and why.

    states: the state of each experiment, whatever happens. excluded: from the whole run, with the reason. changed:
    called on what run.json must say before the next round is kept.
    """

    def __init__(
        self, experiments: Sequence[Experiment], setting: Setting, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.setting = setting
        self.excluded: dict[str, str] = {}
        self.changed = changed
        self.states = [
            ExperimentState(
                experiment,
                setting.folders.get(experiment.workload.geometry) if experiment.workload.has_model else None,
                device=setting.device,
            )
            for experiment in experiments
        ]

    def is_compiled(self, entered: str) -> bool:
        """Whether torch compiles it, which takes minutes at its gate."""
        name = EnteredName(entered).original
        return not self.setting.is_users(name) and variants.get(name).compiled

    def is_outside(self, entered: str) -> bool:
        """Whether a variant is foreign code. The reference benchmark of functions is none, however it is imported."""
        name = EnteredName(entered).original
        return name != FUNCTION_REFERENCE and (self.setting.is_users(name) or name not in presets())

    def exclude_unfit(self) -> None:
        """Exclude what can be built nowhere in this run, as an engine that is not installed or a model without room."""
        for name in dict.fromkeys(name for state in self.states for name in state.experiment.variants):
            if reason := self._unfit(name):
                self._exclude_everywhere(name, reason, Cause.REFUSED)
        for state in self.states:
            if reason := self.setting.no_room.get(state.name):
                for name in state.remaining().entered():
                    state.exclude(name, reason, Cause.REFUSED)
                self.changed()
                self.setting.progress.note(f"{state.name} is left out")

    def exclude(self, name: str, reason: str, state: ExperimentState, cause: Cause = Cause.EXCLUDED) -> None:
        """Exclude a variant: of ours from this workload; from outside, or not installed, from the whole run."""
        of_users = self.setting.is_users(name) and name != FUNCTION_REFERENCE
        if of_users or (not EnteredName(name).is_control and self._unfit(name)):
            self._exclude_everywhere(name, reason, cause)
        elif name not in state.excluded:
            state.exclude(name, reason, cause)
            self.changed()
            self.setting.progress.note(f"{name} is left out of {state.name}")

    def _exclude_everywhere(self, name: str, reason: str, cause: Cause) -> None:
        if name not in self.excluded:
            self.setting.progress.note(f"{name} is left out")
        self.excluded.setdefault(name, reason)
        for state in self.states:
            if name in state.experiment.variants:
                state.exclude(name, reason, cause)
        self.changed()

    def _unfit(self, name: str) -> str | None:
        """Why a variant can be built nowhere in this run; None where it may be tried."""
        if self.setting.is_users(name):
            return None
        if self.setting.device != "cpu" and variants.get(name).engine is not None:
            return f"an engine that computes on the CPU; this run measures on {self.setting.device}"
        return variants.missing(name)
