"""The index of a folder of runs: `.index/` beside them, Parquet files with a row a run (see `store.index_schema`).

A file of it is never changed: who publishes or removes a run adds one, named after its content, so that several may do
so at once. When there are many, one file takes their place; they are removed only then. A reader keeps copies here, and
one table of them all, newest run first, of which it reads the part that it shows.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from llama_workbench.cache import cache_directory, partial_folder

from ..store.data_base import data_base, sql_file, sql_text
from ..store.errors import first_line
from ..store.files import MANIFEST
from ..store.folder import RunFolder
from ..store.index_schema import COLUMNS
from .place import Place, PlaceError, key_of
from .rows import NEEDED, Row, row_of
from .transfer import fetch

INDEX = ".index"
MOST_FILES = 32
"""With more, one takes their place: a reader fetches each."""

_AT_A_TIME = 64  # runs whose files are fetched side by side
_TRIES = 5  # of reading an index whose files are just being replaced


class Listing:
    """The runs of a folder, newest first, as an index or a look at each folder has them.

    state: differs when the rows do. Of a file only those parts are read that are asked for.
    """

    def __init__(self, source: Sequence[Row] | Path) -> None:
        self._source = source
        if isinstance(source, Path):
            [(self._count,)] = _query(source, "count(*)")
            self.state = source.name
        else:
            self._count = len(source)
            self.state = key_of(repr([(row["name"], row["digest"]) for row in source]))

    def __len__(self) -> int:
        return self._count

    @cached_property
    def names(self) -> list[str]:
        """The names of all runs."""
        if isinstance(self._source, Path):
            return [name for (name,) in _query(self._source, "name", "ORDER BY file_row_number")]
        return [row["name"] for row in self._source]

    def rows(self, names: Iterable[str]) -> list[Row]:
        """The whole rows of these runs, in the order of the list."""
        wanted = set(names)
        return self._taken([place for place, name in enumerate(self.names) if name in wanted])

    def newest(self, count: int) -> list[Row]:
        """The whole rows of the newest runs."""
        return self._taken(list(range(min(count, len(self)))))

    def _taken(self, places: Sequence[int]) -> list[Row]:
        if isinstance(self._source, Path):
            return _rows(self._source, "WHERE file_row_number IN (SELECT unnest(?))", list(places))
        return [self._source[place] for place in places]


def listed(rows: Iterable[Row]) -> list[Row]:
    """Of each run the row that was written last, without those that are gone, newest run first."""
    return _ordered(row for row in _latest(rows) if not row["gone"])


def add(home: Place, rows: Sequence[Row]) -> None:
    """Add rows to the index of the folder at `home`, and put one file in the place of many. Raises PlaceError."""
    index = home.folder(INDEX)
    _put(index, rows)
    names = _files(index)
    if len(names) > MOST_FILES:
        with tempfile.TemporaryDirectory() as aside:
            fetched = _fetched(index, names, Path(aside))
            if fetched is not None:
                kept = _put(index, _ordered(_latest(fetched)))
                index.remove([name for name in names if name != kept])


def read(home: Place, cache: Path | None = None) -> Listing | None:
    """The index of the folder at `home`; None where it has none. Asks the store for the names of its files, and for
    those that are not here yet. Raises PlaceError."""
    index = home.folder(INDEX)
    kept = (cache or cache_directory()) / "index" / key_of(index.url)
    for _ in range(_TRIES):
        names = _files(index)
        if not names:
            return None
        whole = kept / f"all-{key_of(' '.join(names))}.parquet"
        if whole.exists():
            return Listing(whole)
        fetched = _fetched(index, names, kept)
        if fetched is not None:  # else someone has just put one file in the place of these
            _write(listed(fetched), whole)
            for old in kept.glob("*.parquet"):
                if old.name not in names and old != whole:
                    old.unlink(missing_ok=True)
            return Listing(whole)
    raise PlaceError(index.url, "its files change faster than they can be read", "Try again.")


def rebuild(home: Place) -> tuple[int, int]:
    """Write the index of the folder at `home` anew from the runs that lie there, with no more than their JSON files
    where these have all that is needed. Returns how many runs there are, and how many of them cannot be read.

    A run that is published meanwhile may need another look. Raises PlaceError.
    """
    index = home.folder(INDEX)
    before = _files(index)
    names = home.folders()
    parts = (names[first : first + _AT_A_TIME] for first in range(0, len(names), _AT_A_TIME))
    rows = [row for part in parts for row in look(home, part, whole=True)]
    kept = _put(index, rows) if rows else ""
    index.remove([name for name in before if name != kept])
    return len(rows), sum(bool(row["problem"]) for row in rows)


def look(home: Place, names: Collection[str], *, whole: bool = False) -> list[Row]:
    """The rows of runs as they lie at `home` now. Folders without run.json are none.

    With `whole` a run whose JSON files say too little is fetched; without, its relative times stay away.
    """
    content = home.read([f"{name}/{file}" for name in names for file in NEEDED])
    rows = []
    with tempfile.TemporaryDirectory() as aside:
        for name in names:
            if f"{name}/{MANIFEST}" not in content:
                continue
            folder = Path(aside) / name
            folder.mkdir()
            for file in NEEDED:
                if (data := content.get(f"{name}/{file}")) is not None:
                    (folder / file).write_bytes(data)
            row = row_of(RunFolder(folder), name, light=True)
            rows.append(_whole_row(home, name, row) if whole and not (row["problem"] or row["environment"]) else row)
    return rows


def _whole_row(home: Place, name: str, light: Row) -> Row:
    with tempfile.TemporaryDirectory() as aside:
        try:
            return row_of(fetch(home.folder(name).url, Path(aside)), name)
        except PlaceError as error:
            return light | {"problem": error.problem, "status": "damaged"}


def _files(index: Place) -> list[str]:
    return sorted(name for name in index.files() if name.endswith(".parquet") and not name.startswith("."))


def _fetched(index: Place, names: Sequence[str], folder: Path) -> list[Row] | None:
    """The rows of these files, which stay in `folder`; None where one of them is gone."""
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        size = sum(facts.size for name, facts in index.files().items() if name in missing)
        with partial_folder(folder, "index", needed_bytes=2 * size) as partial:
            try:
                index.get({name: partial / name for name in missing})
            except PlaceError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    return None
                raise
            for name in missing:
                (partial / name).replace(folder / name)
    return [row for name in names for row in _checked(folder / name, index)]


def _checked(path: Path, index: Place) -> list[Row]:
    """The rows of a file of the index. Raises PlaceError where it is no such file, or is damaged."""
    try:
        if path.stem.rpartition("-")[2] != _named_after(path):
            raise ValueError("its name is not that of its content")
        return _rows(path)
    except (duckdb.Error, OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        problem = f"no file of an index ({first_line(error)})"
        raise PlaceError(
            f"{index.url}/{path.name}", problem, f"Write it anew: workbench index {index.parent().url}"
        ) from error


def _latest(rows: Iterable[Row]) -> list[Row]:
    """Of each run the row that was written last."""
    last: dict[str, Row] = {}
    for row in rows:
        if row["name"] not in last or row["noted"] >= last[row["name"]]["noted"]:
            last[row["name"]] = row
    return list(last.values())


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["started"], row["name"]), reverse=True)


def _put(index: Place, rows: Sequence[Row]) -> str:
    """Put rows into the index, under a name that says how many there are and which; returns the name."""
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / "new.parquet"
        _write(rows, path)
        name = f"{len(rows):06d}-{_named_after(path)}.parquet"
        index.put({name: path})
    return name


def _named_after(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


# -- its files ---------------------------------------------------------------------------------------------------------


def _query(path: Path, what: str, rest: str = "", *values: object) -> list[tuple[Any, ...]]:
    with data_base() as base:
        file = f"read_parquet({sql_file(path)}, hive_partitioning = false, file_row_number = true)"
        return base.execute(f"SELECT {what} FROM {file} {rest}", values).fetchall()


def _rows(path: Path, which: str = "", *values: object) -> list[Row]:
    kinds = ", ".join(f"{name}::{kind.sql}" for name, (kind, _) in COLUMNS.items())
    read = _query(path, kinds, f"{which} ORDER BY file_row_number", *values)
    return [dict(zip(COLUMNS, row, strict=True)) for row in read]


def _write(rows: Sequence[Row], path: Path) -> None:
    text = "".join(json.dumps({name: row[name] for name in COLUMNS}) + "\n" for row in rows)
    kinds = ", ".join(f"{sql_text(name)}: {sql_text(kind.sql)}" for name, (kind, _) in COLUMNS.items())
    with partial_folder(path.parent, path.stem, needed_bytes=2 * len(text)) as partial, data_base() as base:
        (partial / "rows.jsonl").write_text(text)
        read = f"read_json({sql_file(partial / 'rows.jsonl')}, format = 'newline_delimited', columns = {{{kinds}}})"
        to = f"{sql_text(partial / path.name)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 2048)"
        base.execute(f"COPY (SELECT * FROM {read}) TO {to}").fetchall()
        (partial / path.name).replace(path)
