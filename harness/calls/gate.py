"""The look at a function before it is timed: right answers, inputs that its calls change, and state that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from statistics import median_low
from time import perf_counter_ns, thread_time_ns  # bound before any foreign code is imported
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from llama_workbench import timed

from .answers import HINT, UNKNOWN, difference, is_of_all_worlds, unlike, why_unready
from .command import Command
from .inputs import Seen, can_be_copied, copied, copier, copies_are_alike, handed_again, is_plain, kinds_of

if TYPE_CHECKING:
    from .called import Called, Function
    from .inputs import Arguments


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
