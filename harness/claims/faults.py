"""What is wrong with a claim, in words for its author: the key, its value, what is expected, the nearest valid word."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from llama_workbench.datasets.files import short, shortened
from llama_workbench.variants.spelling import did_you_mean

from ..metrics.registry import names
from .model import Citation, Claim, hypothesis_model

NOTED_BY_RUNS = "left_out"
"""A key of parts that only the claims stored with a run have."""

MOST_FAULTS = 20
"""Of one file are told; who has more has another kind of file."""


class ClaimError(ValueError):
    """A claim cannot be used. One line for each fault: file, key, value, what was expected, nearest valid name."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def syntax_problem(path: Path, text: str, message: str) -> str:
    """tomllib gives the place only inside its message, and none for a file that ends too early."""
    place = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if not place:
        return f"{path}: not valid TOML: {message}"
    if place[1]:
        line, column = int(place[1]), int(place[2])
    else:
        lines = text.split("\n")
        line, column = len(lines), len(lines[-1]) + 1
    return f"{path}:{line}:{column}: not valid TOML: {message[: place.start()]}"


ModelAt = Callable[[Mapping[str, Any], Sequence[str | int]], type[BaseModel]]
"""A table and the location of a key in it → the model that the key belongs to."""


def problems_of(
    error: ValidationError,
    table: Mapping[str, Any],
    where: str,
    model_at: ModelAt | None = None,
    *,
    has_named_tables: bool = False,
) -> list[str]:
    """What pydantic found wrong with a table, a line each; `where` stands at the start of every line. It is a claim, or
    made of the models that `model_at` gives; what a key may be is the description of its field. `has_named_tables`:
    whether there are tables whose names the file's writer chose, which are no keys of a model."""
    faults = error.errors()
    # A list whose items are all faulty is reported once more as too short; that would only confuse.
    inner = {fault["loc"][:depth] for fault in faults for depth in range(1, len(fault["loc"]))}
    faults = [fault for fault in faults if not (fault["type"] == "too_short" and fault["loc"] in inner)]
    lines = dict.fromkeys(
        _problem(where, table, fault, model_at or _model_at, has_named_tables) for fault in faults[:MOST_FAULTS]
    )
    more = [f"{where}: and {len(faults) - MOST_FAULTS} more faults"] if len(faults) > MOST_FAULTS else []
    return [*(shortened(line, len(where) + 800) for line in lines), *more]


def _problem(
    where: str, table: Mapping[str, Any], fault: Mapping[str, Any], model_at: ModelAt, has_named_tables: bool
) -> str:
    """One fault as a line: the key's path, its value, what is expected, and the nearest valid word."""
    location: tuple[str | int, ...] = fault["loc"]
    key = next((step for step in reversed(location) if isinstance(step, str)), "")
    whole = has_named_tables or key in ("", "hypothesis", "for")
    if fault["type"] == "value_error" and whole:  # a check of ours over several keys
        return f"{where}: {_dotted(location)}: {fault['ctx']['error']}" if key else f"{where}: {fault['ctx']['error']}"
    model = model_at(table, location)
    if has_named_tables and fault["type"] != "extra_forbidden":
        key = next((step for step in reversed(location) if isinstance(step, str) and step in model.model_fields), "")
    if fault["type"] == "missing" and location[-1] == key:
        return f"{where}: {_dotted(location)}: missing; expected {_expected(model, key)}"
    location, value = _in_file(table, location)
    place = f"{where}: {_dotted(location)} = {shown(value)}"
    if fault["type"] == "extra_forbidden":
        return f"{place}: {_unknown(model, table, location, key)}"
    expected = _expected(model, key, item=isinstance(location[-1], int))
    hint = nearest(value, _choices(model, key)) if isinstance(value, str) else ""
    return f"{place}: expected {expected}{hint}"


def noted_by_runs(table: Mapping[str, Any], where: str) -> list[str]:
    """The keys of a claim file that only a run may write, a line each."""
    parts = table.get("hypothesis")
    faults = []
    for index, part in enumerate(parts if isinstance(parts, list) else []):
        if isinstance(part, Mapping) and NOTED_BY_RUNS in part:
            location = ("hypothesis", index, NOTED_BY_RUNS)
            place = f"{where}: {_dotted(location)} = {shown(part[NOTED_BY_RUNS])}"
            faults.append(f"{place}: {_unknown(_model_at(table, location), table, location, NOTED_BY_RUNS)}")
    return faults[:MOST_FAULTS]


def _unknown(model: type[BaseModel], table: Mapping[str, Any], location: Sequence[str | int], key: str) -> str:
    valid = [field.alias or name for name, field in model.model_fields.items() if name != NOTED_BY_RUNS]
    return f"unknown key{_for_metric(table, location)}{nearest(key, valid)} (keys here: {', '.join(valid)})"


def _model_at(table: Mapping[str, Any], location: Sequence[str | int]) -> type[BaseModel]:
    """The model that the key at a location belongs to."""
    match location:
        case ["hypothesis", int(index), str(), *_]:
            return hypothesis_model(table["hypothesis"][index].get("metric"))
        case ["source", int(), str(), *_]:
            return Citation
    return Claim


def model_below(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel]:
    """The innermost model on the way to a location, by the types of its fields."""
    for step in location:
        if isinstance(step, str) and step in model.model_fields:
            kinds: list[Any] = [model.model_fields[step].annotation]
            while kinds and not (isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel)):
                kinds = [*get_args(kinds[0]), *kinds[1:]]
            model = kinds[0] if kinds else model
    return model


def _for_metric(table: Mapping[str, Any], location: Sequence[str | int]) -> str:
    """Names the metric of the hypothesis at a location."""
    if location[0] != "hypothesis" or not isinstance(location[1], int):
        return ""
    metric = table["hypothesis"][location[1]].get("metric")
    return f' for metric = "{metric}"' if metric in names() else ""


def _expected(model: type[BaseModel], key: str, *, item: bool = False) -> str:
    """What a key, or an item of its list, may be."""
    if key == "metric":
        return f"one of {', '.join(names())}"
    field = _field(model, key)
    if field is None:
        return f"a table with {', '.join(model.model_fields)}"
    inner = next(iter(get_args(field.annotation)), None)  # of a list its items, of what may be missing its type
    notes = (note.description for note in getattr(inner, "__metadata__", ()) if isinstance(note, FieldInfo))
    of_inner = next((description for description in notes if description), None)
    return (item and of_inner) or field.description or of_inner or "another value"


def _field(model: type[BaseModel], key: str) -> FieldInfo | None:
    return next((field for name, field in model.model_fields.items() if key in (name, field.alias)), None)


def _choices(model: type[BaseModel], key: str) -> Sequence[str]:
    """The words of which a key's value must be one; empty where it may be anything."""
    if key == "metric":
        return names()
    field = _field(model, key)
    options = [option for word in _arguments(field and field.annotation) for option in _arguments(word)]
    return [option for option in options if isinstance(option, str)]


def _arguments(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def _dotted(location: Sequence[str | int]) -> str:
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += "." * bool(text) + shortened(step, 80)
    return text


def _in_file(table: Any, location: Sequence[str | int]) -> tuple[tuple[str | int, ...], Any]:
    """A fault's place and value as the file has them: pydantic may point inside what our own conversions made."""
    steps: list[str | int] = []
    for step in location:
        if isinstance(step, int) != isinstance(table, list):
            break
        try:
            table = table[step]
        except (KeyError, IndexError, TypeError):
            break
        steps.append(step)
    return tuple(steps), table


def shown(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):  # a number of too many digits, or nested deep
        return short(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def nearest(name: str, valid: Iterable[str]) -> str:
    """The nearest of `valid`, as the end of a sentence; empty where none is near."""
    hint = did_you_mean(name, valid, quote='"')
    return f"; {hint}" if hint else ""
