"""What several passes of a run write alike, and files of slices that pages of the core show. Other files of a pass are
declared beside its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import TypeAdapter

from ..spec.sample import Column, columns
from ..spec.table import Table
from .forms import Amount, Count, Shape, Size, Text, Value, says

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


# -- the memory that caches hold, over lengths -------------------------------------------------------------------------


class Held(Shape):
    """Bytes of live tensors by kind."""

    held: Annotated[dict[str, Count], says("after the calls")] = {}
    kept: Annotated[dict[str, Count], says("after a reset")] = {}


class SweepStep(Held):
    """The live tensors after calls of some lengths."""

    lengths: Annotated[list[Count], says("the lengths so far")]
    computed: Annotated[Held | None, says("the memory that the variant's policies expect")] = None


class Fill(Shape):
    """Keys and values after one sequence alone."""

    part: Annotated[Count, says("the longest length by the sequence's")]
    kv: Annotated[Count, says("bytes of keys and values")]


class Sweep(OfVariant):
    """Live tensors of a variant over lengths."""

    reason: Annotated[Text | None, says("why there are no steps")] = None
    steps: Annotated[list[SweepStep], says("before the first call, and after each")] = []
    fills: Annotated[list[Fill], says("keys and values, by how much of the room is used")] = []
    served: Annotated[list[Size] | None, says("lengths that were called")] = None
    weights_bytes: Annotated[Count | None, says("bytes of weights")] = None


MEMORY_SWEEP = JsonFile("memory_sweep.json", list[Sweep])
