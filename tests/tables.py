"""Tables of the store from data frames, which tests make and change them with."""

from __future__ import annotations

import pandas as pd

from llama_workbench.harness.spec.table import NameColumn, Table


def table_of(frame: pd.DataFrame) -> Table:
    """The same rows: columns of text are names."""
    return Table(
        {
            str(name): column.to_numpy() if pd.api.types.is_numeric_dtype(column) else NameColumn.of(column.astype(str))
            for name, column in frame.items()
        }
    )
