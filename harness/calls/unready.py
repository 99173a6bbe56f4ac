"""Answers that are none yet: their work is done later, and no clock around the call sees it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

LATER = (
    (("collect", "explain"), "collect()"),  # polars' LazyFrame, Spark's tables
    (("fetchall", "explain"), "fetchall()"),  # relations of DuckDB
    (("result", "add_done_callback"), "result()"),  # futures
    (("get", "ready", "successful"), "get()"),  # results of a pool of processes
)
"""Methods of a class whose objects only promise an answer, and the call that computes it. It is told by the methods, so
that no library is imported."""

NESTED = 1
"""How deep in tuples, lists and tables such answers are looked for."""


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
    if _is_computing(answer):
        return f"returns {name} that is computed after the call: return its .block_until_ready()"
    if hasattr(kind, "is_meta") and answer.device.type in ("meta", "lazy", "xla"):
        return f"returns {name} on the device {answer.device.type!r}, which has no values yet: return one that has"
    if depth < NESTED:
        return next(filter(None, (why_unready(each, depth + 1) for each in _some(answer))), "")
    return ""


def _is_computing(answer: Any) -> bool:
    """Whether it is an array of jax that is not there yet."""
    ready: Callable[[], bool] | None = getattr(answer, "is_ready", None)
    return hasattr(type(answer), "block_until_ready") and ready is not None and not ready()


def _some(answer: Any) -> list[Any]:
    """One of each type of what a container holds: a million numbers are seen in one step."""
    held = answer.values() if isinstance(answer, Mapping) else answer if isinstance(answer, (list, tuple)) else ()
    return list({type(each): each for each in held}.values())
