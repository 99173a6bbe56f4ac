"""Inputs that a process makes once and gives to many calls: making one often takes longer than the call.

What is given again may remember what it was used for (a text its hash, a function its answer), and a call may change
it. So calls that change their inputs get copies, and others where copies cost little. Gates try what each side gains
where an input is given again: where one gains more than another, each call has a new one.
"""

from __future__ import annotations

import marshal
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .inputs import Seen, copied
from .payload import Arguments, Payload

NEW, COPIED, AGAIN = "new", "copied", "again"
"""What a call is given: an input that is made for it, a copy of one that was made before, or one again."""

CHEAP_SHARE = 0.1
"""Of a call: where making an input takes less, each call has a new one."""

COPY_SHARE = 0.25
"""Of a call: where copying an input takes less, each call has a copy, so that no text has its hash yet."""

LEAST_INPUTS, MOST_INPUTS = 8, 1 << 12

TIME_SHARE = 0.25
"""Of a side's time in a process, for making its inputs."""

LEAST_GAIN, GAIN_ERRORS = 0.01, 4.0
"""A side remembers its inputs if it gains so much more than the baseline where they are given again (log units), and so
many standard errors."""

NUMBERS = (int, float, complex, bool, type(None))


@dataclass(frozen=True)
class InputCosts:
    """What a gate found out of a side's inputs. copy_ns: what a copy takes; 0 where it is not known how to make one.
    changes: whether calls change them. is_plain: whether they are numbers and arrays of them, which remember
    nothing. again: what a side gains where it is given an input again, and the error of that (log units); None where
    nobody knows."""

    make_ns: float
    copy_ns: float
    changes: bool
    is_plain: bool
    again: Sequence[float] | None = None

    def is_copied(self, call_ns: float) -> bool:
        """Whether calls need copies, or cost little more with them."""
        return self.changes or (not self.is_plain and 0 < self.copy_ns < min(COPY_SHARE * call_ns, self.make_ns))

    @classmethod
    def of(cls, learnt: Mapping[str, Any]) -> InputCosts:
        """By what a gate learnt."""
        changes = learnt["changes_inputs"] or learnt["spoils_inputs"]
        return cls(learnt["make_ns"], learnt["copy_ns"], changes, learnt["has_plain_inputs"], learnt.get("again"))

    def gains_over(self, baseline: InputCosts) -> float:
        """How much more (log units) this side gains than the baseline where an input is given again; 0 where that may
        be chance, or nobody knows."""
        if self.again is None or baseline.again is None:
            return 0.0
        (gained, error), (base, base_error) = self.again, baseline.again
        more = gained - base
        return more if abs(more) > max(LEAST_GAIN, GAIN_ERRORS * math.hypot(error, base_error)) else 0.0


def way_of(sides: Sequence[InputCosts], call_ns: float) -> str:
    """How calls are given their inputs, the same on all sides, of which the first is the baseline and the fastest takes
    `call_ns`."""
    if all(each.make_ns <= CHEAP_SHARE * call_ns for each in sides):
        return NEW
    if any(each.again is None or each.gains_over(sides[0]) for each in sides):
        return NEW
    if any(each.is_copied(call_ns) for each in sides):
        return COPIED if all(0 < each.copy_ns < each.make_ns for each in sides) else NEW
    return AGAIN


def pool_size(make_ns: float, side_ns: float) -> int:
    """How many inputs a process makes of each side, which it samples for so long."""
    return min(max(round(TIME_SHARE * side_ns / max(make_ns, 1)), LEAST_INPUTS), MOST_INPUTS)


def copies_are_alike(arguments: Arguments) -> bool:
    """Whether a copy is harmless, and what `copier` gives is like these arguments in all that can be seen."""
    seen = Seen(arguments)
    return bool(seen.digest) and seen.can_copy and Seen(copier(arguments)()).digest == seen.digest


def copier(arguments: Arguments) -> Callable[[], Arguments]:
    """What makes copies of arguments, quickly where they are made of numbers, texts, lists, dicts and arrays."""
    makers = [_copier(each) for each in arguments]
    if len(makers) == 1:
        [make] = makers
        return lambda: (make(),)
    return lambda: tuple([make() for make in makers])


def is_plain(arguments: Arguments) -> bool:
    """Whether they are numbers and arrays of numbers."""
    return all(type(each) in NUMBERS or _is_array(each) for each in arguments)


def _copier(value: Any) -> Callable[[], Any]:
    if type(value) in NUMBERS:
        return lambda: value
    if _is_array(value):
        copy: Callable[[], Any] = value.copy
        return copy
    try:
        written = marshal.dumps(value)
    except ValueError:  # an object of a class
        return lambda: copied(value)
    return lambda: marshal.loads(written)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject


class Pool:
    """The inputs of one side in one process."""

    def __init__(self, payload: Payload, size: int, *, copies: bool) -> None:
        """copies: whether calls are given copies."""
        self._payload, self._size, self.copies = payload, size, copies
        self._made: list[Callable[[], Arguments]] = []
        self._numbered: list[tuple[int, int]] = []  # place and number of those that can be made again

    def __len__(self) -> int:
        return len(self._made)

    @property
    def is_full(self) -> bool:
        """Whether no more are made."""
        return len(self._made) >= self._size

    def given(self, number: int, count: int) -> tuple[list[Arguments], int]:
        """What so many calls are given, and the number by which the last of it can be made again. number: of the first
        of so many inputs that nobody has been given; by it the choice is drawn, for all sides the same."""
        drawn = random.Random(number)
        if more := min(count, self._size - len(self._made)):
            self._numbered.append((len(self._made) + more - 1, number + more - 1))
            self._made += map(self._keeper, self._payload.batch(number, more))
            place, last = self._numbered[-1]
        else:
            place, last = drawn.choice(self._numbered)
        new = range(len(self._made) - more, len(self._made) - 1) if more else ()
        again = drawn.choices(range(len(self._made)), k=count - 1 - len(new))
        return [self._made[each]() for each in (*new, *again, place)], last

    def _keeper(self, arguments: Arguments) -> Callable[[], Arguments]:
        return copier(arguments) if self.copies else lambda: arguments
