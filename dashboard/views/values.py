"""Single values out of files that may come from anywhere: what is of a wrong kind becomes None, "" or nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def text(value: Any) -> str:
    """A string as it is, nothing as "", anything else as Python writes it."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def number(value: Any) -> float | None:
    """A finite number, else None (a bool is none)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def positive(value: Any) -> float | None:
    """A finite number above 0, else None."""
    found = number(value)
    return found if found is not None and found > 0 else None


def mapping(value: Any) -> Mapping[str, Any]:
    """A table, else an empty one."""
    return value if isinstance(value, dict) else {}


def records(value: Any) -> list[Mapping[str, Any]]:
    """The tables of a list; what else is in it is left out."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
