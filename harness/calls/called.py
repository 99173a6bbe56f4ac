"""One side of a comparison of any two functions: its code imported for it alone, its inputs, and the right answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low
from time import perf_counter_ns, thread_time_ns  # bound before any foreign code is imported
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from llama_workbench import ROOT, timed
from llama_workbench.variants import FUNCTION_REFERENCE, REFERENCE_BENCHMARKS

from ..spec.comparison import EnteredName
from .answers import HINT, UNKNOWN, difference, gives_what_counts, is_of_all_worlds, outputs_differ, unlike, why_unready
from .command import AS_THEY_ARE, CONCLUDE, PREPARE, Command, CommandSettings, Import
from .inputs import (
    COPIED,
    NEW,
    Arguments,
    Payload,
    Pool,
    Seen,
    can_be_copied,
    copied,
    copier,
    copies_are_alike,
    handed_again,
    is_plain,
    kinds_of,
)
from .source import Source
from .world import World, WorldTurn, folders_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .inputs import Arguments


# The look at a function before it is timed: right answers, inputs that its calls change, and state that it keeps.


# A function of whose calls a part counts: what stands before and after them, or outside of `timed`, does not.


class TimedPart:
    """Calls a function between `before` and `after`, which are given the same arguments. Where the function has blocks
    `with timed()`, these alone count. counted_ns: CPU time of the thread and wall time that count, of all calls since
    `begin`. uncounted_ns: wall time of the last call that does not count."""

    def __init__(
        self,
        function: Callable[..., Any],
        before: Optional[Callable[..., Any]] = None,
        after: Optional[Callable[..., Any]] = None,
    ) -> None:
        self.function, self._before, self._after = function, before, after
        self.uncounted_ns = 0
        self.begin()

    def begin(self) -> None:
        """Count from here on."""
        self.counted_ns = 0, 0

    def __call__(self, *arguments: Any) -> Any:
        begun_ns = perf_counter_ns()
        if self._before is not None:
            self._before(*arguments)
        blocks, block_cpu_ns, block_wall_ns = timed.blocks, timed.cpu_ns, timed.wall_ns
        wall_ns, cpu_ns = perf_counter_ns(), thread_time_ns()
        answer = self.function(*arguments)
        cpu_ns, wall_ns = thread_time_ns() - cpu_ns, perf_counter_ns() - wall_ns
        if timed.blocks != blocks:
            cpu_ns, wall_ns = timed.cpu_ns - block_cpu_ns, timed.wall_ns - block_wall_ns
        if self._after is not None:
            self._after(*arguments)
        self.counted_ns = self.counted_ns[0] + cpu_ns, self.counted_ns[1] + wall_ns
        self.uncounted_ns = perf_counter_ns() - begun_ns - wall_ns
        return answer


GATED = (-1, -2, -3)  # numbers of the inputs on which every side must agree with the baseline before anything is timed

TIMED_AGAIN = 5

SLOW_NS = 1_000_000_000  # where a call or its input takes longer, one input is gated in the place of all

SLOW_FIRST_NS = 5_000_000_000
"""A first call may compile code, so that another one is made after it, unless it takes longer than this."""


class PayloadError(Exception):
    """The payload function cannot be used; the text says why."""


class _Call(NamedTuple):
    """changes: whether it left its arguments changed, or may have. spoils: whether it changed what the payload hands
    out again, if only in a copy. uncounted_ns: what it took beside what counts. is_part: whether it said itself what
    counts."""

    got: Any
    ns: int
    changes: bool
    spoils: bool
    uncounted_ns: int
    is_part: bool


class FirstLook:
    """One side of a comparison on its way to the clock; fills in what `Called` knows of its inputs and first call."""

    def __init__(self, called: Called) -> None:
        self._called = called
        self._hands_again = False  # whether the payload gives one object several times
        self._can_copy = False
        self._ready: list[Arguments] = []  # made, and given to no call yet

    def wrong(self, looked: Callable[[], None]) -> str:
        """What is wrong with its answers, in words; empty where they are the baseline's. looked: called once some
        inputs were made. Raises PayloadError."""
        called = self._called
        self._look_at_inputs()
        looked()
        begun = perf_counter_ns()
        function = called.make()
        made_ns = perf_counter_ns() - begun
        baseline_spoils = False
        for number in (*GATED[: not called.is_fresh], *GATED):  # a first input twice: does its answer stay the same?
            try:
                call = self._call(called.side, function, number)
            except PayloadError:
                raise
            except Exception as error:
                if called.first_call_ns and number == GATED[0]:
                    return self._cause(called.side, number, f"it raises {type(error).__name__}")
                raise
            called.beside_ns = call.uncounted_ns
            called.times_parts |= call.is_part
            is_first = not called.first_call_ns
            called.first_call_ns = called.first_call_ns or max(made_ns + call.ns, 1)
            called.gated += not is_first or called.is_fresh
            called.changes_inputs |= call.changes
            called.spoils_inputs |= call.spoils
            begun = perf_counter_ns()
            called.baseline.enter()
            expected = self._call(called.baseline, called.baseline.make(), number)
            called.first_check_ns = called.first_check_ns or perf_counter_ns() - begun
            baseline_spoils |= expected.spoils
            called.shares_answers = is_of_all_worlds(expected.got)
            if call.is_part != expected.is_part:
                called.is_refused = True
                one, other = ("a part", "all") if call.is_part else ("all", "a part")
                return f"{one} of its call counts, and {other} of the baseline's: use llama_workbench.timed in both"
            if wrong := called.wrong(number, call.got, [expected.got]):
                return self.why_unsteady(number) or wrong
            most_ns = SLOW_FIRST_NS if is_first else SLOW_NS
            if call.ns > most_ns or called.make_ns > SLOW_NS:
                break
        called.gated = max(called.gated, 1)
        called.baseline.payload.copies = baseline_spoils
        if called.spoils_inputs:
            called.payload.copies = True
            self._time_making()
        return ""

    def why_unsteady(self, number: int) -> str:
        """Why one of the sides answers differently to the same input, in words; empty where both answer the same."""
        called = self._called
        if called.is_fresh:
            return ""
        for of, whose in ((called.side, ""), (called.baseline, f"the baseline {called.baseline.shown} ")):
            change, draws = self._changing(of, number)
            if change:
                return f"{whose}{self._cause(of, number, change, draws=draws)}"
        return ""

    def _cause(self, of: Function, number: int, change: str, *, draws: bool = False) -> str:
        """What a function is that answers differently the second time; the side is refused for it."""
        self._called.is_refused = True
        name = self._called.payload_name
        where = f"(the second time {change}, input {name}, seed {of.payload.seed(number)})"
        if draws:
            return (
                f"draws random numbers: its answer to the same input is another one each time {where}. "
                f"Let it take them from a seed that {name} gives, or {HINT}"
            )
        return (
            f"keeps state: its answer depends on how often it was called {where}. Let {name} make what it keeps, "
            f"anew for each call, and take it as an argument, or {HINT}"
        )

    def _changing(self, of: Function, number: int) -> tuple[str, bool]:
        """How the answer to a second call differs from that to a first one with an equal input, and whether the second
        call drew random numbers."""
        of.enter()
        try:
            function = of.make()
            first = self._call(of, function, number).got
        except Exception:
            return "", False
        draws = False

        def noted(*arguments: Any) -> Any:
            nonlocal draws
            before = of.payload.drawn()
            got = function(*arguments)
            draws = before != of.payload.drawn()
            return got

        try:
            second = self._call(of, noted, number).got
        except PayloadError:
            raise
        except Exception as error:
            return f"it raises {type(error).__name__}", False
        if why_unready(second):
            return "", False
        change = difference(second, first, self._called.check, hint=False)
        return (change, draws) if UNKNOWN not in change else ("", False)

    def _call(self, of: Function, function: Callable[..., Any], number: int) -> _Call:
        """Call it once, with digests of its input before and after. What the payload hands out again is copied first,
        where it can be. Raises PayloadError where it is changed and cannot be copied."""
        of.enter()
        is_ready = self._ready and of is self._called.side
        arguments = self._ready.pop() if is_ready else of.payload.arguments(number)
        memo: dict[int, Any] = {}
        shared: list[Any] = []
        if self._hands_again:
            shared = handed_again(arguments, of.payload.arguments(number))
            arguments = copied(arguments, memo) if self._can_copy else arguments
        twins = [memo.get(id(each), each) for each in shared]
        before, twins_before = Seen(arguments).digest, [Seen(each).digest for each in twins]
        blocks, counted_ns = timed.blocks, timed.wall_ns
        begun = perf_counter_ns()
        got = function(*arguments)
        ns = perf_counter_ns() - begun
        is_part, uncounted_ns = timed.blocks != blocks, 0
        if isinstance(function, (TimedPart, Command)):
            uncounted_ns = function.uncounted_ns
        elif is_part:
            uncounted_ns = ns - (timed.wall_ns - counted_ns)
        ns -= uncounted_ns
        changes = not before or Seen(arguments).digest != before
        spoilt = [each for each, digest in zip(twins, twins_before) if changes and Seen(each).digest != digest]
        if spoilt and not self._can_copy:
            name = self._called.payload_name
            raise PayloadError(
                f"{of.shown or 'a call'} changes its input, and {name} hands out the same {kinds_of(spoilt)} each "
                f"time, of which no copy can be made: make it anew in {name}"
            )
        return _Call(got, ns, changes, bool(spoilt), uncounted_ns, is_part)

    def _look_at_inputs(self) -> None:
        """Are inputs the same each time, and how long does one take? Raises PayloadError where they cannot be used."""
        called, payload = self._called, self._called.payload
        name = called.payload_name
        try:
            first_begun = perf_counter_ns()
            called.work = payload.work()
            begun = perf_counter_ns()
            generators = payload.used(GATED[:1])
            called.make_ns = perf_counter_ns() - begun
            called.first_input_ns = perf_counter_ns() - first_begun
            if called.make_ns > SLOW_NS:
                begun = perf_counter_ns()
                self._ready = [payload.arguments(GATED[0])]
                called.make_ns = perf_counter_ns() - begun
                if called.make_ns > SLOW_NS:  # whether another one is like it is not asked: that takes as long
                    return
            payload.generators = tuple(dict.fromkeys((*generators, *payload.used(GATED[1:]))))
            self._ready.clear()
            first, again, other = (payload.arguments(number) for number in (GATED[0], GATED[0], GATED[1]))
            self._time_making()
            called.has_plain_inputs = is_plain(first)
            with suppress(Exception):  # whatever copying an object of a class raises
                if copies_are_alike(first):
                    called.copy_ns = max(_median_ns(copier(first)), 1)
        except Exception as error:
            raise PayloadError(f"{name} raises {type(error).__name__}: {error}") from error
        digest = Seen(first).digest
        same = digest and digest == Seen(again).digest
        random = "" if same else unlike(first, again)
        if random and UNKNOWN not in random:
            fix = "draw from Python's, numpy's or torch's seeded random numbers, or take a seed"
            raise PayloadError(f"{name} gives another input for the same seed ({random}): {fix}")
        called.one_input = bool(same and digest == Seen(other).digest) or not unlike(first, other)
        self._hands_again = bool(handed_again(first, again))
        self._can_copy = self._hands_again and can_be_copied(first)
        # An iterator that nothing sets back, as a generator. A file and a cursor can begin again.
        used_up = [
            part
            for part in ([] if self._can_copy else handed_again(first, again))
            if isinstance(part, Iterator) and not any(hasattr(part, name) for name in ("seek", "execute"))
        ]
        if used_up:
            raise PayloadError(
                f"{name} hands out the same {kinds_of(used_up)} each time, which the first call uses up: make it anew "
                f"in {name}"
            )

    def _time_making(self) -> None:
        payload = self._called.payload
        self._called.make_ns = max(_median_ns(lambda: payload.batch(0, TIMED_AGAIN)) // TIMED_AGAIN, 1)


def _median_ns(act: Callable[[], object]) -> int:
    """What it takes: the median of TIMED_AGAIN times, since other programs interrupt some of them; of fewer where these
    have taken a twentieth of SLOW_NS."""
    times: list[int] = []
    while len(times) < TIMED_AGAIN and sum(times) < SLOW_NS // 20:
        begun = perf_counter_ns()
        act()
        times.append(perf_counter_ns() - begun)
    return median_low(times)


# A coroutine function as one that is called: on an event loop of its own, what it awaits included.


class Awaited:
    """Runs the coroutine of each call to its end. `many` begins the loop once: that takes longer than many a call."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, Any]], loop: AbstractEventLoop) -> None:
        self._function, self._loop = function, loop

    def __call__(self, *arguments: Any) -> Any:
        return self._loop.run_until_complete(self._function(*arguments))

    def many(self, inputs: Iterable[tuple[Any, ...]]) -> Any:
        """One call after another; the answer of the last."""

        async def calls() -> Any:
            out = None
            for arguments in inputs:
                out = await self._function(*arguments)
            return out

        return self._loop.run_until_complete(calls())


# What takes part beside the functions that are compared: the frozen reference benchmark and controls.


_FILE = str(ROOT / "variants" / f"{FUNCTION_REFERENCE}.py")

WORK = Source(FUNCTION_REFERENCE, _FILE, "work")
INPUTS = Source("inputs", _FILE, "inputs")

SELDOM = 4
"""In one of so many sub-rounds it is sampled; a control in the first of so many parts of them, or in one of so many
rounds where each side has a process. The time is for what is compared."""


def is_beside(name: str) -> bool:
    """Whether it is a reference benchmark or a control: not itself what is compared."""
    return name in REFERENCE_BENCHMARKS or EnteredName(name).is_control


Make = Callable[[], Callable[..., Any]]


@dataclass(frozen=True)
class Call:
    """What a comparison of functions is about: the sources of its baseline, of its payload, and of the user's check.
    commands: how those sides are run that are commands."""

    baseline: Source
    payload: Source
    check: Source | None = None
    commands: CommandSettings = AS_THEY_ARE

    def of(self, side: Source) -> Call:
        """What a side is held against. The reference benchmark does other work: it has inputs of its own, and its
        answers need only be the same again."""
        return Call(WORK, INPUTS) if side == WORK else self

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Call:
        """From the dataclass as a dict, as the parent sends it."""
        sources = {name: source and Source(**source) for name, source in table.items() if name != "commands"}
        return cls(**sources, commands=CommandSettings(**table["commands"]))


@dataclass(frozen=True)
class Function:
    """A function, and what it is called with, both from one world."""

    make: Make  # gives the function, anew where a factory makes it
    payload: Payload
    enter: Callable[[], None] = lambda: None  # called before anything of it runs
    shown: str = ""  # as a user would write it; of a command its name
    is_apart: bool = False  # whether something is called before or after each call


LEARNT = (
    "make_ns", "copy_ns", "beside_ns", "one_input", "has_plain_inputs", "changes_inputs", "spoils_inputs",
    "shares_answers", "times_parts",
)  # fmt: skip
"""What of a `Called` its gate finds out for later processes."""


class Called:
    """A function with its inputs, and the baseline, which gives the right answers. It is imported when an answer is
    first compared with its: until then it has no part in how a side runs.

    payload_name: for messages. make_ns: the mean time that making an input took; copy_ns and has_plain_inputs: see
    `InputCosts`. pool: from which calls are given inputs; None where each is made for its call. work: see
    `Payload.work`. gated: how many inputs the gate used. changes_inputs: whether a call leaves its arguments changed,
    or may have. spoils_inputs: whether the payload hands out again what a call changed, so that each gets a copy.
    gets_own: whether each call is given an input of its own because another side changes its. first_call_ns: of the
    first in the gate, and of its factory; first_input_ns: of the first input there; first_check_ns: of the baseline's
    import and first call. beside_ns: what runs before and after a call of a command took. is_baseline: whether it is
    the baseline's code. is_fresh: whether it is a command, so that each call begins a process of its own.
    shares_answers: whether the baseline's answers can be compared with those of a side from another world. is_refused:
    whether it is left out although no answer is known to be wrong: they change, or are none yet. times_parts: whether
    it says itself which part of a call counts."""

    def __init__(
        self,
        side: Function,
        baseline: Callable[[], Function],
        payload_name: str,
        check: Callable[..., Any] | None = None,
        *,
        is_baseline: bool = False,
        is_fresh: bool = False,
    ) -> None:
        self.side, self._imported_baseline, self.check = side, baseline, check
        self.payload = side.payload
        self.payload_name = payload_name
        self.make_ns = self.copy_ns = 0
        self.has_plain_inputs = False
        self.pool: Pool | None = None
        self.work: dict[str, float] = {}
        self.gated = 0
        self.one_input = False
        self.changes_inputs = self.spoils_inputs = self.gets_own = False
        self._baseline_copies = False
        self.first_call_ns = self.first_input_ns = self.first_check_ns = 0
        self.beside_ns = 0
        self.is_baseline, self.is_fresh = is_baseline, is_fresh
        self.shares_answers = self.is_refused = self.times_parts = False

    @classmethod
    def imported(
        cls,
        source: Source,
        call: Call,
        draw: str,
        turn: WorldTurn,
        runs: Callable[[Source], None] = lambda source: None,
    ) -> Called:
        """With its modules imported for it alone. The baseline is from the same world where its modules would be the
        same ones: objects of one class then are of one class on both sides of the check. runs: told whose code runs
        from here on, whenever that may change. Raises OutsideVariantError."""
        is_baseline, call = source == call.baseline, call.of(source)
        shared = [call.payload, *filter(None, [call.check])]
        folders = [folders_of([each, *shared]) for each in (source, call.baseline)]
        world = World(turn, folders[0])
        other = world if folders[0] == folders[1] else World(turn, folders[1])

        def function(source: Source, world: World) -> Function:
            def enter() -> None:
                runs(source)
                world.enter()

            enter()
            payload = Payload(world.function(call.payload), draw, call.payload.size)
            try:
                around = payload.around()
                if source.command and any(around):
                    raise TypeError(f"setup and teardown are for functions; commands have {PREPARE} and {CONCLUDE}")
            except TypeError as error:
                raise TypeError(f"{call.payload.shown}: {error}") from None
            made = maker(source, world.function(source, call.commands), *around)
            return Function(made, payload, enter, source.name if source.command else source.shown, any(around))

        side = function(source, world)

        def baseline() -> Function:
            imported = function(call.baseline, other)
            side.enter()
            return imported

        check = None if call.check is None else world.function(call.check)
        kind = {"is_baseline": is_baseline, "is_fresh": bool(source.command)}
        return cls(side, baseline, call.payload.shown, check, **kind)

    @cached_property
    def baseline(self) -> Function:
        """What gives the right answers."""
        baseline = self._imported_baseline()
        baseline.payload.generators = self.payload.generators
        baseline.payload.copies = self._baseline_copies
        return baseline

    def make(self) -> Callable[..., Any]:
        """The function, anew where a factory makes it."""
        self.side.enter()
        made = self.side.make()
        return TimedPart(made) if self.times_parts and not self.side.is_apart else made

    @property
    def is_apart(self) -> bool:
        """Whether only a part of each call counts."""
        return self.times_parts or self.side.is_apart

    def gate(self, looked: Callable[[], None] = lambda: None) -> str:
        """What is wrong with its answers, in words; empty where they are the baseline's. looked: called once some
        inputs were made, before the function is called. Raises PayloadError."""
        return FirstLook(self).wrong(looked)

    def why_unsteady(self, number: int) -> str:
        """Why it, or the baseline, answers differently to the same input, in words; empty where that is not so."""
        return FirstLook(self).why_unsteady(number)

    def given_as(self, others: Sequence[Called], way: str = NEW, size: int = 0) -> None:
        """Be given inputs in the way in which all these sides are: one that is handed a list of its own each time would
        find less of it in the processor's caches than one that is handed the same again. way and size: see `pool`."""
        self.gets_own = any(each.makes_inputs for each in others)
        self.payload.copies = any(each.payload.copies for each in others)
        if way == NEW or not self.makes_inputs:
            self.pool = None
        elif self.pool is None:
            self.pool = Pool(self.payload, size, copies=way == COPIED)

    def wrong(self, number: int, got: Any, answered: Sequence[Any] = ()) -> str:
        """Where an answer to the input of that number is not the baseline's, in words; empty where it is. answered:
        that of the baseline, where it is there already."""
        if answered:
            [expected] = answered
        else:
            self.baseline.enter()
            expected = self.baseline.make()(*self.baseline.payload.arguments(number))
            self.shares_answers = is_of_all_worlds(expected)
        self.side.enter()
        unlike = difference(got, expected, self.check)
        if not unlike:
            return ""
        self.is_refused = bool(why_unready(got))
        if self.is_fresh and self.check is None:
            unlike = outputs_differ(self.side.shown, got, self.baseline.shown, expected)
        if self.is_fresh and not self.payload.arguments(number):
            return unlike
        return f"{unlike} (input {self.payload_name}, seed {self.payload.seed(number)})"

    def answers(self, seeds: Sequence[int]) -> tuple[list[Any], list[Arguments]]:
        """Its answers to the inputs with these seeds, or what counts of them, for another process; and such inputs."""
        self.side.enter()
        function = self.side.make()
        answers = [function(*self.payload.seeded(seed)) for seed in seeds]
        if self.check is not None and gives_what_counts(self.check):
            answers = [self.check(answer) for answer in answers]
        return answers, [self.payload.seeded(seed) for seed in seeds]

    def differs(self, got: Any, expected: Any) -> str:
        """Where two answers, or what counts of them, differ after they went through a file; empty where they agree."""
        self.side.enter()
        done = self.check is not None and gives_what_counts(self.check)
        return difference(got, expected, None if done else self.check)

    def learnt(self) -> dict[str, Any]:
        """What its gate found out of its inputs, for `learn` in a later process."""
        facts = {name: getattr(self, name) for name in LEARNT} | {"baseline_copies": self.baseline.payload.copies}
        return facts | self.work | {"is_apart": self.is_apart, "generators": list(self.payload.generators)}

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Take over what `learnt` said in an earlier process."""
        for name in LEARNT:
            setattr(self, name, facts[name])
        self.payload.generators = tuple(facts["generators"])
        self.payload.copies = self.spoils_inputs
        self._baseline_copies = facts["baseline_copies"]

    @property
    def is_awaited(self) -> bool:
        """Whether it is a coroutine function, a command or an import: what it waits for is part of its time."""
        made = self.make()
        return isinstance(made.function if isinstance(made, TimedPart) else made, (Awaited, Command, Import))

    @property
    def is_import(self) -> bool:
        """Whether what is timed is an import, in a Python that had begun before."""
        return isinstance(self.make(), Import)

    @property
    def makes_inputs(self) -> bool:
        """Whether each call is given an input of its own."""
        return self.changes_inputs or self.gets_own or not self.one_input

    @property
    def untimed_ns(self) -> int:
        """What each call takes beside it: its input, where each has its own, and what runs before and after it."""
        return self.beside_ns + self._giving_ns * self.makes_inputs

    @property
    def _giving_ns(self) -> int:
        """What it takes to give a call its input, once a pool is full."""
        if self.pool is None:
            return self.make_ns
        return self.copy_ns if self.pool.copies else 0

    def inputs(self, first: int, count: int) -> tuple[list[Arguments], int]:
        """What so many calls are given, and the number under which the answer to the last can be checked."""
        self.side.enter()
        if self.pool is not None:
            return self.pool.given(first, count)
        last = first + count - 1
        if not self.makes_inputs:
            return [self.payload.arguments(first)] * count, first
        return self.payload.batch(first, count), last

    def same_inputs(self, different: int, count: int) -> list[Arguments]:
        """What so many calls are given: `different` inputs in turns, the same in every process. A function that changes
        its arguments has each made anew."""
        self.side.enter()
        numbers = [GATED[-1] - 1 - call % different for call in range(count)]
        if self.changes_inputs:
            return [self.payload.arguments(number) for number in numbers]
        made = {number: self.payload.arguments(number) for number in numbers[:different]}
        return [made[number] for number in numbers]


def refused(called: Mapping[str, Called], names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names whose answers are no wrong ones, but cannot be compared (see `Called.is_refused`)."""
    return tuple(name for name in names if name in called and called[name].is_refused)


def maker(
    source: Source,
    function: Callable[..., Any],
    before: Optional[Callable[..., Any]] = None,
    after: Optional[Callable[..., Any]] = None,
) -> Make:
    """What gives the function of a source: itself, or what the factory makes; of a coroutine function what runs it.
    before, after: what is called around each call, and does not count."""
    loops: list[AbstractEventLoop] = []

    def plain(made: Callable[..., Any]) -> Callable[..., Any]:
        """The function, or what runs it where it is a coroutine function: on one event loop for the side, made when it
        is first needed. It is kept: a loop that is closed closes files, and who does that while it is timed is left
        out."""
        if not any(map(inspect.iscoroutinefunction, (made, getattr(made, "__call__", None)))):  # noqa: B004
            return made
        import asyncio  # only where there is a coroutine: it takes 50 ms

        loops[:] = loops or [asyncio.new_event_loop()]
        return Awaited(made, loops[0])

    def called(made: Callable[..., Any]) -> Callable[..., Any]:
        if before is None and after is None:
            return plain(made)
        return TimedPart(plain(made), before and plain(before), after and plain(after))

    if not source.factory:
        return lambda: called(function)

    def make() -> Callable[..., Any]:
        made = function()
        if not callable(made):
            raise TypeError(f"{source.shown} makes a {type(made).__name__}, which cannot be called")
        return called(made)

    return make
