"""What is asked of the processes of a run once its rounds are over: by passes, and about a gain that is too good."""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..machine.environment import Since
from ..spec.comparison import Comparison
from ..spec.words import Cause
from ..store.schema import Confirmed
from .groups import Group, blamed, shuffled
from .measurement import Measurement
from .participants import ExperimentState, MeasureError, Progress
from .processes import WorkerFailed, WorkerProcess

PASS_SECONDS = 180.0
"""A pass has failed once it takes this much longer than its calls should take."""


def measured_by(measurement: Measurement) -> dict[str, tuple[Group, ExperimentState]]:
    """Workload → the process that measures it and the state of its experiment."""
    return {state.name: (group, state) for group in measurement.processes.groups for state in group.states}


def ask_about(
    measurement: Measurement,
    group: Group,
    state: ExperimentState,
    names: Sequence[str],
    verb: str,
    limit_seconds: float,
    limit_calls: int,
    **arguments: Any,
) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The answer of a pass about several variants at once, and why some have none.

    A variant that fails, or brings the process down, gets a reason, and the rest start anew. They have
    `limit_seconds` and the time of `limit_calls` calls of each.
    """
    left, lost = list(names), dict[str, str]()
    while left:
        process = measurement.gates.standing(group)
        lost |= {name: state.lost_in_passes[name] for name in left if name in state.lost_in_passes}
        if not (left := [name for name in left if name not in lost]):
            break
        calls_seconds = sum(max(state.call_ns.get(name, 0.0) / 1e9, 0.05) for name in left)
        try:
            what = {"workload": state.name, "variants": left, **arguments}
            return process.ask(verb, limit_seconds + limit_calls * calls_seconds, **what), lost
        except WorkerFailed as failure:
            lost |= _blamed_on(failure, left)
            left = [name for name in left if name not in lost]
    return None, lost


@contextmanager
def kept_apart(what: str, run: Path, progress: Progress) -> Iterator[None]:
    """Whatever goes wrong with a pass in here is told in one line: what was measured before it counts all the same."""
    try:
        yield
    except (WorkerFailed, MeasureError) as error:
        progress.note(f"{what}: nothing found, {error}")
    except Exception as error:  # a fault of ours, or a full disk
        log = run / "log" / "passes.log"
        with suppress(OSError), log.open("a", encoding="utf-8") as file:
            file.write(traceback.format_exc())
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        progress.note(f"{what} failed: {problem} ({log}); what was measured before counts: workbench judge {run}")


@dataclass
class Asked:
    """Variants of a workload that are asked in several processes: the number of each process with its answer, and
    who failed in one, with the reason. busy: which share of the machine other programs used in each process's
    answer."""

    group: Group
    state: ExperimentState
    names: Sequence[str]
    answers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)

    @property
    def left(self) -> list[str]:
        """Who is still asked."""
        return [name for name in self.names if name not in self.lost]


def ask_in_processes(
    measurement: Measurement,
    wanted: Mapping[str, Sequence[str]],
    verb: str,
    times: int,
    arguments: Callable[[Asked], Mapping[str, Any]],
    step: Callable[[Mapping[str, Asked], float], None],
) -> None:
    """Ask about variants, by workload, in so many processes (`times`). Who fails in one is left out of the rest.

    Processes take turns: the first one of every group, then the second one of every group. So what is known of a
    workload comes from the whole time that the pass takes, and not from a minute of it: a machine that is slower
    for a while would pass for a difference. step: told all that is known so far, and the share that is done.
    """
    processes, by_workload = measurement.processes, measured_by(measurement)
    asked = {name: Asked(*by_workload[name], names) for name, names in wanted.items()}
    total = times * max(len(asked), 1)

    def open_of(group: Group) -> list[Asked]:
        return [each for each in asked.values() if each.group is group and len(each.answers) < times and each.left]

    def one_process(group: Group, more: bool) -> None:
        """An answer about each, in an order of its own. more: the next process begins beside this one."""
        current = processes.next_process(group)
        order = shuffled(measurement.setting.seed, open_of(group), verb, current.number)
        for entry in order:
            left = entry.left
            try:
                processes.take_in(group, entry.state, left)
                if more and entry is order[-1]:
                    processes.begin_ahead(group)
                what = {"workload": entry.state.name, "variants": left, **arguments(entry)}
                since = Since.now()
                entry.answers.append((current.number, current.worker.ask(verb, PASS_SECONDS, **what)))
                entry.busy.append(since.busy())
            except WorkerFailed as failure:
                entry.lost |= _blamed_on(failure, left)
                processes.end(group)
                group.used = {}
                return

    while groups := [group for group in processes.groups if open_of(group)]:
        for group in groups:
            step(asked, sum(len(each.answers) for each in asked.values()) / total)
            one_process(group, len(groups) == 1 and any(len(each.answers) + 1 < times for each in open_of(group)))
            if len(groups) > 1:  # there is room for one checkpoint at a time
                processes.end(group)
    for group in processes.groups:
        processes.end(group)
    step(asked, 1.0)


def _blamed_on(failure: WorkerFailed, names: Sequence[str]) -> dict[str, str]:
    """Who is out after a failure, and why: the variant that ran, or all of them where nobody knows."""
    guilty = names if failure.variant_index is None else [names[failure.variant_index]]
    return dict.fromkeys(guilty, failure.reason)


# -- a speed-up that is too good, measured again another way: both sides alone in fresh processes, timed from outside --

# The parent reads each process's CPU time before and after a stretch of calls. What happens inside, be it in another
# thread or with the clocks, cannot change that. Drawn outputs are judged as in rounds. A variant that gains much less
# from outside is excluded; else the second ratio is shown beside the effect.

SUSPICIOUS_RATIO = 10.0
"""No change of architecture made a whole model so much faster; what did was a mistake of the measuring."""

FOREIGN_RATIO = 1.3
"""Foreign code is asked from here on: it runs in the process that times it, and may reach what times it."""

BLOCKS, BLOCK_SECONDS = 7, 0.25
"""Both sides in turns, so many stretches of calls each, of about this length."""

MOST_OVERSTATED = 1.3
"""The two ratios come from processes with other neighbours in the caches, which do less than this factor; and a
second try is made before a variant is excluded. A larger gain from outside is no reason: whoever reaches the clock
makes the gain inside the larger one, and a short call alone finds its caches warm (a tiny model: 10x, alone 14x)."""

STRETCH_SECONDS = 120.0


class Wrong(Exception):
    """A side gave a wrong output, or left something behind, when it was measured again."""

    def __init__(self, side: str, reason: str) -> None:
        self.side = side
        super().__init__(reason)


def holds(confirmed: Confirmed) -> bool:
    """Whether the gain from outside is about as large as the one from inside, or larger."""
    lost = confirmed.inside / confirmed.ratio
    return (lost if confirmed.inside >= 1 else 1 / lost) <= MOST_OVERSTATED


def confirm(measurement: Measurement, ratios: Mapping[Comparison, float]) -> None:
    """Measure suspicious ratios of whole models again, very large ones or large ones in favour of foreign code, and
    note the results with the state of their experiments.

    `ratios`: what rounds gave, t_baseline / t_variant. Where much of a gain is not there from outside, the faster side
    is excluded.
    """
    places = measured_by(measurement)
    for comparison, inside in ratios.items():
        faster = comparison.variant if inside >= 1 else comparison.baseline
        least = FOREIGN_RATIO if measurement.participants.is_outside(faster) else SUSPICIOUS_RATIO
        if comparison.metric != "time" or max(inside, 1 / inside) < least:
            continue
        group, state = places[comparison.workload]
        if group.folder is not None and comparison in {target.comparison for target in state.remaining().targets}:
            measurement.processes.end(group)  # its caches and memory are what the fresh ones must not share
            measurement.setting.progress.phase(f"{inside:.3g}x is measured again, from outside: {comparison.variant}")
            _confirm_one(measurement, group, state, comparison, inside)


def _confirm_one(
    measurement: Measurement, group: Group, state: ExperimentState, comparison: Comparison, inside: float
) -> None:
    sides = comparison.variant, comparison.baseline
    exclude = measurement.participants.exclude
    try:
        result = _from_outside(measurement, group, state, comparison, inside)
        if not holds(result):
            result = _from_outside(measurement, group, state, comparison, inside)
    except WorkerFailed as failure:
        side = sides[failure.variant_index or 0]
        exclude(side, f"measured again in a fresh process, it {failure.reason}", state)
    except Wrong as wrong:
        exclude(wrong.side, f"measured again in a fresh process: {wrong}", state)
    else:
        state.confirmations.append(result)
        if not holds(result):
            text = f"{inside:.3g}x timed from inside its process, {result.ratio:.3g}x alone and timed from outside"
            exclude(sides[inside < 1], text, state, Cause.REFUSED)


def _from_outside(
    measurement: Measurement, group: Group, state: ExperimentState, comparison: Comparison, inside: float
) -> Confirmed:
    """The ratio as the parent's clock has it. Raises WorkerFailed with the place of the side that failed, Wrong, and
    MeasureError where the process that judges outputs failed."""
    sides = comparison.variant, comparison.baseline
    by_cpu = (
        state.workload.threads == 1 and measurement.setting.device == "cpu" and not {*sides} & {*state.wall_variants}
    )
    examination = measurement.processes.examination
    assert examination is not None
    with ExitStack() as stack:
        processes: dict[str, WorkerProcess] = {}
        for side in sides:
            with blamed(sides, side):
                fresh = measurement.processes.another(group, state, "confirmation.log")
            processes[side] = stack.enter_context(closing(fresh))
        for side, process in processes.items():
            with blamed(sides, side):
                gate = measurement.gates.begin(process, group, state, side).result()["gate"]
                if not gate["passed"]:
                    raise WorkerFailed(f"does not pass its gates: {gate['detail']}")

        def spent_ns(side: str) -> int:
            return processes[side].cpu_ns() if by_cpu else time.perf_counter_ns()

        def stretch(side: str, seconds: float) -> tuple[int, int]:
            """Nanoseconds that a stretch took, and its calls."""
            limit = STRETCH_SECONDS + 20 * state.call_ns[side] / 1e9
            with blamed(sides, side):
                go = processes[side].ask_in_two("stretch", limit, workload=state.name, variant=side, seconds=seconds)
                begun = spent_ns(side)
                done = go()
            return spent_ns(side) - begun, done["calls"]

        def check(side: str) -> None:
            """Judge an output of the stretch that is over, and what it left behind."""
            what = {"workload": state.name, "variant": side, "outputs": str(examination.file)}
            with blamed(sides, side):
                left = processes[side].ask("stretch_outputs", STRETCH_SECONDS, **what)
            if left["changed"]:
                raise Wrong(side, str(left["changed"]))
            if wrong := measurement.processes.judge(state, measurement.setting.draw_of(0), left["drawn"]).get(side):
                raise Wrong(side, wrong)

        times: dict[str, list[float]] = {side: [] for side in sides}
        calls = 0
        asking_ns = {side: statistics.median(stretch(side, 0.0)[0] for _ in range(3)) for side in sides}
        for block in range(BLOCKS):
            for side in sides if block % 2 else sides[::-1]:
                taken_ns, count = stretch(side, BLOCK_SECONDS)
                times[side].append(max(taken_ns - asking_ns[side], 1) / count)
                calls += count
                check(side)
        ratio = statistics.median(times[comparison.baseline]) / statistics.median(times[comparison.variant])
        names = {"variant": comparison.variant, "baseline": comparison.baseline}
        return Confirmed(**names, ratio=ratio, inside=inside, calls=calls)
