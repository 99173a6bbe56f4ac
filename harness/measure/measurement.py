"""From experiments to rounds of samples: fresh processes, gates first, then rounds until everything is settled.

One process per checkpoint (and one for components) measures. Gates run in several of them at once; rounds in one at a
time, and nothing beside it. A variant that raises, answers wrongly, hangs, leaks or kills its process is excluded, with
its reason, and the others continue. The caller's `Stopping` decides that an effect is settled: this module knows no
statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from llama_workbench.variants import FUNCTION_REFERENCE

from ..calls.called import SELDOM, is_beside
from ..spec.comparison import EnteredName
from ..spec.experiments import Experiment
from ..spec.sample import Round, RoundAnswer
from ..spec.words import Cause
from ..store.schema import LostProcess
from ..worker.channel import INTRUDES
from .choosing import (
    MOST_BLOCK_SECONDS,
    Open,
    Remaining,
    Stopping,
    block_seconds,
    choose_apart,
    decide_sliced,
    first_answer_text,
    in_parts,
    in_time,
    is_sliced,
    nearly_settled,
    next_to_measure,
    pace_of,
    round_seconds,
    saved_seconds,
)
from .gating import Gates
from .groups import Group, Processes, blamed, inputs_told
from .participants import ExperimentState, MeasureError, Participants, ProcessPace, Progress, Setting
from .processes import WorkerFailed, WorkerProcess

OVERTIME_SHARE = 0.1
"""For this share of their time rounds go on beyond it, as long as that should settle an effect: nobody wants to read
that a second more would have done."""

WANTED_PROCESSES = 16
"""Of functions, so many at least should fit in the time: a first interval that tells small differences needs 12."""

FORGIVEN_SHARE = 0.1
"""Of its processes a variant may lose so many and stay in the run; one in any case."""

ROUND_SECONDS = 30.0
"""A variant that has not answered after this long hangs (a round: and 20 times what its calls should take)."""

ASKED_SECONDS = 0.2
"""Of samples of each side in a process, where the first screen asks for a part of a layer: its calls are short, so
that a round would else be over after a few hundredths."""

MOST_SECONDS = 4.0
"""A round with a process for each side samples for as long as beginning these took, but no longer than this."""


class Measurement:
    """The measuring of a plan's experiments, for those who need several of its parts. changed: as in `Participants`."""

    def __init__(
        self, experiments: Sequence[Experiment], setting: Setting, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.setting = setting
        self.participants = Participants(experiments, setting, changed)
        self.processes = Processes(self.participants.states, setting)
        self.gates = Gates(self.participants, self.processes)
        self.schedule = Schedule(self.participants, self.processes, self.gates)


class Schedule:
    """Rounds and blocks, one after the other, until everything is settled or the time is over."""

    rule: Stopping
    keep: Callable[[Round], None]

    def __init__(self, participants: Participants, processes: Processes, gates: Gates) -> None:
        self.setting = participants.setting
        self.participants = participants
        self.processes = processes
        self.gates = gates

    def run(self, rule: Stopping, keep: Callable[[Round], None], *, seconds: float) -> None:
        """Rounds, experiment by experiment, until all is settled or `seconds` are spent, and for OVERTIME_SHARE of them
        beyond that what is nearly settled.

        `keep` stores each finished round. `next_to_measure` chooses, so that an effect that lies on a boundary cannot
        keep others waiting.
        """
        self.rule, self.keep = rule, keep
        start, states = time.monotonic(), self.participants.states
        self._prepare(seconds)
        effects = sum(remaining.effects for _, remaining in self._still_open())
        group_of = {id(state): group for group in self.processes.groups for state in group.states}
        counts = 0, 0
        while open_ := self._still_open():
            counts = _counts(open_, effects, counts)
            total_left = seconds - (time.monotonic() - start)
            if is_overtime := total_left <= 0:
                total_left += OVERTIME_SHARE * seconds
                open_ = nearly_settled(open_, total_left)
                if not open_:
                    break
            open_ = in_time(open_, total_left)
            best = open_[0] if is_overtime else next_to_measure(open_, total_left)
            intervals = f", intervals: {counts[0]} of {effects}, {counts[1]} narrow enough" if effects > 1 else ""
            _show(self.setting.progress, best[0].name + intervals, open_, (time.monotonic() - start, total_left))
            group, begun, before = group_of[id(best[0])], time.monotonic(), [state.seconds for state in states]
            self._turn(group, best, open_, total_left)
            spent = [state.seconds - seconds for state, seconds in zip(states, before, strict=True)]
            charge(states, spent, [state for state, _ in open_ if state in group.states], time.monotonic() - begun)
        for group in self.processes.groups:
            self._end_process(group)

    def _prepare(self, seconds: float) -> None:
        """Before the first round: what passed the gates ends, and it is decided what is measured apart."""
        states = self.participants.states
        for group in self.processes.groups:
            self.processes.end(group)  # what passed the gates is warm, and its sides were imported in a fixed order
        of_functions = [state for state in states if state.workload.kind == "call"]
        for state in of_functions:
            sides, processes = len(state.remaining().variants), state.processes_of(None)
            state.pace = ProcessPace(seconds / len(of_functions) / WANTED_PROCESSES, sides, processes=processes)
        if any(state.pairs_apart is None for state in states):  # else an earlier sitting decided
            choose_apart(states, self.rule, seconds)
            self.participants.changed()
        if said := first_answer_text(self._still_open(), seconds, self.setting.budget_seconds):
            self.setting.progress.note(said)
            self.participants.changed()

    def _still_open(self) -> list[Open]:
        """All that still needs rounds."""
        return [
            (state, remaining)
            for state in self.participants.states
            for remaining in self.rule.remaining(state.to_settle(), state.is_apart)
            if remaining.variants
        ]

    def _turn(self, group: Group, best: Open, open_: Sequence[Open], seconds_left: float) -> None:
        """One round of what is best measured next, in a process that has not measured it yet.

        Where that means a new process and it is not ready, what else is open in the group has a round meanwhile, or the
        same has one more in this process.
        """
        state, chosen = best
        pace = pace_of(open_, seconds_left)
        if state.own_processes:  # each round begins its own, and is none of a process that others share
            if group.current is not None:
                self._end_process(group)
            self._measure_once(group, state, chosen, pace)
            self.rule.end_process(group.processes)
            return
        if _had(group, best):
            if not self.processes.should_wait(group):
                self._end_process(group, begin=True)
                return  # what it gave counts now, and may be enough
            if fresh := [other for other in open_ if other[0] in group.states and not _had(group, other)]:
                state, chosen = next_to_measure(fresh, seconds_left)
        if group.current is not None and not group.current.worker.alive() and self._failed_to_begin(group, state):
            return
        self.processes.expect(group, state, chosen.variants)
        if group.current is None or not group.current.worker.alive():
            self._end_process(group, begin=True)
        if group.used:  # else nobody knows yet what the next process will measure
            self.processes.begin_ahead(group)
        if self._failed_to_begin(group, state):
            return
        alike = sum(other in group.states for other, _ in open_)
        for part in in_parts(state, chosen):
            if group.current is not None:
                self._measure_once(group, state, part, pace, alike)
        self.processes.begin_ahead(group)

    def _failed_to_begin(self, group: Group, state: ExperimentState) -> bool:
        """Whether the group's process died or hung while it began; it is lost and named then, as any other."""
        if (failed := self.processes.failed_to_begin(group)) is None:
            return False
        workload, name, reason = failed
        self._lost(group, {one.name: one for one in group.states}.get(workload, state), name, reason)
        return True

    def _end_process(self, group: Group, *, begin: bool = False) -> None:
        """The group's process is over; begin the next one, where there is to be one."""
        if group.current is not None:
            self.rule.end_process(group.current.number)
        if begin:
            self.processes.next_process(group)
        else:
            self.processes.end(group)

    def _measure_once(
        self, group: Group, state: ExperimentState, chosen: Remaining, pace: float, alike: int = 1
    ) -> None:
        """One round, or one block of a pair: measure, exclude what was wrong, keep the rest.

        pace: see `block_seconds`. alike: how much is open in the group, which this process should measure.
        """
        begun = time.monotonic()
        active = taking_part(state, chosen, state.rounds) if state.own_processes else list(chosen.variants)
        sliced = chosen.pair is not None and is_sliced(state, chosen.pair)
        try:
            answer = self._ask(group, state, chosen, pace, alike)
            number = group.current.number if group.current else group.processes
            bad = self._found_wrong(group, state, active, answer, number)
        except WorkerFailed as failure:
            place = failure.variant_index
            running = active[place] if place is not None and place < len(active) else None
            self._lost(group, state, running, failure.reason)
            return
        if any(map(self.participants.is_outside, bad)):
            self._end_process(group)  # what it left in the process need not be known in full
        for name, reason in bad.items():  # before the round is kept: a kill between the two must not hide it
            refused = {*answer.changed, *answer.elsewhere, *answer.leaks, *answer.refused}
            cause = Cause.REFUSED if reason == INTRUDES or name in refused else Cause.EXCLUDED
            self.participants.exclude(name, reason, state, cause)
        for name, reason in answer.failed.items():
            self._lost(group, state, name, reason)
        if parted := state.part(answer.facts, group.current.start_seconds if group.current else 0.0):
            self._end_process(group)
            self.participants.changed()
        if parted or answer.failed or answer.elsewhere or any(map(self.participants.is_outside, answer.changed)):
            return  # others may have felt it
        if sliced and not answer.samples and not bad:
            state.lost_blocks += 1  # on a busy machine: less than a call of some side while all computed
            return
        if not (samples := tuple(sample for sample in answer.samples if sample.variant not in bad)) and bad:
            return
        finished = Round(state.name, number, state.begun, samples)
        if state.time_by_wall(answer.by_wall):
            self.participants.changed()
        state.note_facts(answer.facts)
        state.note_facts({name: {"inputs": count} for name, count in answer.pooled.items()})
        state.note_calls(samples)
        state.note_process(finished)
        if chosen.pair is not None and chosen.pair not in state.sliced:
            decide_sliced(state, chosen.pair, samples)
            self.participants.changed()
        self.keep(finished)
        self.rule.add(finished)
        tally = state.together if chosen.pair is None else state.apart
        spent = time.monotonic() - begun
        tally.add(spent + saved_seconds(state))
        if group.current is not None:
            group.current.had.add((finished.workload, chosen.pair))
            group.current.measured_seconds += spent
        state.note_seconds(samples, spent, sliced=sliced)

    def _ask(self, group: Group, state: ExperimentState, chosen: Remaining, pace: float, alike: int) -> RoundAnswer:
        """What the processes answer to a round or block. Raises WorkerFailed with the place of the side in what takes
        part."""
        if group.current is None:
            return self._ask_for_turns(group, state, chosen)
        active = list(chosen.variants)
        self.processes.take_in(group, state, active)
        part = group.current.start_seconds / max(alike, 1)  # a process measures for as long as it took to begin
        outputs = str(self.processes.examination.file) if self.processes.examination else ""
        if chosen.pair is None:
            is_asked = chosen.asked is not None and state.workload.kind == "component"
            side_seconds = state.side_seconds or max(part / len(active), ASKED_SECONDS * is_asked)
            return ask_for_round(group.current.worker, state, active, outputs, side_seconds * len(active))
        usual = block_seconds(state, active, pace if chosen.needs_precision else 0.0)
        seconds, sliced = max(usual, min(part, MOST_BLOCK_SECONDS)), is_sliced(state, chosen.pair)
        return ask_for_round(group.current.worker, state, active, outputs, seconds, sliced=sliced)

    def _ask_for_turns(self, group: Group, state: ExperimentState, chosen: Remaining) -> RoundAnswer:
        """A round in which each side has a process of its own: begin them anew and let them take turns. Those of a
        divided group are gated before, and their answers compared."""
        begun = time.monotonic()
        active, next_active = (taking_part(state, chosen, number) for number in (state.rounds, state.rounds + 1))
        with self.processes.fresh_crew(group, state, active) as crew:
            self.processes.begin_crew_ahead(group, state, next_active)
            if group.divided:
                gated = {name: self.gates.begin(crew.members[name], group, state, name) for name in active}
                results = {}
                for name, gate in gated.items():
                    with blamed(active, name):
                        results[name] = gate.result()["gate"]
                if failed := {name: each["detail"] for name, each in results.items() if not each["passed"]}:
                    return RoundAnswer(wrong=failed)
                if wrong := crew.compared(1):
                    return RoundAnswer(wrong=wrong)
            return crew.take_turns(min(max(time.monotonic() - begun, 2 * state.side_seconds), MOST_SECONDS))

    def _lost(self, group: Group, state: ExperimentState, name: str | None, reason: str) -> None:
        """A process failed: it is lost and named. Who loses more than FORGIVEN_SHARE of its processes is excluded."""
        number = group.current.number if group.current else group.processes
        self._end_process(group)
        group.used = {}  # one by one, so that it is seen who fails
        state.lost_processes.append(LostProcess(process=number, variant=name, reason=reason))
        lost = sum(process.variant == name for process in state.lost_processes)
        begun = lost + state.processes_of(name)
        if lost <= max(1, int(FORGIVEN_SHARE * begun)):
            self.setting.progress.note(f"{state.name}: process {number} is lost: {name or 'its process'} {reason}")
            self.participants.changed()
        elif name is None:
            raise MeasureError(f"the measuring process {reason} between variants, in {lost} processes of {begun}")
        else:
            self.participants.exclude(name, reason, state)

    def _found_wrong(
        self, group: Group, state: ExperimentState, active: Sequence[str], answer: RoundAnswer, number: int
    ) -> dict[str, str]:
        """Variant → why it is excluded after a round, by the process's answer. Raises WorkerFailed where the reference
        benchmark of functions alone is at fault: its code is ours, and what it met there is another's doing."""
        bad = self.processes.judge(state, self.setting.draw_of(number), answer.drawn) if answer.drawn else {}
        foreign = [name for name in active if self.participants.is_outside(name)]
        for index in group.current.worker.noise() if group.current is not None else ():
            running = active[index] if index is not None and index < len(active) else None
            if running in foreign or len(foreign) == 1:
                bad[running if running in foreign else foreign[0]] = INTRUDES
            elif running == FUNCTION_REFERENCE:
                bad[running] = INTRUDES
        misbehaved = {**answer.changed, **answer.elsewhere}
        if any(map(self.participants.is_outside, misbehaved)):
            bad = misbehaved  # what is wrong with others may be its doing
        else:
            bad |= {**answer.wrong, **misbehaved}
            for name, grown in answer.leaks.items():
                bad[name] = f"leaks: memory grew by {grown / 1e6:.0f} MB while it was rebuilt and called"
        spoilt = bad.pop(FUNCTION_REFERENCE, "")
        if spoilt and not bad:
            raise WorkerFailed(spoilt, active.index(FUNCTION_REFERENCE))
        return bad


def _had(group: Group, what: Open) -> bool:
    """Whether the group's process has measured this already."""
    state, chosen = what
    return group.current is not None and (state.name, chosen.pair) in group.current.had


def charge(
    states: Sequence[ExperimentState], spent: Sequence[float], served: Sequence[ExperimentState], seconds: float
) -> None:
    """Charge the seconds of a turn: to each experiment what its own rounds took (`spent`); the rest, such as waiting
    for a process, in equal parts to those that the process serves. Whose turn it is does not matter: others may have
    been measured meanwhile."""
    for state, own in zip(states, spent, strict=True):
        state.wall_seconds += own
    shared = {id(state): state for state in served}.values()
    for state in shared:
        state.wall_seconds += max(seconds - sum(spent), 0.0) / len(shared)


def _counts(open_: Sequence[Open], effects: int, before: tuple[int, int]) -> tuple[int, int]:
    """How many of so many effects have an interval, and how many are known as well as they are wanted: no fewer than
    `before`, for an interval may widen. open_: all that is open, also what no time is left for."""
    begun = effects - sum(remaining.effects for _, remaining in open_ if remaining.early)
    narrow = effects - sum(remaining.effects for _, remaining in open_)
    return max(begun, before[0]), max(narrow, before[1])


def _show(progress: Progress, text: str, open_: Sequence[Open], times: tuple[float, float]) -> None:
    """Say how far it is. times: seconds elapsed, and left."""
    elapsed, total_left = times
    needed = sum(
        min(remaining.rounds_all * round_seconds(state, remaining.pair), total_left) for state, remaining in open_
    )
    left = min(total_left, needed)
    progress.step(text, elapsed / (elapsed + left), left)


def taking_part(state: ExperimentState, chosen: Remaining, number: int) -> list[str]:
    """Who takes part in a round of this number where each side has a process: controls in one of SELDOM, the
    reference benchmark in every second one, and never both. Beginning a process takes as long for them as for what
    is compared."""
    compared = [name for name in chosen.variants if not is_beside(name)]
    if len(compared) < 2:
        return list(chosen.variants)
    controls = [name for name in chosen.variants if EnteredName(name).is_control]
    reference_benchmark = [name for name in chosen.variants if name == FUNCTION_REFERENCE]
    return [*compared, *(controls if number % SELDOM == 0 else reference_benchmark if number % 2 else ())]


def ask_for_round(
    process: WorkerProcess,
    state: ExperimentState,
    active: Sequence[str],
    outputs: str,
    seconds: float,
    *,
    sliced: bool = False,
) -> RoundAnswer:
    """A round, or a block where it is sliced, that samples for so many seconds at least, all sides together. Raises
    WorkerFailed."""
    limit = ROUND_SECONDS + 20 * 60 * sum(state.call_ns.get(name, 0.0) for name in active) / 1e9
    what = {"workload": state.name, "round_index": state.begun, "outputs": outputs}
    if sliced:
        answer = process.ask("block", 2 * limit, sides=active, seconds=seconds, limit=limit, **what)
    else:
        each_seconds = seconds / len(active)
        inputs = inputs_told(state, each_seconds)
        answer = process.ask("round", limit, active=active, least_ns=each_seconds * 1e9, **inputs, **what)
    return RoundAnswer.from_json(answer)
