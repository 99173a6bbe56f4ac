"""One side of a comparison of any two functions: its code imported for it alone, its inputs, and the right answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns  # bound before any foreign code is imported
from typing import Any

from .answers import difference
from .payload import Arguments, Payload
from .source import Imports, Source

GATED = (-1, -2, -3)
"""Numbers of the inputs on which every side must agree with the baseline before anything is timed."""

TIMED_AGAIN = 5


Make = Callable[[], Callable[..., Any]]


class PayloadError(Exception):
    """The payload function cannot be used; the text says why."""


@dataclass(frozen=True)
class Call:
    """What a comparison of functions is about: the sources of its baseline, of its payload, and of the user's check."""

    baseline: Source
    payload: Source
    check: Source | None = None

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Call:
        """From the dataclass as a dict, as the parent sends it."""
        return cls(**{name: source and Source(**source) for name, source in table.items()})


class Called:
    """A function with its inputs and the right answers.

    make, baseline: give the function and the baseline, anew where a factory makes them. payload_name: for messages.
    make_ns: the least time that making an input took. changes_inputs: whether a call leaves its arguments changed.
    """

    def __init__(
        self, make: Make, baseline: Make, payload: Payload, payload_name: str, check: Callable[..., Any] | None = None
    ) -> None:
        self.make, self._baseline, self.payload, self._check = make, baseline, payload, check
        self._payload_name = payload_name
        self.make_ns = 0
        self.one_input = False
        self.changes_inputs = False

    @classmethod
    def imported(cls, source: Source, call: Call, draw: str) -> Called:
        """With its files imported for it alone. Objects of one class then are of one class on both sides of the check,
        wherever the file of the class is. Raises OutsideVariantError."""
        imports = Imports()
        make, baseline = (_maker(each, imports.function(each)) for each in (source, call.baseline))
        check = None if call.check is None else imports.function(call.check)
        return cls(make, baseline, Payload(imports.function(call.payload), draw), call.payload.shown, check)

    def gate(self) -> str:
        """What is wrong with its answers, in words, or with the payload; empty where they are the baseline's."""
        self._look_at_inputs()
        function = self.make()
        for number in GATED:
            arguments = self.payload.arguments(number)
            got = function(*arguments)
            self.changes_inputs |= bool(difference(arguments, self.payload.arguments(number)))
            if wrong := self.wrong(number, got):
                return wrong
        return ""

    def wrong(self, number: int, got: Any) -> str:
        """Where an answer to the input of that number is not the baseline's, in words; empty where it is."""
        function = self._baseline()
        expected = function(*self.payload.arguments(number))
        found = difference(got, expected, self._check)
        if not found:
            return ""
        return f"{found} (input {self._payload_name}, seed {self.payload.seed(number)})"

    def _look_at_inputs(self) -> None:
        """Are inputs the same each time, and how long does one take? Raises PayloadError where they cannot be used."""
        name = self._payload_name
        try:
            first, again, other = (self.payload.arguments(number) for number in (GATED[0], GATED[0], GATED[1]))
            begun = perf_counter_ns()
            self.payload.batch(0, TIMED_AGAIN)
            self.make_ns = max((perf_counter_ns() - begun) // TIMED_AGAIN, 1)
        except Exception as error:
            raise PayloadError(f"{name} raises {type(error).__name__}: {error}") from error
        if random := difference(first, again):
            told = "draw from Python's, numpy's or torch's seeded random numbers, or take a seed"
            raise PayloadError(f"{name} gives another input for the same seed ({random}): {told}")
        self.one_input = not difference(first, other)

    @property
    def makes_inputs(self) -> bool:
        """Whether each call is given an input of its own."""
        return self.changes_inputs or not self.one_input

    def inputs(self, first: int, count: int) -> list[Arguments]:
        """What so many calls are given; the answer to the last can be checked under its number, first + count - 1."""
        if not self.makes_inputs:
            return [self.payload.arguments(first)] * count
        return self.payload.batch(first, count)


def _maker(source: Source, function: Callable[..., Any]) -> Make:
    """What gives the function of a source: itself, or what the factory makes."""
    if not source.factory:
        return lambda: function

    def make() -> Callable[..., Any]:
        made = function()
        if not callable(made):
            raise TypeError(f"{source.shown} makes a {type(made).__name__}, which cannot be called")
        return made

    return make
