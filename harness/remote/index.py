"""The index of a folder of runs: `.index/` beside them, Parquet files with a row a run (see `store.index_schema`).

A file of it is never changed: who publishes or removes a run adds one, named after its content, so that several may do
so at once. When there are many, one file takes their place; they are removed only then. A reader keeps copies here, and
one table of them all, newest run first, of which it reads the part that it shows.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from llama_workbench.cache import cache_directory, partial_folder

from ..store.errors import first_line
from ..store.files import MANIFEST
from ..store.folder import RunFolder
from ..store.index_schema import SCHEMA
from .place import Place, PlaceError, key_of
from .rows import NEEDED, Row, row_of
from .transfer import fetch

INDEX = ".index"
MOST_FILES = 32
"""With more, one takes their place: a reader fetches each."""

_ROWS_OF_A_GROUP = 256  # of the reader's table, which is read in such groups
_AT_A_TIME = 64  # runs whose files are fetched side by side
_TRIES = 5  # of reading an index whose files are just being replaced


class Listing:
    """The runs of a folder, newest first, as an index or a look at each folder has them.

    state: differs when the rows do. Of a file only those parts are read that are asked for.
    """

    def __init__(self, source: pa.Table | Path) -> None:
        self._source = source
        if isinstance(source, pa.Table):
            self._count = source.num_rows
            self.state = key_of(repr(source.select(["name", "digest"]).to_pylist()))
        else:
            self._count = pq.read_metadata(source).num_rows
            self.state = source.name

    def __len__(self) -> int:
        return self._count

    @cached_property
    def names(self) -> list[str]:
        """The names of all runs."""
        source: Any = self._source
        table = pq.read_table(source, columns=["name"]) if isinstance(source, Path) else source
        return [str(name) for name in table.column("name").to_pylist()]

    def rows(self, names: Iterable[str]) -> list[Row]:
        """The whole rows of these runs, in the order of the list."""
        wanted = set(names)
        return self._taken([place for place, name in enumerate(self.names) if name in wanted])

    def newest(self, count: int) -> list[Row]:
        """The whole rows of the newest runs."""
        return self._taken(list(range(min(count, len(self)))))

    def _taken(self, places: Sequence[int]) -> list[Row]:
        if isinstance(self._source, pa.Table):
            return self._source.take(pa.array(places, pa.int64())).to_pylist()
        groups = sorted({place // _ROWS_OF_A_GROUP for place in places})
        if not groups:
            return []
        starts = {group: number * _ROWS_OF_A_GROUP for number, group in enumerate(groups)}
        with pq.ParquetFile(self._source) as file:
            table = file.read_row_groups(groups)
        inside = [starts[place // _ROWS_OF_A_GROUP] + place % _ROWS_OF_A_GROUP for place in places]
        return table.take(pa.array(inside, pa.int64())).to_pylist()


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as a table: of each run the latest, without those that are gone, newest run first."""
    return _ordered(_latest(pa.Table.from_pylist(list(rows), SCHEMA)), keep_gone=False)


def add(home: Place, rows: Sequence[Row]) -> None:
    """Add rows to the index of the folder at `home`, and put one file in the place of many. Raises PlaceError."""
    index = home.folder(INDEX)
    _put(index, pa.Table.from_pylist(list(rows), SCHEMA))
    names = _files(index)
    if len(names) > MOST_FILES:
        with tempfile.TemporaryDirectory() as aside:
            tables = _fetched(index, names, Path(aside))
            if tables is not None:
                kept = _put(index, _ordered(_latest(pa.concat_tables(tables)), keep_gone=True))
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
        tables = _fetched(index, names, kept)
        if tables is not None:  # else someone has just put one file in the place of these
            table = _ordered(_latest(pa.concat_tables(tables)), keep_gone=False)
            _write(table, whole)
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
    kept = _put(index, pa.Table.from_pylist(rows, SCHEMA)) if rows else ""
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


def _fetched(index: Place, names: Sequence[str], folder: Path) -> list[pa.Table] | None:
    """The tables of these files, which stay in `folder`; None where one of them is gone."""
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
    return [_table(folder / name, index) for name in names]


def _table(path: Path, index: Place) -> pa.Table:
    """A file of the index in the columns of SCHEMA. Raises PlaceError where it is no such file, or is damaged."""
    try:
        content = path.read_bytes()
        if path.stem.rpartition("-")[2] != _named_after(content):
            raise pa.ArrowInvalid("its name is not that of its content")
        table = pq.read_table(pa.BufferReader(content))
        return pa.table([table.column(field.name).cast(field.type) for field in SCHEMA], schema=SCHEMA)
    except (pa.ArrowException, KeyError, OSError, UnicodeDecodeError) as error:
        path.unlink(missing_ok=True)
        problem = f"no file of an index ({first_line(error)})"
        raise PlaceError(
            f"{index.url}/{path.name}", problem, f"Write it anew: workbench index {index.parent().url}"
        ) from error


def _latest(table: pa.Table) -> pa.Table:
    """Of each run the row that was written last."""
    noted, names = table.column("noted").to_pylist(), table.column("name").to_pylist()
    last: dict[str, int] = {}
    for place, (name, when) in enumerate(zip(names, noted, strict=True)):
        if name not in last or when >= noted[last[name]]:
            last[name] = place
    return table if len(last) == table.num_rows else table.take(pa.array(sorted(last.values()), pa.int64()))


def _ordered(table: pa.Table, *, keep_gone: bool) -> pa.Table:
    import pyarrow.compute as pc

    shown = table if keep_gone else table.filter(pc.invert(table.column("gone")))
    return shown.sort_by([("started", "descending"), ("name", "descending")])


def _put(index: Place, table: pa.Table) -> str:
    """Put a table into the index, under a name that says how many rows it has and which; returns the name."""
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / "new.parquet"
        pq.write_table(table, path, compression="zstd")
        name = f"{table.num_rows:06d}-{_named_after(path.read_bytes())}.parquet"
        index.put({name: path})
    return name


def _named_after(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _write(table: pa.Table, path: Path) -> None:
    with partial_folder(path.parent, path.stem, needed_bytes=table.nbytes) as partial:
        pq.write_table(table, partial / path.name, compression="zstd", row_group_size=_ROWS_OF_A_GROUP)
        (partial / path.name).replace(path)
