"""From experiments to rounds of samples: fresh processes, gates first, then rounds until everything is settled.

One process per checkpoint (and one for components) measures. Gates, which time calls only to size samples, run in
several of them at once; rounds in one at a time, and nothing beside it. A variant that raises, answers wrongly, hangs,
leaks or kills its process falls out with a reason, and the rest goes on. Who decides that an effect is settled is told
to the loop by its caller (`Referee`): this module knows no statistics.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from llama_workbench import variants
from llama_workbench.variants.presets import presets

from ..machine.environment import granted_cores
from ..spec.experiments import Experiment, without
from .examination import Examination
from .processes import Answer, Job, WorkerFailed, WorkerProcess, side_by_side

OPEN_SECONDS = 300.0
GATE_SECONDS = 60.0
GATE_SECONDS_PER_PARAMETER = 2e-7
GATE_SECONDS_PER_TOKEN = 0.05
COMPILE_SECONDS = 600.0
"""What torch.compile may take on top, for the gates' twenty kinds of call; the next process finds them on disk."""
ROUND_SECONDS = 30.0
"""A variant that has not answered after this long hangs (a round: and 20 times what its calls should take)."""

MOST_LANES = 4
"""So many checkpoints are gated at once at most: each holds a model, a reference and what its variants pack."""

INTRUDES = "writes into the pipe by which its process answers"

SLICE_SECONDS = 3.0
"""An experiment measures this long before another takes its turn."""


class MeasureError(Exception):
    """Measuring cannot start or go on at all; the text says why."""


class Progress(Protocol):
    """Where progress is shown."""

    def phase(self, text: str) -> None:
        """A new stage begins."""

    def note(self, text: str) -> None:
        """One line that stays."""

    def step(self, text: str, done: float, seconds_left: float) -> None:
        """How far (0 to 1) the whole is, and about how long it still takes."""


@dataclass(frozen=True)
class Need:
    """What an experiment still needs. `rounds_next`: until the next effect settles; `rounds_all`: until all do.

    Both are estimates, infinite where nothing can be said. No variants: all is settled. `early`: too few rounds yet
    for any interval of some effect; `rounds_next` is then until all have one, which is known. `effects`: how many are
    not settled.
    """

    variants: tuple[str, ...]
    early: bool
    rounds_next: float
    rounds_all: float
    effects: int = 1


class Referee(Protocol):
    """Decides what still needs rounds."""

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a finished round in."""

    def need(self, experiment: Experiment) -> Need:
        """Variants and pairs that still need rounds, and about how many."""


@dataclass
class Bookkeeping:
    """What is known of one experiment so far, in the terms of run.json."""

    experiment: Experiment
    folder: Path | None
    gates: dict[str, dict[str, Any]] = field(default_factory=dict)
    traces: dict[str, dict[str, Any]] = field(default_factory=dict)
    trace_differences: list[dict[str, Any]] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    wall_variants: list[str] = field(default_factory=list)
    call_ns: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    seconds: float = 0.0
    first_seconds: float = 0.0
    device: str = "cpu"
    confirmations: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As under "experiments" in run.json."""
        workload = self.experiment.workload
        return {
            "workload": workload.model_dump(),
            "variants": list(self.experiment.entered()),
            "baseline": self.experiment.baseline,
            "clock": {"default": self._clock(), "wall_variants": self.wall_variants},
            "rounds": self.rounds,
            "seconds": round(self.seconds, 3),
            "gates": self.gates,
            "traces": self.traces,
            "trace_differences": self.trace_differences,
            "confirmations": self.confirmations,
            "excluded": [{"variant": name, "reason": reason} for name, reason in self.excluded.items()],
        }

    def _clock(self) -> str:
        if self.device != "cpu":
            return "device"
        return "cpu" if self.experiment.workload.threads == 1 else "wall"

    def round_seconds(self) -> float:
        """About how long a round takes: as those before, or a build, a warm-up and a sample of each variant.

        The first asks the system for all the memory that later ones find there, and takes longer.
        """
        if self.rounds > 1:
            return (self.seconds - self.first_seconds) / (self.rounds - 1)
        return self.first_seconds / 2 if self.rounds else 3 * sum(self.call_ns.values()) / 1e9

    def remaining(self) -> Experiment:
        """The experiment without what fell out."""
        return without(self.experiment, self.excluded)


def next_to_measure(open_: Sequence[tuple[Bookkeeping, Need]], seconds_left: float) -> Bookkeeping:
    """Whose turn it is among experiments that need rounds: one that has no interval yet and still can have one, that
    with the least time for each effect first; when none is left, the one where an effect can be settled soonest.

    What cannot get its first interval any more comes last, whatever it was promised: its rounds would say nothing,
    and others would go without.
    """

    def order(entry: tuple[Bookkeeping, Need]) -> tuple[int, float, float]:
        book, need = entry
        seconds = need.rounds_next * book.round_seconds()
        if not need.early:
            return 1, seconds, book.seconds
        return 0 if seconds <= seconds_left else 2, seconds / need.effects, book.seconds

    return min(open_, key=order)[0]


@dataclass
class Group:
    """Experiments that share a process, because they share a checkpoint."""

    folder: Path | None
    parameters: int
    threads: int
    books: list[Bookkeeping]
    process: WorkerProcess | None = None
    processes: int = 0


class Measurement:
    """The measuring of one plan. `books` holds what was found, whatever happens."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        *,
        added: Mapping[str, str],
        device: str,
        folders: Mapping[str, Path],
        parameters: Mapping[str, int],
        cache: Path,
        logs: Path,
        seed: int,
        progress: Progress,
    ) -> None:
        self.added = added
        self.kind = device
        self.cache = cache
        self.logs = logs
        self.seed = seed
        self.progress = progress
        self.excluded: dict[str, str] = {}
        self.checkpoints: dict[str, dict[str, Any]] = {}
        self.device: dict[str, Any] = {"kind": device}
        # Which prompts are timed; nobody can know it before the run, and answers cannot lie ready.
        self.draw = secrets.token_hex(8)
        self.examination: Examination | None = None
        self._ahead: tuple[str, Answer] | None = None
        self.changed: Callable[[], None] = lambda: None  # told of what rounds are judged by: gates, what fell out
        self.books = [Bookkeeping(e, folders.get(e.workload.geometry), device=device) for e in experiments]
        for book in self.books:
            if book.experiment.workload.kind == "component":
                book.folder = None
        groups: dict[tuple[Any, ...], Group] = {}
        for book in self.books:
            workload = book.experiment.workload
            key = (book.folder, workload.dtype, workload.threads)
            size = parameters.get(workload.geometry, 0) if book.folder else 0
            groups.setdefault(key, Group(book.folder, size, workload.threads, [])).books.append(book)
        self.groups = list(groups.values())

    @contextmanager
    def processes(self) -> Iterator[None]:
        """Ends the measuring processes on the way out, however that is."""
        try:
            yield
        finally:
            for group in self.groups:
                self.end(group)
            if self.examination is not None:
                self.examination.close()
                self.examination = None

    def end(self, group: Group) -> None:
        """End the group's process, if it has one; `standing` begins another."""
        if group.process is not None:
            group.process.close()
            group.process = None

    def _is_compiled(self, entered: str) -> bool:
        name = entered.partition("@")[0]
        return name not in self.added and variants.get(name).compiled

    # -- gates ---------------------------------------------------------------------------------------------------

    def pass_gates(self) -> None:
        """Start the processes and let every variant show its logits, its op trace and the time of a call.

        An engine whose package is not installed, or that does not compute on this device, falls out of the whole run
        first.
        """
        for name in dict.fromkeys(name for book in self.books for name in book.experiment.variants):
            if reason := self._unfit(name):
                self._exclude_everywhere(name, reason)
        if self.examination is None and any(book.folder for book in self.books):
            self.examination = Examination(cache=self.cache, log=self.logs / "examiner.log")
        total = sum(len(book.experiment.entered()) for book in self.books)
        done = 0

        def told(book: Bookkeeping, name: str) -> None:
            nonlocal done
            done += 1
            self.progress.step(f"gate {book.experiment.workload.name}: {name}", min(done / total, 1.0), float("nan"))

        models = [self._starting(group, told) for group in self.groups if group.folder is not None]
        components = [self._starting(group, told) for group in self.groups if group.folder is None]
        cores = granted_cores() if self.kind == "cpu" else 1
        ahead = self._compiling_ahead() if cores > 1 else []
        lanes = max(cores // max((group.threads for group in self.groups), default=1), 1 + len(ahead))
        side_by_side([*ahead, *models], min(lanes, MOST_LANES))
        # A component takes microseconds, and how many calls make a sample is told by how long its gate's calls took.
        side_by_side(components, 1)

    def _compiling_ahead(self) -> list[Job]:
        """Where a plan has several compiled variants: the last of them is gated beside the others, in a process of its
        own.

        Only for what that leaves on disk: a machine that has not seen a variant compiles it for minutes, and gates
        would wait for one after the other. The variant is gated like all others afterwards, whatever came of this.
        """
        first: dict[str, tuple[Group, Bookkeeping]] = {}  # where each is gated first
        for group in self.groups:
            for book in group.books:
                for name in book.remaining().entered():
                    if "@" not in name and self._is_compiled(name):
                        first.setdefault(name, (group, book))
        if len(first) < 2:
            return []
        name, (group, book) = list(first.items())[-1]

        def job() -> Job:
            with suppress(WorkerFailed), closing(self.another(group, book, "compiling-ahead.log")) as process:
                answer = self._begin_gate(process, group, book, name)
                self._ahead = name, answer
                yield answer
                answer.result()

        return [job()]

    def another(self, group: Group, book: Bookkeeping, log: str) -> WorkerProcess:
        """A process beside the group's, with this workload open, for the caller to close; its output goes to `log`.

        Raises WorkerFailed where it cannot be had.
        """
        process = self._process(group, 0, log)
        try:
            self._open(process, book)
        except BaseException:
            process.close()
            raise
        return process

    def _process(self, group: Group, index: int, log: str) -> WorkerProcess:
        return WorkerProcess(
            threads=group.threads,
            cache=self.cache,
            log=self.logs / log,
            device=self.kind,
            hello={"process": index, "added": dict(self.added), "draw": self.draw_of(index)},
        )

    def draw_of(self, index: int) -> str:
        """Which prompts a process times."""
        return f"{self.draw} {index}"

    def is_outside(self, entered: str) -> bool:
        """Whether a variant is foreign code."""
        name = entered.partition("@")[0]
        return name in self.added or name not in presets()

    def _open(self, process: WorkerProcess, book: Bookkeeping) -> dict[str, Any]:
        """Let a process open a workload; what it says of the checkpoint."""
        facts: dict[str, Any] = process.ask(
            "open",
            OPEN_SECONDS,
            workload=book.experiment.workload.model_dump(),
            folder=str(book.folder) if book.folder else None,
            seed=self.seed,
        )
        return facts

    def _begin_gate(self, process: WorkerProcess, group: Group, book: Bookkeeping, name: str) -> Answer:
        """Let a process gate a variant."""
        workload = book.experiment.workload
        tokens = workload.batch * (workload.context + workload.tokens + (workload.new_tokens or 0))
        limit = GATE_SECONDS + GATE_SECONDS_PER_PARAMETER * group.parameters + GATE_SECONDS_PER_TOKEN * tokens
        extra = COMPILE_SECONDS if self._is_compiled(name) else 0.0
        return process.begin("gate", limit + extra, workload=workload.name, variant=name)

    def gate_alone(self, process: WorkerProcess, group: Group, book: Bookkeeping, name: str) -> None:
        """Let a process of its own gate a variant that passed before, so that it can be called there.

        Raises WorkerFailed where it does not pass.
        """
        gate = self._begin_gate(process, group, book, name).result()["gate"]
        if not gate["passed"]:
            raise WorkerFailed(f"does not pass its gates: {gate['detail']}")

    def _starting(self, group: Group, told: Callable[[Bookkeeping, str], None] = lambda book, name: None) -> Job:
        """Start (again) a group's process; variants that bring it down fall out until it stands."""
        for _ in range(1 + sum(len(book.experiment.entered()) for book in group.books)):
            try:
                yield from self._starting_once(group, told)
                return
            except WorkerFailed as failure:
                self.end(group)
                raise MeasureError(
                    f"the measuring process {failure.reason} (its output lies in the run's log/)"
                ) from failure
            except _Restart:
                continue
        raise MeasureError("the measuring process keeps failing; its output lies in the run's log/")

    def _starting_once(self, group: Group, told: Callable[[Bookkeeping, str], None]) -> Job:
        self.end(group)
        index = self._next_process()
        group.process = self._process(group, index, f"worker-{index}.log")
        group.processes = index
        if self.kind != "cpu":
            self.device = group.process.ask("device", GATE_SECONDS)
        for book in group.books:
            facts = self._open(group.process, book)
            if book.folder:
                self.checkpoints[book.experiment.workload.geometry] = {
                    "name": book.experiment.workload.geometry,
                    **facts,
                }
        names = [(book, name) for book in group.books for name in book.remaining().entered()]
        # Foreign code comes last: until then nothing here was in its reach.
        for book, name in sorted(names, key=lambda entry: self.is_outside(entry[1])):
            yield from self._gating(group, book, name, told)
        for book in group.books:
            pairs = dict.fromkeys((t.comparison.baseline, t.comparison.variant) for t in book.remaining().targets)
            if book.traces:
                book.trace_differences = group.process.ask(
                    "differences",
                    GATE_SECONDS,
                    workload=book.experiment.workload.name,
                    pairs=[list(pair) for pair in pairs],
                )
        group.process.ask("freeze", GATE_SECONDS)
        self.changed()

    def _gating(self, group: Group, book: Bookkeeping, name: str, told: Callable[[Bookkeeping, str], None]) -> Job:
        """Let a variant pass its gates in the group's process; one that does not falls out."""
        assert group.process is not None
        if self._ahead is not None and self._ahead[0] == name:
            yield self._ahead[1]  # what is compiled there is then found on disk
        if name in book.excluded:  # by a gate beside this one, or on another workload
            return
        try:
            answer = self._begin_gate(group.process, group, book, name)
            yield answer
            found = answer.result()
        except WorkerFailed as failure:
            self.exclude(name, failure.reason, book)
            raise _Restart from failure
        if group.process.noise():
            self.exclude(name, INTRUDES, book)
            raise _Restart
        if name in book.excluded:
            return
        book.gates[name] = found["gate"]
        if not found["gate"]["passed"]:
            self.exclude(name, found["gate"]["detail"], book)
            return
        if "trace" in found:
            book.traces[name] = found["trace"]
        book.call_ns[name] = found["call_ns"]
        if found["own_threads"] and name not in book.wall_variants:
            book.wall_variants.append(name)
        told(book, name)

    def standing(self, group: Group) -> WorkerProcess:
        """The group's process, started again if it is gone."""
        if group.process is None or not group.process.alive():
            side_by_side([self._starting(group)], 1)
        assert group.process is not None
        return group.process

    def _next_process(self) -> int:
        return max((group.processes for group in self.groups), default=0) + 1

    def exclude(self, name: str, reason: str, book: Bookkeeping) -> None:
        """A variant falls out: of ours from this workload; from outside, or not installed, from the whole run."""
        if name in self.added or ("@" not in name and self._unfit(name)):
            self._exclude_everywhere(name, reason)
        elif name not in book.excluded:
            book.excluded[name] = reason
            self.changed()
            self.progress.note(f"{name} is left out of {book.experiment.workload.name}: {reason}")

    def _exclude_everywhere(self, name: str, reason: str) -> None:
        if name not in self.excluded:
            self.progress.note(f"{name} is left out: {reason}")
        self.excluded.setdefault(name, reason)
        for book in self.books:
            if name in book.experiment.variants:
                book.excluded.setdefault(name, reason)
        self.changed()

    def _unfit(self, name: str) -> str | None:
        """Why a variant can be built nowhere in this run; None where nothing speaks against it yet."""
        if name in self.added:
            return None
        if self.kind != "cpu" and variants.get(name).engine is not None:
            return f"an engine that computes on the CPU; this run measures on {self.kind}"
        return variants.missing(name)

    # -- rounds --------------------------------------------------------------------------------------------------

    def run(self, referee: Referee, keep: Callable[[Mapping[str, Any]], None], *, seconds: float) -> None:
        """Rounds, experiment by experiment in short slices, until all is settled or `seconds` are spent.

        `keep` stores each finished round. First all get the rounds that an interval needs at all, if there is time for
        them; then the next slice goes where an effect can be settled soonest, so that one that lies on a boundary
        cannot keep others waiting.
        """
        start = time.monotonic()
        group_of = {id(book): group for group in self.groups for book in group.books}
        while (total_left := seconds - (time.monotonic() - start)) > 0:
            open_ = [(book, need) for book in self.books if (need := referee.need(book.remaining())).variants]
            if not open_:
                return
            book = next_to_measure(open_, total_left)
            needed = sum(min(need.rounds_all * book.round_seconds(), total_left) for book, need in open_)
            left = min(total_left, needed)
            elapsed = time.monotonic() - start
            self.progress.step(
                f"{book.experiment.workload.name}, {len(open_)} of {len(self.books)} workloads open",
                elapsed / (elapsed + left),
                left,
            )
            self._slice(group_of[id(book)], book, referee, keep, min(SLICE_SECONDS, total_left))

    def _slice(
        self,
        group: Group,
        book: Bookkeeping,
        referee: Referee,
        keep: Callable[[Mapping[str, Any]], None],
        seconds: float,
    ) -> None:
        end = time.monotonic() + seconds
        workload = book.experiment.workload
        while time.monotonic() < end and (need := referee.need(book.remaining())).variants:
            if group.process is None:
                self.standing(group)
                continue
            begun = time.monotonic()
            active = list(need.variants)
            estimate = sum(book.call_ns.get(name, 0.0) for name in active) / 1e9
            try:
                found = group.process.ask(
                    "round",
                    ROUND_SECONDS + 20 * 60 * estimate,
                    workload=workload.name,
                    round_index=book.rounds,
                    active=active,
                    outputs=str(self.examination.file) if self.examination else "",
                )
            except WorkerFailed as failure:
                self._lost(group, book, active, failure)
                continue
            bad = self._found_wrong(group, book, active, found)
            if any(self.is_outside(name) for name in bad):
                self.end(group)  # what it left in the process need not be known in full
            for name, reason in bad.items():  # before the round is kept: a kill between the two must not hide it
                self.exclude(name, reason, book)
            if found["elsewhere"] or any(self.is_outside(name) for name in found["changed"]):
                continue  # others may have felt it
            record = {
                "workload": workload.name,
                "process": group.processes,
                "round": book.rounds,
                "samples": [sample for sample in found["samples"] if sample[0] not in bad],
            }
            keep(record)
            referee.add(record)
            book.rounds += 1
            book.seconds += (spent := time.monotonic() - begun)
            if book.rounds == 1:
                book.first_seconds = spent

    def _found_wrong(
        self, group: Group, book: Bookkeeping, active: Sequence[str], found: Mapping[str, Any]
    ) -> dict[str, str]:
        """Variant → why it falls out after a round."""
        assert group.process is not None
        bad: dict[str, str] = {}
        if found["drawn"]:
            assert self.examination is not None and book.folder is not None
            draw = self.draw_of(group.processes)
            try:
                bad |= self.examination.judge(book.folder, book.experiment.workload, draw, found["drawn"])
            except WorkerFailed as failure:
                raise MeasureError(
                    f"the process that judges outputs {failure.reason} (see log/examiner.log)"
                ) from failure
        foreign = [name for name in active if self.is_outside(name)]
        for index in group.process.noise():
            running = active[index] if index is not None and index < len(active) else None
            if running in foreign or len(foreign) == 1:
                bad[running if running in foreign else foreign[0]] = INTRUDES
        told = found["changed"] | found["elsewhere"]
        if any(self.is_outside(name) for name in told):
            return told  # what is wrong with others may be its doing
        bad |= found["wrong"] | told
        for name, grown in found["leaks"].items():
            bad[name] = f"leaks: memory grew by {grown / 1e6:.0f} MB while it was rebuilt and called"
        return bad

    def _lost(self, group: Group, book: Bookkeeping, active: Sequence[str], failure: WorkerFailed) -> None:
        """A round failed: blame the variant that was running, and go on with a fresh process."""
        if failure.variant_index is not None and failure.variant_index < len(active):
            self.exclude(active[failure.variant_index], failure.reason, book)
        else:
            raise MeasureError(f"the measuring process {failure.reason} between variants")
        self.end(group)


class _Restart(Exception):
    """A variant brought its process down while it was gated; it is excluded, start again without it."""
