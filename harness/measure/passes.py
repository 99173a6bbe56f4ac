"""How passes ask the processes of a run, once its rounds are over."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..machine.environment import Since
from .crews import shuffled
from .groups import Group
from .measurement import Measurement
from .participants import ExperimentState, MeasureError, Progress
from .processes import WorkerFailed

PASS_SECONDS = 180.0
"""A pass has failed once it takes this much longer than its calls should take."""


def measured_by(measurement: Measurement) -> dict[str, tuple[Group, ExperimentState]]:
    """Workload → the process that measures it and the state of its experiment."""
    return {
        book.experiment.workload.name: (group, book) for group in measurement.processes.groups for book in group.books
    }


def ask_about(
    measurement: Measurement,
    group: Group,
    book: ExperimentState,
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
        lost |= {name: book.lost_in_passes[name] for name in left if name in book.lost_in_passes}
        if not (left := [name for name in left if name not in lost]):
            break
        calls_seconds = sum(max(book.call_ns.get(name, 0.0) / 1e9, 0.05) for name in left)
        try:
            what = {"workload": book.experiment.workload.name, "variants": left, **arguments}
            limit = limit_seconds + limit_calls * calls_seconds
            return process.ask(verb, limit, **what), lost
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
    """Variants of a workload that are asked in several lives: the number of each life with its answer, and who failed
    in one, with the reason. busy: which share of the machine other programs used in each life's answer."""

    group: Group
    book: ExperimentState
    names: Sequence[str]
    answers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)

    @property
    def left(self) -> list[str]:
        """Who is still asked."""
        return [name for name in self.names if name not in self.lost]


def ask_in_lives(
    measurement: Measurement,
    wanted: Mapping[str, Sequence[str]],
    verb: str,
    lives: int,
    arguments: Callable[[Asked], Mapping[str, Any]],
    step: Callable[[Mapping[str, Asked], float], None],
) -> None:
    """Ask about variants, by workload, in so many lives. Who fails in one is left out of the rest.

    Lives take turns: the first one of every group, then the second one of every group. So what is known of a workload
    comes from the whole time that the pass takes, and not from a minute of it: a machine that is slower for a while
    would pass for a difference. step: told all that is known so far, and the share that is done.
    """
    by_workload = measured_by(measurement)
    asked = {name: Asked(*by_workload[name], names) for name, names in wanted.items()}
    total = lives * max(len(asked), 1)

    def open_of(group: Group) -> list[Asked]:
        return [each for each in asked.values() if each.group is group and len(each.answers) < lives and each.left]

    while groups := [group for group in measurement.processes.groups if open_of(group)]:
        for group in groups:
            step(asked, sum(len(each.answers) for each in asked.values()) / total)
            more = len(groups) == 1 and any(len(each.answers) + 1 < lives for each in open_of(group))
            _one_life(measurement, group, open_of(group), verb, arguments, more=more)
            if len(groups) > 1:  # there is room for one checkpoint at a time
                measurement.processes.end(group)
    for group in measurement.processes.groups:
        measurement.processes.end(group)
    step(asked, 1.0)


def _one_life(
    measurement: Measurement,
    group: Group,
    open_: Iterable[Asked],
    verb: str,
    arguments: Callable[[Asked], Mapping[str, Any]],
    *,
    more: bool,
) -> None:
    """One answer about each of these, in an order of its own. more: the next life begins beside this one."""
    processes = measurement.processes
    life = processes.next_life(group)
    by_name = {each.book.experiment.workload.name: each for each in open_}
    order = shuffled(measurement.setting.seed, list(by_name), verb, life.number)
    for name in order:
        asked, left = by_name[name], by_name[name].left
        try:
            processes.take_in(group, asked.book, left)
            if more and name == order[-1]:
                processes.begin_ahead(group)
            what = {"workload": name, "variants": left, **arguments(asked)}
            since = Since.now()
            asked.answers.append((life.number, life.process.ask(verb, PASS_SECONDS, **what)))
            asked.busy.append(since.busy())
        except WorkerFailed as failure:
            asked.lost |= _blamed_on(failure, left)
            processes.end(group)
            group.used = {}
            return


def _blamed_on(failure: WorkerFailed, names: Sequence[str]) -> dict[str, str]:
    """Who is out after a failure, and why: the variant that ran, or all of them where nobody knows."""
    guilty = names if failure.variant_index is None else [names[failure.variant_index]]
    return dict.fromkeys(guilty, failure.reason)
