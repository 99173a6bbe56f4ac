"""Whether two functions gave the same answer: tensors and arrays within rounding errors, all else exactly."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from .command import Written

NEAR = {"float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "complex64": (1.3e-6, 1e-5)}
"""Type of an array → relative and absolute tolerance: those of torch.testing.assert_close."""

NEAR_DOUBLE = (1e-7, 1e-7)

PLAIN = {int, float, str, bytes, bool, type(None)}

LONGEST = 80

UNKNOWN = "cannot be compared by =="
"""Stands in what is told of two values of which nobody can say whether they are the same."""


def difference(got: Any, expected: Any, check: Callable[..., Any] | None = None) -> str:
    """Where the answers differ, in words; empty where they agree.

    check: the user's own comparison, called with both. It says that they differ by False, or by raising. One that takes
    one answer gives what counts of it, and that is compared.
    """
    if lazy := _lazy(got):
        return lazy
    if check is not None and not gives_what_counts(check):
        return _by_check(check, got, expected)
    if check is not None:
        got, expected = check(got), check(expected)
    try:
        return next(_differences(got, expected, ""), "")
    except RecursionError:
        return "the answers are nested too deeply to be compared: say how with a check of yours"


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


def _lazy(got: Any) -> str:
    """Why what came back is no answer yet; empty where it is one."""
    if inspect.isawaitable(got) or inspect.isasyncgen(got):
        return f"returns a {type(got).__name__}, and nothing awaits it: give a function that does the work"
    if isinstance(got, Iterator):
        return f"returns a {type(got).__name__}: its work is done when it is read; return a list"
    return ""


def _by_check(check: Callable[..., Any], got: Any, expected: Any) -> str:
    try:
        agreed = check(got, expected)
    except Exception as error:
        words = str(error).strip().splitlines()
        return f"the check raises {type(error).__name__}{': ' + words[0] if words else ''}"
    return "the check says that they differ" if agreed is not None and not agreed else ""


def _differences(got: Any, expected: Any, where: str) -> Iterator[str]:
    """Every difference, each with the place in the answer where it is."""
    at = f"{where}: " if where else ""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if got is None and expected is None:
        return
    if torch is not None and isinstance(expected, torch.Tensor):
        yield from _tensors(torch, got, expected, at)
    elif numpy is not None and isinstance(expected, (numpy.ndarray, numpy.generic)):
        yield from _arrays(numpy, got, expected, at)
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
    else:
        yield from _others(got, expected, where)


def _tensors(torch: Any, got: Any, expected: Any, at: str) -> Iterator[str]:
    if not isinstance(got, torch.Tensor):
        yield f"{at}{type(got).__name__} for a tensor"
        return
    try:
        torch.testing.assert_close(got, expected, equal_nan=True)
    except AssertionError as error:
        yield at + " ".join(line for line in str(error).splitlines() if line)[: 3 * LONGEST]


def _arrays(numpy: Any, got: Any, expected: Any, at: str) -> Iterator[str]:
    if not isinstance(got, (numpy.ndarray, numpy.generic)):
        yield f"{at}{type(got).__name__} for an array"
    elif got.shape != expected.shape or got.dtype != expected.dtype:
        yield f"{at}{got.dtype}{list(got.shape)} for {expected.dtype}{list(expected.shape)}"
    elif expected.dtype.kind in "fc":
        relative, absolute = NEAR.get(expected.dtype.name, NEAR_DOUBLE)
        right = numpy.isclose(got, expected, rtol=relative, atol=absolute, equal_nan=True)
        if not right.all():
            yield f"{at}{int((~right).sum())} of {right.size} values differ by more than {relative:g} of the value"
    elif not numpy.array_equal(got, expected):
        yield f"{at}{int((got != expected).sum())} of {expected.size} values differ"


def _others(got: Any, expected: Any, where: str) -> Iterator[str]:
    """Values of one type that `==` compares, or whose class says how, or else by what they hold."""
    at = f"{where}: " if where else ""
    compare = getattr(expected, "equals", None)  # tables, whose == is a table
    if callable(compare):
        if not compare(got):
            yield f"{at}the tables differ"
    elif cast(Any, type(expected).__eq__) is object.__eq__ and type(expected) is not object:
        if not getattr(expected, "__dict__", None):  # what it holds is not to be seen, as of a stream
            yield f"{at}a {type(expected).__name__} {UNKNOWN}: say how with a check of yours"
        elif got is not expected:
            yield from _differences(vars(got), vars(expected), where)
    else:
        try:
            same = bool(got == expected)
        except Exception as error:
            yield f"{at}== raises {type(error).__name__}: say how to compare with a check of yours"
            return
        if not same:
            yield f"{at}{_short(got)} for {_short(expected)}"


def _near(got: complex, expected: complex) -> bool:
    relative, absolute = NEAR_DOUBLE
    if got == expected or (got != got and expected != expected):
        return True
    return math.isfinite(abs(expected)) and abs(got - expected) <= absolute + relative * abs(expected)


def _keys(keys: set[Any], what: str) -> str:
    if not keys:
        return ""
    some = ", ".join(sorted(map(_short, keys))[:3])
    return f"{len(keys)} key{'s' * (len(keys) > 1)} {what} ({some}{', …' * (len(keys) > 3)})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
