"""The tables of a run: its Parquet files, and the journal of a run that has not ended."""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llama_workbench.datasets.files import short

from ..spec.sample import Column, Round, Sample, sample_columns
from ..spec.table import NameColumn, Table
from .files import RESTORE, RunError, RunWarning, as_run_error, first_line

if TYPE_CHECKING:
    import duckdb


COLUMNS = sample_columns()
"""Columns of samples.parquet: one row is one `Sample` with the round it is of."""

_MAGIC = b"PAR1"  # at both ends of a file
_CHECKSUMS = "llama_workbench.crc32"
_TYPES = {"name": "VARCHAR", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float64": "DOUBLE"}
_INTEGERS = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG")} | {"INTEGER", "UINTEGER"}


def no_rows(columns: Mapping[str, Column]) -> Table:
    """The table of a run without any: some claims are judged by other passes alone."""
    return table_of(columns, [])


def table_of(columns: Mapping[str, Column], rows: Sequence[Sequence[Any]]) -> Table:
    """Rows as a table. Raises OverflowError for a number that its column cannot hold."""
    return table_of_columns(
        columns, dict(zip(columns, zip(*rows, strict=True) if rows else [()] * len(columns), strict=True))
    )


def table_of_columns(columns: Mapping[str, Column], values: Mapping[str, Sequence[Any]]) -> Table:
    """The same of whole columns."""
    return Table(
        {
            name: NameColumn.of(values[name]) if column.kind == "name" else np.array(values[name], dtype=column.kind)
            for name, column in columns.items()
        }
    )


def write_table(table: Table, path: Path, facts: Mapping[str, str] | None = None) -> None:
    """With `facts` about it, and a checksum of each column: a file of a run that has not ended shows damage itself.
    Raises OSError."""
    import duckdb

    facts = {**(facts or {}), _CHECKSUMS: json.dumps({name: _crc(table[name]) for name in table.columns})}
    metadata = ", ".join(f"{sql_text(name)}: {sql_text(fact)}" for name, fact in facts.items())
    with data_base() as base:
        base.register("rows_", {name: table[name] for name in table.columns})
        try:
            base.execute(
                f"COPY rows_ TO {sql_text(path)} (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{metadata}}})"
            )
        except duckdb.IOException as error:
            path.write_bytes(b"\0" * 65_536)  # the system says itself what is wrong with the place
            raise OSError(errno.EIO, first_line(error)) from error


def check_whole(path: Path) -> None:
    """Whether a file begins and ends as Parquet does; reads no more of it. Raises RunError."""
    try:
        with path.open("rb") as file:
            begins, size = file.read(4), file.seek(0, 2)
            file.seek(max(size - 8, 0))
            footer, ends = int.from_bytes(file.read(4), "little"), file.read(4)
    except OSError as error:
        raise RunError(path, f"cannot be read ({error.strerror or first_line(error)})", RESTORE) from error
    if not size:
        raise RunError(path, "an empty file, not Parquet", RESTORE)
    if begins != _MAGIC or ends != _MAGIC or not 0 < footer <= size - 12:
        raise RunError(path, "not a whole Parquet file (it does not begin and end as one)", RESTORE)


def distinct(path: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The different rows of some columns of samples.parquet, in the order in which they come first. Raises RunError."""
    listed = ", ".join(map(sql_name, names))
    with _opened(path, {name: COLUMNS[name] for name in names}) as base:
        return base.execute(f"SELECT {listed} FROM rows_ GROUP BY {listed} ORDER BY min(file_row_number)").fetchall()


def read_samples(path: Path, variants: Collection[str] | None = None) -> Table:
    """samples.parquet in its columns; with `variants` only their rows. Raises RunError."""
    return checked_samples(read_table(path, COLUMNS, variants), path)


def read_table(path: Path, columns: Mapping[str, Column], variants: Collection[str] | None = None) -> Table:
    """A table of these columns. Raises RunError."""
    with _opened(path, columns) as base:
        if variants is not None:
            base.execute("CREATE TEMP TABLE wanted_ AS SELECT unnest(?) AS variant", [sorted(variants)]).fetchall()
            base.execute("CREATE TEMP VIEW kept_ AS SELECT * FROM rows_ SEMI JOIN wanted_ USING (variant)").fetchall()
        source = "rows_" if variants is None else "kept_"
        lists = {name: _names(base, source, name) for name, column in columns.items() if column.kind == "name"}
        read = ", ".join(
            f"enum_code({sql_name(name)}::{sql_name(f'names of {name}')})::INTEGER AS {sql_name(name)}"
            if lists.get(name)
            else f"{sql_name(name)}::{'VARCHAR' if name in lists else _TYPES[column.kind]} AS {sql_name(name)}"
            for name, column in columns.items()
        )
        stored = base.execute(f"SELECT {read} FROM {source} ORDER BY file_row_number").fetchnumpy()
        table = Table(
            {
                name: NameColumn(lists[name], np.asarray(stored[name] if lists[name] else [], dtype=np.int32))
                if name in lists
                else np.asarray(stored[name])
                for name in columns
            }
        )
        if variants is None:
            _check_sums(base, table, path)
    return table


def checked_samples(table: Table, path: Path) -> Table:
    """The same table. Raises RunError for what no run can have measured, before it becomes a logarithm of nothing."""
    firsts = [
        (table[f"first_{clock}_ns"] >= 0) & (table[f"first_{clock}_ns"] <= table[f"{clock}_ns"])
        for clock in ("cpu", "wall", "device")
    ]
    for right, problem in (
        ((table["repeats"] >= 1) & (table["wall_ns"] > 0) & (table["cpu_ns"] >= 0), "with no calls or no time"),
        (table["device_ns"] >= 0, "of less than no time"),
        (np.logical_and.reduce(firsts), "whose first token came after the last, or before the start"),
    ):
        if not right.all():
            raise RunError(path, f"holds a sample {problem}", RESTORE)
    place = ("workload", "process", "round", "sub_round", "variant")
    if (twice := repeated(table, *place)) is not None:
        workload, process, number, sub_round, variant = next(table.select(place).take(np.array([twice])).rows())
        raise RunError(
            path,
            f"variant {variant} occurs twice in workload {workload}, process {process}, round {number}, "
            f"sub-round {sub_round}",
            "Two runs may have written to one folder: measure again.",
        )
    return table


def repeated(table: Table, *names: str) -> int | None:
    """The first row that has the same in these columns as one before it; None where each is different."""
    first = np.unique(table.keys(*names), return_index=True)[1]
    again = np.setdiff1d(np.arange(len(table)), first)
    return int(again[0]) if again.size else None


# -- the data base that reads them -------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path, wanted: Mapping[str, Column]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A data base whose view `rows_` is this file, with its columns checked. Raises RunError, also for what the block
    finds to be damaged."""
    check_whole(path)
    with _damage(path), data_base() as base:
        file = f"read_parquet({sql_file(path)}, hive_partitioning = false, file_row_number = true)"
        base.execute(f"CREATE TEMP VIEW rows_ AS SELECT * FROM {file}").fetchall()
        have = {name: kind for name, kind, *_ in base.execute("DESCRIBE rows_").fetchall()}
        lacking = [name for name in wanted if name not in have]
        if lacking:
            raise RunError(path, f"lacks the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}", RESTORE)
        for name, column in wanted.items():
            if column.kind.startswith("int") and have[name] not in _INTEGERS:
                raise RunError(path, f"column {name} is {have[name].lower()}, not {column.kind}", RESTORE)
        empty = ", ".join(f"count(*) - count({sql_name(name)})" for name in wanted)
        [missing] = base.execute(f"SELECT {empty} FROM rows_").fetchall()
        if gaps := [name for name, count in zip(wanted, missing, strict=True) if count]:
            raise RunError(path, f"column {gaps[0]} has empty cells", RESTORE)
        yield base


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, UnicodeDecodeError) as error:
        raise RunError(path, f"damaged ({first_line(error)})", RESTORE) from error


def _names(base: duckdb.DuckDBPyConnection, source: str, name: str) -> tuple[str, ...]:
    """The different names of a column in the order in which they come first, also as a type of the data base."""
    query = f"SELECT {sql_name(name)}::VARCHAR FROM {source} GROUP BY 1 ORDER BY min(file_row_number)"
    names = tuple(text for (text,) in base.execute(query).fetchall())
    if names:
        listed = ", ".join(map(sql_text, names))
        base.execute(f"CREATE TEMP TYPE {sql_name(f'names of {name}')} AS ENUM ({listed})").fetchall()
    return names


def _check_sums(base: duckdb.DuckDBPyConnection, table: Table, path: Path) -> None:
    """Compare the columns with the checksums that the file has, if it has any."""
    query = f"SELECT value FROM parquet_kv_metadata({sql_file(path)}) WHERE key = ?::BLOB"
    for (content,) in base.execute(query, [_CHECKSUMS]).fetchall():
        try:
            wanted = json.loads(content)
            wrong = [name for name, column in table.columns.items() if _crc(np.asarray(column)) != wanted[name]]
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(path, "damaged (its checksums cannot be read)", RESTORE) from error
        if wrong:
            raise RunError(path, f"damaged (column {wrong[0]} is not what was written)", RESTORE)


def _crc(column: NDArray[Any]) -> int:
    """Of names and of numbers of any width alike."""
    content = (
        "\n".join(column.tolist()).encode()
        if column.dtype == object
        else column.astype("<i8" if column.dtype.kind in "iu" else "<f8").tobytes()
    )
    return zlib.crc32(content)


# -- DuckDB: of the libraries that say what is wrong with a damaged file, and do not end the process, the smallest -----


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


# The journal of a run that has not ended: one line for each finished round, and its checksum at the end of the line.
# Only a line that was cut off by `kill -9` can be lost.


ROUND = ["workload", "process", "round"]
_LINE_KEYS = {*ROUND, "samples", "crc"}

Key = tuple[str, int, int]
"""(workload, process, round)"""


def append_to_journal(path: Path, record: Round) -> None:
    """Add one finished round: one line, handed to the kernel before this returns.

    On a full disk the part of the line that fitted is taken back, so that the journal stays whole. Raises RunError, and
    ValueError for a round that could not be read back.
    """
    line = line_of(record)
    if problem := _problem(line):
        raise ValueError(f"not a round: {problem}")
    text = json.dumps(line, separators=(",", ":"), allow_nan=False).encode()
    content = text[:-1] + _line_checksum(text) + b"\n"
    with (
        as_run_error(path, "cannot append a round ({}); the rounds before it are safe"),
        open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b", buffering=0) as file,
    ):
        end = file.seek(_end_of_last_line(file.fileno()))
        try:
            rest = memoryview(content)
            while rest:  # a write to a nearly full disk may take only a part
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(end)
            raise
        # Only now: a half line that a killed run left behind may have been longer than the new line.
        file.truncate(end + len(content))


def line_of(record: Round) -> dict[str, Any]:
    """A round as it lies in the journal, but for the checksum."""
    return dict(zip([*ROUND, "samples"], [*record[:3], list(map(list, record.samples))], strict=True))


def read_journal(path: Path) -> tuple[Table, bool]:
    """Its rounds in the columns of samples.parquet, and whether its last line is whole. Raises RunError."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    with as_run_error(path):
        lines = path.read_bytes().split(b"\n")
    rest = lines.pop()
    if rest:
        warnings.warn(f"{path}: the last line was cut off and is left out", RunWarning, stacklevel=3)
    for number, line in ((number, line) for number, line in enumerate(lines, start=1) if line.strip()):
        try:
            record = json.loads(line)
            problem = _problem(record) or _checksum_problem(line)
        except (ValueError, RecursionError):
            problem = "not JSON"
        if problem:
            fix = f"Delete line {number}: each line is one round of its own."
            raise RunError(path, f"line {number} is damaged ({problem})", fix)
        samples = record["samples"]
        for name in ROUND:
            columns[name] += [record[name]] * len(samples)
        for name, column in zip(Sample._fields, zip(*samples, strict=True), strict=bool(samples)):
            columns[name] += column
    try:
        return checked_samples(table_of_columns(COLUMNS, columns), path), not rest
    except OverflowError as error:
        raise RunError(path, f"a number is out of range ({error})", "Measure again.") from error


def merged(fresh: Table, earlier_file: Path) -> Table:
    """The rounds of a journal, and those that an earlier samples.parquet has beside them.

    Mostly there are none: the file is a snapshot of the same journal. Only where a finished run was taken up again are
    there others. A damaged file is left out with a warning.
    """
    try:
        earlier = read_samples(earlier_file)
    except RunError as error:
        warnings.warn(f"{error}; its journal samples.jsonl was read instead", RunWarning, stacklevel=4)
        return fresh
    if not len(fresh):
        return earlier
    others = rounds(earlier) - rounds(fresh)
    if not others:
        return fresh
    return earlier.take(np.array([key in others for key in earlier.select(ROUND).rows()])).and_then(fresh)


def rounds(table: Table) -> set[Key]:
    """The rounds that have samples here."""
    return set(table.distinct(*ROUND))


def warn_of_lost_rounds(path: Path, table: Table, counted: Mapping[str, int]) -> None:
    """Warn where run.json, which is written after the samples, counted more rounds of a workload than there are."""
    have = Counter(workload for workload, _, _ in rounds(table))
    for name, number in counted.items():
        if number > have[name]:
            warnings.warn(
                f"{path}: {have[name]} rounds of {name}, and run.json counted {number}: "
                "some were lost. Restore the file from a copy, or go on with what is left.",
                RunWarning,
                stacklevel=4,
            )


def _end_of_last_line(descriptor: int) -> int:
    """Offset just behind the last newline: beyond it lies only a line that a killed run did not finish."""
    if not os.fstat(descriptor).st_size:
        return 0
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        return content.rfind(b"\n") + 1


INTEGER: tuple[type, str] = (int, "a whole number")


def _problem(record: Any) -> str | None:
    """What is wrong with a line of the journal; None for a good one."""
    if not isinstance(record, dict):
        return "not an object"
    if unknown := record.keys() - _LINE_KEYS:
        return f"unknown key {short(sorted(unknown)[0])}"
    kinds = {"workload": (str, "a name"), "process": INTEGER, "round": INTEGER, "samples": (list, "a list")}
    for key, (kind, word) in kinds.items():
        if type(record.get(key)) is not kind:
            return f'"{key}" is not {word}'
    samples = record["samples"]
    if not all(isinstance(row, list) and len(row) == len(Sample._fields) for row in samples):
        return f"a sample is not [{', '.join(Sample._fields)}]"
    # By columns, because a journal of a long run has a million numbers.
    for name, column in zip(Sample._fields, zip(*samples, strict=True), strict=bool(samples)):
        kind, word = kinds["workload"] if name == "variant" else INTEGER
        if set(map(type, column)) != {kind}:
            return f"a sample has a {name} that is not {word}"
    return None


def _line_checksum(text: bytes) -> bytes:
    """The end of a line, in place of the last brace of `text`: it shows a digit that changed."""
    return b',"crc":"%08x"}' % zlib.crc32(text)


def _checksum_problem(line: bytes) -> str | None:
    """What is wrong with the checksum of a line."""
    end = len(_line_checksum(b""))
    return None if line[-end:] == _line_checksum(line[:-end] + b"}") else "its checksum is missing or does not fit"
