"""Inputs that a process makes once and gives to many calls: making one often takes longer than the call.

What is given again may remember what it was used for (a text its hash, a function its answer), and a call may change
it. So calls that change their inputs get copies, and others where copies cost little. Gates try what each side gains
where an input is given again: where one gains more than another, each call has a new one.
"""

from __future__ import annotations

import marshal
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

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

NUMBERS = (int, float, complex, bool, type(None))


class GainAgain(NamedTuple):
    """How much less time second calls with the same inputs take than first ones."""

    first_ns: float
    """What a first call takes."""
    gain_ns: float
    error_ns: float
    """Of the gain, a standard error."""
    freedom: int
    """Degrees of freedom of the error."""


@dataclass(frozen=True)
class InputCosts:
    """What a gate found out of a side's inputs. copy_ns: what a copy takes; 0 where it is not known how to make one.
    changes: whether calls change them. is_plain: whether they are numbers and arrays of them, which remember
    nothing. again: what a side gains where it is given an input again; None where nobody knows."""

    make_ns: float
    copy_ns: float
    changes: bool
    is_plain: bool
    again: GainAgain | None = None

    def is_copied(self, call_ns: float) -> bool:
        """Whether calls need copies, or cost little more with them."""
        return self.changes or (not self.is_plain and 0 < self.copy_ns < min(COPY_SHARE * call_ns, self.make_ns))

    @classmethod
    def of(cls, learnt: Mapping[str, Any]) -> InputCosts:
        """By what a gate learnt."""
        changes = learnt["changes_inputs"] or learnt["spoils_inputs"]
        again = None if learnt.get("again") is None else GainAgain(*learnt["again"])
        return cls(learnt["make_ns"], learnt["copy_ns"], changes, learnt["has_plain_inputs"], again)


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
