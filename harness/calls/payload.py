"""What a function is called with: a user's payload function makes the arguments, another time for each call."""

from __future__ import annotations

import hashlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any, Optional

from .inputs import copied

Arguments = tuple[Any, ...]

SEEDS = 1 << 32


def _of_numpy(state: Any) -> tuple[bytes, int]:
    return state[1].tobytes(), state[2]


GENERATORS: Mapping[str, tuple[Callable[[Any, int], Any], Callable[[Any], Any]]] = {
    "random": (lambda module, seed: module.seed(seed), lambda module: module.getstate()),
    "numpy": (lambda module, seed: module.random.seed(seed), lambda module: _of_numpy(module.random.get_state())),
    "torch": (lambda module, seed: module.manual_seed(seed), lambda module: module.get_rng_state().numpy().tobytes()),
}
"""Modules with random numbers of their own: how they are seeded, and their state."""


class Payload:
    """Arguments by number, the same again for the same number and `draw`.

    The function may take a seed, a whole number. Python's, numpy's and torch's random numbers are seeded before it is
    called, so that one without a parameter gives other values each time, too. A tuple is spread: one argument each.

    generators: those of GENERATORS that are seeded: all of them, until `used` was asked which ones it draws from.
    copies: whether a copy is given of what the function hands out, because calls change it. size: what the function is
    given beside the seed; 0: nothing.
    """

    def __init__(self, function: Callable[..., Any], draw: str, size: int = 0) -> None:
        self._function = function
        self._sizes = (size,) if size else ()
        self._draw = draw
        self._takes_seed = _takes_one(function)
        self.generators = tuple(GENERATORS)
        self.copies = False

    def used(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """The generators that making these inputs draws from. Seeding one takes up to 50 µs, more than many an input.

        A generator whose module is imported by the first call counts as used: its state before is not known.
        """
        used = []
        for number in numbers:
            _seeded(self.seed(number), self.generators)
            before = _states(self.generators)
            self._made(self.seed(number))
            after = _states(self.generators)
            used += [name for name in after if before.get(name) != after[name]]
        return tuple(name for name in self.generators if name in used)

    @staticmethod
    def drawn() -> dict[str, Any]:
        """Where the random numbers of Python, numpy and torch stand: the same as before where nothing drew any."""
        return _states(tuple(GENERATORS))

    def work(self) -> dict[str, float]:
        """What a call must do at least, as far as the function has attributes that say so: numbers, or functions of
        the size. Raises ValueError."""
        amounts = {what: getattr(self._function, what, 0) for what in ("flops", "bytes", "items")}
        amounts = {what: amount(*self._sizes) if callable(amount) else amount for what, amount in amounts.items()}
        for what, amount in amounts.items():
            if not isinstance(amount, Real) or not 0 <= float(amount) < float("inf"):
                raise ValueError(f"{what} = {amount!r}: expected a number, 0 or more")
        return {what: float(amount) for what, amount in amounts.items()}

    def around(self) -> tuple[Optional[Callable[..., Any]], Optional[Callable[..., Any]]]:
        """What is called before and after each call, with its arguments, as the function has it in attributes. Raises
        TypeError."""
        before, after = (getattr(self._function, name, None) for name in ("setup", "teardown"))
        for name, given in (("setup", before), ("teardown", after)):
            if given is not None and not callable(given):
                raise TypeError(f"{name} = {given!r}: expected a function, which is called with a call's arguments")
        return before, after

    def seed(self, number: int) -> int:
        """What the function is given, and where random numbers begin. Numbers below 0 do not depend on `draw`."""
        text = f"{self._draw if number >= 0 else ''} {number}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def arguments(self, number: int) -> Arguments:
        """What a function is called with."""
        return self.seeded(self.seed(number))

    def seeded(self, seed: int) -> Arguments:
        """The same by the seed itself: the same in every process, whatever its `draw`."""
        return self._made(_seeded(seed, self.generators))

    def batch(self, first: int, count: int) -> list[Arguments]:
        """Arguments for so many calls: those of the last number can be made again, the others are like none before.

        Seeding takes longer than many a call, so that it is done for the first and the last alone.
        """
        base = _seeded(self.seed(first), self.generators)
        others = [self._made((base + index) % SEEDS) for index in range(1, count)]
        return [*others, self.arguments(first + count - 1)]

    def _made(self, seed: int) -> Arguments:
        given = self._function(*(seed,) * self._takes_seed, *self._sizes)
        given = copied(given) if self.copies else given
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


def _seeded(seed: int, generators: Sequence[str]) -> int:
    """The same seed, after all random numbers of these generators begin with it."""
    for name in generators:
        if module := sys.modules.get(name):
            GENERATORS[name][0](module, seed)
    return seed


def _states(generators: Sequence[str]) -> dict[str, Any]:
    """Where each of these generators stands that is imported."""
    return {name: GENERATORS[name][1](sys.modules[name]) for name in generators if name in sys.modules}


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether it needs one argument, or has one that is called seed. Others that need none are left as they are."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some built-in functions do not tell
        return False
    first = next((p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)), None)
    return first is not None and (first.default is first.empty or first.name == "seed")
