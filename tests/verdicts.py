"""Effects and verdicts as tests write them: in the form of verdicts.json, where an open end is None."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import TypeAdapter

from llama_workbench.harness.store.verdict_schema import Effect, Ends, Verdict

T = TypeVar("T")

OPEN: dict[str, Any] = {"low": -math.inf, "high": math.inf}
"""The ends of an interval that is not there yet, in memory."""


def an_effect(**changes: Any) -> Effect:
    """A ratio with its interval; `value` for one with a unit."""
    usual = {
        "workload": "w",
        "variant": "v",
        "baseline": "b",
        "metric": "cpu time",
        "clock": "cpu",
        "ratio": changes.pop("value", 1.0134),
        "low": 1.0091,
        "high": 1.0179,
        "rounds": 48,
        "seconds": 3.14,
        "verdict": "supported",
    }
    return _of(Effect, usual | changes)


def a_verdict(*effects: Effect, **changes: Any) -> Verdict:
    """A claim of more than 1 %; `low` and `high` are the ends of another region."""
    usual = {
        "claim": "a-claim",
        "who": ["TEAM-006"],
        "title": "A claim",
        "statement": "They say so.",
        "verdict": "supported",
        "reason": "inside the claimed range on w",
        "alpha": 0.001,
        "claimed": "more than 1 % faster",
        "region": Ends(changes.pop("low", 1.01), changes.pop("high", None)),
        "effects": effects,
    }
    return _of(Verdict, usual | changes)


def _of(kind: type[T], content: dict[str, Any]) -> T:
    assert content.keys() <= {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return TypeAdapter(kind).validate_python(content)
