"""Gates: every variant shows its logits, its op trace and the time of a call before it is timed."""

from __future__ import annotations

import math
import time
from collections.abc import Generator

from llama_workbench.datasets.lengths import least_calls
from llama_workbench.variants import FUNCTION_REFERENCE

from ..evidence.effect import short_time
from ..machine.environment import granted_cores
from ..spec.comparison import EnteredName
from ..spec.words import Cause
from ..stats.confidence import EARLY
from ..store.schema import Gate, Trace, TraceDifference
from ..worker.channel import INTRUDES
from .groups import Group, Processes, note_remembering
from .participants import ExperimentState, MeasureError, Participants
from .processes import AS_AT_FIRST, Job, PendingAnswer, WorkerFailed, WorkerProcess, side_by_side

GATE_SECONDS = 60.0
GATE_SECONDS_PER_PARAMETER = 2e-7
GATE_SECONDS_PER_TOKEN = 0.05
LEAST_GATE_SECONDS = 20.0
"""A gate of functions takes as long as the budget of all rounds at most, but may take so long: code is compiled."""

COMPILE_SECONDS = 600.0
"""What torch.compile may take on top, for the gates' twenty kinds of call; the next process finds them on disk."""

BUDGET_MARGIN = 1.5
"""A budget that is proposed has so much more than calls take: processes begin, too."""

BEYOND_BUDGET = 1.1
"""A function is measured where a first interval may take so many times the budget."""

SAME_COST = 2.0
"""Where there is no time, the longest calls are left out, and those that take no less than that by this factor."""

MOST_LANES = 4
"""So many checkpoints are gated at once at most: each holds a model, a reference and what its variants pack."""

GATED_INPUTS = 3
"""Inputs on which the sides of several environments must agree before anything is timed; each round has one more."""


def seconds_of_calls(state: ExperimentState, *, guessed: bool = False) -> float:
    """What the calls of one process take at least, of the sides that passed their gates; guessed: or of all, as if the
    others took what the baseline does. Each side is warmed up (a command is not) and timed, and where no timed call of
    the baseline had the same input, the baseline is called for a check."""
    statistic, seconds = state.workload.statistic, 0.0
    base = state.learnt.get(state.experiment.baseline, {})
    for name in state.remaining().entered():
        learnt = state.learnt.get(name) or state.learnt.get(EnteredName(name).original) or (base if guessed else {})
        if not learnt or (name == FUNCTION_REFERENCE and name not in state.learnt):  # that takes microseconds
            continue
        its_base = learnt if name == FUNCTION_REFERENCE else base
        call, base_call = (each.get("call_ns", 0) for each in (learnt, its_base))
        beside = learnt.get("make_ns", 0) + learnt.get("beside_ns", 0)
        # Before each call that is timed by itself another one is made, and its controls have as many.
        calls = max(2 * least_calls(statistic), 1 + learnt.get("warm_calls", 1))
        seconds += (calls * (call + beside) + learnt.get("checks", 1) * (base_call + beside)) / 1e9
    return seconds


class Gates:
    """The gates that participants pass, and their processes, in which they did."""

    def __init__(self, participants: Participants, processes: Processes) -> None:
        self.setting = participants.setting
        self.participants = participants
        self.processes = processes
        self._to_pass = 0  # how many gates, for the progress bar; 0 outside of `pass_gates`

    def pass_gates(self) -> None:
        """Start the processes and gate every variant; an engine that cannot be used here is excluded before."""
        self.participants.exclude_unfit()
        self.processes.begin_examination()
        self._to_pass = sum(len(state.experiment.entered()) for state in self.participants.states)
        groups = self.processes.groups
        cores = granted_cores() if self.setting.device == "cpu" else 1
        lanes = max(cores // max((group.threads for group in groups), default=1), 1)
        side_by_side([self._starting(group) for group in groups if group.folder is not None], min(lanes, MOST_LANES))
        # A component takes microseconds, and how many calls make a sample depends on how long its gate's calls took.
        side_by_side([self._starting(group) for group in groups if group.folder is None], 1)
        self._to_pass = 0

    def begin(self, process: WorkerProcess, group: Group, state: ExperimentState, name: str) -> PendingAnswer:
        """Let a process gate a variant."""
        workload = state.workload
        tokens = workload.batch * (workload.context + workload.tokens + (workload.new_tokens or 0))
        limit = GATE_SECONDS + GATE_SECONDS_PER_PARAMETER * group.parameters + GATE_SECONDS_PER_TOKEN * tokens
        extra = COMPILE_SECONDS if self.participants.is_compiled(name) else 0.0
        if workload.kind == "call":
            limit = min(limit, max(self.setting.budget_seconds, LEAST_GATE_SECONDS))
        return process.begin("gate", limit + extra, workload=workload.name, variant=name)

    def _starting(self, group: Group) -> Job:
        """Start a group's process and gate its variants; start again without each variant that brings it down."""
        for _ in range(_tries(group)):
            try:
                if (yield from self._starting_once(group)):
                    return
            except WorkerFailed as failure:
                self.processes.end(group)
                raise _failed(failure.reason) from failure
        raise _failed("keeps failing")

    def _starting_once(self, group: Group) -> Generator[PendingAnswer, None, bool]:
        """The same once; whether all of them passed or failed their gates without bringing the process down."""
        if group.divided:
            return (yield from self._gating_crews(group))
        current = self.processes.start(group, None if group.calm else AS_AT_FIRST)
        process, ready = current.worker, current.worker.ready_at() - current.begun
        names = [(state, name) for state in group.states for name in state.remaining().entered()]
        # Foreign code comes last: until then nothing here was in its reach.
        for state, name in sorted(names, key=lambda entry: self.participants.is_outside(entry[1])):
            if not (yield from self._gating(process, group, state, name)):
                return False
        for state in group.states:
            pairs = dict.fromkeys((t.comparison.baseline, t.comparison.variant) for t in state.remaining().targets)
            if state.traces:
                what = {"workload": state.name, "pairs": [list(pair) for pair in pairs]}
                answers = process.ask("differences", GATE_SECONDS, **what)
                state.trace_differences = [TraceDifference.model_validate(answer) for answer in answers]
        process.ask("freeze", GATE_SECONDS)
        for state in group.states:
            # Later processes import their sides before they are ready, which this one was not to.
            imports = [
                learnt.get("import_ns", 0) / 1e9 for name, learnt in state.learnt.items() if name not in state.excluded
            ]
            state.start_seconds = ready + max(imports, default=0.0) if state.own_processes else 0.0
            note_remembering(state)
            group.begin.seconds += 0.0 if state.own_processes else sum(imports)
        self.participants.changed()
        return True

    def _gating_crews(self, group: Group) -> Generator[PendingAnswer, None, bool]:
        """Pass the gates once, each side in a process of its own, and then all together: are their answers the same?"""
        for state in group.states:
            names = state.remaining().entered()
            begun = time.monotonic()
            try:
                with self.processes.fresh_crew(group, state, names) as crew:
                    for name in names:
                        if not (yield from self._gating(crew.members[name], group, state, name)):
                            return False
                    if state.remaining().entered() != names:
                        return False  # begin again without those that failed
                    state.start_seconds = time.monotonic() - begun
                    note_remembering(state)
                    wrong = crew.compared(GATED_INPUTS)
            except WorkerFailed as failure:
                if failure.variant_index is None:
                    raise
                self.participants.exclude(names[failure.variant_index], failure.reason, state)
                return False
            for name, reason in wrong.items():
                state.gates[name] = state.gates[name].model_copy(update={"passed": False, "detail": reason})
                self.participants.exclude(name, reason, state)
        self.participants.changed()
        return True

    def _gating(
        self, process: WorkerProcess, group: Group, state: ExperimentState, name: str
    ) -> Generator[PendingAnswer, None, bool]:
        """Gate a variant in a process, and exclude it where it fails; whether the process can be kept."""
        if (
            name not in state.remaining().entered()
        ):  # by a gate beside this one, on another workload, or of its baseline
            return True
        try:
            answer = self.begin(process, group, state, name)
            yield answer
            result = answer.result()
        except WorkerFailed as failure:
            budget = self.setting.budget_seconds
            by_budget = failure.hangs and state.workload.kind == "call" and budget < GATE_SECONDS
            way = f" (no longer, because of --budget {budget:g}: give more if its calls take so long)" * by_budget
            self.participants.exclude(name, f"{failure.reason}{way}", state)
            return False
        if "needs_torch" in result:
            group.torch = True
            return False
        if process.noise():
            self.participants.exclude(name, INTRUDES, state, Cause.REFUSED)
            return False
        if name in state.excluded:
            return True
        state.gates[name] = Gate.model_validate(result["gate"])
        if not result["gate"]["passed"]:
            self.participants.exclude(name, result["gate"]["detail"], state, Cause(result.get("cause", Cause.EXCLUDED)))
            # What a function left in its process must not be laid to another's account.
            return group.folder is not None or not self.participants.is_outside(name)
        if "trace" in result:
            state.traces[name] = Trace.model_validate(result["trace"])
        state.learnt[name] = learnt = result["learnt"]
        state.own_processes |= result.get("disturbs", False) and self.setting.device == "cpu"
        state.note_facts({name: result["facts"]})
        state.call_ns[name] = learnt["call_ns"]
        if dear := self._too_dear(state):
            for side, reason in dear.items():
                state.exclude(side, reason, Cause.TOO_LITTLE_TIME)
                self.setting.progress.note(f"{side} is left out of {state.name}")
            self.participants.changed()
            return True
        if learnt["own_threads"]:
            state.time_by_wall([name])
        if not result["cheap"] and name not in state.kept_together:
            state.kept_together.append(name)
        if self._to_pass:
            done = sum(len(each.gates) for each in self.participants.states) / self._to_pass
            self.setting.progress.step(f"gate {state.name}: {name}", done, math.nan)
        return True

    def _too_dear(self, state: ExperimentState) -> dict[str, str]:
        """The functions whose calls take so long that there is no time for a first interval, as far as gates say, and
        what to do; none where there may be one."""
        if state.workload.kind != "call":
            return {}
        budget = self.setting.budget_seconds
        (first_look, _), *_ = EARLY
        if first_look * seconds_of_calls(state) <= BEYOND_BUDGET * budget:
            return {}
        seconds = seconds_of_calls(state, guessed=True)
        least = first_look * seconds
        needs = f"a first interval needs {first_look} processes, and the calls of each take {short_time(seconds)}"
        fix = (
            f"give --budget {math.ceil(BUDGET_MARGIN * least)} ({needs}: {least:,.3g} s or more, and the budget is "
            f"{budget:g} s)"
        )
        learnt = {name: state.learnt[name] for name in state.remaining().variants if name in state.learnt}
        taken = {name: (facts.get("call_ns", 0) / 1e9, facts.get("make_ns", 0) / 1e9) for name, facts in learnt.items()}
        most = max(map(sum, taken.values()), default=0.0)
        return {
            name: f"a call takes {short_time(call)}"
            + (f" and its input {short_time(make)}" if make > call / 10 else "")
            + f": {fix}"
            for name, (call, make) in taken.items()
            if SAME_COST * (call + make) >= most
        }

    def standing(self, group: Group) -> WorkerProcess:
        """A process of the group that has all of its workloads and variants, with the verbs of all passes. Whom it
        could not take in has a reason in `lost_in_passes` of its experiment, and the next one does without it."""
        for _ in range(_tries(group)):
            if group.current is not None and group.current.whole and group.current.worker.alive():
                return group.current.worker
            try:
                current = self.processes.start(group)
                current.whole = all(self._is_taken_in(group, state) for state in group.states)
            except WorkerFailed as failure:
                raise _failed(failure.reason) from failure
        raise _failed("keeps failing")

    def _is_taken_in(self, group: Group, state: ExperimentState) -> bool:
        """Let the group's process take in all that is left of an experiment; whether none brought it down."""
        names = [name for name in state.remaining().entered() if name not in state.lost_in_passes]
        try:
            self.processes.take_in(group, state, names)
        except WorkerFailed as failure:
            if failure.variant_index is None:
                raise
            state.lost_in_passes[names[failure.variant_index]] = failure.reason
            return False
        return True


def _tries(group: Group) -> int:
    """Any of its variants may bring its process down, each once."""
    return 2 + sum(len(state.experiment.entered()) for state in group.states)


def _failed(what: str) -> MeasureError:
    return MeasureError(f"the measuring process {what} (its output lies in the run's log/)")
