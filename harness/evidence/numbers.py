"""How numbers are written in reasons and files."""

from __future__ import annotations

import math
from collections.abc import Sequence


def exp(log_ratio: float) -> float:
    try:
        return math.exp(log_ratio)
    except OverflowError:
        return math.inf


def finite_or_null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def or_null(ratio: float) -> float | None:
    """A ratio for JSON: null for "no bound", which is 0 below and infinity above, and for NaN."""
    return ratio if math.isfinite(ratio) and ratio > 0 else None


def percent(share: float) -> str:
    """0.0042 as "0.42 %", with two figures that count."""
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def listing(words: Sequence[str]) -> str:
    return ", ".join(words)
