"""The Parquet files of a run: their columns, how they are written, and what is checked when they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..spec.sample import Column, sample_columns
from .errors import RESTORE, RunError, first_line


def schema_of(fields: Mapping[str, Column]) -> pa.Schema:
    """The columns of a table, as a file has them."""
    name = pa.dictionary(pa.int32(), pa.string())
    kinds = {key: name if column.kind == "name" else pa.type_for_alias(column.kind) for key, column in fields.items()}
    return pa.schema([pa.field(key, kind, nullable=False) for key, kind in kinds.items()])


SCHEMA = schema_of(sample_columns())
"""Columns of samples.parquet: one row is one `Sample` with the round it is of."""

NO_SAMPLES = SCHEMA.empty_table().to_pandas()
"""What a run without rounds has: some claims are judged by other passes alone."""

Source: TypeAlias = Path | pa.BufferReader | None


def write_table(table: pa.Table, path: Path) -> None:
    """With a checksum of each page, so that a snapshot of a run that has not ended shows most of its damage itself."""
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def open_parquet(path: Path, schema: pa.Schema = SCHEMA, source: Source = None) -> pq.ParquetFile:
    """Open a file and check its columns. `source`: its content, where that was read already. Raises RunError."""
    try:
        if not path.stat().st_size:
            raise RunError(path, "an empty file, not Parquet", RESTORE)
        file = pq.ParquetFile(source or path, page_checksum_verification=True)
        have = file.schema_arrow.names
    except (pa.ArrowException, UnicodeDecodeError) as error:  # a name of a column may be no text
        raise RunError(path, f"not a whole Parquet file ({first_line(error)})", RESTORE) from error
    except OSError as error:
        raise RunError(path, f"cannot be read ({error.strerror or first_line(error)})", RESTORE) from error
    lacking = [name for name in schema.names if name not in have]
    if lacking:
        file.close()
        raise RunError(path, f"lacks the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}", RESTORE)
    return file


def read_columns(path: Path, names: Sequence[str], source: Source = None) -> pa.Table:
    """Some columns of samples.parquet as they lie there. Raises RunError."""
    with open_parquet(path, source=source) as file, _damage(path):
        return file.read(columns=list(names))


def read_samples(path: Path, variants: Collection[str] | None = None, source: Source = None) -> pa.Table:
    """samples.parquet in the columns of SCHEMA; with `variants` only their rows. Raises RunError."""
    return checked_samples(_read(path, SCHEMA, variants, source), path)


def read_table(path: Path, schema: pa.Schema, source: Source = None) -> pa.Table:
    """A table of a pass, in the columns of its schema. Raises RunError."""
    return _read(path, schema, None, source)


def of_variants(variants: Collection[str] | None, table: pa.Table) -> pa.Table:
    """The rows of these variants; all where none are named."""
    if variants is None:
        return table
    return table.filter(pc.is_in(table.column("variant").cast(pa.string()), pa.array(sorted(variants), pa.string())))


def _read(path: Path, schema: pa.Schema, variants: Collection[str] | None, source: Source) -> pa.Table:
    with open_parquet(path, schema, source) as file, _damage(path):
        table = of_variants(variants, file.read(columns=schema.names))
        return pa.table([_cast(table.column(field.name), field, path) for field in schema], schema=schema)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise RunError(path, f"damaged ({first_line(error)})", RESTORE) from error


def _cast(column: pa.ChunkedArray, wanted: pa.Field, path: Path) -> pa.Array:
    """A column of another writer in the type that is wanted: plain text for names, other widths of integers."""
    if column.null_count:
        raise RunError(path, f"column {wanted.name} has empty cells", RESTORE)
    if pa.types.is_dictionary(wanted.type):
        return column.cast(pa.string()).combine_chunks().dictionary_encode().cast(wanted.type)
    if not pa.types.is_integer(column.type):
        raise RunError(path, f"column {wanted.name} is {column.type}, not {wanted.type}", RESTORE)
    return column.cast(wanted.type).combine_chunks()


def checked_samples(table: pa.Table, path: Path) -> pa.Table:
    """The same table. Raises RunError for what no run can have measured, before it becomes a logarithm of nothing."""
    frame = table.to_pandas()
    firsts = [frame[f"first_{clock}_ns"].between(0, frame[f"{clock}_ns"]) for clock in ("cpu", "wall", "device")]
    for right, problem in (
        ((frame["repeats"] >= 1) & (frame["wall_ns"] > 0) & (frame["cpu_ns"] >= 0), "with no calls or no time"),
        (frame["device_ns"] >= 0, "of less than no time"),
        (np.logical_and.reduce(firsts), "whose first token came after the last, or before the start"),
    ):
        if not right.all():
            raise RunError(path, f"holds a sample {problem}", RESTORE)
    twice = frame.duplicated(["workload", "process", "round", "sub_round", "variant"])
    if twice.any():
        first = frame[twice].iloc[0]
        raise RunError(
            path,
            f"variant {first['variant']} occurs twice in workload {first['workload']}, process {first['process']}, "
            f"round {first['round']}, sub-round {first['sub_round']}",
            "Two runs may have written to one folder: measure again.",
        )
    return table
