"""Where two arrays, or two tensors, of one type differ: within rounding errors of their type, told with the place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

NEAR = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "complex64": (1.3e-6, 1e-5),
}
"""Type of an array → relative and absolute tolerance: those of torch.testing.assert_close."""

NEAR_DOUBLE = (1e-7, 1e-7)

LONGEST_TEXT = 240

Place = tuple[int, ...]


def _bracketed(place: Place) -> str:
    return f"[{', '.join(map(str, place))}]"


def arrays_differ(
    numpy: Any, got: Any, expected: Any, *, kind: str = "", place: Callable[[Place], str] = _bracketed
) -> Iterator[str]:
    """What is told of two arrays of one shape and type; nothing where they agree.

    kind: the name of their type, where they come from another library. place: tells where a value is.
    """
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
    values = f"{_value(got[at])} for {_value(expected[at])}"
    if allowed:
        values += f" (relative {relative_text(float(apart[at]), expected[at])}); allowed {allowed:g}"
    if not expected.shape:
        yield values
    else:
        which = f"the {'largest' if allowed else 'first'} at {place(at)}"
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


def _value(value: Any) -> str:
    """A value of an array, without the name of its type."""
    return repr(value.item()) if value.dtype.kind in "US" else str(value)


def relative_text(apart: float, expected: Any) -> str:
    """So much apart, by the size of what is expected."""
    size = abs(complex(expected))
    return f"{apart / size:.2g}" if size else "inf"
