"""The measuring processes of a run: which experiments share one, how each is begun and opened, and that all end."""

from __future__ import annotations

import math
import os
import random
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from llama_workbench.datasets.lengths import least_calls
from llama_workbench.variants import FUNCTION_REFERENCE

from ..calls.called import SELDOM
from ..calls.inputs import AGAIN, CHEAP_SHARE, COPIED, NEW, InputCosts, pool_size
from ..calls.source import Source
from ..machine.environment import granted_cores
from ..spec.comparison import Comparison, EnteredName
from ..spec.sample import RoundAnswer, Sample
from ..stats.means import student_quantile
from ..worker.channel import INTRUDES
from .participants import Begin, ExperimentState, MeasureError, Setting
from .processes import ALLOCATOR, ASKING_SECONDS, START_SECONDS, Examination, WorkerFailed, WorkerProcess

# Rounds in which each side computes in a process of its own, which is begun anew for every round.
# Two environments need two processes, and so do sides of which one would change how the other runs. Two processes of
# the very same code differ in time by up to some percent: their memory lies elsewhere, and so do the keys of their
# dicts. That stays as long as they live, and no number of samples averages it out. So a round is a pair of fresh
# processes, and the interval over rounds holds what processes differ by. Within a round they take turns of some
# milliseconds on one core; the other waits idle.


LEAST_TURNS, MOST_TURNS = 5, 201

LONG_SECONDS = 4.0
"""Where the least turns would take longer, there are fewer, down to one."""

TURN_SECONDS = 30.0
"""A side that has not answered after this long, and 20 times what its calls should take, hangs."""

SEEDS = 1 << 32

LEAST_GAIN, GAIN_CHANCE, LEAST_LEFT = 0.03, 0.001, 0.001
"""A side remembers its inputs if an input given again saves it so much more of a call of the fastest side than it saves
the baseline, and by chance that much is seen no more often than the second. Less is the processor's: a mean of a
hundred floats takes some tens of nanoseconds more where it is the first that reads them. The third is the least part of
a call that is told to be left."""

Name = TypeVar("Name")


@dataclass(frozen=True)
class Crew:
    """The processes of a round, of this number; `members` by the side that each runs. folder: for their answers.
    opened: what ends them."""

    setting: Setting
    state: ExperimentState
    index: int
    names: Sequence[str]
    members: Mapping[str, WorkerProcess]
    folder: Path
    opened: ExitStack

    def take_turns(self, seconds: float) -> RoundAnswer:
        """Samples of all sides, one after the other, for so many seconds."""
        workload, call_ns = self.state.workload, {name: self.state.call_ns[name] for name in self.names}
        single_calls = least_calls(workload.statistic)
        least = single_calls or max(min(LEAST_TURNS, int(LONG_SECONDS * 1e9 / sum(call_ns.values()))), 1)
        limit = TURN_SECONDS + 20 * 60 * sum(call_ns.values()) / 1e9
        what = {"workload": workload.name, "round_index": self.state.begun, "call_ns": call_ns}
        make_ns = max(beside_ns(self.state, name) for name in self.names)
        what |= {"make_ns": make_ns, "core": self._core(), **inputs_told(self.state, seconds / len(self.names))}
        seldom = set() if single_calls else {FUNCTION_REFERENCE}
        go: dict[str, Any] = {}
        order: list[list[str]] = []
        for name in self.names:
            with blamed(self.names, name):
                go[name] = self.members[name].ask_in_two("turns", limit, variant=name, **what)
        end = time.monotonic() + seconds
        while len(order) < least or (len(order) < MOST_TURNS and time.monotonic() < end):
            names = [name for name in self.names if not (name in seldom and len(order) % SELDOM)]
            order.append(shuffled(self.setting.seed, names, self.index, len(order)))
            for name in order[-1]:
                with blamed(self.names, name):
                    go[name]()
        whole = RoundAnswer()
        for name in self.names:
            with blamed(self.names, name):
                answer = RoundAnswer.from_json(go[name](stop=True))
            turns = [turn for turn, names in enumerate(order) if name in names]
            placed = [
                row._replace(sub_round=turns[row.sub_round], position=order[turns[row.sub_round]].index(name))
                for row in answer.samples
            ]
            if placed and not (workload.calm or single_calls):
                placed = [joined(placed, self.names.index(name))]
            whole = RoundAnswer(
                samples=(*whole.samples, *placed),
                wrong={**whole.wrong, **answer.wrong},
                refused=(*whole.refused, *answer.refused),
                changed={**whole.changed, **answer.changed} | ({name: INTRUDES} if self.members[name].noise() else {}),
                elsewhere={**whole.elsewhere, **answer.elsewhere},
                by_wall=(*whole.by_wall, *answer.by_wall),
                facts={**whole.facts, **answer.facts},
                pooled={**whole.pooled, **answer.pooled},
            )
        return whole

    def _core(self) -> int | None:
        """The core on which the sides of a round compute, another one for each; None where they may need several."""
        if not hasattr(os, "sched_getaffinity") or self.state.workload.threads > 1 or self.state.wall_variants:
            return None
        return random.Random(f"core {self.setting.seed} {self.index}").choice(sorted(os.sched_getaffinity(0)))

    def compared(self, count: int) -> dict[str, str]:
        """Let all sides answer so many inputs, and compare inputs and answers with the baseline's: side → why it is
        excluded."""
        what = {"workload": self.state.name}
        seeds = [secrets.randbelow(SEEDS) for _ in range(count)]
        files = {name: str(self.folder / f"{place}.zip") for place, name in enumerate(self.names)}
        limit = ASKING_SECONDS + 20 * count * sum(self.state.call_ns.get(name, 0.0) for name in self.names) / 1e9
        said = {}
        for name in self.names:
            with blamed(self.names, name):
                said[name] = self.members[name].ask(
                    "answers", limit, variant=name, seeds=seeds, file=files[name], **what
                )
        payload = self.setting.calls[self.state.name].payload.shown
        refused = {name: each["refused"] for name, each in said.items() if each["refused"]}
        wrong = {
            name: f"its answer cannot go from one process to another ({why}): give --check FILE:FUNCTION with a "
            "function of one answer, which returns what counts of it as plain data, arrays or tensors"
            for name, why in refused.items()
        }
        baseline = self.state.experiment.baseline
        if baseline in wrong or baseline not in self.names:
            return wrong
        for name in self.names:
            if name == baseline or name in wrong:
                continue
            if said[name]["inputs"] != said[baseline]["inputs"]:
                wrong[name] = (
                    f"{payload} makes other inputs there than in the environment of {baseline}, for the same seed: "
                    "another version of what draws them? Make them with Python's random, or read them from a file"
                )
                continue
            with blamed(self.names, baseline):
                sides = {"file": files[name], "expected": files[baseline], "variant": baseline}
                texts = self.members[baseline].ask("differences_of_answers", limit, **what, **sides)
            if differing := [(text, seed) for text, seed in zip(texts, seeds, strict=False) if text]:
                text, seed = differing[0]
                wrong[name] = f"{text} (input {payload}, seed {seed})"
        return wrong


def joined(samples: Sequence[Sample], position: int) -> Sample:
    """All samples of a side as one: what happens in one call of many, as a full collection of garbage does, counts for
    what it takes. A median over samples would leave it out."""
    sums = {name: sum(getattr(each, name) for each in samples) for name in ("repeats", "cpu_ns", "wall_ns", "faults")}
    return samples[0]._replace(sub_round=0, position=position, **sums)


@contextmanager
def blamed(names: Sequence[str], name: str) -> Iterator[None]:
    """Where a process fails in this block, that is the side `name`."""
    try:
        yield
    except WorkerFailed as failure:
        raise WorkerFailed(failure.reason, list(names).index(name)) from failure


def shuffled(seed: int, names: Sequence[Name], *what: object) -> list[Name]:
    """The names in an order that the run's seed and `what` decide."""
    return random.Random(f"turns {seed} {what}").sample(list(names), len(names))


# -- how the calls of functions are given their inputs, by what the gates of all sides learnt (see `calls.inputs`) ---


def inputs_told(state: ExperimentState, side_seconds: float) -> dict[str, Any]:
    """What a process that samples each side for so long is told. All sides of a round have as many inputs: more of them
    lie less in the processor's caches."""
    make_ns = max((learnt.get("make_ns", 0) for learnt in state.learnt.values()), default=0)
    return {"way": _way(state), "pool_size": pool_size(make_ns, side_seconds * 1e9)}


def beside_ns(state: ExperimentState, name: str) -> int:
    """What a call of a function takes beside it: to make its input, or a copy of one, 0 where it is given one again,
    and of a command what runs before and after it."""
    learnt, way = state.learnt[name], _way(state)
    made: int = learnt["copy_ns"] if way == COPIED else learnt["make_ns"]
    is_given_again = way == AGAIN or (learnt["one_input"] and not learnt["changes_inputs"])
    return made * (not is_given_again) + int(learnt["beside_ns"])


def note_remembering(state: ExperimentState) -> None:
    """Keep of each function by how much more it gains than the baseline where an input is given again."""
    costs = _costs(state)
    call_ns = min((state.call_ns[name] for name in costs), default=0.0)
    for name, side in costs.items():
        if more := gains_over(side, costs.get(state.experiment.baseline, side), call_ns):
            state.note_facts({name: {"gains_again": more}})


def gains_over(side: InputCosts, baseline: InputCosts, call_ns: float) -> float:
    """How much more (log units) a side gains than the baseline where an input is given again; 0 where that may be
    chance or the processor's doing, or nobody knows. call_ns: of the fastest side."""
    mine, other = side.again, baseline.again
    if mine is None or other is None:
        return 0.0
    squares = [(each.error_ns**2, each.freedom) for each in (mine, other)]
    whole = sum(square for square, _ in squares)
    freedom = whole**2 / sum(square**2 / free for square, free in squares) if whole else math.inf  # Welch's
    more = mine.gain_ns - other.gain_ns
    if abs(more) <= max(LEAST_GAIN * call_ns, student_quantile(freedom, 1 - GAIN_CHANCE / 2) * math.sqrt(whole)):
        return 0.0
    first_ns = mine.first_ns if more > 0 else other.first_ns
    return math.copysign(-math.log(max(1 - abs(more) / first_ns, LEAST_LEFT)), more)


def way_of(sides: Sequence[InputCosts], call_ns: float) -> str:
    """How calls are given their inputs, the same on all sides, of which the first is the baseline and the fastest takes
    `call_ns`."""
    if all(each.make_ns <= CHEAP_SHARE * call_ns for each in sides):
        return NEW
    if any(each.again is None or gains_over(each, sides[0], call_ns) for each in sides):
        return NEW
    if any(each.is_copied(call_ns) for each in sides):
        return COPIED if all(0 < each.copy_ns < each.make_ns for each in sides) else NEW
    return AGAIN


def _way(state: ExperimentState) -> str:
    costs = _costs(state)
    if not costs:
        return NEW
    baseline = state.experiment.baseline
    in_order = [costs[name] for name in sorted(costs, key=lambda name: name != baseline)]
    return way_of(in_order, min(state.call_ns[name] for name in costs))


def _costs(state: ExperimentState) -> dict[str, InputCosts]:
    """By function; none where models are measured."""
    names = state.remaining().variants if state.workload.kind == "call" else ()
    return {name: InputCosts.of(state.learnt[name]) for name in names if name in state.learnt}


THREADS = "OMP_NUM_THREADS"
"""From it torch knows its number of threads where nobody sets it."""

MOST_TIMES_USUAL = 5.0
"""A process may take so many times as long to begin as the one before it, where that is more than START_SECONDS."""

OPEN_SECONDS, ADMIT_SECONDS = 300.0, 600.0
"""Compiled code is looked up on disk, and an engine loads its own form of the weights."""

MOST_BALLAST, MOST_FILLING = 1 << 20, 1 << 12
"""Bytes: of memory that a process holds before anything is imported, and in the environment, above its first stack
frame. Both move what comes after them."""


@dataclass(eq=False)
class MeasuringProcess:
    """A process of a group from its beginning to its end: whatever a process draws once (the hashes of its strings, the
    addresses of its memory, which side was imported first) is drawn anew in each.

    number: in the run. begun: when (`time.monotonic`); start_seconds: from then until it could measure. whole: all
    of its group is in it, with the verbs of all passes. opened: workloads; admitted: (workload, variant) that it has
    gated or taken in; used: those that it measured. had: what has had a round in it, as (workload, pair); None for what
    is measured together. prepared: whom each command is about that it began with, as (workload, variant); None for
    nobody.
    """

    worker: WorkerProcess
    number: int
    begun: float
    whole: bool = False
    opened: list[str] = field(default_factory=list)
    admitted: list[tuple[str, str]] = field(default_factory=list)
    used: dict[tuple[str, str], None] = field(default_factory=dict)
    had: set[tuple[str, Comparison | None]] = field(default_factory=set)
    start_seconds: float = 0.0
    measured_seconds: float = 0.0
    prepared: Sequence[tuple[str, str] | None] = ()


@dataclass(eq=False)
class Group:
    """Experiments that share a process, because they share a checkpoint.

    processes: the number of the last one that was begun. current: the one that measures now; ahead: the next one,
    begun already, and crew_ahead the same where each side has a process. used: what the last process measured, as
    (workload, variant). torch: whether they import it. calm: how their processes are (see `Worker`). divided: no
    process could hold all sides, because one has an environment or variables of its own: their answers are compared
    through files.
    """

    folder: Path | None
    parameters: int
    threads: int
    states: list[ExperimentState]
    current: MeasuringProcess | None = None
    ahead: MeasuringProcess | None = None
    crew_ahead: Crew | None = None
    used: dict[tuple[str, str], None] = field(default_factory=dict)
    processes: int = 0
    calm: bool = True
    divided: bool = False
    torch: bool = True
    begin: Begin = field(default_factory=Begin)


class Processes:
    """The processes of a run's groups, and the one that judges outputs. None lives longer than `running`.

    checkpoints and device_facts: what the processes said of them.
    """

    def __init__(self, states: Sequence[ExperimentState], setting: Setting) -> None:
        self.setting = setting
        self.groups = _groups(states, setting)
        self.examination: Examination | None = None
        self.checkpoints: dict[str, dict[str, Any]] = {}
        self.device_facts: dict[str, Any] = {"kind": setting.device}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ends the processes on the way out, however that is."""
        try:
            yield
        finally:
            for group in self.groups:
                self.end(group)
            if self.examination is not None:
                self.examination.close()
                self.examination = None

    def begin_examination(self) -> None:
        """Begin the process that judges, if a checkpoint is measured and it is not there yet."""
        if self.examination is None and any(group.folder for group in self.groups):
            self.examination = Examination(cache=self.setting.cache, log=self.setting.logs / "examiner.log")

    def judge(self, state: ExperimentState, draw: str, drawn: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """What is wrong with outputs that processes left (see `Examination.judge`). Raises MeasureError."""
        assert self.examination is not None and state.folder is not None
        try:
            return self.examination.judge(state.folder, state.workload, draw, drawn)
        except WorkerFailed as failure:
            raise MeasureError(f"the process that judges outputs {failure.reason} (see log/examiner.log)") from failure

    def start(self, group: Group, variables: Mapping[str, str] | None = None) -> MeasuringProcess:
        """Begin the group's process anew, with all its workloads open. variables: of its environment, in place of those
        that its processes have. Raises WorkerFailed."""
        self.end(group)
        group.current = current = self._begun(group, variables=variables)
        group.begin.beside = self.is_beside(group)
        if self.setting.device != "cpu":
            self.device_facts = current.worker.ask("device", ASKING_SECONDS)
        for state in group.states:
            facts = current.worker.ask("open", OPEN_SECONDS, **self.what(state))
            current.opened.append(state.name)
            if state.folder:
                geometry = state.workload.geometry
                self.checkpoints[geometry] = {"name": geometry, **facts}
        group.begin.note(time.monotonic() - current.begun)
        return current

    def next_process(self, group: Group) -> MeasuringProcess:
        """End the group's process; the next one takes over, which was begun ahead, or begins now."""
        ahead, group.ahead = group.ahead, None
        if group.current is not None:
            group.used = group.current.used
        usual = group.current.start_seconds if group.current else 0.0
        self.end(group)
        group.current = ahead or self._begun(group, group.used, usual)
        return group.current

    def expect(self, group: Group, state: ExperimentState, names: Sequence[str]) -> None:
        """These will be measured first: two processes begin at once. After one that was lost, each begins alone."""
        if group.current is None and not group.used and not state.lost_processes:
            group.used = {(state.name, name): None for name in names}

    def is_beside(self, group: Group) -> bool:
        """Whether a process begins while the one before measures: where there is a core for each."""
        return self.setting.device == "cpu" and granted_cores() > group.threads

    def begin_ahead(self, group: Group) -> None:
        """Begin the next process beside this one, where there is a core for it, with all that this one and the last one
        measured; nobody waits for it."""
        if self.is_beside(group) and group.ahead is None and group.current is not None:
            group.ahead = self._begun(group, group.used | group.current.used, group.current.start_seconds)

    def take_in(self, group: Group, state: ExperimentState, names: Sequence[str]) -> None:
        """Let the group's process open a workload, and admit those of these variants that it does not have yet.

        They passed their gates before. Raises WorkerFailed with the place of the variant in `names`.
        """
        current, workload, asked = group.current, state.name, time.monotonic()
        assert current is not None
        if workload not in current.opened:
            current.worker.ask("open", OPEN_SECONDS, **self.what(state))
            current.opened.append(workload)
        new = [name for name in names if (workload, name) not in current.admitted]
        for name in shuffled(self.setting.seed, new, current.number):
            with blamed(names, name):
                current.worker.ask("admit", ADMIT_SECONDS, workload=workload, variant=name, learnt=state.learnt[name])
            current.admitted.append((workload, name))
        ready = current.worker.ready_at()
        if not current.start_seconds:
            current.start_seconds = ready - current.begun + time.monotonic() - max(ready, asked)
            group.begin.note(current.start_seconds)
        current.used |= dict.fromkeys((workload, name) for name in names)
        if new:
            current.worker.ask("freeze", ASKING_SECONDS)

    def failed_to_begin(self, group: Group) -> tuple[str, str | None, str] | None:
        """Of a process that died or hung while it began: the workload and variant that it was at (empty and None
        where it was at neither), and why. None where it began; waits for that."""
        assert group.current is not None
        try:
            group.current.worker.ready_at()
        except WorkerFailed as failure:
            place, prepared = failure.variant_index, group.current.prepared
            workload, name = (
                prepared[place] or ("", None) if place is not None and place < len(prepared) else ("", None)
            )
            return workload, name, failure.reason
        return None

    def should_wait(self, group: Group) -> bool:
        """Whether the group's process should go on: the next one is not ready, or could not be begun beside it and this
        one has not measured for as long as beginning it took."""
        assert group.current is not None
        if self.is_beside(group):
            return group.ahead is not None and not group.ahead.worker.is_ready()
        return group.current.measured_seconds < group.current.start_seconds

    def end(self, group: Group) -> None:
        """End the group's process, if it has one, and the one that was begun ahead."""
        begun, group.current, group.ahead = (group.current, group.ahead), None, None
        for process in filter(None, begun):
            process.worker.end()
        crew, group.crew_ahead = group.crew_ahead, None
        if crew is not None:
            crew.opened.close()

    def _begun(
        self,
        group: Group,
        used: Mapping[tuple[str, str], None] | None = None,
        usual_seconds: float = 0.0,
        variables: Mapping[str, str] | None = None,
    ) -> MeasuringProcess:
        """A process that begins now, and opens and admits what is `used`, in an order of its own. usual_seconds: what
        the process before it took for that."""
        number = group.processes = self.next_number()
        states = {state.name: state for state in group.states}
        wanted = [(workload, name) for workload, name in used or () if name not in states[workload].excluded]
        opened = list(dict.fromkeys(workload for workload, _ in wanted))
        prepare: list[dict[str, Any]] = [{"do": "open", **self.what(states[workload])} for workload in opened]
        order = shuffled(self.setting.seed, wanted, number)
        for workload, name in order:
            learnt = states[workload].learnt[name]
            prepare.append({"do": "admit", "workload": workload, "variant": name, "learnt": learnt})
        begun = time.monotonic()
        prepare += [{"do": "freeze"}] if wanted else []
        log, limit = f"worker-{1 + self.groups.index(group)}.log", max(START_SECONDS, MOST_TIMES_USUAL * usual_seconds)
        process = self.new(group, number, log, prepare=prepare, start_seconds=limit, variables=variables)
        return MeasuringProcess(
            process, number, begun, opened=opened, admitted=wanted, prepared=[*[None] * len(opened), *order]
        )

    def another(self, group: Group, state: ExperimentState, log: str) -> WorkerProcess:
        """A process beside the group's, with this workload open, for the caller to close; its output goes to `log`.

        Raises WorkerFailed where it cannot be had.
        """
        process = self.new(group, 0, log)
        try:
            process.ask("open", OPEN_SECONDS, **self.what(state))
        except BaseException:
            process.close()
            raise
        return process

    def new(
        self,
        group: Group,
        index: int,
        log: str,
        side: Source | None = None,
        prepare: Sequence[Mapping[str, Any]] = (),
        start_seconds: float = START_SECONDS,
        variables: Mapping[str, str] | None = None,
    ) -> WorkerProcess:
        """A process of this number, which begins with the commands in `prepare`, in `start_seconds` at most. side:
        the one function that it is for, whose interpreter and variables it has; None: it is for several."""
        variables = dict(variables or (ALLOCATOR if group.calm else {}))
        added, functions = (
            {name: asdict(source) for name, source in sources.items()}
            for sources in (self.setting.added, self.setting.functions)
        )
        python, own = (side.environment, side.variables) if side and side.is_alone else ("", {})
        rng = random.Random(f"process {self.setting.seed} {index}")
        ballast = rng.randrange(MOST_BALLAST)
        drawn = {"PYTHONHASHSEED": str(rng.randrange(1 << 32)), "WORKBENCH_PROCESS": "x" * rng.randrange(MOST_FILLING)}
        return WorkerProcess(
            threads=group.threads,
            cache=self.setting.cache,
            log=self.setting.logs / log,
            device=self.setting.device,
            python=python,
            own=own,
            options=shlex.split(side.options) if side else (),
            start_seconds=start_seconds,
            hello={
                "process": index,
                "added": added,
                "functions": functions,
                "draw": self.setting.draw_of(index),
                "strict": self.setting.strict,
                "torch": group.torch,
                "calm": group.calm,
                "functions_only": bool(python),
                "own_threads": THREADS in own,
                "ballast": ballast,
                "prepare": list(prepare),
            },
            variables=variables | drawn,
        )

    def next_number(self) -> int:
        """Of a process, or of those of a round, that begin now."""
        crews = [group.crew_ahead.index for group in self.groups if group.crew_ahead is not None]
        return 1 + max([*crews, *(group.processes for group in self.groups)])

    def what(self, state: ExperimentState, side: str = "") -> dict[str, Any]:
        """What a process is told of a workload that it opens. side: the one function that it can run: this is then its
        own baseline."""
        folder = str(state.folder) if state.folder else None
        workload = state.workload.model_dump()
        call = self.setting.calls.get(state.name)
        if call and side:
            call = replace(call, baseline=self.setting.functions[EnteredName(side).original])
        return {"workload": workload, "folder": folder, "seed": self.setting.seed, "call": call and asdict(call)}

    # -- of a round in which each side has a process, and of the next one beside it ------------------------------------

    @contextmanager
    def fresh_crew(self, group: Group, state: ExperimentState, names: Sequence[str]) -> Iterator[Crew]:
        """Fresh processes for these sides, which end with the block: those that were begun ahead, or new ones."""
        ahead, group.crew_ahead = group.crew_ahead, None
        if ahead is not None and (ahead.state is not state or [*ahead.names] != [*names]):
            ahead.opened.close()
            ahead = None
        crew = ahead or self._begun_crew(group, state, names)
        group.processes = crew.index
        with crew.opened:
            for name, process in crew.members.items():
                with blamed(names, name):
                    process.ready_at()
            yield crew

    def begin_crew_ahead(self, group: Group, state: ExperimentState, names: Sequence[str]) -> None:
        """Begin the processes of the next round beside this one, where there is a core for them; nobody waits."""
        if self.is_beside(group) and not state.wall_variants and group.crew_ahead is None:
            group.crew_ahead = self._begun_crew(group, state, names)

    def _begun_crew(self, group: Group, state: ExperimentState, names: Sequence[str]) -> Crew:
        """Processes that begin now, at the same time, in random order. Those of a divided group know their side alone,
        which must still pass its gate; others have taken in what its gate found."""
        index, setting = self.next_number(), self.setting
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workbench-answers-")))
            members: dict[str, WorkerProcess] = {}
            for name in shuffled(setting.seed, names, index):
                prepare: list[dict[str, Any]] = [{"do": "open", **self.what(state, name if group.divided else "")}]
                if not group.divided:
                    admitted = {"workload": state.name, "variant": name, "learnt": state.learnt[name]}
                    prepare.append({"do": "admit", **admitted})
                source = setting.functions[EnteredName(name).original]
                with blamed(names, name):
                    members[name] = process = self.new(group, index, f"side-{name}.log", source, prepare)
                stack.callback(process.end)
            return Crew(setting, state, index, names, members, folder, stack.pop_all())


def _groups(states: Sequence[ExperimentState], setting: Setting) -> list[Group]:
    groups: dict[tuple[Any, ...], Group] = {}
    for state in states:
        workload = state.experiment.workload
        sources = (setting.functions.get(name) for name in state.experiment.variants)
        divided = any(source.is_alone for source in sources if source)
        key = (state.folder, workload.dtype, workload.threads, divided, workload.calm)
        is_single = bool(workload.statistic) and not workload.calm and setting.device == "cpu"
        state.own_processes = divided or is_single  # a percentile of single calls must see collections
        size = setting.parameters.get(workload.geometry, 0) if state.folder else 0
        torch = workload.kind != "call" or setting.device != "cpu"  # functions that use it will say so
        group = Group(state.folder, size, workload.threads, [], calm=workload.calm, divided=divided, torch=torch)
        group = groups.setdefault(key, group)
        group.states.append(state)
        if not state.own_processes:  # those of a round begin anew, and are counted with it
            state.begin = group.begin
    return list(groups.values())
