"""Tables of any library as columns of plain values: pandas, polars, Arrow, and what has their methods.

None of them is imported: what a value is, its methods say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class FrameColumn(NamedTuple):
    """kind: the type of its values, as its library writes it. read: gives the values: an array of floating-point
    numbers, in which what is missing is NaN; or a list, in which it is None. Without numpy all are lists."""

    kind: str
    read: Callable[[], Any]


class Frame(NamedTuple):
    """names: of the columns; None is that of a column that stands alone. rows: gives what they are called, or
    nothing where they have no names."""

    names: list[Any]
    columns: list[FrameColumn]
    rows: Callable[[], list[Any]] = list

    @property
    def kinds(self) -> list[str]:
        """Of its columns."""
        return [each.kind for each in self.columns]


def table_of(value: Any) -> Frame | None:
    """A frame, or a single column; None where it is neither."""
    kind = type(value)
    if hasattr(kind, "iloc") and hasattr(kind, "columns"):  # pandas, and what follows it
        names = list(value.columns)
        return Frame(names, [_pandas(value.iloc[:, place]) for place in range(len(names))], value.index.tolist)
    if hasattr(kind, "iloc"):
        return Frame([None], [_named(value)], value.index.tolist)
    if hasattr(kind, "get_indexer"):
        return Frame([None], [_named(value)])
    if hasattr(kind, "get_columns") and hasattr(kind, "schema"):  # polars
        return Frame(list(value.columns), [_polars(each) for each in value.get_columns()])
    if hasattr(kind, "null_count") and hasattr(kind, "is_null") and hasattr(kind, "to_list"):
        return Frame([None], [_polars(value)])
    if hasattr(kind, "itercolumns") and hasattr(kind, "column_names"):  # Arrow
        return Frame(list(value.column_names), [_arrow(each) for each in value.itercolumns()])
    return None


def _named(column: Any) -> FrameColumn:
    """One that stands alone: its name belongs to its type."""
    kind, read = _pandas(column)
    return FrameColumn(kind if column.name is None else f"{kind} named {column.name!r}", read)


def _pandas(column: Any) -> FrameColumn:
    numpy, dtype = sys.modules["numpy"], column.dtype
    kind = str(dtype)
    if hasattr(dtype, "categories"):
        kind = f"{kind} of {list(dtype.categories)}{', in this order' * bool(dtype.ordered)}"
    plain = dtype if isinstance(dtype, numpy.dtype) else getattr(dtype, "numpy_dtype", None)
    if plain is not None and plain.kind in "fc":
        return FrameColumn(kind, lambda: column.to_numpy(dtype=plain, na_value=numpy.nan))

    def read() -> list[Any]:
        if getattr(column, "nlevels", 1) > 1:  # an index of several parts, of which nobody asks what is missing
            return list(column.tolist())
        return [None if gone else each for each, gone in zip(column.tolist(), column.isna().tolist())]

    return FrameColumn(kind, read)


def _polars(column: Any) -> FrameColumn:
    floats = "numpy" in sys.modules and str(column.dtype) in ("Float32", "Float64")
    return FrameColumn(_counted(column.dtype, column.null_count()), column.to_numpy if floats else column.to_list)


def _arrow(column: Any) -> FrameColumn:
    floats = "numpy" in sys.modules and str(column.type) in ("float", "double")
    return FrameColumn(_counted(column.type, column.null_count), column.to_numpy if floats else column.to_pylist)


def _counted(kind: Any, missing: int) -> str:
    """Where a missing value is no NaN, how often one is missing belongs to the type."""
    return f"{kind}{f' with {missing} missing' if missing else ''}"
