"""The data base that reads and writes Parquet files: DuckDB, in memory, one for each file.

Of the libraries that say of a damaged file what is wrong with it, and do not end the process, it is the smallest.
"""

from __future__ import annotations

import re
from pathlib import Path

import duckdb


def data_base() -> duckdb.DuckDBPyConnection:
    """An empty one, which loads nothing from anywhere and writes nothing aside."""
    never = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "temp_directory": ""}
    return duckdb.connect(":memory:", config={**never, "threads": 1})


def sql_text(value: object) -> str:
    """A text in a query."""
    return "'" + str(value).replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """The name of a column, or of a type, in a query."""
    return '"' + name.replace('"', '""') + '"'


def sql_file(path: Path) -> str:
    """A file to read, in a query: no character of its path stands for others."""
    return sql_text(re.sub(r"([*?\[])", r"[\1]", str(path)))
