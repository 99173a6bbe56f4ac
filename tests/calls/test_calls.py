"""Any functions: where they are, what they are called with, and whether their answers are right."""

from __future__ import annotations

import copy
import gc
import io
import json
import random
import re
import sys
import threading
import time
import warnings
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch

from llama_workbench.harness.calls.answers import difference, unlike
from llama_workbench.harness.calls.called import GATED, WORK, Awaited, Call, Called, Function, PayloadError
from llama_workbench.harness.calls.digest import digest_of, packages_of
from llama_workbench.harness.calls.inputs import Payload, Seen, random_state_kept
from llama_workbench.harness.calls.source import Source, SourceError, named_apart, parse, source_of, written
from llama_workbench.harness.calls.world import WorldTurn, modules_kept
from llama_workbench.harness.plan.functions import NOTHING

# -- answers -----------------------------------------------------------------------------------------------------------


@dataclass
class Token:
    text: str
    at: float


class Bare:
    def __init__(self, value: int) -> None:
        self.value = value


def lines() -> Iterator[int]:
    yield 1


async def later() -> int:
    return 1


NEARLY = 1.0 + 1e-9


class Rows:
    """Like a table of some library whose own comparison is exact."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def equals(self, other: Rows) -> bool:
        return self.values == other.values


class OfAnotherLibrary:
    """An array that is none of numpy's, and whose `==` is one."""

    def __init__(self, values: list[float]) -> None:
        self._values = np.array(values)
        self.later = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self._values

    def __eq__(self, other: object) -> Any:
        return self._values == other

    def is_ready(self) -> bool:
        return not self.later

    def block_until_ready(self) -> OfAnotherLibrary:
        return self

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)


def sums(value: float, *, day: str = "2020-01-02", name: str = "x", rows: tuple[int, ...] = (1, 2, 3)) -> pd.DataFrame:
    days = np.array(["2020-01-01", "NaT", day], "M8[ns]")
    names = pd.Categorical(["x", "y", name], categories=["x", "y"])
    columns = {"sum": [0.5, float("nan"), value], "day": days, "name": names, "text": ["a", None, "b"]}
    return pd.DataFrame(columns, index=list(rows))


def arrow(value: float) -> Any:
    return pyarrow.table({"a": [value, None], "b": ["x", "y"]})


class HasAnotherEquals:
    """Like what a library keeps for itself: its `equals` takes more than the other."""

    __slots__ = ()

    def equals(self, other: HasAnotherEquals, how: str) -> bool:
        return True


class Plan:
    """A table that is not computed yet, with the methods of polars and Spark."""

    def explain(self) -> str:
        return "scan, filter"

    def collect(self) -> int:
        return 1


class Graph:
    """What dask makes; `computed`: what has its methods and no graph."""

    def __init__(self, *, computed: bool = False) -> None:
        self.computed = computed

    def __dask_graph__(self) -> dict[str, Any] | None:
        return None if self.computed else {}


def computing() -> OfAnotherLibrary:
    array = OfAnotherLibrary([1.0])
    array.later = 1
    return array


SAME: list[tuple[Any, Any]] = [
    (1, 1),
    ("ä", "ä"),
    (NEARLY, 1.0),
    (float("nan"), float("nan")),
    (float("inf"), float("inf")),
    ([1, "a", None, 2.5], [1, "a", None, 2.5]),
    (None, None),
    ({"a": None}, {"a": None}),
    ((1, [NEARLY]), (1, [1.0])),
    ({"a": {1, 2}}, {"a": {2, 1}}),
    (torch.ones(3) + 1e-7, torch.ones(3)),
    ({"x": [torch.zeros(2)]}, {"x": [torch.zeros(2)]}),
    (torch.tensor([float("nan")]), torch.tensor([float("nan")])),
    (np.ones(3, np.float32) + np.float32(1e-6), np.ones(3, np.float32)),
    (np.array(["a", "b"]), np.array(["a", "b"])),
    (np.float64(NEARLY), np.float64(1.0)),
    (Token("a", NEARLY), Token("a", 1.0)),
    (Bare(1), Bare(1)),
    (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]})),
    (range(5), range(5)),
    (io.StringIO("a"), io.StringIO("a")),
    (Rows([NEARLY]), Rows([1.0])),
    (sums(NEARLY), sums(1.0)),
    ({"sums": [sums(NEARLY)]}, {"sums": [sums(1.0)]}),
    (sums(NEARLY)["sum"], sums(1.0)["sum"]),
    (pd.Series([NEARLY, None], dtype="Float64"), pd.Series([1.0, None], dtype="Float64")),
    (pd.Series([[NEARLY], None]), pd.Series([[1.0], None])),
    (pd.Index([NEARLY]), pd.Index([1.0])),
    (pd.NA, pd.NA),
    (pd.NaT, pd.NaT),
    (arrow(NEARLY), arrow(1.0)),
    (np.array([NEARLY, "a", None], object), np.array([1.0, "a", None], object)),
    (np.array(["NaT", "2020"], "M8[D]"), np.array(["NaT", "2020"], "M8[D]")),
    (OfAnotherLibrary([NEARLY]), OfAnotherLibrary([1.0])),
]

OTHER: list[tuple[Any, Any, str]] = [
    (1, 2, "1 for 2"),
    (1, 1.0, "int for float"),
    (None, [], "NoneType for list"),
    (1.001, 1.0, "1.001 for 1.0"),
    (float("inf"), 1.0, "inf for 1.0"),
    (1.0, float("nan"), "1.0 for nan"),
    ([1], (1,), "list for tuple"),
    ([1, 2], [1], "2 items for 1"),
    ([[1, 2], [3, 5]], [[1, 2], [3, 4]], r"\[1\]\[1\]: 5 for 4"),
    ({"a": 1}, {"a": 1, "b": 2}, r"1 key missing \('b'\)"),
    ({"a": 1, "c": 2}, {"a": 1}, r"1 key too many \('c'\)"),
    ({"a": [1.5]}, {"a": [1.0]}, r"\['a'\]\[0\]: 1.5 for 1.0"),
    (torch.ones(3), torch.ones(4), "shape"),
    (
        torch.ones(3) * 1.01,
        torch.ones(3),
        r"^3 of 3 values differ, the largest at \[0\]: 1.01 for 1.0 \(relative 0.01\); allowed 1.3e-06; "
        "say what counts with --check FILE:FUNCTION$",
    ),
    (torch.full((2,), 3.0, dtype=torch.bfloat16), torch.full((2,), 2.0, dtype=torch.bfloat16), "allowed 0.016"),
    (torch.tensor([1, 2]), torch.tensor([1, 3]), r"the first at \[1\]: 2 for 3"),
    (torch.ones(3, dtype=torch.float64), torch.ones(3), "dtype"),
    ([1.0], torch.ones(1), "list for a tensor"),
    (np.ones(3), np.ones(3, np.float32), r"float64\[3\] for float32\[3\]"),
    (
        np.array([[1.5, 2.0], [3.0, 8.0]]),
        np.array([[1.0, 2.0], [3.0, 4.0]]),
        r"^2 of 4 values differ, the largest at \[1, 1\]: 8.0 for 4.0 \(relative 1\); allowed 1e-07; .*--check",
    ),
    (np.array([1, 2]), np.array([1, 3]), r"1 of 2 values differ, the first at \[1\]: 2 for 3"),
    (np.array([np.nan, 1.0]), np.array([1.0, 1.5]), r"2 of 2 .* at \[0\]: nan for 1.0"),
    (np.float64(2.0), np.float64(1.0), r"^2.0 for 1.0 \(relative 1\); allowed 1e-07"),
    (np.array([[1.0, "a"]], object), np.array([[1.0, "b"]], object), r"\[0\]\[1\]: 'a' for 'b'"),
    (np.array([(1, 2.0)], "i4,f8"), np.array([(1, 3.0)], "i4,f8"), r"\['f1'\]: 1 of 1 values differ"),
    (Token("b", 1.0), Token("a", 1.0), r"\.text: 'b' for 'a'"),
    (Bare(1), Bare(2), r"\['value'\]: 1 for 2"),
    (
        pd.DataFrame({"a": [1]}),
        pd.DataFrame({"a": [2]}),
        "column 'a': 1 of 1 values differ, the first at row 0: 1 for 2",
    ),
    (
        {"t": sums(1.5)},
        {"t": sums(1.0)},
        r"^\['t'\]: column 'sum': 1 of 3 values differ, the largest at row 2: 1.5 for 1.0 \(relative 0.5\); .*--check",
    ),
    (sums(1.0, day="2021-01-02"), sums(1.0), r"column 'day': 1 of 3 .* row 2: Timestamp\('2021-01-02 00:00:00'\) for"),
    (sums(1.0, name="y"), sums(1.0), "column 'name': 1 of 3 values differ, the first at row 2: 'y' for 'x'"),
    (sums(1.0, rows=(1, 2, 4)), sums(1.0), r"\.index\[2\]: 4 for 3"),
    (sums(1.0)[:2], sums(1.0), "column 'sum': 2 rows for 3"),
    (sums(1.0).rename(columns={"day": "date"}), sums(1.0), r"\.columns\[1\]: 'date' for 'day'"),
    (sums(1.0).astype({"sum": "float32"}), sums(1.0), "column 'sum': float32 for float64"),
    (pd.Series([1.0], name="a"), pd.Series([1.0], name="b"), "float64 named 'a' for float64 named 'b'"),
    (arrow(1.5), arrow(1.0), "column 'a': 1 of 2 values differ, the largest at row 0: 1.5 for 1.0"),
    (Rows([1.5]), Rows([1.0]), r"\['values'\]\[0\]: 1.5 for 1.0"),
    (OfAnotherLibrary([1.5]), OfAnotherLibrary([1.0]), r"1 of 1 values differ, the largest at \[0\]"),
    (object(), object(), "object"),
    (io.BytesIO(b"a"), io.BytesIO(b"b"), "b'a' for b'b'"),
    (threading.Lock(), threading.Lock(), "a lock cannot be compared by ==; say what counts with --check FILE:FUNCTION"),
    (lines(), [1], "returns a generator: its work is done when it is read"),
    (map(str, [1]), ["1"], "returns a map"),
    ((1, {"lines": 2}, lines()), 1, "returns a generator"),
    ({"lines": lines()}, 1, "returns a generator"),
    (Plan(), 1, r"returns a Plan, which is a plan: its work is done later; return its \.collect\(\)"),
    ([1, Plan()], 1, "which is a plan"),
    (Graph(), 1, r"return its \.compute\(\)"),
    (Graph(computed=True), 1, "^Graph for int"),
    (HasAnotherEquals(), HasAnotherEquals(), "^equals raises TypeError: a HasAnotherEquals cannot be compared by =="),
    (Future(), 1, r"returns a Future, which is a plan: its work is done later; return its \.result\(\)"),
    (computing(), 1, r"that is computed after the call: return its \.block_until_ready\(\)"),
    (torch.ones(1, device="meta"), torch.ones(1), "device 'meta', which has no values yet"),
]


@pytest.mark.parametrize(("got", "expected"), SAME, ids=range(len(SAME)))
def test_answers_that_agree(got: Any, expected: Any) -> None:
    assert difference(got, expected) == ""


@pytest.mark.parametrize(("got", "expected", "told"), OTHER, ids=range(len(OTHER)))
def test_answers_that_differ_are_told_with_their_place(got: Any, expected: Any, told: str) -> None:
    assert re.search(told, difference(got, expected)), difference(got, expected)


class Column:
    """One of polars, as far as it is looked at."""

    dtype = "Float32"

    def __init__(self, values: list[float]) -> None:
        self._values = values

    def null_count(self) -> int:
        return sum(self.is_null())

    def is_null(self) -> list[bool]:
        return [each is None for each in self._values]

    def to_list(self) -> list[float]:
        return self._values

    def equals(self, other: Column) -> bool:
        return self._values == other._values


def test_tables_are_compared_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.delitem(sys.modules, "torch")
    assert unlike(Column([2.0 + 1e-6, 1.0]), Column([2.0, 1.0])) == ""
    told = unlike(Column([1.0, 2.5]), Column([1.0, 2.0]))
    assert told == "1 of 2 values differ, the first at row 1: 2.5 for 2.0 (relative 0.25); allowed 1.3e-06"


def test_a_coroutine_is_no_answer() -> None:
    coroutine = later()
    assert "nothing awaits it" in difference(coroutine, 1)
    coroutine.close()


def test_objects_of_one_class_from_two_imports_agree(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\ndef make():\n    return Point(1)\n"
    )
    source = parse("shapes.py:make", option="x", folder=tmp_path)
    call = Call(source, source)
    turn = WorldTurn()
    one, other = (Called.imported(source, call, "", turn).make() for _ in range(2))
    assert one() != other(), "or this test says nothing"
    assert difference(one(), other()) == ""


def test_a_check_of_one_answer_says_what_counts() -> None:
    assert difference({"kept": 1, "seen": 2}, {"kept": 1, "seen": 3}, lambda answer: answer["kept"]) == ""
    assert difference([1], [2], len) == "" and "2 items for 1" in difference([1, 2], [1], lambda answer: answer)


def test_a_check_of_the_users_decides_alone() -> None:
    assert difference([2, 1], [1, 2], lambda got, expected: sorted(got) == sorted(expected)) == ""
    assert difference(1, 2, lambda got, expected: None) == ""
    assert difference(1, 1, lambda got, expected: False) == "the check says that they differ"

    def raises(got: Any, expected: Any) -> None:
        raise AssertionError("off by one\nmore")

    assert difference(1, 1, raises) == "the check raises AssertionError: off by one"


def test_what_is_nested_too_deeply_is_told() -> None:
    deep: list[Any] = [0.5]
    other: list[Any] = [0.25]
    for _ in range(5000):
        deep, other = [deep], [other]
    assert "nested too deeply" in difference(deep, other)


# -- payloads ----------------------------------------------------------------------------------------------------------


def test_a_payload_gives_the_same_for_a_number_and_another_for_another() -> None:
    for payload in (
        Payload(lambda seed: seed, "x"),
        Payload(lambda: (random.random(), np.random.rand(), float(torch.rand(1))), "x"),
    ):
        assert payload.arguments(7) == payload.arguments(7)
        assert payload.arguments(7) != payload.arguments(8)
        assert payload.arguments(7) != Payload(payload._function, "y").arguments(7), "nobody can know them beforehand"
        assert payload.arguments(-1) == Payload(payload._function, "y").arguments(-1), "gates use the same each time"


def test_a_tuple_is_spread_and_a_seed_is_given_where_it_is_asked_for() -> None:
    assert Payload(lambda: (1, 2), "").arguments(0) == (1, 2)
    assert Payload(lambda: [1, 2], "").arguments(0) == ([1, 2],)
    assert Payload(dict, "").arguments(0) == ({},)

    def sized(size: int = 3) -> list[int]:
        return [0] * size

    def seeded(seed: int = 3) -> int:
        return seed

    assert Payload(sized, "").arguments(0) == ([0, 0, 0],), "a size is no seed"
    assert Payload(seeded, "").arguments(0) != (3,)
    assert Payload(lambda **_: 1, "").arguments(0) == Payload(lambda *_: 1, "").arguments(0) == (1,)


def test_of_a_batch_every_input_is_another_one_and_the_last_can_be_made_again() -> None:
    for payload in (Payload(lambda seed: seed, "x"), Payload(random.random, "x")):
        batch = payload.batch(10, 50)
        assert len(set(batch)) == 50
        assert batch[-1] == payload.arguments(59)


def test_random_numbers_of_a_test_are_left_as_they_are() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    with random_state_kept():
        Payload(lambda: 1, "").arguments(3)
    after = (random.random(), np.random.rand(), float(torch.rand(1)))
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert after == (random.random(), np.random.rand(), float(torch.rand(1)))


# -- one side ----------------------------------------------------------------------------------------------------------


def side(
    function: Callable[..., Any], baseline: Callable[..., Any] = sorted, payload: Callable[..., Any] | None = None
) -> Called:
    given = Payload(payload or (lambda seed: [seed % 7, 3, 1]), "d")
    return Called(Function(lambda: function, given), lambda: Function(lambda: baseline, given), "given")


def sorts_in_place(values: list[int]) -> list[int]:
    values.sort()
    return values


def test_the_gate_tells_a_wrong_answer_with_the_seed_of_its_input() -> None:
    assert side(sorts_in_place).gate() == ""
    wrong = side(lambda values: values)
    assert f"(input given, seed {wrong.payload.seed(GATED[0])})" in wrong.gate()


def test_inputs_that_never_differ_are_made_once_unless_a_call_changes_them() -> None:
    same = lambda: [3, 1, 2]  # noqa: E731
    kept, changed, fresh = side(sorted, payload=same), side(sorts_in_place, payload=same), side(sorted)
    for called in (kept, changed, fresh):
        assert called.gate() == ""
    assert (kept.makes_inputs, changed.makes_inputs, fresh.makes_inputs) == (False, True, True)
    assert len({id(each) for (each,) in kept.inputs(0, 5)[0]}) == 1
    assert len({id(each) for (each,) in changed.inputs(0, 5)[0]}) == 5
    read = side(lambda stream: stream.read(), lambda stream: stream.read(), lambda: io.StringIO("a text"))
    assert read.gate() == "" and read.makes_inputs, "one that was read to its end gives nothing a second time"


ROWS = [5, 1, 4, 2]


def sorts_any(values: Any) -> Any:
    """Sorts it in place, whatever it is, and gives what it holds then."""
    if isinstance(values, deque):
        values.rotate(1)
    elif isinstance(values, Bare):
        values.value += 1
        return values.value
    elif isinstance(values, pd.DataFrame):
        values["a"] = sorted(values["a"])
    elif isinstance(values, set):
        values.discard(5)
    elif isinstance(values, bytearray):
        values.reverse()
    elif isinstance(values, dict):
        values["list"] = sorted(values["list"])
    else:
        values.sort()
    return copy.deepcopy(values)


@pytest.mark.parametrize(
    "kept",
    [ROWS, np.array(ROWS), deque(ROWS), {5, 1}, bytearray(b"ab"), {"list": ROWS}, Bare(1), pd.DataFrame({"a": ROWS})],
    ids=lambda kept: type(kept).__name__,
)
def test_an_input_that_is_handed_out_again_and_changed_is_copied_for_each_call(kept: Any) -> None:
    kept = copy.deepcopy(kept)
    before = copy.deepcopy(kept)
    called = side(sorts_any, sorts_any, lambda: kept)
    assert called.gate() == ""
    assert called.spoils_inputs and called.changes_inputs and called.payload.copies
    given, _ = called.inputs(0, 3)
    assert len({id(each) for (each,) in given}) == 3
    assert unlike(kept, before) == "" and all(unlike(each, before) == "" for (each,) in given), "no call saw another's"
    later = side(sorts_any, sorts_any, lambda: kept)
    later.learn(called.learnt())
    assert later.payload.copies and later.makes_inputs


def test_only_what_is_handed_out_again_and_changed_is_copied() -> None:
    kept = [3, 1, 2]
    called = side(sorted, payload=lambda: kept)
    assert called.gate() == ""
    assert not called.spoils_inputs and not called.payload.copies and called.inputs(0, 1)[0][0][0] is kept
    shared = {"a": 1}  # a list that is made anew may be changed beside it
    called = side(lambda rows, table: rows.sort(), lambda rows, table: rows.sort(), lambda: ([3, 1], shared))
    assert called.gate() == ""
    assert called.changes_inputs and not called.spoils_inputs


def test_what_is_kept_for_each_seed_is_copied_too() -> None:
    made = lru_cache(maxsize=None)(lambda seed: [seed % 7, 9, 1])
    called = side(sorts_in_place, payload=lambda seed: made(seed))
    assert called.gate() == "" and called.spoils_inputs
    (first,) = called.payload.arguments(4)
    first.sort()
    assert called.payload.arguments(4)[0][1] == 9, "the baseline must be asked about the same"


class Handle:
    """A copy of it would free the same thing once more."""

    def __init__(self) -> None:
        self.rows = [3, 1, 2]

    def __del__(self) -> None:
        pass


def test_a_changed_input_that_cannot_be_copied_is_refused_with_the_way() -> None:
    handle = Handle()
    with pytest.raises(PayloadError, match=r"changes its input, and given hands out the same Handle .* anew in given"):
        side(lambda each: each.rows.sort(), lambda each: None, lambda: handle).gate()
    assert side(lambda each: each.rows.sort(), lambda each: each.rows.sort(), Handle).gate() == "", "made anew"


def test_an_iterator_that_is_handed_out_again_is_refused() -> None:
    numbers = lines()
    with pytest.raises(PayloadError, match="the same generator each time, which the first call uses up: make it anew"):
        side(list, list, lambda: numbers).gate()
    assert side(list, list, lines).gate() == ""


def test_a_digest_sees_what_a_call_changes() -> None:
    changes: list[tuple[Any, Callable[[Any], Any]]] = [
        ([2.0, 1.0], lambda each: each.sort()),
        ({"a": [1]}, lambda each: each["a"].append(2)),
        (np.zeros(3), lambda each: each.fill(1e-12)),
        (np.array([[1], None], object), lambda each: each[0].append(2)),
        (Token("a", 1.0), lambda each: setattr(each, "at", 2.0)),
        (Bare(1), lambda each: setattr(each, "more", 2)),
        (io.StringIO("text"), lambda each: each.read()),
        (iter([1, 2]), next),
        (array("d", [1.0]), lambda each: each.append(2.0)),
        (OrderedDict(a=1, b=2), lambda each: each.move_to_end("a")),
        (pd.DataFrame({"a": [1.5]}), lambda each: each.insert(1, "b", [2])),
        (torch.ones(2, requires_grad=True), lambda each: each.sum().backward()),
        (torch.zeros(2), lambda each: each.add_(1)),
        (random.Random(1), lambda each: each.random()),
    ]
    for value, change in changes:
        before = Seen([value]).digest
        assert before and before == Seen([value]).digest, value
        change(value)
        assert Seen([value]).digest not in ("", before), value
    assert Seen([lines()]).digest == "" and Seen([threading.Lock()]).digest == "", "nobody can see into them"
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    round_: list[Any] = [1]
    round_.append(round_)
    assert Seen(deep).digest == "" and Seen(round_).digest


# -- state -------------------------------------------------------------------------------------------------------------


def counts() -> Callable[[Any], int]:
    calls = 0

    def count(_: Any) -> int:
        nonlocal calls
        calls += 1
        return calls

    return count


def test_a_function_that_keeps_state_is_told_and_not_only_its_answer() -> None:
    given = Payload(lambda seed: [seed % 7], "d")
    made = Called(Function(counts, given), lambda: Function(counts, given), "given")
    told = made.gate()
    assert told.startswith("keeps state: its answer depends on how often it was called (the second time 2 for 1, input")
    assert "Let given make what it keeps, anew for each call" in told and "--check FILE:FUNCTION" in told
    kept = counts()
    assert side(kept, kept).gate().startswith("keeps state"), "no factory makes it anew"
    assert side(kept, kept).why_unsteady(5).startswith("keeps state"), "a timed answer may be the first that is wrong"
    assert Called(Function(counts, given), lambda: Function(counts, given), "g", lambda got, right: True).gate() == ""


def test_a_baseline_that_keeps_state_is_named() -> None:
    given = Payload(lambda seed: [1], "d")
    kept = counts()
    called = Called(Function(lambda: len, given), lambda: Function(lambda: kept, given, shown="old.py:old"), "given")
    assert called.gate().startswith("the baseline old.py:old keeps state: its answer depends on how often it was")


def test_other_ways_to_answer_differently_are_told_apart() -> None:
    left = [1]
    assert "the second time it raises IndexError" in side(lambda _: [left.pop()], lambda _: [1]).gate()
    told = side(lambda _: random.random(), lambda _: random.random(), lambda: 1).gate()
    assert told.startswith("draws random numbers: its answer to the same input is another one each time (the second")
    assert "a seed that given gives" in told and "--check" in told
    told = side(lambda values: values[0], lambda values: values[1], lambda: [1, 2]).gate()
    assert told.startswith("1 for 2; say what counts with --check FILE:FUNCTION (input given, seed "), "only wrong"


def test_the_first_call_has_what_its_factory_took_and_a_slow_one_is_followed_by_another() -> None:
    made: list[int] = []

    def compiles() -> Callable[[Any], int]:
        time.sleep(0.05)

        def call(_: Any) -> int:
            if not made:
                time.sleep(1.1)  # longer than a call may take before one input must do
            made.append(1)
            return 1

        return call

    given = Payload(lambda seed: seed, "d")
    called = Called(Function(compiles, given), lambda: Function(lambda: lambda _: 1, given), "given")
    assert called.gate() == ""
    assert called.first_call_ns > 1_150_000_000 and called.gated == len(GATED) and len(made) == len(GATED) + 1


def test_a_timed_answer_is_checked_against_the_baseline_on_the_same_input() -> None:
    called = side(sorted)
    called.gate()
    (*_, (last,)), number = called.inputs(20, 4)
    assert number == 23
    assert called.wrong(23, sorted(last)) == ""
    assert called.wrong(23, [0]) != ""


def test_a_payload_that_cannot_be_used_is_told() -> None:
    def raises() -> None:
        raise KeyError("no such file")

    with pytest.raises(PayloadError, match="given raises KeyError"):
        side(sorted, payload=raises).gate()
    with pytest.raises(PayloadError, match=r"another input for the same seed .* take a seed"):
        side(sorted, payload=lambda: [random.SystemRandom().random()]).gate()


# -- coroutine functions -----------------------------------------------------------------------------------------------

AWAITED = """
import asyncio

async def doubled(x):
    await asyncio.sleep(0)
    return 2 * x

async def tripled(x):
    return 3 * x

def make():
    return doubled

def at_once(x):
    return 2 * x

def number(seed):
    return seed % 7
"""


@pytest.fixture
def loops_let_go() -> Iterator[None]:
    """Event loops of sides are never closed: left to be collected later, they would warn in another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.usefixtures("loops_let_go")
def test_a_coroutine_function_is_run_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(AWAITED)
    names = ("doubled", "tripled", "make()", "at_once")
    doubled, tripled, made, at_once, payload = (
        parse(f"later.py:{name}", option="x", folder=tmp_path) for name in (*names, "number")
    )
    with modules_kept() as turn:
        sides = [Called.imported(each, Call(at_once, payload), "", turn) for each in (doubled, tripled, made, at_once)]
        assert [side.is_awaited for side in sides] == [True, True, True, False]
        assert sides[0].gate() == sides[2].gate() == "" and "for" in sides[1].gate()
        function = sides[0].make()
        assert isinstance(function, Awaited) and function(4) == 8 and function.many(iter([(1,), (2,), (3,)])) == 6
        assert sides[0].make()(5) == 10, "made anew it shares its event loop"


# -- commands ----------------------------------------------------------------------------------------------------------


def test_a_command_is_a_side() -> None:
    said = parse("said=cmd:echo one 'two three'", option="x")
    assert (said.name, said.shown, said.again) == ("said", "cmd:echo one 'two three'", "said=cmd:echo one 'two three'")
    other = parse("cmd:printf", option="x")
    assert other.name == "printf" and not said.folders and said.file is None
    with modules_kept() as turn:
        side = Called.imported(said, Call(said, NOTHING), "", turn)
        assert side.is_awaited and side.gate() == "" and side.make()() == b"one two three\n"
        with pytest.raises(RuntimeError, match=r"ls ends with exit code 2; .*no-such-file"):
            Called.imported(parse("cmd:ls", option="x"), Call(said, NOTHING), "", turn).make()("no-such-file")


def test_an_import_is_a_side_in_a_fresh_process() -> None:
    source = parse("import:email.message", option="x")
    assert source.name == "email.message" and source.shown == "import:email.message"
    assert digest_of(source) != digest_of(parse("import:json", option="x"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cmd:", "expected a command"),
        ("cmd:no-such-program -x", "no program 'no-such-program'"),
        ("cmd:echo 'a", "No closing quotation"),
        ("import:not a module", "is not the name of a module"),
    ],
)
def test_a_command_that_is_none_is_told(text: str, told: str) -> None:
    with pytest.raises(SourceError, match=told):
        parse(text, option="--compare")


# -- each side's modules ---------------------------------------------------------------------------------------------


def in_folder(folder: Path, name: str, says: str) -> Source:
    """A function in a package of that folder, which imports from beside it, at the top and when it is called."""
    package = folder / name / "pack"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text(f"WORD = {says!r}\n")
    (package / "late.py").write_text(f"MORE = {says!r}.upper()\n")
    (package / "main.py").write_text(
        "from pack.words import WORD\nfrom . import words\n\ndef say(x):\n    from pack.late import MORE\n"
        "    return [WORD, words.WORD, MORE][: x + 3]\n\ndef one():\n    return 1\n"
    )
    return parse(f"{name}=pack.main:say", option="x", folder=folder / name)


def test_the_packages_that_code_imports_are_known_by_the_names_that_they_are_installed_by(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import json\nimport beside\n\ndef f(x):\n    from Some_Thing.deep import x\n")
    (tmp_path / "beside.py").write_text("from . import nothing\nimport py_spy_is_no_package, dateutil.parser\n")
    sources = [parse("mine.py:f", option="x", folder=tmp_path), parse("numpy.linalg:norm", option="x")]
    sources.append(parse("cmd:sleep 1", option="x"))
    found = packages_of(sources)
    assert {"json", "beside", "some-thing", "numpy", "dateutil", "python-dateutil"} <= found
    assert not found & {"nothing", "sleep", "deep"}


def test_two_folders_may_have_modules_of_the_same_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = in_folder(tmp_path, "old", "a"), in_folder(tmp_path, "new", "b")
    (tmp_path / "given.py").write_text("def payload():\n    return 0\n")
    payload = parse("given.py:payload", option="x", folder=tmp_path)
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "pack"}
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "old")])
    looked_in = [*sys.path]
    with modules_kept() as turn:
        sides = {source.name: Called.imported(source, Call(old, payload), "", turn) for source in (old, new)}
        again = Called.imported(old, Call(old, payload), "", turn)
        for _ in range(2):
            assert sides["old"].make()(0) == ["a", "a", "A"]
            assert sides["new"].make()(0) == ["b", "b", "B"]
        assert sides["old"].gate() == again.gate() == ""
        assert "'b' for 'a'" in sides["new"].gate(), "the baseline answers from its own modules"
        assert sides["old"].make() is not again.make(), "a control shares no code with what it repeats"
    assert {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "pack"} == before
    assert sys.path == looked_in, "what was looked in before stays, and nothing else"


def test_the_reference_benchmark_has_inputs_of_its_own_and_is_held_against_itself(mine: Path) -> None:
    """Whatever the others are called with, and however their answers are compared."""
    function = parse("mine.py:f", option="x", folder=mine)
    call = Call(function, function, function)
    with modules_kept() as turn:
        called = Called.imported(WORK, Call.from_json(asdict(call)), "", turn)
        assert called.gate() == "" and called.makes_inputs and not called.changes_inputs
        [arguments], _ = called.inputs(7, 1)
        answer = called.make()(*arguments)
        assert called.wrong(7, answer) == ""
        assert "function_yardstick.py:inputs" in called.wrong(7, [*answer[:-1], -1])


# -- where a function is -----------------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text("def f():\n    return 1\n\ndef make():\n    return f\n")
    (tmp_path / "packaged").mkdir()
    (tmp_path / "packaged" / "__init__.py").write_text("raise SystemExit('nothing may run this while it is planned')\n")
    return tmp_path


def test_sources_are_read_from_text_and_nothing_is_run(mine: Path) -> None:
    found = parse("mine.py:f", option="x", folder=mine)
    assert found == Source("f", str(mine.resolve() / "mine.py"), "f", folder=str(mine.resolve()))
    assert (found.shown, found.home, found.is_file) == ("mine.py:f", "mine", True)
    named = parse("new=mine.py:make()", option="x", folder=mine)
    assert (named.name, named.function, named.factory, named.shown) == ("new", "make", True, "mine.py:make()")
    module = parse("packaged.text:encode", option="x", folder=mine)
    assert (module.where, module.home, module.is_file) == ("packaged.text", "text", False)
    assert parse("json:dumps", option="x", folder=mine).where == "json"
    (mine / "a=b.py").write_text("def f(): pass\n")
    assert parse("./a=b.py:f", option="x", folder=mine).where.endswith("a=b.py"), "./a is no name"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mine.py", "expected FILE:FUNCTION or MODULE:FUNCTION"),
        ("tests/bench", "there is no file or folder of this name; expected FILE:FUNCTION"),
        ("mine.py:", "expected FILE:FUNCTION"),
        ("mine.py:f(1)", "expected FILE:FUNCTION"),
        ("other.py:f", "there is no file 'other.py'"),
        ("mine.py:g", "no function 'g'; it defines f, make"),
        ("nowhere.text:f", "no module 'nowhere', neither installed nor in"),
        ("no/path:f", "neither a .py file nor the name of a module"),
    ],
)
def test_a_source_that_is_not_there_is_told_at_once(mine: Path, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("(", r"\(")):
        parse(text, option="--compare", folder=mine)


def test_functions_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / f"{name}.py").write_text("def encode(): pass\n")
    sources = [parse(f"{name}.py:encode", option="x", folder=tmp_path) for name in ("old", "new")]
    assert [source.name for source in named_apart(sources)] == ["old.encode", "new.encode"]
    assert [source.name for source in named_apart(sources[:1], ["encode"])] == ["old.encode"]
    with pytest.raises(SourceError, match="give one a name"):
        named_apart([sources[0], sources[0]])


def test_a_function_says_where_it_is() -> None:
    here = source_of(sorts_in_place, "variant")
    assert (here.where, here.function) == (str(Path(__file__).resolve()), "sorts_in_place")
    assert source_of(json.dumps, "variant").where == "json"
    with pytest.raises(SourceError, match="another process must find it"):
        source_of(lambda: 1, "variant")


def test_functions_of_a_notebook_are_written_with_what_they_use(tmp_path: Path) -> None:
    import linecache

    cell = """\
import json
from math import floor as down
MOST = 3
class Box:
    def get(self, x):
        return down(x)
def helper(x):
    return json.loads(x)[:MOST]
def f(x):
    return [Box().get(each) for each in helper(x)]
FRAME = object()
def g(x):
    return FRAME
"""
    linecache.cache["<cell 1>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell 1>")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(cell, "<cell 1>", "exec"), names)
    file = tmp_path / "notebook.py"
    file.write_text(written([names["f"]]))
    source = parse("notebook.py:f", option="x", folder=tmp_path)
    assert Called.imported(source, Call(source, source), "", WorldTurn()).make()("[1.5, 2.5, 3.5, 4.5]") == [1, 2, 3]
    with pytest.raises(SourceError, match="g uses FRAME, a object, which another process does not have"):
        written([names["g"]])
