"""The parts of schema.py: kinds of numbers; values as JSON; and the check that a value is in a form.

Also the parser of all JSON in a run folder, which refuses every number that arithmetic would fail on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, PlainSerializer, TypeAdapter, ValidationError, WrapValidator

from llama_workbench.datasets.files import faults

from ..spec.sample import Column, columns
from ..spec.table import Table


class Shape(BaseModel):
    """A part of a file: keys that are not named here are let through, and written again with the rest."""

    model_config = {"frozen": True, "extra": "allow"}


def says(text: str) -> Any:
    """What a field means, for the page on the file format."""
    return Field(description=text)


ABSENT = Field(exclude_if=lambda value: not value)
"""Of a field that is not there in a file where nothing, 0 or false stands in it."""

MOST = 2**62
"""No count, no number of bytes and no time in nanoseconds is larger; sums of a few of them still fit in 64 bits."""

Text = Annotated[str, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Some = Annotated[int, Field(strict=True, gt=0, le=MOST)]
Seed = Annotated[int, Field(strict=True, ge=0)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e300, le=1e300)]
Log = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-300, le=300)]
"""The logarithm of a ratio; the quotient of two of them is still a float."""
Ratio = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=1e-100, le=1e100)]
Amount = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e300)]
Nanoseconds = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=1e-9, le=MOST)]
Alpha = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=1e-12, lt=1)]
Size = Annotated[int, Field(strict=True, ge=0, le=2**40)]
"""Tokens, widths and the like: what is multiplied and raised to powers."""


def _exp(log_ratio: float) -> float | None:
    """A ratio for a file; null for no bound and for NaN."""
    ratio = math.exp(log_ratio) if log_ratio < 700 else math.inf
    return ratio if math.isfinite(ratio) and ratio > 0 else None


def null_is(value: float, convert: Callable[[Any], Any] = lambda number: number) -> WrapValidator:
    """In a file null, in memory this value; anything else is converted."""
    return WrapValidator(
        lambda raw, read: value if raw is None else convert(read(raw)), json_schema_input_type=float | None
    )


_OR_NULL = PlainSerializer(lambda value: value if math.isfinite(value) else None, return_type=float | None)
_AS_RATIO = PlainSerializer(_exp, return_type=float | None)

Value = Annotated[Number, null_is(math.nan), _OR_NULL]
"""A number that may be missing: null in a file, NaN in memory. So are the ends of an interval, infinite in memory."""
LowEnd = Annotated[Number, null_is(-math.inf), _OR_NULL]
HighEnd = Annotated[Number, null_is(math.inf), _OR_NULL]
SecondsMore = Annotated[Amount, null_is(math.inf), _OR_NULL]
LogValue = Annotated[Log, null_is(math.nan), _OR_NULL]
LogLow = Annotated[Log, null_is(-math.inf), _OR_NULL]
LogHigh = Annotated[Log, null_is(math.inf), _OR_NULL]
RatioValue = Annotated[Ratio, null_is(math.nan, math.log), _AS_RATIO]
"""A log ratio in memory, a ratio in a file."""
RatioLow = Annotated[Ratio, null_is(-math.inf, math.log), _AS_RATIO]
RatioHigh = Annotated[Ratio, null_is(math.inf, math.log), _AS_RATIO]


_form_of: Callable[[type], TypeAdapter[Any]] = cache(TypeAdapter)


def plain(value: Any) -> Any:
    """A value in JSON's types: models and dataclasses in their form, infinite and NaN floats as None. Of a model, what
    was said of it: no defaults."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, BaseModel):
        return plain(value.model_dump(by_alias=True, exclude_unset=True, warnings="error"))
    if is_dataclass(value) and not isinstance(value, type):
        return plain(_form_of(type(value)).dump_python(value, by_alias=True, warnings="error"))
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a numpy scalar
        return plain(value.item())
    return value


def once(*names: str) -> AfterValidator:
    """No two records of a list may have the same values of these."""

    def check(records: list[Any]) -> list[Any]:
        seen = set()
        for index, record in enumerate(records):
            key = tuple(getattr(record, name) for name in names)
            if key in seen:
                raise ValueError(f"entry {index} has the {', '.join(names)} of an earlier one")
            seen.add(key)
        return records

    return AfterValidator(check)


class Fault(ValueError):
    """A value is not in the form that is asked for: its place, the value and what was expected, in one line."""


def check(form: TypeAdapter[Any], value: Any) -> Any:
    """The value that `value` stands for in this form. Raises Fault where it is not in it."""
    try:
        return form.validate_python(value)
    except ValidationError as error:
        raise Fault(faults(error, value)[0]) from error


def has_form(form: TypeAdapter[Any]) -> AfterValidator:
    """The value stays as it is, but must be in this form."""

    def checked(value: Any) -> Any:
        check(form, value)
        return value

    return AfterValidator(checked)


def parse(content: bytes) -> Any:
    """JSON whose numbers are all finite and small enough for a float. Raises Fault."""
    try:
        return json.loads(content.decode("utf-8"), parse_float=_float, parse_int=_int, parse_constant=_float)
    except UnicodeDecodeError:
        problem = "not UTF-8 text"
    except json.JSONDecodeError as error:
        problem = f"not JSON at line {error.lineno}"
    except RecursionError:
        problem = "not JSON, or nested too deeply"
    except Fault as error:
        number = str(error)
        line = content.count(b"\n", 0, max(content.find(number.encode()), 0)) + 1
        number = number if len(number) <= 30 else f"{number[:27]}..."
        problem = f"line {line}: {number} stands there, expected a finite number of at most 300 digits"
    raise Fault(problem)


def _float(text: str) -> float:
    if math.isfinite(value := float(text)):
        return value
    raise Fault(text)


def _int(text: str) -> int:
    if len(text) > 300:
        raise Fault(text)
    return int(text)


# What several passes of a run write alike, and files of slices that pages of the core show. Other files of a pass are
# declared beside its code.


# A file of a run folder as whoever writes it declares it: its name, which knows the form of what stands in it.
# A pass declares its files beside its code and hands them to `RunFolder.write_json`, `records`, `write_table` and so
# on. The store needs no list of them.


class JsonFile(str):
    """The name of a JSON file, with the form of its content: a pydantic type, or a type adapter."""

    form: TypeAdapter[Any]

    def __new__(cls, name: str, form: Any) -> JsonFile:
        if Path(name).name != name or not name.endswith(".json"):
            raise ValueError(f"{name!r} is not a plain name ending in .json")
        file = super().__new__(cls, name)
        file.form = form if isinstance(form, TypeAdapter) else TypeAdapter(form)
        return file


class TableFile(str):
    """The name of a Parquet file, with the type of its rows: a NamedTuple of columns (see `spec.sample`).

    fault: what is wrong with a table that has these columns, in words; empty where nothing is.
    """

    row: type
    columns: Mapping[str, Column]
    fault: Callable[[Table], str]

    def __new__(cls, name: str, row: type, fault: Callable[[Table], str] = lambda table: "") -> TableFile:
        if Path(name).name != name or not name.endswith(".parquet"):
            raise ValueError(f"{name!r} is not a plain name ending in .parquet")
        file = super().__new__(cls, name)
        file.row, file.columns, file.fault = row, columns(row), fault
        return file


DataFile: TypeAlias = JsonFile | TableFile


Subject = tuple[str, str, str, str, str]
"""(metric, quantity, workload, variant, baseline), with "" for what does not apply."""


@dataclass(frozen=True)
class ExactResult:
    """One exact result of a pass: bytes, lines, the share of cases that pass a check."""

    metric: Annotated[Text, says("memory, count or check")]
    quantity: Annotated[Text, says("what was counted or checked")]
    workload: Annotated[Text, says("on which workload; may be empty")]
    variant: Annotated[Text, says("of which variant; may be empty")]
    baseline: Annotated[Text, says("over which other variant; may be empty")]
    value: Annotated[Value, says("the result; null: none")]
    count: Annotated[Count, says("number of cases behind it")]
    detail: Annotated[Text, says("the cases, in words")] = ""
    reason: Annotated[Text, says("why there is no value")] = ""
    seconds: Annotated[Amount, says("time that it took, seconds")] = 0.0

    @property
    def subject(self) -> Subject:
        """What the value is of."""
        return self.metric, self.quantity, self.workload, self.variant, self.baseline


class OfVariant(Shape):
    """What a pass found of a variant."""

    workload: Annotated[Text, says("on which workload")]
    variant: Annotated[Text, says("of which variant")]
