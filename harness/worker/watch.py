"""What a variant leaves behind in its process that would change the times of others, or hide its own.

The check runs after a variant was imported, built or called, between samples, and takes about a tenth of a millisecond.
What can be restored is restored, and the variant is excluded. Runs in the measuring process.
"""

from __future__ import annotations

import builtins
import gc
import locale
import os
import resource
import signal
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from llama_workbench.variants import FUNCTION_REFERENCE

from ..machine.lifeline import cpu_ns_of

if TYPE_CHECKING:
    from torch import Tensor

    from .devices import Spent


# -- one thing that all code in a process shares -----------------------------------------------------------------------

GRADIENTS = "whether gradients are on"  # the one setting of torch that is another one while any functions are called

OF_BINDINGS = "__pybind11_"
"""How names begin that pybind11 adds to the built-in ones, for all modules compiled with it: no one looks them up."""

GONE = object()  # stands for what a name stands for that was removed


class Watched(NamedTuple):
    """One setting that all code in the process shares: how to read it, and how to restore it (None: impossible)."""

    what: str
    read: Callable[[], Any]
    restore: Callable[[Any], Any] | None = None


class Names:
    """Everything that a module or class holds, or these `names` of it, to detect what was replaced."""

    def __init__(self, what: str, owner: Any, names: list[str] | None = None) -> None:
        self.what, self.owner, self.names = what, owner, names
        self.content = vars(owner)  # bound here: foreign code may replace `vars`
        self.save()

    def save(self) -> None:
        """Take the present content for the right one."""
        self.saved = dict(self.content) if self.names is None else {name: self.content[name] for name in self.names}

    def taken(self) -> dict[str, Any]:
        """Names that were replaced, added or removed, with what each stood for (GONE: nothing). They are restored."""
        content = self.content
        self.saved |= {
            name: content[name] for name in content if name.startswith(OF_BINDINGS) and name not in self.saved
        }
        if self.names is None and content == self.saved:
            return {}
        replaced = [name for name, value in self.saved.items() if content.get(name, GONE) is not value]
        added = [name for name in content if name not in self.saved] if self.names is None else []
        stood_for = {name: content.get(name, GONE) for name in (*replaced, *added)}
        for name in stood_for:
            self.put(name, self.saved.get(name, GONE))
        return stood_for

    def put(self, name: str, value: Any) -> None:
        """Let a name stand for a value, or for nothing (GONE)."""
        if value is GONE:
            delattr(self.owner, name)
        else:
            setattr(self.owner, name, value)


OWN_THREADS_SHARE, OWN_THREADS_NS = 0.1, 500_000
"""More CPU time than both of these outside the calling thread means that another thread computes."""

LOOKED_AT_NS = 20_000_000
"""Turns are added up over rounds until a variant had so much time, because a round of short calls has too little."""

MOST_CORES = 1.2  # most cores at once for a variant that is timed by wall, where the workload gives it one

WAITING_SHARE = 0.2
"""A call that waits at least once, and for more than this share of its time, lets something else compute for it."""

OF_OURS = 1 << 62  # stands for the CPU time of a process that our code started: it may use any amount

CLOSED = "closes files that it did not open"

_open, _read, _close, _list = os.open, os.read, os.close, os.listdir  # bound before any foreign code is imported


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # somebody removed it
        return ""


def _set_callbacks(callbacks: tuple[Any, ...]) -> None:
    gc.callbacks[:] = callbacks


THRESHOLDS = "the thresholds of garbage collection"

SETTINGS = (
    Watched("the profiler (sys.setprofile)", sys.getprofile, sys.setprofile),
    Watched("the tracer (sys.settrace)", sys.gettrace, sys.settrace),
    Watched(
        "whether memory is traced", tracemalloc.is_tracing, lambda on: (tracemalloc.start if on else tracemalloc.stop)()
    ),
    Watched(THRESHOLDS, gc.get_threshold, lambda value: gc.set_threshold(*value)),
    Watched("the callbacks of garbage collection", lambda: tuple(gc.callbacks), _set_callbacks),
    Watched("the interval between threads", sys.getswitchinterval, sys.setswitchinterval),
    Watched("on which cores it may run", partial(os.sched_getaffinity, 0), partial(os.sched_setaffinity, 0)),
    Watched(
        "the priority of the process", partial(os.getpriority, os.PRIO_PROCESS, 0),
        partial(os.setpriority, os.PRIO_PROCESS, 0),
    ),
    Watched("how deep calls may nest", lambda: min(sys.getrecursionlimit(), 1000), sys.setrecursionlimit),
    Watched("the working directory", _folder, os.chdir),
)  # fmt: skip


@dataclass
class Turn:
    """What one variant used in its turns."""

    calls: int = 0
    process_ns: int = 0
    others_ns: int = 0
    wall_ns: int = 0
    waits: int = 0
    queued_ns: int = 0

    def add(self, calls: int, **used: int) -> None:
        """What a sample used, by the other fields: CPU time of the process and of its other threads, wall time, waits,
        and the time in which it was ready and others had the processor."""
        self.calls += calls
        for what, amount in used.items():
            setattr(self, what, getattr(self, what) + amount)

    @property
    def threads_compute(self) -> bool:
        """Whether other threads than the calling one do more than some of the work."""
        return self.others_ns > max(OWN_THREADS_SHARE * self.process_ns, OWN_THREADS_NS)

    @property
    def waited_ns(self) -> int:
        """Wall time in which nothing here computed."""
        return self.wall_ns - self.process_ns - self.queued_ns

    @property
    def waits_each_time(self) -> bool:
        """Whether every call waits, and for long: for something that computes elsewhere."""
        return self.waits >= self.calls and self.waited_ns > max(WAITING_SHARE * self.wall_ns, OWN_THREADS_NS)


@dataclass
class Watch:
    """Checks after every turn of a variant what it left behind."""

    turns: dict[str, Turn] = field(default_factory=dict)  # by variant, until there is enough of them to judge
    threads_of: dict[str, str] = field(default_factory=dict)  # thread → the variant in whose turn it appeared
    beside_foreign: bool = True  # foreign code takes turns as well

    def __post_init__(self) -> None:
        self.settings = [(setting, setting.read()) for setting in SETTINGS]
        self.names = [Names("the built-in {}", builtins), Names("time.{}", time), Names("gc.{}", gc)]
        self._sums_of: Callable[[Mapping[str, Tensor]], dict[str, float]] = lambda weights: {}
        if "torch" in sys.modules:  # looked for now: foreign code may hide ours later
            from .watch_torch import TORCH_SETTINGS, torch_names, weight_sums

            self.settings += [(setting, setting.read()) for setting in TORCH_SETTINGS]
            self.names += torch_names()
            self._sums_of = weight_sums
        self._weights: dict[int, dict[str, float]] = {}
        self._helpers: dict[int, int] = {}  # process that may stay → its CPU time when that was found
        self._threads: set[str] = set()
        self._opener: dict[str, str] = {}  # file that is open → the variant that opened it, which may close it
        self._accept_files()

    def accept_files(self) -> None:
        """Who opened what is open now does not matter: an input holds it."""
        self._open = _descriptors()

    def accept(self) -> None:
        """Take the present state for the right one: our code was imported, built or called."""
        self.settings = [(setting, setting.read()) for setting, _ in self.settings]
        for names in self.names:
            names.save()
        self._accept_files()

    @contextmanager
    def gradients_on(self) -> Iterator[None]:
        """In this block gradients are on for everybody, and that is nobody's doing."""
        self._expect(GRADIENTS, True)
        try:
            yield
        finally:
            self._expect(GRADIENTS, False)

    def _expect(self, what: str, value: Any) -> None:
        self.settings = [(each, value if each.what == what else before) for each, before in self.settings]

    def leave_out(self, what: str) -> None:
        """From here on this setting is a side's own: nobody else runs in the process."""
        self.settings = [(setting, value) for setting, value in self.settings if setting.what != what]

    def _accept_files(self) -> None:
        self._open = _descriptors()
        self._ended_ns = _reaped()[0]
        for child in children_of():
            self._helpers.setdefault(child, OF_OURS)
        self._threads.update(_listed("task"))

    def changes(self, name: str, *, trusted: bool, files: bool = True) -> str | None:
        """What `name` changed for everybody in the turn that ends here, in words; restored where possible. Or None.
        `trusted`: it is our code, which may open files and run a compiler. `files`: files that it left open count as
        well (a model may open some while it is built)."""
        change = _changed_setting(self.settings)
        if trusted:
            if self.beside_foreign:  # or the next foreign variant would be blamed for our files and processes
                self._accept_files()
            return change
        change = change or self._changed_name() or self._processes(timed=files) or self._changed_files(name, files)
        for thread in _listed("task"):
            if thread not in self._threads:
                self._threads.add(thread)
                self.threads_of[thread] = name
        return change

    def _changed_name(self) -> str | None:
        for names in self.names:
            if taken := names.taken():
                return f"puts something else in the place of {names.what.format(next(iter(taken)))} for everybody"
        return None

    def _changed_files(self, name: str, files: bool) -> str | None:
        now = _descriptors()
        closed = [number for number, what in self._open.items() if now.get(number) != what]
        opened = [number for number in now if number not in self._open]
        self._open = now
        foreign = [number for number in closed if self._opener.pop(number, None) != name]
        self._opener.update(dict.fromkeys(opened, name))
        if foreign:
            return CLOSED
        if opened and files:
            return f"leaves {len(opened)} more file{'s' * (len(opened) > 1)} open after a call"
        return None

    def _processes(self, *, timed: bool) -> str | None:
        """Processes that computed for foreign code in a timed turn. They are ended, because nobody is charged for them.
        Those that it starts while it is built or gated (a compiler's, for example) may stay if they do nothing then."""
        children = children_of()
        before_ns, self._ended_ns = self._ended_ns, _reaped()[0]
        change = None
        if timed:
            new = [child for child in children if child not in self._helpers]
            busy = [
                c for c, before in self._helpers.items() if c in children and cpu_ns_left(c) - before > OWN_THREADS_NS
            ]
            for child in [*new, *busy]:
                with suppress(OSError):
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
            if new:
                change = "starts a process of its own, and leaves it running"
            elif busy or self._ended_ns > before_ns:
                change = "has processes of its own compute"
        self._helpers |= {child: cpu_ns_left(child) for child in children if not timed or child not in self._helpers}
        return change

    def weights_changed(self, weights: Mapping[str, Tensor]) -> bool:
        """Whether somebody wrote into the weights that all variants share, judged by a sample of their values."""
        sums = self._sums_of(weights)
        before = self._weights.setdefault(id(weights), sums)
        return sums != before

    def spent(self, name: str, *, calls: int, **used: int) -> None:
        """Note what a sample of `name` used, as `Turn.add` takes it."""
        self.turns.setdefault(name, Turn()).add(calls, **used)

    def elsewhere(self, by_wall: frozenset[str]) -> dict[str, str]:
        """Variant → how it computed outside what its clock measures, in its last samples. `by_wall`: variants that are
        timed by wall time, which may compute in other threads."""
        reasons: dict[str, str] = {}
        for name, turn in self.turns.items():
            if name in by_wall:
                if turn.process_ns > MOST_CORES * turn.wall_ns + OWN_THREADS_NS:
                    cores = turn.process_ns / turn.wall_ns
                    reasons[name] = f"computes on {cores:.1f} cores at once, and the workload gives it one"
            elif turn.threads_compute:
                owners = {self.threads_of[thread] for thread in _listed("task") if thread in self.threads_of} - by_wall
                reasons |= dict.fromkeys(owners, f"has threads of its own that compute while {name} is timed")
                if (name in owners or not owners) and name != FUNCTION_REFERENCE:
                    share = f"{turn.others_ns / turn.process_ns:.0%} of the processor time"
                    reasons[name] = f"computes in threads of its own since it passed its gate ({share})"
            elif turn.waits_each_time:
                share = f"{turn.waited_ns / turn.wall_ns:.0%} of its time"
                reasons[name] = f"waits for {share}, in every call: something else computes for it"
        # Reported once: the variant gets no more turns, so nothing else would clear what it used.
        self.turns = {} if reasons else {key: turn for key, turn in self.turns.items() if turn.wall_ns < LOOKED_AT_NS}
        return reasons


def _changed_setting(settings: Iterable[tuple[Watched, Any]]) -> str | None:
    change = None
    for setting, wanted in settings:
        value = setting.read()
        if value != wanted:
            before, after = (" ".join(str(shown).split())[:60] for shown in (wanted, value))
            change = f"changes {setting.what} for everybody, from {before} to {after}"
            put_back(setting, wanted)
    return change


def put_back(setting: Watched, value: Any) -> bool:
    """Whether the setting has this value again."""
    with suppress(OSError, ValueError):  # this user may not
        if setting.restore is not None:
            setting.restore(value)
    return bool(setting.read() == value)


def waits() -> int:
    """How often the calling thread gave up its processor in order to wait."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def queued_ns() -> int:
    """How long the calling thread was ready and had no processor, because others had it; 0 where nobody counts that. It
    is no waiting: in a block all sides share one core, and on a busy machine others take it away."""
    return scheduled_ns("thread-self")[1]


def scheduled_ns(thread: str) -> tuple[int, int]:
    """CPU time of a thread, by its folder in /proc, and how long it was queued; 0 where it is gone or nobody counts."""
    try:
        file = _open(f"/proc/{thread}/schedstat", os.O_RDONLY)
    except OSError:
        return 0, 0
    try:
        ran, queued, *_ = _read(file, 100).split()
        return int(ran), int(queued)
    except OSError:
        return 0, 0
    finally:
        _close(file)


def _listed(what: str) -> list[str]:
    return _list(f"/proc/self/{what}")


def _descriptors() -> dict[str, str]:
    """Number of an open file → what it is."""
    files = {}
    for number in _listed("fd"):
        with suppress(OSError):  # the file of the listing itself is closed
            files[number] = os.readlink(f"/proc/self/fd/{number}")
    return files


def tree_of(process: int) -> list[int]:
    """The processes that a process started, that these started, and so on."""
    return [each for child in children_of(process) for each in (child, *tree_of(child))]


def children_of(process: object = "self") -> list[int]:
    """The processes that a process started and that are there."""
    children = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with suppress(OSError):
                children += [int(each) for each in Path(f"/proc/{process}/task/{thread}/children").read_bytes().split()]
    return children


def cpu_ns_left(process: int) -> int:
    """CPU time of a process; 0 where it is gone."""
    try:
        return cpu_ns_of(process)
    except OSError:
        return 0


# What the user's own functions do to their process beside answering: noted, and kept from the other sides; no fault.
# Child processes and threads of theirs count, too: by wall time. What a function changed for the whole process is
# there again in its next turn, and in nobody else's. Only what makes the clocks lie, or files run out, is a fault.
# Runs in the measuring process; foreign code is held to more (see `Watch`).


CLOCKS = frozenset(
    f"{name}{unit}"
    for name in ("perf_counter", "process_time", "thread_time", "monotonic", "time", "clock_gettime")
    for unit in ("", "_ns")
)

CHILD = "child "
COMPUTES = "what else computes, because its threads or child processes go on between its calls"

MOST_FILES = 0.5  # of the files that a process may have open: who leaves so many open brings down everybody in it


def _set_environment(value: dict[str, str]) -> None:
    for name in os.environ.keys() - value.keys():
        del os.environ[name]
    os.environ.update(value)


def _set_filters(value: tuple[Any, ...]) -> None:
    warnings.filters[:] = value  # type: ignore[index]
    getattr(warnings, "_filters_mutated", lambda: None)()


COLLECTS = "whether garbage is collected"
COLLECTOR = (COLLECTS, THRESHOLDS)  # who sets these is measured in a process of its own

MORE_SETTINGS = (
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
        self._more = [(setting, setting.read()) for setting in MORE_SETTINGS]
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
            self._files_before = len(_listed("fd"))

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
        self._files, self._reaped, self._parts_ns = len(_listed("fd")), _reaped(), dict(self._parts())

    def end(self, calls: int, spent: Spent) -> None:
        """So many calls are over, and this is what the clocks say of them."""
        seen, reaped, parts = self.of(self._current), _reaped(), dict(self._parts())
        self._claim(self._current)
        for part, now_ns in parts.items():
            spent_ns, owner = now_ns - self._parts_ns.get(part, 0), self._owner.get(part, self._current)
            is_busy, goes_on = spent_ns > OWN_THREADS_NS, self.of(owner).changes.get(COMPUTES, False)
            if is_busy and owner and self._current == FUNCTION_REFERENCE:  # which starts nothing
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
        self._opened = max(0, len(_listed("fd")) - self._files)

    def gone(self, name: str) -> None:
        """The inputs of its calls are gone: what these opened, and is open still, they left open."""
        seen, now = self.of(name), len(_listed("fd"))
        if self._opened and now > self._files_before:  # a database's connection is in a cycle
            if not self.may_collect:
                return
            gc.collect()
            now = len(_listed("fd"))
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
            elif self._current == FUNCTION_REFERENCE:
                yield part, scheduled_ns(f"self/task/{number}")[0]


def _parts() -> list[str]:
    own = str(os.getpid())
    threads = [f"thread {thread}" for thread in _listed("task") if thread != own]
    return [*threads, *(f"{CHILD}{child}" for child in children_of())]


def _reaped() -> tuple[int, int, int]:
    """CPU time (ns) of all child processes that have ended, and two counts that tell that one did which took none."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int(1e9 * (used.ru_utime + used.ru_stime)), used.ru_minflt, used.ru_nvcsw
