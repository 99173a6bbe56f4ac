"""What a function is called with: a user's payload function makes the arguments, another time for each call."""

from __future__ import annotations

import hashlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Arguments = tuple[Any, ...]

SEEDS = 1 << 32


class Payload:
    """Arguments by number, the same again for the same number and `draw`.

    The function may take a seed, a whole number. Python's, numpy's and torch's random numbers are seeded before it is
    called, so that one without a parameter gives other values each time, too. A tuple is spread: one argument each.
    """

    def __init__(self, function: Callable[..., Any], draw: str) -> None:
        self._function = function
        self._draw = draw
        self._takes_seed = _takes_one(function)

    def seed(self, number: int) -> int:
        """What the function is given, and where random numbers begin. Numbers below 0 do not depend on `draw`."""
        text = f"{self._draw if number >= 0 else ''} {number}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def arguments(self, number: int) -> Arguments:
        """What a function is called with."""
        return self.seeded(self.seed(number))

    def seeded(self, seed: int) -> Arguments:
        """The same by the seed itself: the same in every process, whatever its `draw`."""
        return self._made(_seeded(seed))

    def batch(self, first: int, count: int) -> list[Arguments]:
        """Arguments for so many calls: those of the last number can be made again, the others are like none before.

        Seeding takes longer than many a call, so that it is done for the first and the last alone.
        """
        base = _seeded(self.seed(first))
        others = [self._made((base + index) % SEEDS) for index in range(1, count)]
        return [*others, self.arguments(first + count - 1)]

    def _made(self, seed: int) -> Arguments:
        given = self._function(seed) if self._takes_seed else self._function()
        return given if type(given) is tuple else (given,)


@contextmanager
def random_state_kept() -> Iterator[None]:
    """What is seeded in this block is as it was before after it: tests may draw from it."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    states = random.getstate(), numpy and numpy.random.get_state(), torch and torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy:
            numpy.random.set_state(states[1])
        if torch:
            torch.set_rng_state(states[2])


def _seeded(seed: int) -> int:
    """The same seed, after all random numbers begin with it."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
    return seed


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether it needs one argument, or has one that is called seed. Others that need none are left as they are."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some built-in functions do not tell
        return False
    first = next((p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)), None)
    return first is not None and (first.default is first.empty or first.name == "seed")
