"""Tables in memory: rows by name, keys of rows, rows put together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from llama_workbench.harness.spec.table import NameColumn, Table
from tests.tables import table_of

FRAME = pd.DataFrame(
    {"name": ["b", "a", "b", "c", "a"], "number": [3, -1, 3, 2**62, 5], "other": [7, 7, 7, -(2**62), 7]}
)


def test_rows_are_taken_by_their_names() -> None:
    table = table_of(FRAME)
    assert len(table) == 5 and table.names("name").values == ("b", "a", "c")
    assert list(table.where(name="a").rows()) == [("a", -1, 7), ("a", 5, 7)]
    assert len(table.where(name="nobody")) == 0
    assert table.names("name").are("a", "c", "nobody").tolist() == [False, True, False, True, True]
    with pytest.raises(TypeError, match="column number holds numbers"):
        table.names("number")


def test_keys_are_the_same_for_the_same_rows_and_in_their_order() -> None:
    table = table_of(FRAME)
    keys = table.keys("number", "name").tolist()
    assert keys[0] == keys[2] and len(set(keys)) == 4
    assert np.argsort(table.keys("number")).tolist() == np.argsort(FRAME["number"]).tolist()
    many = Table({f"c{i}": np.arange(1000) % (i + 700) for i in range(9)})  # 700 to the 9th is no 64-bit number
    wanted = pd.DataFrame(dict(many.columns)).groupby([*many.columns]).ngroup().tolist()
    assert np.unique(many.keys(*many.columns), return_inverse=True)[1].tolist() == wanted
    assert table.distinct("name", "other") == [("b", 7), ("a", 7), ("c", -(2**62))]


def test_rows_of_two_tables_are_put_together() -> None:
    first, second = table_of(FRAME[:2]), table_of(FRAME[2:])
    pd.testing.assert_frame_equal(first.and_then(second).frame().astype({"name": str}), FRAME.astype({"name": str}))


def test_a_table_without_rows_has_its_columns() -> None:
    empty = Table({"name": NameColumn.of([]), "number": np.empty(0, dtype=np.int64)})
    assert len(empty) == 0 and empty.distinct("name") == [] and list(empty.rows()) == []
    assert empty.frame().dtypes.astype(str).tolist() == ["category", "int64"]
    assert not len(empty.where(name="a")) and not len(empty["name"])
