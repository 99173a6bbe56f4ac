"""What is wrong with the values of a file, a line each for who wrote it: the key, its value, what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from llama_workbench.variants.spelling import did_you_mean

from .files import short
from .texts import shortened

MOST_FAULTS = 20
"""Of one table are told; who has more has another kind of file."""

Location = tuple[str | int, ...]
ModelAt = Callable[[Location], type[BaseModel] | None]
"""The location of a table → the model that it is read by."""

_OBJECTS = {"model_type", "model_attributes_type", "dict_type", "dataclass_type"}


def impossible(key: str, value: object, expected: str) -> PydanticCustomError:
    """The error a validator raises for a value that does not fit the others of its table."""
    return PydanticCustomError("impossible", "{key}", {"key": key, "value": value, "expected": expected})


def faults(
    error: ValidationError,
    table: Any,
    model: ModelAt | type[BaseModel] | None = None,
    *,
    names: Mapping[str, str] | None = None,
    words: Mapping[str, Sequence[str]] | None = None,
    unlisted: Collection[str] = (),
) -> list[str]:
    """What pydantic found wrong with a table, a line each.

    model: what the table is read by; a key may then be what the description of its field says, where it has one.
    names: what the file calls a key of the model. words: key → what it may be, where its type does not say so.
    unlisted: keys that are not offered in place of an unknown one.
    """
    at = partial(model_below, model) if isinstance(model, type) else model or (lambda location: None)
    writer = _Writer(table, at, names or {}, words or {}, unlisted)
    listed = error.errors()
    # A list whose items are all faulty is reported once more as too short; that would only confuse.
    inner = {fault["loc"][:depth] for fault in listed for depth in range(1, len(fault["loc"]))}
    told_of = [fault for fault in listed if not (fault["type"] == "too_short" and fault["loc"] in inner)]
    lines = dict.fromkeys(shortened(writer.line(fault), 800) for fault in told_of[:MOST_FAULTS])
    return [*lines, *([f"and {len(told_of) - MOST_FAULTS} more faults"] if len(told_of) > MOST_FAULTS else [])]


def unknown_key(place: str, value: object, key: str, keys: Sequence[str]) -> str:
    """The line on a key that is none of these."""
    hint = did_you_mean(key, keys)
    return f"{place} = {short(value)}: unknown key{f'; {hint}' if hint else ''} (keys here: {', '.join(keys)})"


def model_below(model: type[BaseModel], location: Location) -> type[BaseModel]:
    """The innermost model on the way to a location, by the types of its fields."""
    for step in location:
        if (field := _field(model, step)) is not None:
            kinds: list[Any] = [field.annotation]
            while kinds and not (isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel)):
                kinds = [*get_args(kinds[0]), *kinds[1:]]
            model = kinds[0] if kinds else model
    return model


def dotted(location: Location) -> str:
    """A place in a file: `hypothesis[0].variant`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{shortened(step, 80)}" for step in location)
    return "".join(steps).removeprefix(".")


@dataclass(frozen=True)
class _Writer:
    """Writes the faults of one table; see `faults`."""

    table: Any
    model_at: ModelAt
    names: Mapping[str, str]
    words: Mapping[str, Sequence[str]]
    unlisted: Collection[str]

    def line(self, fault: ErrorDetails) -> str:
        """One fault: the key's path, its value, what is expected, and the nearest valid word."""
        details: Mapping[str, Any] = fault.get("ctx", {})
        location: Location = fault["loc"]
        if fault["type"] == "impossible":
            place = self._place(tuple(details["key"].split(".")))
            return f"{place} = {short(details['value'])}, expected {details['expected']}"
        if fault["type"] == "missing" and isinstance(location[-1], str):
            described, _ = self._expected(location)
            return f"{self._place(location)} is missing{f', expected {described}' if described else ''}"
        location, value = self._in_file(location, fault["input"])
        described, key = self._expected(location)
        place = self._place(location) or "it"
        match fault["type"]:
            case "value_error" if isinstance(value, Mapping) or not described:  # of ours, mostly over several keys
                return f"{place}: {details['error']}" if location else str(details["error"])
            case "extra_forbidden" if (model := self.model_at(location[:-1])) is not None:
                fields = model.model_fields.items()
                keys = [field.alias or name for name, field in fields if name not in self.unlisted]
                return unknown_key(place, value, str(location[-1]), keys)
        hint = did_you_mean(value, self._choices(key, details)) if isinstance(value, str) else ""
        return f"{place} = {short(value)}, expected {described or _in_words(fault)}{f'; {hint}' if hint else ''}"

    def _place(self, location: Location) -> str:
        return dotted(tuple(self.names.get(step, step) if isinstance(step, str) else step for step in location))

    def _expected(self, location: Location) -> tuple[str, str]:
        """What may stand at a location, or in the table around it whose key is known; and that key. Empty where
        nothing says it."""
        for end in reversed(range(len(location))):
            key, model = location[end], self.model_at(location[:end])
            if isinstance(key, str) and model is not None and (field := _field(model, key)) is not None:
                words = f"one of {', '.join(self.words[key])}" if key in self.words else ""
                return words or _description(field, item=isinstance(location[-1], int)), key
        return "", ""

    def _choices(self, key: str, details: Mapping[str, Any]) -> Sequence[str]:
        return self.words.get(key) or re.findall("'([^']*)'", str(details.get("expected", "")))

    def _in_file(self, location: Location, value: Any) -> tuple[Location, Any]:
        """A fault's place and value as the file has them: pydantic may point inside what our own conversions made."""
        steps: list[str | int] = []
        here = self.table
        for step in location:
            if step == "[key]":  # of a table whose keys have a form
                return tuple(steps), value
            if isinstance(step, int) != isinstance(here, list | tuple):
                break
            try:
                here = here[step]
            except (KeyError, IndexError, TypeError):
                break
            steps.append(step)
        return tuple(steps), here


def _field(model: type[BaseModel], key: str | int) -> FieldInfo | None:
    return next((field for name, field in model.model_fields.items() if key in (name, field.alias)), None)


def _description(field: FieldInfo, *, item: bool) -> str:
    """What a field, or an item of its list, may be."""
    inner = next(iter(get_args(field.annotation)), None)  # of a list its items, of what may be missing its type
    notes: Iterator[str | None] = (
        note.description for note in getattr(inner, "__metadata__", ()) if isinstance(note, FieldInfo)
    )
    of_inner = next((description for description in notes if description), None)
    return (item and of_inner) or field.description or of_inner or ""


def _in_words(fault: ErrorDetails) -> str:
    """What pydantic expected."""
    if fault["type"] in _OBJECTS:
        return "an object"
    if fault["type"] == "too_short":
        return f"{fault['ctx']['min_length']} or more entries"
    return str(fault.get("ctx", {}).get("expected") or fault["msg"].removeprefix("Input should be "))
