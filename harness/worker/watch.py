"""What a variant leaves behind in its process that would change the times of others, or hide its own.

The check runs after a variant was imported, built or called, between samples, and takes about a tenth of a millisecond.
What can be restored is restored, and the variant is excluded. Runs in the measuring process.
"""

from __future__ import annotations

import builtins
import gc
import os
import resource
import signal
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from llama_workbench.variants import FUNCTION_YARDSTICK

from ..machine.lifeline import cpu_ns_of

if TYPE_CHECKING:
    from torch import Tensor

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

_open, _read, _close = os.open, os.read, os.close  # bound before any foreign code is imported


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
        self._children_seconds = _children_seconds()
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
        seconds, self._children_seconds = self._children_seconds, _children_seconds()
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
            elif busy or self._children_seconds > seconds:
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
                if (name in owners or not owners) and name != FUNCTION_YARDSTICK:
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
    return os.listdir(f"/proc/self/{what}")


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


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
