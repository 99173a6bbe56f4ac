"""Whether two functions gave the same answer: arrays, tensors and tables within rounding errors, all else exactly."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from .command import Written

# Where two arrays, or two tensors, of one type differ: within rounding errors of their type, told with the place.


NEAR = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "complex64": (1.3e-6, 1e-5),
}
"""Type of an array → relative and absolute tolerance: those of torch.testing.assert_close."""

NEAR_DOUBLE = (1e-7, 1e-7)

LONGEST_TEXT = 240


def arrays_differ(numpy: Any, got: Any, expected: Any, *, kind: str = "", is_column: bool = False) -> Iterator[str]:
    """What is told of two arrays of one shape and type, or of two columns of a table; nothing where they agree. kind:
    the name of their type, where they come from another library."""
    kind = kind or expected.dtype.name
    if expected.dtype.kind == "V":  # types that numpy has none for, such as bfloat16
        got, expected = got.astype(float), expected.astype(float)
    missing = numpy.zeros(expected.shape, bool)
    if expected.dtype.kind in "fcmM":
        missing = (got != got) & (expected != expected)
    wrong, allowed = (got != expected) & ~missing, 0.0
    if expected.dtype.kind in "fc" and wrong.any():
        allowed, absolute = NEAR.get(kind, NEAR_DOUBLE)
        wrong = ~numpy.isclose(got, expected, rtol=allowed, atol=absolute, equal_nan=True)
    if not wrong.any():
        return
    at = tuple(int(index) for index in numpy.argwhere(wrong)[0])
    if allowed:
        wide = numpy.result_type(expected.dtype, numpy.float64)
        with numpy.errstate(all="ignore"):
            apart = numpy.abs(got.astype(wide) - expected.astype(wide))
        apart = numpy.where(wrong, numpy.where(numpy.isnan(apart), numpy.inf, apart), -1)
        at = tuple(int(index) for index in numpy.unravel_index(int(apart.argmax()), apart.shape))
    is_text = expected.dtype.kind in "US"  # without the name of its type
    values = " for ".join(repr(array[at].item()) if is_text else str(array[at]) for array in (got, expected))
    if allowed:
        values += f" (relative {relative_text(float(apart[at]), expected[at])}); allowed {allowed:g}"
    if not expected.shape:
        yield values
    else:
        place = f"row {at[0]}" if is_column else f"[{', '.join(map(str, at))}]"
        which = f"the {'largest' if allowed else 'first'} at {place}"
        yield f"{int(wrong.sum())} of {expected.size} values differ, {which}: {values}"


def tensors_differ(torch: Any, got: Any, expected: Any) -> Iterator[str]:
    """The same of what should be two tensors."""
    if not isinstance(got, torch.Tensor):
        yield f"{type(got).__name__} for a tensor"
        return
    try:
        torch.testing.assert_close(got, expected, equal_nan=True)
    except AssertionError as error:
        yield _largest(torch, got, expected) or " ".join(filter(None, str(error).splitlines()))[:LONGEST_TEXT]


def _largest(torch: Any, got: Any, expected: Any) -> str:
    """What is told of the values of two tensors; empty where they are not what differs, or cannot be seen."""
    if got.shape != expected.shape or got.dtype != expected.dtype or got.layout != torch.strided or got.is_quantized:
        return ""
    import numpy  # a process in which somebody asks has torch, which needs it for this

    kind = str(expected.dtype).removeprefix("torch.")
    plain = [each.detach().cpu().resolve_conj().resolve_neg() for each in (got, expected)]
    if kind.startswith(("bfloat", "float8")):
        plain = [each.float() for each in plain]
    return next(arrays_differ(numpy, *(each.numpy() for each in plain), kind=kind), "")


def relative_text(apart: float, expected: Any) -> str:
    """So much apart, by the size of what is expected."""
    size = abs(complex(expected))
    return f"{apart / size:.2g}" if size else "inf"


# Tables of any library as columns of plain values: pandas, polars, Arrow, and what has their methods.
# None of them is imported: what a value is, its methods say.


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


def table_of(value: Any) -> Frame | None:
    """A frame, or a single column; None where it is neither."""
    kind = type(value)
    if hasattr(kind, "iloc") and hasattr(kind, "columns"):  # pandas, and what follows it
        names = list(value.columns)
        return Frame(names, [_pandas(value.iloc[:, place]) for place in range(len(names))], value.index.tolist)
    if hasattr(kind, "iloc"):
        return Frame([None], [_pandas(value, value.name)], value.index.tolist)
    if hasattr(kind, "get_indexer"):
        return Frame([None], [_pandas(value, value.name)])
    if hasattr(kind, "get_columns") and hasattr(kind, "schema"):  # polars
        return Frame(list(value.columns), [_polars(each) for each in value.get_columns()])
    if hasattr(kind, "null_count") and hasattr(kind, "is_null") and hasattr(kind, "to_list"):
        return Frame([None], [_polars(value)])
    if hasattr(kind, "itercolumns") and hasattr(kind, "column_names"):  # Arrow
        columns = [_plain_column(each, each.type, each.null_count, each.to_pylist) for each in value.itercolumns()]
        return Frame(list(value.column_names), columns)
    return None


def _pandas(column: Any, name: Any = None) -> FrameColumn:
    """name: of one that stands alone, which belongs to its type."""
    numpy, dtype = sys.modules["numpy"], column.dtype
    kind = str(dtype)
    if hasattr(dtype, "categories"):
        kind = f"{kind} of {list(dtype.categories)}{', in this order' * bool(dtype.ordered)}"
    kind = kind if name is None else f"{kind} named {name!r}"
    plain = dtype if isinstance(dtype, numpy.dtype) else getattr(dtype, "numpy_dtype", None)
    if plain is not None and plain.kind in "fc":
        return FrameColumn(kind, lambda: column.to_numpy(dtype=plain, na_value=numpy.nan))

    def read() -> list[Any]:
        if getattr(column, "nlevels", 1) > 1:  # an index of several parts, of which nobody asks what is missing
            return list(column.tolist())
        return [None if gone else each for each, gone in zip(column.tolist(), column.isna().tolist())]

    return FrameColumn(kind, read)


def _plain_column(column: Any, kind: Any, missing: int, as_list: Callable[[], list[Any]]) -> FrameColumn:
    """One of polars or Arrow. Where a missing value is no NaN, how often one is missing belongs to the type."""
    floats = "numpy" in sys.modules and str(kind) in ("Float32", "Float64", "float", "double")
    return FrameColumn(f"{kind}{f' with {missing} missing' if missing else ''}", column.to_numpy if floats else as_list)


def _polars(column: Any) -> FrameColumn:
    return _plain_column(column, column.dtype, column.null_count(), column.to_list)


# Answers that are none yet: their work is done later, and no clock around the call sees it.


LATER = (
    (("collect", "explain"), "collect()"),  # polars' LazyFrame, Spark's tables
    (("fetchall", "explain"), "fetchall()"),  # relations of DuckDB
    (("result", "add_done_callback"), "result()"),  # futures
    (("get", "ready", "successful"), "get()"),  # results of a pool of processes
)
"""Methods of a class whose objects only promise an answer, and the call that computes it. It is told by the methods, so
that no library is imported."""

NESTED = 1  # how deep in tuples, lists and tables such answers are looked for


def why_unready(answer: Any, depth: int = 0) -> str:
    """Why what came back is no answer yet, and what to return instead; empty where it is one."""
    kind = type(answer)
    name = f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
    plan = next((call for methods, call in LATER if all(callable(getattr(kind, each, None)) for each in methods)), "")
    if callable(getattr(kind, "__dask_graph__", None)) and answer.__dask_graph__() is not None:
        plan = "compute()"
    if plan:
        return f"returns {name}, which is a plan: its work is done later; return its .{plan}"
    if inspect.isawaitable(answer) or inspect.isasyncgen(answer):
        return f"returns {name}, and nothing awaits it: give a function that does the work"
    if isinstance(answer, Iterator) and not hasattr(kind, "getvalue"):  # a stream in memory holds what was written
        return f"returns {name}: its work is done when it is read; return a list"
    ready: Callable[[], bool] | None = getattr(answer, "is_ready", None)
    if hasattr(kind, "block_until_ready") and ready is not None and not ready():  # an array of jax that is not there
        return f"returns {name} that is computed after the call: return its .block_until_ready()"
    if hasattr(kind, "is_meta") and answer.device.type in ("meta", "lazy", "xla"):
        return f"returns {name} on the device {answer.device.type!r}, which has no values yet: return one that has"
    if depth < NESTED:
        held = answer.values() if isinstance(answer, Mapping) else answer if isinstance(answer, (list, tuple)) else ()
        of_each_type = {type(part): part for part in held}  # a million numbers are seen in one step
        return next(filter(None, (why_unready(part, depth + 1) for part in of_each_type.values())), "")
    return ""


PLAIN = {int, float, str, bytes, bool, type(None)}

LONGEST = 80

UNKNOWN = "cannot be compared by =="
"""Stands in what is told of two values of which nobody can say whether they are the same."""

HINT = "say what counts with --check FILE:FUNCTION"


def difference(got: Any, expected: Any, check: Callable[..., Any] | None = None, *, hint: bool = True) -> str:
    """Where the answers differ, in words; empty where they agree. check: the user's own comparison, called with both.
    It says that they differ by False, or by raising. One that takes one answer gives what counts of it, and that is
    compared. hint: whether the text names the option for one, where there is none."""
    if unready := why_unready(got):
        return unready
    if check is None:
        place = unlike(got, expected)
        return f"{place}; {HINT}" if place and hint else place
    if gives_what_counts(check):
        return unlike(check(got), check(expected))
    try:
        agreed = check(got, expected)
    except Exception as error:
        words = str(error).strip().splitlines()
        return f"the check raises {type(error).__name__}{': ' + words[0] if words else ''}"
    return "the check says that they differ" if agreed is not None and not agreed else ""


def unlike(got: Any, expected: Any) -> str:
    """Where two values differ, in words; empty where they are the same within rounding errors."""
    try:
        return next(_differences(got, expected, ""), "")
    except RecursionError:
        return f"nested too deeply: it {UNKNOWN}"


def outputs_differ(name: str, got: bytes, base_name: str, expected: bytes) -> str:
    """That two commands wrote different things, or ended with different exit codes where these are compared."""
    what = "exit code and standard output" if isinstance(expected, Written) else "standard output"
    return f"{what} of {name}: {_short(got)}; of {base_name}: {_short(expected)}; {HINT}"


def gives_what_counts(check: Callable[..., Any]) -> bool:
    """Whether a check takes one answer, and not two."""
    try:
        parameters = inspect.signature(check).parameters.values()
    except ValueError:  # some built-in functions do not tell
        return False
    needed = [each for each in parameters if each.default is each.empty]
    return len(needed) == 1 and needed[0].kind in (needed[0].POSITIONAL_ONLY, needed[0].POSITIONAL_OR_KEYWORD)


def is_of_all_worlds(answer: Any) -> bool:
    """Whether all that an answer is made of has types that do not belong to one side's modules: plain values, arrays,
    tensors, and lists, tuples, sets and dicts of them."""
    if isinstance(answer, dict):
        return is_of_all_worlds(list(answer)) and is_of_all_worlds(list(answer.values()))
    if type(answer) in (list, tuple, set, frozenset):
        return {*map(type, answer)} <= PLAIN or all(map(is_of_all_worlds, answer))
    if type(answer) in PLAIN or type(answer) is Written:
        return True
    is_array = type(answer).__module__.partition(".")[0] in ("numpy", "torch")
    return is_array and getattr(getattr(answer, "dtype", None), "kind", "") != "O"  # of which items may be anything


def _differences(got: Any, expected: Any, where: str) -> Iterator[str]:
    """Every difference, each with the place in the answer where it is."""
    at = f"{where}: " if where else ""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if got is None and expected is None:
        return
    if torch is not None and isinstance(expected, torch.Tensor):
        yield from (at + told for told in tensors_differ(torch, got, expected))
    elif numpy is not None and isinstance(expected, (numpy.ndarray, numpy.generic)):
        yield from _arrays(numpy, got, expected, where)
    elif isinstance(expected, (float, complex)) and isinstance(got, (float, complex)):
        if not _near(got, expected):
            yield f"{at}{got!r} for {expected!r}"
    elif isinstance(expected, Mapping) and isinstance(got, Mapping):
        if got.keys() != expected.keys():
            missing, odd = expected.keys() - got.keys(), got.keys() - expected.keys()
            yield at + ", ".join(filter(None, (_keys(missing, "missing"), _keys(odd, "too many"))))
        for key in expected.keys() & got.keys():
            yield from _differences(got[key], expected[key], f"{where}[{_short(key)}]")
    elif isinstance(expected, (list, tuple)) and type(got).__name__ == type(expected).__name__:
        if len(got) != len(expected):
            yield f"{at}{len(got)} items for {len(expected)}"
        elif not (set(map(type, expected)) <= PLAIN and got == expected):  # of a million numbers, in one step
            for index, (ours, theirs) in enumerate(zip(got, expected)):
                yield from _differences(ours, theirs, f"{where}[{index}]")
    elif type(got).__qualname__ != type(expected).__qualname__:
        yield f"{at}{type(got).__name__} for {type(expected).__name__}"
    elif dataclasses.is_dataclass(expected) and not isinstance(expected, type):
        for field in dataclasses.fields(expected):
            yield from _differences(getattr(got, field.name), getattr(expected, field.name), f"{where}.{field.name}")
    elif table_of(expected) is not None:
        yield from _tables(numpy, got, expected, where)
    else:
        yield from _others(got, expected, where)


def _arrays(numpy: Any, got: Any, expected: Any, where: str) -> Iterator[str]:
    at = f"{where}: " if where else ""
    if not isinstance(got, (numpy.ndarray, numpy.generic)):
        yield f"{at}{type(got).__name__} for an array"
    elif got.shape != expected.shape or got.dtype != expected.dtype:
        yield f"{at}{got.dtype}{list(got.shape)} for {expected.dtype}{list(expected.shape)}"
    elif expected.dtype.names:
        for name in expected.dtype.names:
            yield from _arrays(numpy, got[name], expected[name], f"{where}[{name!r}]")
    elif expected.dtype.kind == "O":
        for place in numpy.ndindex(expected.shape):
            yield from _differences(got[place], expected[place], where + "".join(f"[{index}]" for index in place))
    else:
        yield from (at + told for told in arrays_differ(numpy, got, expected))


def _tables(numpy: Any, got: Any, expected: Any, where: str) -> Iterator[str]:
    """Tables of one class: names and types of their columns, how many rows, how these are called, and every column."""
    ours, theirs = table_of(got), table_of(expected)
    assert ours is not None and theirs is not None, "they are of one class"
    kinds, others = ([column.kind for column in table.columns] for table in (ours, theirs))
    if ours.names == theirs.names and kinds == others and got.equals(expected):
        return
    at = f"{where}: " if where else ""
    yield from _differences(ours.names, theirs.names, f"{where}.columns")
    for name, mine, other in zip(theirs.names, ours.columns, theirs.columns):
        place = at if name is None else f"{at}column {_short(name)}: "
        if mine.kind != other.kind:
            yield f"{place}{_cut(mine.kind)} for {_cut(other.kind)}"
        else:
            near = NEAR.get(other.kind.partition(" ")[0].lower(), NEAR_DOUBLE)
            yield from (place + told for told in _columns_differ(numpy, mine.read(), other.read(), near))
    yield from _differences(ours.rows(), theirs.rows(), f"{where}.index")


def _columns_differ(numpy: Any, got: Any, expected: Any, near: tuple[float, float]) -> Iterator[str]:
    """What is told of two columns of one type. near: how far their numbers may be apart, where they are no arrays."""

    exact = PLAIN - {float}

    def differ(ours: Any, theirs: Any) -> bool:
        if type(ours) is type(theirs) and type(ours) in exact:  # seconds less of a million rows
            return bool(ours != theirs)
        if isinstance(ours, float) and isinstance(theirs, float):
            return not _near(ours, theirs, near)
        return bool(next(_differences(ours, theirs, ""), ""))

    if len(got) != len(expected):
        yield f"{len(got)} rows for {len(expected)}"
    elif not isinstance(expected, list):
        yield from arrays_differ(numpy, got, expected, is_column=True)
    elif wrong := [row for row, pair in enumerate(zip(got, expected)) if differ(*pair)]:
        ours, theirs = got[wrong[0]], expected[wrong[0]]
        first = f"{_short(ours)} for {_short(theirs)}"
        if isinstance(ours, float) and isinstance(theirs, float):
            first += f" (relative {relative_text(abs(ours - theirs), theirs)}); allowed {near[0]:g}"
        yield f"{len(wrong)} of {len(expected)} values differ, the first at row {wrong[0]}: {first}"


def _others(got: Any, expected: Any, where: str) -> Iterator[str]:
    """Values of one type that `==` compares, or whose class says how, or else by what they hold."""
    at = f"{where}: " if where else ""
    held = getattr(expected, "__dict__", None)
    if hasattr(type(expected), "getvalue"):  # a stream in memory
        yield from _differences(got.getvalue(), expected.getvalue(), where)
        return
    compare = getattr(expected, "equals", None)  # of what is like a table, whose == is a table
    if callable(compare):
        try:
            same = bool(compare(got))
        except Exception as error:  # it means something else
            if not held:
                yield f"{at}equals raises {type(error).__name__}: a {type(expected).__name__} {UNKNOWN}"
                return
            same = False
        if not same:
            # Its own comparison is exact: what it holds may agree but for rounding.
            yield from _differences(vars(got), held, where) if held else iter((f"{at}the tables differ",))
    elif cast(Any, type(expected).__eq__) is object.__eq__ and type(expected) is not object:
        if not held:  # what it holds is not to be seen, as of a stream
            yield f"{at}a {type(expected).__name__} {UNKNOWN}"
        elif got is not expected:
            yield from _differences(vars(got), held, where)
    elif (arrays := _as_arrays(got, expected)) is not None:
        yield from _arrays(*arrays, where)
    else:
        try:
            same = bool(got == expected) or bool(got != got and expected != expected)
        except Exception as error:
            if got is not expected:
                yield f"{at}== raises {type(error).__name__}"
            return
        if not same:
            yield f"{at}{_short(got)} for {_short(expected)}"


def _as_arrays(got: Any, expected: Any) -> tuple[Any, Any, Any] | None:
    """numpy, and both as its arrays, where they are arrays of another library."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not all(hasattr(type(expected), name) for name in ("__array__", "shape", "dtype")):
        return None
    try:
        return numpy, numpy.asarray(got), numpy.asarray(expected)
    except Exception:
        return None


def _near(got: complex, expected: complex, near: tuple[float, float] = NEAR_DOUBLE) -> bool:
    relative, absolute = near
    if got == expected or (got != got and expected != expected):
        return True
    return math.isfinite(abs(expected)) and abs(got - expected) <= absolute + relative * abs(expected)


def _keys(keys: set[Any], what: str) -> str:
    if not keys:
        return ""
    some = ", ".join(sorted(map(_short, keys))[:3])
    return f"{len(keys)} key{'s' * (len(keys) > 1)} {what} ({some}{', …' * (len(keys) > 3)})"


def _short(value: Any) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
