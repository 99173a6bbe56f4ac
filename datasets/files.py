"""Files that anybody may have written: opened only where they are plain ones of a likely size, read within bounds.

A named pipe may never answer, a device may never end, a text may be gigabytes long, nested thousands deep or hold a
number of a million digits. Each of these becomes an error with a short text.
"""

from __future__ import annotations

import errno
import json
import os
import re
import reprlib
import stat
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from llama_workbench import ROOT
from llama_workbench.variants.spelling import did_you_mean

# Texts of others in one line of ours. Of the standard library alone, and of Python 3.9: measuring processes use it.


def shortened(text: str, longest: int = 200) -> str:
    """A text in one line without control characters, its middle left out where it is longer than `longest`."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[: 10 * longest])
    return line if len(line) <= longest else f"{line[: longest - 23]}...{line[-20:]}"


SMALL_BYTES = 1 << 18
"""A claim, or a file of workloads or geometries. The largest that ship have 8 KB."""

CONFIG_BYTES = 1 << 23
"""A config.json, an index of shards, the header of a safetensors file."""

TOKENIZER_BYTES = 1 << 26
"""A tokenizer.json; the largest of Llamas have 17 MB."""

MOST_DEPTH = 50
"""Tables within tables."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip

# A chain of keys with dots between: tomllib takes time and memory in the square of its length.
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_CHAIN = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_PART}){{{MOST_DEPTH}}}")


def open_regular(path: Path) -> BinaryIO:
    """A file opened for reading its bytes, if it is a regular one. Never waits. Raises OSError as `open` does, and for
    a folder, a named pipe, a socket or a device; its `strerror` can be shown."""
    try:
        _demand_regular(os.stat(path))  # before it is opened: a device may do something already when it is
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:  # a zero byte in the path
        raise OSError(errno.EINVAL, "no path of a file") from error
    try:
        _demand_regular(os.fstat(descriptor))  # another one may have taken its place
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _demand_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if kind := _KINDS.get(stat.S_IFMT(status.st_mode)):
        raise OSError(errno.EINVAL, f"is {kind}, expected a file")


def read_bytes(path: Path, *, at_most: int) -> bytes:
    """The content of a regular file. Raises OSError as `open_regular` does, and where there is more than `at_most`."""
    with open_regular(path) as file:
        content = file.read(at_most + 1)
        if len(content) > at_most:
            size = max(os.fstat(file.fileno()).st_size, len(content))
            raise OSError(errno.EFBIG, f"has {size:,} bytes, expected at most {at_most:,}")
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; unlike the library's, every fault is a TOMLDecodeError with a short text."""
    if chain := _CHAIN.search(text):
        line, column = text.count("\n", 0, chain.start()) + 1, chain.start() - text.rfind("\n", 0, chain.start())
        raise tomllib.TOMLDecodeError(f"a key of more than {MOST_DEPTH} parts (at line {line}, column {column})")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem, at, place = str(error).rpartition(" (at ")
        raise tomllib.TOMLDecodeError(f"{shortened(problem)}{at}{place}" if at else shortened(place)) from None
    except RecursionError:
        raise tomllib.TOMLDecodeError("nested too deeply") from None
    except ValueError:  # Python's own limit: mistakes in the text are TOMLDecodeErrors
        raise tomllib.TOMLDecodeError("a number of too many digits") from None
    if _is_deep(tables):
        raise tomllib.TOMLDecodeError("nested too deeply")
    return tables


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text; unlike the library's, every fault is a ValueError with a short text."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(shortened(str(error))) from None
    if _is_deep(value):
        raise ValueError("nested too deeply")
    return value


def _is_deep(value: Any) -> bool:
    """Whether tables and lists are nested more than `MOST_DEPTH` deep; level by level, as recursion has a limit too."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        tables = [each for each in level if isinstance(each, dict | list)]
        level = [inner for table in tables for inner in (table.values() if isinstance(table, dict) else table)]
    return any(isinstance(each, dict | list) for each in level)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple = 3, 3, 6, 6
        self.maxstring = self.maxother = self.maxlong = 60

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 1000 else f"a number of {x.bit_length():,} bits"


def short(value: object) -> str:
    """`repr` of a value out of a file, in one line of about a hundred letters, whatever it is."""
    return shortened(_Short().repr(value), 100)


def nearest(name: str, choices: Iterable[str]) -> str:
    """ "did you mean 'x'?", or all known names where none is near."""
    names = list(choices)
    return did_you_mean(name, names, "there are " + ", ".join(map(repr, names)))


def shown(path: Path) -> str:
    """A path as errors show it: within the workbench relative to its root, so that the text is the same everywhere."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


# What is wrong with the values of a file, a line each for who wrote it: the key, its value, what was expected.


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
    unlisted: keys that are not offered in place of an unknown one."""
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
