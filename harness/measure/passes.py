"""What passes ask of the processes of a run once its rounds are over."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..machine.environment import Since
from .groups import Group, shuffled
from .measurement import Measurement
from .participants import ExperimentState, MeasureError, Progress
from .processes import WorkerFailed

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
