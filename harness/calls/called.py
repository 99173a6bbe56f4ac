"""One side of a comparison of any two functions: its code imported for it alone, its inputs, and the right answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional

from llama_workbench import ROOT
from llama_workbench.variants import FUNCTION_YARDSTICK, YARDSTICKS

from ..spec.comparison import EnteredName
from .answers import difference, gives_what_counts, is_of_all_worlds, outputs_differ, why_unready
from .command import AS_THEY_ARE, CONCLUDE, PREPARE, Command, CommandSettings, Import
from .gate import GATED, FirstLook, TimedPart
from .inputs import COPIED, NEW, Arguments, Payload, Pool
from .source import Source
from .world import World, WorldTurn, folders_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


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


# What takes part beside the functions that are compared: the frozen yardstick and controls.


_FILE = str(ROOT / "variants" / f"{FUNCTION_YARDSTICK}.py")

WORK = Source(FUNCTION_YARDSTICK, _FILE, "work")
INPUTS = Source("inputs", _FILE, "inputs")

SELDOM = 4
"""In one of so many sub-rounds it is sampled; a control in the first of so many parts of them, or in one of so many
rounds where each side has a process. The time is for what is compared."""


def is_beside(name: str) -> bool:
    """Whether it is a yardstick or a control: not itself what is compared."""
    return name in YARDSTICKS or EnteredName(name).is_control


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
        """What a side is held against. The yardstick does other work: it has inputs of its own, and its answers need
        only be the same again."""
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
