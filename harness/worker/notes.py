"""What the user's own functions do to their process beside answering: noted, and kept from the other sides; no fault.

Child processes and threads of theirs count, too: by wall time. What a function changed for the whole process is there
again in its next turn, and in nobody else's. Only what makes the clocks lie, or files run out, is a fault. Runs in the
measuring process; foreign code is held to more (see `watch`).
"""

from __future__ import annotations

import gc
import locale
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from llama_workbench.variants import FUNCTION_YARDSTICK

from .devices import Spent
from .watch import (
    OWN_THREADS_NS,
    THRESHOLDS,
    Turn,
    Watch,
    Watched,
    children_of,
    cpu_ns_left,
    put_back,
    scheduled_ns,
    tree_of,
)

CLOCKS = frozenset(
    f"{name}{unit}"
    for name in ("perf_counter", "process_time", "thread_time", "monotonic", "time", "clock_gettime")
    for unit in ("", "_ns")
)

CHILD = "child "
COMPUTES = "what else computes, because its threads or child processes go on between its calls"

MOST_FILES = 0.5  # of the files that a process may have open: who leaves so many open brings down everybody in it

_list = os.listdir  # bound before any of their code is imported


def _set_environment(value: dict[str, str]) -> None:
    for name in os.environ.keys() - value.keys():
        del os.environ[name]
    os.environ.update(value)


def _set_filters(value: tuple[Any, ...]) -> None:
    warnings.filters[:] = value  # type: ignore[index]
    getattr(warnings, "_filters_mutated", lambda: None)()


COLLECTS = "whether garbage is collected"
COLLECTOR = (COLLECTS, THRESHOLDS)  # who sets these is measured in a process of its own

SETTINGS = (
    Watched(COLLECTS, gc.isenabled, lambda is_on: (gc.enable if is_on else gc.disable)()),
    Watched("environment variables", lambda: dict(os.environ), _set_environment),
    Watched("the locale", lambda: locale.setlocale(locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
    Watched("which warnings are shown", lambda: tuple(warnings.filters), _set_filters),
)
"""Beside those that are watched for everybody."""


@dataclass
class NotesOfSide:
    """What is known of one side. changes: what it changed for the whole process → whether that could not be undone.
    again: the same → how it is brought back for its next turn. sets_collector: whether it set the collector in a
    process that others share."""

    changes: dict[str, bool] = field(default_factory=dict)
    again: dict[str, Callable[[], Any]] = field(default_factory=dict)
    sets_collector: bool = False
    fault: str = ""
    turn: Turn = field(default_factory=Turn)
    calls: int = 0
    has_children: bool = False
    children_ns: int = 0
    files_left: int = 0


class Notes:
    """Whose code runs, what each side did to the process so far, and the state that each finds. may_collect: whether
    garbage may be collected between samples, so that what only garbage holds open is seen to be nobody's."""

    may_collect = True

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._more = [(setting, setting.read()) for setting in SETTINGS]
        self._modules = set(sys.modules)
        self._seen: dict[str, NotesOfSide] = {}
        self._current = ""
        self._owner: dict[str, str] = {}  # child process or thread → whose it is; "" of what nobody is charged for
        self._files_before = self._opened = 0
        self._claim("")

    def of(self, name: str) -> NotesOfSide:
        """What is known of a side."""
        return self._seen.setdefault(name, NotesOfSide())

    def turn(self, name: str) -> None:
        """The code of this side runs from here on ("": ours). What the one before changed is undone until its next
        turn."""
        if name == self._current:
            return
        self._undo()
        self._current = name
        for again in self.of(name).again.values():
            with suppress(OSError, ValueError, AttributeError, RecursionError):  # a folder that is gone by now
                again()
        if name:
            self._files_before = _open_files()

    def begin(self) -> None:
        """Its input is there. What making that changed for the process, or opened or started, is nobody's doing."""
        own = self.of(self._current).again
        for table in self._tables():
            table[:] = [(each, before if each.what in own else each.read()) for each, before in table]
        self._claim("")
        self.start()

    def start(self) -> None:
        """What follows is what `end` is told of."""
        self._claim(self._current)
        self._files, self._reaped, self._parts_ns = _open_files(), _reaped(), dict(self._parts())

    def end(self, calls: int, spent: Spent) -> None:
        """So many calls are over, and this is what the clocks say of them."""
        seen, reaped, parts = self.of(self._current), _reaped(), dict(self._parts())
        self._claim(self._current)
        for part, now_ns in parts.items():
            spent_ns, owner = now_ns - self._parts_ns.get(part, 0), self._owner.get(part, self._current)
            is_busy, goes_on = spent_ns > OWN_THREADS_NS, self.of(owner).changes.get(COMPUTES, False)
            if is_busy and owner and self._current == FUNCTION_YARDSTICK:  # which starts nothing
                self.of(owner).changes[COMPUTES] = True
            elif part.startswith(CHILD) and (owner == self._current or (owner and is_busy and not goes_on)):
                seen.has_children = True  # of its own, or of a pool that several sides use
                seen.children_ns += spent_ns
        ended_ns = sum(ns for part, ns in self._parts_ns.items() if part.startswith(CHILD) and part not in parts)
        seen.has_children |= reaped != self._reaped
        seen.children_ns += max(reaped[0] - self._reaped[0] - ended_ns, 0)
        used = {"process_ns": spent.process_ns, "others_ns": spent.others_ns, "wall_ns": spent.around_ns}
        seen.turn.add(1, waits=spent.waits, queued_ns=spent.queued_ns, **used)
        seen.calls += calls
        self._opened = max(0, _open_files() - self._files)

    def gone(self, name: str) -> None:
        """The inputs of its calls are gone: what these opened, and is open still, they left open."""
        seen, now = self.of(name), _open_files()
        if self._opened and now > self._files_before:  # a database's connection is in a cycle
            if not self.may_collect:
                return
            gc.collect()
            now = _open_files()
        seen.files_left += min(self._opened, max(0, now - self._files_before))
        self._files_before, self._opened = now, 0
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if seen.files_left > MOST_FILES * most:
            left = f"{seen.files_left:,} after {seen.calls:,} calls, and its process may have {most:,} (ulimit -n)"
            seen.fault = f"leaves files open, {left}: close them in each call"

    def found_setting_collector(self, name: str) -> bool:
        """Whether a side set the collector, which was undone, since this was last asked."""
        seen = self.of(name)
        taken = [seen.changes.pop(what, None) for what in COLLECTOR]
        seen.sets_collector |= (is_new := taken != [None, None])
        return is_new

    def leave_collector(self) -> None:
        """From here on the collector is the side's own: nobody else runs in the process."""
        self.may_collect = False
        self._more = [(setting, before) for setting, before in self._more if setting.what not in COLLECTOR]
        for name in self._seen:
            self.found_setting_collector(name)

    def needs_wall(self, name: str) -> bool:
        """Whether the CPU time of the calling thread is not all that a call costs."""
        seen = self.of(name)
        return seen.has_children or seen.turn.threads_compute or seen.turn.waits_each_time

    def facts(self, name: str) -> dict[str, Any]:
        """By the fields of `SideFacts`; those that say nothing are left out."""
        seen = self.of(name)
        wall_ns, threads_ns = max(seen.turn.wall_ns, 1), seen.turn.others_ns
        if seen.sets_collector:  # said once; its turn in a check of answers brought it back
            self.found_setting_collector(name)
        facts = {
            "children_share": seen.children_ns / wall_ns if seen.has_children else None,
            "threads_share": threads_ns / wall_ns if seen.turn.threads_compute else None,
            "files_left": seen.files_left / max(seen.calls, 1) or None,
            "sets_collector": seen.sets_collector or None,
            "changes": [{"what": what, "felt": felt} for what, felt in seen.changes.items()] or None,
        }
        return {field: value for field, value in facts.items() if value is not None}

    # -- what was changed ----------------------------------------------------------------------------------------------

    def _tables(self) -> tuple[list[tuple[Watched, Any]], ...]:
        return self._watch.settings, self._more

    def _undo(self) -> None:
        """Note what differs from what everybody finds, and put it back."""
        self._claim(self._current)
        if not self._current:  # our code ran
            for table in self._tables():
                table[:] = [(setting, setting.read()) for setting, _ in table]
            return
        if (
            new := sys.modules.keys() - self._modules
        ):  # what that sets is nobody's doing: whoever comes first imports it
            self._modules |= new
            self._more = [(setting, setting.read()) for setting, _ in self._more]
        seen = self.of(self._current)
        seen.again.clear()
        for table in self._tables():
            for place, (setting, before) in enumerate(table):
                value = setting.read()
                if value == before:
                    continue
                if felt := not put_back(setting, before):
                    table[place] = setting, setting.read()
                elif setting.restore is not None:
                    seen.again[setting.what] = partial(setting.restore, value)
                seen.changes[setting.what] = felt
        for names in self._watch.names:
            for name, value in names.taken().items():
                what = names.what.format(name)
                if names.owner is time and name in CLOCKS:
                    seen.fault = f"puts something else in the place of {what}, a clock that measures it: leave it alone"
                    continue
                seen.again[what] = partial(names.put, name, value)
                seen.changes[what] = False

    # -- what else computes --------------------------------------------------------------------------------------------

    def _claim(self, name: str) -> None:
        """What runs beside the calling thread now, and did not before, is this side's."""
        self._owner = {part: self._owner.get(part, name) for part in _parts()}

    def _parts(self) -> Iterator[tuple[str, int]]:
        """Each child process, with what it started, and while nobody else computes each thread: its CPU time (ns)."""
        for part in _parts():
            number = part.partition(" ")[2]
            if part.startswith(CHILD):
                yield part, sum(map(cpu_ns_left, (int(number), *tree_of(int(number)))))
            elif self._current == FUNCTION_YARDSTICK:
                yield part, scheduled_ns(f"self/task/{number}")[0]


def _parts() -> list[str]:
    own = str(os.getpid())
    threads = [f"thread {thread}" for thread in _list("/proc/self/task") if thread != own]
    return [*threads, *(f"{CHILD}{child}" for child in children_of())]


def _open_files() -> int:
    return len(_list("/proc/self/fd"))


def _reaped() -> tuple[int, int, int]:
    """CPU time (ns) of all child processes that have ended, and two counts that tell that one did which took none."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int(1e9 * (used.ru_utime + used.ru_stime)), used.ru_minflt, used.ru_nvcsw
