"""A file of a run folder as whoever writes it declares it: its name, which knows the form of what stands in it.

A pass declares its files beside its code and hands them to `RunFolder.write_json`, `records`, `write_table` and so on.
The store needs no list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from ..spec.sample import Column, columns
from ..spec.table import Table


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
