"""A table in memory: columns of equal length, as a Parquet file of a run has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

_MOST_KEYS = 2**62


@dataclass(frozen=True)
class NameColumn:
    """A column of names out of a short list."""

    values: tuple[str, ...]  # each once; of a file in the order in which they come
    codes: NDArray[np.int32]  # of each row its place in `values`

    @classmethod
    def of(cls, names: Iterable[str]) -> NameColumn:
        """The column of these names."""
        places: dict[str, int] = {}
        codes = [places.setdefault(name, len(places)) for name in names]
        return cls(tuple(places), np.array(codes, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> NameColumn:
        return NameColumn(self.values, self.codes[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=object)[self.codes] if self.values else np.empty(0, dtype=object)

    def are(self, *names: str) -> NDArray[np.bool_]:
        """Which rows have one of these names."""
        return np.isin(self.codes, [place for place, name in enumerate(self.values) if name in names])

    def tolist(self) -> list[str]:
        """The name of each row."""
        return [self.values[code] for code in self.codes.tolist()]


AnyColumn: TypeAlias = "NDArray[Any] | NameColumn"


@dataclass(frozen=True)
class Table:
    """Columns by name. Those of names are `names(NAME)`, those of numbers `table[NAME]`."""

    columns: Mapping[str, AnyColumn]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.asarray(self.columns[name])

    def names(self, name: str) -> NameColumn:
        """A column of names."""
        column = self.columns[name]
        if not isinstance(column, NameColumn):
            raise TypeError(f"column {name} holds numbers")
        return column

    def select(self, names: Sequence[str]) -> Table:
        """These columns alone."""
        return Table({name: self.columns[name] for name in names})

    def take(self, rows: NDArray[Any]) -> Table:
        """These rows: their places, or a truth value for each row."""
        return Table({name: column[rows] for name, column in self.columns.items()})

    def where(self, **names: str) -> Table:
        """The rows with these names, by column."""
        kept = [self.names(column).are(name) for column, name in names.items()]
        return self.take(np.logical_and.reduce(kept))

    def keys(self, *names: str) -> NDArray[np.int64]:
        """A number for each row: the same where these columns are the same, and in their order."""
        keys, count = np.zeros(len(self), dtype=np.int64), 1
        for name in names:
            column = self.columns[name]
            values = column.codes if isinstance(column, NameColumn) else column
            numbers = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
            width = int(numbers.max(initial=0)) + 1
            if count * width > _MOST_KEYS:
                keys = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
                count = int(keys.max(initial=0)) + 1
            keys, count = keys * width + numbers, count * width
        return keys

    def distinct(self, *names: str) -> list[tuple[Any, ...]]:
        """The different rows of these columns, in the order in which they come first."""
        first = np.sort(np.unique(self.keys(*names), return_index=True)[1])
        return list(self.select(names).take(first).rows())

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Its rows, as Python's own values."""
        return zip(*(column.tolist() for column in self.columns.values()), strict=True)

    def and_then(self, more: Table) -> Table:
        """The rows of this table, and after them those of another with the same columns."""
        columns: dict[str, AnyColumn] = {}
        for name, column in self.columns.items():
            other = more.columns[name]
            if isinstance(column, NameColumn) and isinstance(other, NameColumn):
                columns[name] = NameColumn.of([*column.tolist(), *other.tolist()])
            else:
                columns[name] = np.concatenate([np.asarray(column), np.asarray(other)])
        return Table(columns)

    def frame(self) -> pd.DataFrame:
        """The same as pandas has it, names as categories: for the dashboard and notebooks."""
        import pandas as pd

        def series(column: AnyColumn) -> Any:
            if isinstance(column, NameColumn):
                codes = cast("Sequence[int]", column.codes)
                return pd.Categorical.from_codes(codes, categories=pd.Index(column.values))
            return column

        return pd.DataFrame({name: series(column) for name, column in self.columns.items()})
