"""The data base that reads and writes Parquet files: DuckDB, in memory.

Of the libraries that say of a damaged file what is wrong with it, and do not end the process, it is the smallest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


@contextmanager
def data_base() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of its own, whose temporary views, tables and types end with it. It loads nothing from anywhere,
    writes nothing aside and remembers no file."""
    import duckdb  # here, for it loads slowly: nobody waits for it before something is measured

    base = _opened_once(os.getpid()).cursor()
    try:
        yield base
    except (duckdb.FatalException, duckdb.InternalException):
        _opened_once.cache_clear()  # this one answers nobody any more
        raise
    finally:
        base.close()


@cache
def _opened_once(process: int) -> duckdb.DuckDBPyConnection:
    """Opening takes 20 ms, several times what most files take. process: a fork may not use its parent's."""
    import duckdb

    never = dict.fromkeys(
        ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_file_cache"), "false"
    )
    return duckdb.connect(":memory:", config={**never, "temp_directory": "", "threads": 1})


def sql_text(value: object) -> str:
    """A text in a query."""
    return "'" + str(value).replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """The name of a column, or of a type, in a query."""
    return '"' + name.replace('"', '""') + '"'


def sql_file(path: Path) -> str:
    """A file to read, in a query: no character of its path stands for others."""
    return sql_text(re.sub(r"([*?\[])", r"[\1]", str(path)))
